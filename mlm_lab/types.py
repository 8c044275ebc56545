"""What the parts hand to each other. Imports NumPy only, so that every part and every start-up path can import it.

Shapes: B sequences, L tokens a sequence, S label slots a sequence, D hidden width, V vocabulary rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    import torch

    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore

IGNORE_INDEX = -100
"""Label of a slot that carries no loss (the value that torch and Transformers use)."""

Batch = dict[str, np.ndarray]
"""Arrays whose first axis is B, under Hugging Face's names:

input_ids        (B, L) int64   token ids after corruption
attention_mask   (B, L) int64   0 = padding; tokens attend to each other where their values are equal and not 0. A plain 0/1 mask is
                                the special case of one document a row; packed documents are numbered 1, 2, ...
position_ids     (B, L) int64   restart at each document (run on through the row where documents see each other)
token_type_ids   (B, L) int64   segment of a pair (only objectives that have pairs)
label_positions  (B, S) int64   where in the row each slot looks; unused slots look at 0
labels           (B, S) int64   original ids at those positions; IGNORE_INDEX in unused slots

and what an objective adds of its own. S is the stated capacity of slots (the same for every batch of a run).

A row that is 0 everywhere, with IGNORE_INDEX in its labels (`labels`, `..._label`), counts for nothing: no loss, no metric.
"""


@dataclass(frozen=True)
class Vocabulary:
    """What the rest of the program knows about a tokenizer."""

    size: int
    """Number of ids the tokenizer can produce: 0 .. size - 1."""
    padded_size: int
    """Rows of the embedding matrix (size, rounded up to a multiple if asked). Rows from size on are never sampled nor predicted."""
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    special_ids: tuple[int, ...]
    """Ids that are never drawn as random tokens and never selected: the five above, BOS/EOS, sentinels, reserved and added tokens."""
    sentinel_ids: tuple[int, ...]
    """extra_id_0, extra_id_1, ... in the order of their numbers (found by name)."""
    fingerprint: str
    """Digest of the tokenizer's serialised form."""

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """(N,) int64: the ids that a random replacement is drawn from: in range(size) and not special. traps: random tokens."""
        return np.setdiff1d(np.arange(self.size, dtype=np.int64), np.asarray(self.special_ids, dtype=np.int64))

    @cached_property
    def is_special(self) -> np.ndarray:
        """(padded_size,) bool lookup table."""
        table = np.zeros(self.padded_size, dtype=bool)
        table[list(self.special_ids)] = True
        table[self.size :] = True
        return table


@dataclass(frozen=True)
class ExampleKeys:
    """Which examples a batch holds. A run is a stream of positions; the sampler turns each into its epoch and its index in the plan."""

    position: np.ndarray
    """(B,) int64: number of the example in the run, from 0."""
    epoch: np.ndarray
    """(B,) int64"""
    index: np.ndarray
    """(B,) int64: number of the example in the epoch's plan."""

    def __len__(self) -> int:
        return len(self.position)


class Plan(Protocol):
    """The examples of an epoch, as an objective lays them out over the token store."""

    redrawn: bool
    """Whether another epoch has another plan (sentence pairs do, packed rows do not)."""
    draws: Draws
    """The draws (seed, split) that the plan was made with; make_batch takes its own from here."""

    def __len__(self) -> int: ...


class Sums(NamedTuple):
    """A metric or a loss as sum and count, so that it averages exactly over uneven batches, micro-batches and ranks."""

    sum: torch.Tensor
    count: torch.Tensor


class Output(NamedTuple):
    """What an objective's module returns for a batch (or a micro-batch of it)."""

    losses: Mapping[str, torch.Tensor]
    """name -> summed loss over its targets (scalar, float32, with gradient)."""
    metrics: Mapping[str, Sums]
    """name -> (sum, count), detached; e.g. mlm_accuracy."""


class Flops(NamedTuple):
    """Multiply-adds count as two. Forward only; a training step costs three times as much."""

    total: float
    head: float
    """The vocabulary projection's part of total."""


class Sentences(NamedTuple):
    """Sentences to be scored, without special tokens; all (B, T)."""

    ids: torch.Tensor
    real: torch.Tensor
    """bool: where there is a token; behind the sentence there is none."""
    starts: torch.Tensor
    """bool: where a token is the first one of a word."""


@runtime_checkable
class ObjectiveModule(Protocol):
    """What `Objective.build` returns: a torch.nn.Module with these members."""

    encoder: torch.nn.Module
    """The part that is fine-tuned and exported."""
    loss_weights: Mapping[str, float]
    static_shapes: bool
    """Set by the run: whether the module keeps every slot, so that shapes are equal from batch to batch, or leaves the unused ones out."""
    token_loss: str | None
    """Which of the losses is a cross-entropy over the vocabulary, so that its exponential is a perplexity; None: no token is predicted."""

    def target_counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """loss name -> number of its targets in the batch (scalar tensor), from the batch alone, before any forward. These are the losses
        that forward gives for this batch: all of `loss_weights` for a training batch, perhaps fewer for a probe's."""

    def __call__(self, batch: Mapping[str, torch.Tensor]) -> Output: ...

    def flops(self, batch: Mapping[str, torch.Tensor]) -> Flops:
        """Forward FLOPs of a batch of these shapes, in closed form."""

    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        """rule -> (B,) float64: how acceptable each sentence is by each rule that the model can be judged by; the higher, the more. {}: by
        none. Rules are those of `objectives.sentence_scores`. In the mode (train, eval) that the module is in, without gradients."""


class Objective(Protocol):
    """A pretraining objective: a frozen dataclass in mlm_lab/objectives/<name>.py and its defaults in conf/objective/<name>.yaml.

    Its class says `code_version` (part of the run's hash) and, where the encoder sees no more than what came before, `causal = True`.
    """

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> Plan:
        """Lay out an epoch. Depends on (store, max_length, seed, split, epoch) alone."""

    def make_batch(self, store: TokenStore, plan: Plan, keys: ExampleKeys) -> Batch:
        """Make the batch of these examples. Pure: a batch equals its rows made one by one, bit for bit."""

    def build(self, model: object, vocabulary: Vocabulary) -> ObjectiveModule:
        """Make the module: encoder, and just the heads that the objective uses."""

    def probes(self) -> Mapping[str, Objective]:
        """Variants of the objective that are evaluated on held-out text with the same module, under fixed keys: name -> variant."""
