"""Learning curves of several groups in one chart, as SVG that a page holds inline."""

import math
from collections.abc import Mapping
from html import escape

from colafier.report.comparison import Curve

COLORS = 8  # --g0 to --g7 in compare.css
DASHES = ("", "7 4", "2 3")  # a ninth group has the first color again, and a dashed line
WIDTH, HEIGHT = 460.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 10.0, 38.0
TICKS = 5  # about so many on each axis


def chart(curves: Mapping[int, tuple[str, Curve]], title: str, unit: str = "%") -> str:
    """An SVG element with a line for each group, and a band where a group has several runs.

    Args:
        curves: By the number of the group: its name, and its curve of shares between 0 and 1.
        title: What is drawn, for screen readers.
        unit: `%`, or nothing for plain numbers.
    """
    points = [point for _, curve in curves.values() for point in curve.points]
    low = min(mean - deviation for _, mean, deviation in points)
    high = max(mean + deviation for _, mean, deviation in points)
    epochs = max(epoch for epoch, _, _ in points)
    axes = _Axes(epochs, max(low, 0.0), min(high, 1.0), unit)
    shapes = "".join(_group(number, *named, axes) for number, named in curves.items())
    names = ", ".join(name for name, _ in curves.values())
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" '
        f'aria-label="{escape(f"{title} over the epochs: {names}")}">{axes.drawn()}{shapes}</svg>'
    )


def color(number: int) -> str:
    """The color of a group, as CSS."""
    return f"var(--g{number % COLORS})"


def key(number: int) -> str:
    """A small picture of the line of a group."""
    return (
        '<svg class="key" viewBox="0 0 34 12" aria-hidden="true">'
        f'<line x1="1" x2="33" y1="6" y2="6" stroke-width="4" {_stroke(number)}/></svg>'
    )


def _stroke(number: int) -> str:
    dash = DASHES[number // COLORS % len(DASHES)]
    return f'stroke="{color(number)}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _group(number: int, name: str, curve: Curve, axes: "_Axes") -> str:
    """The line of a group, and its band."""
    path = " ".join(f"{axes.x(epoch):.1f},{axes.y(mean):.1f}" for epoch, mean, _ in curve.points)
    epoch, mean, deviation = curve.points[-1]
    numbers = [mean, deviation] if curve.has_band else [mean]
    words = f"{name}: {' ± '.join(map(axes.text, numbers))} after epoch {epoch}"
    shapes = [f"<title>{escape(words)}</title>"]
    if curve.has_band:
        upper = [(epoch, mean + deviation) for epoch, mean, deviation in curve.points]
        lower = [(epoch, mean - deviation) for epoch, mean, deviation in reversed(curve.points)]
        edge = " ".join(f"{axes.x(e):.1f},{axes.y(v):.1f}" for e, v in upper + lower)
        shapes.append(f'<polygon class="band" points="{edge}" fill="{color(number)}"/>')
    if len(curve.points) == 1:
        x, y = path.split(",")
        shapes.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color(number)}"/>')
    else:
        shapes.append(f'<polyline class="line" points="{path}" {_stroke(number)}/>')
    return f'<g class="g{number}">{"".join(shapes)}</g>'


class _Axes:
    """Where epochs and shares are drawn."""

    def __init__(self, epochs: int, low: float, high: float, unit: str) -> None:
        self.epochs = epochs
        self.unit = unit
        self.step = _round_step((high - low) / TICKS or 0.1)
        self.low = math.floor(low / self.step + 1e-9) * self.step
        self.high = max(math.ceil(high / self.step - 1e-9) * self.step, self.low + self.step)

    def x(self, epoch: int) -> float:
        """Place of an epoch, from 1."""
        share = (epoch - 1) / (self.epochs - 1) if self.epochs > 1 else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Place of a value; a band that leaves the axes is cut."""
        inside = min(max(value, self.low), self.high)
        share = (inside - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def text(self, value: float, decimals: int = 3) -> str:
        """A share as text, with as many decimals as a number without unit has."""
        return f"{100 * value:.{decimals - 2}f} %" if self.unit else f"{value:.{decimals}f}"

    def drawn(self) -> str:
        """Lines and numbers of both axes."""
        decimals = 2 if self.step >= 0.0099 else 3
        parts = []
        for number in range(round((self.high - self.low) / self.step) + 1):
            value = self.low + number * self.step
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{self.text(value, decimals)}</text>"
            )
        step = max(1, round(_round_step(self.epochs / TICKS)))
        ticks = [1, *range(step, self.epochs + 1, step)] if step > 1 else range(1, self.epochs + 1)
        for epoch in ticks:
            parts.append(
                f'<text x="{self.x(epoch):.1f}" y="{HEIGHT - BOTTOM + 16}" '
                f'text-anchor="middle">{epoch}</text>'
            )
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">epoch</text>')
        return "".join(parts)


def _round_step(raw: float) -> float:
    """The next of 1, 2, 5, 10, ... times a power of ten that is not below `raw`."""
    power: float = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
