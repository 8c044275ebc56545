"""Whether the other objectives train as fast as their FLOPs say: FLOP/s of a step of each against mlm's, in turn in one process.

    taskset -c 0 python -m tests.benchmarks.objectives [--model mini] [--length 128] [--batch 32] [--rounds 7]

Vocabulary 8192, rows of random tokens (tests.benchmarks.feed), one thread, bf16. A step is batch, forward, backward, clipping and AdamW;
CPU time, medians. 85 % of mlm's FLOP/s is asked for: what is below computes something that its FLOPs do not count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from mlm_lab.config import compose
from mlm_lab.training.allocator import keep_large_blocks
from mlm_lab.training.course import Course
from mlm_lab.training.step import accumulate_gradients, clip_gradient
from tests.benchmarks.feed import FIXED, make_store
from tests.training.test_costs import OBJECTIVES

TARGET = 0.85
WARM_UP = 2


def make_step(objective: str, model: str, length: int, batch_size: int) -> tuple[Course, Callable[[int], None]]:
    config = compose([*FIXED, f"objective={objective}", f"model={model}", f"max_length={length}", f"batch_size={batch_size}"])
    course = Course(config, make_store(), make_store())
    module, data, optimizer = course.module.train(), course.dataset(1000), config.optim.build(course.module)

    def step(number: int) -> None:
        batch = {name: torch.from_numpy(array) for name, array in data[number][0].items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            accumulate_gradients(module, batch, module.target_counts(batch), micro_batch_size=None)
        clip_gradient(module, config.optim.gradient_clip)
        optimizer.step()
        optimizer.zero_grad()

    return course, step


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_large_blocks()
    steps = {name: make_step(name, options.model, options.length, options.batch) for name in OBJECTIVES}
    seconds: dict[str, list[float]] = {name: [] for name in OBJECTIVES}
    for number in range(WARM_UP + options.rounds):
        for name, (_, step) in steps.items():
            start = time.process_time()
            step(number)
            seconds[name].append(time.process_time() - start)
    spent = {name: statistics.median(times[WARM_UP:]) for name, times in seconds.items()}
    rates = {name: steps[name][0].costs[0].flops.total / spent[name] for name in OBJECTIVES}
    print(f"{'objective':16} {'ms a step':>10} {'positions/s':>12} {'GFLOP/s':>8} {'of mlm':>8}")
    slow = []
    for name in sorted(OBJECTIVES, key=lambda name: name != "mlm"):
        share, cost = rates[name] / rates["mlm"], steps[name][0].costs[0]
        positions = (cost.positions - cost.padding) / spent[name]
        print(f"{name:16} {1000 * spent[name]:10.0f} {positions:12,.0f} {rates[name] / 1e9:8.0f} {share:8.0%}")
        slow += [name] if share < TARGET else []
    if slow:
        raise SystemExit(f"below {TARGET:.0%}: " + ", ".join(slow))


if __name__ == "__main__":
    main()
