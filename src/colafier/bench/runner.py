"""Runs of a suite in worker processes: continues where it stopped, shows the time left."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from statistics import fmean
from threading import Thread

from colafier.bench.execute import execute, forget_rows, prepared
from colafier.bench.results import Record, Results, failed, is_done
from colafier.bench.suite import Run

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class Progress:
    """How far the runs of a command are."""

    total: int
    jobs: int
    done: int = 0
    failures: int = 0
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # by part and entry
    ahead: list[tuple[str, str]] = field(default_factory=list)  # part and entry of runs to come

    def finished(self, record: Record) -> None:
        """Count a run that has ended."""
        self.done += 1
        self.failures += failed(record)
        name = (record["part"], record["entry"])
        if name in self.ahead:
            self.ahead.remove(name)
        self.learn(record)

    def learn(self, record: Record) -> None:
        """Remember how long a run took, to estimate the time of others."""
        if not failed(record):
            name = (record["part"], record["entry"])
            self.seconds.setdefault(name, []).append(record["run_seconds"])

    def seconds_left(self) -> float | None:
        """Time for the runs ahead, from the means of their entries; None: nothing is known yet."""
        means = {name: fmean(times) for name, times in self.seconds.items()}
        if not means:
            return None
        usual = fmean(means.values())
        return sum(means.get(name, usual) for name in self.ahead) / self.jobs


Report = Callable[[Record, Progress], None]


def runs_ahead(runs: Sequence[Run], results: Results, redo: bool = False) -> list[Run]:
    """The runs that have no record yet, of the same settings and without an error."""
    records = results.newest()
    return [run for run in runs if redo or not is_done(run, records)]


def run_all(
    ahead: Sequence[Run], results: Results, *, jobs: int, redo: bool, report: Report
) -> Progress:
    """Execute runs, and append the record of each as it ends.

    Args:
        ahead: The runs, see `runs_ahead`.
        results: Where records are.
        jobs: Runs at the same time, each in a process; 1: in this process.
        redo: Run again what has a record; otherwise what another command has done is left out.
        report: Called after each run.
    """
    progress = Progress(len(ahead), jobs, ahead=[(run.part, run.entry.name) for run in ahead])
    for record in results.newest().values():
        progress.learn(record)
    for run in {(r.part, r.noise): r for r in ahead}.values():
        prepared(run.settings, run.noise)  # missing files are an error here; fills the cache
    if jobs > 1:
        forget_rows()  # each worker loads its own

    def wanted() -> Iterator[Run]:
        for run in ahead:
            if redo or not is_done(run, results.newest()):
                yield run
            else:
                progress.total -= 1
                progress.ahead.remove((run.part, run.entry.name))

    def save(record: Record) -> None:
        results.append(record)
        progress.finished(record)
        report(record, progress)

    if jobs == 1:
        _in_this_process(wanted(), save)
    else:
        _in_workers(wanted(), jobs, save)
    return progress


def threads_each(jobs: int) -> int:
    """Threads of each of so many runs: the cores that this process may use, shared equally."""
    cores = os.cpu_count() or 1
    with suppress(AttributeError):  # Linux only
        cores = len(os.sched_getaffinity(0))
    return max(1, cores // jobs)


def _in_this_process(runs: Iterator[Run], save: Callable[[Record], None]) -> None:
    """Execute runs one after the other."""
    try:
        for run in runs:
            save(execute(run))
    except KeyboardInterrupt:  # without the message of the training, which is about one run
        raise KeyboardInterrupt from None


def _in_workers(runs: Iterator[Run], jobs: int, save: Callable[[Record], None]) -> None:
    """Execute runs in processes, a new one whenever one ends."""
    with _few_threads(threads_each(jobs)):
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_follow_the_first)
        busy: set[Future[Record]] = set()
        try:
            while True:
                while len(busy) < jobs and (run := next(runs, None)) is not None:
                    busy.add(pool.submit(execute, run))
                if not busy:
                    break
                ended, busy = wait(busy, return_when=FIRST_COMPLETED)
                for future in ended:
                    save(future.result())
        except BrokenProcessPool as error:
            raise OSError(
                "a worker process was killed; perhaps memory is short: try --jobs 1"
            ) from error
        finally:
            for process in list((pool._processes or {}).values()):
                if busy:  # stopped: do not wait for runs that nobody will record
                    process.terminate()
            pool.shutdown(cancel_futures=True)


def _follow_the_first() -> None:
    """A worker ends with the first process, however that ends; only that one hears Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal
    first = parent_process()
    assert first is not None

    def end_with_it() -> None:
        first.join()
        os._exit(1)

    Thread(target=end_with_it, daemon=True).start()


@contextmanager
def _few_threads(count: int) -> Iterator[None]:
    """Environment for worker processes, which use this many threads each."""
    before: Mapping[str, str | None] = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
