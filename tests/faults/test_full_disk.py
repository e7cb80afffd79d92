"""A disk that is full from any moment on: one clear error, nothing half-written, and it goes on."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ALL, Counts, Ended, assert_same, restore
from faulty_files import HALF, NEED_ROOM
from scenes import QUICK, SLOW, Scenes

MOMENTS = 4  # of a scene, in a quick test
ADVICE = re.compile(r"continue with: colafier (?P<other>.+)|make room and give the command again")


@pytest.mark.parametrize("name", [*QUICK, *(SLOW if ALL else ())])
def test_a_full_disk_is_a_clear_error(
    scenes: Scenes, total: Counts, tmp_path: Path, name: str
) -> None:
    scene, disk = scenes[name], scenes.server.disk
    restore(scene.before, disk)
    whole = scenes.server.run(scene.words)
    assert whole.code == 0, whole.output
    expected = Path(shutil.copytree(disk, tmp_path / "expected", symlinks=True))
    counts = Counts()
    for number in _moments(whole):
        operation, path, _ = whole.steps[number]
        what = f"{name}: full from {number}, {operation} of {path}"
        restore(scene.before, disk)
        ended = scenes.server.run(scene.words, full_at=number)
        trained = ended.epochs
        if ended.code != 0:
            words = _advised(ended, what)
            assert not _unfinished(disk), f"{what}: {_unfinished(disk)}"
            again = scenes.server.run(words or scene.words)
            assert again.code == 0, f"{what}: {again.output}"
            trained += again.epochs
        assert trained <= scene.epochs + scene.repeated, what
        assert_same(disk, expected, what)
        counts.add(Counts(1, int(ended.code != 0), 1))
    print(f"full disk, {name}: {counts}")  # noqa: T201 - shown by make faults
    total.add(counts)


def _advised(ended: Ended, what: str) -> list[str] | None:
    """The words of the command that the error names; None: the same command."""
    assert "No space left on device" in ended.error, f"{what}: {ended.output}"
    advice = ADVICE.search(ended.error)
    assert advice, f"{what}: {ended.error}"
    return shlex.split(advice["other"]) if advice["other"] else None


def _unfinished(disk: Path) -> list[str]:
    names = [path.name for path in disk.rglob("*")]
    return [name for name in names if name.endswith((".partial", ".new")) or "run.lock" in name]


def _moments(whole: Ended) -> Iterator[int]:
    """The first operations of each kind on each file; in a quick test not all of them."""
    found: dict[tuple[str, str, int], int] = {}
    for number, step in enumerate(whole.steps):
        if step[0] in NEED_ROOM and (ALL or step[0] != HALF):
            found.setdefault(tuple(step), number)
    yield from list(found.values())[:: 1 if ALL else -(-len(found) // MOMENTS)]
