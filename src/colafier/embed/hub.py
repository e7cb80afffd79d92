"""Models of the transformers library as frozen embedders: from the hub's cache or a folder.

Only safetensors are read, and no code of a model is run. A model is first looked for on this
machine, and downloaded only if it is not found.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colafier._io import content_digest, file_digest
from colafier._optional import required
from colafier.embed.images import Unreadable, decode
from colafier.embed.offline import offline
from colafier.embed.texts import without_text

Kind = Literal["image", "text"]
Floats = npt.NDArray[np.float32]
EXTRAS: dict[str, str] = {"image": "hub", "text": "text"}
PREFIX = "hf:"
BATCH = 8  # photographs are in memory in full size until the processor resizes them
MAX_TOKENS = 512  # a tokenizer without a limit of its own has 10 ** 30
FILES = ("*.safetensors", "*.json", "*.txt", "*.model")  # all that is loaded
# what `auto` looks for; the first that is found is used
CACHED: dict[Kind, tuple[str, ...]] = {
    "image": (
        "facebook/dinov2-base",
        "facebook/dinov2-large",
        "facebook/dinov2-small",
        "openai/clip-vit-large-patch14",
        "openai/clip-vit-base-patch16",
        "openai/clip-vit-base-patch32",
    ),
    "text": (
        "sentence-transformers/all-mpnet-base-v2",
        "sentence-transformers/all-MiniLM-L6-v2",
    ),
}


class HubImages:
    """Images to the pooled output of a model, or its class token; see `colafier.embed.Embedder`.

    Args:
        name: As the user wrote it.
        folder: Of the model.
        size: Side of the square that images are resized to first; None leaves it to the model.
    """

    def __init__(self, name: str, folder: Path, size: int | None = None) -> None:
        library = required("transformers", EXTRAS["image"])
        required("PIL.Image", EXTRAS["image"])
        self.name, self.size = name, size
        self.key = f"transformers image {fingerprint(folder)} bicubic {size}"
        with offline():
            self.processor = _load(library.AutoImageProcessor, folder)
        self.model, missing = _load_model(library, folder)
        # a pooler that is not in the file has random weights
        self.pooled = not any("pooler" in weight for weight in missing)
        self.num_features = self._features([np.zeros((3, 64, 64), np.uint8)]).shape[1]

    def __call__(self, items: Sequence[Any]) -> tuple[Floats, dict[int, str]]:
        """Features (n, d), zeros for images that cannot be read, and the reasons for these."""
        features = np.zeros((len(items), self.num_features), np.float32)
        problems = {}
        for start in range(0, len(items), BATCH):
            images = {}
            for place, item in enumerate(items[start : start + BATCH], start):
                try:
                    images[place] = decode(item, self.size)
                except Unreadable as error:
                    problems[place] = str(error)
            if images:
                features[list(images)] = self._features(list(images.values()))
        return features, problems

    @torch.inference_mode()
    def _features(self, images: list[npt.NDArray[np.uint8]]) -> Floats:
        inputs = self.processor(
            images=images, return_tensors="pt", input_data_format="channels_first"
        )
        pixels = inputs["pixel_values"].to(self.model.device)  # (b, 3, h, w)
        if hasattr(self.model, "get_image_features"):  # of images and texts, as CLIP
            output = self.model.get_image_features(pixel_values=pixels)
        else:
            output = self.model(pixel_values=pixels)
        return _as_array(self._one_vector(output))

    def _one_vector(self, output: Any) -> Tensor:
        """The vector that stands for an image (b, d), of all outputs of a model."""
        if isinstance(output, Tensor):
            return output
        if self.pooled and getattr(output, "pooler_output", None) is not None:
            pooled: Tensor = output.pooler_output
            return pooled.flatten(1)
        hidden: Tensor = output.last_hidden_state  # (b, tokens, d) or (b, d, h, w)
        return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))


class HubTexts:
    """Texts to the mean of a model's tokens; see `colafier.embed.Embedder`."""

    def __init__(self, name: str, folder: Path) -> None:
        library = required("transformers", EXTRAS["text"])
        self.name = name
        self.key = f"transformers text {fingerprint(folder)} mean of {MAX_TOKENS}"
        with offline():
            self.tokenizer = _load(library.AutoTokenizer, folder)
        self.model, _ = _load_model(library, folder)
        self.num_features = self._features(["a"]).shape[1]

    def __call__(self, items: Sequence[Any]) -> tuple[Floats, dict[int, str]]:
        """Features (n, d), zeros for rows without text, and the reasons for these."""
        problems = without_text(items)
        features = np.zeros((len(items), self.num_features), np.float32)
        # texts of similar length together, so that little is computed for padding
        good = sorted(set(range(len(items))) - set(problems), key=lambda place: len(items[place]))
        for start in range(0, len(good), BATCH):
            places = good[start : start + BATCH]
            features[places] = self._features([items[place] for place in places])
        return features, problems

    @torch.inference_mode()
    def _features(self, texts: list[str]) -> Floats:
        limit = min(self.tokenizer.model_max_length, MAX_TOKENS)
        inputs = self.tokenizer(
            texts, padding=True, truncation=True, max_length=limit, return_tensors="pt"
        ).to(self.model.device)
        hidden = self.model(**inputs).last_hidden_state  # (b, tokens, d)
        mask = inputs["attention_mask"][:, :, None]  # (b, tokens, 1)
        return _as_array((hidden * mask).sum(1) / mask.sum(1))


