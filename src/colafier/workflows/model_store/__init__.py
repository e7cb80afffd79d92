"""The trained classifier as a folder: config.json, model.safetensors and a model card.

A model is rebuilt from its net, shape and classes, and then gets the stored weights. So nothing is
ever unpickled, and no training row is stored.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from colafier import __version__
from colafier._io import atomic_folder, to_json
from colafier.nets import Backbone, inference, net_factory
from colafier.nets.normalize import Normalize
from colafier.readers.files import size_of
from colafier.workflows.model_store import architectures, cards
from colafier.workflows.model_store import config as configs
from colafier.workflows.model_store.config import (
    CARD,
    CONFIG,
    FORMAT,
    KINDS,
    WEIGHTS,
    ModelFolderError,
)

__all__ = ["ModelFolderError", "StoredModel", "card", "load", "save"]

MEAN, STD, PREFIX = "normalize.mean", "normalize.std", "classifier."
FARTHEST = 0.01  # allowed difference of a rebuilt model's probabilities, because bf16 rounds


@dataclass(frozen=True)
class StoredModel:
    """A classifier with everything that is needed to use it and to rebuild it.

    Args:
        classifier: The module from the method's `deployed()`.
        normalize: The normalization of the training rows.
        classes: Names of the classes, in the order of the probabilities.
        row_shape: (channels, height, width) of images as bytes, or (features,).
        input: How items become rows: `kind` (image, text, table, vector), and for example
            `embedder`, `size`, or the name of a `file` in the model's folder.
        method: Name of the method.
        hyper: Hyper-parameters of the method.
        net: Name of the backbone.
        epochs: Epochs of the run.
        about: Figures for the card; each a value, or `{"value": ..., "means": "a sentence"}`.
    """

    classifier: nn.Module
    normalize: Normalize
    classes: tuple[str, ...]
    row_shape: tuple[int, ...]
    input: dict[str, Any]
    method: str
    hyper: dict[str, Any]
    net: str
    epochs: int
    about: dict[str, Any] = field(default_factory=dict)

    def predict(self, x: Tensor | npt.NDArray[Any]) -> Tensor:
        """Probabilities (n, c) of images as bytes (n, c, h, w), or of vectors (n, d)."""
        if x.ndim == 0 or tuple(x.shape[1:]) != self.row_shape:
            raise ValueError(f"rows must be of shape {self.row_shape}, not {tuple(x.shape[1:])}")
        parts = [torch.empty(0, len(self.classes))]
        for start in range(0, len(x), inference.CHUNK):  # x may be a file mapped into memory
            rows = self.as_rows(x[start : start + inference.CHUNK], start)
            parts.append(inference.predict(self.classifier, rows, self.normalize))
        return torch.cat(parts)

    def as_rows(self, x: Tensor | npt.NDArray[Any], start: int = 0) -> Tensor:
        """Rows as bytes or float32, as the classifier was trained; other values are refused.

        Args:
            x: Rows.
            start: Number of the first row, for error messages.
        """
        if isinstance(x, np.ndarray) and x.dtype.kind not in "biuf":
            raise TypeError(f"rows must be numbers, not {x.dtype}")
        rows = x if isinstance(x, Tensor) else torch.tensor(x)  # a copy: x may be read-only
        if len(self.row_shape) == 3:
            if rows.dtype != torch.uint8:
                raise TypeError(f"images must be bytes (uint8, 0 to 255), not {rows.dtype}")
            return rows
        rows = rows.float()  # (b, d)
        bad = (~rows.isfinite()).any(1).nonzero()  # (m, 1)
        if len(bad):
            raise ValueError(f"row {start + int(bad[0])} has a value that is not finite")
        return rows


def card(model: StoredModel) -> str:
    """The model card in Markdown."""
    return cards.render(_config(model))


def save(
    model: StoredModel,
    folder: Path,
    card: str | None = None,
    files: Mapping[str, Callable[[Path], None]] | None = None,
) -> None:
    """Write a model, complete or not at all, after a test that it can be loaded.

    Args:
        model: The model.
        folder: Folder to write; it must not exist.
        card: Text of the model card; None: the text of `card(model)`.
        files: More files by name; each function is called with the path to write to.
    """
    from safetensors import torch as safetensors

    config = _config(model)
    for name in files or {}:
        configs.check_file_name(name)
    state = {f"{PREFIX}{name}": value for name, value in model.classifier.state_dict().items()}
    state |= {MEAN: model.normalize.mean, STD: model.normalize.std}
    # copies, because the format refuses tensors that share memory
    state = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    if folder.exists():
        raise FileExistsError(f"{folder} exists; remove it, or give another folder")
    with atomic_folder(folder) as partial:
        text = json.dumps(config, indent=2, allow_nan=False)
        (partial / CONFIG).write_text(text + "\n", encoding="utf-8")
        text = cards.render(config) if card is None else card
        (partial / CARD).write_text(text, encoding="utf-8")
        # their function for files hides the error of a full disk behind one of its own
        (partial / WEIGHTS).write_bytes(safetensors.save(state, metadata={"format": "pt"}))
        for name, write in (files or {}).items():
            write(partial / name)
        _check_same(model, load(partial))


def load(folder: Path) -> StoredModel:
    """Read a model; the files are checked, and nothing in them is executed."""
    config = configs.read(folder)
    tensors = _read_tensors(folder / WEIGHTS)
    normalize = _take_normalize(tensors, config["row_shape"])
    try:
        classifier = _rebuild(config, sum(value.numel() for value in tensors.values()))
    except Exception as error:  # values from a file can fail in any way
        raise ModelFolderError(f"{folder / CONFIG} cannot be rebuilt: {error}") from error
    _fill(classifier, tensors, folder / WEIGHTS)
    names = ("classes", "row_shape", "input", "method", "hyper", "net", "epochs", "about")
    return StoredModel(classifier, normalize, **{name: config[name] for name in names})


def _config(model: StoredModel) -> dict[str, Any]:
    """The content of config.json, as plain JSON values."""
    dtypes = {m.dtype for m in model.classifier.modules() if isinstance(m, Backbone)}
    if len(dtypes) > 1:
        raise ModelFolderError(f"the nets differ in dtype: {', '.join(sorted(dtypes))}")
    derived = {"format": FORMAT, "colafier": __version__, "dtype": (*dtypes, "auto")[0]}
    try:
        derived |= architectures.describe(model.classifier)
    except ValueError as error:
        raise ModelFolderError(str(error)) from error
    rest = {name: getattr(model, name) for name in KINDS if name not in derived}
    config: dict[str, Any] = json.loads(to_json(derived | rest))
    configs.check(config)
    return {name: config[name] for name in KINDS}


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    size_of(path)
    path.open("rb").close()  # a file without read permission is not reported as damaged
    try:
        return load_file(path)
    except Exception as error:  # a damaged file can fail in any way
        raise ModelFolderError(
            f"{path} cannot be read: it is damaged, or not of the safetensors format ({error})"
        ) from error


def _take_normalize(tensors: dict[str, Tensor], row_shape: tuple[int, ...]) -> Normalize:
    missing = torch.tensor(torch.nan)
    mean, std = (tensors.pop(name, missing) for name in (MEAN, STD))
    for value in (mean, std):
        if value.shape != row_shape[:1] or value.dtype != torch.float32:
            raise ModelFolderError(f"{MEAN} and {STD} do not fit rows of shape {row_shape}")
    if not mean.isfinite().all() or not std.isfinite().all() or std.min() <= 0:
        raise ModelFolderError(f"{MEAN} must be finite, and {STD} above 0")
    return Normalize(mean, std)


def _rebuild(config: Mapping[str, Any], stored: int) -> nn.Module:
    """The classifier with new weights; an error if it needs more than the `stored` numbers."""
    shape, num_classes, members = config["row_shape"], len(config["classes"]), config["members"]
    make_net = net_factory(config["net"], shape, num_classes, config["dtype"])
    with torch.device("meta"):  # needs no memory, whatever the config says
        needed = members * sum(value.numel() for value in make_net().backbone.parameters())
    if needed > stored:
        net = f"{config['net']} on rows of shape {shape}"
        raise ModelFolderError(f"{net} has {needed} parameters, only {stored} are stored")
    return architectures.rebuild(config["architecture"], make_net, num_classes, members)


def _fill(classifier: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Load the weights, after a check of every name, shape, type and value."""
    found = {name.removeprefix(PREFIX): value for name, value in tensors.items()}
    wanted = classifier.state_dict()
    for name in sorted({*found, *wanted}):
        there, here = (_describe(state.get(name)) for state in (found, wanted))
        if there != here:
            raise ModelFolderError(
                f"{path} does not fit its {CONFIG}: {name} is {there}, but must be {here}; load "
                "a model with the files and the version that it was saved with"
            )
    parameters = {name for name, _ in classifier.named_parameters()}
    for name, value in found.items():  # a buffer may hold an infinite limit
        if value.isnan().any() or (name in parameters and value.isinf().any()):
            raise ModelFolderError(f"{path} is unusable: {name} has values that are not finite")
    classifier.load_state_dict(found)


def _describe(value: Tensor | None) -> str:
    return "missing" if value is None else f"{value.dtype} {tuple(value.shape)}"


def _check_same(model: StoredModel, again: StoredModel) -> None:
    """Check that the rebuilt model gives the same probabilities, on a few random rows."""
    noise = torch.randn(4, *model.row_shape, generator=torch.Generator().manual_seed(0))
    x = (noise * 64 + 128).clamp(0, 255).byte()  # (4, c, h, w)
    if len(model.row_shape) == 1:
        x = noise * model.normalize.std.cpu() + model.normalize.mean.cpu()  # (4, d)
    here = replace(model, classifier=copy.deepcopy(model.classifier).cpu())
    apart = (here.predict(x) - again.predict(x)).abs().max()
    if not apart <= FARTHEST:  # also true for NaN
        raise ModelFolderError(
            f"{model.method} with net {model.net} cannot be rebuilt: its probabilities differ by "
            f"{apart:.2g}; check that method, hyper and net are those of the run"
        )
