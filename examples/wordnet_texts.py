"""Texts with wrong labels: definitions of WordNet's nouns, and the kind of thing they define.

Each definition has a class from the authors of the dictionary: animal, food, feeling, ...
One label in five is replaced by another one, and `colafier purify` has to find these labels.

    apt-get install wordnet-base        # Debian and Ubuntu; or give --data FOLDER
    python examples/wordnet_texts.py --out runs/wordnet
"""

import argparse
import csv
import json
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from sklearn.metrics import average_precision_score, f1_score

DATA = Path("/usr/share/wordnet")  # where Debian's package installs it
KINDS = {  # lexicographer files of nouns, numbered as in lexnames(5WN)
    "04": "act", "05": "animal", "06": "artifact", "07": "attribute", "08": "body",
    "09": "cognition", "10": "communication", "11": "event", "12": "feeling", "13": "food",
    "14": "group", "15": "location", "17": "object", "18": "person", "20": "plant",
    "21": "possession", "22": "process", "26": "state", "27": "substance", "28": "time",
}  # fmt: skip


def definitions(path: Path, each: int, seed: int) -> list[tuple[str, str]]:
    """Texts and their kinds: up to `each` nouns of every kind, in random order."""
    by_kind = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" ") and (kind := KINDS.get(line.split()[1])):  # after the license
            by_kind[kind].append(line.split(" | ", 1)[1].split('; "')[0].strip())
    draw = random.Random(seed)
    rows = [
        (text, kind)
        for kind, texts in sorted(by_kind.items())
        for text in draw.sample(texts, min(each, len(texts)))
    ]
    draw.shuffle(rows)
    return rows


def main() -> None:
    """Write a CSV with noisy labels, purify it, and compare the result with the truth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with data.noun")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=500, help="maximum number of rows per class")
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rows = definitions(args.data / "data.noun", args.each, args.seed)
    draw = random.Random(args.seed)
    kinds = sorted({kind for _, kind in rows})
    observed = [
        draw.choice([k for k in kinds if k != kind]) if draw.random() < args.noise else kind
        for _, kind in rows
    ]
    args.out.mkdir(parents=True)
    source = args.out / "definitions.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["definition", "kind"])
        lines.writerows((text, label) for (text, _), label in zip(rows, observed, strict=True))

    found = args.out / "purified"
    words = ["purify", str(source), "--text", "definition", "--label", "kind", "-o", str(found)]
    subprocess.run([sys.executable, "-m", "colafier", *words], check=True)

    with (found / "labels.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    truth = [kind for _, kind in rows]
    wrong = [g != t for g, t in zip(observed, truth, strict=True)]
    labels = [line["label"] for line in table]
    doubt = [-float(line["label_quality"]) for line in table]
    flagged = [line["is_label_issue"] == "True" for line in table]
    changed = [(a, g, t) for a, g, t in zip(labels, observed, truth, strict=True) if a != g]
    figures = {
        "rows": len(rows),
        "classes": len(kinds),
        "true_rate": sum(wrong) / len(rows),
        "estimated_rate": json.loads((found / "summary.json").read_text())["estimated_noise_rate"],
        "average_precision": average_precision_score(wrong, doubt),
        "f1": f1_score(wrong, flagged),
        "labels_right_before": sum(g == t for g, t in zip(observed, truth, strict=True))
        / len(rows),
        "labels_right_after": sum(a == t for a, t in zip(labels, truth, strict=True)) / len(rows),
        "fixed": sum(a == t for a, _, t in changed),
        "broken": sum(g == t for _, g, t in changed),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
