"""What the evaluation tests share: a tiny tokenizer and a tiny encoder, made in memory."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.tokenizers.loading import LoadedTokenizer
from mlm_lab.types import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="session")
def tokenizer() -> LoadedTokenizer:
    """WordPiece over letters: a word has as many sub-tokens as letters, but for a few whole words."""
    pieces = [*SPECIAL, *LETTERS, *("##" + letter for letter in LETTERS), *".,'", "good", "bad", "the", "film", "is", "anna", "berlin"]
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return LoadedTokenizer(tokenizer)


@pytest.fixture(scope="session")
def vocabulary(tokenizer: LoadedTokenizer) -> Vocabulary:
    return tokenizer.vocabulary


@pytest.fixture
def encoder_config() -> Encoder:
    return Encoder(
        hidden_size=32,
        num_layers=2,
        share_layers=False,
        num_heads=4,
        intermediate_size=64,
        embedding_size=None,
        tie_output=True,
        activation="gelu",
        norm="layer",
        norm_position="post",
        embedding_norm=True,
        final_norm=False,
        norm_eps=1e-12,
        bias=True,
        positions="learned",
        max_positions=64,
        rotary_base=10000.0,
        relative_bias="neighbours",
        relative_buckets=32,
        relative_max_distance=128,
        local_window=None,
        global_every=3,
        local_rotary_base=None,
        type_vocab_size=2,
        initializer_range=0.05,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )


@pytest.fixture
def encoder(encoder_config: Encoder, vocabulary: Vocabulary) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return encoder_config.build(vocabulary)
