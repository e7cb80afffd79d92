"""The power of the holdout check, simulated: how often it passes, and how often it should.

    python benchmarks/holdout_check.py                # a few minutes of one core

Prints Markdown tables. Rows have a margin of their own (log-normal). The logits of each subnet are
that margin at the true class, plus Gaussian noise that the two subnets share in part. The margins
are scaled so that a wanted share of the predictions is right. Wrong labels are any other class
(`symmetric`), the next class (`pair`), or a class that the subnets confuse the row with as well
(`look-alike`). For comparison, a person who knows the true classes of the same rows makes a paired
test of predictions against labels.

Of the subnets' confidence only the order counts, so over- and underconfidence cannot change the
result of the check.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path
from statistics import fmean
from unittest import mock

import torch
from torch import Tensor

from colafier.core import holdout_check
from colafier.core.holdout_check import sureness, weigh

CLASSES = 10
GAPS = (-0.3, -0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.3, 0.4)  # b - a
OBSERVED_RIGHT = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # a
PREDICTED_RIGHT = (0.3, 0.985)  # the lowest and highest b
NOISES = ("symmetric", "pair", "look-alike")
CORRELATIONS = (0.3, 0.5, 0.7)
SIZES = (100, 300, 1000)
USUAL_SIZE, USUAL_CORRELATION = 300, 0.5
SHARED_ERRORS = (0.2, 0.3, 0.4, 0.5)
MIN_DEVIATIONS = (0.0, 0.5, 0.75, 1.0, 1.5)
ALLOWED = 0.02  # share of cases without better predictions that may pass
RECORDED = Path(__file__).parents[1] / "docs/results/holdout-check.json"

Rows = tuple[Tensor, ...]  # gen, dis, how sure both are, observed, truth; (sims, rows) each


@dataclass(frozen=True)
class Case:
    """One kind of held-out rows."""

    rows: int
    observed_right: float
    gap: float
    noise: str
    correlation: float


def cases(
    sizes: Sequence[int] = SIZES, correlations: Sequence[float] = CORRELATIONS
) -> Iterator[Case]:
    """All cases of the grid in which both shares are possible."""
    low, high = PREDICTED_RIGHT
    for rows in sizes:
        for correlation in correlations:
            for noise in NOISES:
                for gap in GAPS:
                    for right in OBSERVED_RIGHT:
                        if low <= right + gap <= high:
                            yield Case(rows, right, gap, noise, correlation)


@cache
def margin(predicted_right: float) -> float:
    """The scale of the margins at which this share of the predictions is right, by bisection."""
    generator = torch.Generator().manual_seed(1)
    spread = torch.randn(20_000, generator=generator).exp()  # (n,)
    logits = torch.randn(20_000, CLASSES, generator=generator)  # (n, c)
    lead = logits[:, 1:].max(1).values - logits[:, 0]  # (n,) the margin that a row needs
    low, high = 0.01, 60.0
    for _ in range(40):
        middle = sqrt(low * high)
        if float((middle * spread > lead).double().mean()) < predicted_right:
            low = middle
        else:
            high = middle
    return low


def draw(case: Case, sims: int, generator: torch.Generator) -> Rows:
    """Predictions with their sureness, observed labels and true classes of a case, many times."""
    shape = (sims, case.rows)
    truth = torch.randint(CLASSES, shape, generator=generator)  # (s, m)
    at_truth = torch.nn.functional.one_hot(truth, CLASSES)  # (s, m, c)
    margins = margin(case.observed_right + case.gap) * torch.randn(shape, generator=generator).exp()

    def mixed(shared: Tensor, correlation: float) -> Tensor:
        own = torch.randn(*shape, CLASSES, generator=generator)  # (s, m, c)
        return sqrt(correlation) * shared + sqrt(1 - correlation) * own

    shared = torch.randn(*shape, CLASSES, generator=generator)  # (s, m, c)
    p, q = (
        (mixed(shared, case.correlation) + at_truth * margins[..., None]).softmax(2)
        for _ in range(2)
    )
    sure = sureness(p.flatten(0, 1), q.flatten(0, 1)).view(shape)  # (s, m)
    if case.noise == "look-alike":
        other = (mixed(shared, 0.5) - 100 * at_truth).argmax(2)  # (s, m)
    elif case.noise == "pair":
        other = (truth + 1) % CLASSES
    else:
        other = (truth + torch.randint(1, CLASSES, shape, generator=generator)) % CLASSES
    wrong = torch.rand(shape, generator=generator) >= case.observed_right  # (s, m)
    classes = (p.argmax(2), q.argmax(2), torch.where(wrong, other, truth), truth)
    gen, dis, observed, truth = (some.to(torch.uint8) for some in classes)  # many are kept
    return gen, dis, sure, observed, truth


def checked(rows: Rows) -> list[float]:
    """The deviations that the holdout check finds, once for each simulation."""
    return [weigh(*some).deviations for some in zip(*rows[:4], strict=True)]


def informed(rows: Rows) -> list[float]:
    """The deviations that a person finds who knows the truth: a paired test."""
    gen, dis, _, observed, truth = rows
    right = ((gen == truth).double() + (dis == truth).double()) / 2  # (s, m)
    better = right - (observed == truth).double()  # (s, m)
    deviation = (better.std(1) / sqrt(better.shape[1])).clamp(min=1 / better.shape[1])  # (s,)
    found: list[float] = (better.mean(1) / deviation).tolist()
    return found


Found = dict[Case, list[float]]


def share(
    found: Found, least: float, wanted: Callable[[Case], bool] = lambda _: True
) -> float | None:
    """How many of the wanted cases reach at least so many deviations; None if there are none."""
    values = [value for case, some in found.items() if wanted(case) for value in some]
    return sum(value >= least for value in values) / len(values) if values else None


def better(case: Case) -> bool:
    """Whether the check should pass: predictions are at least 10 points better."""
    return case.gap >= 0.1


def not_better(case: Case) -> bool:
    """Whether the check must not pass."""
    return case.gap <= 0


def by_gap(found: Found, least: float) -> str:
    """Shares that pass, by gap: of all noises, then of each noise with the usual number of rows."""
    lines = [
        "| rows | correlation | noise | " + " | ".join(f"{gap:+.2f}" for gap in GAPS) + " |",
        "|---" * (3 + len(GAPS)) + "|",
    ]

    def line(rows: int, correlation: float, noises: Sequence[str], name: str) -> str:
        shares = (
            share(
                found,
                least,
                lambda case: (
                    (case.rows, case.correlation, case.gap) == (rows, correlation, gap)  # noqa: B023
                    and case.noise in noises
                ),
            )
            for gap in GAPS
        )
        cells = " | ".join("" if value is None else f"{value:.2f}" for value in shares)
        return f"| {rows} | {correlation} | {name} | {cells} |"

    sizes = sorted({case.rows for case in found})
    correlations = sorted({case.correlation for case in found})
    lines += [line(rows, c, NOISES, "all") for rows in sizes for c in correlations]
    lines += [
        line(USUAL_SIZE, c, [noise], noise)
        for c in correlations
        for noise in NOISES
        if USUAL_SIZE in sizes
    ]
    return "\n".join(lines)


COLUMNS: tuple[tuple[str, float, Callable[[Case], bool]], ...] = (
    ("at least +10 points", USUAL_CORRELATION, better),
    ("exactly +10", USUAL_CORRELATION, lambda case: case.gap == 0.1),
    ("not better", USUAL_CORRELATION, not_better),
    ("exactly equal", USUAL_CORRELATION, lambda case: case.gap == 0),
    ("at least +10 points", 0.7, better),
    ("not better", 0.7, not_better),
    ("at least 10 points worse", 0.7, lambda case: case.gap <= -0.1),
)


def line_of_rule(name: str, found: Found, least: float) -> str:
    """How often a rule passes in the cases of each column."""
    shares = (
        share(found, least, lambda case: case.correlation == correlation and wanted(case))  # noqa: B023
        for _, correlation, wanted in COLUMNS
    )
    return f"| {name} | " + " | ".join(f"{value or 0.0:.3f}" for value in shares) + " |"


def choices(usual: dict[Case, Rows]) -> str:
    """The check with other constants, and a person who knows the truth."""
    names = " | ".join(f"{name} ({correlation})" for name, correlation, _ in COLUMNS)
    lines = [f"| rule | {names} |", "|---" * (1 + len(COLUMNS)) + "|"]
    for shared in SHARED_ERRORS:
        with mock.patch.object(holdout_check, "SHARED_ERRORS", shared):
            found = {case: checked(rows) for case, rows in usual.items()}
        lines += [
            line_of_rule(f"shared errors {shared}, {least} deviations", found, least)
            for least in MIN_DEVIATIONS
        ]
    known = {case: informed(rows) for case, rows in usual.items()}
    for name, correlation, wanted in COLUMNS[2:4]:
        least = limit(known, lambda case: case.correlation == correlation and wanted(case))  # noqa: B023
        lines.append(
            line_of_rule(f"truth known, 2 % '{name}', {least:.2f} deviations", known, least)
        )
    return "\n".join(lines)


def limit(found: Found, wanted: Callable[[Case], bool]) -> float:
    """The deviations that the allowed share of the wanted cases reaches."""
    values = sorted(value for case, some in found.items() if wanted(case) for value in some)
    return values[int((1 - ALLOWED) * len(values))]


def informed_by_labels(usual: dict[Case, Rows]) -> str:
    """A person who knows the truth, at exactly +10 points, by the share of right labels."""
    known = {
        case: informed(rows)
        for case, rows in usual.items()
        if case.gap in (0.0, 0.1) and case.correlation == USUAL_CORRELATION
    }
    lines = ["| right labels | passes at exactly +10 points | at equality |", "|---|---|---|"]
    least = limit(known, lambda case: case.gap == 0)
    for right in OBSERVED_RIGHT:
        power, false = (
            share(known, least, lambda case: (case.observed_right, case.gap) == (right, gap))  # noqa: B023
            for gap in (0.1, 0.0)
        )
        if power is not None and false is not None:
            lines.append(f"| {right} | {power:.3f} | {false:.3f} |")
    return "\n".join(lines)


def shared_errors(gen: Tensor, dis: Tensor, truth: Tensor) -> float:
    """Of the rows where LID-gen is wrong, the share where LID-dis predicts the same class."""
    wrong = gen != truth
    return float((gen == dis)[wrong].double().mean())


def recorded() -> str:
    """The check on held-out rows of real runs, with each value of SHARED_ERRORS."""
    names = " | ".join(f"z, {shared}" for shared in SHARED_ERRORS)
    lines = [
        "| run | look | rows | labels right | so the check | LID-gen, LID-dis right | "
        f"agree | errors shared | {names} |",
        "|---" * (8 + len(SHARED_ERRORS)) + "|",
    ]
    for look in json.loads(RECORDED.read_text(encoding="utf-8")):
        gen, dis, surest, observed, truth = (
            torch.tensor([int(digit) for digit in look[name]])
            for name in ("gen", "dis", "surest", "observed", "truth")
        )
        shares = [
            float((one == other).double().mean())
            for one, other in ((observed, truth), (gen, truth), (dis, truth), (gen, dis))
        ]
        a = weigh(gen, dis, surest.double(), observed).observed_right
        cells = []
        for shared in SHARED_ERRORS:
            with mock.patch.object(holdout_check, "SHARED_ERRORS", shared):
                found = weigh(gen, dis, surest.double(), observed)
            cells.append(f"{found.deviations:.1f}")
        lines.append(
            f"| {look['run']} | {look['look']} | {len(truth)} | {shares[0]:.2f} | {a:.2f} | "
            f"{shares[1]:.2f}, {shares[2]:.2f} | {shares[3]:.2f} | "
            f"{shared_errors(gen, dis, truth):.2f} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulate all cases and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sims", type=int, default=100, help="simulations of each case")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="ROWS")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    generator = torch.Generator().manual_seed(args.seed)
    found: Found = {}
    usual: dict[Case, Rows] = {}
    for case in cases(sorted({*args.sizes, USUAL_SIZE})):
        rows = draw(case, args.sims, generator)
        found[case] = checked(rows)
        if case.rows == USUAL_SIZE:
            usual[case] = rows
    least = holdout_check.MIN_DEVIATIONS
    own = {case: found[case] for case in usual if case.correlation == USUAL_CORRELATION}
    for title, table in (
        (f"Share of cases that pass (at least {least} deviations), by b - a", by_gap(found, least)),
        (f"Share that passes at {USUAL_SIZE} rows (correlation in brackets)", choices(usual)),
        (f"A person who knows the truth of {USUAL_SIZE} rows", informed_by_labels(usual)),
        ("Deviations on held-out rows of real runs", recorded()),
    ):
        sys.stdout.write(f"### {title}\n\n{table}\n\n")
    for correlation in CORRELATIONS:
        of_cases = [
            shared_errors(gen, dis, truth)
            for case, (gen, dis, _, _, truth) in usual.items()
            if case.correlation == correlation
        ]
        sys.stdout.write(
            f"With correlation {correlation} subnets share {fmean(of_cases):.0%} of their errors.\n"
        )
    sys.stdout.write(
        f"One look at {USUAL_SIZE} rows, correlation {USUAL_CORRELATION}: "
        f"{share(own, least, better) or 0.0:.1%} pass where predictions are at least 10 points "
        f"better, {share(own, least, not_better) or 0.0:.1%} where they are not better.\n"
    )


if __name__ == "__main__":
    main()
