"""Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019), trained here. Any text can be encoded: there is no UNK in practice.

Text is kept as it is, so that decoding gives it back; with `lowercase` accents are removed too (NFD, then combining marks dropped), as in
BERT's uncased models. Words are split as by GPT-2 (letters, digits or other signs with the space before them), except that a combining
mark belongs to its letter, and a sentence starts with a space, so that its first word is spelt like the others.

The trainer gives the same merges on every run and for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mlm_lab.errors import require
from mlm_lab.tokenizers.words import OWN, WAYS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
WORD = r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, kw_only=True)
class Bpe:
    vocab_size: int
    """Number of ids in all, special tokens and sentinels included. A small corpus may give fewer."""
    lowercase: bool
    """Lower-case the text and remove accents."""
    num_sentinels: int
    """Tokens <extra_id_0>, <extra_id_1>, ... at the end of the vocabulary, for span corruption."""
    train_characters: int
    """Most characters of the training split that the vocabulary is learnt from, spread evenly over it."""
    words: str
    """Where words begin, for masks over whole words: own (as it splits before it makes pieces), spaces (a corpus that comes in words),
    unicode (Unicode's rules and ICU's dictionaries, for scripts without spaces), jieba (Chinese); more in tokenizers/words.py."""

    ADDED: ClassVar[Mapping[str, object]] = {"words": OWN}

    def __post_init__(self) -> None:
        least = 256 + len(SPECIAL_TOKENS) + self.num_sentinels
        require(
            ("num_sentinels", self.num_sentinels, self.num_sentinels >= 0, "0 or more"),
            ("vocab_size", self.vocab_size, self.vocab_size >= least, f"{least} or more (256 bytes, 5 special tokens and the sentinels)"),
            ("train_characters", self.train_characters, self.train_characters > 0, "1 or more"),
            ("words", self.words, self.words in WAYS, ", ".join(WAYS)),
        )

    def train(self, texts: Iterator[str]) -> Tokenizer:
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        from mlm_lab.tokenizers.training import Sample, finish

        sample = Sample.of(texts, self.train_characters)
        tokenizer = Tokenizer(models.BPE(unk_token=UNK))
        lower = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()] if self.lowercase else []
        tokenizer.normalizer = normalizers.Sequence([*lower, normalizers.Prepend(" ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(WORD), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size - self.num_sentinels,
            special_tokens=SPECIAL_TOKENS,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(sample.texts, trainer=trainer)
        return finish(tokenizer, CLS, SEP, SPECIAL_TOKENS, self.num_sentinels)
