"""Suites: which methods run on which data, with which noise, settings and seeds.

A suite is a small TOML file in the folder `suites`; docs/benchmark.md explains its entries.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from colafier._io import content_digest, to_json
from colafier.bench.entries import VARIANTS, Entry, entries_of
from colafier.methods import available, build, find
from colafier.workflows.settings import Settings, resolve

FOLDER = Path(str(resources.files("colafier.bench"))) / "suites"
KEYS = (
    "title", "long", "seeds", "optional_seeds",
    "methods", "entries", "ablations", "choices", "data",
)  # fmt: skip
PART_KEYS = ("like", "noises", "methods", "by_noise")  # beside the names of settings
HUMAN = "CIFAR-10_human.pt"  # the file with the labels of CIFAR-10N

Hyper = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """Data of a suite, with the settings that all its runs share."""

    name: str
    noises: tuple[str, ...]
    settings: Mapping[str, Any]
    methods: Mapping[str, Hyper]  # hyper-parameters of a method on this data
    by_noise: Mapping[str, Mapping[str, Hyper]]  # the same for one kind of noise

    def resolved(self, entry: Entry, kind: str, data: str) -> Settings:
        """The settings of an entry for a kind of noise, apart from rate and seed.

        The epochs that a method needs before its deployed net starts are added to the run.
        """
        method = entry.method
        first, preparation = find(method).preparation(self.settings["epochs"])
        own = {
            **preparation,
            **self.methods.get(method, {}),
            **self.by_noise.get(kind, {}).get(method, {}),
            **entry.hyper,
        }
        values = {**self.settings, "method": method}
        values["data"] = data or values.get("data", "")
        values["epochs"] = self.settings["epochs"] + first
        return resolve(None, values, own)


@dataclass(frozen=True, eq=False)  # hashed by identity: its settings hold dictionaries
class Run:
    """One run of a suite."""

    suite: str
    part: str
    entry: Entry
    noise: str  # as the suite names it, without folders
    settings: Settings

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Part, entry, noise and seed: what a table has one number for."""
        return self.part, self.entry.name, self.noise, self.settings.seed

    def digest(self) -> str:
        """A hash of all settings, resolved; where the data is does not matter.

        Settings at their default are left out, so that a new setting changes no hash.
        """
        values = {**self.settings.to_dict(), "data": "", "noise": self.noise, "hyper": None}
        changed = {k: v for k, v in values.items() if v != getattr(Settings, k, None)}
        method = build(self.entry.method, **self.settings.hyper)
        hyper = {
            name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            for name, value in vars(method).items()
            if name[0] != "_" and name not in ("training", "distributed")
        }
        return content_digest(to_json({**changed, "hyper": hyper}))[:12]


@dataclass(frozen=True)
class Suite:
    """A benchmark: entries x noises x seeds on one or several data sets.

    Args:
        name: Name of the file.
        title: What the tables are headed with.
        seeds: Of all entries.
        optional_seeds: Seeds that tables show where there are records, and do not miss otherwise.
        entries: Rows of the tables.
        parts: The data sets with their noises.
        folder: Where the suite's file is, and files of labels that its noises name.
        long: Whether the suite is for a GPU, so that its cost is estimated before it begins.
    """

    name: str
    title: str
    seeds: tuple[int, ...]
    optional_seeds: tuple[int, ...]
    entries: tuple[Entry, ...]
    parts: tuple[Part, ...]
    folder: Path = FOLDER
    long: bool = False

    def runs(
        self,
        data: str = "",
        methods: Sequence[str] = (),
        noises: Sequence[str] = (),
        seeds: Sequence[int] = (),
    ) -> list[Run]:
        """All runs, seed by seed, so that a stopped suite has whole seeds.

        Args:
            data: Folder with the files of the sources; empty: that of the suite.
            methods: Names of entries, or of methods that the suite has none of; empty: all.
            noises: Of the suite, or others; empty: those of the suite.
            seeds: Empty: those of the suite.
        """
        entries = [self.entry(name) for name in methods] or list(self.entries)
        resolved: dict[tuple[str, str, str], Settings] = {}
        runs = []
        for seed, part in product(seeds or self.seeds, self.parts):
            for noise, entry in product(noises or part.noises, entries):
                kind = noise.partition(":")[0]
                place = (part.name, entry.name, kind)
                if place not in resolved:  # the same for all rates and seeds
                    resolved[place] = part.resolved(entry, kind, data)
                located = self._located(noise, resolved[place].data)
                settings = replace(resolved[place], seed=seed, noise=located)
                runs.append(Run(self.name, part.name, entry, noise, settings))
        return runs

    def entry(self, name: str) -> Entry:
        """The entry of this name; any method or variant is one, with its defaults."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        if name in available():
            return Entry(name, name, {})
        if name in VARIANTS:
            return Entry(name, "colafier", {"variant": VARIANTS[name]})
        names = ", ".join(entry.name for entry in self.entries)
        raise ValueError(
            f"{self.name} has no entry {name!r}; there are {names}, {' and '.join(VARIANTS)}, and "
            "any method"
        )

    def _located(self, noise: str, data: str) -> str:
        """A noise with the path of its file, in the data folder or next to the suite's file."""
        kind, _, rest = noise.partition(":")
        if kind == "file":
            return f"file:{self.folder / rest}"
        if kind != "cifar10n":
            return noise
        near = [Path(data) / HUMAN, Path(data).parent / HUMAN]
        return f"{noise}:{next((path for path in near if path.is_file()), near[0])}"


def suite_names() -> list[str]:
    """Names of all suites."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_suite(name: str) -> Suite:
    """Read a suite by its name, or from the path of a `.toml` file."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        there = ", ".join(suite_names())
        raise ValueError(f"no suite {name!r}; there are {there}, or give the path of a .toml file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        _refuse_unknown(content, KEYS)
        return Suite(
            path.stem,
            content["title"],
            tuple(content["seeds"]),
            tuple(content.get("optional_seeds", ())),
            tuple(entries_of(content)),
            tuple(_part(name, table) for name, table in content["data"].items()),
            path.parent,
            content.get("long", False),
        )
    except (KeyError, TypeError, ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a suite: {error}") from error


def _part(name: str, table: Mapping[str, Any]) -> Part:
    """One table `data.NAME`; with `like`, the data of that name in another suite."""
    _refuse_unknown(table, (*PART_KEYS, *Settings.__dataclass_fields__))
    if like := table.get("like"):
        found = next(part for part in load_suite(like).parts if part.name == name)
        return Part(name, tuple(table["noises"]), found.settings, found.methods, found.by_noise)
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    noises = tuple(plain.pop("noises"))
    return Part(name, noises, plain, table.get("methods", {}), table.get("by_noise", {}))


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := table.keys() - set(known):
        raise ValueError(f"it has {min(unknown)!r}, which is none of {', '.join(known)}")
