"""How acceptable a sentence is to a pretrained model, without training anything: what minimal pairs are judged by.

pll                masked models: the sum over the tokens of log p(token | all others), each masked by itself (Salazar et al. 2020)
pll_within_word    the same with the tokens of the word to its right masked too, so that a rare word of several tokens does not give itself
                   away (Kauf & Ivanova 2023, PLL-word-l2r); the two are equal where every word is one token
likelihood         left-to-right models: the sum of log p(token | those before it)
replaced           replaced token detection: the sum of log(1 - p(replaced)) of the tokens in one pass over the clean sentence
generator_...      pll and pll_within_word of its generator, which is not the model that is evaluated
sentinel_fill      span corruption: the sum of log p(token | sentinel) of the decoder, each token cut out by itself

[CLS] and [SEP] are not scored. Values of different rules, and of one rule under different objectives, answer different questions: they are
not compared with each other.

Shapes: B sentences, T tokens of the longest, R rows: a sentence with some of its tokens hidden, to predict one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F

from mlm_lab.types import Sentences, Vocabulary

PLL, WITHIN_WORD = "pll", "pll_within_word"
RULES = (PLL, WITHIN_WORD, "likelihood", "replaced", f"generator_{PLL}", f"generator_{WITHIN_WORD}", "sentinel_fill")
TOKENS_AT_ONCE = 8192
"""Of the rows of one forward pass."""

Predict = Callable[[torch.Tensor, torch.Tensor, None, torch.Tensor], torch.Tensor]
"""ids (R, L), mask (R, L), None, places (R, 1) -> logits (R, 1, V): `predict` of the modules that fill masks."""


class Rows(NamedTuple):
    """Predictions to make; all (R,) but hidden."""

    sentence: torch.Tensor
    place: torch.Tensor
    """Of the token to predict, in the sentence."""
    hidden: torch.Tensor  # (R, T) bool


def framed(sentences: Sentences, vocabulary: Vocabulary) -> tuple[torch.Tensor, torch.Tensor]:
    """[CLS] tokens [SEP]: (B, T + 2) ids and mask. A token is one place further than in the sentence."""
    mask = F.pad(sentences.real, (2, 0), value=True).long()
    ids = F.pad(sentences.ids.masked_fill(~sentences.real, vocabulary.pad_id), (1, 1), value=vocabulary.pad_id)
    ids[:, 0] = vocabulary.cls_id
    ids.scatter_(1, sentences.real.sum(dim=1, keepdim=True) + 1, vocabulary.sep_id)
    return ids, mask


def one_token_rows(sentences: Sentences) -> Rows:
    """A row for each token, which alone is hidden."""
    sentence, place = sentences.real.nonzero(as_tuple=True)
    places = torch.arange(sentences.ids.shape[1], device=place.device)
    return Rows(sentence, place, places == place[:, None])


def within_word_rows(sentences: Sentences) -> Rows:
    """A row for each token that others of its word follow: it and they are hidden. For all other tokens it would be `one_token_rows`."""
    word = sentences.starts.long().cumsum(dim=1).masked_fill(~sentences.real, -1)  # (B, T): number of each token's word
    followed = F.pad(word[:, 1:] == word[:, :-1], (0, 1)) & sentences.real
    sentence, place = followed.nonzero(as_tuple=True)
    places = torch.arange(word.shape[1], device=place.device)
    same_word = word[sentence] == word[sentence, place][:, None]
    return Rows(sentence, place, same_word & (places >= place[:, None]))


@torch.no_grad()
def pseudo_log_likelihoods(predict: Predict, sentences: Sentences, vocabulary: Vocabulary) -> dict[str, torch.Tensor]:
    """rule -> (B,) float64: pll and pll_within_word."""
    ids, mask = framed(sentences, vocabulary)

    def log_probabilities(rows: Rows) -> torch.Tensor:
        found = []
        for part in in_parts(rows, ids.shape[1]):
            hidden = F.pad(part.hidden, (1, 1))
            logits = predict(ids[part.sentence].masked_fill(hidden, vocabulary.mask_id), mask[part.sentence], None, part.place[:, None] + 1)
            found.append(of_tokens(logits[:, 0], sentences.ids[part.sentence, part.place]))
        return torch.cat(found)

    single, word = one_token_rows(sentences), within_word_rows(sentences)
    alone = torch.zeros(sentences.ids.shape, dtype=torch.float64, device=ids.device)
    alone[single.sentence, single.place] = log_probabilities(single)
    within = alone.clone()
    if len(word.sentence):
        within[word.sentence, word.place] = log_probabilities(word)
    return {PLL: alone.sum(dim=1), WITHIN_WORD: within.sum(dim=1)}


def in_parts(rows: Rows, length: int) -> Iterator[Rows]:
    """The rows in parts of at most TOKENS_AT_ONCE tokens. length: of a row."""
    size = max(TOKENS_AT_ONCE // length, 1)
    for start in range(0, len(rows.sentence), size):
        yield Rows(*(array[start : start + size] for array in rows))


def of_tokens(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """(R, V) logits, (R,) ids -> (R,) float64 log-probabilities of these ids."""
    return -F.cross_entropy(logits.float(), tokens, reduction="none").double()
