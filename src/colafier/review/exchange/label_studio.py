"""Label Studio: tasks with predictions and scores, and its annotations read back.

Out goes a JSON file of tasks, and beside it the labeling interface as XML. Back comes the export
in the format that Label Studio calls JSON.
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
from colafier.review.decisions import moment, stamp, strict_json
from colafier.review.exchange.answers import (
    Answer,
    Answers,
    Known,
    Sheet,
    image_paths,
)

LABEL, EXCLUDE, ITEM = "label", "exclude", "item"  # names of the controls and of what is shown
LOCAL = "/data/local-files/?d="  # how Label Studio calls files of its own machine
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
SHOWN = ("name", "original_label", "suggested_label", "action", "reason")


def write(sheet: Sheet, path: Path, prefix: str | None = None) -> list[Path]:
    """Write tasks, and the labeling interface beside them; gives both paths.

    Args:
        sheet: What goes out.
        path: File for the tasks.
        prefix: What comes before the path of an image; by default Label Studio's local files,
            whose root is then the folder that holds the source.
    """
    interface = path.with_suffix(".xml")
    xml = _interface(sheet)
    shows = _texts(sheet) if sheet.kind == "text" else _urls(sheet, prefix)
    tasks = [_task(sheet, row, shows[row]) for row in sheet.rows]
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(tasks, indent=1) + "\n", encoding="utf-8")
    with atomic_file(interface) as partial:
        partial.write_text(xml, encoding="utf-8")
    return [path, interface]


def read(path: Path, known: Known) -> Answers:
    """The annotations of an export; skipped tasks and those that people disagree on are left."""
    tasks = strict_json(path)
    if not isinstance(tasks, list):
        raise ValueError(f"{path} is not a list of tasks; export from Label Studio as JSON")
    answers = Answers()
    apart = silent = 0
    for number, task in enumerate(tasks, 1):
        where = f"{path}, task {number}"
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict) or not isinstance(task.get("annotations"), list):
            raise ValueError(f"{where} has no data or annotations; export as JSON, not JSON-MIN")
        known.check(data.get("fingerprint"), where)
        row = known.row(data.get("row"), where)
        found = [_answer(one, row, known, where) for one in task["annotations"]]
        said = [one for one in found if one is not None]
        if len({one.label for one in said}) > 1:
            apart += 1
        elif said:
            answers.found.append(max(said, key=lambda one: moment(one.at)))
        else:
            silent += 1
    answers.note(apart, "not taken, as their annotations differ")
    answers.note(silent, "without an annotation")
    return answers


def _task(sheet: Sheet, row: int, shown: str) -> dict[str, Any]:
    data: dict[str, Any] = {
        sheet.kind: shown,
        "row": row,
        "fingerprint": sheet.fingerprint,
        "label_quality": sheet.number(row, "label_quality"),
        **{name: sheet.cell(row, name) for name in SHOWN},
    }
    suggested = sheet.cell(row, "suggested_label")
    if not suggested:
        return {"data": data}
    confidence = sheet.number(row, "confidence")
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


def _texts(sheet: Sheet) -> dict[int, str]:
    return {row: str(sheet.items[row]) for row in sheet.rows}


def _urls(sheet: Sheet, prefix: str | None) -> dict[int, str]:
    folder = sheet.source if sheet.source.is_dir() else sheet.source.parent
    found = {}
    for row, item in image_paths(sheet):
        place = os.path.relpath(item, folder.parent if prefix is None else folder)
        if place.startswith(".."):
            raise ValueError(
                f"{item} lies outside of {folder}: copy the images to one place, or send them out "
                "as imagefolder first"
            )
        found[row] = (LOCAL if prefix is None else prefix) + quote(Path(place).as_posix())
    return found


def _interface(sheet: Sheet) -> str:
    """One choice among the classes, and a box to tick for what belongs to none."""
    for name in sheet.classes:
        if NOT_XML.search(name):
            raise ValueError(f"class {name!r} has a character that Label Studio's XML cannot hold")
    choices = "".join(f"    <Choice value={_attribute(name)}/>\n" for name in sheet.classes)
    tag = "Text" if sheet.kind == "text" else "Image"
    return (
        f'<View>\n  <{tag} name="{ITEM}" value="${sheet.kind}"/>\n'
        f'  <Choices name="{LABEL}" toName="{ITEM}" choice="single" showInline="true">\n'
        f"{choices}  </Choices>\n"
        f'  <Choices name="{EXCLUDE}" toName="{ITEM}" choice="multiple">\n'
        f'    <Choice value="belongs to none of these: exclude"/>\n  </Choices>\n</View>\n'
    )


def _attribute(text: str) -> str:
    return quoteattr(text, {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _answer(annotation: Any, row: int, known: Known, where: str) -> Answer | None:
    """What one person said; None if they skipped the task or ticked nothing."""
    if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
        raise ValueError(f"{where}: an annotation has no result")
    if annotation.get("was_cancelled"):
        return None
    ticked: dict[str, list[Any]] = {}
    for part in annotation["result"]:
        value = part.get("value") if isinstance(part, dict) else None
        if isinstance(value, dict) and isinstance(value.get("choices"), list):
            ticked[str(part.get("from_name"))] = value["choices"]
    at = annotation.get("updated_at") or annotation.get("created_at")
    if not isinstance(at, str):
        raise ValueError(f"{where}: an annotation does not say when it was made (updated_at)")
    try:
        when = stamp(moment(at))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if ticked.get(EXCLUDE):
        return Answer(row, None, when)
    labels = ticked.get(LABEL, [])
    if len(labels) > 1:
        raise ValueError(f"{where}: one label is needed, not {len(labels)}")
    return Answer(row, known.label(labels[0], where), when) if labels else None
