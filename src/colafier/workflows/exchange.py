"""Rows of a run out to another tool, and what was said there back as decisions."""

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
    """Write rows for another tool; gives how many, and the files.

    Args:
        form: One of `FORMS`.
        run: Folder of the run.
        path: Where to.
        everything: Also rows whose label is to be kept.
        limit: At most so many, the most doubtful ones.
        prefix: For Label Studio: what comes before the path of an image.
        overwrite: Replace a file that is there.
    """
    _check_form(form)
    if prefix is not None and form != "label-studio":
        raise ValueError(f"--prefix is for label-studio; {form} does not use addresses")
    if path.exists() and not (overwrite and path.is_file()):
        raise FileExistsError(f"{path} exists; give another place, or --overwrite for a file")
    opened = open_run(run)
    dataset = opened.source()
    if dataset.kind not in ("image", "text") or not isinstance(dataset.items, list):
        raise ValueError(
            f"rows of kind {dataset.kind} from a {dataset.layout} source do not go out: "
            "other tools show image files and texts; review them in report.html"
        )
    source = dataset.source.resolve()
    if source.is_dir() and path.resolve().is_relative_to(source):
        raise ValueError(f"{path} is inside of the source, which is never changed; give another")
    rows = rows_to_review(opened.lines, everything=everything, limit=limit)
    if not rows:
        raise ValueError("no row needs a look; give --all to send all of them")
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
    """Turn what came back into a decisions.json; gives how many, and what is to be said.

    Args:
        form: One of `FORMS`.
        run: Folder of the run that the rows came from.
        path: What came back.
        out: The decisions.json to write.
        overwrite: Replace one that is there.
    """
    _check_form(form)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give what the other tool exported")
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
