"""Columns of all kinds to numbers, the same again after storing, and nothing but that stored."""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from colafier.embed.tables import TableEncoder

N = 60


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 10, N),
            "income": rng.normal(3000, 500, N),
            "city": rng.choice(["Rome", "Oslo", "Zürich"], N),
            "member": rng.random(N) < 0.5,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N), "D"),
            "born": [f"19{50 + row % 50}-03-07" for row in range(N)],
            "country": "EU",
            "name": [f"person {row}" for row in range(N)],
        }
    )
    table.loc[3, ["age", "city"]] = np.nan
    return table


def named(encoder: TableEncoder, features: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(features, columns=encoder.feature_names)


def test_every_kind_becomes_numbers(frame: pd.DataFrame) -> None:
    encoder = TableEncoder()
    features = encoder.fit(frame)
    assert encoder.kinds == {
        "age": "number", "income": "number", "city": "category",
        "member": "boolean", "since": "date", "born": "date",
    }  # fmt: skip
    assert features.dtype == np.float32
    assert features.shape == (N, encoder.num_features)
    assert encoder.feature_names == [
        *("age", "income", "member", "since", "born"),
        "age is missing",
        *(f"city = {name}" for name in ("<missing>", "Oslo", "Rome", "Zürich")),
    ]
    table = named(encoder, features)
    assert np.allclose(table.iloc[:, 1:5].mean(), 0, atol=1e-5)
    assert np.allclose(table.iloc[:, 1:5].std(ddof=0), 1, atol=1e-4)
    assert np.corrcoef(table["since"], np.arange(N))[0, 1] > 0.9999
    assert table["born"].idxmin() in (0, 50)
    assert set(table.loc[frame["member"], "member"]) != set(table.loc[~frame["member"], "member"])
    assert (table["city = Oslo"] == (frame["city"] == "Oslo")).all()


def test_missing_values_are_told_apart(frame: pd.DataFrame) -> None:
    encoder = TableEncoder()
    table = named(encoder, encoder.fit(frame))
    assert table["age is missing"].tolist() == [float(row == 3) for row in range(N)]
    assert table["city = <missing>"].sum() == table["city = <missing>"][3] == 1
    assert table["age"][3] == pytest.approx(table["age"].drop(3).median())


def test_useless_columns_are_dropped_with_a_reason(frame: pd.DataFrame) -> None:
    frame["nothing"] = None
    encoder = TableEncoder()
    encoder.fit(frame)
    assert set(encoder.dropped) == {"country", "name", "nothing"}
    assert encoder.dropped["country"] == "all values are the same"
    assert "different" in encoder.dropped["name"]
    assert encoder.dropped["nothing"] == "all values are missing"


@pytest.mark.parametrize("sign", [1, -1])
def test_an_outlier_does_not_squeeze_the_rest(sign: int) -> None:
    values = np.random.default_rng(0).normal(size=1000)
    values[0] = 1e12
    features = TableEncoder().fit(pd.DataFrame({"a": sign * values}))[:, 0]
    assert 0.9 < features[1:].std() < 1.1
    assert 2 < sign * features[0] <= 5


@pytest.mark.parametrize("sign", [1, -1])
def test_rare_values_survive(sign: int) -> None:
    """Most values are the same, so that quantiles alone would make the column constant."""
    values = sign * np.array([0.0] * 998 + [1.0, 2.0])
    features = sign * TableEncoder().fit(pd.DataFrame({"a": values}))[:, 0]
    assert features[0] < features[998] <= features[999] <= 5


def test_ordinary_numbers_are_standardized() -> None:
    values = np.random.default_rng(0).normal(7, 3, 500)
    expected = (values - values.mean()) / values.std()
    features = TableEncoder().fit(pd.DataFrame({"a": values}))
    assert np.allclose(features[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([1, 2, None, 4], "number"),
        ([Decimal("1.5"), Decimal(2), None, Decimal(4)], "number"),
        (pd.array([1, None, 3, 4], "Int64"), "number"),
        (pd.to_timedelta([1, 2, None, 4], "h"), "number"),
        ([True, False, None, True], "boolean"),
        (pd.array([True, None, False, True], "boolean"), "boolean"),
        ([datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1), None], "date"),
        (pd.to_datetime(["2020-01-01", None, "2021-01-01", "2022-01-01"], utc=True), "date"),
        (["2020-01-01T10:00:00+02:00", None, "2021-01-01T00:00", "2022-01-01"], "date"),
        (["2020-01-01", "2020-99-01", None, "x"], "category"),
        (["2020-01-01", "2020-99-01", None, None], "category"),
        (["01/02/2020", "02/01/2020", None, None], "category"),
        ([1, "a", None, 2], "category"),
        ([[1], [2], None, [1]], "category"),
        (pd.Categorical([1, 2, None, 1]), "category"),
    ],
)
def test_kinds_of_columns(column, kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": column})
    encoder = TableEncoder()
    features = encoder.fit(frame)
    assert encoder.kinds == {"a": kind}
    assert np.isfinite(features).all()
    assert len(np.unique(features, axis=0)) > 1
    assert (
        features[frame["a"].isna().argmax()].tolist() not in features[~frame["a"].isna()].tolist()
    )
    encoder.save(tmp_path / "a")
    assert np.array_equal(TableEncoder.load(tmp_path / "a").transform(frame), features)


def test_many_categories_share_a_column() -> None:
    values = [f"v{number % 80}" for number in range(800)] + ["v0"] * 100
    encoder = TableEncoder()
    assert encoder.fit(pd.DataFrame({"a": values})).shape[1] == 50
    new = encoder.transform(pd.DataFrame({"a": ["never seen", "v0"]}))
    assert new.sum(1).tolist() == [1, 1]
    assert new[0].argmax() == encoder.feature_names.index("a = another")


def test_unknown_category_is_none_of_the_known() -> None:
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"a": ["x", "y", "x"]}))
    assert encoder.transform(pd.DataFrame({"a": ["z", None, "y"]})).tolist() == [
        [0, 0], [0, 0], [0, 1],
    ]  # fmt: skip


