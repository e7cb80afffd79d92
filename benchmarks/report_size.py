"""Size and time of a report on made-up rows, with paths as names and pictures of pure noise.

    python benchmarks/report_size.py --rows 100000

Prints one JSON line. With selenium and Chromium it also opens the page and filters it.
"""

import argparse
import shutil
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from colafier._io import to_json
from colafier.nets.normalize import Normalize
from colafier.report import evidence, page
from colafier.report.run_files import LABELS
from colafier.report.snippets import of_arrays

CLASSES = [f"class {number}" for number in range(10)]
FEATURES, SIDE = 1280, 32
FILTER = """const start = performance.now(), field = document.getElementById("f-original");
field.value = "3"; field.dispatchEvent(new Event("change", {bubbles: true}));
return (performance.now() - start) / 1000"""


def made_up(n: int) -> tuple[evidence.TrainedRows, pd.DataFrame]:
    """Ten clouds of rows; a tenth of the labels are replaced at random."""
    random = np.random.default_rng(0)
    truth = torch.from_numpy(random.integers(0, 10, n))
    drawn = torch.from_numpy(random.integers(0, 10, n))
    observed = torch.where(torch.from_numpy(random.random(n) < 0.1), drawn, truth)
    x = torch.randn(10, FEATURES)[truth] + torch.randn(n, FEATURES)
    quality = np.where(observed == truth, random.beta(30, 1, n), random.beta(1, 9, n))
    names = np.array(CLASSES)
    moved = quality < 0.5
    lines = pd.DataFrame(
        {
            "row": range(n),
            "name": [f"{CLASSES[g]}/photo_{i:06d}.jpg" for i, g in enumerate(observed.tolist())],
            "original_label": names[observed],
            "predicted_label": names[truth],
            "suggested_label": names[truth],
            "confidence": 1 - quality,
            "label_quality": quality,
            "is_label_issue": moved,
            "action": np.where(moved, "relabel", "keep"),
            "label": np.where(moved, names[truth], names[observed]),
            "reason": np.where(moved, "wrong", ""),
            "lid": random.gamma(3, 2, n),
        }
    )
    scale = Normalize(torch.zeros(FEATURES), torch.ones(FEATURES))
    net = nn.Linear(FEATURES, 10)
    known = evidence.TrainedRows(CLASSES, range(n), x, observed, truth, net, scale)
    return known, lines


def opened(path: Path) -> dict[str, float]:
    """Seconds to open the page, and to apply a filter."""
    if find_spec("selenium") is None or not shutil.which("chromedriver"):
        return {}
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as browser:
        start = time.perf_counter()
        browser.get(path.as_uri())
        took = time.perf_counter() - start
        return {"open_seconds": took, "filter_seconds": browser.execute_script(FILTER)}


def measure(n: int, out: Path) -> dict[str, Any]:
    """Write a run of n rows and its report into a folder."""
    known, lines = made_up(n)
    pictures = np.random.default_rng(0).integers(0, 256, (n, 3, SIDE, SIDE), dtype=np.uint8)
    lines.to_csv(out / LABELS, index=False, float_format="%.6g")
    start = time.perf_counter()
    snippets = of_arrays(pictures, lines["original_label"].tolist())
    evidence.write(out, evidence.gather(known, evidence.doubtful(lines), snippets))
    gathered = time.perf_counter() - start
    wrong = float(1 - lines["label_quality"].mean())
    summary = {
        "fingerprint": "made up", "rows": n, "labeled": n, "classes": 10, "relabeled": 0,
        "estimated_noise_rate": wrong, "estimated_noise_interval": [wrong, wrong],
        "estimated_wrong_labels": round(wrong * n), "accuracy_on_unseen_observed_labels": None,
    }  # fmt: skip
    start = time.perf_counter()
    path = page.write(out, summary)
    written = time.perf_counter() - start
    return {
        "rows": n,
        "page_megabytes": path.stat().st_size / 1e6,
        "of_which_pictures_and_reasons": (out / evidence.NAME).stat().st_size / 1e6,
        "gather_seconds": gathered,
        "write_seconds": written,
        **opened(path),
    }


def main() -> None:
    """Print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(parser.parse_args().rows, Path(folder))
    rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()}
    sys.stdout.write(to_json(rounded) + "\n")


if __name__ == "__main__":
    main()
