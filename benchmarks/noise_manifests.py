"""Write the hashes of the noisy labels of all suites, which `colafier bench run` checks.

    python benchmarks/noise_manifests.py --data FOLDER

FOLDER holds cifar-10-batches-py and CIFAR-10_human.pt. This is needed only for a new suite, noise
or seed.
"""

import argparse
import json

from colafier.bench.execute import images_and_rows
from colafier.bench.manifests import FILE, label_name
from colafier.bench.suite import load_suite, suite_names
from colafier.benchmark_data import noise


def main() -> None:
    """All suites, one line for each set of labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of CIFAR-10 and CIFAR-10N")
    args = parser.parse_args()
    found = {}
    for suite in map(load_suite, suite_names()):
        seeds = (*suite.seeds, *suite.optional_seeds)
        for run in suite.runs("" if suite.name == "fm-mini" else args.data, seeds=seeds):
            name = label_name(run.settings, run.noise)
            if name not in found:
                images, _ = images_and_rows(run.settings)
                _, manifest = noise.inject(run.settings.noise, images, run.settings.seed)
                found[name] = {
                    "requested_rate": manifest.requested_rate,
                    "true_rate": round(manifest.true_rate, 6),
                    "seed": manifest.seed,
                    "sha256": manifest.sha256,
                }
    lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
