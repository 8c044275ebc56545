"""The shipped sweep files: each asks one question, W&B takes it as it is, each of its points composes, and arms differ in nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from wandb.apis.public.sweeps import _validate_config_and_fill_distribution
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args, load_sweep_config

from mlm_lab.config import compose
from mlm_lab.config.composition import Loaded
from mlm_lab.run_config import RunConfig, config_hash, to_dict
from mlm_lab.sweep.logged_metrics import KINDS
from mlm_lab.sweep.points import Point, make_point
from mlm_lab.sweep.reading import read
from mlm_lab.sweep.sweep_file import SEED, Distribution, SweepFile

SWEEPS = Path(__file__).resolve().parents[2] / "sweeps"
QUESTIONS = (
    "bert_to_roberta",
    "corruption_prediction",
    "mask_ratio",
    "mask_ratio_text",
    "mask_ratio_time",
    "mask_unit",
    "objective",
    "objective_time",
    "pair_inputs",
    "peak_lr",
    "rare_words",
    "ratio_schedule",
    "replace_mix",
    "replace_mix_text",
    "span_length",
    "static_dynamic",
    "wwm_zh",
)
OWN_TEXT = {"mask_ratio_text", "mask_ratio_time", "objective_time", "replace_mix_text"}
"""Those on text of one's own, with public evaluation sets: what their header puts behind the file."""
NEEDS_DATA = {"wwm_zh"}
"""Read ../shared/data, whose content their runs are named by."""
GRIDS = tuple(name for name in QUESTIONS if name != "peak_lr")
LEFT_OUT = {"seed", "seeds", "study", "tags"}
"""What arms may differ in besides the factor."""
WANDB_KEYS = {"program", "method", "metric", "parameters", "command", "early_terminate", "run_cap", "description"}
"""Of W&B's schema (PyPI: sweeps 0.3.0, which the server checks with) at the top level, which takes no others, those used here."""
READ: Loaded = {}


@cache
def sweep_of(name: str) -> SweepFile:
    sweep = read(SWEEPS / f"{name}.yaml")
    return sweep.with_words([f"data.files=[{own_text()}]", "evaluation.data_dir=."]) if name in OWN_TEXT else sweep


@cache
def own_text() -> Path:
    """A run's hash is over what its files say."""
    file = Path(tempfile.mkdtemp()) / "own.txt"
    file.write_text("A text.", encoding="utf-8")
    return file


@cache
def points_of(name: str) -> tuple[tuple[Point, RunConfig], ...]:
    """Every point of a grid; of a search the two ends of its ranges."""
    sweep = sweep_of(name)
    points = sweep.points() or [make_point(sweep, _end(sweep, end), READ) for end in ("low", "high")]
    return tuple((point, point.config) for point in points)


def _end(sweep: SweepFile, end: str) -> dict[str, Any]:
    return {key: getattr(given, end) if isinstance(given, Distribution) else given[0] for key, given in sweep.parameters.items()}


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """{dotted key: value}"""
    if not isinstance(values, Mapping):
        return {prefix[:-1]: values}
    return {key: value for name, part in values.items() for key, value in flat(part, f"{prefix}{name}.").items()}


