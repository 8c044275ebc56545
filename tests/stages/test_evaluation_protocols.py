"""Protocols, floors, earlier weights and worker processes of the evaluate stage, on a run folder."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mlm_lab.errors import UserError
from mlm_lab.evaluation import finetune as finetuning
from mlm_lab.evaluation.cells import RESULT
from mlm_lab.run_config import RunConfig, measured_how, to_dict, to_yaml
from mlm_lab.run_folder import RunFolder
from mlm_lab.stages import evaluate
from mlm_lab.stages.prepare import prepare
from mlm_lab.training.weights import fresh_module, save_weights
from tests.stages.evaluated_run import make_config

GRID = ("evaluation.grid.learning_rates=[1e-6,5e-3]", "evaluation.grid.batch_sizes=[32]", "evaluation.grid.epochs=[3]")
GOOD, BAD = {"learning_rate": 5e-3, "batch_size": 32, "epochs": 3}, {"learning_rate": 1e-6, "batch_size": 32, "epochs": 3}


def new_run(config: RunConfig, name: str, tokenizer) -> RunFolder:
    folder = RunFolder(config.output_dir / name)
    folder.record_start(to_yaml(config), ())
    tokenizer.save(folder.path)
    save_weights(fresh_module(config, tokenizer.vocabulary), folder.path)
    return folder


def results_of(folder: Path) -> dict[str, str]:
    """Every cell's record without its timing, and its predictions."""
    found = {}
    for file in sorted(folder.rglob(RESULT)):
        record = {name: value for name, value in json.loads(file.read_text()).items() if name != "seconds"}
        found[str(file.relative_to(folder))] = json.dumps(record) + file.with_name("predictions.jsonl").read_text()
    return found


def test_paper_reports_the_setting_that_is_best_on_dev_and_says_so(run, trained, files, tmp_path, capsys):
    config, folder = make_config(tmp_path, files, "evaluation.protocol=paper", "evaluation.floor=false", *GRID), run[1]
    evaluate.run(config, folder)
    assert len(trained) == 3  # both settings with the first seed, the better one with the second
    summary = folder.read_summary()
    settings, entry = summary["evaluation_settings"]["sst2"], summary["evaluation"]["sst2"]["accuracy"]
    assert (settings["label"], settings["setting"]) == ("selected on its reporting set", GOOD)
    assert settings["digest"] == measured_how("sst2", to_dict(config)) is not None
    assert len(settings["examples"]) == 8
    assert [{name: tried[name] for name in BAD} for tried in settings["tried"]] == [BAD, GOOD]
    assert settings["tried"][1]["median"] > settings["tried"][0]["median"]
    assert (entry["n"], entry["protocol"], entry["mean"] > 0.9) == (2, "paper", True)
    assert "selected on its reporting set" in capsys.readouterr().out
    for seed, place in settings["cells"].items():
        record = json.loads((folder.path / place / RESULT).read_text())
        assert (record["seed"], record["learning_rate"]) == (int(seed), 5e-3)
    trained.clear()
    evaluate.run(config, folder)
    assert trained == [] and folder.read_summary()["evaluation"] == summary["evaluation"]


def test_heldout_chooses_on_a_part_of_train_and_reports_dev_after_the_whole_of_it(run, trained, files, tmp_path):
    words = ("evaluation.protocol=heldout", "evaluation.grid.heldout_share=0.3", "evaluation.floor=false")
    config = make_config(tmp_path, files, *words, *GRID[:2], "evaluation.grid.epochs=[8]")
    folder = run[1]
    evaluate.run(config, folder)
    assert len(trained) == 4  # both settings on the part; two seeds of the better one on the whole
    settings = folder.read_summary()["evaluation_settings"]["sst2"]
    assert (settings["label"], settings["setting"]) == ("selected on a part of train", {**GOOD, "epochs": 8})
    chosen = {folder.path / place / RESULT for place in settings["cells"].values()}
    for file in folder.path.rglob(RESULT):
        record = json.loads(file.read_text())
        if file in chosen:
            assert (record["train_examples"], record["examples"]["dev"]) == (128, 40)
        else:
            assert record["train_examples"] + record["examples"]["dev"] == 128 and record["examples"]["dev"] < 64


