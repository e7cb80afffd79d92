"""Export rows of a run to a labeling tool, and import the answers as decisions."""

from pathlib import Path

from colafier.review import decisions
from colafier.review.apply import check
from colafier.review.exchange import cvat, fiftyone, imagefolder, label_studio
from colafier.review.exchange.answers import KnownRows, OutgoingRows, as_review, rows_to_review
from colafier.workflows.apply import open_run

READERS = {
    "label-studio": label_studio.read,
    "cvat": cvat.read,
    "fiftyone": fiftyone.read,
    "imagefolder": imagefolder.read,
}
FORMS = tuple(READERS)


def send(
    form: str,
    run: Path,
    path: Path,
    *,
    everything: bool = False,
    limit: int | None = None,
    prefix: str | None = None,
    overwrite: bool = False,
) -> tuple[int, list[Path]]:
    """Write rows for a labeling tool; returns how many, and the files.

    Args:
        form: One of `FORMS`.
        run: Folder of the run.
        path: File or folder to write.
        everything: Include rows whose label is to be kept.
        limit: At most this many rows, the most doubtful ones.
        prefix: For Label Studio: the start of image addresses, before the path of the image.
        overwrite: Replace an existing file.
    """
    _check_form(form)
    if prefix is not None and form != "label-studio":
        raise ValueError(f"--prefix is for label-studio only; {form} does not use addresses")
    if path.exists() and not (overwrite and path.is_file()):
        raise FileExistsError(f"{path} exists; give another place, or --overwrite for a file")
    opened = open_run(run)
    dataset = opened.source()
    if dataset.kind not in ("image", "text") or not isinstance(dataset.items, list):
        raise ValueError(
            f"rows of kind {dataset.kind} from a {dataset.layout} source cannot be exported: "
            "labeling tools show image files and texts; review the rows in report.html"
        )
    source = dataset.source.resolve()
    if source.is_dir() and path.resolve().is_relative_to(source):
        raise ValueError(f"{path} is inside the source, which is never changed; choose another")
    rows = rows_to_review(opened.lines, everything=everything, limit=limit)
    if not rows:
        raise ValueError("no row needs a review; give --all to export all of them")
    outgoing = OutgoingRows(
        opened.fingerprint, opened.lines, dataset.kind, dataset.source, dataset.items, rows
    )
    if form == "label-studio":
        return len(rows), label_studio.write(outgoing, path, prefix)
    write = {"cvat": cvat.write, "fiftyone": fiftyone.write, "imagefolder": imagefolder.write}
    return len(rows), write[form](outgoing, path)


def receive(
    form: str, run: Path, path: Path, out: Path, *, overwrite: bool = False
) -> tuple[int, list[str]]:
    """Turn the answers of a labeling tool into a decisions.json; returns how many, and notes.

    Args:
        form: One of `FORMS`.
        run: Folder of the run that the rows came from.
        path: File or folder that the tool exported.
        out: The decisions.json to write.
        overwrite: Replace an existing file.
    """
    _check_form(form)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the export of the labeling tool")
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out} exists; give --overwrite or another place")
    opened = open_run(run)
    known = KnownRows(opened.fingerprint, opened.lines)
    answers = READERS[form](path, known)
    review = as_review(answers.found, known)
    check(review, opened.lines, opened.fingerprint, str(path))
    decisions.save(review, out)
    return len(review.decisions), answers.notes


def _check_form(form: str) -> None:
    if form not in FORMS:
        raise ValueError(f"no format {form!r}; there are {', '.join(FORMS)}")
