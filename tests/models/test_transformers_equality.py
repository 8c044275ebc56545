"""The same weights give the same numbers as Transformers' BERT, MPNet and ModernBERT, and train along the same curve."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mlm_lab.models.transformer import TransformerEncoder
from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.optim.adamw import AdamW
from tests.models.conftest import encoder_config, make_vocabulary

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def randomise(model: nn.Module) -> nn.Module:
    """Weights large enough, biases and norms included, that a wrong one shows."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.copy_(centre + 0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def rename(state: dict[str, torch.Tensor], names: dict[str, str], num_layers: int = 2) -> dict[str, torch.Tensor]:
    """Ours -> theirs; several of theirs, separated by commas, are stacked; {} is the layer's number."""
    renamed = {}
    for ours, theirs in names.items():
        for layer in range(num_layers) if "{}" in ours else [None]:
            for kind in ("weight", "bias"):
                keys = [f"{name.format(layer)}.{kind}" for name in theirs.split(",")]
                if keys[0] in state:
                    renamed[f"{ours.format(layer)}.{kind}"] = torch.cat([state[key] for key in keys])
    return renamed


def bert_names(prefix: str = "") -> dict[str, str]:
    theirs = prefix + "encoder.layer.{}."
    return {
        "embeddings.tokens": prefix + "embeddings.word_embeddings",
        "embeddings.positions": prefix + "embeddings.position_embeddings",
        "embeddings.types": prefix + "embeddings.token_type_embeddings",
        "embeddings.norm": prefix + "embeddings.LayerNorm",
        "layers.{}.attention.qkv": ",".join(theirs + f"attention.self.{part}" for part in ("query", "key", "value")),
        "layers.{}.attention.out": theirs + "attention.output.dense",
        "layers.{}.attention_norm": theirs + "attention.output.LayerNorm",
        "layers.{}.feed_forward.up": theirs + "intermediate.dense",
        "layers.{}.feed_forward.down": theirs + "output.dense",
        "layers.{}.feed_forward_norm": theirs + "output.LayerNorm",
    }


def load_strictly(module: nn.Module, state: dict[str, torch.Tensor]) -> None:
    """All of ours, nothing else."""
    module.load_state_dict(state, strict=True)
    module.eval()


def inputs(batch_size: int = 3, length: int = 20) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(batch_size, length, dtype=torch.long)
    mask[1, 13:] = 0
    return {
        "input_ids": torch.randint(5, 96, (batch_size, length), generator=generator),
        "attention_mask": mask,
        "token_type_ids": torch.randint(0, 2, (batch_size, length), generator=generator),
    }


def assert_close_where_real(ours: torch.Tensor, theirs: torch.Tensor, mask: torch.Tensor, tolerance: float = 1e-5) -> None:
    real = mask.bool()
    torch.testing.assert_close(ours[real], theirs[real], rtol=tolerance, atol=tolerance)


def bert_masked_lm() -> nn.Module:
    config = transformers.BertConfig(**SIZES, **NO_DROPOUT, max_position_embeddings=64)
    return randomise(transformers.BertForMaskedLM(config))


