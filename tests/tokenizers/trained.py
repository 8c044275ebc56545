"""Tokenizers trained on real English with rare characters and many ties between pairs: the language reference that comes with Python."""

from __future__ import annotations

from pydoc_data.topics import topics

from mlm_lab.tokenizers.bpe import Bpe
from mlm_lab.tokenizers.loading import LoadedTokenizer
from mlm_lab.tokenizers.unigram import Unigram
from mlm_lab.tokenizers.wordpiece import WordPiece

KINDS = {"wordpiece": WordPiece, "bpe": Bpe, "unigram": Unigram}

STRANGE = "Ünïcödé naïve Ωμέγα Москва हिन्दी العربية 中文字 😀 “quoted” — dash… ½ ²"


def reference_texts(characters: int) -> list[str]:
    texts = [STRANGE, *(paragraph for name in sorted(topics) for paragraph in topics[name].split("\n\n") if paragraph.strip())]
    kept, total = [], 0
    for text in texts:
        kept.append(text)
        total += len(text)
        if total > characters:
            break
    return kept


def train(kind: str, vocab_size: int = 900, lowercase: bool = False, characters: int = 60_000) -> LoadedTokenizer:
    config = KINDS[kind](vocab_size=vocab_size, lowercase=lowercase, num_sentinels=20, train_characters=characters, words="own")
    return LoadedTokenizer(config.train(iter(reference_texts(characters))))


def print_fingerprints() -> None:
    """One of each kind, cased and not: run in a process of its own, since hash orders change with the process."""
    for kind in KINDS:
        for lowercase in (False, True):
            print(kind, lowercase, train(kind, 2000, lowercase, 150_000).fingerprint)