def test_a_grid_rests_on_as_many_seeds_as_asked(run, trained, files, tmp_path):
    config = make_config(tmp_path, files, "evaluation.protocol=paper", "evaluation.grid.seeds=2", "evaluation.floor=false", *GRID)
    evaluate.run(config, run[1])
    assert len(trained) == 4


def test_a_setting_of_the_grid_and_the_fixed_one_are_the_same_cell(run, trained, files, tmp_path):
    folder = run[1]
    evaluate.run(make_config(tmp_path, files, "evaluation.floor=false"), folder)
    trained.clear()
    evaluate.run(make_config(tmp_path, files, "evaluation.floor=false", "evaluation.protocol=paper", *GRID), folder)
    assert len(trained) == 1  # the other setting


def test_the_floor_chooses_its_rate_on_a_part_of_train(run, trained, files, tmp_path):
    config, folder = make_config(tmp_path, files, "evaluation.floor_learning_rate=[1e-6,5e-3]"), run[1]
    evaluate.run(config, folder)
    assert len([title for title in trained if "random start" in title]) == 5
    floor = folder.read_summary()["evaluation_settings"]["sst2"]["floor"]
    assert (floor["label"], floor["setting"]) == ("selected on a part of train", {"floor_learning_rate": 5e-3})
    assert json.loads((config.output_dir / floor["cells"]["2"] / RESULT).read_text())["learning_rate"] == 5e-3


def test_runs_of_one_encoder_share_its_floors(run, trained, files, tmp_path, tokenizer):
    """Whatever the run's seed, objective and masking are; not where the encoder, or how it is fine-tuned, is another."""
    config, folder = run
    evaluate.run(config, folder)
    for words in (("seed=5", "seeds.finetune=0"), ("objective.mask_ratio=0.4", "optim.peak_lr=0.1"), ("objective=mlm_nsp",)):
        other = make_config(tmp_path, files, *words)
        trained.clear()
        evaluate.run(other, destination := new_run(other, words[0], tokenizer))
        assert trained and not any("random start" in title for title in trained), words
        entry = destination.read_summary()["evaluation"]["sst2"]["accuracy"]
        assert entry["floor"] == folder.read_summary()["evaluation"]["sst2"]["accuracy"]["floor"]
    others = ("model.activation=relu", "model.hidden_size=48", "evaluation.epochs=2", "objective=clm", "trainer.precision=64-true")
    for words in ((word,) for word in others):
        other = make_config(tmp_path, files, *words)
        trained.clear()
        evaluate.run(other, new_run(other, words[0], tokenizer))
        assert len([title for title in trained if "random start" in title]) == 3, words


