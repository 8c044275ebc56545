"""From rows to what the report says: which runs count, which are set apart, and what the words of a document become."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlm_lab.evaluation.summary import summarise
from mlm_lab.report import analysis, html, latex, markdown, pairs, run_tables, tables
from mlm_lab.report.document import Bullets, Document, Heading, Paragraph, Table
from mlm_lab.report.gather import gather
from mlm_lab.report.methods import methods
from mlm_lab.report.sections import _own_spread, _split, compose_document
from mlm_lab.report.study import Study, gather_known, read_study
from mlm_lab.report.units import interval, p_value, scale_of, score, unit_of
from tests.report import synthetic


def read(root: Path) -> Study:
    places = synthetic.places(root)
    return read_study("ratios", places, {}, gather_known("ratios", places))


def test_the_main_table_keeps_a_run_on_the_plateau_and_the_second_does_not(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    stuck = {"probe/mlm_15_loss": 1.0, "left_plateau": False, "plateau_left_step": None}  # the best number of all
    synthetic.write_run(tmp_path / "runs", seed=10, config={"objective.mask_ratio": 0.8}, metrics=stuck)
    table = read(tmp_path).common
    primary = table.primary
    assert primary.cells["mask_ratio=0.8"].n == 3 and primary.escaped.cells["mask_ratio=0.8"].n == 2
    assert primary.escaped.cells["mask_ratio=0.4"].n == 3
    assert (table.plateau["mask_ratio=0.8"].k, table.plateau["mask_ratio=0.8"].n) == (2, 3)
    contrast = next(found for found in primary.comparison.contrasts if found.arm == "mask_ratio=0.8")
    assert contrast.verdict != "better" and not contrast.pooled


def test_a_collapsed_run_counts_on_its_own_task(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    tasks = {"pydocs_entities": {"f1": synthetic.entry([0.0], collapsed=[10])}}
    synthetic.write_run(tmp_path / "runs", seed=10, config={"objective.mask_ratio": 0.8}, evaluation=tasks)
    by_name = {result.column.metric: result for result in read(tmp_path).common.metrics}
    assert by_name["pydocs_entities/f1"].escaped.cells["mask_ratio=0.8"].n == 2
    assert by_name["pydocs_entities/f1"].cells["mask_ratio=0.8"].n == 3 and by_name["probe/mlm_15_loss"].escaped is None


def test_a_failed_run_has_no_number(tmp_path: Path) -> None:
    folders = synthetic.write_study(tmp_path)
    synthetic.edit_summary(folders[0], status="failed")
    assert read(tmp_path).common.primary.cells["mask_ratio=0.15"].n == 2


def verdict_of(table: analysis.Table, metric: str, arm: str) -> str:
    (result,) = (result for result in table.metrics if result.column.metric == metric)
    return next(contrast.verdict for contrast in result.comparison.contrasts if contrast.arm == arm)


NOT_FINITE = "UserError: the loss or its gradient is not finite: 20 steps in a row were skipped"


@pytest.mark.parametrize(
    ("fields", "is_outcome"),
    [
        ({"error": NOT_FINITE.replace("UserError", "Diverged"), "failure": "diverged"}, True),
        ({"error": "ValueError: nan", "failure": "fault"}, True),
        ({"error": "UserError: the disk is full", "failure": "outside"}, False),
        ({"error": NOT_FINITE}, True),  # as runs were recorded before `failure` was
        ({"error": "UserError: out of memory"}, False),
        ({"error": "ValueError: nan"}, True),
    ],
)
def test_trap_33_the_survivors_of_an_arm_that_diverged_are_never_better(tmp_path: Path, fields: dict, is_outcome: bool) -> None:
    """Two of five seeds have no number; the other three are the best runs of all."""
    seeds = (10, 11, 12, 13, 14)
    synthetic.write_study(tmp_path, seeds=seeds)
    assert verdict_of(read(tmp_path).common, "probe/mlm_15_loss", "mask_ratio=0.4") == "better"
    lost = [synthetic.write_run(tmp_path / "runs", seed=seed, config={"objective.mask_ratio": 0.4}) for seed in (10, 13)]
    for folder in lost:
        synthetic.edit_summary(folder, status="failed", weights_sha256=None, evaluation={}, **fields)
    study = read(tmp_path)
    told = "not compared: 2 of 5 runs failed" if is_outcome else "better"
    assert verdict_of(study.common, "probe/mlm_15_loss", "mask_ratio=0.4") == told
    assert verdict_of(study.common, "pydocs_entities/f1", "mask_ratio=0.4") == told
    assert ("2 runs failed by themselves" in markdown.render(compose_document(study, {}))) is is_outcome


@pytest.mark.parametrize("floor", [[0.31, 0.33], None])
def test_trap_33_nor_are_those_of_fine_tunings_that_diverged(tmp_path: Path, floor: list | None) -> None:
    """One run has lost one of its fine-tunings, another all of them: its task has no other metric than none, where there is no floor."""
    seeds, metric, arm = (10, 11, 12, 13, 14), "pydocs_entities/f1", "mask_ratio=0.4"
    synthetic.write_study(tmp_path, seeds=seeds)
    assert verdict_of(read(tmp_path).common, metric, arm) == "better"
    config = {"objective.mask_ratio": 0.4}
    tasks = {"pydocs_entities": {"f1": synthetic.entry([0.6], floor=floor, failed=[1])}}
    synthetic.write_run(tmp_path / "runs", seed=10, config=config, evaluation=tasks)
    table = read(tmp_path).common
    assert verdict_of(table, metric, arm) == "not compared: 1 of 5 runs with a failed fine-tuning"
    assert verdict_of(table, "probe/mlm_15_loss", arm) == "better"
    (result,) = (result for result in table.metrics if result.column.metric == metric)
    assert (result.cells[arm].n, result.escaped.cells[arm].n) == (5, 4)
    cells = {0: {"status": "failed", "reason": "nan", "failure": "diverged"}}
    starts = {seed: {"status": "finished", "metrics": {"f1": value}, "collapsed": False} for seed, value in enumerate(floor or [])}
    synthetic.write_run(tmp_path / "runs", seed=11, config=config, evaluation={"pydocs_entities": summarise(cells, starts, {}, "")})
    told = "no defined score with seed 11" if floor else "2 of 5 runs with a failed fine-tuning"
    assert told in verdict_of(read(tmp_path).common, metric, arm)


def test_an_undefined_score_is_not_left_out(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    undefined = dict.fromkeys(("mean", "std", "median")) | {"n": 1, "values": [None], "collapsed": [], "failed": []}
    tasks = {"pydocs_entities": {"f1": undefined}}
    synthetic.write_run(tmp_path / "runs", seed=10, config={"objective.mask_ratio": 0.8}, evaluation=tasks)
    result = next(result for result in read(tmp_path).common.metrics if result.column.metric == "pydocs_entities/f1")
    assert result.cells["mask_ratio=0.8"].n == 3 and result.cells["mask_ratio=0.8"].mean is None


def test_what_nobody_named_is_not_tested(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    results = {result.column.metric: result for result in read(tmp_path).common.metrics}
    assert results["probe/mlm_15_accuracy"].comparison is None and not results["probe/mlm_15_accuracy"].named
    assert results["pydocs_entities/f1"].comparison is not None


def test_seeds_of_a_pilot_are_shown_and_test_nothing(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path, seeds=(9, 10, 11, 12))
    synthetic.write_sweep(tmp_path, synthetic.SWEEP.replace("  ordered: true\n", "  ordered: true\n  pilot_seeds: [9]\n"))
    study = read(tmp_path)
    primary = study.common.primary
    assert primary.cells["mask_ratio=0.4"].n == 4 and {contrast.n for contrast in primary.comparison.contrasts} == {3}
    assert "with the seeds 9 chose what is tested" in str(methods(study))


def test_what_became_of_a_pilots_runs_is_no_reason_against_an_arm(tmp_path: Path) -> None:
    """One is on the plateau, one with a collapsed fine-tuning, one diverged: they chose what is tested, and test nothing."""
    synthetic.write_study(tmp_path, seeds=(7, 8, 9, 10, 11, 12))
    synthetic.write_sweep(tmp_path, synthetic.SWEEP.replace("  ordered: true\n", "  ordered: true\n  pilot_seeds: [7, 8, 9]\n"))
    config, runs, metrics = {"objective.mask_ratio": 0.4}, tmp_path / "runs", ("probe/mlm_15_loss", "pydocs_entities/f1")
    before = [verdict_of(read(tmp_path).common, metric, "mask_ratio=0.4") for metric in metrics]
    synthetic.write_run(runs, seed=7, config=config, metrics={"left_plateau": False, "plateau_left_step": None})
    collapsed = {"pydocs_entities": {"f1": synthetic.entry([0.0], collapsed=[10])}}
    synthetic.write_run(runs, seed=8, config=config, evaluation=collapsed)
    synthetic.edit_summary(synthetic.write_run(runs, seed=9, config=config), status="failed", failure="diverged")
    assert before == ["better", "better"] == [verdict_of(read(tmp_path).common, metric, "mask_ratio=0.4") for metric in metrics]


def test_a_budget_has_the_heads_share(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    budget = read(tmp_path).common.budgets["mask_ratio=0.15"]
    assert budget.head_share == pytest.approx(1.3 * 0.30 / (5.5 * 1.15)) and budget.means["tokens"] == synthetic.TOKENS


def test_the_share_of_examples_in_the_training_text_is_told(tmp_path: Path) -> None:
    found = {"cola": {"dev": {"examples": 100, "shared": 3, "too_short": 0, "share": 0.03}}}
    synthetic.write_sweep(tmp_path)
    for ratio in (0.15, 0.4):
        synthetic.write_run(tmp_path / "runs", seed=10, config={"objective.mask_ratio": ratio}, overlap=found)
    assert run_tables.overlap(read(tmp_path).common).rows == [["cola/dev", "3.0 %", "3.0 %"]]


@pytest.mark.parametrize(
    ("config", "common"),
    [
        ({"objective.mask_ratio": 0.4}, ["weights", "order", "masks"]),
        ({"objective.unit": "word"}, ["weights", "order"]),
        ({"model.num_layers": 4}, ["order", "masks"]),
        ({"objective._target_": "mlm_lab.objectives.rtd.RTD"}, []),
        ({"max_length": 64}, ["weights"]),
        ({"seeds.init": 5}, ["order", "masks"]),
    ],
)
def test_what_runs_of_one_seed_share(tmp_path: Path, config: dict, common: list[str]) -> None:
    synthetic.write_run(tmp_path / "a", seed=10)
    synthetic.write_run(tmp_path / "b", seed=10, config=config)
    ours, theirs = (gather(tmp_path / name, "ratios").rows for name in "ba")
    assert pairs.shared(ours, theirs) == common


MLM = {"objective._target_": "mlm_lab.objectives.mlm.MLM", "objective.input_format": "full_sentences"}
SPANS = {"objective._target_": "mlm_lab.objectives.span_corruption.SpanCorruption", "objective.cross_documents": True}
PAIRS = {"objective._target_": "mlm_lab.objectives.mlm_nsp.MLMNSP", "objective.short_seq_prob": 0.1}


@pytest.mark.parametrize(
    ("ours", "theirs", "alike"),
    [
        (MLM, {**MLM, "objective._target_": "mlm_lab.objectives.rtd.RTD"}, True),
        (MLM, {**MLM, "objective.input_format": "contiguous"}, False),
        (MLM, {**MLM, "objective.mask_ratio": 0.4}, True),
        (MLM, PAIRS, False),
        (PAIRS, {**PAIRS, "objective.mask_ratio": 0.4}, True),
        (PAIRS, {**PAIRS, "objective._target_": "mlm_lab.objectives.sop.SOP"}, False),
        (PAIRS, {**PAIRS, "objective.short_seq_prob": 0.0}, False),
        (MLM, SPANS, False),
        (SPANS, {**SPANS, "objective.mask_ratio": 0.4}, False),
        (SPANS, {**SPANS, "objective.roll": True}, True),
    ],
)
def test_the_order_is_shared_by_what_cuts_the_text_into_the_same_rows(tmp_path: Path, ours: dict, theirs: dict, alike: bool) -> None:
    for name, config in (("a", ours), ("b", theirs)):
        synthetic.write_run(tmp_path / name, seed=10, config=config)
    found = pairs.shared(*(gather(tmp_path / name, "ratios").rows for name in "ab"))
    assert ("order" in found) is alike


def test_runs_of_other_seeds_share_nothing(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path / "a", seed=10)
    synthetic.write_run(tmp_path / "b", seed=11)
    assert pairs.shared(*(gather(tmp_path / name, "ratios").rows for name in "ab")) == []


TABLE = Table("t", "A <table>", ["arm", "`val/loss`", "p"], [["x|y_z", "1.5 to 2", "< 0.001"], ["**b**", "-", "-"]], "A note: 5 % & more.")
DOCUMENT = Document("Is *it*?", [Heading("One"), Paragraph("a < b"), Bullets(["`c_d`"]), TABLE])


def test_a_document_in_markdown() -> None:
    assert markdown.render(DOCUMENT) == (
        "# Is \\*it\\*?\n\n## One\n\na &lt; b\n\n- `c_d`\n\n**A &lt;table&gt;**\n\n"
        "| arm | `val/loss` | p |\n| --- | ---: | ---: |\n| x\\|y_z | 1.5 to 2 | &lt; 0.001 |\n| **b** | - | - |\n\n"
        "A note: 5 % &amp; more.\n"
    )


def test_a_document_in_html() -> None:
    page = html.render(DOCUMENT, {})
    assert "<title>Is *it*?</title>" in page and "<p>a &lt; b</p>" in page and "<li><code>c_d</code></li>" in page
    assert '<td>x|y_z</td><td class="r">1.5 to 2</td>' in page and "<td><strong>b</strong></td>" in page


def test_a_document_in_latex() -> None:
    text = latex.render(DOCUMENT, "a_b")
    assert r"\begin{tabular}{lrr}" in text and r"x\textbar{}y\_z & 1.5 to 2 & $<$ 0.001 \\" in text
    assert r"\caption{A $<$table$>$. A note: 5 \% \& more.}" in text and r"\label{tab:a_b-t}" in text


def test_a_row_of_latex_may_begin_with_a_bracket() -> None:
    """After the end of a row a bracket or a star would be read as its option, and the table would not compile."""
    table = Table("t", "T", ["mix", "n"], [["a|b", "1"], ["[0.8, 0.1, 0.1]", "2"], ["*", "3"]])
    text = latex.render(Document("T", [table]), "t")
    assert "\n{}[0.8, 0.1, 0.1] & 2" in text and "\n{}* & 3" in text and r"a\textbar{}b & 1" in text


def test_a_column_of_dashes_stands_where_its_numbers_would() -> None:
    table = Table("t", "T", ["arm", "p", "verdict", "error"], [["a", "-", "baseline", ""], ["b", "-", "-", ""]])
    assert [table.at_right(column) for column in range(4)] == [False, True, False, False]


def test_how_numbers_are_written() -> None:
    assert score(0.12345) == "0.1235" and score(-1234.5, sign=True) == "-1234.50" and score(None) == "-" == score(float("nan"))
    assert interval(-1.0, 2.0, sign=True) == "-1.0000 to +2.0000" and interval(None, 1.0) == "-"
    assert [p_value(p) for p in (0.0004, 0.012, 0.0496, 0.0504, None)] == ["< 0.001", "0.012", "0.0496", "0.0504", "-"]
    assert unit_of("probe/mlm_15_loss") == "nats a token" and unit_of("cola/matthews") == ""
    assert unit_of("held_out_text/bits_per_character") == "bits a character" and scale_of("held_out_text/bits_per_character") == 1
    assert scale_of("cola/matthews") == 100 and scale_of("val/loss") == 1 and scale_of("glue/nine_columns") == 100


@pytest.mark.parametrize(("gone", "pilot", "said"), [(0, (), False), (1, (), True), (1, (12,), False)])
def test_differences_that_are_adjusted_for_missing_seeds_say_so(tmp_path: Path, gone: int, pilot: tuple, said: bool) -> None:
    folders = synthetic.write_study(tmp_path)
    for folder in folders[-1:] * gone:  # the last arm's seed 12
        shutil.rmtree(folder)
    study = read(tmp_path)
    note = tables._main_table(study.common.primary, replace(study.declaration, pilot_seeds=pilot), "table", "").note
    assert ("have not the same seeds" in note) is said


def test_what_stands_in_several_columns_is_a_line_for_each_task() -> None:
    names = ["val/loss", "sst2/accuracy", *(f"blimp/{number}/accuracy" for number in range(30))]
    results = [SimpleNamespace(column=SimpleNamespace(metric=name, label=f"{name} ({arm})")) for name in names for arm in ("MLM", "RTD")]
    lines = list(_split(SimpleNamespace(metrics=results)))
    assert [line.partition(":")[0] for line in lines] == [
        "`blimp/0/accuracy` and 29 further scores of `blimp`",
        "`sst2/accuracy`",
        "`val/loss`",
    ]


def test_a_pair_whose_spread_is_its_own_shows_its_own_test(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    result = read(tmp_path).common.primary
    contrast = next(iter(result.comparison.contrasts))
    for p, shown in ((0.01, True), (0.2, False)):
        contrasts = (replace(contrast, spread_p=p, p_own=0.217), *result.comparison.contrasts[1:])
        changed = replace(result, comparison=replace(result.comparison, contrasts=contrasts))
        table = tables._main_table(changed, read(tmp_path).declaration, "table", "")
        assert ("own spread 0.217" in str(table.rows)) is shown and ("Own spread" in table.note) is shown
        told = _own_spread(replace(contrast, spread_p=p, p_own=0.217, low_own=-0.1, high_own=0.2))
        assert ("own differences give: -0.1000 to +0.2000, p = 0.217." in told) is shown
