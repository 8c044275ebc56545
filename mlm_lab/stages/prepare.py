"""Prepare: text -> tokenizer -> token store. What is in the cache already is used as it is; nothing here needs torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab import console
from mlm_lab.corruption.draws import Draws
from mlm_lab.data.build_once import build_once
from mlm_lab.data.documents import TRAIN
from mlm_lab.data.store_build import build_store, store_fingerprint
from mlm_lab.data.token_store import MANIFEST, SPLITS, TOKENIZER, Manifest, TokenStore, vocabulary_from_dict
from mlm_lab.run_config import settings_of
from mlm_lab.tokenizers.loading import LoadedTokenizer, load
from mlm_lab.tokenizers.pretrained import Pretrained
from mlm_lab.tokenizers.words import settle
from mlm_lab.training.phases import phases_of
from mlm_lab.types import Vocabulary

if TYPE_CHECKING:
    from mlm_lab.run_config import RunConfig
    from mlm_lab.run_folder import RunFolder

NAME_DIGITS = 16
TOO_MANY_UNKNOWN = 0.01
CORPUS_SIZE = "corpus.json"


@dataclass(frozen=True)
class Prepared:
    """What pretraining and evaluation start from."""

    tokenizer_file: Path
    store_folder: Path
    vocabulary: Vocabulary
    fingerprint: str
    """Of the store: text, tokenizer and code version."""
    corpus_fingerprint: str
    """Of the text alone."""
    lines: list[str]
    """What was found, for people."""
    unknown_share: float
    """UNK among the tokens."""


def check(config: RunConfig) -> None:
    """Raises UserError for what can be seen of the corpus without reading it, and where the package that finds words is missing."""
    config.data.check()
    settle(config.tokenizer.words)


def run(config: RunConfig, folder: RunFolder) -> None:
    """The stage: prepare, and say what was found."""
    console.heading("Prepare")
    prepared = prepare(config)
    for line in prepared.lines:
        console.say(line)
    trained_on = folder.read_summary().get("fingerprints", {}).get("store")
    if trained_on not in (None, prepared.fingerprint):
        console.warn(
            f"the text or its packages have changed since this run was trained: store {trained_on[:NAME_DIGITS]} then, "
            f"{prepared.fingerprint[:NAME_DIGITS]} now; another output_dir makes a run of the new text"
        )
    if prepared.unknown_share > TOO_MANY_UNKNOWN:
        console.warn(
            f"{prepared.unknown_share:.1%} of the tokens are UNK, which nothing is learnt from: "
            "a larger tokenizer.vocab_size, or tokenizer=bpe, which spells any text, would help"
        )
    for line in describe_plans(config, TokenStore.open(prepared.store_folder, TRAIN)):
        console.say(line)


def describe_plans(config: RunConfig, train: TokenStore) -> list[str]:
    """What the objective says of the examples that it makes of a corpus: of the first epoch of each length phase, where it says anything.

    Raises:
        UserError: the corpus cannot serve the objective.
    """
    lines = []
    for phase in phases_of(config):
        plan = config.objective.plan(train, phase.max_length, Draws(seed=config.seeds.corruption, split=TRAIN))
        found = plan.describe() if hasattr(plan, "describe") else []
        lines += [f"rows of {phase.max_length} tokens:", *found] if found and config.length_phases else found
    return lines


def prepare(config: RunConfig) -> Prepared:
    """Train the tokenizer and build the token store, unless they are cached.

    Raises:
        UserError: what is wrong with the corpus, the tokenizer, the cached store, or the place they are written to.
    """
    text = config.data.fingerprint()
    tokenizer, characters = _tokenizer(config, text)
    folder = store_folder(config.cache_dir, store_fingerprint(text, tokenizer.fingerprint))
    manifest = build_store(
        folder, lambda: config.data.raw_documents(config.cache_dir), tokenizer, text, describe=config.data.describe, characters=characters
    )
    counts = {name: sum(manifest.counts[split][name] for split in SPLITS) for name in manifest.counts[TRAIN]}
    return Prepared(
        tokenizer_file=folder / TOKENIZER,
        store_folder=folder,
        vocabulary=vocabulary_from_dict(manifest.vocabulary),
        fingerprint=manifest.fingerprint,
        corpus_fingerprint=manifest.text,
        lines=[*manifest.found, *_lines(manifest, counts, folder)],
        unknown_share=counts["unknown"] / counts["tokens"],
    )


def store_folder(cache_dir: Path, fingerprint: str) -> Path:
    """Where the store with this fingerprint lies, once it is built."""
    return cache_dir / "stores" / fingerprint[:NAME_DIGITS]


def find_store(config: RunConfig) -> Path | None:
    """The store that these settings have, if it is built already; None where `prepare` would have work to do. Reads no text."""
    text = config.data.fingerprint()
    if isinstance(config.tokenizer, Pretrained):
        tokenizer = config.tokenizer.load()
    elif (folder := _tokenizer_folder(config, text)).exists():
        tokenizer = load(folder)
    else:
        return None
    folder = store_folder(config.cache_dir, store_fingerprint(text, tokenizer.fingerprint))
    return folder if (folder / MANIFEST).exists() else None


def _tokenizer_folder(config: RunConfig, text: str) -> Path:
    import tokenizers

    name = type(config.tokenizer).__name__.lower()
    settings = {key: value for key, value in settings_of(config.tokenizer).items() if key != "_target_"}
    settings = json.dumps([text, name, settings, tokenizers.__version__])
    return config.cache_dir / "tokenizers" / f"{name}-{hashlib.sha256(settings.encode()).hexdigest()[:NAME_DIGITS]}"


def _tokenizer(config: RunConfig, text: str) -> tuple[LoadedTokenizer, int | None]:
    """The tokenizer, and the characters of the corpus where they were counted in training it."""
    if isinstance(config.tokenizer, Pretrained):
        return config.tokenizer.load(), None
    folder = _tokenizer_folder(config, text)
    with build_once(folder, "tokenizer") as unfinished:
        if unfinished is not None:
            reading = _Reading(config)
            LoadedTokenizer(config.tokenizer.train(reading.texts()), words=settle(config.tokenizer.words)).save(unfinished)
            (unfinished / CORPUS_SIZE).write_text(json.dumps({"characters": reading.characters}), encoding="utf-8")
    return load(folder), json.loads((folder / CORPUS_SIZE).read_text(encoding="utf-8"))["characters"]


class _Reading:
    """A first reading of the corpus: its training texts, and its size."""

    def __init__(self, config: RunConfig):
        self._config = config
        self.characters = 0

    def texts(self) -> Iterator[str]:
        with console.progress("Reading the corpus", None, "characters") as bar:
            for document in self._config.data.raw_documents(self._config.cache_dir):
                self.characters += len(document.text)
                bar.update(self.characters)
                if document.split == TRAIN:
                    yield document.text
        console.say("Training the tokenizer")


def _lines(manifest: Manifest, counts: dict[str, int], folder: Path) -> list[str]:
    held_out = manifest.counts["validation"]
    tokens, words = counts["tokens"], counts["words"]
    return [
        f"documents {counts['documents']:,}   sentences {counts['sentences']:,}   words {words:,}   tokens {tokens:,} "
        f"({tokens / words:.2f} a word, {counts['unknown'] / tokens:.2%} UNK)",
        f"held out for validation: {held_out['documents']:,} documents, {held_out['tokens']:,} tokens",
        f"vocabulary {manifest.vocabulary['size']:,}   token store {folder}",
    ]
