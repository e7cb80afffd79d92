"""Export of a stored model to one ONNX file, which maps rows to probabilities."""

import copy
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from colafier import __version__
from colafier._io import atomic_file
from colafier.nets import Backbone, inference
from colafier.nets.normalize import Normalize
from colafier.workflows.model_store import StoredModel

OPSET = 18  # torch writes it without conversion, and runtimes read it since 2023
NEEDS = ("onnx", "onnxscript", "onnxruntime")
MOST_APART = 1e-4
INPUT, OUTPUT = "rows", "probabilities"
TRACED = 3  # rows; with one row, the batch size would be fixed


class _Whole(nn.Module):
    """Classifier with normalization and softmax: maps rows as stored to probabilities."""

    def __init__(self, classifier: nn.Module, normalize: Normalize) -> None:
        super().__init__()
        self.classifier = classifier
        self.normalize = normalize

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities (b, c), as `inference.predict` computes them."""
        logits: Tensor = self.classifier(self.normalize(inference.as_float(x)))
        return logits.float().softmax(1)


def export_onnx(model: StoredModel, path: Path, check_rows: Tensor) -> dict[str, Any]:
    """Write the file and compare it with torch; a file that differs is not kept.

    The graph computes in float32, even where torch would use bf16. The names of the classes are
    in its metadata, under `classes`, as JSON.

    Args:
        model: The model.
        path: File to write.
        check_rows: Real rows, as `model.predict` takes them.

    Returns:
        What the file expects, and its largest difference to torch: `opset`, `input`, `dtype`,
        `shape`, `output`, `rows_checked`, `max_difference`.
    """
    if missing := [name for name in NEEDS if util.find_spec(name) is None]:
        raise ImportError(f"{missing[0]} is not installed: pip install 'colafier[onnx]'")
    if len(check_rows) == 0:
        raise ValueError("give rows to check the file with, at least one")
    if tuple(check_rows.shape[1:]) != model.row_shape:
        raise ValueError(f"rows to check with must be of shape {model.row_shape}")
    rows = model.as_rows(check_rows).cpu()
    classifier = _in_float32(model.classifier)
    blank = torch.zeros(TRACED, *model.row_shape, dtype=rows.dtype)
    with atomic_file(path) as partial:
        program = _export(_Whole(classifier, model.normalize).eval(), blank)
        names = json.dumps(model.classes)
        program.model.metadata_props.update({"classes": names, "colafier": __version__})
        program.save(str(partial), external_data=False)
        expected = inference.predict(classifier, rows, model.normalize)  # (n, c)
        apart = _difference(partial, rows, expected)
        if not apart < MOST_APART:  # also true for NaN
            raise RuntimeError(
                f"the ONNX file differs by {apart:.2g} (at most {MOST_APART} is allowed) and was "
                "not kept; use the model with colafier, or try another version of onnxruntime"
            )
    return {
        "opset": OPSET,
        "input": INPUT,
        "dtype": str(rows.dtype).removeprefix("torch."),
        "shape": ["batch", *model.row_shape],
        "output": OUTPUT,
        "rows_checked": len(rows),
        "max_difference": apart,
    }


def _in_float32(classifier: nn.Module) -> nn.Module:
    """A copy on the CPU whose backbones do not use bf16, which few runtimes support."""
    classifier = copy.deepcopy(classifier).cpu().eval()
    for part in classifier.modules():
        if isinstance(part, Backbone):
            part.dtype = "float32"
    return classifier


def _export(module: nn.Module, rows: Tensor) -> Any:
    shapes = ({0: torch.export.Dim("batch")},)
    with torch.no_grad(), _quiet():
        # strict, because otherwise a `len(x)` in a classifier would fix the batch size
        program = torch.export.export(module, (rows,), dynamic_shapes=shapes, strict=True)
        return torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=shapes,  # names the axis
            verbose=False,
        )


def _difference(path: Path, rows: Tensor, expected: Tensor) -> float:
    """Largest difference of the file's probabilities, for batches of many rows and of one."""
    runtime = import_module("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(some: Tensor) -> Tensor:
        return torch.from_numpy(session.run([OUTPUT], {INPUT: some.numpy()})[0])

    parts = [run(some) for some in torch.split(rows, inference.CHUNK)]
    both = torch.cat([*parts, run(rows[:1])]) - torch.cat([expected, expected[:1]])  # (n + 1, c)
    return float(both.abs().max())


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence messages of torch's exporter, such as those about packages that are not needed."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)  # it warns about missing torchvision
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
            yield
    finally:
        registration.setLevel(level)
