"""Seeds for the parts of a run, so that no part depends on the random draws of another."""

import hashlib


def derive(*parts: int | str) -> int:
    """A seed from a run's seed and the name or numbers of a part, such as its epoch."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1  # fits an int64
