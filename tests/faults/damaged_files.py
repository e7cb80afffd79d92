"""Commands on damaged files, in a process of their own: `python damaged_files.py FOLDER SEED N`.

Each line of the output is a case: kind, number, outcome and what was said. A case that takes too
long ends the process, so that the test sees which one it was.
"""

import faulthandler
import json
import logging
import os
import random
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mutations
import numpy as np
import pandas as pd
import torch
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1]))
import own_data

from colafier.benchmark_data import safe_load
from colafier.cli.app import app
from colafier.cli.terminal import FIXABLE
from colafier.embed import encode
from colafier.embed.cache import Cache
from colafier.ingest import table_files
from colafier.ingest.read import read

SECONDS = 20  # per case; a few of them train
MEMORY = 3 << 30  # bytes of addresses beyond those of the started process
ROWS = 60
EXPORTS = {"label-studio": "tasks.json", "fiftyone": "samples.json", "cvat": "cvat.zip"}


@dataclass(frozen=True)
class Kind:
    """Files of one kind, how they are damaged, and what then reads them."""

    mutate: mutations.Mutate
    file: str  # in the folder of the example
    run: Callable[[Path], Any]


class TooSlow(BaseException):
    """A case took longer than it may; no handler of the package can catch this."""


class Wrong(AssertionError):
    """A result that is not right."""


