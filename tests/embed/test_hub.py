"""Tiny models with random weights, saved as the transformers library saves them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from colafier.embed import embedder, hub

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def transformers(need):
    need("hub")
    import transformers

    transformers.set_seed(0)
    return transformers


def save(model, folder: Path, *others) -> Path:
    for part in (model, *others):
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def dino(transformers, tmp_path_factory) -> Path:
    config = transformers.Dinov2Config(**SMALL, image_size=28, patch_size=14)
    processor = transformers.BitImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}
    )
    return save(transformers.Dinov2Model(config), tmp_path_factory.mktemp("dino"), processor)


@pytest.fixture(scope="module")
def bert(transformers, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green", "blue"]
    config = transformers.BertConfig(**SMALL, intermediate_size=8, vocab_size=len(words))
    tokenizer = transformers.BertTokenizer({word: place for place, word in enumerate(words)})
    return save(transformers.BertModel(config), folder, tokenizer)


def pictures() -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (10, 30, 40, 3), np.uint8))


def test_images_of_a_folder(dino: Path, transformers) -> None:
    made = embedder(str(dino), "image")
    features, problems = made([*pictures(), b"broken"])
    assert features.shape == (11, 8) == (11, made.num_features)
    assert list(problems) == [10]
    model = transformers.Dinov2Model.from_pretrained(dino).eval()
    pixels = made.processor(images=pictures()[:2], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = model(pixels).last_hidden_state[:, 0]
    assert pixels.shape == (2, 3, 28, 28)
    assert np.allclose(features[:2], expected, atol=1e-5)


def test_key_changes_with_weights_and_size(dino: Path, bert: Path, tmp_path: Path) -> None:
    key = embedder(str(dino), "image").key
    assert embedder(str(dino), "image", 64).key != key
    before = hub.fingerprint(bert)
    (bert / "notes.md").touch()
    assert hub.fingerprint(bert) == before
    for path in bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert hub.fingerprint(tmp_path) == before
    (tmp_path / "tokenizer.json").write_text("{}")
    assert hub.fingerprint(tmp_path) != before


def test_clip_gives_its_image_features(transformers, tmp_path: Path) -> None:
    small = {**SMALL, "intermediate_size": 8}
    config = transformers.CLIPConfig(
        text_config={**small, "vocab_size": 9}, projection_dim=5,
        vision_config={**small, "image_size": 28, "patch_size": 14},
    )  # fmt: skip
    size = {"height": 28, "width": 28}
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=size)
    save(transformers.CLIPModel(config), tmp_path, processor)
    features, _ = embedder(str(tmp_path), "image")(pictures()[:2])
    assert features.shape == (2, 5)
    assert not np.allclose(features[0], features[1])


def test_a_random_pooler_is_not_used(transformers, tmp_path: Path) -> None:
    config = transformers.ViTConfig(**SMALL, intermediate_size=8, image_size=28, patch_size=14)
    size = {"height": 28, "width": 28}
    model = transformers.ViTModel(config, add_pooling_layer=False)
    save(model, tmp_path, transformers.ViTImageProcessorPil(size=size))
    first, second = (embedder(str(tmp_path), "image") for _ in range(2))
    assert not first.pooled
    assert np.array_equal(first(pictures()[:2])[0], second(pictures()[:2])[0])


def test_lost_weights_are_refused(bert: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for path in bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(bert / "model.safetensors")
    lost = {name: value for name, value in weights.items() if "layer.0.output" not in name}
    save_file(lost, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lacks weights"):
        embedder(str(tmp_path), "text")


def test_texts_are_the_mean_of_their_tokens(bert: Path, transformers) -> None:
    made = embedder(str(bert), "text")
    texts = ["red green blue " * 5, "", "red", *["green blue"] * 10]
    features, problems = made(texts)
    assert features.shape == (13, 8)
    assert list(problems) == [1]
    assert not features[1].any()
    model = transformers.BertModel.from_pretrained(bert).eval()
    for row in (0, 2, 12):  # alone, hence without padding
        tokens = made.tokenizer(texts[row], return_tensors="pt")
        with torch.no_grad():
            expected = model(**tokens).last_hidden_state[0].mean(0)
        assert np.allclose(features[row], expected, atol=1e-5)


def test_folder_without_a_model(tmp_path: Path, need) -> None:
    need("hub")
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        embedder(str(tmp_path), "image")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(FileNotFoundError, match="can carry code"):
        embedder(str(tmp_path), "image")


def test_code_of_a_model_is_not_run(dino: Path, tmp_path: Path) -> None:
    for path in dino.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    marker = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"open({str(marker)!r}, 'w')")
    config = '{"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModel": "own.M"}}'
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match="cannot be used"):
        embedder(str(tmp_path), "image")
    assert not marker.exists()


def test_model_that_is_nowhere(need, tmp_path: Path, monkeypatch) -> None:
    need("hub")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match="copy its folder here"):
        embedder("hf:nobody/nothing", "text")
