"""The config.json of a stored model; every value is checked, because the file may be hostile."""

from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from colafier._validation import Range, checked
from colafier.nets import NETS
from colafier.readers import json_files

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
FORMAT = 2
MAX_SIDE = 4096  # of an image in pixels


class Input(TypedDict):
    """How items become rows."""

    kind: Literal["image", "text", "table", "vector"]
    embedder: NotRequired[str]
    embedder_key: NotRequired[str]
    size: NotRequired[Annotated[int, Range(1, MAX_SIDE)] | None]
    channels: NotRequired[Annotated[int, Range(1, 4)]]
    file: NotRequired[str]
    columns: NotRequired[tuple[str, ...]]


KINDS: dict[str, Any] = {
    "format": int,
    "colafier": str,  # the version that wrote it
    "method": str,
    "hyper": dict[str, Any],
    "epochs": Annotated[int, Range(0)],
    "architecture": str,
    "members": Annotated[int, Range(1, 100)],  # nets of an ensemble
    "net": str,
    "dtype": str,
    "row_shape": tuple[int, ...],
    "classes": tuple[str, ...],
    "input": Input,
    "about": dict[str, Any],
}
MAX_VALUES = 2**24  # in one row: a hostile config must not fill the memory


class ModelFolderError(ValueError):
    """A folder that does not hold a valid model, or a model that cannot be stored in one."""


def read(folder: Path) -> dict[str, Any]:
    """The checked config of a model folder, which must have all its files."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}")
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} is not the folder of a model: it has no {name}")
    try:
        config = check(json_files.read(folder / CONFIG, Any))
    except ModelFolderError as error:
        raise ModelFolderError(f"{folder / CONFIG}: {error}") from error
    except ValueError as error:
        raise ModelFolderError(str(error)) from error
    file = config["input"].get("file")
    if file is not None and not (folder / file).is_file():
        raise FileNotFoundError(f"{folder} is incomplete: it has no {file}")
    return config


def check(config: Any) -> dict[str, Any]:
    """The values in their types; invalid ones are refused."""
    if not isinstance(config, dict) or type(config.get("format")) is not int:
        raise ModelFolderError("this is not the config of a stored model: it has no format")
    if config["format"] != FORMAT:
        by = f"colafier {config.get('colafier')} in format {config['format']}"
        raise ModelFolderError(
            f"written by {by}, but this version reads format {FORMAT}; install that version"
        )
    if missing := [name for name in KINDS if name not in config]:
        raise ModelFolderError(f"{missing[0]} is missing")
    values = checked(config, KINDS, "entry")
    shape, classes = values["row_shape"], values["classes"]
    if len(shape) not in (1, 3) or min(shape) < 1 or prod(shape) > MAX_VALUES:
        raise ModelFolderError(f"row_shape must be (d,) or (c, h, w), not {shape}")
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise ModelFolderError("classes must be two or more different names")
    if values["net"] not in NETS:
        raise ModelFolderError(
            f"the net {values['net']!r} is none of {', '.join(NETS)}, so it cannot be rebuilt from "
            "its name; save a custom net with torch.save, or pickle the estimator"
        )
    if "file" in values["input"]:
        check_file_name(values["input"]["file"])
    return values


def check_file_name(name: Any) -> None:
    """Refuse a name that could lead outside the folder, or replace a file of the model."""
    plain = type(name) is str and name.isprintable() and ":" not in name and name not in ("", "..")
    plain = plain and name == PurePosixPath(name).name == PureWindowsPath(name).name
    if not plain or name.lower() in {taken.lower() for taken in (CONFIG, WEIGHTS, CARD)}:
        raise ModelFolderError(f"an extra file of a model needs a plain name, not {name!r}")
