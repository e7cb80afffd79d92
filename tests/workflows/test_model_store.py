"""A model comes back as it was, from names and numbers alone; hostile folders are refused."""

import copy
import errno
import functools
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from colafier import arrays, methods, resolve, run
from colafier.evidence.labels import Labels
from colafier.nets import Classifier, net_factory
from colafier.training.training_set import TrainingSet
from colafier.workflows.model_store import (
    ModelFolderError,
    StoredModel,
    card,
    load,
    save,
)
from colafier.workflows.model_store.onnx_export import NEEDS, export_onnx

pytestmark = pytest.mark.usefixtures("quick")

N = 97  # rows; no layer has this size
CLASSES = ("cat", "dog", "ocelot")
SHAPES = {"vector": (6,), "image": (1, 8, 8)}
PARTIAL = "model.partial"


def some_rows(kind: str, n: int = N, shape: tuple[int, ...] | None = None) -> Tensor:
    """Rows of three clouds, one class after the other."""
    generator = torch.Generator().manual_seed(0)
    shape = SHAPES[kind] if shape is None else shape
    centers = torch.rand(3, *shape, generator=generator)
    x = centers[torch.arange(n) % 3] + 0.1 * torch.randn(n, *shape, generator=generator)
    return x * 3 if kind == "vector" else (x.clamp(0, 1) * 255).round().to(torch.uint8)


