"""Where a training step's time goes, stage by stage, forward and backward, of a real run at a shape of tests/benchmarks/shapes.py:

    taskset -c 0 python -m tests.benchmarks.profile [--shape mini-128-30522] [--steps 10] [--kernels] [key=value ...]

CPU time, medians over the steps; a stage's time is without that of the stages inside it. GFLOP/s counts the products of the stage. Hooks
cost some microseconds each. With --kernels torch's profiler lists the most expensive kernels too. `key=value` changes the run: what a fast
path brings is seen by switching it off.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import nn

from mlm_lab.models.attention import SelfAttention
from mlm_lab.models.transformer import Embeddings, FeedForward, TransformerEncoder
from mlm_lab.models.vocabulary_loss import VocabularyHead
from mlm_lab.training import module as training
from mlm_lab.training.allocator import keep_large_blocks
from mlm_lab.training.callbacks import Checkpoints
from mlm_lab.training.course import Course
from mlm_lab.training.data import StepDataset
from mlm_lab.training.module import Pretraining
from mlm_lab.training.plateau import PlateauWatch
from mlm_lab.training.recorder import Recorder
from mlm_lab.training.validation import HeldOut
from tests.benchmarks.contenders import open_stores
from tests.benchmarks.shapes import BY_NAME, make_config

WARM_UP = 4
OUTSIDE = "Lightning"
STAGES = {
    "data": "data wait",
    "embedding": "embedding",
    "context": "masks, position bias",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "rest": "norms, residual sums",
    "head": "projection + loss",
    "backward embedding": "embedding, masks, norms",
    "backward attention": "attention",
    "backward feed_forward": "feed-forward",
    "backward head": "projection + loss",
    "clip": "gradient norm, clipping",
    "optimizer": "optimiser",
    "logging": "metrics, log rows",
    "step": "the step itself, rest",
    OUTSIDE: "Lightning",
}
FORWARD = ("embedding", "context", "attention", "feed_forward", "rest", "head")


class Stages:
    """A clock that always runs for one stage: the innermost that was entered."""

    def __init__(self) -> None:
        self.steps: list[Counter[str]] = []
        self._seconds: Counter[str] = Counter()
        self._open, self._since = [OUTSIDE], time.process_time()

    def enter(self, stage: str) -> None:
        self._lap()
        self._open.append(stage)

    def leave(self, stage: str) -> None:
        """And whatever was entered inside and not left: a backward pass may skip a stage's end."""
        self._lap()
        if stage in self._open:
            while self._open.pop() != stage:
                pass

    def next_step(self) -> None:
        self._lap()
        self.steps.append(self._seconds)
        self._seconds = Counter()

    def _lap(self) -> None:
        now = time.process_time()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now

    def around(self, owner: Any, name: str, stage: str) -> None:
        """Make a method or function run in a stage."""
        inner: Callable = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.enter(stage)
            try:
                return inner(*args, **kwargs)
            finally:
                self.leave(stage)

        setattr(owner, name, timed)


def watch(module: nn.Module, stages: Stages) -> None:
    """Hook the parts of an objective's module."""
    hook(module, "rest", stages, backward=False)
    for part in module.modules():
        if isinstance(part, SelfAttention):
            hook(part, "attention", stages)
        elif isinstance(part, FeedForward):
            hook(part, "feed_forward", stages)
        elif isinstance(part, Embeddings):
            hook(part, "embedding", stages, backward=False)
        elif isinstance(part, TransformerEncoder):
            stages.around(part, "attention_contexts", "context")
        elif isinstance(part, VocabularyHead):
            watch_loss(part, stages)


def hook(part: nn.Module, stage: str, stages: Stages, backward: bool = True) -> None:
    part.register_forward_pre_hook(lambda *_: stages.enter(stage))
    part.register_forward_hook(lambda *_: stages.leave(stage))
    if backward:
        part.register_full_backward_pre_hook(lambda *_: stages.enter(f"backward {stage}"))
        part.register_full_backward_hook(lambda *_: stages.leave(f"backward {stage}"))


def watch_loss(head: VocabularyHead, stages: Stages) -> None:
    inner = head.loss

    def loss(hidden: torch.Tensor, *rest: Any) -> Any:
        stages.enter("head")
        found = inner(hidden, *rest)
        stages.leave("head")
        if found.total.requires_grad:
            found.total.register_hook(lambda _: stages.enter("backward head"))
            hidden.register_hook(lambda _: stages.leave("backward head"))
        return found

    head.loss = loss


