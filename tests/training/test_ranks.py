"""What several ranks do together, looked at in one process: every option of conf/objective. (With real processes: tests/strategies.)"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from mlm_lab.training.step import accumulate_gradients
from mlm_lab.training.validation import HeldOut, measure
from tests.training.test_costs import OBJECTIVES
from tests.training.tiny_run import make_config, make_course

RANKS = (1, 2, 3)
VARIANTS = [*OBJECTIVES, "mlm objective.span_boundary_weight=1", "sop objective.mlm_weight=0", "mlm objective.predict_share=0.5"]


def rows_of(batch: dict[str, np.ndarray]) -> list[bytes]:
    return [b"".join(batch[name][row].tobytes() for name in sorted(batch)) for row in range(len(batch["input_ids"]))]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_number_of_ranks_sees_the_same_masked_rows(objective):
    """traps 30: over the border of an epoch too."""
    course = make_course(make_config(f"objective={objective}", "batch_size=7"))
    steps = [0, 1, course.rows // 7, course.rows // 7 + 1]
    seen = [
        Counter(row for step in steps for rank in range(ranks) for row in rows_of(course.dataset(100, rank, ranks)[step][0]))
        for ranks in RANKS
    ]
    assert seen[0].total() == 7 * len(steps) and seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_held_out_target_counts_once(objective):
    """traps 30: 9 rows in batches of 8, so that of the last batch some ranks have none."""
    course = make_course(make_config(f"objective={objective}"))
    held_out = HeldOut(course.config.objective, course.validation, 32, sequences=9, batch_size=8)
    for batches in held_out.batches.values():
        totals = []
        for ranks in RANKS:
            found: Counter = Counter()
            for rank in range(ranks):
                common = {"rank": rank, "world_size": ranks, "reduce": lambda sums: sums, "context": torch.no_grad}
                own = measure(course.module, batches, torch.device("cpu"), **common)
                found.update({name: count for name, (_, count) in own.items()})
            totals.append(dict(found))
        assert totals[0] == totals[1] == totals[2]


@pytest.mark.parametrize("words", VARIANTS)
def test_no_parameter_is_without_a_gradient(words):
    """One would stop ddp in its second step."""
    course = make_course(make_config(*f"objective={words}".split()))
    batch = course.sample_batch()
    accumulate_gradients(course.module, batch, course.module.target_counts(batch), micro_batch_size=None)
    assert [name for name, p in course.module.named_parameters() if p.requires_grad and p.grad is None] == []
