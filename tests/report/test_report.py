"""A whole report of made-up runs: the golden text, what a reader must find, refusals, and --verify."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlm_lab.atomic import write_text
from mlm_lab.evaluation.glue_averages import AVERAGES, average_all
from mlm_lab.report import figures, records, results, run_tables, write
from mlm_lab.report.__main__ import main
from mlm_lab.report.rows import number
from mlm_lab.report.study import gather_known, read_study
from mlm_lab.sweep.sweep_file import Tune
from tests.report import synthetic

GOLDEN = Path(__file__).with_name("golden_report.md")
FIGURES = ["score.svg", "scores.svg", "curves.svg", "flops.svg", "differences.svg"]


def write_rough_study(root: Path) -> None:
    """Three ratios, three seeds, and all that can go wrong: a failed run, one never started, one on the plateau, a collapsed fine-tuning,
    a damaged folder, a run of no arm."""
    folders = synthetic.write_study(root)
    failed, missing = folders[1], folders[5]
    synthetic.edit_summary(failed, status="failed", weights_sha256=None, evaluation={}, error="UserError: the loss is not finite")
    shutil.rmtree(missing)
    stuck = {"probe/mlm_15_loss": 6.38, "left_plateau": False, "plateau_left_step": None}
    synthetic.write_run(root / "runs", seed=10, config={"objective.mask_ratio": 0.8}, metrics=stuck)
    collapsed = {"pydocs_entities": {"f1": synthetic.entry([0.0], floor=[0.31, 0.33, 0.32], collapsed=[10])}}
    synthetic.write_run(root / "runs", seed=12, config={"objective.mask_ratio": 0.8}, evaluation=collapsed)
    synthetic.write_run(root / "runs", seed=10, config={"objective.mask_ratio": 0.5})
    damaged = root / "runs" / "0123456789ab"
    damaged.mkdir()
    (damaged / "summary.json").write_text("{", encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """kind -> a folder with a study of that kind and its report, made once; each test has a copy."""
    kinds = {"rough": write_rough_study, "whole": synthetic.write_study, "tuned": synthetic.write_tuned_study}

    @cache
    def make(kind: str) -> Path:
        root = tmp_path_factory.mktemp(kind)
        kinds[kind](root)
        with contextlib.chdir(root):
            assert main(["ratios"]) == 0
        return root

    return make


def copied(source: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a copy of a folder. Returns its experiments/ratios."""
    shutil.copytree(source, place, dirs_exist_ok=True)
    monkeypatch.chdir(place)
    return place / "experiments" / "ratios"


@pytest.fixture
def rough(made: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made("rough"), tmp_path, monkeypatch)


@pytest.fixture
def whole(made: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made("whole"), tmp_path, monkeypatch)


@pytest.fixture
def tuned(made: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made("tuned"), tmp_path, monkeypatch)


def test_the_report_of_a_rough_study_is_the_golden_one(rough: Path) -> None:
    """Where a change is meant: python -m tests.report.test_report writes the golden file anew; read the difference."""
    assert (rough / "report.md").read_text(encoding="utf-8") == GOLDEN.read_text(encoding="utf-8")


def test_the_top_says_that_nothing_was_learnt(rough: Path) -> None:
    told = "1 of 7 runs never left the unigram plateau"
    for file, mark in (("report.md", "## Results"), ("report.html", "<h2>Results</h2>")):
        top = (rough / file).read_text(encoding="utf-8").partition(mark)[0]
        assert told in top and "mask_ratio=0.8" in top.partition(told)[2].splitlines()[0]


def test_where_every_run_left_the_plateau_the_top_is_silent(whole: Path) -> None:
    assert "plateau" not in (whole / "report.md").read_text(encoding="utf-8").partition("## Results")[0]