def test_rows_alone_are_encoded_as_in_the_table(frame: pd.DataFrame) -> None:
    encoder = TableEncoder()
    features = encoder.fit(frame)
    shuffled = frame[list(reversed(frame.columns))].assign(more=1)
    assert np.array_equal(encoder.transform(shuffled.iloc[[5]]), features[[5]])
    assert np.array_equal(encoder.transform(shuffled.iloc[::-1]), features[::-1])
    assert encoder.transform(frame.iloc[:0]).shape == (0, encoder.num_features)


def test_missing_in_a_column_that_was_whole(frame: pd.DataFrame) -> None:
    encoder = TableEncoder()
    encoder.fit(frame)
    frame[["income", "member", "since", "born", "city"]] = None
    assert np.isfinite(encoder.transform(frame)).all()


def test_lacking_column_lists_the_columns(frame: pd.DataFrame) -> None:
    encoder = TableEncoder()
    encoder.fit(frame)
    with pytest.raises(ValueError, match="lacks age, city; it has income, member"):
        encoder.transform(frame[["income", "member", "since", "born"]])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"age": "old"}, "'age' must hold numbers"),
        ({"since": "soon"}, "'since' must hold dates"),
        ({"since": 5}, "numbers are no dates"),
        ({"income": 1e160}, "'income' has infinite or huge numbers, the first in row 0"),
        ({"income": np.inf}, "'income' has infinite or huge numbers, the first in row 0"),
    ],
)
def test_values_of_another_kind_are_refused(frame: pd.DataFrame, change, said: str) -> None:
    encoder = TableEncoder()
    encoder.fit(frame)
    with pytest.raises(ValueError, match=said):
        encoder.transform(frame.assign(**change))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pd.DataFrame({"a": [1, 1]}), "a: all values are the same"),
        (pd.DataFrame({"a": [1.0, np.inf]}), "infinite"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "same name: a"),
        (pd.DataFrame([[1, 2], [3, 4]]), "rename"),
        (pd.DataFrame(index=range(3)), "there is none"),
    ],
)
def test_tables_that_teach_nothing_are_refused(table: pd.DataFrame, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TableEncoder().fit(table)


def test_must_be_fitted(frame: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="call fit"):
        TableEncoder().transform(frame)
    with pytest.raises(ValueError, match="call fit"):
        TableEncoder().save(tmp_path / "a")


def test_many_rows_equal_the_pipeline_of_scikit_learn() -> None:
    """But for clipping, which no value of these needs."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "a": rng.uniform(-3, 9, 2000),
            "b": np.where(rng.random(2000) < 0.1, np.nan, rng.uniform(0, 1, 2000)),
            "c": rng.integers(0, 70, 2000).astype(str),
            "d": rng.choice(["x", "y", "ü"], 2000),
        }
    )
    numbers = make_pipeline(StandardScaler(), SimpleImputer(strategy="median", add_indicator=True))
    one_hot = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False
    )
    reference = ColumnTransformer([("n", numbers, ["a", "b"]), ("c", one_hot, ["c", "d"])])
    expected = reference.fit_transform(frame)
    encoder = TableEncoder()
    assert np.allclose(encoder.fit(frame), expected, atol=1e-5)
    new = frame.iloc[:200].assign(c=[f"{row}" for row in range(200)], d="new")
    assert np.allclose(encoder.transform(new), reference.transform(new), atol=1e-5)


def test_stored_and_loaded_gives_the_same(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame["city"] = frame["city"].replace("Oslo", "a\0 'quoted' \N{SNOWMAN}")
    encoder = TableEncoder()
    features = encoder.fit(frame)
    encoder.save(tmp_path / "columns.json")
    loaded = TableEncoder.load(tmp_path / "columns.json")
    assert np.array_equal(loaded.transform(frame), features)
    assert loaded.kinds == encoder.kinds
    assert loaded.dropped == encoder.dropped
    assert loaded.feature_names == encoder.feature_names
    assert b"person 7" not in (tmp_path / "columns.json").read_bytes()  # no rows inside


def test_a_stored_encoder_is_plain_data(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Numbers and texts only, under names that are known: nothing that could be called."""
    encoder = TableEncoder()
    encoder.fit(frame)
    encoder.save(tmp_path / "a")
    stored = json.loads((tmp_path / "a").read_text())
    assert set(stored) == {"format", "numbers", "categories", "dropped"}
    assert {type(value) for column in stored["numbers"] for value in column.values()} <= {
        str,
        float,
        bool,
    }


def renamed(stored, part: str, name: str, value):
    stored[part][0][name] = value
    return stored


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored | {"format": 1},
        lambda stored: stored | {"numbers": {}},
        lambda stored: stored | {"numbers": [7]},
        lambda stored: stored | {"numbers": [], "categories": []},
        lambda stored: stored | {"numbers": stored["numbers"] * 2},
        lambda stored: stored | {"dropped": [1]},
        lambda stored: stored | {"dropped": {"a": 1}},
        lambda stored: {name: stored[name] for name in ("format", "numbers", "categories")},
        lambda stored: renamed(stored, "numbers", "scale", 0),
        lambda stored: renamed(stored, "numbers", "scale", -1.0),
        lambda stored: renamed(stored, "numbers", "mean", None),
        lambda stored: renamed(stored, "numbers", "mean", "1"),
        lambda stored: renamed(stored, "numbers", "mean", float("nan")),
        lambda stored: renamed(stored, "numbers", "high", float("inf")),
        lambda stored: renamed(stored, "numbers", "high", -1e9),
        lambda stored: renamed(stored, "numbers", "kind", "os.system"),
        lambda stored: renamed(stored, "numbers", "name", 3),
        lambda stored: renamed(stored, "numbers", "marks_missing", 1),
        lambda stored: renamed(stored, "numbers", "__class__", "os.system"),
        lambda stored: renamed(stored, "categories", "categories", []),
        lambda stored: renamed(stored, "categories", "categories", ["a", "a"]),
        lambda stored: renamed(stored, "categories", "categories", [1, 2]),
        lambda stored: renamed(stored, "categories", "categories", [str(n) for n in range(51)]),
        lambda stored: renamed(stored, "categories", "others", None),
        lambda stored: [stored],
        lambda _: None,
    ],
)
def test_anything_but_a_stored_encoder_is_refused(
    frame: pd.DataFrame, tmp_path: Path, change
) -> None:
    encoder = TableEncoder()
    encoder.fit(frame)
    path = tmp_path / "a"
    encoder.save(path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=r"is damaged: .*; put it back"):
        TableEncoder.load(path)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda content: content[: len(content) // 2],
        lambda _: b"",
        lambda _: b"\x80\x04K\x01.",
        lambda _: b"[" * 200_000,
        lambda content: content.replace(b"Rome", b"R\xffme"),
    ],
    ids=["cut", "empty", "pickle", "deep", "bytes"],
)
def test_damaged_file_is_refused(frame: pd.DataFrame, tmp_path: Path, tamper) -> None:
    encoder = TableEncoder()
    encoder.fit(frame)
    path = tmp_path / "a"
    encoder.save(path)
    path.write_bytes(tamper(path.read_bytes()))
    with pytest.raises(ValueError, match="is damaged"):
        TableEncoder.load(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(ValueError, match=r"no more than .* are read"):
        TableEncoder.load(tmp_path / "a")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        TableEncoder.load(tmp_path / "a")