def test_the_questions() -> None:
    assert sorted(path.stem for path in SWEEPS.glob("*.yaml")) == sorted(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_file_begins_with_its_question_its_commands_and_its_cost(name: str) -> None:
    text, sweep = (SWEEPS / f"{name}.yaml").read_text(encoding="utf-8"), sweep_of(name)
    lines = text.splitlines()
    assert lines[0].startswith("# ") and lines[0].endswith("?") and sweep.study.question.endswith("?")
    assert f"mlm_lab.sweep sweeps/{name}.yaml --plan" in lines[1] and f"wandb sweep sweeps/{name}.yaml" in "".join(lines[1:3])
    assert ("data.files=[...] evaluation.data_dir=DATA" in lines[1]) == (name in OWN_TEXT)
    count = len(sweep.points()) or sweep.run_cap
    assert lines[4 if name in OWN_TEXT else 3].startswith(f"# {count} runs of ")
    assert max(map(len, lines)) <= 140


@pytest.mark.parametrize("name", QUESTIONS)
def test_wandbs_client_takes_the_file_as_it_is(name: str) -> None:
    config = load_sweep_config(str(SWEEPS / f"{name}.yaml"))
    assert set(config) <= WANDB_KEYS and isinstance(config["description"], str)
    _validate_config_and_fill_distribution(config)
    assert config["command"][:3] == ["${env}", "${interpreter}", "-m"] and config["command"][-1] == "${args_no_hyphens}"
    experiment = "+experiment=[ablation,ablation_text]" if name in OWN_TEXT else "+experiment=ablation"
    assert {experiment, f"study={name}", "logger=wandb"} <= set(config["command"])


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_point_composes_to_a_run_of_its_own(name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS_DATA:
        request.getfixturevalue("shared_data")
        monkeypatch.chdir(SWEEPS.parent)
    points = points_of(name)
    assert len({config_hash(config) for _, config in points}) == len(points)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_point_is_spelt_as_wandbs_agent_spells_it(name: str) -> None:
    for point, _ in points_of(name):
        spelt = create_sweep_command_args({"args": {key: {"value": value} for key, value in point.values.items()}})["args_no_hyphens"]
        assert list(point.overrides[-len(spelt) :]) == spelt


@pytest.mark.parametrize("name", QUESTIONS)
def test_arms_differ_in_the_declared_factors_alone(name: str) -> None:
    factors, first = sweep_of(name).study.factor, flat(to_dict(points_of(name)[0][1]))
    for point, config in points_of(name)[1:]:
        other = flat(to_dict(config))
        differing = {key for key in first.keys() | other.keys() if first.get(key, "none") != other.get(key, "none")}
        others = {
            key
            for key in differing
            if key.partition(".")[0] not in LEFT_OUT and not any(key == factor or key.startswith(f"{factor}.") for factor in factors)
        }
        assert not others, point.arm


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_metric_is_one_that_each_of_its_runs_has(name: str) -> None:
    sweep = sweep_of(name)
    for point, config in points_of(name):
        family, _, metric = sweep.metric.partition("/")
        if family == "probe":
            assert metric.removesuffix("_loss") in config.objective.probes(), point.arm
        else:
            assert metric in (config.tasks[family].metrics or KINDS), point.arm
    for further in sweep.study.metrics:
        assert further.startswith(("val/", "train/", "probe/")) or further.partition("/")[0] in config.tasks


@pytest.mark.parametrize("name", GRIDS)
def test_one_contrast_with_the_first_value_and_a_margin_is_named_before_the_runs(name: str) -> None:
    sweep = sweep_of(name)
    (values,) = (values for key, values in sweep.parameters.items() if key != SEED)
    primary = sweep.study.primary
    assert primary.metric == sweep.metric and primary.baseline == values[0] and primary.contrast in values[1:]
    assert sweep.study.margin > 0 and sweep.parameters[SEED] == (10, 11, 12)


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_same_file_runs_at_base(name: str) -> None:
    for point, tiny in (points_of(name)[0], points_of(name)[-1]):
        budget = [] if tiny.budget.tokens else ["budget.tokens=5e9", "budget.hours=null"]
        base = compose([*point.overrides, "+experiment=ablation_base", "data=text", "data.files=[x.txt]", *budget], loaded=point.loaded)
        assert (base.model.num_layers, base.model.hidden_size, base.budget.tokens) == (12, 768, 5e9)
        assert base.objective == tiny.objective and base.model.norm_position == tiny.model.norm_position


def test_arms_of_the_search_are_none_of_the_tests() -> None:
    assert not set(sweep_of("peak_lr").parameters[SEED]) & {10, 11, 12}
    assert sweep_of("objective").study.tune.seed not in (10, 11, 12)


def test_static_masks_and_large_batches_are_of_the_runs_own_size() -> None:
    """Ten static masks differ from new ones only where the text is read more than ten times."""
    for name in ("static_dynamic", "bert_to_roberta"):
        for _, config in points_of(name):
            assert config.data.validation_share == 0.95
