"""A tokenizer as the rest of the program uses it: a tokenizer.json, what its special tokens are, and encoding by words.

`load(path)` opens what `LoadedTokenizer.save(folder)` wrote, or anybody's tokenizer.json or Hugging Face folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from mlm_lab.errors import UserError
from mlm_lab.tokenizers.words import OWN, first_tokens
from mlm_lab.types import Vocabulary

TOKENIZER = "tokenizer.json"
NAMES = "special_tokens_map.json"
"""Which token is which, in Hugging Face's form: {"mask_token": "[MASK]", ...}."""
NEW_WORDS, WORDS = "new_words", "words"
"""Beside them: added tokens that are ordinary words; where words begin (words.py)."""
ROLES = {
    "pad": ("[PAD]", "<pad>", "<|padding|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
}
"""Role -> usual names, for a tokenizer that does not say which of its tokens plays it."""
PADDED_TO = 64
"""Rows of the embedding matrix are a multiple of this: matrix products are fastest so (traps.md 27)."""
_SENTINEL = re.compile(r"^<extra_id_(\d+)>$")
_RESERVED = re.compile(r"^(\[unused\d+\]|<unused_?\d+>|<\|?reserved.*>|madeupword\d+)$")


class LoadedTokenizer:
    """A tokenizer and its Vocabulary. Text is always ordinary text: what spells "[MASK]" becomes the pieces "[", "mask", "]".

    No special tokens are added, nothing is cut or padded. Pickles as its text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        names: Mapping[str, str] | None = None,
        where: str = "the tokenizer",
        new_words: Sequence[str] = (),
        words: str = OWN,
    ):
        """names: role (pad, unk, cls, sep, mask) -> token, where it is known; the others are found by their usual names. new_words: added
        tokens that are words of the text like others, and not to be left alone by the masks. words: where words begin, as `words.settle`
        gives it.

        Raises:
            UserError: pad, cls, sep or mask is missing. Without UNK (byte-level vocabularies) unk_id is the pad's id, which no text gives.
        """
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self.tokenizer, self.new_words, self.words = tokenizer, frozenset(new_words), words
        self.names = {role: token for role in ROLES if (token := _find(tokenizer, role, names or {})) is not None}
        if missing := [role for role in ("pad", "cls", "sep", "mask") if role not in self.names]:
            raise UserError(
                f"the tokenizer has no {' and no '.join(missing)} token",
                where=where,
                given="special tokens: " + (", ".join(token.content for token in tokenizer.get_added_tokens_decoder().values()) or "none"),
                allowed="; ".join(f"{role}: {', '.join(ROLES[role])}" for role in missing),
                fix=f"name it in {NAMES} beside {TOKENIZER}, or train a tokenizer: tokenizer=wordpiece",
            )

    @cached_property
    def text(self) -> str:
        """The canonical tokenizer.json: the same content gives the same text."""
        return json.dumps(json.loads(self.tokenizer.to_str()), sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def fingerprint(self) -> str:
        words = "" if self.words == OWN else f"\n{self.words}"
        return hashlib.sha256(f"{self.text}{words}".encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        tokens = self.tokenizer.get_vocab(with_added_tokens=True)
        size = max(tokens.values()) + 1
        role_ids = {role: tokens[token] for role, token in self.names.items()}
        role_ids.setdefault("unk", role_ids["pad"])
        sentinels = sorted((int(match[1]), token_id) for token, token_id in tokens.items() if (match := _SENTINEL.match(token)))
        special = {
            *role_ids.values(),
            *(i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.content not in self.new_words),
            *(token_id for _, token_id in sentinels),
            *(token_id for token, token_id in tokens.items() if _RESERVED.match(token)),
            *set(range(size)).difference(tokens.values()),  # ids that no token has
        }
        return Vocabulary(
            size=size,
            padded_size=-(-size // PADDED_TO) * PADDED_TO,
            special_ids=tuple(sorted(special)),
            sentinel_ids=tuple(token_id for _, token_id in sentinels),
            fingerprint=self.fingerprint,
            **{f"{role}_id": token_id for role, token_id in role_ids.items()},
        )

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Encode texts end to end: (T,) int64 ids, (T,) bool first sub-tokens of words, (len(texts),) int64 tokens of each text."""
        # encode_batch_fast would lose the word ids with the offsets
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        lengths = np.fromiter((len(encoding) for encoding in encodings), dtype=np.int64, count=len(encodings))
        total = int(lengths.sum())
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), dtype=np.int64, count=total)
        if self.words != OWN:
            return ids, first_tokens(self.words, texts, encodings), lengths
        words = np.fromiter(chain.from_iterable(encoding.word_ids for encoding in encodings), dtype=np.int64, count=total)
        starts = np.ones(total, dtype=bool)
        starts[1:] = words[1:] != words[:-1]
        begins = np.cumsum(lengths) - lengths
        starts[begins[lengths > 0]] = True
        return ids, starts, lengths

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Ids of each word of a sentence that comes in words (CoNLL). No word is lost: one that gives no token becomes UNK."""
        encoding = self.tokenizer.encode(list(words), is_pretokenized=True, add_special_tokens=False)
        ids: list[list[int]] = [[] for _ in words]
        for token_id, word in zip(encoding.ids, encoding.word_ids, strict=True):
            ids[word].append(token_id)
        return [word_ids or [self.vocabulary.unk_id] for word_ids in ids]

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode([int(token_id) for token_id in ids], skip_special_tokens=False)

    def token(self, token_id: int) -> str:
        """The piece as the vocabulary spells it; "" for a row that has none."""
        return self.tokenizer.id_to_token(int(token_id)) or ""

    def check_pieces_of(self, folder: Path) -> None:
        """Whether weights in `folder` mean by each id what this tokenizer means: where both have a piece it is the same one, but for pieces
        that were kept for new words ([unused7]). A folder without a tokenizer says nothing.

        Raises:
            UserError: some ids are other pieces.
        """
        if not (folder / TOKENIZER).is_file():
            return
        theirs = load(folder)
        pairs = ((theirs.token(i), self.token(i), i) for i in range(min(theirs.vocabulary.size, self.vocabulary.size)))
        others = [(there, here, i) for there, here, i in pairs if there and here and there != here and not _RESERVED.match(there)]
        if others:
            there, here, first = others[0]
            raise UserError(
                "the weights are of another vocabulary: the same ids are other pieces",
                where=str(folder),
                given=f"{len(others):,} of {self.vocabulary.size:,} differ; {first} is {there!r} there, {here!r} here",
                fix="leave tokenizer= out: it is then taken from the folder",
            )

    def save(self, folder: Path) -> Path:
        """Write tokenizer.json and special_tokens_map.json, which is all that `load` and Hugging Face need."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TOKENIZER).write_text(self.text, encoding="utf-8")
        names: dict[str, object] = {f"{role}_token": token for role, token in self.names.items()}
        names |= {NEW_WORDS: sorted(self.new_words)} if self.new_words else {}
        names |= {WORDS: self.words} if self.words != OWN else {}
        (folder / NAMES).write_text(json.dumps(names, indent=1, ensure_ascii=False), encoding="utf-8")
        return folder / TOKENIZER

    def __reduce__(self) -> tuple:
        return (_from_text, (self.text, self.names, sorted(self.new_words), self.words))


