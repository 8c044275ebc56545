"""A given tokenizer: a tokenizer.json, or a Hugging Face folder that holds one. Nothing is trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlm_lab.errors import require

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from mlm_lab.tokenizers.loading import LoadedTokenizer


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    path: str
    """The tokenizer.json, or the folder with it."""
    num_sentinels: int
    """Tokens <extra_id_0>, <extra_id_1>, ... that are added at the end where the tokenizer lacks them (span corruption needs some)."""

    def __post_init__(self) -> None:
        require(("num_sentinels", self.num_sentinels, self.num_sentinels >= 0, "0 or more"))

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
        if not lacking:
            return given
        given.tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in lacking])
        return LoadedTokenizer(given.tokenizer, given.names, where=self.path)

    def train(self, texts: Iterator[str]) -> Tokenizer:
        """The given tokenizer; the texts are not read."""
        return self.load().tokenizer
