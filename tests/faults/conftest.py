"""Commands with faults: one process runs them all, and their counts are printed at the end."""

from collections.abc import Iterator

import pytest
from commands import CommandServer, Counts
from scenes import Scenes


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenes]:
    place = tmp_path_factory.mktemp("faults")
    server = CommandServer(place)
    yield Scenes(server, place)
    server.close()


@pytest.fixture(scope="session")
def total() -> Iterator[Counts]:
    """All faults of a session."""
    counts = Counts()
    yield counts
    print(f"\nAll faults: {counts}")  # noqa: T201 - shown by make faults
