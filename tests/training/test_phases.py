"""Length phases: rows of one length after another, as one run."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import lightning
import numpy as np
import pytest
import torch

from mlm_lab.data.packing import pack_rows
from mlm_lab.errors import InvalidFields
from mlm_lab.training.data import PhaseDataset
from mlm_lab.training.phases import Phase, borders, examples_until, phase_at, steps_until
from tests.training.test_training import SignalAt, bits_of, rows_of
from tests.training.tiny_run import make_config, make_course, make_store, train

PHASES = "length_phases=[[16,0.6],[32,0.4]]"
LEARNED = ["model.positions=learned", "model.relative_bias=none", "model.max_positions=32"]


def test_shares_become_steps():
    phases = [Phase(0, 128, 0.9, 256), Phase(1, 512, 0.1, 256)]
    assert borders(phases, 1_000_000) == [0, 900_000, 1_000_000]
    assert steps_until(phases, 1_000_000, 900_007) == [900_000, 7]
    assert examples_until(phases, 10, 10) == 2560
    assert [phase_at(phases, 10, step).max_length for step in (0, 8, 9)] == [128, 128, 512]
    thirds = [Phase(number, 128, 1 / 3, 1) for number in range(3)]
    for total in range(1, 30):
        assert sum(steps_until(thirds, total, total)) == total
        assert borders(thirds, total) == sorted(borders(thirds, total))


@pytest.mark.parametrize(
    "phases",
    ["[[16,0.6],[32,0.5]]", "[[16,0.6],[24,0.4]]", "[[4,0.6],[32,0.4]]", "[[16,0.6,0],[32,0.4]]", "[[16],[32]]", "[]", "[[16,0],[32,1]]"],
)
def test_phases_that_are_none_are_refused(phases):
    with pytest.raises(InvalidFields, match=r"length_phases=.*the longest of them max_length"):
        make_config(f"length_phases={phases}")


def test_each_phase_has_its_own_rows_order_and_batch_size():
    course = make_course(make_config("length_phases=[[16,0.5,12],[32,0.5]]"))
    dataset = course.dataset(20)
    assert {dataset[step][0]["input_ids"].shape for step in range(10)} == {(12, 16)}
    assert {dataset[step][0]["input_ids"].shape for step in range(10, 20)} == {(8, 32)}
    assert course.examples(20, 20) == 10 * 12 + 10 * 8
    whole = make_course(make_config()).dataset(20)
    assert not np.array_equal(dataset[10][0]["labels"], whole[0][0]["labels"]), "the first rows of 32 in an order of their own"


def test_one_phase_is_the_run_without_phases():
    one, none = (make_course(make_config(*words)).dataset(20) for words in (["length_phases=[[32,1]]"], []))
    for step in (0, 19):
        assert all(np.array_equal(one[step][0][name], array) for name, array in none[step][0].items())


def test_trap_11_a_schedule_goes_by_the_number_in_the_run():
    seen = []
    objective = SimpleNamespace(
        plan=lambda store, max_length, draws: pack_rows(store, max_length, "full_sentences", draws),
        make_batch=lambda store, plan, keys: seen.append((keys, plan.draws)) or {"attention_mask": np.ones((len(keys), 1))},
    )
    dataset = PhaseDataset(
        objective,
        make_store("train"),
        Phase(1, 32, 0.1, 8),
        order_seed=0,
        corruption_seed=0,
        first_step=90,
        first_example=720,
        horizon=800,
    )
    _ = dataset[90], dataset[99]
    assert seen[0][0].position.tolist() == list(range(720, 728))
    assert seen[1][0].position[-1] == 799 == seen[1][1].horizon - 1
    assert seen[0][0].epoch.max() == 0, "from the first row of its own plan on"


class Watch(lightning.Callback):
    """Keeps the position table after each step."""

    def __init__(self):
        self.tables = []

    def on_train_start(self, trainer, module):
        self.on_train_batch_end(trainer, module, None, None, 0)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.tables.append(module.module.encoder.embeddings.positions.weight.detach().clone())


def test_trap_35_positions_beyond_the_first_phase_are_untrained_until_the_second(tmp_path):
    watch = Watch()
    train(make_config(*LEARNED, PHASES, "optim.weight_decay=0", "objective.cross_document_attention=true", steps=10), tmp_path, watch)
    changed = [(after != before).any(dim=1) for before, after in zip(watch.tables, watch.tables[1:], strict=False)]
    assert all(not rows[16:].any() and rows[:8].all() for rows in changed[:6])
    assert all(rows[16:].any() for rows in changed[6:9])


@pytest.mark.parametrize("stop_at", [3, 5, 7])
def test_a_run_resumes_in_any_phase_bit_for_bit(tmp_path, stop_at):
    """traps 29: before, at and behind the border, from the step alone."""
    config = make_config(PHASES, "model.hidden_dropout=0.1", "trainer.log_every_steps=3", steps=10)
    whole = train(config, tmp_path / "whole")
    assert train(config, tmp_path / "parts", SignalAt(stop_at, signal.SIGTERM)).module.step == stop_at + 1
    resumed = train(config, tmp_path / "parts")
    assert bits_of(resumed.module.module) == bits_of(whole.module.module)
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    assert resumed.recorder.totals == whole.recorder.totals


def test_each_row_says_what_was_spent_by_then(tmp_path):
    """Validations between the logged rows too, which have steps of the meter that are in no total yet."""
    config = make_config(PHASES, "trainer.log_every_steps=4", "validation.every_steps=3", steps=10)
    run, course = train(config, tmp_path), make_course(config)
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == [3, 4, 6, 8, 9, 10]
    assert [row["spent/flops"] for row in rows] == [course.flops(10, int(row["step"])).total for row in rows]
    tokens = {row["step"]: row["spent/tokens"] for row in rows}
    assert tokens[10] == run.recorder.totals["corpus_tokens"] and sorted(tokens.values()) == list(tokens.values())
    assert tokens[6] / tokens[10] < 0.5 < tokens[6] / 6 / course.costs[0].tokens  # six short steps of ten
    assert not any(name.startswith("spent/") for name in run.recorder.latest)


def test_a_budget_in_tokens_is_spent_by_all_phases_together(tmp_path):
    config = make_config(PHASES, "budget.tokens=6000")
    run, course = train(config, tmp_path), make_course(config)
    short, long = (cost.tokens for cost in course.costs)
    assert long > 1.8 * short
    assert run.module.total_steps == round(6000 / (0.6 * short + 0.4 * long))
    assert run.recorder.totals["corpus_tokens"] == pytest.approx(6000, abs=1.5 * long)
    assert course.flops(10, 10).total == pytest.approx(6 * course.costs[0].flops.total + 4 * course.costs[1].flops.total)


def test_held_out_rows_are_those_of_a_run_without_phases(tmp_path):
    """traps 12: the same masks at every step and in every arm."""
    one, two = (train(make_config(*words, "optim.peak_lr=1e-30", steps=4), tmp_path / str(len(words))) for words in ([PHASES], []))
    for name in ("val/loss", "probe/mlm_15_loss"):
        assert one.recorder.latest[name] == pytest.approx(two.recorder.latest[name], rel=1e-6)
    assert torch.equal(one.module.module.encoder.embedding_weight, two.module.module.encoder.embedding_weight)
