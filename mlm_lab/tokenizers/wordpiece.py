"""WordPiece with BERT's normalisation and pre-tokenisation (Devlin et al. 2019; Schuster & Nakajima 2012), trained here.

Text is cleaned of control characters, white space becomes a space, Chinese characters stand alone; with `lowercase` accents are removed
too (NFD, then combining marks dropped), as in BERT's uncased models, and kept otherwise. Words are split at white space and punctuation.

The trainer of the `tokenizers` library numbers "##c", for each character c inside a word, in the order of a hash table, and those numbers
decide between equally frequent pairs: three runs gave three vocabularies. Given the whole alphabet and "##" + alphabet as special tokens
it numbers them in our order, and all runs and thread counts agree. They must not stay special tokens: the model is built anew from the
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mlm_lab.errors import require
from mlm_lab.tokenizers.words import OWN, WAYS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@dataclass(frozen=True, kw_only=True)
class WordPiece:
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
        least = 256 + self.num_sentinels
        require(
            ("num_sentinels", self.num_sentinels, self.num_sentinels >= 0, "0 or more"),
            ("vocab_size", self.vocab_size, self.vocab_size >= least, f"{least} or more (256 and the sentinels)"),
            ("train_characters", self.train_characters, self.train_characters > 0, "1 or more"),
            ("words", self.words, self.words in WAYS, ", ".join(WAYS)),
        )

    def given_characters(self) -> list[str]:
        """What the alphabet has whatever the text."""
        return []

    def train(self, texts: Iterator[str]) -> Tokenizer:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        from mlm_lab.tokenizers.training import Sample, alphabet_of, finish

        sample = Sample.of(texts, self.train_characters)
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNK))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=self.lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix="##")

        def stands_alone(character: str) -> bool:
            return len(tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(f"a{character}a"))) > 1

        size = self.vocab_size - self.num_sentinels
        alphabet = sorted({*alphabet_of(sample.texts, tokenizer.normalizer, size, stands_alone), *self.given_characters()})
        inside = [f"##{c}" for c in alphabet if not stands_alone(c)]
        trainer = trainers.WordPieceTrainer(
            vocab_size=size,
            special_tokens=[*SPECIAL_TOKENS, *alphabet, *inside],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        tokenizer.train_from_iterator(sample.texts, trainer=trainer)
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)

        clean = Tokenizer(models.WordPiece(vocabulary, unk_token=UNK, continuing_subword_prefix="##"))
        clean.normalizer, clean.pre_tokenizer, clean.decoder = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder
        return finish(clean, CLS, SEP, SPECIAL_TOKENS, self.num_sentinels)
