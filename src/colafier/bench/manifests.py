"""Noise manifests: hashes of the noisy labels of the suites, so that all run on the same labels.

`benchmarks/noise_manifests.py` writes the file, `suites/noise.json`.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from colafier.bench.suite import FOLDER
from colafier.workflows.settings import Settings

FILE = FOLDER / "noise.json"


def check_labels(settings: Settings, noise: str, manifest: Mapping[str, Any]) -> None:
    """Refuse noisy labels that differ from those of the committed manifest, if it has them."""
    known = _committed().get(label_name(settings, noise))
    if known is None or known["sha256"] == manifest["sha256"]:
        return
    raise ValueError(
        f"the labels of {noise} with seed {settings.seed} on {settings.source} differ from those "
        f"of the benchmark: {manifest['true_rate']:.4f} of them are wrong, not "
        f"{known['true_rate']:.4f}, and their hash is {manifest['sha256'][:12]}, not "
        f"{known['sha256'][:12]}; check the files in --data"
    )


def label_name(settings: Settings, noise: str) -> str:
    """What the labels of a run depend on; labels that come from a file have no seed."""
    rows = "" if settings.limit is None else f"[:{settings.limit}]"
    fixed = noise.partition(":")[0] in ("file", "cifar10n")
    return f"{settings.source}{rows} {noise}" + ("" if fixed else f" seed {settings.seed}")


@cache
def _committed() -> dict[str, dict[str, Any]]:
    if not FILE.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found