def cli(*words: str) -> Callable[[Path], Any]:
    """A command, whose words name files in the folder of the example by `@`."""

    def run(folder: Path) -> Any:
        done = CliRunner(env={"COLUMNS": "300"}).invoke(
            app, [word.replace("@", f"{folder}/") for word in words]
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if done.exit_code == 2:
            raise ValueError(done.output)

    return run


def rows(name: str) -> Callable[[Path], Any]:
    """Read and encode a data set of a user."""
    return lambda folder: encode.encode(
        read(folder / name), mode="end-to-end" if name == "images" else "features"
    )


def cached(folder: Path) -> None:
    """Features from a cache, which are right or not there."""
    features = np.zeros((5, 3), np.float32)
    known = Cache(folder / "cache", "name", "key", 3).read(list("abcde"), features)
    if (features[known] != 1).any():
        raise Wrong("damaged features are used")


def _plain(value: Any) -> None:
    """Check that a pickle made nothing but arrays, numbers, texts and containers of them."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _plain(item)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind not in safe_load.KINDS:
            raise Wrong(f"an array of {value.dtype}")
    elif not isinstance(
        value, str | bytes | bytearray | int | float | complex | np.generic | type(None)
    ):
        raise Wrong(f"a {type(value)}")


def make(folder: Path) -> None:
    """All files of the examples."""
    own_data.fruit(ROWS, wrong=0.2).to_csv(folder / "table.csv", index=False)
    own_data.fruit(ROWS).to_json(folder / "lines.jsonl", orient="records", lines=True)
    own_data.fruit(ROWS).to_parquet(folder / "table.parquet")
    days = pd.DataFrame({"day": pd.date_range("2020", periods=ROWS), "label": ["a", "b"] * 30})
    days.to_parquet(folder / "days.parquet")
    own_data.write_npz(folder / "arrays.npz", n=ROWS)
    np.save(folder / "array.npy", np.ones((9, 4), np.float32))
    torch.save({"clean": torch.zeros(9), "names": ["a"]}, folder / "labels.pt")
    (folder / "batch").write_bytes(_batch())
    own_data.write_images(folder / "images", each=4)
    Cache(folder / "cache", "name", "key", 3).write(list("abcde"), np.ones((5, 3), np.float32))
    own_data.quickly(folder / "table.csv", folder / "out")
    own_data.write_decisions(folder / "out", folder / "d.json", (0, "exclude", None))
    own_data.quickly(folder / "table.csv", folder / "started")
    (folder / "started" / "summary.json").unlink()
    own_data.quickly(folder / "images", folder / "pictures", mode="end-to-end")
    for form, name in (
        ("label-studio", "tasks.json"),
        ("fiftyone", "samples.json"),
        ("cvat", "cvat.zip"),
    ):
        runner = CliRunner()
        words = [
            "exchange",
            "out",
            form,
            str(folder / "pictures"),
            "-o",
            str(folder / name),
            "--all",
        ]
        assert runner.invoke(app, words).exit_code == 0
    _answer(folder / "tasks.json")


def _batch() -> bytes:
    import pickle

    return pickle.dumps({"data": np.zeros((4, 3072), np.uint8), "labels": [0, 1, 2, 3]}, 2)


def _answer(path: Path) -> None:
    """Annotations as Label Studio exports them."""
    tasks = json.loads(path.read_text())
    result = {"from_name": "label", "value": {"choices": ["nacht"]}}
    for task in tasks:
        task["annotations"] = [{"result": [result], "updated_at": "2026-11-16T09:59:00Z"}]
    path.write_text(json.dumps(tasks))


def kinds() -> dict[str, Kind]:
    """All kinds of file that are read."""
    report, compare = cli("report", "@out"), cli("compare", "@out", "--out", "@page.html")
    apply = cli("apply", "@out", "@d.json")
    predict = cli("predict", "@out/model", "@table.csv", "-o", "@new.csv")
    resume = cli("purify", "--resume", "@started")
    table, lines, text = mutations.of_table, mutations.of_lines, mutations.of_json
    receive = {
        form: cli("exchange", "in", form, "@pictures", f"@{name}", "-o", "@answers.json")
        for form, name in (
            ("label-studio", "tasks.json"),
            ("fiftyone", "samples.json"),
            ("cvat", "cvat.zip"),
        )
    }
    return {
        "summary": Kind(text, "out/summary.json", report),
        "summary, compared": Kind(text, "out/summary.json", compare),
        "summary, applied": Kind(text, "out/summary.json", apply),
        "config": Kind(text, "out/config.json", report),
        "config, compared": Kind(text, "out/config.json", compare),
        "config, applied": Kind(text, "out/config.json", apply),
        "config, resumed": Kind(text, "started/config.json", resume),
        "labels": Kind(table, "out/labels.csv", report),
        "labels, applied": Kind(table, "out/labels.csv", apply),
        "evidence": Kind(text, "out/evidence.json", report),
        "metrics": Kind(lines, "out/metrics.jsonl", report),
        "metrics, compared": Kind(lines, "out/metrics.jsonl", compare),
        "decisions": Kind(text, "d.json", apply),
        "checkpoint": Kind(mutations.of_checkpoint, "started/checkpoint.pt", resume),
        "model config": Kind(text, "out/model/config.json", predict),
        "model table": Kind(text, "out/model/table.json", predict),
        "weights": Kind(mutations.of_tensors, "out/model/model.safetensors", predict),
        "csv": Kind(table, "table.csv", rows("table.csv")),
        "jsonl": Kind(
            lines, "lines.jsonl", lambda folder: table_files.load(folder / "lines.jsonl")
        ),
        "parquet": Kind(mutations.of_bytes, "table.parquet", rows("table.parquet")),
        "dates": Kind(mutations.of_bytes, "days.parquet", rows("days.parquet")),
        "npz": Kind(mutations.of_zip, "arrays.npz", rows("arrays.npz")),
        "image": Kind(mutations.of_bytes, "images/nacht/0.png", rows("images")),
        "npy": Kind(mutations.of_array, "array.npy", lambda f: safe_load.load_npy(f / "array.npy")),
        "pt": Kind(
            mutations.of_checkpoint, "labels.pt", lambda f: safe_load.load_torch(f / "labels.pt")
        ),
        "pickle": Kind(
            mutations.of_bytes, "batch", lambda f: _plain(safe_load.load_pickle(f / "batch"))
        ),
        "cache": Kind(mutations.of_bytes, "cache", cached),
        "label studio": Kind(text, "tasks.json", receive["label-studio"]),
        "fiftyone": Kind(text, "samples.json", receive["fiftyone"]),
        "cvat": Kind(mutations.of_zip, "cvat.zip", receive["cvat"]),
    }


def outcome(kind: Kind, folder: Path) -> tuple[str, str]:
    """What the command made of the damaged file, and its error."""
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
    signal.alarm(SECONDS)
    try:
        kind.run(folder)
    except FIXABLE as error:
        said = str(error).strip()
        return ("clear error" if said else "no words"), said
    except TooSlow:
        return "hang", "".join(traceback.format_exc().splitlines()[-4:])
    except BaseException:
        return "traceback", " | ".join(traceback.format_exc().splitlines()[-4:])
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
    return "result", ""


def _damage(kind: Kind, path: Path, number: int, seed: int) -> None:
    draw = random.Random(f"{seed} {kind.file} {number}")
    file = path / kind.file
    if file.is_dir():
        file = next(file.rglob("*.npz"))
    file.write_bytes(kind.mutate(file.read_bytes(), draw))


def _too_slow(*_: object) -> None:
    raise TooSlow


def _say(*words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main(folder: Path, seed: int, count: int, only: str = "") -> None:
    """Run `count` cases of each kind, and print their outcomes."""
    torch.set_num_threads(1)
    logging.disable()
    warnings.simplefilter("ignore")
    os.environ["COLAFIER_CACHE"] = str(folder / "features")
    signal.signal(signal.SIGALRM, _too_slow)
    made = folder / "example"
    made.mkdir()
    make(made)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    aside = folder / "aside"
    for name, kind in kinds().items():
        if only not in name:
            continue
        for number in range(count):
            with suppress(FileNotFoundError):
                shutil.rmtree(aside)
            made.rename(aside)  # sources are known by their path
            shutil.copytree(aside, made)
            _damage(kind, made, number, seed)
            _say(name, number, "started", "")
            _say(name, number, *outcome(kind, made))
            shutil.rmtree(made)
            aside.rename(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:4]), *sys.argv[4:])
