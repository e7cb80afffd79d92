"""Features by content: what was computed once is read, and nothing that happens to it is fatal."""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from colafier.embed import default_folder, embed
from colafier.embed.cache import Cache
from colafier.ingest.content import content_key


class Lengths:
    """Embeds a text as three numbers, and counts what it was asked for."""

    def __init__(self, key: str = "lengths 1") -> None:
        self.name, self.key, self.num_features = "lengths", key, 3
        self.asked: list[str] = []

    def __call__(self, items):
        self.asked += items
        problems = {place: "bad" for place, item in enumerate(items) if item.startswith("bad")}
        features = np.array([[len(item), *map(ord, item[-2:])] for item in items], np.float32)
        features[list(problems)] = 0
        return features, problems


def run(texts, cache, embedder=None):
    embedder = Lengths() if embedder is None else embedder
    keys = [content_key(text) for text in texts]
    return *embed(texts, keys, embedder, cache=cache, progress=False), embedder


def texts(n, start=0):
    return [f"text {number}" for number in range(start, start + n)]


def shards(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.npz"))


def test_second_time_nothing_is_computed(tmp_path: Path) -> None:
    fresh, _, first = run(texts(2500), tmp_path)
    cached, problems, second = run(texts(2500), tmp_path)
    assert len(first.asked) == 2500
    assert second.asked == []
    assert problems == {}
    assert cached.dtype == np.float32
    assert np.array_equal(fresh, cached)
    assert len(shards(tmp_path)) == 3  # not one file for each row


def test_order_does_not_matter_and_new_rows_are_added(tmp_path: Path) -> None:
    run(texts(10), tmp_path)
    mixed = [*texts(3, start=50), *reversed(texts(10))]
    found, _, embedder = run(mixed, tmp_path)
    assert embedder.asked == texts(3, start=50)
    assert np.array_equal(found, Lengths()(mixed)[0])
    assert run(mixed, tmp_path)[2].asked == []


def test_same_content_is_computed_once(tmp_path: Path) -> None:
    found, problems, embedder = run(["aa", "bad", "aa", "bad"], tmp_path)
    assert embedder.asked == ["aa", "bad"]
    assert problems == {1: "bad", 3: "bad"}
    assert found[0].tolist() == found[2].tolist() == [2, 97, 97]


def test_rows_without_a_key_are_like_no_other(tmp_path: Path) -> None:
    for _ in range(2):
        embedder = Lengths()
        found, _ = embed(
            ["aa", "xyz", "aa"], ["", "", "k"], embedder, cache=tmp_path, progress=False
        )
        assert found[:, 0].tolist() == [2, 3, 2]
        assert embedder.asked[:2] == ["aa", "xyz"]
    assert embedder.asked == ["aa", "xyz"]


def test_rows_with_problems_are_zeros_and_not_cached(tmp_path: Path) -> None:
    for _ in range(2):
        found, problems, embedder = run(["aa", "bad row", "bb"], tmp_path)
        assert problems == {1: "bad"}
        assert not found[1].any()
        assert "bad row" in embedder.asked


def test_numbers_that_are_not_finite_are_a_problem(tmp_path: Path) -> None:
    class Infinite(Lengths):
        def __call__(self, items):
            features, problems = super().__call__(items)
            features[0, 1] = np.inf
            return features, problems

    found, problems, _ = run(["aa", "bb"], tmp_path, Infinite())
    assert list(problems) == [0]
    assert np.isfinite(found).all()
    assert run(["aa"], tmp_path)[2].asked == ["aa"]


def test_another_embedder_has_its_own_features(tmp_path: Path) -> None:
    run(["aa"], tmp_path)
    assert run(["aa"], tmp_path, Lengths("lengths 2"))[2].asked == ["aa"]


def test_a_shard_of_another_embedder_is_of_no_use(tmp_path: Path) -> None:
    """The embedder's key is in the key of each row, not in the folder's name alone."""
    run(["aa"], tmp_path)
    run(["bb"], tmp_path, Lengths("lengths 2"))
    one, two = shards(tmp_path)
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    assert run(["aa"], tmp_path)[2].asked == ["aa"]
    assert run(["bb"], tmp_path)[2].asked == ["bb"]


def test_without_cache_nothing_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COLAFIER_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        assert run(["aa"], None)[2].asked == ["aa"]
    assert not list(tmp_path.iterdir())


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = content.index(b"features.npy") + 200  # within the numbers
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"nonsense"),
        lambda path: np.savez(path, keys=np.load(path)["keys"]),
        lambda path: np.savez(path, keys=np.load(path)["keys"], features=np.zeros((10, 3))),
        lambda path: np.savez(path, keys=np.load(path)["keys"], features=np.zeros((9, 3), "f4")),
        lambda path: np.savez(path, keys=np.zeros(10), features=np.zeros((10, 3), "f4")),
        lambda path: np.savez(path, keys=np.array([{}]), features=np.array([{}])),
    ],
    ids=["flipped", "cut", "empty", "nonsense", "lacking", "kind", "shape", "keys", "pickle"],
)
def test_damage_is_noticed_and_computed_again(tmp_path: Path, caplog, damage) -> None:
    fresh, *_ = run(texts(10), tmp_path)
    (shard,) = shards(tmp_path)
    damage(shard)
    again, _, embedder = run(texts(10), tmp_path)
    assert embedder.asked == texts(10)
    assert np.array_equal(again, fresh)
    assert "damaged" in caplog.text
    assert run(texts(10), tmp_path)[2].asked == []
    assert shard not in shards(tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_embed_cache import Lengths, run, texts

class Killed(Lengths):
    def __call__(self, items):
        if len(self.asked) >= 2500:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(items)

run(texts(4000), Path({cache!r}), Killed())
"""


def test_a_kill_loses_at_most_a_thousand_rows(tmp_path: Path) -> None:
    code = KILLED.format(tests=str(Path(__file__).parent), cache=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    found, _, embedder = run(texts(4000), tmp_path)
    assert len(embedder.asked) <= 4000 - 2500 + 1024
    assert np.array_equal(found, Lengths()(texts(4000))[0])


def write_and_read(cache: Path, start: int) -> int:
    """Rows that came out wrong, of several rounds that meet those of the other process."""
    wrong = 0
    for round_ in range(5):
        rows = texts(300, start=start + 100 * round_)
        wrong += int((run(rows, cache)[0] != Lengths()(rows)[0]).sum())
    return wrong


def test_two_processes_do_each_other_no_harm(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.starmap(write_and_read, [(tmp_path, 0), (tmp_path, 100)]) == [0, 0]
    assert run(texts(800), tmp_path)[2].asked == []
    assert not list(tmp_path.rglob("*.partial"))


def test_ten_thousand_cached_rows_are_quick(tmp_path: Path) -> None:
    features = np.random.default_rng(0).random((10_000, 1280), np.float32)
    keys = [hashlib.sha256(str(row).encode()).hexdigest() for row in range(10_000)]
    cache = Cache(tmp_path, "big", "big", 1280)
    for start in range(0, 10_000, 1024):
        cache.write(keys[start : start + 1024], features[start : start + 1024])
    out = np.zeros_like(features)
    begun = time.process_time()
    known = cache.read(keys, out)
    seconds = time.process_time() - begun
    assert known.all()
    assert np.array_equal(out, features)
    assert seconds < 2


def test_a_disk_that_refuses_is_a_warning(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").touch()
    found, _, embedder = run(texts(3000), tmp_path / "file")
    assert np.array_equal(found, Lengths()(texts(3000))[0])
    assert len(embedder.asked) == 3000
    assert caplog.text.count("not cached") == 1


def test_lengths_must_match(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 rows but 1 content"):
        embed(["a", "b"], ["a"], Lengths(), cache=tmp_path)


def test_no_rows(tmp_path: Path) -> None:
    found, problems, _ = run([], tmp_path)
    assert found.shape == (0, 3)
    assert problems == {}


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLAFIER_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("COLAFIER_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_folder() == Path.home() / ".cache" / "colafier"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "colafier"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_folder() == Path.home() / "Library" / "Caches" / "colafier"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(os.environ, "LOCALAPPDATA", str(tmp_path))
    assert default_folder() == tmp_path / "colafier" / "cache"


def test_a_file_that_is_replaced_gets_no_features_under_its_old_key(tmp_path: Path) -> None:
    """A row whose file changes after its key was computed has a problem, and is not cached."""
    images = pytest.importorskip("colafier.embed.images")
    pillow = pytest.importorskip("PIL.Image")

    class Brightness:
        name, key, num_features = "brightness", "brightness 1", 1

        def __call__(self, items):
            pixels, problems = images.decode_many(items, 2)  # (n, 3, 2, 2)
            return pixels.reshape(len(items), -1).mean(1, keepdims=True, dtype=np.float32), problems

    paths = [tmp_path / f"{number}.png" for number in range(3)]

    def put(path: Path, level: int) -> None:
        pillow.fromarray(np.full((4, 4, 3), level, np.uint8)).save(path)

    for number, path in enumerate(paths):
        put(path, 10 + number)
    keys = [content_key(path) for path in paths]
    put(paths[1], 200)
    cache = tmp_path / "cache"
    found, problems = embed(paths, keys, Brightness(), cache=cache, progress=False)
    assert found[:, 0].tolist() == [10, 0, 12]
    assert problems == {1: "cannot be read: the file was changed while the data set was read"}
    put(paths[1], 11)
    found, problems = embed(paths, keys, Brightness(), cache=cache, progress=False)
    assert (found[:, 0].tolist(), problems) == ([10, 11, 12], {})
