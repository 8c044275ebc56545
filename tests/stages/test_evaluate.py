"""The evaluate stage on a run folder: only missing cells run, and everything is recorded (traps.md 33, 34)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from mlm_lab.__main__ import answer
from mlm_lab.errors import UserError
from mlm_lab.evaluation import finetune as finetuning
from mlm_lab.evaluation.tasks import glue
from mlm_lab.run_folder import RunFolder
from mlm_lab.runner import run as run_config
from mlm_lab.stages import evaluate
from tests.stages.evaluated_run import cell_of, floor_of, make_config


def test_seeds_and_floor_are_recorded_and_shown(run, trained, capsys):
    config, folder = run
    evaluate.run(config, folder)
    entry = folder.read_summary()["evaluation"]["sst2"]["accuracy"]
    assert (entry["n"], entry["floor"]["n"], entry["floor"]["seeds"]) == (2, 3, [0, 1, 2])
    assert entry["mean"] > 0.9
    assert entry["above_floor"] == pytest.approx(entry["mean"] - entry["floor"]["mean"])
    assert len(trained) == 5
    text = capsys.readouterr().out
    assert "sst2" in text
    assert "over fine-tuning seeds of one pretraining run" in text


def test_predictions_of_every_example_are_kept(run):
    config, folder = run
    evaluate.run(config, folder)
    files = sorted((folder.path / "evaluation/sst2").glob("seed_*/pretrained/predictions.jsonl"))
    assert len(files) == 2
    rows = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert [row["index"] for row in rows] == list(range(40))
    right = sum(row["gold"] == row["prediction"] for row in rows) / 40
    assert right == pytest.approx(json.loads((files[0].parent / "result.json").read_text())["metrics"]["accuracy"])


def test_only_missing_cells_run(run, trained, files, tmp_path):
    config, folder = run
    evaluate.run(config, folder)
    first = folder.read_summary()["evaluation"]
    trained.clear()
    evaluate.run(config, folder)
    assert trained == []
    assert folder.read_summary()["evaluation"] == first
    evaluate.run(make_config(tmp_path, files, "evaluation.tasks=[sst2,wnut17]", "evaluation.seeds=3"), folder)
    assert [title for title in trained if title.startswith("sst2")] == ["sst2, pretrained, seed 2"]
    assert len([title for title in trained if title.startswith("wnut17")]) == 6
    assert folder.read_summary()["evaluation"]["sst2"]["accuracy"]["values"][:2] == first["sst2"]["accuracy"]["values"]


def test_cells_of_overlapping_seeds_are_shared(run, trained, files, tmp_path):
    _, folder = run
    evaluate.run(make_config(tmp_path, files), folder)
    trained.clear()
    evaluate.run(make_config(tmp_path, files, "seeds.finetune=1"), folder)
    assert trained == ["sst2, pretrained, seed 2"]


def test_another_protocol_or_other_examples_are_other_cells(run, trained, files, tmp_path):
    config, folder = run
    evaluate.run(config, folder)
    trained.clear()
    evaluate.run(make_config(tmp_path, files, "evaluation.epochs=1"), folder)
    assert len(trained) == 5
    trained.clear()
    with (files / "glue/SST-2/train.tsv").open("a") as file:
        file.write("the film is good\t1\n")
    evaluate.run(config, folder)
    assert len(trained) == 5


def test_trap_33_a_failed_cell_is_recorded_and_tried_again(run, trained, monkeypatch, capsys):
    config, folder = run
    counted = finetuning.finetune

    def fail_once(*arguments):
        if arguments[4] == 1 and "pretrained" in arguments[-1]:
            raise finetuning.Diverged("the training loss was nan at step 3 of 12")
        return counted(*arguments)

    monkeypatch.setattr(finetuning, "finetune", fail_once)
    evaluate.run(config, folder)
    entry = folder.read_summary()["evaluation"]["sst2"]["accuracy"]
    assert (entry["n"], entry["failed"], entry["floor"]["n"]) == (1, [1], 3)
    assert "the training loss was nan" in capsys.readouterr().err
    trained.clear()
    monkeypatch.setattr(finetuning, "finetune", counted)
    evaluate.run(config, folder)
    assert len(trained) == 1
    assert folder.read_summary()["evaluation"]["sst2"]["accuracy"]["n"] == 2


def test_trap_33_a_collapsed_cell_is_flagged(run, files, capsys, tmp_path):
    _, folder = run
    lines = (files / "glue/SST-2/train.tsv").read_text().splitlines()
    (files / "glue/SST-2/train.tsv").write_text("\n".join([lines[0], *(line for line in lines if line.endswith("\t1"))]) + "\n")
    evaluate.run(make_config(tmp_path, files), folder)
    entry = folder.read_summary()["evaluation"]["sst2"]["accuracy"]
    assert (entry["n"], entry["collapsed"], entry["floor"]["collapsed"]) == (2, [0, 1], [0, 1, 2])
    assert "constant predictions" in capsys.readouterr().err


def test_the_floor_of_init_0_is_a_run_s_start_with_that_seed(run, monkeypatch):
    """The same weights before pretraining: here the run was saved at step 0, so both starts give the same predictions with seed 0."""
    config, folder = run
    evaluate.run(config, folder)
    ours, floor = (json.loads(file.read_text()) for file in (cell_of(folder, 0), floor_of(config, 0)))
    assert ours["metrics"] == floor["metrics"] and ours["learning_rate"] == floor["learning_rate"]
    predictions = [file.with_name("predictions.jsonl").read_text() for file in (cell_of(folder, 0), floor_of(config, 0))]
    assert predictions[0] == predictions[1]


def test_baselines_learn_from_the_examples_that_the_encoder_gets(run, files, tmp_path, monkeypatch):
    _, folder = run
    seen = []
    monkeypatch.setattr(glue.Glue, "baselines", lambda self, data: seen.append(len(data.train)) or {})
    evaluate.run(make_config(tmp_path, files, "evaluation.train_limit=16"), folder)
    (cell, *_) = folder.path.rglob("result.json")
    assert seen == [16] and json.loads(cell.read_text())["train_examples"] == 16


def test_every_cell_starts_from_the_run_s_weights(run, monkeypatch):
    """No seed goes on from where the one before it ended."""
    config, folder = run
    starts, original = [], finetuning.finetune

    def look(encoder, *arguments):
        starts.append(encoder.embedding_weight.detach().clone())
        return original(encoder, *arguments)

    monkeypatch.setattr(finetuning, "finetune", look)
    evaluate.run(config, folder)
    assert len(starts) == 5
    assert torch.equal(starts[0], starts[1]) and torch.equal(starts[0], starts[2])  # both seeds, and the floor of the run's own init
    assert not any(torch.equal(starts[2], start) for start in starts[3:])


def test_a_run_folder_given_alone(run, files, tmp_path):
    """pretrained=FOLDER with another model chosen in the config: the folder's own model is evaluated."""
    _, folder = run
    other = make_config(tmp_path, files, "model.hidden_size=48", f"pretrained={folder.path}", "evaluation.floor=false")
    destination = RunFolder(tmp_path / "runs" / "two")
    evaluate.run(other, destination)
    assert destination.read_summary()["evaluation"]["sst2"]["accuracy"]["n"] == 2
    with pytest.raises(UserError, match="neither a run folder"):
        evaluate.check(replace(other, pretrained=str(tmp_path)))