@functools.cache
def trained(method: str, kind: str, net: str = "mlp", dtype: str = "float32") -> StoredModel:
    """A model after two epochs on a few rows; do not change it."""
    source = arrays(some_rows(kind), np.array(CLASSES)[np.arange(N) % 3])
    observed = {"method": method, "net": net, "epochs": 2, "batch_size": 32, "dtype": dtype}
    settings = resolve(overrides=observed)
    result = run(settings, source, progress=False)
    return StoredModel(
        classifier=result.classifier,
        normalize=result.normalize,
        classes=source.classes,
        row_shape=SHAPES[kind],
        input={"kind": kind},
        method=method,
        hyper=settings.hyper,
        net=net,
        epochs=settings.epochs,
        about={"rows": N},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a sound model."""
    save(trained("ce", "vector"), tmp_path / "model")
    return tmp_path / "model"


def edit(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("kind", ["vector", "image"])
@pytest.mark.parametrize(
    ("method", "net", "dtype"),
    [("ce", "mlp", "float32"), ("colafier", "mlp", "bf16"), ("colafier", "convnet", "float32")],
)
def test_comes_back_bit_for_bit(
    tmp_path: Path, method: str, net: str, dtype: str, kind: str
) -> None:
    net = net if kind == "image" else "mlp"
    model = trained(method, kind, net, dtype)
    save(model, tmp_path / "new" / "model")
    before = torch.get_rng_state()
    again = load(tmp_path / "new" / "model")
    assert torch.equal(torch.get_rng_state(), before)
    x = some_rows(kind, 600)
    assert torch.equal(again.predict(x), model.predict(x))
    assert torch.equal(again.predict(x.numpy()), model.predict(x))
    plain = ("classes", "row_shape", "input", "method", "hyper", "net", "epochs", "about")
    assert [getattr(again, name) for name in plain] == [getattr(model, name) for name in plain]
    assert not any(module.training for module in again.classifier.modules())
    save(again, tmp_path / "twice")
    for name in ("config.json", "model.safetensors", "README.md"):
        assert (tmp_path / "twice" / name).read_bytes() == (
            tmp_path / "new" / "model" / name
        ).read_bytes()


@pytest.mark.parametrize("name", methods.available())
def test_every_method_can_be_kept(tmp_path: Path, name: str) -> None:
    method = methods.build(name)
    x = some_rows("vector")
    rows = TrainingSet(x, Labels(torch.arange(N) % 3), 3, view_names=method.views)
    method.setup(net_factory("mlp", (6,), 3), rows, 4)
    base = trained("ce", "vector")
    model = replace(base, classifier=method.deployed(), method=name, hyper={}, epochs=4)
    save(model, tmp_path / "model")
    assert torch.equal(load(tmp_path / "model").predict(x), model.predict(x))


@pytest.mark.parametrize("kind", ["vector", "image"])
def test_no_training_rows_are_stored(tmp_path: Path, kind: str) -> None:
    save(trained("colafier", kind), tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert tensors
    values = 6 if kind == "vector" else 64
    sizes = {size for value in tensors.values() for size in value.shape}
    assert sizes <= {1, 3, 256, values}
    assert N not in sizes


def test_rows_are_checked() -> None:
    vectors, images = trained("ce", "vector"), trained("ce", "image")
    assert vectors.predict(torch.empty(0, 6)).shape == (0, 3)
    x = some_rows("vector", 600).numpy()
    x.flags.writeable = False
    assert vectors.predict(x).shape == (600, 3)
    assert vectors.predict(np.ones((2, 6), dtype=np.uint8)).equal(vectors.predict(np.ones((2, 6))))
    with pytest.raises(ValueError, match=r"must be of shape \(6,\), not \(5,\)"):
        vectors.predict(torch.ones(2, 5))
    with pytest.raises(TypeError, match="images must be bytes"):
        images.predict(torch.ones(2, 1, 8, 8))
    with pytest.raises(TypeError, match="must be numbers"):
        vectors.predict(np.array([["a"] * 6]))
    bad = torch.ones(600, 6)
    bad[550, 2] = torch.nan
    with pytest.raises(ValueError, match="row 550 has a value"):
        vectors.predict(bad)


def test_own_net_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"cannot be rebuilt.*torch\.save.*pickle"):
        save(replace(trained("ce", "vector"), net="Sequential"), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_what_it_says_is_refused(tmp_path: Path) -> None:
    model = trained("ce", "vector")
    with pytest.raises(ModelFolderError, match="does not fit"):
        save(replace(model, net="linear"), tmp_path / "model")

    class Sharper(Classifier):
        """Has the same tensors and does something else."""

        def forward(self, x: Tensor) -> Tensor:
            return 9 * super().forward(x)

    sharper = Sharper(model.classifier.backbone, len(CLASSES))
    with pytest.raises(ModelFolderError, match=r"a Sharper cannot be rebuilt.*deployed"):
        save(replace(model, classifier=sharper), tmp_path / "model")
    hooked = copy.deepcopy(model.classifier)
    hooked.register_forward_hook(lambda _module, _rows, logits: 9 * logits)
    with pytest.raises(ModelFolderError, match="cannot be rebuilt: its probabilities differ"):
        save(replace(model, classifier=hooked), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_files_of_the_caller(tmp_path: Path) -> None:
    model = replace(trained("ce", "vector"), input={"kind": "table", "file": "table.json"})
    with pytest.raises(FileNotFoundError, match=r"no table\.json"):
        save(model, tmp_path / "model")
    files = {"table.json": lambda path: path.write_text("columns")}
    save(model, tmp_path / "model", "# My card", files)
    assert (tmp_path / "model" / load(tmp_path / "model").input["file"]).read_text() == "columns"
    assert (tmp_path / "model" / "README.md").read_text() == "# My card"
    with pytest.raises(ModelFolderError, match="plain name"):
        save(model, tmp_path / "other", files={"../x": lambda path: path.touch()})


def test_an_older_folder_stays(folder: Path) -> None:
    before = (folder / "model.safetensors").stat()
    with pytest.raises(FileExistsError, match="give another folder"):
        save(trained("colafier", "vector"), folder)
    assert (folder / "model.safetensors").stat() == before


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_an_error_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise error

    with pytest.raises(type(error)):
        save(trained("ce", "vector"), tmp_path / "model", files={"more": fail})
    assert not list(tmp_path.iterdir())


def test_a_killed_save_is_no_model(tmp_path: Path, folder: Path) -> None:
    target = tmp_path / "killed" / "model"
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from colafier.workflows import model_store\n"
        "model = model_store.load(Path(sys.argv[1]))\n"
        "kill = lambda path: os.kill(os.getpid(), signal.SIGKILL)\n"
        "model_store.save(model, Path(sys.argv[2]), files={'more': kill})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder), str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in target.parent.iterdir()] == [PARTIAL]
    save(load(folder), target)  # clears what was left
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    assert not (target / "more").exists()


def test_read_only_places(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o555)
    load(folder)
    folder.chmod(0o755)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)  # chmod does not stop root
    with pytest.raises(PermissionError, match=r"give another folder|Permission denied"):
        save(trained("ce", "vector"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no model folder"):
        load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"not the folder of a model.*config\.json"):
        load(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors"):
        load(folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"hyper": {', "[" * 100_000, "\xff"])
def test_a_damaged_config_is_named(folder: Path, content: str) -> None:
    (folder / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ModelFolderError, match=r"config\.json.*(not JSON|format|deep|UTF)"):
        load(folder)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"format": 9, "colafier": "9.0"}, r"by colafier 9\.0 in format 9.*reads format 2"),
        ({"format": True}, "no format"),
        ({"method": ["ce"]}, "method must be text"),
        ({"architecture": "os.system"}, "no architecture 'os.system'; there are classifier"),
        ({"architecture": "lid_dis"}, "does not fit"),
        ({"architecture": "ensemble"}, "does not fit"),
        ({"architecture": "ensemble", "members": 2}, "only .* are stored"),
        ({"members": 0}, "members must be .*1 to 100"),
        ({"members": 10**9}, "members must be .*1 to 100"),
        ({"hyper": []}, "hyper must be"),
        ({"net": "os.system"}, "the net 'os.system' is none of"),
        ({"net": "resnet8"}, "resnet8 needs images"),
        ({"net": "linear"}, "does not fit"),
        ({"dtype": "fp16"}, "auto, float32, bf16"),
        ({"epochs": 2.5}, "epochs must be a whole number"),
        ({"row_shape": [5]}, "rows of shape"),
        ({"row_shape": [6, 6]}, "row_shape must be"),
        ({"row_shape": ["6"]}, "row_shape must be"),
        ({"row_shape": [-6]}, "row_shape must be"),
        ({"row_shape": [6, 10**9, 10**9]}, "row_shape must be"),
        ({"row_shape": [6, 1600, 1600]}, "only .* are stored"),  # 16 GB, if they were made
        ({"classes": ["cat", "dog"]}, "head.*does not fit|does not fit.*head"),
        ({"classes": ["cat", "cat", "dog"]}, "different names"),
        ({"classes": "cat"}, "classes must be"),
        ({"classes": [1, 2, 3]}, "classes must be"),
        ({"about": 3}, "about must be"),
        ({"input": {}}, "input.kind is missing"),
        ({"input": {"kind": 3}}, "input.kind must be one of image"),
        ({"surprise": 1}, "no entry 'surprise'"),
    ],
)
def test_a_tampered_config_is_refused(folder: Path, values: dict[str, Any], says: str) -> None:
    edit(folder, **values)
    with pytest.raises(ModelFolderError, match=says):
        load(folder)


def test_a_model_needs_no_method_to_be_read(folder: Path) -> None:
    """Method and hyper-parameters say where it comes from: another version may not have them."""
    edit(folder, method="../of_the_future", hyper={"patience": 1})
    again = load(folder)
    assert (again.method, again.hyper) == ("../of_the_future", {"patience": 1})
    x = some_rows("vector")
    assert torch.equal(again.predict(x), trained("ce", "vector").predict(x))


@pytest.mark.parametrize(
    "name",
    [
        "../secret", "/etc/passwd", "..", ".", "", "a/b", "..\\secret", "C:\\x", "C:x", "a\0b",
        "config.json", "Model.safetensors", 7, ["x"], None,
    ],
)  # fmt: skip
def test_input_file_stays_in_the_folder(folder: Path, name: Any) -> None:
    (folder.parent / "secret").touch()
    edit(folder, input={"kind": "table", "file": name})
    with pytest.raises(ModelFolderError, match=r"needs a plain name|must be text"):
        load(folder)


def test_entries_must_be_there(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["classes"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFolderError, match="classes is missing"):
        load(folder)


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.marker),)


def test_a_pickle_is_not_run(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    for write in (
        lambda path: path.write_bytes(pickle.dumps(Hostile(marker))),
        lambda path: torch.save(Hostile(marker), path),
    ):
        write(folder / "model.safetensors")
        with pytest.raises(ModelFolderError, match="not of the safetensors format"):
            load(folder)
        assert not marker.exists()
    pickle.loads(pickle.dumps(Hostile(marker)))
    assert marker.exists()  # so it was a real trap


def test_half_a_file_is_named(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    for part in (b"", content[:5], content[: len(content) // 2]):
        (folder / "model.safetensors").write_bytes(part)
        with pytest.raises(ModelFolderError, match="damaged"):
            load(folder)


HEAD = "classifier.head.weight"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t[HEAD].fill_(torch.nan), "head.weight has values that are not finite"),
        (lambda t: t[HEAD].fill_(torch.inf), "head.weight has values that are not finite"),
        (lambda t: t.pop(HEAD), "head.weight is missing, but"),
        (lambda t: t.update({HEAD: t[HEAD][:2]}), r"torch.float32 \(2, 256\), but"),
        (lambda t: t.update({HEAD: t[HEAD].half()}), r"torch.float16 \(3, 256\), but"),
        (lambda t: t.update({"rows": torch.ones(N)}), "rows is .*, but must be missing"),
        (lambda t: t.pop("normalize.mean"), "do not fit rows"),
        (lambda t: t["normalize.std"].zero_(), "above 0"),
        (lambda t: t["normalize.mean"].fill_(torch.nan), "must be finite"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[dict[str, Tensor]], object], says: str
) -> None:
    edit_tensors(folder, change)
    with pytest.raises(ModelFolderError, match=says):
        load(folder)


def test_a_broken_model_is_not_saved(tmp_path: Path) -> None:
    model = trained("ce", "vector")
    normalize = replace(model.normalize, mean=model.normalize.mean * torch.nan)
    with pytest.raises(ModelFolderError, match="finite"):
        save(replace(model, normalize=normalize), tmp_path / "model")
    assert not list(tmp_path.iterdir())


NASTY = ("<script>alert(1)</script>", "a|b\n# x", '": "', "\u2028é", "\ud800")


def test_card(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    model = trained("ce", "vector")
    classes = (*NASTY[:2], "plain")
    for names in (classes, (*NASTY[2:],)):
        model = replace(model, classes=names)
        save(model, tmp_path / str(len(list(tmp_path.iterdir()))))
        head, _, body = card(model).removeprefix("---\n").partition("\n---\n")
        assert yaml.safe_load(head)["classes"] == list(names)
        assert "license" not in yaml.safe_load(head)
        assert "<script>" not in body
        assert "\n# x" not in body
    about = {"noise_rate": {"value": 0.1234567891, "means": "estimated share of wrong labels"}}
    text = card(replace(model, about=about, classes=CLASSES))
    assert r"| noise\_rate | 0\.123457 | estimated share of wrong labels |" in text
    assert "cat, dog, ocelot." in text
    assert card(model) == (tmp_path / "1" / "README.md").read_text(encoding="utf-8")


def test_card_of_many_classes() -> None:
    names = tuple(f"c{i}" for i in range(300))
    text = card(replace(trained("ce", "vector"), classes=names))
    assert "c49 and 250 more." in text


def onnx_or_skip() -> None:
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing and "onnx" not in os.environ.get("COLAFIER_REQUIRE", "").split(","):
        pytest.skip(f"there is no {missing[0]}: pip install 'colafier[onnx]'")


@pytest.mark.parametrize(
    ("method", "kind", "net"),
    [
        ("colafier", "vector", "mlp"),
        ("colafier", "image", "resnet8"),
        ("lid_dis", "vector", "mlp"),
    ],
)
def test_onnx_says_the_same(tmp_path: Path, method: str, kind: str, net: str) -> None:
    onnx_or_skip()
    import onnxruntime

    model = trained(method, kind, net)
    path = tmp_path / "model.onnx"
    x = some_rows(kind, 41)
    said = export_onnx(model, path, x)
    assert said["opset"] == 18
    assert said["dtype"] == ("float32" if kind == "vector" else "uint8")
    assert said["rows_checked"] == 41
    assert said["max_difference"] < 1e-4
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]  # no weights beside it
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", *SHAPES[kind]]
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(CLASSES)
    for n in (1, 7, 41):
        found = session.run(["probabilities"], {"rows": x[:n].numpy()})[0]
        np.testing.assert_allclose(found, model.predict(x[:n]), atol=1e-4)


def test_onnx_that_differs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_or_skip()
    monkeypatch.setattr("colafier.workflows.model_store.onnx_export.MOST_APART", 0.0)
    model = trained("ce", "vector", "linear")
    with pytest.raises(RuntimeError, match="was not kept"):
        export_onnx(model, tmp_path / "model.onnx", some_rows("vector", 5))
    assert not list(tmp_path.iterdir())


def test_onnx_needs_rows_and_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"colafier\[onnx\]"):
        export_onnx(trained("ce", "vector"), tmp_path / "a.onnx", some_rows("vector", 5))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    for rows in (torch.empty(0, 6), torch.ones(3, 5)):
        with pytest.raises(ValueError, match="rows to check"):
            export_onnx(trained("ce", "vector"), tmp_path / "a.onnx", rows)
    assert not list(tmp_path.iterdir())
