"""The demo: CoLafier and plain cross entropy on digits with 40 % wrong labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from colafier.cli.score_table import percent, table
from colafier.report import page
from colafier.workflows.experiment import Result, prepare, train
from colafier.workflows.run_dir import LABELS
from colafier.workflows.settings import resolve

METHODS = ("colafier", "ce")


def demo(folder: Path, overrides: Mapping[str, Any], console: Console) -> dict[str, Result]:
    """Train both methods on the same rows, labels and batches, and print their scores.

    Args:
        folder: Where a folder for each method is written; an older demo is overwritten.
        overrides: Settings that replace those of the preset `digits`.
        console: Where to print.
    """
    results: dict[str, Result] = {}
    for name in METHODS:
        settings = resolve("digits", {**overrides, "method": name})
        task = prepare(settings)
        if not results:
            console.print(
                f"{len(task.observed):,} images of handwritten digits; "
                f"{percent(task.manifest['true_rate'])} of their labels have been made wrong "
                f"({settings.noise}, seed {settings.seed})."
            )
        console.print(f"Training {name} for {settings.epochs} epochs ...")
        results[name] = train(settings, task, folder / name, overwrite=True)
    records = {name: result.record for name, result in results.items()}
    console.print(table(records, "Digits with wrong labels"))
    console.print(
        f"The purified labels are in {folder / METHODS[0] / LABELS}.\n"
        f"All other files of the runs are in {folder}, one folder per method.\n"
        f"Next: open {folder / METHODS[0] / page.NAME} in a browser to see what was found.",
        soft_wrap=True,
    )
    return results
