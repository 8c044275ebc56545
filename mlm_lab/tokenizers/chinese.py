"""Chinese as BERT's: each character is a token, simplified and traditional ones alike; other scripts are WordPiece (Devlin et al. 2019).

The common characters of both scripts are tokens whether or not the corpus has them, so that text in the other script is not a row of UNK:
level 1 of GB 2312 (3,755 simplified characters) and of Big5 (5,401 traditional ones), which Python's codecs know. What the corpus has
beyond them comes from the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlm_lab.errors import require
from mlm_lab.tokenizers.wordpiece import WordPiece

LEVELS = {"gb2312": ((0xB0, 0xD7), (0xA1, 0xFE)), "big5": ((0xA4, 0xC6), (0x40, 0xFE))}
"""Codec -> first and last lead byte, first and last second byte of its level 1."""
LAST = {"gb2312": 0xD7F9, "big5": 0xC67E}


@dataclass(frozen=True, kw_only=True)
class Chinese(WordPiece):
    """WordPiece whose alphabet has the common characters of both scripts. `words` says which of them belong together: jieba, or spaces for
    a corpus that comes in words; with own each character is a word."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 256 + len(self.given_characters()) + self.num_sentinels
        require(
            ("vocab_size", self.vocab_size, self.vocab_size >= least, f"{least} or more (256, the common characters and the sentinels)")
        )

    def given_characters(self) -> list[str]:
        return sorted({character for codec in LEVELS for character in level_one(codec)})


def level_one(codec: str) -> list[str]:
    """The common characters of a Chinese standard, in its order."""
    (first, last), (low, high) = LEVELS[codec]
    found = []
    for code in ((lead << 8) + second for lead in range(first, last + 1) for second in range(low, high + 1)):
        if code <= LAST[codec]:
            found += _decoded(code, codec)
    return found


def _decoded(code: int, codec: str) -> list[str]:
    try:
        return [code.to_bytes(2, "big").decode(codec)]
    except UnicodeDecodeError:
        return []
