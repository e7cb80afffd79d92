from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from colafier.cli.list_options import ListOptionsCommand, repeated

app = typer.Typer()


@app.command(cls=ListOptionsCommand)
def show(
    suite: str,
    methods: Annotated[list[str] | None, typer.Option("--methods", "-m")] = None,
    seeds: Annotated[list[int] | None, typer.Option()] = None,
    jobs: int = 1,
) -> None:
    typer.echo(f"{suite} {methods} {seeds} {jobs}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("digits", "digits None None 1"),
        ("digits --seeds 1", "digits None [1] 1"),
        ("digits --seeds 1 2 3", "digits None [1, 2, 3] 1"),
        ("digits --seeds=1 2 3", "digits None [1, 2, 3] 1"),
        ("digits --seeds 1 --seeds 2 3", "digits None [1, 2, 3] 1"),
        ("digits --methods ce elr --seeds 2 3 --jobs 4", "digits ['ce', 'elr'] [2, 3] 4"),
        ("digits -m ce elr --jobs 4", "digits ['ce', 'elr'] None 4"),
        ("--jobs 4 digits", "digits None None 4"),
        ("--seeds 1 2 -- digits", "digits None [1, 2] 1"),
        ("digits --seeds -1 2", "digits None [-1, 2] 1"),
    ],
)
def test_a_list_option_takes_values_until_the_next_option(words: str, expected: str) -> None:
    result = CliRunner().invoke(app, words.split())
    assert result.output.strip() == expected


@pytest.mark.parametrize("words", ["digits --seeds", "digits --seeds 1 x", "digits --jobs 1 2"])
def test_mistakes_are_still_refused(words: str) -> None:
    assert CliRunner().invoke(app, words.split()).exit_code == 2


def test_other_words_stay_as_they_are() -> None:
    words = ["run", "--out", "a b", "--set", "k=v", "w=x", "--flag", "c"]
    assert list(repeated(words, {"--set"})) == [
        "run", "--out", "a b", "--set", "k=v", "--set", "w=x", "--flag", "c",
    ]  # fmt: skip