def test_the_answer_comes_first(whole: Path) -> None:
    lines = (whole / "report.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Which masking ratio serves an encoder best, at equal corpus tokens?"
    assert "`mask_ratio=0.4` against `mask_ratio=0.15` by `probe/mlm_15_loss`: **better**" in lines[4]
    headings = [line[3:] for line in lines if line.startswith("## ")]
    assert headings[:3] == ["What was run and measured", "Results", "Figures"] and headings[-1] == "Where the numbers are"


def test_the_numbers_are_those_of_the_runs(whole: Path) -> None:
    rows = results.read(whole / "results.csv")
    losses = [number(row, "probe/mlm_15_loss") for row in rows if row["arm"] == "mask_ratio=0.4"]
    assert len(losses) == 3 and f"{sum(losses) / 3:.4f}" in (whole / "report.md").read_text(encoding="utf-8")


def test_making_it_again_gives_the_same_bytes(whole: Path) -> None:
    before = {file.name: file.read_bytes() for file in whole.iterdir()}
    assert set(before) == {"report.md", "report.html", "tables.tex", "results.csv", "curves.csv", *FIGURES}
    assert main(["ratios"]) == 0
    assert {file.name: file.read_bytes() for file in whole.iterdir()} == before


def test_the_report_stands_when_the_folders_are_gone(whole: Path) -> None:
    before = {file.name: file.read_bytes() for file in whole.iterdir()}
    shutil.rmtree(Path("runs"))
    assert main(["ratios", "--verify"]) == 0
    assert main(["ratios"]) == 0
    assert {file.name: file.read_bytes() for file in whole.iterdir()} == before


def test_arms_left_out_on_the_command_line_are_not_missing_when_the_folders_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep file has three ratios; the sweep was run with two of them, under a name of its own."""
    monkeypatch.chdir(tmp_path)
    folders = synthetic.write_study(Path(), ratios=(0.15, 0.4))
    synthetic.write_records(Path(), folders)
    assert main(["ratios"]) == 0
    report = Path("experiments/ratios/report.md").read_text(encoding="utf-8")
    assert "All 6 runs of the grid are finished." in report
    shutil.rmtree(Path("runs"))
    assert main(["ratios", "--verify"]) == 0
    Path("sweeps/ratios.yaml").rename("sweeps/asked.yaml")
    shutil.move("experiments/ratios", "experiments/two_ratios")
    assert main(["two_ratios", "sweep=sweeps/asked.yaml"]) == 0
    report = Path("experiments/two_ratios/report.md").read_text(encoding="utf-8")
    assert "`two_ratios`" in report and "python -m mlm_lab.report two_ratios sweep=sweeps/asked.yaml --verify" in report


def test_runs_of_another_machine_are_added(whole: Path) -> None:
    """Another output_dir with further seeds; the first one's folders are not at hand."""
    shutil.rmtree(Path("runs"))
    synthetic.write_sweep(Path(), synthetic.SWEEP.replace("[10, 11, 12]", "[10, 11, 12, 13]"))
    for ratio in (0.15, 0.4, 0.8):
        synthetic.write_run(Path("elsewhere"), seed=13, config={"objective.mask_ratio": ratio})
    assert main(["ratios", "output_dir=elsewhere"]) == 0
    assert len(results.read(whole / "results.csv")) == 12
    assert "All 12 runs of the grid are finished." in (whole / "report.md").read_text(encoding="utf-8")


def change_mean(folder: Path) -> None:
    file = folder / "report.md"
    text = file.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| **mask_ratio=0.4** | 3 | 4."))
    mean = row.split(" | ")[2]
    file.write_text(text.replace(row, row.replace(mean, "4.0123")), encoding="utf-8")


def change_row(folder: Path) -> None:
    file = folder / "results.csv"
    file.write_text(file.read_text(encoding="utf-8").replace(",0.002,", ",0.003,", 1), encoding="utf-8")


def add_run(_: Path) -> None:
    synthetic.write_run(Path("runs"), seed=13, config={"objective.mask_ratio": 0.4})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (change_mean, r"report.md, line \d+: 4.0123 should be 4\.\d{4} \("),
        (change_row, r"results.csv, run \w{12}, config/optim.peak_lr: 0.003; its folder says 0.002"),
        (add_run, r"results.csv: run \w{12} is not in it; its folder is at hand"),
    ],
)
def test_verify_says_what_differs(whole: Path, change: Callable[[Path], None], told: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["ratios", "--verify"]) == 0
    change(whole)
    assert main(["ratios", "--verify"]) == 1
    assert re.search(told, capsys.readouterr().out)


def test_verify_notices_a_row_changed_by_hand_whose_folder_is_gone(whole: Path, capsys: pytest.CaptureFixture) -> None:
    shutil.rmtree(Path("runs"))
    file = whole / "results.csv"
    loss = results.read(file)[0]["probe/mlm_15_loss"]
    file.write_text(file.read_text(encoding="utf-8").replace(loss, "3.9"), encoding="utf-8")
    assert main(["ratios", "--verify"]) == 1
    assert "should be" in capsys.readouterr().out