def test_a_floor_is_measured_once_when_runs_ask_for_it_at_the_same_time(run, files, tmp_path, tokenizer, monkeypatch):
    log, original = tmp_path / "log", finetuning.finetune

    def write(*arguments):
        with log.open("a") as file:
            file.write(f"{arguments[-1]}\n")
        return original(*arguments)

    monkeypatch.setattr(finetuning, "finetune", write)
    configs = [make_config(tmp_path, files, f"optim.peak_lr=0.{number}") for number in (1, 2, 3)]
    folders = [new_run(config, f"run{number}", tokenizer) for number, config in enumerate(configs)]
    context = multiprocessing.get_context("fork")

    def evaluate_in_one_thread(config: RunConfig, folder: RunFolder) -> None:
        torch.set_num_threads(1)
        evaluate.run(config, folder)

    processes = [context.Process(target=evaluate_in_one_thread, args=pair) for pair in zip(configs, folders, strict=True)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
        assert process.exitcode == 0
    titles = log.read_text().splitlines()
    assert sorted(title for title in titles if "random start" in title) == [
        f"sst2, random start, learning rate 0.005, seed {init}" for init in (0, 1, 2)
    ]
    assert len(titles) == 3 + 3 * 2
    floors = [folder.read_summary()["evaluation"]["sst2"]["accuracy"]["floor"] for folder in folders]
    assert floors[0]["n"] == 3 and floors[0] == floors[1] == floors[2]


def test_cells_side_by_side_come_to_the_same_bits(run, files, tmp_path, tokenizer, capsys):
    words = ("evaluation.tasks=[sst2,wnut17]", "evaluation.protocol=heldout", *GRID)
    outputs = []
    for jobs in (1, 3):
        config = make_config(tmp_path, files, *words, f"evaluation.jobs={jobs}", f"output_dir={tmp_path / str(jobs)}")
        folder = new_run(config, "one", tokenizer)
        torch.set_num_threads(2)  # what the main process computes with changes nothing
        evaluate.run(config, folder)
        assert torch.get_num_threads() == 2
        outputs.append((results_of(config.output_dir), folder.read_summary()["evaluation"]))
    torch.set_num_threads(1)
    assert len(outputs[0][0]) == 2 * (2 + 2 + 2 + 3)
    assert outputs[0] == outputs[1]
    assert "0 more)" in capsys.readouterr().out


def test_a_mistake_in_a_worker_is_told_as_such(run, files, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise UserError("the labels are of another task")

    monkeypatch.setattr(finetuning, "finetune", refuse)  # the workers are forks
    with pytest.raises(UserError, match="the labels are of another task"):
        evaluate.run(make_config(tmp_path, files, "evaluation.jobs=2"), run[1])


def test_a_task_starts_from_the_encoder_of_another(run, files, tmp_path, trained, monkeypatch):
    config, folder = make_config(tmp_path, files, "evaluation.tasks=[sst2,wnut17]", "evaluation.start_from.sst2=wnut17"), run[1]
    starts, original = {}, finetuning.finetune

    def look(encoder, *arguments):
        starts[arguments[-1]] = {name: value.clone() for name, value in encoder.state_dict().items()}
        return original(encoder, *arguments)

    monkeypatch.setattr(finetuning, "finetune", look)
    evaluate.run(config, folder)
    assert list(starts)[-1].startswith("sst2")
    for seed in (0, 1):
        (kept,) = folder.path.glob(f"evaluation/wnut17/seed_{seed}-*/pretrained/encoder.safetensors")
        start = starts[f"sst2, pretrained, seed {seed}"]
        assert all(torch.equal(value, start[name]) for name, value in load_file(kept).items())
    floors = [start for title, start in starts.items() if title.startswith("sst2, random start")]
    assert len(floors) == 3 and not torch.equal(*(floor["embeddings.tokens.weight"] for floor in floors[:2]))
    trained.clear()
    evaluate.run(make_config(tmp_path, files, "evaluation.tasks=[sst2,wnut17]"), folder)
    assert {title.partition(",")[0] for title in trained} == {"sst2"}  # another cell than with the detour
    (folder.path / "evaluation/sst2").rename(tmp_path / "away")


def test_a_task_whose_start_failed_fails(run, files, tmp_path, monkeypatch, capsys):
    config = make_config(tmp_path, files, "evaluation.tasks=[sst2,wnut17]", "evaluation.start_from.sst2=wnut17", "evaluation.floor=false")
    original = finetuning.finetune

    def fail(*arguments):
        if arguments[-1] == "wnut17, pretrained, seed 1":
            raise finetuning.Diverged("the training loss was nan")
        return original(*arguments)

    monkeypatch.setattr(finetuning, "finetune", fail)
    evaluate.run(config, run[1])
    assert run[1].read_summary()["evaluation"]["sst2"]["accuracy"]["failed"] == [1]
    assert "no encoder to start from" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("evaluation.start_from.sst2=wnut17",), ("evaluation.start_from={sst2: wnut17, wnut17: sst2}",)])
def test_a_start_that_is_not_evaluated_is_refused(files, tmp_path, words):
    tasks = "[sst2]" if len(words[0]) < 40 else "[sst2,wnut17]"
    with pytest.raises(UserError, match="cannot start from the encoder of wnut17"):
        evaluate.check(make_config(tmp_path, files, f"evaluation.tasks={tasks}", *words))