def load(path: Path | str) -> LoadedTokenizer:
    """Open a tokenizer.json, or a folder that has one; special_tokens_map.json and tokenizer_config.json beside it name its special tokens.

    Raises:
        UserError: no such file, not a tokenizer.json, or a special token that is needed is missing.
    """
    path = Path(path).expanduser()
    file = path / TOKENIZER if path.is_dir() else path
    if not file.is_file():
        fix = None
        if path.is_dir():
            fix = f'write one: transformers.AutoTokenizer.from_pretrained("{path}").save_pretrained("{path}")'
        raise UserError(f"there is no {TOKENIZER}", where=str(path), fix=fix)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise UserError(f"this is not a {TOKENIZER}", where=str(file), given=str(error)) from None
    names, new_words, words = _names_beside(file)
    return LoadedTokenizer(tokenizer, names, str(file), new_words, words)


def _from_text(text: str, names: Mapping[str, str], new_words: Sequence[str], words: str) -> LoadedTokenizer:
    return LoadedTokenizer(Tokenizer.from_str(text), names, new_words=new_words, words=words)


def _find(tokenizer: Tokenizer, role: str, names: Mapping[str, str]) -> str | None:
    candidates = (names[role],) if role in names else ROLES[role]
    return next((name for name in candidates if tokenizer.token_to_id(name) is not None), None)


def _names_beside(file: Path) -> tuple[dict[str, str], list[str], str]:
    """Role -> token from a Hugging Face folder's own files, where a token stands as text or as {"content": text}; the new words; and where
    words begin."""
    names: dict[str, str] = {}
    new_words: list[str] = []
    words = OWN
    for config in (file.parent / "tokenizer_config.json", file.parent / NAMES):
        try:
            content = json.loads(config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except ValueError as error:
            raise UserError("this file is not JSON", where=str(config), given=str(error)) from None
        if not isinstance(content, dict):
            raise UserError("this file holds no mapping of names", where=str(config))
        for role in ROLES:
            token = content.get(f"{role}_token")
            if isinstance(token := token.get("content") if isinstance(token, dict) else token, str):
                names[role] = token
        new_words += [word for word in content.get(NEW_WORDS, []) if isinstance(word, str)]
        words = content.get(WORDS, words)
    return names, new_words, words
