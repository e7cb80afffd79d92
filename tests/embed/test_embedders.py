"""Which embedder a name gives, and what is imported for it."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import colafier.embed
from colafier import _optional
from colafier._progress import progress_bar
from colafier.embed import choose, embedder, hub


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("nonsense", "image", "there are efficientnet_lite0, efficientnet_lite1, .* auto, hf:NAME"),
        ("minilm", "image", "there are efficientnet_lite0"),
        ("efficientnet_lite0", "text", "there are minilm"),
        ("minilm", "sound", "image or text"),
    ],
)
def test_unknown_names_are_told_what_there_is(name: str, kind, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        embedder(name, kind)


@pytest.mark.parametrize(("kind", "size"), [("text", 64), ("image", 0)])
def test_size_is_of_images(kind, size: int) -> None:
    with pytest.raises(ValueError, match="pixels"):
        embedder("auto", kind, size)


def test_missing_module_says_what_to_install() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'colafier\[text\]'"):
        _optional.required("a_module_that_is_not_there", "text")


def test_import_is_light() -> None:
    code = (
        "import sys, colafier.embed, colafier.embed.images\n"
        "print([name for name in ('torch', 'transformers', 'PIL', 'sklearn')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_auto_without_transformers_needs_no_hub(monkeypatch, caplog) -> None:
    monkeypatch.setattr(colafier.embed, "find_spec", lambda _: None)
    with caplog.at_level("INFO"):
        assert choose("image") == "efficientnet_lite0"
        assert choose("text") == "minilm"
    assert "images are embedded by efficientnet_lite0" in caplog.text


@pytest.fixture
def models(need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a model into a hub's cache that is empty otherwise."""
    need("hub")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    def put(name: str, weights: str = "model.safetensors") -> Path:
        folder = tmp_path / f"models--{name.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("a" * 40)
        snapshot = folder / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text("{}")
        (snapshot / weights).touch()
        return snapshot

    return put


def test_auto_prefers_the_best_cached_model(models, caplog) -> None:
    assert choose("image") == "efficientnet_lite0"
    models("openai/clip-vit-base-patch32")
    assert choose("image") == "hf:openai/clip-vit-base-patch32"
    models("facebook/dinov2-small")
    with caplog.at_level("INFO"):
        assert choose("image") == "hf:facebook/dinov2-small"
    assert "dinov2-small" in caplog.text
    assert choose("text") == "minilm"
    models("sentence-transformers/all-mpnet-base-v2")
    assert choose("text") == "hf:sentence-transformers/all-mpnet-base-v2"


def test_auto_leaves_out_weights_that_can_carry_code(models) -> None:
    snapshot = models("facebook/dinov2-base", weights="pytorch_model.bin")
    assert choose("image") == "efficientnet_lite0"
    (snapshot / "model.safetensors").touch()
    assert choose("image") == "hf:facebook/dinov2-base"
    assert hub.find("facebook/dinov2-base", "image") == snapshot


@pytest.mark.parametrize("shown", [True, False])
def test_bar_counts_rows_on_a_terminal(shown: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress_bar("embedding", 10, shown, console) as advance:
        advance(3)
        advance(4)
    said = console.file.getvalue()
    assert ("embedding" in said and "7/10" in said.replace(" ", "")) == shown
    assert bool(said) == shown
