"""FLOPs in closed form, the presets, and mistakes in a model's config."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.heads import SequenceHead, TokenHead
from mlm_lab.models.transformer import TransformerEncoder
from tests.models.conftest import encoder_config, make_vocabulary

PRESETS = sorted((Path(__file__).resolve().parents[2] / "conf" / "model").glob("*.yaml"))
PRESETS = [path for path in PRESETS if "mlm_lab.models.encoder_config.Encoder" in path.read_text()]
"""Of our own encoder."""
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768), "large": (24, 1024)}
NAMED = {prefix + size: shape for size, shape in SIZES.items() for prefix in ("", "modern_")} | {"t5_tiny": (2, 128), "t5_small": (6, 512)}
"""preset -> layers, width"""


def preset(path: Path) -> Encoder:
    fields = yaml.safe_load(path.read_text())
    assert fields.pop("_target_") == "mlm_lab.models.encoder_config.Encoder"
    assert set(fields) == {field.name for field in dataclasses.fields(Encoder)}
    for name in ("norm_eps", "rotary_base", "initializer_range"):
        fields[name] = float(fields[name])  # YAML 1.1 reads 1e-12 as text
    return Encoder(**fields)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_presets_have_the_sizes_that_they_are_named_for(path: Path):
    config = preset(path)
    assert (config.num_layers, config.hidden_size) == NAMED[path.stem]
    with torch.device("meta"):
        rows = 30_528
        parameters = sum(p.numel() for p in TransformerEncoder(config, rows).parameters()) - rows * config.hidden_size
    # BERT's layers have 12 D^2 parameters; the modern ones the same to a twentieth.
    assert parameters == pytest.approx(12 * config.hidden_size**2 * config.num_layers, rel=0.08)


def test_presets_are_all_there():
    assert {path.stem for path in PRESETS} == NAMED.keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flops_in_closed_form(recipe: str, dtype: torch.dtype):
    encoder = TransformerEncoder(encoder_config(recipe, max_positions=128), 96)
    ids = torch.randint(5, 96, (3, 96))
    counter = FlopCounterMode(display=False)
    math_kernel = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16), math_kernel, counter:
        encoder(ids, torch.ones_like(ids))
    assert encoder.flops(3, 96) == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_every_parameter_is_used(recipe: str):
    """A parameter without a gradient stops distributed training."""
    encoder = TransformerEncoder(encoder_config(recipe), 96)
    ids = torch.randint(5, 96, (2, 8))
    encoder(ids, torch.ones_like(ids))[:, :, 0].sum().backward()
    assert [name for name, p in encoder.named_parameters() if p.grad is None] == []


def test_the_seed_gives_the_initial_weights(recipe: str):
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(encoder_config(recipe).build(make_vocabulary()).state_dict()["layers.0.attention.qkv.weight"])
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])
    assert states[0].std().item() == pytest.approx(0.02, rel=0.1)


def test_heads_for_fine_tuning():
    hidden = torch.randn(3, 7, 32)
    assert SequenceHead(encoder_config(), 5, dropout=0.1)(hidden).shape == (3, 5)
    assert TokenHead(encoder_config(), 9, dropout=0.1)(hidden).shape == (3, 7, 9)
    head = SequenceHead(encoder_config(), 2, dropout=0.0)
    other = hidden.clone()
    other[:, 1:] = 0
    assert torch.equal(head(hidden), head(other)), "only the first token counts"


def test_all_bad_fields_are_named_at_once():
    with pytest.raises(InvalidFields) as caught:
        encoder_config(num_heads=5, positions="absolute", hidden_dropout=1.0)
    assert [problem.field for problem in caught.value.problems] == ["num_heads", "positions", "hidden_dropout"]


def test_rotary_positions_need_an_even_head():
    with pytest.raises(InvalidFields, match="even"):
        encoder_config("modern", hidden_size=36, num_heads=4)


def test_too_few_learned_positions():
    with pytest.raises(UserError, match=r"where: +evaluation\.max_length"):
        encoder_config().check_length(65, "evaluation.max_length")
    ids = torch.ones(1, 65, dtype=torch.long)
    with pytest.raises(UserError, match="max_positions=65"):
        encoder_config().build(make_vocabulary())(ids, ids)
    encoder_config("relative").build(make_vocabulary())(ids, ids)