def test_verify_leaves_the_folder_as_it_is(whole: Path) -> None:
    change_mean(whole)
    before = {file.name: file.read_bytes() for file in whole.iterdir()}
    main(["ratios", "--verify"])
    assert {file.name: file.read_bytes() for file in whole.iterdir()} == before


def test_the_rows_are_kept_although_the_report_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    synthetic.write_study(tmp_path)
    synthetic.write_run(tmp_path / "runs", seed=13, config={"objective.mask_ratio": 0.4, "optim.peak_lr": 0.004})
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 2
    assert "optim.peak_lr" in capsys.readouterr().err
    assert len(results.read(tmp_path / "experiments" / "ratios" / "results.csv")) == 10
    assert not (tmp_path / "experiments" / "ratios" / "report.md").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing"], "no run of the study nothing is known"),
        ([], "name one study"),
        (["a", "b"], "name one study"),
        (["ratios", "outputdir=x"], "did you mean output_dir?"),
        (["experiments/ratios"], "a study's name is no path"),
        (["ratios", "sweep=nowhere.yaml"], "there is no such sweep file"),
        (["ratios", "--verify"], "there is no report yet"),
        (["ratios", "--verfy"], "unrecognized arguments"),
    ],
)
def test_mistakes_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_a_study_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Those of the run folders and those that only a report is left of; no sweep file is advised that does not exist."""
    synthetic.write_run(tmp_path / "runs", seed=10)
    synthetic.write_run(tmp_path / "runs", seed=11, study="lengths", studies=["lengths", "depths"])
    (tmp_path / "runs" / "0123456789ab").mkdir()
    (tmp_path / "runs" / "0123456789ab" / "summary.json").write_text("[]", encoding="utf-8")
    (tmp_path / "experiments" / "units").mkdir(parents=True)
    (tmp_path / "experiments" / "units" / "results.csv").write_text("config_hash\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["raitos"]) == 2
    told = capsys.readouterr().err
    assert "raitos is known; did you mean ratios?" in told and "allowed: depths, lengths, ratios, units\n" in told
    assert "mlm_lab.sweep" not in told and "output_dir=FOLDER" in told
    synthetic.write_sweep(tmp_path, study="raitos")
    assert main(["raitos"]) == 2
    assert "python -m mlm_lab.sweep sweeps/raitos.yaml --run" in capsys.readouterr().err
    assert main(["raitos", "--verify"]) == 2
    assert "there is no report yet; did you mean ratios?" in capsys.readouterr().err


def test_the_command_that_makes_a_report_first_has_every_setting(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    synthetic.write_study(tmp_path)
    sweep = synthetic.write_sweep(tmp_path, study="other")
    words = [f"output_dir={tmp_path / 'runs'}", f"experiments={tmp_path / 'kept here'}", f"sweep={sweep}", "margin=0.1"]
    assert main(["ratios", "--verify", *words]) == 2
    command = shlex.split(capsys.readouterr().err.partition("fix:")[2])
    assert command == ["python", "-m", "mlm_lab.report", "ratios", *words]
    assert main(command[3:]) == 0 == main([*command[3:], "--verify"])


def test_a_study_without_a_sweep_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    synthetic.write_study(tmp_path)
    shutil.rmtree(tmp_path / "sweeps")
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 2
    assert "factor=objective.mask_ratio" in capsys.readouterr().err
    words = ["factor=objective.mask_ratio", "metric=probe/mlm_15_loss", "baseline=0.4", "contrast=0.15"]
    assert main(["ratios", *words]) == 0
    report = tmp_path / "experiments/ratios/report.md"
    assert "`mask_ratio=0.15` against `mask_ratio=0.4`" in report.read_text(encoding="utf-8")
    assert "Bold: the arms of the primary contrast." in report.read_text(encoding="utf-8")
    assert main(["ratios", "--verify", *words]) == 0
    assert main(["ratios", *words[:3]]) == 0
    assert "Bold: the baseline." in report.read_text(encoding="utf-8")
    assert main(["ratios", "factor=objective.mask_ration"]) == 2
    assert main(["ratios", *words[:2], "baseline=0.3"]) == 2


def test_a_folder_damaged_after_a_report_leaves_its_row(whole: Path, capsys: pytest.CaptureFixture) -> None:
    before = results.read(whole / "results.csv")
    (damaged,) = [folder for folder in Path("runs").iterdir() if before[0]["config_hash"].startswith(folder.name)]
    (damaged / "summary.json").write_text("{", encoding="utf-8")
    assert main(["ratios"]) == 0
    text = (whole / "report.md").read_text(encoding="utf-8")
    told = f"`{damaged.name}`: its folder cannot be read; its row is that of results.csv: summary.json cannot be read"
    assert f"- Damaged: {told}" in text and "All 9 runs of the grid are finished." in text
    assert capsys.readouterr().err.count(told) == 1 and results.read(whole / "results.csv") == before


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("file", ["summary.json", "config.yaml"])
def test_a_run_damaged_before_the_first_report_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, recorded: bool) -> None:
    """It is told apart from one that never started wherever something says which run it is."""
    folders = synthetic.write_study(tmp_path)
    if recorded:
        synthetic.write_records(tmp_path, folders)
    (folders[4] / file).write_text("{", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 0
    text = (tmp_path / "experiments/ratios/report.md").read_text(encoding="utf-8")
    assert f"- Damaged: `{folders[4].name}`: its folder cannot be read, so it has no number: {file} cannot be read" in text
    state = "damaged" if recorded or file == "summary.json" else "not run"
    assert f"| mask_ratio=0.4 | finished | {state} | finished |" in text and "8 of 9 runs are finished" in text
    assert (f"| mask_ratio=0.4 | 11 | `{folders[4].name}` | damaged | {file} cannot be read" in text) is (state == "damaged")
    assert len(results.read(tmp_path / "experiments/ratios/results.csv")) == 8


def test_a_run_that_missed_its_hours_is_flagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write_sweep(tmp_path)
    config = {"budget.hours": 0.125, "budget.tokens": None}
    for ratio in (0.15, 0.4):
        for seed, seconds in ((10, 440.0), (11, 470.0), (12, 365.0 if ratio == 0.4 else 450.0)):
            synthetic.write_run(tmp_path / "runs", seed=seed, config=config | {"objective.mask_ratio": ratio}, metrics={"seconds": seconds})
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 0
    report = (tmp_path / "experiments/ratios/report.md").read_text(encoding="utf-8")
    told = re.findall(r"\| (\S+) \| (\d+) \| `\w+` \| trained for (\d+) seconds; its budget was (\d+) \|", report)
    assert told == [("mask_ratio=0.4", "12", "365", "450")]
    assert "Meant were 450 seconds, turned into steps beforehand; the runs took 365 to 470." in report


def test_the_page_is_one_file_that_needs_nothing_else(rough: Path) -> None:
    page = (rough / "report.html").read_text(encoding="utf-8")
    assert page.count("<script") == page.count("<script>") == 1 and not re.search(r"""(?:\bsrc|\bhref|@import)\b(?!="#)""", page)
    assert page.count("<svg") == len(FIGURES) and "url(#" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert used <= set(ids)
    assert page.count("<table>") == (rough / "report.md").read_text(encoding="utf-8").count("\n| --- |")


