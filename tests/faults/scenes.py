"""What is stopped in the tests of kills and full disks: small runs of each command."""

import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from commands import CommandServer, Scene, restore
from own_data import fruit, write_decisions, write_images

QUICK = (
    "purify_table", "purify_pixels", "train", "overwrite", "resume_after_overwrite", "apply",
    "apply_images", "proceed", "report", "predict", "noise", "imagefolder", "label_studio", "cvat",
    "fiftyone", "exchange_in",
)  # fmt: skip
SLOW = ("purify_features", "train_seeds", "proceed_images", "export")
NO_TIME = ("--epochs", "2", "--method", "ce")
TRAIN = ("train", "--preset", "digits", "--limit", "40", "--net", "linear", *NO_TIME)


class Scenes:
    """Scenes by name, each prepared when it is asked for.

    Args:
        server: Runs the commands.
        place: A folder for the sources and for copies of the disk.
    """

    def __init__(self, server: CommandServer, place: Path) -> None:
        self.server = server
        self.place = place
        self.out = server.disk / "out"
        self.table = place / "fruit.csv"
        fruit(24, wrong=0.2).to_csv(self.table, index=False)
        self.other_table = place / "other.csv"
        fruit(30, wrong=0.1, seed=1).to_csv(self.other_table, index=False)
        self.images = write_images(place / "images", each=6)
        for words in (
            ("purify", self.table, "--write", "csv", "--epochs", "2"),
            ("purify", self.images, "--write", "folder", *NO_TIME),
            (*TRAIN,),
        ):
            out = ("--out", place / f"{words[0]}-{words[1].name if len(words) == 6 else 'warm'}")
            server.warm((*words, *out))

    def __getitem__(self, name: str) -> Scene:
        """The scene of this name."""
        make: Callable[[], Scene] = getattr(self, f"_{name}")
        return make()

    def _purify_table(self) -> Scene:
        words = ("purify", self.table, "-o", self.out, "--epochs", "2", "--write", "csv")
        return Scene(words, self._empty, ("purify", "--resume", self.out), epochs=2)

    def _purify_pixels(self) -> Scene:
        how = ("--mode", "end-to-end", "--size", "8", "--write", "folder", *NO_TIME)
        words = ("purify", self.images, "-o", self.out, *how)
        return Scene(words, self._empty, ("purify", "--resume", self.out), epochs=2)

    def _purify_features(self) -> Scene:
        words = ("purify", self.images, "-o", self.out, "--write", "folder", *NO_TIME)
        return Scene(words, self._empty, ("purify", "--resume", self.out), epochs=2)

    def _train(self) -> Scene:
        resume = ("train", "--resume", "--out", self.out)
        return Scene((*TRAIN, "--out", self.out), self._empty, resume, epochs=2)

    def _train_seeds(self) -> Scene:
        words = (*TRAIN, "--seeds", "1", "2", "--out", self.out)
        resume = ("train", "--resume", "--seeds", "1", "2", "--out", self.out)
        return Scene(words, self._empty, resume, epochs=4)

    def _overwrite(self) -> Scene:
        """Another run takes the place of a finished one."""
        words = ("purify", self.other_table, "-o", self.out, "--overwrite", *NO_TIME)
        return Scene(words, self._finished_table, epochs=2, starts_over=True, repeated=2)

    def _resume_after_overwrite(self) -> Scene:
        """The same, but a user who resumes must not get a mix of both runs."""
        words = ("purify", self.other_table, "-o", self.out, "--overwrite", *NO_TIME)
        resume = ("purify", "--resume", self.out)
        return Scene(words, self._finished_table, resume, epochs=2, other=self._finished_table)

    def _apply(self) -> Scene:
        return Scene(("apply", self.out, self._decisions), self._finished_table)

    def _apply_images(self) -> Scene:
        return Scene(("apply", self.out, self._image_decisions), self._finished_images)

    def _proceed(self) -> Scene:
        """`apply --continue`."""
        return Scene(("apply", self.out, "--continue"), self._applied, epochs=1, starts_over=True)

    def _proceed_images(self) -> Scene:
        words = ("apply", self.out, "--continue")
        return Scene(words, self._applied_images, epochs=1, starts_over=True)

    def _report(self) -> Scene:
        return Scene(("report", self.out), self._finished_table)

    def _predict(self) -> Scene:
        words = ("predict", self.out / "model", self.table, "-o", self.server.disk / "new.csv")
        return Scene(words, self._finished_table)

    def _noise(self) -> Scene:
        out = self.server.disk / "noisy.npy"
        return Scene(("noise", "--noise", "pair:0.3", "--limit", "50", "--out", out), self._empty)

    def _export(self) -> Scene:
        out = self.server.disk / "model.onnx"
        return Scene(("export", self.out / "model", "--onnx", "-o", out), self._finished_table)

    def _imagefolder(self) -> Scene:
        return self._exchange("imagefolder", "review")

    def _label_studio(self) -> Scene:
        return self._exchange("label-studio", "tasks.json")

    def _cvat(self) -> Scene:
        return self._exchange("cvat", "photos.zip")

    def _fiftyone(self) -> Scene:
        return self._exchange("fiftyone", "samples.json")

    def _exchange_in(self) -> Scene:
        sent = self.place / "sent"
        if not (self.place / "after-sending").exists():
            words = ("exchange", "out", "imagefolder", self.out, "-o", sent, "--all")
            self._made("after-sending", self._finished_images, words)
        out = self.server.disk / "decisions.json"
        words = ("exchange", "in", "imagefolder", self.out, sent, "-o", out)
        return Scene(words, self._finished_images)

    def _exchange(self, form: str, name: str) -> Scene:
        out = ("-o", self.server.disk / name, "--all")
        return Scene(("exchange", "out", form, self.out, *out), self._finished_images)

    @cached_property
    def _empty(self) -> Path:
        place = self.place / "empty"
        place.mkdir()
        return place

    @cached_property
    def _finished_table(self) -> Path:
        return self._made("finished-table", self._empty, self._purify_table().words)

    @cached_property
    def _finished_images(self) -> Path:
        return self._made("finished-images", self._empty, self._purify_pixels().words)

    @cached_property
    def _decisions(self) -> Path:
        choices = [(0, "keep", "apple"), (1, "other", "plum"), (2, "exclude", None)]
        return write_decisions(self._finished_table / "out", self.place / "d.json", *choices)

    @cached_property
    def _image_decisions(self) -> Path:
        choices = [(0, "keep", "größe"), (1, "other", "nacht"), (2, "exclude", None)]
        return write_decisions(self._finished_images / "out", self.place / "i.json", *choices)

    @cached_property
    def _applied(self) -> Path:
        return self._made("applied", self._finished_table, self._apply().words)

    @cached_property
    def _applied_images(self) -> Path:
        return self._made("applied-images", self._finished_images, self._apply_images().words)

    def _made(self, name: str, before: Path, words: tuple[str | Path, ...]) -> Path:
        """A copy of the disk after a command."""
        restore(before, self.server.disk)
        ended = self.server.run(words)
        assert ended.code == 0, ended.output
        return Path(shutil.copytree(self.server.disk, self.place / name, symlinks=True))
