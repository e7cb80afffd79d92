"""Generated damage to every kind of file that is read: a clear error or a result, in bounded time.

A part of the cases runs by default, `COLAFIER_FAULTS=all` runs all. They run in a process of their
own, whose memory is limited. Each kind of file has its own seeded cases.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("damaged_files.py")
ALL = os.environ.get("COLAFIER_FAULTS") == "all"
CASES = 100 if ALL else 4  # of each kind
SEED = 0
SECONDS = 3600 if ALL else 600
CLUMSY = re.compile(
    r"object has no attribute|NoneType|Traceback|unexpected keyword|not subscriptable"
)

pytest.importorskip("pyarrow")
pytest.importorskip("PIL")

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the limits are those of Linux"
)


def test_damaged_files_end_in_a_clear_error_or_a_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, str(WORKER), str(tmp_path), str(SEED), str(CASES)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    cases = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    started = [tuple(case[:2]) for case in cases if case[2] == "started"]
    ended = {tuple(case[:2]): case[2:] for case in cases if case[2] != "started"}
    counts = Counter(outcome for outcome, _ in ended.values())
    with capsys.disabled():
        shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        sys.stdout.write(f"\n{len(started)} damaged files: {shown}\n")
    assert done.returncode == 0, done.stderr[-3000:]
    assert not [case for case in started if case not in ended], "a case ended the process"
    bad = {
        case: found for case, found in ended.items() if found[0] not in ("clear error", "result")
    }
    assert not bad
    assert not {case: said for case, (_, said) in ended.items() if CLUMSY.search(said)}
    kinds = {kind for kind, _ in started}
    assert len(started) == CASES * len(kinds) > 100
