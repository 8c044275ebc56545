"""What a person sees of a run's result."""

from __future__ import annotations

from mlm_lab.training.display import show_result

SPLIT = {"masked_loss": 5.4609, "random_loss": 5.596, "kept_loss": 2.77, "masked_accuracy": 0.17, "kept_accuracy": 0.6}


def metrics_of(*left_out: str, **more: object) -> dict[str, object]:
    values = {"loss": 5.2021, "accuracy": 0.229, **SPLIT}
    probe = {f"probe/mlm_15_generator_{name}": value for name, value in values.items() if name not in left_out}
    own = {
        "val/loss": 5.1,
        "val/mlm_accuracy": 0.23,
        "val/mlm_masked_loss": 5.4,
        "val/mlm_masked_accuracy": 0.2,
        "val/mlm_perplexity": 164.0,
    }
    return {**own, **probe, "unigram_loss": 6.537, "unigram_accuracy": 0.063, "neighbour_loss": 4.799, **more}


def lines_of(capsys, **summary: object) -> list[list[str]]:
    show_result(summary, samples=[])
    captured = capsys.readouterr()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in (captured.out + captured.err).splitlines()]


def test_probes_stand_with_their_parts_beside_the_baselines(capsys):
    metrics = metrics_of(left_plateau=True, plateau_left_step=1260)
    shown = lines_of(capsys, metrics=metrics, steps=9, budget_steps=9)
    assert ["val (the run's own task)", "5.100", "23.0 %", "mlm perplexity 164"] in shown
    assert ["probe/mlm_15_generator", "5.202", "22.9 %", "masked 5.461, random 5.596, kept 2.770"] in shown
    assert ["unigram", "6.537", "6.3 %"] in shown and ["neighbouring tokens", "4.799", "-"] in shown
    assert any("left the unigram plateau by step 1,260" in line[0] for line in shown if line)


def test_a_run_that_stays_on_the_plateau_is_marked(capsys):
    stuck = {"left_plateau": False, "plateau_left_step": None}
    words = str(lines_of(capsys, metrics=metrics_of(**stuck), steps=9, budget_steps=9))
    assert "DID NOT LEAVE" in words and "says little about the recipe" in words
    assert "plateau" not in str(lines_of(capsys, metrics=metrics_of(left_plateau=None), steps=9, budget_steps=9)), "nothing is watched"
    assert "plateau" not in str(lines_of(capsys, metrics=metrics_of())), "a run of an earlier version"


def test_a_recipe_that_never_masks_has_no_loss_for_its_probe(capsys):
    shown = lines_of(capsys, metrics=metrics_of("loss", "accuracy", "masked_loss", "masked_accuracy"))
    (row,) = [line for line in shown if line and line[0] == "probe/mlm_15_generator"]
    assert row[1:] == ["-", "-", "random 5.596, kept 2.770"]
