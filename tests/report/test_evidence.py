"""Why a label is doubted: what is stored about it is right, small, and read back with care."""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from colafier.core.lid import lid
from colafier.nets.normalize import Normalize
from colafier.report import evidence, snippets
from colafier.report.evidence import TrainedRows, doubtful, gather
from colafier.report.snippets import Snippets

CLASSES = ("cat", "dog")


def lines(**columns: list) -> pd.DataFrame:
    n = len(columns["label_quality"])
    return pd.DataFrame({"original_label": ["cat"] * n, "action": ["keep"] * n, **columns})


def two_clouds(n: int = 60) -> TrainedRows:
    """Row 0 has the label cat, but lies among the dogs; rows are numbered from 100."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(n) % 2
    truth[0] = 1
    x = torch.randn(n, 4, generator=generator) + 8 * truth[:, None]
    original = truth.clone()
    original[0] = 0
    return TrainedRows(
        classes=CLASSES,
        rows=range(100, 100 + n),
        x=x,
        original=original,
        suggested=truth,
        classifier=nn.Linear(4, 2),
        normalize=Normalize(torch.zeros(4), torch.ones(4)),
        votes={"classifier": truth, "LID-dis": torch.full((n,), -1)},
        trajectory=torch.stack([torch.full((3,), torch.nan) if i else torch.tensor([0.5, 0.25, 0.1])
                            for i in range(n)]),
    )  # fmt: skip


def shown(row: int, small: bool) -> dict:
    return {"text": f"{row} {small}"}


def test_rows_with_something_to_do_come_first() -> None:
    action = ["keep", "relabel", "review", "keep", "relabel"]
    table = lines(label_quality=[0.1, 0.3, 0.2, 0.9, np.nan], action=action)
    assert doubtful(table) == [2, 1, 0, 3]


def test_half_of_the_rows_are_those_that_only_a_person_can_decide() -> None:
    quality = np.linspace(0, 0.5, 40).tolist()
    table = lines(label_quality=quality, action=["relabel"] * 20 + ["review"] * 20)
    assert doubtful(table, 10) == [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]
    assert doubtful(table.assign(action="review"), 10) == list(range(10))
    assert doubtful(table.assign(action="relabel"), 10) == list(range(10))


def test_rows_without_a_label_are_left_out() -> None:
    table = lines(label_quality=[0.1, 0.2, 0.3], original_label=["cat", None, ""])
    assert doubtful(table) == [0]


def test_nearest_rows_carry_the_label_and_are_the_nearest() -> None:
    known = two_clouds()
    (entry,) = gather(known, [100], Snippets(shown))["rows"]
    distances = (known.x - known.x[0]).norm(dim=1)
    distances[0] = torch.inf
    for side, label in (("original", 0), ("alternative", 1)):
        masked = distances.masked_fill(known.original != label, torch.inf)
        expected = masked.argsort()[:3]
        assert [row for row, _ in entry["near"][side]] == (expected + 100).tolist()
        found = [distance for _, distance in entry["near"][side]]
        assert found == pytest.approx(masked[expected].tolist(), abs=1e-3)
    assert entry["around"] == [["dog", 20]]


def test_lid_is_that_among_the_rows_of_each_label() -> None:
    known = two_clouds()
    (entry,) = gather(known, [100], Snippets(shown))["rows"]
    cats, dogs = (known.x[known.original == label] for label in (0, 1))
    own = torch.tensor([0])  # the first of the cats
    assert entry["lid"]["original"] == pytest.approx(
        float(lid(known.x[:1], 20, cats, own)), abs=1e-3
    )
    assert entry["lid"]["alternative"] == pytest.approx(float(lid(known.x[:1], 20, dogs)), abs=1e-3)
    assert entry["lid"]["alternative"] < entry["lid"]["original"]


def test_votes_and_trajectory() -> None:
    first, second = gather(two_clouds(), [100, 101], Snippets(shown))["rows"]
    assert first["votes"] == [["classifier", "dog"]]  # LID-dis has no vote
    assert first["trajectory"] == pytest.approx([0.5, 0.25, 0.1])
    assert second["trajectory"] == []


def test_neighbors_are_shown_small_and_once() -> None:
    found = gather(two_clouds(), [100, 101, 103], Snippets(shown))
    assert found["rows"][0]["shown"]["text"] == "100 False"
    near = {row for e in found["rows"] for side in e["near"].values() for row, _ in side}
    assert set(found["others"]) == {str(row) for row in near}
    assert found["others"][str(min(near))]["text"].endswith("True")


def test_rows_that_could_not_be_used_have_no_evidence() -> None:
    assert [e["row"] for e in gather(two_clouds(), [5, 101], Snippets(shown))["rows"]] == [101]
    assert gather(two_clouds(), [], Snippets(shown))["rows"] == []


def test_only_some_rows_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MAX_SEARCHED", {2: 10, 4: 10})
    (entry,) = gather(two_clouds(), [100], Snippets(shown))["rows"]
    assert sum(count for _, count in entry["around"]) == 10


class Net(nn.Module):
    """Brightness as feature and score."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 2)
        self.head.weight.data = torch.tensor([[-9.0], [9.0]])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean((1, 2, 3))[:, None])


