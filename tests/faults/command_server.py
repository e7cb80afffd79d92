"""A process that runs commands in forks of itself, so that a command need not import torch again.

It reads one job per line as JSON, and answers with one line each.
"""

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from faulty_files import FaultyFiles

TIMEOUT = 100  # seconds; a command that takes longer hangs
CRASHED = 99
SHORT = {  # settings of the audit that cost no time
    "folds": 2, "head_min_steps": 1, "head_epochs": 2, "head_warmup": 1,
    "feature_weights": (0.0, 0.1), "inverse_temperatures": (1.0, 1.4),
}  # fmt: skip
Job = dict[str, Any]


def prepare() -> None:
    """Import all that a command may need, and make runs short."""
    import colafier.cli.review
    import colafier.workflows.exchange  # noqa: F401 - a fork need not import it again
    from colafier.audit.config import AuditConfig
    from colafier.audit.pipeline import configure
    from colafier.workflows import experiment, purify

    def short(shape: Any, n: int, train: Any = None, audit: Any = None) -> Any:
        return configure(shape, n, train, {**SHORT, **(audit or {})})

    purify.configure = short
    experiment.AuditConfig = partial(AuditConfig, **SHORT)


def run(job: Job) -> int:
    """Run the command of a job in this process; returns its exit code."""
    from colafier.cli.app import app
    from colafier.training import trainer

    trained = 0
    epoch = trainer._epoch

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal trained
        trained += 1
        return epoch(*args, **kwargs)

    trainer._epoch = counted
    copies = None if job.get("copies") is None else Path(job["copies"])
    full_at, kill_at = job.get("full_at"), job.get("kill_at")
    files = FaultyFiles(Path(job["folder"]), copies, kill_at, full_at, lambda: trained)
    files.install()
    try:
        app(job["words"])
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = CRASHED
    files.busy = True
    report = {"steps": files.steps, "epochs": trained}
    Path(job["report"]).write_text(json.dumps(report))
    return code


def forked(job: Job) -> Job:
    """Run a job in a fork; what it printed and how it ended."""
    begin = time.monotonic()
    Path(job["report"]).unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        os.environ.update(job["variables"])
        out = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for channel in (1, 2):
            os.dup2(out, channel)
        code = CRASHED
        with contextlib.suppress(BaseException):
            code = run(job)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    hangs = False
    number, moment = job.get("signal") or (None, TIMEOUT)
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        time.sleep(0.002)
        if time.monotonic() - begin > TIMEOUT:
            hangs = True
            os.kill(pid, signal.SIGKILL)
        elif number is not None and time.monotonic() - begin > moment:
            os.kill(pid, number)
            number = None
    output = Path(job["output"]).read_text(errors="replace")
    report = Path(job["report"])
    found = json.loads(report.read_text()) if report.exists() else {"steps": [], "epochs": 0}
    code = os.waitstatus_to_exitcode(ended[1])
    return {"code": code, "hangs": hangs, "output": output, **found}


def main() -> None:
    """Serve until the input ends."""
    prepare()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        job = json.loads(line)
        if job.get("warm"):  # in this process, so that forks find all that is imported on the way
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                from colafier.cli.app import app

                app(job["words"], standalone_mode=False)
            answer: Job = {}
        else:
            answer = forked(job)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
