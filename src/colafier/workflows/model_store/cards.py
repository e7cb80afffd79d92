"""The model card: a README.md that describes a stored model to people and to model hubs."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

TASKS = {
    "image": "image-classification",
    "text": "text-classification",
    "table": "tabular-classification",
    "vector": "tabular-classification",
}
MOST_NAMES = 50  # classes that the text lists; the YAML header lists all


def render(config: Mapping[str, Any]) -> str:
    """The card in Markdown, with the YAML header that model hubs read.

    Args:
        config: The content of the model's config.json.
    """
    parts = [_head(config), *_body(config)]
    return "\n\n".join(parts) + "\n"


def _head(config: Mapping[str, Any]) -> str:
    lines = ["---", "library_name: colafier"]
    if task := TASKS.get(config["input"]["kind"]):
        lines.append(f"pipeline_tag: {task}")
    lines += ["tags:", "- noisy-labels", "- label-errors", f"- {_quoted(config['method'])}"]
    lines += ["# license: add yours here; the license of the training data may restrict it"]
    lines += [f"method: {_quoted(config['method'])}", "classes:"]
    lines += [f"- {_quoted(name)}" for name in config["classes"]]
    return "\n".join([*lines, "---"])


def _body(config: Mapping[str, Any]) -> list[str]:
    classes, shape = config["classes"], " x ".join(map(str, config["row_shape"]))
    names = ", ".join(_escaped(name) for name in classes[:MOST_NAMES])
    more = len(classes) - MOST_NAMES
    values = "bytes" if len(config["row_shape"]) == 3 else "numbers"
    parts = [
        f"# A classifier of {len(classes)} classes, trained on noisy labels",
        f"Method `{config['method']}` with net `{config['net']}`, {config['epochs']} epochs, "
        f"made by colafier {_escaped(config['colafier'])}. It holds only weights, and no row of "
        "the training set.",
        f"Classes: {names}" + (f" and {more} more." if more > 0 else "."),
        f"## Use\n\nRows are {shape} {values}. `input` in `config.json` describes how items become "
        "rows:",
        _table(("input", "value"), [(key, _shown(v)) for key, v in config["input"].items()]),
        "```python\nfrom pathlib import Path\n\nfrom colafier.workflows import model_store\n\n"
        'model = model_store.load(Path("FOLDER"))  # never unpickles\n'
        "probabilities = model.predict(rows)  # (n, classes), in the order of model.classes\n```",
    ]
    if config["about"]:
        rows = [(key, *_figure(value)) for key, value in config["about"].items()]
        parts += ["## Training", _table(("figure", "value", "what it means"), rows)]
    return parts


def _figure(value: Any) -> tuple[str, str]:
    """Value and meaning of an entry of `about`, which is `{"value": ..., "means": ...}` or bare."""
    if isinstance(value, dict) and set(value) == {"value", "means"}:
        return _shown(value["value"]), str(value["means"])
    return _shown(value), ""


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _escaped(text: str) -> str:
    """Text escaped for Markdown and HTML, on one line."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return re.sub(r"([\\`*_{}\[\]()#+!|~:@.-])", r"\\\1", html.escape(shown, quote=False))


def _quoted(text: str) -> str:
    """A quoted YAML string: as in JSON, with Unicode line breaks escaped as well."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