def test_figures_are_whole_and_have_their_labels_as_shapes(whole: Path) -> None:
    for name in FIGURES:
        text = (whole / name).read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert "<text" not in text and "<dc:date" not in text  # no font needed; nothing that changes from day to day


def test_the_tables_are_whole_in_latex(rough: Path) -> None:
    text = (rough / "tables.tex").read_text(encoding="utf-8")
    tables = (rough / "report.md").read_text(encoding="utf-8").count("\n| --- |")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == tables
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}") and not re.search(r"[#_^~]", re.sub(r"\\(?:label|resizebox)\{.*", "", bare))
    for head, body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert rows and all(len(re.findall(r"(?<!\\)&", row)) == len(head) - 1 for row in rows)
    labels = re.findall(r"\\label\{([^}]+)\}", text)
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("kind", ["rough", "tuned"])
def test_the_tables_compile(made: Callable[[str], Path], kind: str, tmp_path: Path) -> None:
    """In a document that has what the head of tables.tex names, and nothing else."""
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex with booktabs, which is not on this machine")
    shutil.copy(made(kind) / "experiments" / "ratios" / "tables.tex", tmp_path)
    packages = r"\documentclass{article}\usepackage{booktabs}\usepackage{graphicx}"
    (tmp_path / "paper.tex").write_text(packages + r"\begin{document}\input{tables}\end{document}", encoding="utf-8")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and "Overfull" not in done.stdout, done.stdout[-2000:]


@pytest.mark.parametrize(
    ("error", "code", "outside"),
    [
        ("MemoryError", 1, True),
        ("torch.OutOfMemoryError: too much", 1, True),
        ("Reading the corpus", -9, True),
        ("Reading the corpus", -11, False),
        ("Reading the corpus", 1, False),
    ],
)
def test_a_point_that_failed_without_a_folder_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, code: int, outside: bool
) -> None:
    folders = synthetic.write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    synthetic.write_records(tmp_path, folders)
    gone = folders[4]
    synthetic.edit_record(tmp_path, gone, error=["Traceback", error, ""], exit_code=code)
    shutil.rmtree(gone)
    assert main(["ratios"]) == 0
    text = (tmp_path / "experiments/ratios/report.md").read_text(encoding="utf-8")
    assert "8 of 9 runs are finished" in text and f"| mask_ratio=0.4 | 11 | `{gone.name}` | failed | {error} |" in text
    assert ("failed by itself" in text) is not outside
    shutil.rmtree(tmp_path / "runs")
    assert main(["ratios", "--verify"]) == 0


