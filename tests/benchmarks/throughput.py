"""Training speed against Transformers' Trainer, at the shapes and on the text of tests/benchmarks/shapes.py, by the contenders of
contenders.py. By hand, on one core that nothing else uses (their side needs `pip install accelerate`):

    taskset -c 0 python -m tests.benchmarks.throughput [--shape mini-128-30522 ...] [--rounds 5] [--lap 3] [--json FILE] [--bare]

Each contender is a process of its own and trains a lap of at least `--lap` seconds and two steps while the others wait, in turn A B C A B C
(what comes first is rotated). A ratio is taken within a round, and the median over the rounds is reported: what slows the machine down for
a while slows both sides. Speeds are tokens, padding left out, per second of CPU time, so that other work on the machine weighs as little as
it can; wall time is in the JSON. "At its best" is bf16 and dropout 0 with the faster of its two attentions at that shape.

The share of the ceiling is model FLOPs (closed form, `stages=[plan]`) against the best of many 1024 x 1024 products in the same process
affinity, measured anew before each round. Memory is the peak resident size of the process, its imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch

from mlm_lab.training.ceiling import matmul_flops_per_second
from tests.benchmarks.shapes import BY_NAME, SHAPES, Shape, make_config

BEST, DEFAULTS = ("trainer_sdpa", "trainer_eager"), "trainer_defaults"
PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed"}


class Contender:
    """A process that waits, and trains a lap when it is asked to."""

    def __init__(self, name: str, shape: Shape, cache_dir: Path, warm_within: float | None = None):
        """warm_within: seconds after which it is given up."""
        self.name, self.laps, self.facts = name, [], {}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        words = [sys.executable, "-m", "tests.benchmarks.contenders", name, shape.name, str(cache_dir)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        self._process = subprocess.Popen(words, text=True, env=environment, **pipes)
        self._alarm = threading.Timer(warm_within, self._process.kill) if warm_within is not None else None

    def __enter__(self) -> Self:
        if self._alarm is not None:
            self._alarm.start()
        self._hear()  # warm
        if self._alarm is not None:
            self._alarm.cancel()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def lap(self, seconds: float) -> None:
        self._say(f"lap {seconds}")
        self.laps.append(self._hear())

    def stop(self) -> None:
        self._say("stop")
        self.facts = self._hear()

    def speed(self, clock: str = "cpu") -> list[float]:
        """Tokens a second of each lap."""
        return [lap["tokens"] / lap[clock] for lap in self.laps]

    def _say(self, command: str) -> None:
        print(command, file=self._process.stdin, flush=True)

    def _hear(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"{self.name} ended:\n{self._log.read()[-3000:]}")
        return json.loads(line)


def compare(shape: Shape, names: list[str], rounds: int, lap: float, cache_dir: Path) -> dict[str, Any]:
    """The record of one shape."""
    contenders, ceilings = [], {name: [] for name in PRECISIONS}
    try:
        for name in names:  # one at a time: each warms up alone
            contenders.append(Contender(name, shape, cache_dir).__enter__())
        for number in range(rounds):
            for name, precision in PRECISIONS.items():
                ceilings[name].append(matmul_flops_per_second.__wrapped__(torch.device("cpu"), precision))
            for place in range(len(contenders)):
                contenders[(number + place) % len(contenders)].lap(lap)
        for contender in contenders:
            contender.stop()
    finally:
        for contender in contenders:
            contender.__exit__()
    return record(shape, {contender.name: contender for contender in contenders}, ceilings)


def record(shape: Shape, contenders: dict[str, Contender], ceilings: dict[str, list[float]]) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": shape.name, "targets": {"best": shape.best, "defaults": shape.defaults}}
    found["ceiling_gflops"] = {name: round(statistics.median(values) / 1e9, 1) for name, values in ceilings.items()}
    flops = contenders["ours"].facts["flops_per_token"]
    for name, contender in contenders.items():
        own = {f"tokens_per_second_{clock}": round(statistics.median(contender.speed(clock))) for clock in ("cpu", "wall")}
        peak = statistics.median(ceilings["float32" if name == DEFAULTS else "bfloat16"])
        own["ceiling_share"] = round(own["tokens_per_second_cpu"] * flops / peak, 3)
        own["peak_megabytes"] = round(contender.facts["peak_bytes"] / 1e6)
        found[name] = {**own, "parameters": contender.facts["parameters"], "laps": [round(value) for value in contender.speed()]}
    found["fill"] = round(contenders["ours"].facts["fill"], 4)
    found["ratios"] = {}
    if all(name in contenders for name in BEST):
        best = max(BEST, key=lambda name: statistics.median(contenders[name].speed()))
        found["ratios"] = {"best": ratio(contenders["ours"], contenders[best]), "best_is": best}
    for name in (*BEST, DEFAULTS, "trainer_grouped", "bare"):
        if name in contenders:
            found["ratios"][name.removeprefix("trainer_")] = ratio(contenders["ours"], contenders[name])
    return found


def ratio(ours: Contender, theirs: Contender) -> float:
    """Median over the rounds."""
    return round(statistics.median(a / b for a, b in zip(ours.speed(), theirs.speed(), strict=True)), 2)


def table(records: list[dict[str, Any]]) -> str:
    """For the README. Ratios are to SDPA and to written-out attention ("eager"); the faster of them is its best."""
    lines = [
        "| model, length, vocabulary | tokens/s | of the bf16 ceiling | Trainer, bf16, dropout 0: SDPA; eager | its defaults | asked for "
        "| peak memory, GB: ours; SDPA; defaults |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in records:
        ours, ratios, shape = found["ours"], found["ratios"], BY_NAME[found["shape"]]
        name = f"{shape.model}, {shape.length}, {shape.vocabulary}" + ", documents" * shape.documents
        memory = "; ".join(f"{found[part]['peak_megabytes'] / 1e3:.2f}" for part in ("ours", "trainer_sdpa", DEFAULTS))
        lines.append(
            f"| {name} | {ours['tokens_per_second_cpu']:,} | {ours['ceiling_share']:.0%} | {ratios['sdpa']:.2f}x; {ratios['eager']:.2f}x "
            f"| {ratios['defaults']:.2f}x | {shape.best:g}x, {shape.defaults:g}x | {memory} |"
        )
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    names = ("torch", "lightning", "transformers", "accelerate", "numpy")
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
    versions = {name: version(name) for name in names}
    return {"date": date.today().isoformat(), "cpu": model, "cores": len(os.sched_getaffinity(0)), "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--shape", nargs="+", choices=BY_NAME, default=[shape.name for shape in SHAPES], metavar="SHAPE", help=", ".join(BY_NAME)
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lap", type=float, default=3.0, help="seconds")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bare", action="store_true", help="a loop without Lightning too")
    parser.add_argument("--ours-only", action="store_true", help="without Transformers")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mlm_lab_benchmarks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = ["ours", *["bare"] * options.bare, *([] if options.ours_only else [*BEST, DEFAULTS])]
    records = []
    for name in options.shape:
        prepare_once(BY_NAME[name], options.cache)
        more = ["trainer_grouped"] * (BY_NAME[name].documents and not options.ours_only)
        records.append(compare(BY_NAME[name], names + more, options.rounds, options.lap, options.cache))
        print(json.dumps(records[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps({**machine(), "rounds": options.rounds, "shapes": records}, indent=1) + "\n")
    if not options.ours_only:
        print(f"\n{json.dumps(machine())}\n\n{table(records)}")


def prepare_once(shape: Shape, cache_dir: Path) -> None:
    """Tokenizer and token store, so that no contender makes them."""
    from mlm_lab.stages.prepare import prepare

    prepare(make_config(shape, cache_dir))


if __name__ == "__main__":
    main()
