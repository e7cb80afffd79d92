"""Loading files from outside without running code in them.

Pickles and `.pt` files are programs. Only those that build arrays, numbers, texts and plain
containers are admitted; anything else is refused before it is called. Arrays are built by the
stand-ins below: NumPy's own take flags from the file, with which it can forge pointers.
"""

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from colafier.readers import arrays
from colafier.readers.files import read_bytes, size_of

PLACES = ("numpy.core", "numpy._core")  # NumPy 1 and 2
MAX_BYTES = 2**32  # of a pickle
KINDS = "biufcSU"  # of data types: numbers and texts


class UnsafeFileError(ValueError):
    """A file asks for more than arrays and plain containers."""


def load_pickle(path: Path) -> Any:
    """Content of a pickle of arrays and plain containers, written by Python 2 or 3.

    Texts of Python 2 are read as latin-1, which also keeps the bytes of its arrays.
    """
    try:
        content = read_bytes(path, MAX_BYTES)
        return _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except UnsafeFileError as error:
        raise UnsafeFileError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise ValueError(f"{path} is not a readable pickle of arrays ({error})") from error


def load_torch(path: Path) -> Any:
    """Content of a `.pt` file of tensors, arrays and plain containers."""
    admitted: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
        _Array,  # torch must know the type that it fills, not only its name in the file
        *((stand_in, ".".join(name)) for name, stand_in in ADMITTED.items()),
    ]
    size_of(path)
    try:
        with torch.serialization.safe_globals(admitted):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, UnsafeFileError) as error:
        raise UnsafeFileError(
            f"{path} was not opened: it is damaged, or holds more than tensors, arrays and plain "
            "containers and could run code. Save its arrays alone and load that file."
        ) from error
    except Exception as error:  # a damaged file can fail in any way
        raise ValueError(f"{path} is not a readable .pt file ({error})") from error


def load_npy(path: Path) -> np.ndarray[Any, Any]:
    """The array of a `.npy` file; arrays of Python objects are refused."""
    size_of(path)
    if zipfile.is_zipfile(path):
        raise ValueError(f"{path} holds several arrays; save the one to use with numpy.save")
    return arrays.read(path)


class _Kind:
    """Stands in for `numpy.dtype`: takes its name and byte order from a file, and no flags."""

    def __init__(self, name: str, *_: object) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in KINDS:
            raise UnsafeFileError(
                "it holds an array of Python objects or records; save numbers or texts instead"
            )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray[Any, Any]):
    """Stands in for `numpy.ndarray`: filled from bytes alone."""

    def __new__(cls, *_: object) -> "_Array":
        return super().__new__(cls, 0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        plain = (1, shape, kind.dtype, bool(fortran), _bytes(raw))
        super().__setstate__(plain)  # type: ignore[arg-type]  # NumPy says np.bool, and refuses it


def _scalar(kind: _Kind, raw: bytes | str) -> Any:
    """What pickles of single numbers call."""
    return np.frombuffer(_bytes(raw), kind.dtype)[0]


def _from_buffer(
    raw: bytes, kind: _Kind, shape: tuple[int, ...], order: Literal["C", "F"]
) -> np.ndarray[Any, Any]:
    """What arrays in pickle protocol 5 call."""
    return np.frombuffer(_bytes(raw), kind.dtype).reshape(shape, order=order)


def _bytes(raw: bytes | str) -> bytes:
    """Bytes, which Python 2 wrote as text; lists, which hold Python objects, fail here."""
    return raw.encode("latin1") if isinstance(raw, str) else memoryview(raw).tobytes()


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 calls to write bytes in old pickle protocols."""
    if encoding != "latin1":
        raise UnsafeFileError(f"it encodes text as {encoding!r}, which arrays do not need")
    return text.encode("latin1")


ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,
    **{(f"{place}.multiarray", "_reconstruct"): _Array for place in PLACES},
    **{(f"{place}.multiarray", "scalar"): _scalar for place in PLACES},
    **{(f"{place}.numeric", "_frombuffer"): _from_buffer for place in PLACES},
}


class _ArrayUnpickler(pickle.Unpickler):
    """Finds only the names in `ADMITTED`."""

    def find_class(self, module: str, name: str) -> Any:
        """The admitted object, or an error."""
        if (module, name) not in ADMITTED:
            raise UnsafeFileError(
                f"it asks for {module}.{name}, so it is more than arrays and plain containers and "
                "could run code; it was not loaded. Save its arrays alone and load that file."
            )
        return ADMITTED[module, name]
