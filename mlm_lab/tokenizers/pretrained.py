"""A given tokenizer: a tokenizer.json, or a Hugging Face folder that holds one. Nothing is trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mlm_lab.errors import UserError, require
from mlm_lab.tokenizers.words import OWN, WAYS, settle

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from mlm_lab.tokenizers.loading import LoadedTokenizer


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    path: str
    """The tokenizer.json, or the folder with it."""
    num_sentinels: int
    """Tokens <extra_id_0>, <extra_id_1>, ... that are added at the end where the tokenizer lacks them (span corruption needs some)."""
    new_words: str | None
    """A text file with a word a line: words of a domain that become tokens of their own, at the end. They are ordinary tokens: they are
    masked, drawn and predicted as the others are. With pretrained=FOLDER each starts as the mean of the pieces that it was before."""
    words: str
    """Where words begin, for masks over whole words: own (as it splits before it makes pieces), spaces (a corpus that comes in words),
    unicode (Unicode's rules and ICU's dictionaries, for scripts without spaces), jieba (Chinese); more in tokenizers/words.py."""

    ADDED: ClassVar[Mapping[str, object]] = {"words": OWN}

    def __post_init__(self) -> None:
        require(
            ("num_sentinels", self.num_sentinels, self.num_sentinels >= 0, "0 or more"),
            ("words", self.words, self.words in WAYS, ", ".join(WAYS)),
        )

    def fingerprint(self) -> str:
        """Digest of what the files say: the tokenizer with its sentinels, and which token is which. Raises UserError as `load` does."""
        loaded = self.load()
        return hashlib.sha256(json.dumps([loaded.fingerprint, loaded.names], sort_keys=True).encode()).hexdigest()

    def load(self) -> LoadedTokenizer:
        """Raises UserError: no such file, or a special token that is needed is missing."""
        from tokenizers import AddedToken

        from mlm_lab.tokenizers.loading import LoadedTokenizer, load
        from mlm_lab.tokenizers.training import sentinel_names

        given = load(self.path)
        lacking = [name for name in sentinel_names(self.num_sentinels) if given.tokenizer.token_to_id(name) is None]
        words = [word for word in self._words() if len(given.encode(word)) > 1 and given.tokenizer.token_to_id(word) is None]
        if not lacking and not words and self.words == OWN:
            return given
        given.tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in lacking])
        given.tokenizer.add_tokens([AddedToken(word, single_word=True, normalized=True) for word in words])
        way = given.words if self.words == OWN else settle(self.words)
        return LoadedTokenizer(given.tokenizer, given.names, self.path, [*given.new_words, *words], way)

    def _words(self) -> list[str]:
        """The words of new_words, each once, in the order of the file."""
        if self.new_words is None:
            return []
        path = Path(self.new_words).expanduser()
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError("the new words cannot be read", where=str(path), given=str(error)) from None
        words = list(dict.fromkeys(stripped for line in lines if (stripped := line.strip())))
        if several := [word for word in words if len(word.split()) > 1]:
            raise UserError("a new word has a space in it", where=str(path), given=several[0], allowed="one word a line")
        return words

    def train(self, texts: Iterator[str]) -> Tokenizer:
        """The given tokenizer; the texts are not read."""
        return self.load().tokenizer
