"""Loading of files from outside without running code that they carry.

Pickles and `.pt` files are programs. Only those that build arrays, numbers, texts and plain
containers are admitted; anything else is refused before it is called.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

RECONSTRUCT: Any = np.zeros(0).__reduce__()[0]  # the private function that array pickles call
SCALAR: Any = np.int64(0).__reduce__()[0]  # the same for single numbers
FROM_BUFFER: Any = np.zeros(1).__reduce_ex__(5)[0]  # what pickle protocol 5 calls
PLACES = ("numpy.core", "numpy._core")  # NumPy 1 and 2
ARRAY_DTYPES = ("?", "b", "h", "i", "l", "q", "B", "H", "I", "L", "Q", "e", "f", "d")


class UnsafeFileError(ValueError):
    """A file asks for more than arrays and plain containers."""


def load_pickle(path: Path) -> Any:
    """Content of a pickle of arrays and plain containers, written by Python 2 or 3.

    Texts of Python 2 are read as latin-1, which also keeps the bytes of its arrays.
    """
    try:
        return _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except UnsafeFileError as error:
        raise UnsafeFileError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise ValueError(f"{path} is not a readable pickle of arrays ({error})") from error


def load_torch(path: Path) -> Any:
    """Content of a `.pt` file of tensors, arrays and plain containers."""
    try:
        with torch.serialization.safe_globals(_torch_names()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeFileError(
            f"{path} was not opened: it is damaged, or holds more than tensors, arrays and plain "
            "containers and could run code. Save its arrays alone and load that file."
        ) from error
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"{path} is not a readable .pt file ({error})") from error


def load_npy(path: Path) -> np.ndarray[Any, Any]:
    """The array of a `.npy` file; arrays of Python objects are refused."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a .npy file of numbers ({error})") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} holds several arrays; save the one to use with numpy.save")
    return array


def _dtype(name: str, *_: object) -> np.dtype[Any]:
    """A data type by name, without the flags that old pickles add and new NumPy warns about."""
    dtype = np.dtype(name)
    if dtype.hasobject:
        raise UnsafeFileError("it holds an array of Python objects; save numbers or texts instead")
    return dtype


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 calls to write bytes in old pickle protocols."""
    if encoding != "latin1":
        raise UnsafeFileError(f"it encodes text as {encoding!r}, which arrays do not need")
    return text.encode("latin1")


ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
    **{(f"{place}.multiarray", "_reconstruct"): RECONSTRUCT for place in PLACES},
    **{(f"{place}.multiarray", "scalar"): SCALAR for place in PLACES},
    **{(f"{place}.numeric", "_frombuffer"): FROM_BUFFER for place in PLACES},
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


def _torch_names() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """What torch's own restricted loader must know to read NumPy arrays."""
    dtypes = [type(np.dtype(code)) for code in ARRAY_DTYPES]
    functions = [(RECONSTRUCT, "_reconstruct"), (SCALAR, "scalar")]
    named = [(f, f"{place}.multiarray.{name}") for f, name in functions for place in PLACES]
    return [np.ndarray, np.dtype, *dtypes, *named]
