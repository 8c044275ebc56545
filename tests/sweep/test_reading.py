"""Reading a sweep file: what it says, and every mistake with the line that it stands in."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from mlm_lab.sweep.reading import read
from mlm_lab.sweep.sweep_file import Distribution, Primary, Tune
from tests.sweep.sweeps_for_tests import sweep, write

RATIO = "  objective.mask_ratio:\n    values: [0.15, 0.4]\n"


def test_a_file_and_the_study_in_its_description_are_read(tmp_path: Path) -> None:
    found = sweep(tmp_path)
    assert (found.name, found.method, found.metric, found.goal) == ("good", "grid", "probe/mlm_15_loss", "minimize")
    assert found.parameters == {"objective.mask_ratio": (0.15, 0.4), "seed": (0, 1, 2)} and found.factors == ("objective.mask_ratio",)
    assert found.overrides == ("+experiment=tiny", "study=good", "trainer.precision=32-true")
    study = found.study
    assert study.primary == Primary(metric="probe/mlm_15_loss", baseline=0.15, contrast=0.4)
    assert (study.question, study.metrics, study.margin) == ("Which masking ratio serves best?", ("val/loss",), 0.05)
    assert study.ordered and study.factor == ("objective.mask_ratio",) and study.tune is None and study.published == ()


def test_a_description_in_prose_is_the_question(tmp_path: Path) -> None:
    path = write(tmp_path)
    text = path.read_text()
    start, end = text.index("description"), text.index("parameters")
    for prose in ("Which rate: low or high?", "Which ratio?"):
        path.write_text(f"{text[:start]}description: '{prose}'\n{text[end:]}")
        assert read(path).study.question == prose and read(path).study.primary is None
    path.write_text(text[:start] + text[end:])
    assert read(path).study.question == ""


@pytest.mark.parametrize(("seeds", "message"), [("[2, 9]", r"line 10: pilot_seeds: \[2\] are seeds of the sweep"), ("9", "must be a list")])
def test_what_chose_a_metric_does_not_test_it(tmp_path: Path, seeds: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sweep(tmp_path, ("ordered: true", f"pilot_seeds: {seeds}"))
    assert sweep(tmp_path, ("ordered: true", "pilot_seeds: [9]")).study.pilot_seeds == (9,)


def test_a_range_is_read_as_wandb_reads_it(tmp_path: Path) -> None:
    def parameter(spec: str) -> Distribution:
        changes = (("method: grid", "method: random\nrun_cap: 9"), ("    values: [0.15, 0.4]", f"    {spec}"))
        return sweep(tmp_path, *changes).parameters["objective.mask_ratio"]

    assert parameter("{min: 1, max: 8}") == Distribution(name="int_uniform", low=1, high=8, step=None)
    assert parameter("{min: 0.1, max: 0.8}") == Distribution(name="uniform", low=0.1, high=0.8, step=None)
    assert parameter("{distribution: log_uniform_values, min: 0.01, max: 0.8}").is_log
    assert parameter("{distribution: q_uniform, min: 0.1, max: 0.8, q: 0.1}").step == 0.1


def test_tune_is_read(tmp_path: Path) -> None:
    tune = "tune: {key: optim.peak_lr, values: [0.001, 0.002], metric: val/loss, goal: minimize, seed: 9, budget_share: 0.25}"
    expected = Tune(key="optim.peak_lr", values=(0.001, 0.002), metric="val/loss", goal="minimize", seed=9, budget_share=0.25)
    assert sweep(tmp_path, ("ordered: true", tune)).study.tune == expected


TUNE = "tune: {key: optim.peak_lr, values: [1, 2], metric: val/loss, goal: minimize, seed: 9, budget_share: 0.25}"
MISTAKES = [
    (("program:", "programme:"), 2, "unknown key 'programme'; did you mean program?"),
    (("method: grid", "method: gird"), 3, "method: must be one of grid, random, bayes"),
    (("goal: minimize", "goal: least"), 4, "metric.goal: must be one of minimize, maximize"),
    (("goal: minimize", "goal: maximize"), 4, "probe/mlm_15_loss: goal maximize, but of this metric less is better"),
    (("ordered: true", TUNE.replace("minimize", "maximize")), 10, "val/loss: goal maximize, but of this metric less is better"),
    (("name: probe/mlm_15_loss, ", ""), 4, "metric: name is missing"),
    (("  question:", "  qestion:"), 6, "unknown key 'qestion'; did you mean question?"),
    ((", contrast: 0.4", ""), 7, "primary: contrast is missing"),
    (("margin: 0.05", "margin: -1"), 9, "margin: must be a number above 0"),
    (("ordered: true", "ordered: 3"), 10, "ordered: must be true or false"),
    (("ordered: true", TUNE.replace("seed: 9", "seed: 1")), 10, "none of the sweep's seeds"),
    (("ordered: true", TUNE.replace("optim.peak_lr", "objective.mask_ratio")), 10, "is a parameter of the sweep already"),
    (("ordered: true", TUNE.replace("0.25", "25")), 10, "tune.budget_share: must be in (0, 1]"),
    (("ordered: true", TUNE.replace("[1, 2]", "[1]")), 10, "tune.values: at least two"),
    (("ordered: true", "tune: {key: optim.peak_lr}"), 10, "tune: values, metric, goal, seed, budget_share is missing"),
    (
        ("ordered: true\n", f"{TUNE}\nearly_terminate: {{type: hyperband}}\n"),
        10,
        "tune: goes with a grid whose points all run to their end",
    ),
    ((RATIO, "  +experiment: {values: [a, b]}\n"), 12, "an experiment is no parameter; put the word +experiment=NAME into command:"),
    ((RATIO, "  experiment: {values: [a, b]}\n"), 12, "an experiment is no parameter"),
    (
        (RATIO, "  objective: {parameters: {mask_ratio: {values: [1]}}}\n"),
        12,
        "a nested parameter; write its keys with dots (objective.mask_ratio)",
    ),
    ((RATIO, "  data.files: {values: [{a: 1}]}\n"), 12, "a nested value"),
    ((RATIO, "  objective.mask_ratio: 0.4\n"), 12, "must be a mapping: {values: [...]}"),
    ((RATIO, "  objective.mask_ratio: {vales: [1]}\n"), 12, "unknown key 'vales'; did you mean value"),
    ((RATIO, "  objective.mask_ratio: {values: [0.4, 0.40]}\n"), 12, "a value is given twice"),
    ((RATIO, "  length_phases: {values: [null]}\n"), 12, 'write the string "null"'),
    ((RATIO, "  objective.mask_ratio: {min: 0.1, max: 0.2}\n"), 12, "a grid needs values: [...]"),
    ((RATIO, "  objective.mask_ratio: {min: 0.1}\n"), 12, "must have values: [...], or min and max"),
    (("  seed:", "  objective.mask_ratio:"), 12, "objective.mask_ratio: given a second time in line 14"),
    (("-m, mlm_lab", "-m, other"), 16, "command: must be a list like"),
    ((', "${args_no_hyphens}"', ""), 16, "command: must be a list like"),
]


@pytest.mark.parametrize(("change", "line", "message"), MISTAKES, ids=lambda value: value[1][:30] if isinstance(value, tuple) else None)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, change: tuple[str, str], line: int, message: str) -> None:
    with pytest.raises(UserError) as error:
        sweep(tmp_path, change)
    assert f"good.yaml: not a sweep file:\n  line {line}: " in str(error.value) and message in str(error.value)


def test_all_mistakes_are_told_at_once_in_the_files_order(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        sweep(tmp_path, ("margin: 0.05", "margin: no"), ("goal: minimize", "goal: x"), ("method: grid", "method: x"))
    assert [line.split(":")[0].strip() for line in str(error.value).splitlines()[1:]] == ["line 3", "line 4", "line 9"]


def test_what_is_no_yaml_no_mapping_and_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"this is not YAML.*\n.*good\.yaml, line 15"):
        sweep(tmp_path, ("[0, 1, 2]", "[0, 1, 2"))
    with pytest.raises(UserError, match=r"this is not YAML.*\n.*good\.yaml, line 7"):
        sweep(tmp_path, ("contrast: 0.4}", "contrast: 0.4"))
    path = tmp_path / "list.yaml"
    path.write_text("- a\n")
    with pytest.raises(UserError, match="it holds no mapping"):
        read(path)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read(tmp_path / "none.yaml")
