"""Static shapes: under a compiler a run compiles once. Every option of conf/objective."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from mlm_lab.errors import InvalidFields
from mlm_lab.training.step import accumulate_gradients
from tests.training.test_costs import OBJECTIVES
from tests.training.tiny_run import make_config, make_course, train

WARM_UP, STEPS = 2, 8


def compiled_graphs(objective: str, static: bool, backend: str) -> tuple[int, int]:
    """Graphs that were compiled in the first steps, and in those after them."""
    torch._dynamo.reset()
    counters.clear()
    course = make_course(make_config(f"objective={objective}"))
    dataset, module = course.dataset(course.rows), course.module  # steps of more than one epoch
    module.static_shapes = static
    module.compile(dynamic=False, backend=backend)
    found = []
    for step in [*range(WARM_UP + STEPS), course.rows // 8, course.rows // 8 + 1]:  # and over the border of an epoch
        batch = {name: torch.from_numpy(array) for name, array in dataset[step][0].items()}
        accumulate_gradients(module, batch, module.target_counts(batch), micro_batch_size=4)
        found.append(counters["stats"]["unique_graphs"])
    return found[WARM_UP - 1], found[-1] - found[WARM_UP - 1]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nothing_is_compiled_again_after_the_warm_up(objective):
    first, later = compiled_graphs(objective, static=True, backend="eager")
    assert first >= 1 and later == 0


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nor_by_inductor(objective):
    first, later = compiled_graphs(objective, static=True, backend="inductor")
    assert first >= 1 and later == 0


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
