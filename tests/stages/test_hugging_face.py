"""A Hugging Face folder under the evaluate stage: published models and ours in one table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from mlm_lab.errors import UserError
from mlm_lab.evaluation.bench import Bench
from mlm_lab.runner import run as run_config
from mlm_lab.tokenizers.loading import LoadedTokenizer
from tests.models.test_transformers_equality import randomise
from tests.stages.evaluated_run import LOADED, make_config

transformers = pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path: Path, tokenizer: LoadedTokenizer) -> Path:
    """A BERT without a masked-token head."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 32}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(vocab_size=tokenizer.vocabulary.size, **sizes)
    randomise(transformers.BertModel(config, add_pooling_layer=False)).save_pretrained(tmp_path / "hf")
    tokenizer.save(tmp_path / "hf")
    return tmp_path / "hf"


def config_of(tmp_path: Path, files: Path, *words: str):
    """Without the sizes that the other tests of the stage give their model."""
    from mlm_lab.config import compose

    kept = [word for word in make_config(tmp_path, files).overrides if not word.startswith("model.")]
    return compose([*kept, *words], loaded=LOADED)


def test_it_is_evaluated_beside_its_random_start(tmp_path: Path, files: Path, folder: Path, trained: list[str], capsys):
    summary = run_config(config_of(tmp_path, files, f"pretrained={folder}"))
    entry = summary["evaluation"]["sst2"]["accuracy"]
    assert (summary["status"], entry["n"], entry["floor"]["n"], len(trained)) == ("finished", 2, 3, 5)
    assert entry["mean"] > 0.9
    assert summary["parameters"]["encoder"] > 0
    assert f"{folder}: encoder; not in it: head" in capsys.readouterr().out
    elsewhere = shutil.copytree(folder, tmp_path / "copy")
    run_config(config_of(tmp_path, files, f"pretrained={elsewhere}"))
    assert len(trained) == 5, "its weights name the run, not the place where they lie"


def test_what_is_evaluated_are_the_folders_weights(tmp_path: Path, files: Path, folder: Path):
    config = config_of(tmp_path, files, f"pretrained={folder}")
    bench = Bench(config, config, folder, {})
    ids, mask = torch.arange(5, 15)[None], torch.ones(1, 10, dtype=torch.long)
    with torch.no_grad():
        expected = transformers.AutoModel.from_pretrained(folder).eval()(input_ids=ids, attention_mask=mask).last_hidden_state
        torch.testing.assert_close(bench.trained_module().encoder(ids, mask), expected, atol=1e-5, rtol=1e-5)
        assert (bench.initial_module(0).encoder(ids, mask) - expected).abs().max() > 0.1


def test_ours_and_transformers_read_a_folder_alike(tmp_path: Path, files: Path, folder: Path):
    means = []
    for words in ([], ["model=transformers", f"model.name_or_path={folder}"]):
        config = config_of(tmp_path, files, f"pretrained={folder}", "evaluation.floor=false", *words)
        summary = run_config(config)
        (cell, _) = sorted((tmp_path / "runs" / summary["config_hash"][:12]).glob("evaluation/sst2/*/pretrained/predictions.jsonl"))
        means.append([json.loads(line)["prediction"] for line in cell.read_text().splitlines()])
    assert means[0] == means[1]


def test_what_a_folder_lacks_is_told(tmp_path: Path, files: Path, folder: Path):
    (files / "blimp").mkdir()
    pair = {"sentence_good": "the film is good", "sentence_bad": "film the is good", "UID": "order", "field": "syntax"}
    (files / "blimp/order.jsonl").write_text("".join(json.dumps(pair | {"pair_id": n}) + "\n" for n in range(8)))
    with pytest.raises(UserError, match=r"blimp: asks the pretraining head"):
        run_config(config_of(tmp_path, files, f"pretrained={folder}", "evaluation.tasks=[blimp]"))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"which has no tokenizer.json"):
        run_config(config_of(tmp_path, files, f"pretrained={folder}"))
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"neither a run folder"):
        run_config(config_of(tmp_path, files, f"pretrained={folder}"))
    assert not (tmp_path / "runs").exists()
