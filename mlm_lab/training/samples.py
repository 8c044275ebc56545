"""Fill-mask samples: held-out sentences with one word hidden, and what the model takes it for; the same ones for each run of a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from mlm_lab.data.token_store import TokenStore
from mlm_lab.types import ObjectiveModule

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

SHORTEST, LONGEST = 8, 24
"""Tokens of a sentence that is shown."""
SHOWN_ANSWERS = 5
_SEED = 0


@dataclass(frozen=True)
class Sample:
    text: str
    """With the mask token in the place of the word."""
    gold: str
    answers: tuple[str, ...]
    """The most probable tokens, best first."""


def fill_mask_samples(module: ObjectiveModule, store: TokenStore, tokenizer: LoadedTokenizer, count: int) -> list[Sample]:
    """At most `count` samples; none where the objective's module does not fill masks or the split has no such sentence.

    store: the validation split. Words of one token of at least three letters are hidden.
    """
    if not hasattr(module, "predict"):
        return []
    chosen = _choose(store, tokenizer, count)
    ordinary = torch.from_numpy(store.vocabulary.ordinary_ids)
    device = next(module.parameters()).device
    was_training = module.training
    module.eval()
    samples = []
    for tokens, place in chosen:
        ids = np.concatenate([[store.vocabulary.cls_id], tokens, [store.vocabulary.sep_id]]).astype(np.int64)
        ids[place + 1] = store.vocabulary.mask_id
        inputs = torch.from_numpy(ids)[None].to(device)
        logits = module.predict(inputs, torch.ones_like(inputs), None, torch.tensor([[place + 1]], device=device))[0, 0].cpu()
        best = ordinary[logits[ordinary].topk(SHOWN_ANSWERS).indices]
        answers = tuple(tokenizer.decode([token]).strip() for token in best.tolist())
        samples.append(Sample(_masked_text(ids[1:-1], place, store, tokenizer), tokenizer.decode([int(tokens[place])]).strip(), answers))
    module.train(was_training)
    return samples


def _masked_text(ids: np.ndarray, place: int, store: TokenStore, tokenizer: LoadedTokenizer) -> str:
    before, after = tokenizer.decode(ids[:place].tolist()), tokenizer.decode(ids[place + 1 :].tolist())
    return f"{before.strip()} {tokenizer.token(store.vocabulary.mask_id)} {after.strip()}".strip()


def _choose(store: TokenStore, tokenizer: LoadedTokenizer, count: int) -> list[tuple[np.ndarray, int]]:
    """(tokens of a sentence, place of the hidden word), sentences and words drawn with a fixed seed."""
    lengths = np.diff(store.sentence_starts)
    candidates = np.flatnonzero((lengths >= SHORTEST) & (lengths <= LONGEST))
    generator = np.random.default_rng(_SEED)
    chosen = []
    for sentence in generator.permutation(candidates):
        start, stop = store.sentence_starts[sentence : sentence + 2]
        tokens, begins = np.asarray(store.tokens[start:stop]), np.append(store.word_starts[start:stop], True)
        words = [i for i in range(len(tokens)) if begins[i] and begins[i + 1] and _is_word(tokenizer.decode([int(tokens[i])]).strip())]
        if words:
            chosen.append((tokens, int(generator.choice(words))))
        if len(chosen) == count:
            break
    return chosen


def _is_word(text: str) -> bool:
    return len(text) >= 3 and text.isalpha()