def test_earlier_weights_are_evaluated_beside_the_last(run, files, tmp_path, trained, tokenizer, capsys, monkeypatch):
    config, folder = make_config(tmp_path, files, "evaluation.checkpoints=all"), run[1]
    starts, original = {}, finetuning.finetune

    def look(encoder, *arguments):
        starts[arguments[-1]] = encoder.embedding_weight.detach().clone()
        return original(encoder, *arguments)

    monkeypatch.setattr(finetuning, "finetune", look)
    for step in (5, 10):
        module = fresh_module(make_config(tmp_path, files, f"seeds.init={step}"), tokenizer.vocabulary)
        save_weights(module, folder.path, step)
        starts[step] = module.encoder.embedding_weight
    evaluate.run(config, folder)
    assert all(torch.equal(starts[f"sst2, step {step}, pretrained, seed 1"], starts[step]) for step in (5, 10))
    summary = folder.read_summary()
    assert {title for title in trained if "step" in title} == {f"sst2, step {s}, pretrained, seed {n}" for s in (5, 10) for n in (0, 1)}
    assert list(summary["evaluation_at"]) == ["5", "10"] and summary["evaluation_at"]["5"]["sst2"]["accuracy"]["n"] == 2
    assert "floor" in summary["evaluation"]["sst2"]["accuracy"] and "floor" not in summary["evaluation_at"]["5"]["sst2"]["accuracy"]
    assert "Downstream tasks after step 10" in capsys.readouterr().out
    assert len(list(folder.path.rglob(RESULT))) == 6
    trained.clear()
    evaluate.run(make_config(tmp_path, files, "evaluation.checkpoints=[10]", "evaluation.tasks=[sst2,wnut17]"), folder)
    assert not any(title.startswith("sst2") for title in trained)
    assert set(folder.read_summary()["evaluation_at"]["10"]) == {"sst2", "wnut17"}
    with pytest.raises(UserError, match="not kept the weights of this step") as error:
        evaluate.run(make_config(tmp_path, files, "evaluation.checkpoints=[7]"), folder)
    assert "5, 10" in str(error.value)


def test_earlier_weights_that_will_not_be_there_are_refused_beforehand(files, tmp_path):
    words = ("evaluation.checkpoints=all", "stages=[pretrain,evaluate]")
    with pytest.raises(UserError, match="no earlier weights"):
        evaluate.check(make_config(tmp_path, files, *words))
    evaluate.check(make_config(tmp_path, files, *words, "checkpoint.keep_weights_at=[0.5]"))


def test_predictions_for_the_test_server(run, files, tmp_path, trained, capsys):
    config, folder = make_config(tmp_path, files), run[1]
    evaluate.run(config, folder)
    trained.clear()
    asked = make_config(tmp_path, files, "evaluation.submission=true", "evaluation.tasks=[sst2,wnut17]")
    evaluate.run(make_config(tmp_path, files, "evaluation.submission=true"), folder)
    assert "no task has a test set" in capsys.readouterr().err and trained == []
    (files / "glue/SST-2/test.tsv").write_text("index\tsentence\n0\tthe film is good\n1\tthe film is bad\n2\tx x x good\n")
    evaluate.run(asked, folder)
    assert [title for title in trained if title.startswith("sst2")] == [f"sst2, pretrained, seed {seed}" for seed in (0, 1)]  # no floor
    for seed in (0, 1):
        text = (folder.path / f"evaluation/submission/seed_{seed}/SST-2.tsv").read_text()
        assert text == "index\tprediction\n0\t1\n1\t0\n2\t1\n"
    assert "SST-2.tsv" in capsys.readouterr().out
    trained.clear()
    evaluate.run(asked, folder)
    assert trained == []


def test_overlap_with_the_training_text_is_reported(run, files, tmp_path, capsys):
    text = "one two three four five six seven eight nine ten"
    (tmp_path / "corpus.txt").write_text(
        "\n\n".join([f"some words before {text}", *(f"another document {i} of many words" for i in range(40))])
    )
    (files / "glue/SST-2/dev.tsv").write_text(f"sentence\tlabel\nthe film is good\t1\n{text}\t0\n{text.replace('five', 'film')}\t0\n")
    words = ("data=text", f"data.files={tmp_path / 'corpus.txt'}", "tokenizer.vocab_size=400", "evaluation.floor=false")
    config, folder = make_config(tmp_path, files, *words), run[1]
    prepared = prepare(config)
    folder.update_summary(fingerprints={"store": prepared.fingerprint})
    evaluate.run(config, folder)
    found = folder.read_summary()["overlap"]["sst2"]["dev"]
    assert (found["examples"], found["too_short"]) == (3, 1) and found["shared"] == 1
    assert "Examples that the training text contains" in capsys.readouterr().out
    evaluate.run(make_config(tmp_path, files, *words, "evaluation.overlap=false"), folder)
    assert "Examples that the training text contains" not in capsys.readouterr().out
