"""Every preset becomes a folder that Transformers loads and that answers as the run does; what a format cannot say is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mlm_lab.config import compose
from mlm_lab.errors import UserError
from mlm_lab.export.__main__ import main
from mlm_lab.export.exporting import export
from mlm_lab.run_config import RunConfig, to_dict
from mlm_lab.run_folder import RunFolder
from mlm_lab.tokenizers.loading import LoadedTokenizer
from mlm_lab.training.weights import fresh_module, save_weights

transformers = pytest.importorskip("transformers")

TEXTS = ["The cat sat on the mat, and the dog looked on.", "Encoders read the words on both sides of a gap.", "An example, no more."] * 40
SMALL = ["model.hidden_size=32", "model.num_layers=2", "model.num_heads=4", "model.intermediate_size=64", "max_length=48"]
VOCABULARY = ["tokenizer.vocab_size=400"]


def make_run(folder: Path, *overrides: str, weights_std: float = 0.2, sizes: bool = True) -> tuple[RunConfig, Path]:
    """A finished run with random weights, large enough that a wrong one shows."""
    import yaml

    config = compose([*overrides, *(SMALL if sizes else []), *VOCABULARY, f"output_dir={folder}"])
    tokenizer = LoadedTokenizer(config.tokenizer.train(iter(TEXTS)))
    run = RunFolder.of(folder, "f" * 64)
    run.record_start(yaml.safe_dump(to_dict(config)), overrides)
    tokenizer.save(run.path)
    module = fresh_module(config, tokenizer.vocabulary)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.copy_(centre + weights_std * torch.randn(parameter.shape, generator=generator))
    run.update_summary(weights_sha256=save_weights(module, run.path), steps=3, tokens=100, metrics={"val/loss": 5.0}, status="finished")
    return config, run.path


ELECTRA = {".": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}
PRESETS = {
    "tiny": (["model=tiny"], {".": "MPNetForMaskedLM"}),
    "mini": (["model=mini"], {".": "MPNetForMaskedLM"}),
    "bert": (["+experiment=bert", "length_phases=null"], {".": "BertForPreTraining"}),
    "bert, sop": (["+experiment=bert", "objective=sop", "length_phases=null"], {".": "BertForPreTraining"}),
    "bert, pairs alone": (
        ["+experiment=bert", "objective=sop", "objective.mlm_weight=0", "length_phases=null"],
        {".": "BertForNextSentencePrediction"},
    ),
    "wwm": (["+experiment=wwm", "length_phases=null"], {".": None}),
    "spanbert": (["+experiment=spanbert"], {".": "BertForMaskedLM"}),
    "roberta": (["+experiment=roberta"], {".": "RobertaForMaskedLM"}),
    "albert": (["+experiment=albert", "model.embedding_size=16"], {".": "AlbertForPreTraining"}),
    "albert, wide embeddings": (["+experiment=albert", "model.embedding_size=null", "objective=mlm"], {".": "AlbertForMaskedLM"}),
    "electra": (
        ["+experiment=electra_small", "model.embedding_size=16"],
        {".": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"},
    ),
    "electra, wide embeddings": (["+experiment=electra_small", "model.embedding_size=null"], ELECTRA),
    "factorised bert": (["model=base", "model.embedding_size=16"], {".": "ElectraForMaskedLM"}),
    "modernbert": (["+experiment=modernbert", "model.local_window=8", "model.num_layers=4"], {".": "ModernBertForMaskedLM"}),
    "modern_tiny": (["model=modern_tiny"], {".": "ModernBertForMaskedLM"}),
    "crammed": (["+experiment=crammed"], {".": "ModernBertForMaskedLM"}),
    "t5": (["+experiment=t5_small"], {".": "T5ForConditionalGeneration"}),
    "untied": (["+experiment=bert", "objective=mlm", "model.tie_output=false", "length_phases=null"], {".": "BertForMaskedLM"}),
    "left to right": (["model=base", "objective=clm"], {".": "BertLMHeadModel"}),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_answers_the_same_in_transformers(preset: str, tmp_path: Path):
    overrides, expected = PRESETS[preset]
    _, run = make_run(tmp_path / "runs", *overrides)
    exported = export(run, tmp_path / "out")
    if expected["."] is not None:
        assert exported.architectures == expected
    assert exported.largest_difference <= 1e-5
    size = len(transformers.AutoTokenizer.from_pretrained(tmp_path / "out"))
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["vocab_size"] == size < -(-size // 64) * 64, "the padding of the vocabulary is gone"
    for auto in ("AutoModel", "AutoModelForSequenceClassification", "AutoModelForTokenClassification"):
        getattr(transformers, auto).from_pretrained(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [], "nothing unfinished is left"


@pytest.mark.parametrize(
    ("kind", "architecture"), [("deberta-v2", "DebertaV2ForMaskedLM"), ("distilbert", "DistilBertForMaskedLM"), ("modernbert", None)]
)
def test_an_encoder_of_transformers_goes_back_as_what_it_is(kind: str, architecture: str | None, tmp_path: Path):
    """The vocabulary's padding gone, its masked-token head beside it."""
    sizes = "hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 64, max_position_embeddings: 64"
    sizes = sizes if kind != "distilbert" else "dim: 32, n_layers: 2, n_heads: 4, hidden_dim: 64, max_position_embeddings: 64"
    describe = f"model.config={{model_type: {kind}, {sizes}, position_buckets: 8, relative_attention: true}}"
    _, run = make_run(tmp_path / "runs", "model=transformers", describe, "max_length=48", sizes=False)
    if architecture is None:  # its head is another function
        with pytest.raises(UserError, match="the objective's head"):
            export(run, tmp_path / "out")
        return
    assert export(run, tmp_path / "out").architectures == {".": architecture}
    assert json.loads((tmp_path / "out/config.json").read_text())["vocab_size"] % 64 != 0
    assert export(run, tmp_path / "alone", encoder_only=True).architectures["."].endswith("Model")


