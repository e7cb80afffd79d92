"""A process that is killed at any moment: the next command gives what one command would have."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ALL, Counts, Ended, Scene, assert_same, restore, same, state
from scenes import QUICK, SLOW, Scenes

STATES = 8  # of a scene in a quick test; half as many if it trains


@pytest.mark.parametrize("name", [*QUICK, *(SLOW if ALL else ())])
def test_after_a_kill_the_next_command_completes(
    scenes: Scenes, total: Counts, tmp_path: Path, name: str
) -> None:
    scene, disk = scenes[name], scenes.server.disk
    restore(scene.before, disk)
    whole = scenes.server.run(scene.words, copies=tmp_path / "copies")
    assert whole.code == 0, whole.output
    assert whole.epochs == scene.epochs
    expected = Path(shutil.copytree(disk, tmp_path / "expected", symlinks=True))
    counts = Counts()
    for number in _different(tmp_path / "copies", scene.epochs > 0):
        operation, path, trained = whole.steps[number]
        what = f"{name}: killed before {number}, {operation} of {path}"
        restore(tmp_path / "copies" / str(number), disk)
        if scene.starts_over and same(disk, expected):
            continue  # it was done
        if scene.starts_over:
            _assert_not_mixed(scenes, scene, expected, what)
            restore(tmp_path / "copies" / str(number), disk)
        clear, epochs = _go_on(scenes, scene, what)
        assert trained + epochs <= scene.epochs + scene.repeated, f"{what}: {trained} + {epochs}"
        if scene.other is None or not same(disk, scene.other):
            assert_same(disk, expected, what)
        counts.add(Counts(1, clear, 1))
    print(f"kills, {name}: {counts}")  # noqa: T201 - shown by make faults
    total.add(counts)


def _assert_not_mixed(scenes: Scenes, scene: Scene, expected: Path, what: str) -> None:
    """What another command takes for the folder of a finished run is of one run alone."""
    ended = scenes.server.run(("report", scenes.out))
    if ended.code != 0:
        assert ended.error
        return
    results = [
        [(folder / name).read_bytes() for name in ("config.json", "labels.csv", "evidence.json")]
        for folder in (scenes.out, scene.before / "out", expected / "out")
    ]
    assert results[0] in results[1:], f"{what}: old and new results"


def _go_on(scenes: Scenes, scene: Scene, what: str) -> tuple[int, int]:
    """Do what is documented after a kill; whether a step was refused, and epochs trained."""
    first = scene.words if scene.resume is None else scene.resume
    ended = scenes.server.run(first)
    if ended.code == 0:
        for lock in scenes.out.glob("seed*/run.lock"):  # of finished runs, which were skipped
            lock.unlink()
        return 0, _trained(ended)
    error = ended.error
    if any(words in error for words in scene.finished):
        for name in ("run.lock", "config.json.partial"):  # the next command that writes does this
            (scenes.out / name).unlink(missing_ok=True)
        return 1, 0
    assert scene.resume is not None, f"{what}: {error}"
    assert "there is no run" in error, f"{what}: {error}"
    again = scenes.server.run(scene.words)
    assert again.code == 0, f"{what}: {again.output}"
    return 1, _trained(again)


def _trained(ended: Ended) -> int:
    assert "Traceback" not in ended.output, ended.output
    return ended.epochs


def _different(copies: Path, trains: bool) -> Iterator[int]:
    """The copies that are not like an earlier one; a part of them in a quick test."""
    seen = set()
    found = []
    for number in sorted(int(path.name) for path in copies.iterdir()):
        key = state(copies / str(number), begun=ALL)
        if key not in seen:
            seen.add(key)
            found.append(number)
    most = STATES // 2 if trains else STATES
    step = 1 if ALL else -(-len(found) // most)
    yield from reversed(found[::-1][::step])  # with the last one
