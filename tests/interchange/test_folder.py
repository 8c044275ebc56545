"""A Hugging Face folder as a start: its encoder answers in ours as in Transformers, its heads too, and what it lacks is made and said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from mlm_lab.config import compose
from mlm_lab.errors import UserError
from mlm_lab.export.tokenizer import save_tokenizer
from mlm_lab.interchange.folder import HuggingFaceFolder
from mlm_lab.interchange.format import Source
from mlm_lab.models.transformers_encoder import TransformersEncoder
from mlm_lab.run_config import RunConfig, config_hash
from mlm_lab.runner import run
from mlm_lab.tokenizers.loading import LoadedTokenizer, load
from mlm_lab.training.weights import fresh_module
from tests.export.test_export import TEXTS, make_run
from tests.models.test_transformers_equality import assert_close_where_real, randomise

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 257, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64, "pad_token_id": 0}
SIZES |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 66}
MODERN = {name: SIZES[name] for name in list(SIZES)[:6]} | {
    "max_position_embeddings": 66,
    "local_attention": 8,
    "attn_implementation": "sdpa",
}
MODELS = {
    "BertForPreTraining": SIZES,
    "BertForMaskedLM": SIZES | {"tie_word_embeddings": False},
    "BertModel": SIZES,
    "RobertaForMaskedLM": SIZES | {"pad_token_id": 1, "type_vocab_size": 1},
    "AlbertForPreTraining": SIZES | {"embedding_size": 16, "hidden_act": "gelu_new"},
    "ElectraForMaskedLM": SIZES | {"embedding_size": 16},
    "ElectraForPreTraining": SIZES | {"embedding_size": 16},
    "MPNetForMaskedLM": SIZES | {"pad_token_id": 1},
    "ModernBertForMaskedLM": MODERN,
}


DISENTANGLED = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
OTHERS = {
    "DebertaV2ForMaskedLM": SIZES | DISENTANGLED | {"type_vocab_size": 0},
    "DebertaV2Model": SIZES | DISENTANGLED | {"type_vocab_size": 0},
    "XLMRobertaForMaskedLM": SIZES | {"pad_token_id": 1, "type_vocab_size": 1},
    "DistilBertForMaskedLM": {"vocab_size": 257, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 66},
}
"""Kinds that ours cannot be: Transformers builds the encoder."""


@pytest.fixture(scope="module")
def tokenizer() -> LoadedTokenizer:
    return LoadedTokenizer(compose(["tokenizer.vocab_size=400"]).tokenizer.train(iter(TEXTS)))


def make_folder(folder: Path, architecture: str, tokenizer: LoadedTokenizer, **changes: object) -> nn.Module:
    """A Hugging Face folder with random weights."""
    model_class = getattr(transformers, architecture)
    model = randomise(model_class(model_class.config_class(**(MODELS | OTHERS)[architecture] | changes)))
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return model


@pytest.mark.parametrize("architecture", MODELS)
def test_the_encoder_answers_as_in_transformers(architecture: str, tokenizer: LoadedTokenizer, tmp_path: Path):
    theirs = make_folder(tmp_path, architecture, tokenizer)
    objective = {"ElectraForPreTraining": "rtd", "AlbertForPreTraining": "sop", "BertForPreTraining": "mlm_nsp"}.get(architecture, "mlm")
    config = compose([f"pretrained={tmp_path}", f"objective={objective}", "max_length=48"])
    ours = fresh_module(config, tokenizer.vocabulary).eval()
    taken = HuggingFaceFolder(tmp_path).load_into(ours, tokenizer)
    ids = torch.randint(5, 250, (3, 40), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 30:] = 0
    ids[mask == 0] = theirs.config.pad_token_id
    base = theirs.base_model
    assert_close_where_real(ours.encoder(ids, mask), base(input_ids=ids, attention_mask=mask).last_hidden_state, mask)
    output = theirs(input_ids=ids, attention_mask=mask)
    if "head" in taken.loaded:
        hidden = ours.encoder(ids, mask)
        if architecture == "ElectraForPreTraining":
            mine, expected = ours.head(hidden), output.logits
        else:
            logits = ours.head(hidden.flatten(0, 1), ours.encoder.embedding_weight).unflatten(0, ids.shape)[
                ..., : tokenizer.vocabulary.size
            ]
            mine, expected = logits, output.logits if hasattr(output, "logits") else output.prediction_logits
        assert_close_where_real(mine, expected[..., : mine.shape[-1]], mask)
    expected_parts = {
        "BertForPreTraining": ("encoder", "head", "pair"),
        "AlbertForPreTraining": ("encoder", "head", "pair"),
        "BertModel": ("encoder",),
    }.get(architecture, ("encoder", "head"))
    assert taken.loaded == expected_parts
    assert taken.fresh == {"BertModel": ("head",), "ElectraForPreTraining": ("generator", "generator_head")}.get(architecture, ())


@pytest.mark.parametrize("architecture", OTHERS)
def test_another_kind_of_encoder_is_built_by_transformers(architecture: str, tokenizer: LoadedTokenizer, tmp_path: Path):
    theirs = make_folder(tmp_path, architecture, tokenizer)
    config = compose([f"pretrained={tmp_path}", "max_length=48"])
    assert type(config.model) is TransformersEncoder and config.tokenizer.path == str(tmp_path)
    ours = fresh_module(config, tokenizer.vocabulary).eval()
    taken = HuggingFaceFolder(tmp_path).load_into(ours, tokenizer)
    ids = torch.randint(5, 250, (3, 40), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 30:] = 0
    hidden = ours.encoder(ids, mask)
    theirs.base_model.embeddings.word_embeddings.padding_idx = None
    expected = theirs.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
    if architecture != "XLMRobertaForMaskedLM":  # whose positions follow the padding's id, which is another one here
        assert_close_where_real(hidden, expected, mask)
    has_head = architecture.endswith("MaskedLM")
    assert taken.loaded == (("encoder", "head") if has_head else ("encoder",)) and taken.fresh == (() if has_head else ("head",))
    if has_head and architecture != "XLMRobertaForMaskedLM":
        logits = ours.head(hidden.flatten(0, 1), ours.encoder.embedding_weight).unflatten(0, ids.shape)[..., : tokenizer.vocabulary.size]
        assert_close_where_real(logits, theirs(input_ids=ids, attention_mask=mask).logits[..., : logits.shape[-1]], mask, 1e-4)
    chosen = compose([f"pretrained={tmp_path}", "model.config.num_hidden_layers=2", "max_length=48"])
    with pytest.raises(UserError, match="another than the config's"):
        HuggingFaceFolder(tmp_path).load_into(fresh_module(chosen, tokenizer.vocabulary), tokenizer)


def test_a_kind_of_ours_may_be_left_to_transformers_too(tokenizer: LoadedTokenizer, tmp_path: Path):
    """The same folder, read by us and by Transformers: the same numbers."""
    make_folder(tmp_path, "BertForMaskedLM", tokenizer)
    answers = []
    ids = torch.randint(5, 250, (2, 40), generator=torch.Generator().manual_seed(0))
    for words in ([], ["model=transformers", f"model.name_or_path={tmp_path}"]):
        module = fresh_module(compose([f"pretrained={tmp_path}", "max_length=48", *words]), tokenizer.vocabulary).eval()
        assert HuggingFaceFolder(tmp_path).load_into(module, tokenizer).loaded == ("encoder", "head")
        answers.append(module.predict(ids, torch.ones_like(ids), None, torch.tensor([[3], [7]])))
    torch.testing.assert_close(answers[0], answers[1], atol=2e-5, rtol=1e-4)


def test_a_run_of_a_disentangled_encoder_goes_on_and_is_read_again(
    tokenizer: LoadedTokenizer, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """DeBERTa, continued on another text, with packed rows; its run folder needs the first folder no more."""
    from mlm_lab.config import load as load_config
    from mlm_lab.training.weights import load_module

    make_folder(tmp_path / "hf", "DebertaV2Model", tokenizer)
    (tmp_path / "words.txt").write_text("catdog\n", encoding="utf-8")
    config = tiny(tmp_path, f"pretrained={tmp_path}/hf", f"tokenizer.new_words={tmp_path}/words.txt")
    summary = run(config)
    assert summary["status"] == "finished" and summary["flops"]["total"] > 0
    said = capsys.readouterr().out
    assert "starts from" in said and "made anew: head" in said and "1 new tokens" in said
    assert "before the first step" in said
    (tmp_path / "hf" / "config.json").unlink()
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "metrics.csv").read_text().splitlines()[1].startswith("0,"), "what it was worth before it learnt"
    again = load_module(folder, load_config(folder), load(folder).vocabulary)
    assert again.encoder.num_layers == 3


def test_model_and_tokenizer_come_with_the_folder_unless_chosen(tokenizer: LoadedTokenizer, tmp_path: Path):
    make_folder(tmp_path / "hf", "BertForMaskedLM", tokenizer)
    start = f"pretrained={tmp_path}/hf"
    config = compose([start, "model.hidden_dropout=0.3"])
    assert (config.model.hidden_size, config.model.num_layers, config.model.tie_output) == (32, 3, False)
    assert config.model.hidden_dropout == 0.3, "a single key goes on top"
    assert config.tokenizer.path == f"{tmp_path}/hf"
    chosen = compose([start, "model=tiny", "tokenizer=wordpiece"])
    assert chosen.model.hidden_size == 128 and type(chosen.tokenizer).__name__ == "WordPiece"
    _, ours = make_run(tmp_path / "runs", "model=mini")
    assert compose([f"pretrained={ours}"]).model.num_layers == 2, "of a run of ours too"


def test_a_new_word_is_ordinary_and_starts_as_the_mean_of_its_pieces(tokenizer: LoadedTokenizer, tmp_path: Path):
    theirs = make_folder(tmp_path / "hf", "BertForMaskedLM", tokenizer)
    (tmp_path / "words.txt").write_text("catdog\n\ndogcat\ncatdog\nthe\n", encoding="utf-8")
    config = compose([f"pretrained={tmp_path}/hf", f"tokenizer.new_words={tmp_path}/words.txt", "max_length=48"])
    longer = config.tokenizer.load()
    first = tokenizer.vocabulary.size
    assert longer.vocabulary.size == first + 2, "what is a token already is none of the new ones"
    assert longer.encode("The Catdog sat.")[1] == first and longer.encode("catdogs") == tokenizer.encode("catdogs")
    assert {first, first + 1} <= set(longer.vocabulary.ordinary_ids.tolist())
    ids, starts, _ = longer.encode_batch(["the catdog sat"])
    assert starts[ids.tolist().index(first)], "it is a word"
    ours = fresh_module(config, longer.vocabulary)
    taken = HuggingFaceFolder(tmp_path / "hf").load_into(ours, longer)
    rows = theirs.bert.embeddings.word_embeddings.weight
    for row, word in ((first, "catdog"), (first + 1, "dogcat")):
        torch.testing.assert_close(ours.encoder.embedding_weight[row], rows[tokenizer.encode(word)].mean(dim=0))
    torch.testing.assert_close(ours.encoder.embedding_weight[:first], rows)
    assert taken.new_tokens == 2
    (tmp_path / "words.txt").write_text("cat dog\n", encoding="utf-8")
    with pytest.raises(UserError, match="space"):
        config.tokenizer.load()


def test_what_ours_cannot_be_is_refused_by_key(tokenizer: LoadedTokenizer, tmp_path: Path):
    make_folder(tmp_path, "BertForMaskedLM", tokenizer, hidden_act="silu")
    with pytest.raises(UserError, match="hidden_act=silu"):
        compose([f"pretrained={tmp_path}"])
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with pytest.raises(UserError, match="model_type=gpt2"):
        compose([f"pretrained={tmp_path}"])
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        compose([f"pretrained={tmp_path}"])


def test_a_pickle_is_not_read(tokenizer: LoadedTokenizer, tmp_path: Path):
    make_folder(tmp_path, "BertModel", tokenizer)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="no weights that can be read safely"):
        run(compose([f"pretrained={tmp_path}", "max_length=48", f"output_dir={tmp_path}/runs"]))
    assert not (tmp_path / "runs").exists()


def tiny(folder: Path, *overrides: str) -> RunConfig:
    text = folder / "text.txt"
    text.write_text("\n\n".join(" ".join(TEXTS[i % 3 : i % 3 + 2]) for i in range(60)), encoding="utf-8")
    words = ["data=text", f"data.files={text}", f"cache_dir={folder}/cache", f"output_dir={folder}/runs", "budget.steps=3", "batch_size=4"]
    return compose([*words, "max_length=32", "validation.sequences=8", "stages=[prepare,pretrain]", *overrides])


def test_a_run_continues_from_a_folder_and_goes_back(tokenizer: LoadedTokenizer, tmp_path: Path, capsys: pytest.CaptureFixture):
    """In and out again: what was exported is a start, and the new run's hash depends on its weights."""
    from mlm_lab.export.exporting import export

    make_folder(tmp_path / "hf", "BertModel", tokenizer)
    config = tiny(tmp_path, f"pretrained={tmp_path}/hf", "optim.peak_lr=1e-9")
    summary = run(config)
    assert summary["status"] == "finished"
    assert "made anew: head" in capsys.readouterr().out
    made = tmp_path / "runs" / config_hash(config)[:12]
    export(made, tmp_path / "out")
    before = transformers.BertModel.from_pretrained(tmp_path / "hf")
    after = transformers.AutoModel.from_pretrained(tmp_path / "out")
    assert type(after) is transformers.BertModel
    torch.testing.assert_close(after.encoder.state_dict(), before.encoder.state_dict(), atol=1e-6, rtol=0)
    again = config_hash(tiny(tmp_path, f"pretrained={tmp_path}/out", "optim.peak_lr=1e-9"))
    assert again != config_hash(config)
    assert load(made).fingerprint == tokenizer.fingerprint


def test_source_says_what_the_tokenizer_needs(tokenizer: LoadedTokenizer, tmp_path: Path):
    config = compose(["model=tiny", "max_length=48"])
    source = Source(fresh_module(config, tokenizer.vocabulary), tokenizer.vocabulary, 48)
    save_tokenizer(tokenizer, tmp_path, source, segments=False)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 48 and "token_type_ids" not in theirs("a")
