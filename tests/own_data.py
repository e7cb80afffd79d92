"""Small data sets of a user, and the command line on them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from colafier.cli.app import app
from colafier.review.decisions import FORMAT
from colafier.workflows.outputs import Outcome
from colafier.workflows.purify import Options, purify

Array = np.ndarray[Any, Any]
CLASSES = ("apple", "pear", "plum")


def colafier(*words: str | Path, code: int = 0) -> str:
    """What the command prints on both channels; it must end with this code."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(word) for word in words])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def quickly(source: Path, out: Path, **options: Any) -> Outcome:
    """A run of one epoch of plain training, unless the options say otherwise."""
    folder = {name: options.pop(name) for name in ("resume", "overwrite") if name in options}
    chosen = {"method": "ce", "epochs": 1, **options}
    return purify(Options(source=str(source), **chosen), out, progress=False, **folder)


def clouds(n: int, wrong: float = 0.0, seed: int = 0, classes: int = 3) -> tuple[Array, Array]:
    """Vectors (n, 4) around one center per class, and labels, a share of them wrong (n,)."""
    random = np.random.default_rng(seed)
    truth = np.arange(n) % classes
    centers = 4 * np.random.default_rng(0).normal(size=(classes, 4))
    x = centers[truth] + random.normal(size=(n, 4))
    flip = random.random(n) < wrong
    return x.astype(np.float32), np.where(flip, (truth + 1) % classes, truth)


def write_npz(path: Path, n: int = 60, **options: Any) -> Path:
    x, labels = clouds(n, **options)
    np.savez(path, features=x, labels=labels)
    return path


def fruit(n: int, **options: Any) -> pd.DataFrame:
    """A table with numbers, a category and labels as texts."""
    x, labels = clouds(n, **options)
    frame = pd.DataFrame(x[:, :3].round(3), columns=["weight", "width", "height"])
    frame["color"] = np.array(["red", "green", "blue"])[labels]
    frame["label"] = np.array(CLASSES)[labels]
    return frame


def write_images(folder: Path, each: int = 9, side: int = 12) -> Path:
    """Class folders of real PNG files: bright ones and dark ones."""
    from PIL import Image

    random = np.random.default_rng(0)
    for name, level in (("größe", 190), ("nacht", 50)):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = random.normal(level, 15, (side, side, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def digest(path: Path) -> dict[str, str]:
    """Hash of each file, whether path is a folder or a file."""
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def read_labels(out: Path) -> pd.DataFrame:
    """The result table as text."""
    return pd.read_csv(out / "labels.csv", dtype=str, keep_default_na=False)


def write_decisions(
    out: Path, path: Path, *choices: tuple[int, str, str | None], **head: Any
) -> Path:
    """A decisions.json for the run in a folder."""
    lines = read_labels(out)
    summary = json.loads((out / "summary.json").read_text())
    made = [
        {
            "row": row,
            "name": lines.loc[row, "name"],
            "original": lines.loc[row, "original_label"] or None,
            "choice": choice,
            "label": label,
            "at": "2026-11-16T09:59:00Z",
        }
        for row, choice, label in choices
    ]
    content = {
        "format": FORMAT,
        "fingerprint": summary["fingerprint"],
        "rows": summary["rows"],
        "saved": "2026-11-16T10:00:00Z",
        "decisions": made,
    }
    path.write_text(json.dumps(content | head))
    return path
