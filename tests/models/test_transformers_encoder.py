"""Any encoder of Transformers in our place: its own answers, documents apart, its FLOPs, and a refusal of what it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mlm_lab.config import compose
from mlm_lab.errors import UserError
from mlm_lab.models.transformers_encoder import TransformersEncoder
from mlm_lab.models.transformers_module import WrappedEncoder, places_within, rows_of_documents
from mlm_lab.run_config import config_hash
from tests.models.conftest import encoder_config, make_vocabulary
from tests.models.test_transformers_equality import assert_close_where_real, randomise

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 96}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 66, "pad_token_id": 0}
DISENTANGLED = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 96, "dropout_rate": 0.0}
KINDS = {
    "bert": SIZES | NO_DROPOUT,
    "roberta": SIZES | NO_DROPOUT | {"type_vocab_size": 1},
    "electra": SIZES | NO_DROPOUT | {"embedding_size": 16},
    "albert": SIZES | NO_DROPOUT | {"embedding_size": 16},
    "mpnet": SIZES | NO_DROPOUT,
    "deberta-v2": SIZES | NO_DROPOUT | DISENTANGLED | {"norm_rel_ebd": "layer_norm", "share_att_key": True, "type_vocab_size": 0},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "dropout": 0.0, "attention_dropout": 0.0, "vocab_size": 96},
    "modernbert": SIZES | {"local_attention": 8, "max_position_embeddings": 66, "global_attn_every_n_layers": 2, "pad_token_id": 0},
    "t5": T5,
}
PACKED = {"bert", "roberta", "electra", "albert", "distilbert", "t5"}
"""Kinds whose own code reads a row of several documents as ours does."""
VOCABULARY = make_vocabulary(size=90)


def describe(kind: str, **changes: object) -> TransformersEncoder:
    return TransformersEncoder(name_or_path=None, config={"model_type": kind, **KINDS[kind], **changes})


def build(kind: str) -> WrappedEncoder:
    return randomise(describe(kind).build(VOCABULARY))


def rows(length: int = 48) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, documents 1, 2, 3 and padding, and places of segments."""
    ids = torch.randint(5, 90, (3, length), generator=torch.Generator().manual_seed(0))
    documents = torch.ones_like(ids)
    documents[0, 30:], documents[0, 40:] = 2, 3
    documents[1, 11:], documents[1, 37:] = 2, 0
    documents[2, 40:] = 0
    return ids.masked_fill(documents == 0, 0), documents, (torch.arange(length) >= length // 3).long().expand_as(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_transformers_does(kind: str):
    ours, (ids, documents, segments) = build(kind), rows()
    mask = (documents > 0).long()
    more = {"token_type_ids": segments} if ours.has_segments else {}
    theirs = ours.model(input_ids=ids, attention_mask=mask, output_hidden_states=True, **more)
    states = ours(ids, mask, None, segments, output_hidden_states=True)
    assert len(states) == ours.num_layers + 1 == 3 and states[-1].shape[-1] == ours.hidden_size == 32
    assert_close_where_real(states[-1], theirs.last_hidden_state, mask)
    assert_close_where_real(states[1], theirs.hidden_states[1], mask)
    assert ours.embedding_weight.shape == (96, describe(kind).embedding_width)
    assert not any("pooler" in name for name, _ in ours.named_parameters()), "nothing that no loss trains"


@pytest.mark.parametrize("kind", KINDS)
def test_documents_of_a_row_are_read_apart(kind: str):
    """As if each stood alone, its positions from the first on; in a row longer than the windows of local layers."""
    ours, (ids, documents, _) = build(kind), rows()
    whole = ours(ids, documents, places_within(documents))
    for row in range(len(ids)):
        for number in range(1, int(documents[row].max()) + 1):
            here = documents[row] == number
            alone = ours(ids[row, here][None], torch.ones(1, int(here.sum()), dtype=torch.long))
            torch.testing.assert_close(whole[row, here], alone[0], atol=2e-4, rtol=1e-4)
    assert (ours.packing(ids.shape[1], ids.device) is not None) == (kind in PACKED)
    whole[documents > 0].square().mean().backward()
    assert all(parameter.grad is not None for parameter in ours.parameters()), "no parameter is left out, which ddp would refuse"


@pytest.mark.parametrize("kind", KINDS)
def test_activation_checkpointing_comes_to_the_same_bits_or_is_refused(kind: str):
    encoder = build(kind).train()
    ids, documents, segments = rows()

    def gradient() -> torch.Tensor:
        encoder.zero_grad()
        encoder(ids, documents, None, segments).pow(2).sum().backward()
        return encoder.embedding_weight.grad.clone()

    plain = gradient()
    if not encoder.model.supports_gradient_checkpointing:
        with pytest.raises(UserError, match="no activation checkpointing"):
            encoder.recomputes = True
        return
    encoder.recomputes = True
    assert encoder.recomputes and torch.equal(gradient(), plain)
    encoder.recomputes = False
    assert not encoder.recomputes


def test_rows_are_cut_at_documents_and_grouped_by_length():
    documents = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 2, 2, 2, 2, 2]])
    assert places_within(documents).tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 3, 4]]
    found = [(places[real].tolist(), places.shape) for places, real in rows_of_documents(documents)]
    assert found == [([6], (1, 1)), ([3, 4], (1, 2)), ([0, 1, 2], (1, 3)), ([7, 8, 9, 10, 11], (1, 5))]