def images() -> TrainedRows:
    """Row 0 is dark as a cat, but has the label dog."""
    x = torch.zeros(60, 1, 4, 4, dtype=torch.uint8)
    x[30:] = 255
    original = torch.arange(60) // 30
    original[0] = 1
    return TrainedRows(CLASSES, range(60), x, original, original, Net(), Normalize.fit(x))


def test_neighbors_of_images_are_those_of_the_last_layer() -> None:
    known = images()
    (entry,) = gather(known, [0], Snippets(shown))["rows"]
    assert entry["around"] == [["cat", 20]]
    assert [distance for _, distance in entry["near"]["original"]] == pytest.approx([2, 2, 2])
    assert not known.classifier.head._forward_pre_hooks  # nothing is left behind


def test_a_suggestion_is_compared_with_the_original_label() -> None:
    (entry,) = gather(two_clouds(), [100], Snippets(shown))["rows"]
    assert entry["alternative"] == "dog"


@pytest.mark.parametrize(("row", "other"), [(0, "cat"), (1, "dog")])
def test_without_a_suggestion_the_best_other_class_is_compared(row: int, other: str) -> None:
    known = images()  # the suggestion is to keep all labels
    (entry,) = gather(known, [row], Snippets(shown))["rows"]
    assert entry["alternative"] == other
    near = [neighbor for neighbor, _ in entry["near"]["alternative"]]
    assert {CLASSES[known.original[neighbor]] for neighbor in near} == {other}
    assert len(near) == 3


def test_it_is_read_back(tmp_path: Path) -> None:
    found = gather(two_clouds(), [100], Snippets(shown), truth=[0] * 160)
    evidence.write(tmp_path, found)
    assert json.loads(json.dumps(evidence.read(tmp_path))) == json.loads(json.dumps(found))
    assert (tmp_path / evidence.NAME).stat().st_size < 3000


def test_a_folder_without_evidence_has_none(tmp_path: Path) -> None:
    assert evidence.read(tmp_path) == {}


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "colafier-evidence-1"}'])
def test_damaged_evidence_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / evidence.NAME).write_text(content)
    with pytest.raises(ValueError, match="run again"):
        evidence.read(tmp_path)


def test_informative_columns_come_with_typical_values() -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(40, 15)), columns=[f"c{i}" for i in range(15)])
    original = ["cat", "dog"] * 20
    frame["c7"] += np.array([0, 9] * 20)
    frame["kind"] = ["fur", "bark"] * 20
    made = snippets.of_table(frame, original)
    cells = made.show(0, False)["features"]
    assert {name for name, _ in cells[:2]} == {"c7", "kind"}
    assert len(cells) == snippets.MAX_COLUMNS
    assert made.typical["kind"] == {"cat": "fur", "dog": "bark"}
    assert float(made.typical["c7"]["dog"]) == pytest.approx(frame["c7"][1::2].median(), rel=1e-3)


def decoded(uri: str) -> np.ndarray:
    image = pytest.importorskip("PIL.Image", reason="pip install 'colafier[images]'")
    content = base64.b64decode(uri.partition(",")[2])
    return np.asarray(image.open(io.BytesIO(content)))


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_without_pillow(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    def missing(*_: str) -> None:
        raise ModuleNotFoundError

    pixels = np.random.default_rng(0).integers(0, 256, (channels, 6, 5), dtype=np.uint8)
    with monkeypatch.context() as patch:
        patch.setattr("colafier._optional.required", missing)
        uri = snippets.picture(pixels, 64)
    assert uri.startswith("data:image/png;base64,")
    found = decoded(uri)
    expected = pixels[0] if channels == 1 else pixels.transpose(1, 2, 0)
    assert (found == expected).all()


def test_large_pictures_become_small() -> None:
    pixels = np.zeros((3, 500, 400), np.uint8)
    uri = snippets.picture(pixels, 72)
    assert uri.startswith("data:image/jpeg;base64,")
    assert decoded(uri).shape[:2] == (72, 58)


def test_a_broken_picture_is_reported(tmp_path: Path, need: Callable[[str], None]) -> None:
    need("images")
    (tmp_path / "a.png").write_bytes(b"nothing")
    assert "no picture" in snippets._of_file(tmp_path / "a.png", True)["text"]
