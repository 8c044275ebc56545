"""How long a report of many runs takes, as its user waits for it: the whole command, in a process of its own. By hand:

    python -m tests.benchmarks.report [--runs 500] [--rounds 3]

Made-up run folders (tests/report/synthetic.py): ten ratios and as many seeds as make up the runs, a fine-tuned task, ten validations each.
The first round gathers all folders; the later ones merge them into what results.csv already holds; --verify makes every number again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.report import synthetic

RATIOS = tuple(round(0.08 * step, 2) for step in range(1, 11))
ROOT = Path(__file__).parents[2]


def seconds(root: Path, *words: str) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "mlm_lab.report", "ratios", *words]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL, env={"PYTHONPATH": str(ROOT), "PATH": ""})
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seeds = range(10, 10 + options.runs // len(RATIOS))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        sweep = synthetic.SWEEP.replace("[0.15, 0.4, 0.8]", str(list(RATIOS))).replace("[10, 11, 12]", str(list(seeds)))
        sweep = sweep.replace("baseline: 0.15, contrast: 0.4", f"baseline: {RATIOS[0]}, contrast: {RATIOS[4]}")
        folders = synthetic.write_study(root, RATIOS, seeds)
        synthetic.write_sweep(root, sweep)
        for number in range(options.rounds):
            print(f"report of {len(folders)} runs, round {number + 1}: {seconds(root):.1f} s", flush=True)
        print(f"--verify: {seconds(root, '--verify'):.1f} s")


if __name__ == "__main__":
    main()