@pytest.mark.parametrize(("kind", "changes"), [("bert", {}), ("modernbert", {"embedding_norm": True, "intermediate_size": 64})])
def test_flops_are_those_of_our_own_encoder(kind: str, changes: dict):
    ours = encoder_config("bert" if kind == "bert" else "local", **({} if kind == "bert" else {"local_window": 8})).build(VOCABULARY)
    assert describe(kind).build(VOCABULARY).flops(3, 48) == ours.flops(3, 48)


@pytest.mark.parametrize("kind", KINDS)
def test_flops_of_every_kind_are_counted_without_a_forward_of_its_weights(kind: str):
    with torch.device("meta"):
        encoder = describe(kind).build(VOCABULARY)
    assert encoder.flops(2, 16) == 2 * encoder.flops(1, 16) > 2 * 16 * 2 * 32 * 64


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["objective=clm"], "reads both ways"),
        (["objective=rtd"], "no narrower copy"),
        (["objective=span_corruption"], "no decoder made after it"),
    ],
)
def test_what_it_cannot_be_is_refused_with_the_way_out(words: list[str], said: str):
    config = compose(["model=transformers", "model.config={model_type: bert, hidden_size: 32, num_attention_heads: 4}", *words])
    with pytest.raises(UserError, match=said):
        config.objective.build(config.model, VOCABULARY)


def test_mistakes_are_told(tmp_path: Path):
    with pytest.raises(UserError, match="name_or_path"):
        compose(["model=transformers"])
    with pytest.raises(UserError, match="model_type=gpt2"):
        compose(["model=transformers", "model.config.model_type=gpt2"])
    with pytest.raises(UserError, match="is_decoder=true"):
        compose(["model=transformers", "model.config={model_type: bert, is_decoder: true}"])
    with pytest.raises(UserError, match="there is no such folder"):
        compose(["model=transformers", f"model.name_or_path={tmp_path}/none"])
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        compose(["model=transformers", f"model.name_or_path={tmp_path}"])
    with pytest.raises(UserError, match=r"rows of 128 tokens, model.config.max_position_embeddings=66"):
        describe("bert").check_length(128)
    with pytest.raises(UserError, match="65 or less"):
        build("roberta")(torch.full((1, 66), 7), torch.ones(1, 66, dtype=torch.long))


def test_a_folder_is_named_by_what_it_says_and_not_needed_again(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": "deberta-v2", **KINDS["deberta-v2"]}))
    one, two = (compose(["model=transformers", f"model.name_or_path={tmp_path}/{name}"]) for name in ("one", "two"))
    assert one.model.config["position_buckets"] == 8 and one.model.fingerprint() == two.model.fingerprint()
    assert config_hash(one) == config_hash(two)
    other = compose(["model=transformers", f"model.name_or_path={tmp_path}/one", "model.config.num_hidden_layers=3"])
    assert other.model.num_layers == 3 and config_hash(other) != config_hash(one)
    (tmp_path / "one" / "config.json").unlink()
    again = TransformersEncoder(name_or_path=one.model.name_or_path, config=one.model.config)
    assert again.hidden_size == 32
