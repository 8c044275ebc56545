"""Bits a character: how well a pretrained model predicts held-out sentences, by each rule that gives their tokens probabilities.

    sentences -> tokens, cut where a row is full -> score_texts -> rule -> -sum of log2 p / characters that are no white space

Over characters, not tokens, so that vocabularies can be compared (Mielke et al. 2019); the sum over the sum, never a mean of sentences.
None gains by what it leaves out: characters under an unknown token, or under none, cost their UTF-8 bytes on top. What one word is, whose
end is hidden while its beginning is asked for, the text alone says (WORD), not the tokenizer. Not made even: a vocabulary that lowers case
has an easier text, one that writes white space into its tokens a slightly harder one.

Of masked models the number is the pseudo-log-likelihood's (Salazar et al. 2020), which is no code length: each token is predicted from both
sides. There [MASK] hides what is asked for and nothing else is corrupted, whatever the mix of the arm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.measures.sentence_scoring import UNDEFINED, score_texts
from mlm_lab.evaluation.task import TaskData
from mlm_lab.tokenizers.words import first_of_words

if TYPE_CHECKING:
    from tokenizers import Encoding

    from mlm_lab.tokenizers.loading import LoadedTokenizer

METRIC = "bits_per_character"
MAIN_RULE = "pll_within_word"
"""The one that is called METRIC; another stands beside it as RULE/METRIC. By plain pll a rare word of several tokens gives itself away, so
that a vocabulary of small pieces would seem the better one."""
NO_PROBABILITY = ("replaced",)
"""Rules whose scores are no probabilities of the tokens."""
BYTE = 8.0
"""Bits of a byte of what the vocabulary does not know."""
_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"\s*(?:[{_ALONE}]|[^\W{_ALONE}]+|[^\w\s])")
"""A word, with the white space before it: letters, digits and _ in a row, of scripts without spaces (Chinese, Japanese) one; or a mark."""
NOTE = "bits of different objectives, or by different rules, are not compared; nor those of a vocabulary that lowers case with another's"


def metric_of(rule: str) -> str:
    return METRIC if rule == MAIN_RULE else f"{rule}/{METRIC}"


class BitsPerCharacter:
    """Satisfies `Measure`."""

    def __init__(self, data: TaskData, tokenizer: LoadedTokenizer, max_length: int):
        self.texts = [example.text for example in data.dev]
        encodings = tokenizer.tokenizer.encode_batch(self.texts, add_special_tokens=False)
        starts, room = first_of_words(word_begins, self.texts, encodings), max_length - 2
        self.ids: list[np.ndarray] = []
        self.starts: list[np.ndarray] = []
        self.owners: list[int] = []
        """Which text each of them is of."""
        self.tokens = 0
        for owner, encoding in enumerate(encodings):
            ids, first = np.array(encoding.ids, dtype=np.int64), starts[self.tokens : self.tokens + len(encoding)]
            for at in range(0, len(ids), room):
                self.ids.append(ids[at : at + room])
                self.starts.append(first[at : at + room])
                self.owners.append(owner)
            self.tokens += len(ids)
        self.characters = sum(len("".join(text.split())) for text in self.texts)
        unread = [
            unread_characters(text, encoding, tokenizer.vocabulary.unk_id) for text, encoding in zip(self.texts, encodings, strict=True)
        ]
        self.unread = sum(map(len, unread))
        self.unread_bits = np.array([BYTE * len(of_text.encode("utf-8", "surrogatepass")) for of_text in unread])

    def settings(self, subject: Subject) -> dict:
        return {}

    def __call__(self, subject: Subject, seed: int) -> Outcome:
        scores = {rule: values for rule, values in score_texts(subject, self.ids, self.starts).items() if rule not in NO_PROBABILITY}
        facts = {
            "examples": {"dev": len(self.texts)},
            "characters": self.characters,
            "unread_characters": self.unread,
            "tokens": self.tokens,
            "cut": {"dev": int((np.bincount(self.owners) > 1).sum())},
        }
        if not scores:
            return Outcome({METRIC: None}, [], facts=facts | {"notes": [UNDEFINED]})
        bits = {
            rule: np.bincount(self.owners, -values / math.log(2), len(self.texts)) + self.unread_bits for rule, values in scores.items()
        }
        lines = [
            {"part": "dev", "index": index, "gold": text, "prediction": {rule: round(float(all_[index]), 3) for rule, all_ in bits.items()}}
            for index, text in enumerate(self.texts)
        ]
        notes = [NOTE]
        if self.unread:
            notes.append(
                f"{self.unread:,} of {self.characters:,} characters are unknown to the vocabulary: they cost their bytes, "
                f"{self.unread_bits.sum() / self.characters:.3f} bits a character"
            )
        metrics = {metric_of(rule): float(of_rule.sum()) / self.characters for rule, of_rule in bits.items()}
        return Outcome(metrics, lines, facts=facts | {"notes": notes})


def word_begins(text: str) -> Iterator[int]:
    """Where each word begins, by `WORD`."""
    return (match.start() for match in WORD.finditer(text))


def unread_characters(text: str, encoding: Encoding, unk_id: int) -> str:
    """What of a text no token stands for but the unknown one; white space aside."""
    read = np.zeros(len(text), dtype=bool)
    for token_id, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
        read[begin:end] |= token_id != unk_id
    return "".join(character for character, known in zip(text, read, strict=True) if not known and not character.isspace())
