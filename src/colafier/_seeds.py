"""Seeds for parts of a run, so that no part depends on how often another one drew."""

import hashlib


def derive(*parts: int | str) -> int:
    """A seed from a run's seed and the names or numbers of a part of it, such as its epoch."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1  # fits an int64
