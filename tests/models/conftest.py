"""Small encoders for the tests of models: BERT's choices unless the test says otherwise."""

from __future__ import annotations

import pytest

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.types import Vocabulary

BERT = {
    "hidden_size": 32,
    "num_layers": 2,
    "share_layers": False,
    "num_heads": 4,
    "intermediate_size": 64,
    "embedding_size": None,
    "tie_output": True,
    "activation": "gelu",
    "norm": "layer",
    "norm_position": "post",
    "embedding_norm": True,
    "final_norm": False,
    "norm_eps": 1e-12,
    "bias": True,
    "positions": "learned",
    "max_positions": 64,
    "rotary_base": 10_000.0,
    "relative_bias": "none",
    "relative_buckets": 32,
    "relative_max_distance": 128,
    "local_window": None,
    "global_every": 3,
    "local_rotary_base": None,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}
MODERN = BERT | {
    "activation": "geglu",
    "norm_position": "pre",
    "final_norm": True,
    "norm_eps": 1e-5,
    "bias": False,
    "positions": "rotary",
    "type_vocab_size": 0,
}
RELATIVE = BERT | {"positions": "none", "relative_bias": "neighbours"}
ALBERT = BERT | {"share_layers": True, "embedding_size": 16}
LOCAL = MODERN | {"local_window": 6, "global_every": 2, "local_rotary_base": 100.0}
RECIPES = {"bert": BERT, "modern": MODERN, "relative": RELATIVE, "albert": ALBERT, "local": LOCAL}


def encoder_config(recipe: str = "bert", **changes: object) -> Encoder:
    return Encoder(**(RECIPES[recipe] | changes))


def make_vocabulary(size: int = 96, padded_size: int = 96) -> Vocabulary:
    return Vocabulary(
        size=size,
        padded_size=padded_size,
        pad_id=0,
        unk_id=1,
        cls_id=2,
        sep_id=3,
        mask_id=4,
        special_ids=(0, 1, 2, 3, 4),
        sentinel_ids=(),
        fingerprint="test",
    )


@pytest.fixture(params=sorted(RECIPES))
def recipe(request: pytest.FixtureRequest) -> str:
    """Each recipe in turn."""
    return request.param