def copy_bert(theirs: nn.Module, ours: MaskedLM) -> None:
    state = theirs.state_dict()
    load_strictly(ours.encoder, rename(state, bert_names("bert.")))
    head = rename(state, {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"})
    load_strictly(ours.head, head | {"bias": state["cls.predictions.bias"]})


def test_every_layer_of_bert_equals_transformers():
    theirs = randomise(transformers.BertModel(transformers.BertConfig(**SIZES, **NO_DROPOUT, max_position_embeddings=64)))
    ours = TransformerEncoder(encoder_config(), 96)
    load_strictly(ours, rename(theirs.state_dict(), bert_names()))
    batch = inputs()
    expected = theirs(**batch, output_hidden_states=True).hidden_states
    hidden_states = ours(**batch, output_hidden_states=True)
    assert len(hidden_states) == len(expected) == 3
    for mine, other in zip(hidden_states, expected, strict=True):
        assert_close_where_real(mine, other, batch["attention_mask"])
    torch.testing.assert_close(ours(**batch), hidden_states[-1], rtol=0, atol=0)


def test_masked_lm_logits_equal_transformers():
    theirs, ours = bert_masked_lm(), MaskedLM(encoder_config(), make_vocabulary())
    copy_bert(theirs, ours)
    batch = inputs()
    del batch["token_type_ids"]
    positions = torch.arange(20).expand(3, 20)
    logits = ours.predict(batch["input_ids"], batch["attention_mask"], None, positions)
    assert_close_where_real(logits, theirs(**batch).logits, batch["attention_mask"])


def test_loss_curve_of_fifty_steps_equals_transformers():
    theirs, ours = bert_masked_lm(), MaskedLM(encoder_config(), make_vocabulary())
    copy_bert(theirs, ours)
    optimizer = AdamW(peak_lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1, gradient_clip=None).build(ours)
    decayed = [p for p in theirs.parameters() if p.ndim > 1]
    undecayed = [p for p in theirs.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": undecayed, "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
    generator = torch.Generator().manual_seed(1)
    curve, expected = [], []
    for _ in range(50):
        ids = torch.randint(5, 96, (4, 16), generator=generator)
        positions = torch.stack([torch.randperm(16, generator=generator)[:3] for _ in range(4)])
        labels = ids.gather(1, positions)
        corrupted, dense = ids.scatter(1, positions, 4), torch.full_like(ids, -100).scatter(1, positions, labels)
        mask = torch.ones_like(ids)
        loss = theirs(input_ids=corrupted, attention_mask=mask, labels=dense).loss
        reference.zero_grad()
        loss.backward()
        reference.step()
        expected.append(loss.item())
        batch = {"input_ids": corrupted, "attention_mask": mask, "label_positions": positions, "labels": labels}
        loss = ours(batch).losses["mlm"] / 12
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    assert max(abs(a - b) for a, b in zip(curve, expected, strict=True)) < 1e-4, (curve, expected)
    assert abs(expected[0] - expected[-1]) > 0.05, "the steps must move the loss, or the comparison says nothing"


def test_shared_relative_bias_equals_mpnet():
    config = transformers.MPNetConfig(**SIZES, **NO_DROPOUT, max_position_embeddings=66, layer_norm_eps=1e-12)
    theirs = randomise(transformers.MPNetForMaskedLM(config))
    ours = MaskedLM(encoder_config(relative_bias="zero", type_vocab_size=0), make_vocabulary())
    state = theirs.state_dict()
    attention = "mpnet.encoder.layer.{}.attention."
    names = bert_names("mpnet.") | {
        "layers.{}.attention.qkv": ",".join(attention + f"attn.{part}" for part in "qkv"),
        "layers.{}.attention.out": attention + "attn.o",
        "layers.{}.attention_norm": attention + "LayerNorm",
        "relative_bias": "mpnet.encoder.relative_attention_bias",
    }
    encoder_state = rename(state, names)
    # MPNet counts positions from padding_idx + 1 = 2.
    encoder_state["embeddings.positions.weight"] = encoder_state["embeddings.positions.weight"][2:]
    load_strictly(ours.encoder, encoder_state)
    head = rename(state, {"dense": "lm_head.dense", "norm": "lm_head.layer_norm"})
    load_strictly(ours.head, head | {"bias": state["lm_head.bias"]})
    batch = inputs(length=60)
    del batch["token_type_ids"]
    # MPNet takes its position from the padding in the ids, not from the mask.
    batch["input_ids"][batch["attention_mask"] == 0] = config.pad_token_id
    expected = theirs(**batch).logits
    logits = ours.predict(batch["input_ids"], batch["attention_mask"], None, torch.arange(60).expand(3, 60))
    assert_close_where_real(logits, expected, batch["attention_mask"])


def test_modern_recipe_equals_modernbert():
    config = transformers.ModernBertConfig(
        **SIZES,
        max_position_embeddings=64,
        global_attn_every_n_layers=1,
        layer_types=["full_attention"] * 2,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    theirs = randomise(transformers.ModernBertModel(config))
    rotary_base = config.rope_parameters["full_attention"]["rope_theta"]
    ours = TransformerEncoder(encoder_config("modern", norm_eps=config.norm_eps, rotary_base=rotary_base), 96)
    layer = "layers.{}."
    names = {
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
    load_strictly(ours, rename(theirs.state_dict(), names))
    batch = inputs()
    del batch["token_type_ids"]
    assert_close_where_real(ours(**batch), theirs(**batch).last_hidden_state, batch["attention_mask"])