def test_fill_mask_pipeline(tmp_path: Path):
    _, run = make_run(tmp_path / "runs", "model=tiny")
    export(run, tmp_path / "out")
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "out"))
    answers = fill("The cat [MASK] on the mat.", top_k=3)
    assert len(answers) == 3
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = LoadedTokenizer(tokenizer.backend_tokenizer).vocabulary
    ids = tokenizer("The cat [MASK] on the mat.")["input_ids"]
    assert (ids[0], ids[-1], ids.count(ours.mask_id)) == (ours.cls_id, ours.sep_id, 1)


@pytest.mark.parametrize("model", ["tiny", "modern_tiny", "base"])
def test_sentence_transformers_takes_it_as_a_word_embedding_model(model: str, tmp_path: Path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    _, run = make_run(tmp_path / "runs", f"model={model}")
    export(run, tmp_path / "out")
    vectors = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS[:2])  # with mean pooling
    theirs, tokenizer = (getattr(transformers, name).from_pretrained(tmp_path / "out") for name in ("AutoModel", "AutoTokenizer"))
    batch = tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden, mask = theirs.eval()(**batch).last_hidden_state, batch["attention_mask"][..., None]
    torch.testing.assert_close(torch.from_numpy(vectors), (hidden * mask).sum(1) / mask.sum(1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_tokenizer_gives_our_rows(kind: str, tmp_path: Path):
    from mlm_lab.evaluation.encode import encode_texts
    from mlm_lab.evaluation.task import SequenceExample
    from mlm_lab.tokenizers.loading import load

    _, run = make_run(tmp_path / "runs", "+experiment=bert", "length_phases=null", f"tokenizer={kind}")
    export(run, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text, second = "An encoder reads  both sides, élan.", "No more words."
    ours = encode_texts([SequenceExample(text, None, 0), SequenceExample(text, second, 0)], load(run), 48)
    assert theirs(text)["input_ids"] == ours.ids[0].tolist()
    pair = theirs(text, second)
    assert pair["input_ids"] == ours.ids[1].tolist()
    assert pair["token_type_ids"].index(1) == ours.first_segment[1]


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["model=tiny", "model.norm=rms"], "model.norm=rms"),
        (["model=tiny", "objective=rtd"], "model.relative_bias=neighbours"),
        (["model=tiny", "objective=clm"], "left-to-right"),
        (["model=tiny", "model.positions=learned"], "model.positions=learned"),
        (["model=modern_tiny", "model.relative_bias=zero"], "model.relative_bias=zero"),
        (["model=tiny", "model.relative_buckets=16"], "model.relative_buckets=16"),
    ],
)
def test_what_no_format_expresses_is_refused_by_key(overrides: list[str], named: str, tmp_path: Path):
    _, run = make_run(tmp_path / "runs", *overrides)
    with pytest.raises(UserError, match=named.replace("(", r"\(")):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_encoder_alone(tmp_path: Path):
    _, run = make_run(tmp_path / "runs", "model=tiny", "objective=rtd")
    assert export(run, tmp_path / "out", encoder_only=True).architectures == {".": "MPNetModel"}


def test_a_wrong_weight_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from mlm_lab.interchange.formats import bert

    _, run = make_run(tmp_path / "runs", "+experiment=bert", "length_phases=null")
    names = bert.layer_names

    def swapped(theirs: str) -> dict[str, str]:
        return names(theirs) | {"layers.{}.attention.qkv": ",".join(f"{theirs}attention.self.{part}" for part in ("key", "query", "value"))}

    monkeypatch.setattr(bert, "layer_names", swapped)
    with pytest.raises(UserError, match="does not answer as the run's does"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_door(tmp_path: Path, capsys: pytest.CaptureFixture):
    _, run = make_run(tmp_path / "runs", "model=tiny")
    assert main([str(run), str(tmp_path / "out"), "--license", "apache-2.0"]) == 0
    assert "MPNetForMaskedLM" in capsys.readouterr().out
    card = (tmp_path / "out/README.md").read_text()
    assert 'license: "apache-2.0"' in card and "pipeline_tag: fill-mask" in card
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert "there is something in the output folder" in capsys.readouterr().err
    assert main([str(tmp_path), str(tmp_path / "other")]) == 2
    assert main([str(run), str(tmp_path / "other"), "--format", "gpt2"]) == 2