class StepEnds(lightning.Callback):
    def __init__(self, stages: Stages):
        self.stages = stages

    def on_train_batch_start(self, *_: Any) -> None:
        self.stages.next_step()


def profile(shape_name: str, steps: int, cache_dir: Path, words: list[str]) -> tuple[Course, Stages]:
    config = make_config(BY_NAME[shape_name], cache_dir, "trainer.precision=bf16-mixed", f"budget.steps={steps + WARM_UP + 1}", *words)
    course, stages = Course(config, *open_stores(config)[:2]), Stages()
    watch(course.module, stages)
    stages.around(StepDataset, "__getitem__", "data")
    stages.around(training, "clip_gradient", "clip")
    module = Pretraining(course)
    stages.around(module, "manual_backward", "backward embedding")
    stages.around(module, "training_step", "step")
    stages.around(module, "_record", "logging")
    held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, config.batch_size)
    with tempfile.TemporaryDirectory() as name:
        recorder = Recorder(Path(name) / "metrics.csv", held_out, PlateauWatch.over(held_out, course.train))
        stages.around(recorder, "on_train_batch_end", "logging")
        make_optimizer = module.configure_optimizers

        def configure_optimizers() -> torch.optim.Optimizer:
            optimizer = make_optimizer()
            stages.around(optimizer, "step", "optimizer")
            stages.around(optimizer, "zero_grad", "optimizer")
            return optimizer

        module.configure_optimizers = configure_optimizers
        callbacks = [StepEnds(stages), recorder, Checkpoints(Path(name) / "checkpoints", recorder)]
        config.trainer.build(folder=Path(name), loggers=[], callbacks=callbacks).fit(module)
    stages.steps = stages.steps[WARM_UP : WARM_UP + steps]
    return course, stages


def stage_flops(course: Course) -> dict[str, float]:
    """FLOPs of the forward products of a stage, of a step."""
    batch, encoder = course.sample_batch(), course.module.encoder
    rows, length = batch["input_ids"].shape
    width, tokens = encoder.hidden_size, batch["input_ids"].numel()
    attention = 2.0 * tokens * encoder.num_layers * (4 * width * width + 2 * width * length)
    return {
        "attention": attention,
        "feed_forward": encoder.flops(rows, length) - attention,
        "head": course.module.flops(batch).total - encoder.flops(rows, length),
    }


def show(course: Course, stages: Stages) -> None:
    """The table. Other objectives than mlm have parts that the FLOPs of a stage do not tell apart."""
    total = statistics.median(sum(step.values()) for step in stages.steps)
    products, cost = stage_flops(course), course.costs[0]
    print(f"{'':10}{'stage':26} {'ms':>8} {'share':>7} {'GFLOP/s':>8}")
    for stage, text in STAGES.items():
        seconds = statistics.median(step[stage] for step in stages.steps)
        backward, _, name = stage.rpartition(" ")
        flops = products.get(name, 0.0) * (2 if backward else 1)
        rate = f"{flops / seconds / 1e9:8.0f}" if flops and seconds else ""
        when = backward or ("forward" if stage in FORWARD else "")
        print(f"{when:10}{text:26} {1000 * seconds:8.2f} {seconds / total:7.1%} {rate}")
    rate, tokens = cost.flops.total / total / 1e9, cost.positions - cost.padding
    print(f"{'':10}{'the whole step':26} {1000 * total:8.2f} {1:7.1%} {rate:8.0f}   {tokens / total:,.0f} tokens/s")


def show_kernels(course: Course) -> None:
    """torch's own profile of the forward and backward of one batch."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    data, module = course.dataset(10**6), course.module
    for step in range(3):
        batch = {name: torch.from_numpy(array) for name, array in data[step][0].items()}
        with torch_profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
            with torch.autocast("cpu", torch.bfloat16):
                loss = module(batch).losses["mlm"]
            loss.backward()
    print(found.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total", row_limit=45, max_shapes_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", choices=BY_NAME, default="mini-128-30522", metavar="SHAPE", help=", ".join(BY_NAME))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mlm_lab_benchmarks")
    parser.add_argument("words", nargs="*", metavar="key=value")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    keep_large_blocks()
    course, stages = profile(options.shape, options.steps, options.cache, options.words)
    show(course, stages)
    if options.kernels:
        show_kernels(course)


if __name__ == "__main__":
    main()
