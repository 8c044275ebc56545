"""Unigram language-model pieces (Kudo 2018), trained here.

White space of any kind becomes one space; with `lowercase` accents are removed too (NFD, then combining marks dropped), as in BERT's
uncased models. Words are runs of letters, marks and digits, or one other sign, with the "▁" that stands for the space before them.

The trainer of the `tokenizers` library takes characters that its pruning lost back in the order of a hash table, each with a score 1e-4
above the one before, and sums its counts in whatever order threads finish. Pieces and scores agree otherwise: with one score for those
characters, six decimals, and pieces sorted by score and spelling, all runs and thread counts agreed (60 runs, 7 corpora and sizes).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mlm_lab.errors import require
from mlm_lab.tokenizers.words import OWN, WAYS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
WORD = r"▁?[\p{L}\p{M}\p{N}]+|▁?[^▁\p{L}\p{M}\p{N}]|▁"
RESTORED_STEP = 1e-4
"""What the trainer adds to the score of each character that it takes back."""


@dataclass(frozen=True, kw_only=True)
class Unigram:
    vocab_size: int
    """Number of ids in all, special tokens and sentinels included. A small corpus may give fewer."""
    lowercase: bool
    """Lower-case the text and remove accents."""
    num_sentinels: int
    """Tokens <extra_id_0>, <extra_id_1>, ... at the end of the vocabulary, for span corruption."""
    train_characters: int
    """Most characters of the training split that the vocabulary is learnt from, spread evenly over it. Training takes about a second for
    each 300,000."""
    words: str
    """Where words begin, for masks over whole words: own (as it splits before it makes pieces), spaces (a corpus that comes in words),
    unicode (Unicode's rules and ICU's dictionaries, for scripts without spaces), jieba (Chinese); more in tokenizers/words.py."""

    ADDED: ClassVar[Mapping[str, object]] = {"words": OWN}

    def __post_init__(self) -> None:
        least = 256 + self.num_sentinels
        require(
            ("num_sentinels", self.num_sentinels, self.num_sentinels >= 0, "0 or more"),
            ("vocab_size", self.vocab_size, self.vocab_size >= least, f"{least} or more (256 and the sentinels)"),
            ("train_characters", self.train_characters, self.train_characters > 0, "1 or more"),
            ("words", self.words, self.words in WAYS, ", ".join(WAYS)),
        )

    def train(self, texts: Iterator[str]) -> Tokenizer:
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        from mlm_lab.tokenizers.training import Sample, alphabet_of, finish

        sample = Sample.of(texts, self.train_characters)
        tokenizer = Tokenizer(models.Unigram())
        lower = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()] if self.lowercase else []
        tokenizer.normalizer = normalizers.Sequence([*lower, normalizers.Replace(Regex(r"\s+"), " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Metaspace(split=False), pre_tokenizers.Split(Regex(WORD), "isolated")]
        )
        tokenizer.decoder = decoders.Metaspace()
        size = self.vocab_size - self.num_sentinels
        normalizer = tokenizer.normalizer  # a copy: while the tokenizer trains it answers nothing
        alphabet = set(alphabet_of(sample.texts, normalizer, size))
        trainer = trainers.UnigramTrainer(
            vocab_size=size, special_tokens=SPECIAL_TOKENS, unk_token=UNK, initial_alphabet=sorted(alphabet), show_progress=False
        )
        tokenizer.train_from_iterator((_only(alphabet, normalizer.normalize_str(text)) for text in sample.texts), trainer=trainer)
        tokenizer.model = models.Unigram(_in_order(json.loads(tokenizer.to_str())["model"]["vocab"]), unk_id=SPECIAL_TOKENS.index(UNK))
        return finish(tokenizer, CLS, SEP, SPECIAL_TOKENS, self.num_sentinels)


def _only(alphabet: set[str], text: str) -> str:
    """The text with a space for each character outside the alphabet: the trainer would keep them all, whatever the vocabulary's size."""
    strange = {ord(c): " " for c in set(text) - alphabet}
    return text.translate(strange) if strange else text


def _in_order(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The trained pieces without what differs from run to run (see the module's docstring); special tokens stay first."""
    first, learnt = pieces[: len(SPECIAL_TOKENS)], pieces[len(SPECIAL_TOKENS) :]
    lowest = min((score for _, score in learnt), default=0.0)
    characters = sum(len(piece) == 1 for piece, _ in learnt)

    def settled(piece: str, score: float) -> float:
        steps = (score - lowest) / RESTORED_STEP
        restored = len(piece) == 1 and abs(steps - round(steps)) < 1e-3 and round(steps) < characters
        return round(lowest if restored else score, 6)

    settled_pieces = [(piece, settled(piece, score)) for piece, score in learnt]
    return [(piece, score) for piece, score in first] + sorted(settled_pieces, key=lambda entry: (-entry[1], entry[0]))
