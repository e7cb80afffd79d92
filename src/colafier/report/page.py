"""The report: one page that explains a run and takes decisions, without network or server."""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from colafier._io import atomic_file
from colafier.report import page_data, run_files
from colafier.report.run_files import RunFiles

NAME = "report.html"
SCRIPTS = ("base", "store", "list", "panel", "planner", "figures", "main")


def write(out: Path, summary: dict[str, Any] | None = None) -> Path:
    """Build the report of a run from the files in its folder.

    Args:
        out: The folder.
        summary: That of a run whose summary.json is not written yet; by default the file is read.
    """
    path = out / NAME
    text = page(run_files.read(out, summary))
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def page(run: RunFiles) -> str:
    """The whole page; everything that comes from outside is in it as JSON, and shown as text."""
    script = '"use strict";\n(() => {\n' + "\n".join(_part(f"{n}.js") for n in SCRIPTS) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # nothing is fetched, and no other script runs
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(f"{run.title}: colafier report"),
        "STYLE": _part("style.css"),
        "SCRIPT": script,
        "DATA": in_page(page_data.content(run)),
    }
    # all at once, because the data may contain text that looks like a placeholder
    return re.sub("@([A-Z]+)@", lambda place: parts[place[1]], _part("page.html"))


def in_page(value: Any) -> str:
    """JSON that is safe inside a script element, whatever characters it holds."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return (files("colafier.report") / "templates" / name).read_text(encoding="utf-8")
