"""Features on disk by content: a row that was embedded before is read, wherever it is stored.

One folder per embedder holds shards that are written once and never changed. A shard has a random
name and appears whole, so several processes can write at the same time, and a kill loses at most
the rows since the last shard. The keys in the shards are the index; the checksums of the zip format
show damage, and a damaged shard is removed and its rows are computed again.
"""

import logging
import os
import re
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colafier._io import atomic_file, content_digest
from colafier.readers import arrays

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]
VERSION = "1"  # of the layout and the keys; part of the folder's name


def default_folder() -> Path:
    """`COLAFIER_CACHE`, or the usual folder for caches of the operating system."""
    if chosen := os.environ.get("COLAFIER_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "colafier"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "colafier" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "colafier"


class Cache:
    """The features of one embedder.

    Args:
        folder: Of the whole cache.
        name: Of the embedder; only for people who look into the folder.
        key: Of the embedder, made of everything that decides its features.
        num_features: Numbers per row.
    """

    def __init__(self, folder: Path, name: str, key: str, num_features: int) -> None:
        self.key = key
        self.num_features = num_features
        readable = re.sub(r"[^\w.-]+", "_", name)[-60:]
        own = f"{readable}-{content_digest(key)[:16]}"
        self.folder = folder / f"features-{VERSION}" / own

    def read(self, content_keys: Sequence[str], out: Floats) -> npt.NDArray[np.bool_]:
        """Fill the rows of `out` (n, d) that are in the cache; returns a mask of these (n,)."""
        known = np.zeros(len(content_keys), bool)
        rows: dict[bytes, list[int]] = {}
        for row, content in enumerate(content_keys):
            rows.setdefault(self._row_key(content), []).append(row)
        for shard in self._shards():
            try:
                self._read_shard(shard, rows, known, out)
            except FileNotFoundError:
                pass  # another process removed it
            except OSError as error:
                log.warning("the cached features in %s cannot be read (%s)", shard, error)
            except (ValueError, KeyError) as error:
                log.warning("the cached features in %s are damaged (%s); removed", shard, error)
                self._remove(shard)
        return known

    def write(self, content_keys: Sequence[str], features: Floats) -> bool:
        """Add rows as one shard; False, with a warning, if they cannot be written."""
        if not len(content_keys):
            return True
        keys = np.frombuffer(b"".join(map(self._row_key, content_keys)), np.uint8)  # (m * 32,)
        path = self.folder / f"{uuid.uuid4().hex}.npz"
        try:
            with atomic_file(path) as partial, partial.open("wb") as file:
                np.savez(file, keys=keys.reshape(-1, 32), features=features)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            log.warning("features are not cached in %s: %s", self.folder, error)
            return False
        return True

    def _row_key(self, content: str) -> bytes:
        return bytes.fromhex(content_digest(f"{self.key}\n{content}"))

    def _shards(self) -> list[Path]:
        try:
            return sorted(self.folder.glob("*.npz"))
        except OSError as error:
            log.warning("the cache in %s cannot be read: %s", self.folder, error)
            return []

    def _read_shard(
        self,
        path: Path,
        rows: dict[bytes, list[int]],
        known: npt.NDArray[np.bool_],
        out: Floats,
    ) -> None:
        """Copy the rows of a shard that are asked for; none if the shard is damaged."""
        with arrays.opened(path) as stored:
            keys = stored.read("keys")  # (m, 32)
            if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != 32:
                raise ValueError(f"keys of {keys.dtype} and shape {keys.shape}")
            wanted = [
                (place, row)
                for place, key in enumerate(keys)
                for row in rows.get(key.tobytes(), ())
                if not known[row]
            ]
            if not wanted:
                return
            features = stored.read("features")  # (m, d)
            if features.dtype != np.float32 or features.shape != (len(keys), self.num_features):
                raise ValueError(f"features of {features.dtype} and shape {features.shape}")
        places, found = np.array(wanted).T
        out[found] = features[places]
        known[found] = True

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be removed: %s", path, error)
