"""Whether batches are made fast enough: CPU time of make_batch against that of a training step, of every objective at length 128 and 512.
By hand, on one core:

    taskset -c 0 python -m tests.benchmarks.feed [--model mini] [--batch 32] [--steps 4] [--lengths 128 512]

Vocabulary 8192, rows of random tokens, one thread. A step is forward and backward in bf16, clipping and AdamW. Both are medians of CPU
time, so that other work on the machine weighs as little as it can. The share has to stay under 3 %: a loop without workers waits for that
long. Plans that each epoch draws anew (sentence pairs) are counted, spread over the batches of the epoch.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from mlm_lab.config import compose
from mlm_lab.corruption.draws import Draws
from mlm_lab.data.token_store import TokenStore
from mlm_lab.training.step import accumulate_gradients, clip_gradient
from mlm_lab.training.weights import fresh_module
from mlm_lab.types import ExampleKeys, Vocabulary
from tests.training.test_costs import OBJECTIVES

VOCABULARY, SENTINELS, BATCHES, LIMIT = 8192, 100, 12, 0.03
FIXED = ["trainer=cpu", "trainer.precision=bf16-mixed", "stages=[pretrain]", "budget.steps=1000"]


class Times(NamedTuple):
    """Seconds of CPU time."""

    batch: float
    plan: float
    step: float

    @property
    def share(self) -> float:
        return (self.batch + self.plan) / self.step


def make_store() -> TokenStore:
    """Random tokens in 600 documents of 50 sentences of 21, so that rows of 128 and 512 are nearly full."""
    first = VOCABULARY - SENTINELS
    sentinels = tuple(range(first, VOCABULARY))
    vocabulary = Vocabulary(VOCABULARY, VOCABULARY, 0, 1, 2, 3, 4, (0, 1, 2, 3, 4, *sentinels), sentinels, "benchmark")
    sentences = np.arange(0, 600 * 50 + 1)
    generator = np.random.default_rng(0)
    tokens = generator.integers(5, first, 21 * sentences[-1])
    word_starts = generator.random(len(tokens)) < 0.7
    word_starts[::21] = True
    return TokenStore.from_arrays(tokens, word_starts, 21 * sentences, sentences[::50], vocabulary)


def cpu_seconds(work: Callable[[int], object], times: int) -> Iterator[float]:
    for number in range(times):
        start = time.process_time()
        work(number)
        yield time.process_time() - start


def measure(objective: str, model: str, length: int, batch_size: int, steps: int, store: TokenStore) -> Times:
    config = compose([*FIXED, f"objective={objective}", f"model={model}", f"max_length={length}", f"batch_size={batch_size}"])
    start = time.process_time()
    plan = config.objective.plan(store, length, Draws(0, "train"))
    plan_seconds = time.process_time() - start
    numbers = np.arange(BATCHES * batch_size)
    order = np.random.default_rng(0).permutation(len(plan))[numbers]
    keys = [ExampleKeys(part, np.zeros_like(part), order[part]) for part in np.split(numbers, BATCHES)]
    made = list(cpu_seconds(lambda n: config.objective.make_batch(store, plan, keys[n]), BATCHES))[1:]
    module = fresh_module(config, store.vocabulary).train()
    optimizer = config.optim.build(module)
    sample = config.objective.make_batch(store, plan, keys[0])

    def train(step: int) -> None:
        batch = {name: torch.from_numpy(array) for name, array in sample.items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            accumulate_gradients(module, batch, module.target_counts(batch), micro_batch_size=None)
        clip_gradient(module, config.optim.gradient_clip)
        optimizer.step()
        optimizer.zero_grad()

    trained = list(cpu_seconds(train, steps + 1))[1:]
    drawn_anew = plan_seconds * batch_size / len(plan) if plan.redrawn else 0.0
    return Times(statistics.median(made), drawn_anew, statistics.median(trained))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    options = parser.parse_args()
    torch.set_num_threads(1)
    store, slow = make_store(), []
    print(f"{'objective':16} {'length':>6} {'make_batch':>12} {'plan':>10} {'step':>11} {'share':>8}", flush=True)
    for length in options.lengths:
        for objective in OBJECTIVES:
            times = measure(objective, options.model, length, options.batch, options.steps, store)
            batch, plan, step = (1000 * seconds for seconds in times)
            print(f"{objective:16} {length:6} {batch:9.2f} ms {plan:7.2f} ms {step:8.0f} ms {times.share:7.2%}", flush=True)
            slow += [f"{objective} at {length}"] if times.share >= LIMIT else []
    if slow:
        raise SystemExit(f"{LIMIT:.0%} or more: " + ", ".join(slow))


if __name__ == "__main__":
    main()