def open_model(name: str, kind: Kind, size: int | None) -> HubImages | HubTexts:
    """The embedder of `hf:NAME` or of a model's folder."""
    required("transformers", EXTRAS[kind])
    folder = find(name.removeprefix(PREFIX), kind) if name.startswith(PREFIX) else Path(name)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json: give the folder of a saved model")
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(
            f"{folder} has no .safetensors file; other weights are not loaded, as they can carry "
            "code: save the model again with save_pretrained"
        )
    return HubImages(name, folder, size) if kind == "image" else HubTexts(name, folder)


def find(name: str, kind: Kind) -> Path:
    """The folder of a model of the hub: in its cache, otherwise downloaded."""
    hub = required("huggingface_hub", EXTRAS[kind])
    if (folder := cached(name, kind)) is not None:
        return folder
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(FILES)))
    except Exception as error:  # no network, no such name, no permission: many kinds
        raise FileNotFoundError(
            f"the model {name!r} is not in the Hugging Face cache of this machine and could not be "
            f"downloaded ({type(error).__name__}: {error}); copy its folder here and give its path"
        ) from error


def cached(name: str, kind: Kind) -> Path | None:
    """The folder of a model in the hub's cache, if its weights are there as safetensors."""
    hub = required("huggingface_hub", EXTRAS[kind])
    try:
        folder = Path(hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # not in the cache, or not a valid name
        return None
    complete = (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
    return folder if complete else None


def fingerprint(folder: Path) -> str:
    """SHA-256 of all files that decide the output of a model."""
    files = sorted({path for pattern in FILES for path in folder.glob(pattern)})
    return content_digest("", (f"{path.name} {file_digest(path)}\n" for path in files))


def _load(loader: Any, folder: Path, **options: Any) -> Any:
    try:
        return loader.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, **options
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ValueError(f"{folder} cannot be used as an embedder: {error}") from error


def _load_model(library: Any, folder: Path) -> tuple[Any, list[str]]:
    """The model, and the weights that are not in its file; only a pooler may be missing."""
    with offline():
        model, info = _load(
            library.AutoModel,
            folder,
            use_safetensors=True,
            output_loading_info=True,
            dtype=torch.float32,
        )
    missing = [str(weight) for weight in info["missing_keys"]]
    lost = [weight for weight in missing if "pooler" not in weight]
    if lost:
        raise ValueError(
            f"{folder} lacks weights of its model ({', '.join(lost[:3])} ...); features of it "
            "would be random: download or save it again"
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.eval().requires_grad_(False).to(device), missing


def _as_array(features: Tensor) -> Floats:
    array: Floats = features.float().cpu().numpy()  # (b, d)
    return array