def test_a_run_without_weights_is_refused(run):
    config, folder = run
    for name in ("weights.safetensors", "tokenizer.json"):
        (folder.path / name).unlink()
        with pytest.raises(UserError, match="no weights"):
            evaluate.run(config, folder)


def test_a_left_to_right_encoder_is_not_read_at_its_first_token(tmp_path, files):
    """Refused before anything is prepared or trained; tags of words are read at the words."""
    words = ["objective=clm", "evaluation.pooling=cls", "stages=[prepare,pretrain,evaluate]"]
    with pytest.raises(UserError, match=r"has seen nothing but itself(.|\n)*pooling=cls"):
        run_config(make_config(tmp_path, files, *words))
    assert not (tmp_path / "runs").exists()
    evaluate.check(make_config(tmp_path, files, *words, "evaluation.pooling=last"))
    evaluate.check(make_config(tmp_path, files, *words, "evaluation.tasks=[wnut17]"))
    (tmp_path / "mine.txt").write_text("".join(f"a{number} B-X\n\n" for number in range(40)))
    evaluate.check(make_config(tmp_path, files, *words, "evaluation.tasks=[mine]", f"evaluation.files.mine={tmp_path / 'mine.txt'}"))
    evaluate.check(make_config(tmp_path, files, *words, "objective=mlm"))


def test_rows_longer_than_learned_positions_are_refused(tmp_path, files):
    config = make_config(tmp_path, files, "model.positions=learned", "model.max_positions=16", "evaluation.max_length=17")
    with pytest.raises(UserError, match="too few learned positions"):
        evaluate.check(config)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), MemoryError()])
def test_a_cell_that_does_not_fit_in_memory_ends_the_run_with_the_keys_to_change(run, trained, files, tmp_path, monkeypatch, error):
    config, folder = run
    counted = finetuning._loss

    def no_memory(*arguments):
        if len(trained) >= 2:
            raise error
        return counted(*arguments)

    monkeypatch.setattr(finetuning, "_loss", no_memory)
    with pytest.raises(UserError, match=r"out of memory(.|\n)*sst2, .*: evaluation.max_length=\d+ evaluation.batch_size=\d+") as told:
        evaluate.run(config, folder)
    assert "a smaller evaluation.max_length or evaluation.batch_size" in str(told.value) and len(str(told.value).splitlines()) <= 10
    with pytest.raises(UserError, match=r"task.sst2.max_length=16 task.sst2.batch_size=4"):
        evaluate.run(make_config(tmp_path, files, "task.sst2.max_length=16", "task.sst2.batch_size=4", "evaluation.seeds=3"), folder)
    trained.clear()
    monkeypatch.setattr(finetuning, "_loss", counted)
    evaluate.run(config, folder)
    assert len(trained) == 4, "the first cell was kept"
    assert folder.read_summary()["evaluation"]["sst2"]["accuracy"]["n"] == 2


@pytest.mark.parametrize("text", ["[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory", "of no use"])
def test_the_door_s_exit_code_when_memory_does_not_suffice(run, files, monkeypatch, capsys, text):
    """A mistake of the user's, as in pretraining; what torch says otherwise keeps its traceback."""
    monkeypatch.setattr(finetuning, "_loss", lambda *arguments: (_ for _ in ()).throw(RuntimeError(text)))
    if text == "of no use":
        with pytest.raises(RuntimeError, match=text):
            evaluate.run(*run)
        return
    assert answer(lambda: evaluate.run(*run)) == 2
    said = capsys.readouterr().err
    assert "out of memory" in said and "evaluation.batch_size" in said and "Traceback" not in said