def test_a_choice_at_the_end_of_the_values_is_marked() -> None:
    declared = Tune(key="optim.peak_lr", values=(0.001, 0.002, 4e-3), metric="val/loss", goal="minimize", seed=0, budget_share=0.25)
    arms = {
        "low": {"best": 0.001, "shared": False, "scores": {"0.001": 5.0, "0.002": 5.1, "0.004": 5.2}},
        "middle": {"best": 0.002, "shared": True, "scores": {"0.001": 5.2, "0.002": 5.1, "0.004": 5.2}},
        "high": {"best": 0.004, "shared": False, "scores": {"0.001": 5.2, "0.002": 5.1, "0.004": 5.0}},
        "none": {"best": None, "shared": False, "scores": {"0.001": None, "0.002": None, "0.004": None}},
    }
    table = run_tables.tuning({"arms": arms}, declared, SimpleNamespace(baseline="low", contrast="high"))
    assert [row[-1] for row in table.rows] == ["0.001 (at the end)", "0.002 (the common one)", "0.004 (at the end)", "-"]
    assert "a better one may lie beyond" in table.note


def test_each_arm_at_its_own_rate(tuned: Path) -> None:
    text = (tuned / "report.md").read_text(encoding="utf-8")
    assert "**Primary contrast**, named before the runs, with each arm at its own `optim.peak_lr`: `mask_ratio=0.4` against" in text
    assert "| **mask_ratio=0.15** | 5.2000 | 5.1000 | 0.002 (the common one) |" in text
    assert "| **mask_ratio=0.4** | 5.2000 | 5.3000 | 0.001 |" in text
    assert "Those runs test nothing" in text and "score_tuned.svg" in text
    common = re.search(r"\*\*probe/mlm_15_loss, every run\*\*.*?\| \*\*mask_ratio=0.4\*\* \| 2 \| (\S+)", text, flags=re.DOTALL)
    own = re.search(r"each arm at its own rate\*\*.*?\| \*\*mask_ratio=0.4\*\* \| 2 \| (\S+)", text, flags=re.DOTALL)
    assert common and own and float(own[1]) == pytest.approx(float(common[1]) - 0.5, abs=2e-4)
    shutil.rmtree(Path("runs"))  # the rows know their tables, and tune.json lies beside them
    assert json.loads((tuned / "tune.json").read_text())["key"] == "optim.peak_lr"
    assert main(["ratios", "--verify"]) == 0


def test_a_study_that_tunes_has_one_primary_contrast_and_that_at_the_arms_own_rates(tuned: Path) -> None:
    study = read_study("ratios", synthetic.places(Path()), {}, gather_known("ratios", synthetic.places(Path())))
    contrasts = [table.primary.comparison.contrasts for table in (study.common, study.tuned)]
    assert [[contrast.arm for contrast in of_table if contrast.primary] for of_table in contrasts] == [[], ["mask_ratio=0.4"]]
    top, _, rest = (tuned / "report.md").read_text(encoding="utf-8").partition("## Results at the common rate")
    assert top.count("**Primary contrast**") == 1
    assert "Beside it, with every arm at the common `optim.peak_lr`, a secondary contrast, corrected" in top
    assert "### `probe/mlm_15_loss`, each arm at its own rate (primary)" in rest and "### `probe/mlm_15_loss`\n" in rest
    assert "the one with each arm at its own value" in rest


