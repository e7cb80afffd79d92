"""The example that trains CoLafier without the trainer."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_loop.py"


def test_labels_get_better() -> None:
    command = [sys.executable, str(EXAMPLE), "--epochs", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = (float(word.rstrip("%")) for word in done.stdout.split() if "%" in word)
    assert before < 65
    assert after > before + 10


def test_it_uses_the_core_and_the_nets_only() -> None:
    imports = [
        line for line in EXAMPLE.read_text().splitlines() if line.startswith("from colafier")
    ]
    assert imports
    assert all(line.startswith(("from colafier.core", "from colafier.nets")) for line in imports)
