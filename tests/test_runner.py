"""When nothing is left to do for a config, and which studies a run belongs to."""

from __future__ import annotations

from functools import cache

import pytest

from mlm_lab.config import compose
from mlm_lab.run_config import RunConfig, config_hash, evaluations_asked
from mlm_lab.runner import is_finished, studies_of

PLAIN = ["trainer.precision=32-true", "budget.steps=2"]
WITH_TASK = [*PLAIN, "evaluation.tasks=[pydocs_odd_word]"]


@cache
def composed(*overrides: str) -> RunConfig:
    return compose(overrides)


def finished(*overrides: str, asked: list[str] = WITH_TASK, **changes: object) -> bool:
    """Whether the summary of a run that did all that `asked` says is enough for the overrides."""
    done = composed(*asked)
    evaluated = list(evaluations_asked(config_hash(done), done).values())
    summary = {"status": "finished", "weights_sha256": "0", "evaluated": evaluated, **changes}
    config = composed(*overrides)
    return is_finished(summary, config_hash(config), config)


def test_a_run_with_all_its_evaluations_is_finished() -> None:
    assert finished(*WITH_TASK) and finished(*PLAIN) and finished(*PLAIN, asked=PLAIN)
    assert finished(*WITH_TASK, "evaluation.jobs=2", "study=another", "tags=[x]", "output_dir=elsewhere")


@pytest.mark.parametrize("more", ["evaluation.seeds=5", "evaluation.tasks=[pydocs_odd_word,pydocs_topic]", "task.pydocs_odd_word.epochs=9"])
def test_an_evaluation_that_was_not_asked_for_is_missing(more: str) -> None:
    assert not finished(*WITH_TASK, more) and finished(*WITH_TASK, more, "stages=[prepare,pretrain]")


def test_what_was_stopped_and_what_has_no_weights_is_not_finished() -> None:
    assert not finished(*WITH_TASK, status="interrupted")
    assert not finished(*PLAIN, asked=PLAIN, weights_sha256=None) and finished(*PLAIN, "stages=[prepare]", asked=PLAIN, weights_sha256=None)
    assert not is_finished({}, "0" * 64, composed(*PLAIN))


def test_a_run_keeps_every_study_that_came_to_it() -> None:
    assert studies_of({}, None) == [] and studies_of({}, "a") == ["a"]
    assert studies_of({"study": "a"}, "b") == ["a", "b"], "a summary from before there was a list"
    assert studies_of({"study": "b", "studies": ["a", "b"]}, "a") == ["a", "b"]