def test_what_is_said_of_all_runs_holds_of_those_at_their_own_rates_too(tuned: Path) -> None:
    text = (tuned / "report.md").read_text(encoding="utf-8")
    assert "All runs have alike" in text and "optim.peak_lr=" not in text
    assert "against `mask_ratio=0.15`, each arm at its own rate" in text.partition("## What was paired")[2]
    assert "Ours are those with each arm at its own rate." in text


def test_a_missing_run_says_at_which_rate(tuned: Path) -> None:
    """The common run is there, the one at the arm's own rate is not."""
    gone = next(path.parent for path in Path("runs").glob("*/config.yaml") if "peak_lr: 0.001" in path.read_text())
    shutil.rmtree(gone)
    (tuned / "results.csv").unlink()
    assert main(["ratios"]) == 0
    assert re.search(r"\| mask_ratio=0.4 \| its own \| 1[01] \| - \| not run \| - \|", (tuned / "report.md").read_text(encoding="utf-8"))


def test_further_values_that_changed_the_choice_take_the_former_runs_out_of_the_tuned_table(tuned: Path) -> None:
    """0.15 had the common rate as its own; a third value beats it, and its runs are to come."""
    file = Path("runs/sweeps/ratios/tune.json")
    tune = json.loads(file.read_text())
    tune["arms"]["mask_ratio=0.15"] |= {"best": 0.004, "shared": False}
    file.write_text(json.dumps(tune))
    assert main(["ratios"]) == 0
    study = read_study("ratios", synthetic.places(Path()), {}, gather_known("ratios", synthetic.places(Path())))
    assert list(study.common.by_arm) == ["mask_ratio=0.15", "mask_ratio=0.4"] and list(study.tuned.by_arm) == ["mask_ratio=0.4"]


def test_runs_at_a_rate_that_is_not_chosen_any_more_stay_out_where_their_folders_are_gone(tuned: Path) -> None:
    """0.4 had 0.001 as its own, in runs of the tuned table alone; a third value beats it."""
    file = tuned / "tune.json"
    shutil.rmtree("runs")
    tune = json.loads(file.read_text())
    tune["arms"]["mask_ratio=0.4"]["best"] = 0.004
    file.write_text(json.dumps(tune))
    for _ in range(2):  # the second time from points.json alone
        assert main(["ratios"]) == 0
    assert main(["ratios", "--verify"]) == 0
    study = read_study("ratios", synthetic.places(Path()), {}, gather_known("ratios", synthetic.places(Path())))
    assert {arm: len(rows) for arm, rows in study.common.by_arm.items()} == {"mask_ratio=0.15": 2, "mask_ratio=0.4": 2}
    assert list(study.tuned.by_arm) == ["mask_ratio=0.15"]


def test_a_score_that_is_not_defined_any_more_is_none(whole: Path) -> None:
    """An evaluation done again found every fine-tuning collapsed: the mean of before does not stand for it."""
    folder = sorted(path.parent for path in Path("runs").glob("*/summary.json"))[0]
    found = {"n": 3, "mean": None, "std": None, "median": None, "collapsed": [0, 1, 2], "failed": []}
    synthetic.edit_summary(folder, evaluation={"pydocs_entities": {"f1": found}})
    assert main(["ratios"]) == 0
    (row,) = (row for row in results.read(whole / "results.csv") if row["config_hash"].startswith(folder.name))
    assert "pydocs_entities/f1" not in row and "pydocs_entities/f1/floor" not in row and row["pydocs_entities/f1/collapsed"] == "3"


