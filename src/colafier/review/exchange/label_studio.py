"""Label Studio: export tasks with predictions and scores, import annotations.

The export is a JSON file of tasks, and beside it the labeling interface as XML. The import reads
the format that Label Studio calls JSON.
"""

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from colafier import __version__
from colafier._io import atomic_file
from colafier.readers import json_files
from colafier.review.decisions import SAVE_AGAIN, format_time, parse_time
from colafier.review.exchange.answers import Answer, Answers, KnownRows, OutgoingRows

LABEL, EXCLUDE, ITEM = "label", "exclude", "item"  # names of the controls and of the shown object
LOCAL = "/data/local-files/?d="  # how Label Studio refers to files on its own machine
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
SHOWN = ("name", "original_label", "suggested_label", "action", "reason")


def write(outgoing: OutgoingRows, path: Path, prefix: str | None = None) -> list[Path]:
    """Write the tasks, and the labeling interface beside them; returns both paths.

    Args:
        outgoing: The rows.
        path: File for the tasks.
        prefix: Put before the path of each image; by default that of Label Studio's local files,
            whose root must then be the parent folder of the source.
    """
    interface = path.with_suffix(".xml")
    xml = _interface(outgoing)
    shows = _texts(outgoing) if outgoing.kind == "text" else _urls(outgoing, prefix)
    tasks = [_task(outgoing, row, shows[row]) for row in outgoing.rows]
    with atomic_file(interface) as partial:
        partial.write_text(xml, encoding="utf-8")
    # last, because the command is refused once this file is there
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(tasks, indent=1) + "\n", encoding="utf-8")
    return [path, interface]


def read(path: Path, known: KnownRows) -> Answers:
    """The annotations of an export, without tasks that were skipped or that people disagree on."""
    tasks = json_files.read(path, Any, SAVE_AGAIN)
    if not isinstance(tasks, list):
        raise ValueError(f"{path} is not a list of tasks; export from Label Studio as JSON")
    answers = Answers()
    disputed = unanswered = 0
    for number, task in enumerate(tasks, 1):
        where = f"{path}, task {number}"
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict) or not isinstance(task.get("annotations"), list):
            raise ValueError(f"{where} has no data or annotations; export as JSON, not JSON-MIN")
        known.check(data.get("fingerprint"), where)
        row = known.row(data.get("row"), where)
        found = [_answer(one, row, known, where) for one in task["annotations"]]
        answered = [one for one in found if one is not None]
        if len({one.label for one in answered}) > 1:
            disputed += 1
        elif answered:
            answers.found.append(max(answered, key=lambda one: parse_time(one.at)))
        else:
            unanswered += 1
    answers.note(disputed, "skipped: their annotations differ")
    answers.note(unanswered, "without an annotation")
    return answers


def _task(outgoing: OutgoingRows, row: int, shown: str) -> dict[str, Any]:
    data: dict[str, Any] = {
        outgoing.kind: shown,
        "row": row,
        "fingerprint": outgoing.fingerprint,
        "label_quality": outgoing.number(row, "label_quality"),
        **{name: outgoing.cell(row, name) for name in SHOWN},
    }
    suggested = outgoing.cell(row, "suggested_label")
    if not suggested:
        return {"data": data}
    confidence = outgoing.number(row, "confidence")
    result = {
        "id": f"row-{row}",
        "from_name": LABEL,
        "to_name": ITEM,
        "type": "choices",
        "value": {"choices": [suggested]},
        "score": confidence,
    }
    version = f"colafier {__version__}"
    prediction = {"model_version": version, "score": confidence, "result": [result]}
    return {"data": data, "predictions": [prediction]}


def _texts(outgoing: OutgoingRows) -> dict[int, str]:
    return {row: str(outgoing.items[row]) for row in outgoing.rows}


def _urls(outgoing: OutgoingRows, prefix: str | None) -> dict[int, str]:
    folder = outgoing.source if outgoing.source.is_dir() else outgoing.source.parent
    found = {}
    for row, item in outgoing.image_paths():
        place = os.path.relpath(item, folder.parent if prefix is None else folder)
        if place.startswith(".."):
            raise ValueError(
                f"{item} is outside {folder}: copy the images into one folder, or export them as "
                "imagefolder first"
            )
        found[row] = (LOCAL if prefix is None else prefix) + quote(Path(place).as_posix())
    return found


def _interface(outgoing: OutgoingRows) -> str:
    """One choice among the classes, and a box to check for rows of no class."""
    for name in outgoing.classes:
        if NOT_XML.search(name):
            raise ValueError(f"class {name!r} has a character that is not allowed in XML")
    choices = "".join(f"    <Choice value={_attribute(name)}/>\n" for name in outgoing.classes)
    tag = "Text" if outgoing.kind == "text" else "Image"
    return (
        f'<View>\n  <{tag} name="{ITEM}" value="${outgoing.kind}"/>\n'
        f'  <Choices name="{LABEL}" toName="{ITEM}" choice="single" showInline="true">\n'
        f"{choices}  </Choices>\n"
        f'  <Choices name="{EXCLUDE}" toName="{ITEM}" choice="multiple">\n'
        f'    <Choice value="belongs to none of these: exclude"/>\n  </Choices>\n</View>\n'
    )


def _attribute(text: str) -> str:
    return quoteattr(text, {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _answer(annotation: Any, row: int, known: KnownRows, where: str) -> Answer | None:
    """The answer of one person; None if they skipped the task or chose nothing."""
    if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
        raise ValueError(f"{where}: an annotation has no result")
    if annotation.get("was_cancelled"):
        return None
    chosen: dict[str, list[Any]] = {}
    for part in annotation["result"]:
        value = part.get("value") if isinstance(part, dict) else None
        if isinstance(value, dict) and isinstance(value.get("choices"), list):
            chosen[str(part.get("from_name"))] = value["choices"]
    at = annotation.get("updated_at") or annotation.get("created_at")
    if not isinstance(at, str):
        raise ValueError(f"{where}: an annotation has no time (updated_at)")
    try:
        when = format_time(parse_time(at))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if chosen.get(EXCLUDE):
        return Answer(row, None, when)
    labels = chosen.get(LABEL, [])
    if len(labels) > 1:
        raise ValueError(f"{where}: needs one label, not {len(labels)}")
    return Answer(row, known.label(labels[0], where), when) if labels else None
