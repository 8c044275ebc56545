"""A text that is no text, for a plan before there is a token store: words by Zipf's law, sentences and documents of the usual lengths.

What a step costs depends on shapes, and on how full rows are; not on what stands in them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS_OF_A_SENTENCE = 17
SENTENCES_OF_A_DOCUMENT = 3
"""In the mean."""
FORMS_A_PIECE, USES_A_FORM = 2, 12
"""So many different words for each piece of the vocabulary, each used so often in the mean, that a tokenizer finds all its pieces."""


def write_text(path: Path, vocab_size: int, seed: int = 0) -> None:
    """A txt file, a blank line after each document, from which a tokenizer of this size can be trained."""
    generator = np.random.default_rng(seed)
    forms = _forms(generator, FORMS_A_PIECE * vocab_size)
    probabilities = 1.0 / np.arange(10, len(forms) + 10)
    drawn = generator.choice(len(forms), size=USES_A_FORM * len(forms), p=probabilities / probabilities.sum())
    words = np.concatenate([drawn, generator.permutation(len(forms))])  # each form once at least
    lengths = 1 + generator.poisson(WORDS_OF_A_SENTENCE - 1, size=len(words) // WORDS_OF_A_SENTENCE)
    ends = np.cumsum(lengths)
    ends = ends[ends < len(words)]
    last = generator.random(len(ends)) < 1 / SENTENCES_OF_A_DOCUMENT
    with open(path, "w", encoding="utf-8") as file:
        for start, stop, ends_document in zip(np.append(0, ends[:-1]), ends, last, strict=True):
            file.write(" ".join(forms[word] for word in words[start:stop]).capitalize() + (".\n\n" if ends_document else ".\n"))


def _forms(generator: np.random.Generator, count: int) -> list[str]:
    syllables = [first + second for first in "bcdfghjklmnprstvwz" for second in ("a", "e", "i", "o", "u", "an", "er", "in", "or", "us")]
    found: dict[str, None] = {}
    while len(found) < count:
        for picks in generator.integers(len(syllables), size=(count, 4)):
            found.setdefault("".join(syllables[pick] for pick in picks[: 1 + picks[0] % 4]))
    return list(found)[:count]