def test_arms_tuned_on_two_machines_are_put_together(tmp_path: Path) -> None:
    how = {"key": "optim.peak_lr", "metric": "val/loss", "goal": "minimize", "seed": 0, "budget_share": 0.25, "values": [1, 2]}
    for place, arm in (("here", "a"), ("there", "b")):
        cost = {"runs": 2, "seconds": 10.0}
        found = {**how, "common": {arm: 1}, "arms": {arm: {"best": 1, "cost": cost}}, "cost": cost}
        (tmp_path / place).mkdir()
        (tmp_path / place / "tune.json").write_text(json.dumps(found))
    both = records.read_tune(tmp_path / "here", tmp_path / "there", tmp_path / "nowhere")
    assert set(both["arms"]) == set(both["common"]) == {"a", "b"} and both["cost"] == {"runs": 4, "seconds": 20.0}
    (tmp_path / "there" / "tune.json").write_text(json.dumps({**found, "seed": 1}))
    assert set(records.read_tune(tmp_path / "here", tmp_path / "there")["arms"]) == {"a"}


def test_until_runs_at_the_arms_own_rates_are_there_the_primary_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune = "tune: {key: optim.peak_lr, values: [0.001, 0.002], metric: val/loss, goal: minimize, seed: 0, budget_share: 0.25}"
    synthetic.write_study(tmp_path)
    synthetic.write_sweep(tmp_path, synthetic.SWEEP.replace("ordered: true", tune))
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 0
    lines = Path("experiments/ratios/report.md").read_text(encoding="utf-8").splitlines()
    assert lines[4].endswith("by `probe/mlm_15_loss`: **open**: no run at an arm's own rate is finished.")
    assert lines[6].startswith("Beside it") and ": **better**. The difference is" in lines[6]
    assert "interval for all arms at once" in lines[6]


def test_the_averages_over_glue_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the evaluation leaves them: each average of the same scores, under its name. One is primary, one was named, one was not."""
    text = synthetic.SWEEP.replace("probe/mlm_15_loss", "glue/nine_columns").replace("goal: minimize", "goal: maximize")
    text = text.replace("pydocs_entities/f1, val/loss", "glue/eight_tasks").replace("[0.15, 0.4, 0.8]", "[0.15, 0.4]")
    synthetic.write_sweep(tmp_path, text.replace("wettig_mask_rate_sweep_large", "electra_t5_efficiency"))
    names = list(dict.fromkeys(name for columns in AVERAGES.values() for column in columns for name in column))
    for ratio in (0.15, 0.4):
        for seed in (10, 11, 12):
            tasks: dict[str, dict] = {}
            for place, name in enumerate(names):  # each score another, so that no two averages are one number
                task, _, metric = name.partition("/")
                score = 0.5 + 0.02 * place + ratio / 2 + 0.0005 * ((seed * round(100 * ratio)) % 3)
                tasks.setdefault(task, {})[metric] = synthetic.entry([score])
            averages, lacking = average_all(tasks)
            assert not lacking
            config = {"objective.mask_ratio": ratio}
            synthetic.write_run(tmp_path / "runs", seed=seed, config=config, evaluation={**tasks, "glue": averages})
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 0
    report = (tmp_path / "experiments/ratios/report.md").read_text(encoding="utf-8")
    assert "by `glue/nine_columns`: **better**" in report and "### `glue/nine_columns` (primary)" in report
    expected = {name: value["mean"] for name, value in averages.items()}  # of the last run
    assert len({f"{value:.4f}" for value in expected.values()}) == len(AVERAGES)
    for name in ("nine_columns", "eight_tasks"):
        section = report[report.index(f"### `glue/{name}`") :]
        assert float(re.search(r"\*\*mask_ratio=0.4\*\* \| 3 \| (\S+)", section)[1]) == pytest.approx(expected[name], abs=0.002)
    official = re.search(r"\| `glue/official` \| \S+ ± \S+ \(3\) \| (\S+) ±", report)  # not named before the runs: described
    assert float(official[1]) == pytest.approx(expected["official"], abs=0.002)
    assert "GLUE averages are named: nine_columns (BERT's" in report and "| GLUE average (eight_tasks) |" in report


if __name__ == "__main__":
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        write_rough_study(Path(scratch))
        os.chdir(scratch)
        main(["ratios"])
        shutil.copy("experiments/ratios/report.md", GOLDEN)


def test_report_md_comes_last(tmp_path, monkeypatch):
    """verify judges by it: where it is new, everything beside it is."""
    synthetic.write_study(tmp_path)
    written = []
    original = write_text
    for module in (results, figures, write):
        monkeypatch.setattr(module, "write_text", lambda file, content: (written.append(file.name), original(file, content)))
    write.write_report("ratios", synthetic.places(tmp_path), {})
    assert written[-1] == "report.md" and {"report.html", "tables.tex", "results.csv"} < set(written)
