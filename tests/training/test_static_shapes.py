"""Static shapes: under a compiler a run compiles once. Every option of conf/objective."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import pytest
import torch
from torch._dynamo.utils import counters

from mlm_lab.corruption.draws import Draws
from mlm_lab.errors import InvalidFields
from mlm_lab.training.step import accumulate_gradients
from mlm_lab.training.validation import HeldOut, evaluate, fill_up
from tests.corruption.stores import keys_of
from tests.training.test_costs import OBJECTIVES
from tests.training.tiny_run import make_config, make_course, train

WARM_UP, STEPS = 2, 8


def compiled_graphs(objective: str, static: bool, backend: str) -> tuple[int, int]:
    """Graphs that were compiled in the first steps and for the first held-out batch of each recipe, and for all that came after: further
    steps, the rest of the held-out batches, the last of which is shorter, and steps again."""
    torch._dynamo.reset()
    counters.clear()
    course = make_course(make_config(f"objective={objective}"))
    dataset, module = course.dataset(course.rows), course.module  # steps of more than one epoch
    module.static_shapes = static
    module.compile(dynamic=False, backend=backend)
    held_out = HeldOut(course.config.objective, course.validation, 32, sequences=44, batch_size=8)
    for batches in held_out.batches.values():
        rows = [len(batch["input_ids"]) for batch in batches]
        assert rows[0] == 8 > rows[-1], "the last one is shorter"

    def train(steps: Iterable[int]) -> None:
        for step in steps:
            batch = {name: torch.from_numpy(array) for name, array in dataset[step][0].items()}
            accumulate_gradients(module, batch, module.target_counts(batch), micro_batch_size=4)

    def validate(batches: int | None) -> dict[str, float]:
        part = copy.copy(held_out)
        part.batches = {name: every[:batches] for name, every in held_out.batches.items()}
        return evaluate(module, part, torch.device("cpu"))

    train(range(WARM_UP))
    validate(1)
    first = counters["stats"]["unique_graphs"]
    train(range(WARM_UP, WARM_UP + STEPS))
    validate(None)
    train([course.rows // 8, course.rows // 8 + 1])  # over the border of an epoch
    return first, counters["stats"]["unique_graphs"] - first


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nothing_is_compiled_again_after_the_warm_up(objective):
    first, later = compiled_graphs(objective, static=True, backend="eager")
    assert first >= 1 and later == 0


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nor_by_inductor(objective):
    first, later = compiled_graphs(objective, static=True, backend="inductor")
    assert first >= 1 and later == 0


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("words", [*OBJECTIVES, "mlm objective.span_boundary_weight=1", "sop objective.mlm_weight=0"])
def test_empty_rows_count_for_nothing(words, static):
    """types.Batch: no loss, no target, no metric, and nothing that is not a number."""
    course = make_course(make_config(*f"objective={words}".split()))
    course.module.static_shapes = static
    for recipe in (course.config.objective, *course.config.objective.probes().values()):
        plan = recipe.plan(course.train, 32, Draws(0, "train"))
        whole = recipe.make_batch(course.train, plan, keys_of([0, 1, 2]))
        outputs, counts = [], []
        for batch in (whole, fill_up(whole, 8)):
            tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
            counts.append({name: int(count) for name, count in course.module.target_counts(tensors).items()})
            outputs.append(course.module(tensors))
        assert counts[1] == counts[0]
        for name, loss in outputs[0].losses.items():
            assert outputs[1].losses[name].item() == pytest.approx(loss.item(), rel=1e-5)
        for name, sums in outputs[0].metrics.items():
            assert [value.item() for value in outputs[1].metrics[name]] == pytest.approx([value.item() for value in sums], rel=1e-5)
        gradient = torch.autograd.grad(sum(outputs[1].losses.values()), course.module.encoder.embedding_weight, allow_unused=True)[0]
        assert gradient is None or torch.isfinite(gradient).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_static_shapes_change_no_sum(objective):
    course = make_course(make_config(f"objective={objective}"))
    outputs = []
    for static in (False, True):
        course.module.static_shapes = static
        with torch.no_grad():
            outputs.append(course.module(course.sample_batch()))
    for name, loss in outputs[0].losses.items():
        assert outputs[1].losses[name].item() == pytest.approx(loss.item(), rel=1e-5)
    for name, sums in outputs[0].metrics.items():
        assert [value.item() for value in outputs[1].metrics[name]] == pytest.approx([value.item() for value in sums], rel=1e-5)


@pytest.mark.parametrize(("chosen", "static"), [("auto", False), ("true", True), ("false", False)])
def test_the_switch_is_a_key_of_the_trainer(tmp_path, chosen, static):
    run = train(make_config(f"trainer.static_shapes={chosen}", steps=1), tmp_path)
    assert run.module.module.static_shapes is static
    with pytest.raises(InvalidFields, match="true, false or auto"):
        make_config("trainer.static_shapes=yes_please")
