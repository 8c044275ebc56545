"""The same weights give the same numbers as Transformers' ALBERT, ELECTRA, ModernBERT with local layers, and BERT as a causal model."""

from __future__ import annotations

import pytest
import torch

from mlm_lab.models.transformer import TransformerEncoder
from mlm_lab.objectives.mlm_module import MaskedLM
from tests.models.conftest import encoder_config, make_vocabulary
from tests.models.test_transformers_equality import (
    NO_DROPOUT,
    SIZES,
    assert_close_where_real,
    bert_names,
    inputs,
    load_strictly,
    randomise,
    rename,
)

transformers = pytest.importorskip("transformers")

ALBERT_LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0."
ALBERT_NAMES = {
    "embeddings.tokens": "albert.embeddings.word_embeddings",
    "embeddings.positions": "albert.embeddings.position_embeddings",
    "embeddings.types": "albert.embeddings.token_type_embeddings",
    "embeddings.norm": "albert.embeddings.LayerNorm",
    "embedding_projection": "albert.encoder.embedding_hidden_mapping_in",
    "layers.0.attention.qkv": ",".join(ALBERT_LAYER + f"attention.{part}" for part in ("query", "key", "value")),
    "layers.0.attention.out": ALBERT_LAYER + "attention.dense",
    "layers.0.attention_norm": ALBERT_LAYER + "attention.LayerNorm",
    "layers.0.feed_forward.up": ALBERT_LAYER + "ffn",
    "layers.0.feed_forward.down": ALBERT_LAYER + "ffn_output",
    "layers.0.feed_forward_norm": ALBERT_LAYER + "full_layer_layer_norm",
}


def test_shared_layers_and_factorised_embeddings_equal_albert():
    config = transformers.AlbertConfig(
        **SIZES, embedding_size=16, max_position_embeddings=64, hidden_act="gelu", classifier_dropout_prob=0.0
    )
    theirs = randomise(transformers.AlbertForMaskedLM(config))
    ours = MaskedLM(encoder_config("albert"), make_vocabulary())
    state = theirs.state_dict()
    load_strictly(ours.encoder, rename(state, ALBERT_NAMES))
    head = rename(state, {"dense": "predictions.dense", "norm": "predictions.LayerNorm"})
    load_strictly(ours.head, head | {"bias": state["predictions.bias"]})
    batch = inputs()
    expected = theirs(**batch, output_hidden_states=True)
    hidden_states = ours.encoder(**batch, output_hidden_states=True)
    assert len(hidden_states) == len(expected.hidden_states) == 3
    for mine, other in zip(hidden_states, expected.hidden_states, strict=True):
        assert_close_where_real(mine, other, batch["attention_mask"])
    logits = ours.head(hidden_states[-1], ours.encoder.embedding_weight)
    assert_close_where_real(logits, expected.logits, batch["attention_mask"])


def test_embedding_projection_equals_electra():
    config = transformers.ElectraConfig(**SIZES, **NO_DROPOUT, embedding_size=16, max_position_embeddings=64)
    theirs = randomise(transformers.ElectraForMaskedLM(config))
    ours = MaskedLM(encoder_config(embedding_size=16), make_vocabulary())
    state = theirs.state_dict()
    names = bert_names("electra.") | {"embedding_projection": "electra.embeddings_project"}
    load_strictly(ours.encoder, rename(state, names))
    head = rename(state, {"dense": "generator_predictions.dense", "norm": "generator_predictions.LayerNorm"})
    load_strictly(ours.head, head | {"bias": state["generator_lm_head.bias"]})
    batch = inputs()
    hidden = ours.encoder(**batch)
    expected = theirs(**batch, output_hidden_states=True)
    assert_close_where_real(hidden, expected.hidden_states[-1], batch["attention_mask"])
    assert_close_where_real(ours.head(hidden, ours.encoder.embedding_weight), expected.logits, batch["attention_mask"])


def modern_names() -> dict[str, str]:
    layer = "layers.{}."
    return {
        "embeddings.tokens": "embeddings.tok_embeddings",
        "embeddings.norm": "embeddings.norm",
        "layers.{}.attention.qkv": layer + "attn.Wqkv",
        "layers.{}.attention.out": layer + "attn.Wo",
        "layers.{}.attention_norm": layer + "attn_norm",
        "layers.{}.feed_forward.up": layer + "mlp.Wi",
        "layers.{}.feed_forward.down": layer + "mlp.Wo",
        "layers.{}.feed_forward_norm": layer + "mlp_norm",
        "final_norm": "final_norm",
    }


@pytest.mark.parametrize("kernel", ["sdpa", "written out"])
def test_local_layers_equal_modernbert(kernel: str, monkeypatch: pytest.MonkeyPatch):
    """Layers 0 and 3 global, the others with 4 tokens on each side and rotary wavelengths of their own."""
    monkeypatch.setattr("mlm_lab.models.transformer.writes_scores", lambda device, dtype: kernel == "written out")
    config = transformers.ModernBertConfig(
        **SIZES | {"num_hidden_layers": 5}, max_position_embeddings=64, local_attention=8, pad_token_id=0, attn_implementation="sdpa"
    )
    theirs = randomise(transformers.ModernBertModel(config))
    bases = {kind: config.rope_parameters[kind]["rope_theta"] for kind in ("full_attention", "sliding_attention")}
    assert bases == {"full_attention": 160_000.0, "sliding_attention": 10_000.0}, "ModernBERT's own"
    ours = TransformerEncoder(
        encoder_config(
            "modern",
            num_layers=5,
            local_window=8,
            global_every=3,
            rotary_base=160_000.0,
            local_rotary_base=10_000.0,
            norm_eps=config.norm_eps,
        ),
        96,
    )
    load_strictly(ours, rename(theirs.state_dict(), modern_names(), num_layers=5))
    batch = inputs(length=40)
    del batch["token_type_ids"]
    assert_close_where_real(ours(**batch), theirs(**batch).last_hidden_state, batch["attention_mask"])


def test_causal_mask_equals_bert_as_a_decoder():
    config = transformers.BertConfig(**SIZES, **NO_DROPOUT, max_position_embeddings=64, is_decoder=True)
    theirs = randomise(transformers.BertModel(config))
    ours = TransformerEncoder(encoder_config(), 96, causal=True)
    load_strictly(ours, rename(theirs.state_dict(), bert_names()))
    batch = inputs()
    assert_close_where_real(ours(**batch), theirs(**batch, use_cache=False).last_hidden_state, batch["attention_mask"])


def test_output_matrix_of_its_own_equals_bert_untied():
    config = transformers.BertConfig(**SIZES, **NO_DROPOUT, max_position_embeddings=64, tie_word_embeddings=False)
    theirs = randomise(transformers.BertForMaskedLM(config))
    ours = MaskedLM(encoder_config(tie_output=False), make_vocabulary())
    state = theirs.state_dict()
    load_strictly(ours.encoder, rename(state, bert_names("bert.")))
    head = rename(state, {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"})
    bias, weight = state["cls.predictions.decoder.bias"], state["cls.predictions.decoder.weight"]
    assert not torch.equal(weight, state["bert.embeddings.word_embeddings.weight"])
    load_strictly(ours.head, head | {"bias": bias, "weight": weight})
    batch = inputs()
    logits = ours.head(ours.encoder(**batch), ours.encoder.embedding_weight)
    assert_close_where_real(logits, theirs(**batch).logits, batch["attention_mask"])
