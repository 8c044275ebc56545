"""An encoder of Transformers, called as ours is: documents of a row apart, hidden states as a list, FLOPs of the matrix products.

    (B, L) numbers of documents -> one a row:  padding mask -> their encoder -> (B, L, D)
                                -> several:    block mask and positions, where their code reads them as ours does;
                                               else each document as a row of its own, alike lengths together, and back to its place

Whether their code takes rows of several documents is tried out on one row, once for each length: some forms lose the window of local
layers, count positions from 2, or multiply the embeddings by the mask, and none of them says so.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from mlm_lab.errors import UserError
from mlm_lab.models.attention import block_mask

if TYPE_CHECKING:
    from mlm_lab.models.transformers_encoder import TransformersEncoder
    from mlm_lab.types import Vocabulary

TOLERANCE = 1e-4
"""Largest difference, relative to the largest output, at which a packed row counts as read document by document (float32: about 1e-6)."""


class Packing(NamedTuple):
    """How their forward is given a row of several documents."""

    additive: bool
    """The mask as 0 and -inf to be added to the scores; else as booleans."""
    first_position: int | None
    """Number of a document's first position; None: it is told no positions."""


class WrappedEncoder(nn.Module):
    """See `TransformersEncoder`. `model` is Transformers' own, without a pooler, its vocabulary padded as the others are."""

    causal = False

    def __init__(self, config: TransformersEncoder, vocabulary: Vocabulary):
        super().__init__()
        self.config, self.pad_id = config, vocabulary.pad_id
        self.hidden_size, self.num_layers = config.hidden_size, config.num_layers
        self.theirs = theirs = copy.deepcopy(config.theirs)
        theirs.vocab_size, theirs.pad_token_id = vocabulary.padded_size, vocabulary.pad_id
        self.model = make(config, theirs)
        self.takes = frozenset(inspect.signature(self.model.forward).parameters)
        self.has_segments = "token_type_ids" in self.takes and getattr(theirs, "type_vocab_size", 0) > 1
        self._packings: dict[int, Packing | None] = {}
        self._flops: dict[int, float] = {}

    @property
    def embedding_weight(self) -> nn.Parameter:
        """(V, E): the token embeddings, to which output projections are tied."""
        return self.model.get_input_embeddings().weight

    @property
    def recomputes(self) -> bool:
        """Whether layers keep their input alone for the backward pass."""
        return self.model.is_gradient_checkpointing

    @recomputes.setter
    def recomputes(self, value: bool) -> None:
        if value and not self.model.supports_gradient_checkpointing:
            raise UserError(
                "this encoder of Transformers has no activation checkpointing",
                where="trainer.activation_checkpointing",
                given=f"model_type={self.config.config['model_type']}",
                fix="trainer.micro_batch_size=N saves memory too",
            )
        if value:
            self.model.activation_checkpointing_enable({"use_reentrant": False})
        elif self.recomputes:
            self.model.activation_checkpointing_disable()

    @property
    def embeddings(self) -> nn.Module:
        """Raises UserError: they are not summed up in one place that a decoder could share."""
        raise UserError(
            "an encoder of Transformers has no decoder made after it",
            given=f"model_type={self.config.config['model_type']}",
            fix="objective=mlm, mlm_nsp or sop; or a model of ours, as model=small",
        )

    def forward(self, input_ids, attention_mask, position_ids=None, token_type_ids=None, output_hidden_states=False):
        """(B, L) each -> (B, L, D), or with output_hidden_states a list of num_layers + 1, as our own encoder has it.

        attention_mask as in `types.Batch`. position_ids are those of the documents, from 0, whatever is given. Documents of a row that see
        each other are one (`attention_mask` says so).
        """
        self._check_length(input_ids.shape[1])
        segments = token_type_ids if self.has_segments else None
        states = self._states(input_ids, attention_mask, segments, output_hidden_states)
        return states if output_hidden_states else states[-1]

    def _states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, segments: torch.Tensor | None, every: bool
    ) -> list[torch.Tensor]:
        """The last layer's output, or every layer's."""
        if input_ids.device.type == "meta" or not bool((attention_mask > 1).any()):
            return self._call(input_ids, (attention_mask > 0).long(), segments, every)
        packing = self.packing(input_ids.shape[1], input_ids.device)
        if packing is None:
            return self._apart(input_ids, attention_mask, segments, every)
        return self._packed(packing, input_ids, attention_mask, segments, every)

    def _call(
        self, input_ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None, every: bool, **more: Any
    ) -> list[torch.Tensor]:
        given = {**more, "token_type_ids": segments} if segments is not None else more
        output = self.model(input_ids=input_ids, attention_mask=mask, output_hidden_states=every, return_dict=True, **given)
        last = output.last_hidden_state
        return [*output.hidden_states[: self.num_layers], last] if every else [last]

    def _packed(
        self, packing: Packing, input_ids: torch.Tensor, attention_mask: torch.Tensor, segments: torch.Tensor | None, every: bool
    ) -> list[torch.Tensor]:
        allowed = block_mask(attention_mask)
        if packing.additive:
            allowed = torch.zeros_like(allowed, dtype=self.embedding_weight.dtype).masked_fill(~allowed, float("-inf"))
        more = {} if packing.first_position is None else {"position_ids": packing.first_position + places_within(attention_mask)}
        return self._call(input_ids, allowed, segments, every, **more)

    def _apart(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, segments: torch.Tensor | None, every: bool
    ) -> list[torch.Tensor]:
        """Each document as a row of its own. Padding is left at 0."""
        whole: list[torch.Tensor] = []
        for places, real in rows_of_documents(attention_mask):
            ids = input_ids.flatten()[places].masked_fill(~real, self.pad_id)
            states = self._call(ids, real.long(), None if segments is None else segments.flatten()[places] * real, every)
            whole = whole or [state.new_zeros(attention_mask.numel(), state.shape[-1]) for state in states]
            whole = [all_rows.index_put((places[real],), state[real]) for all_rows, state in zip(whole, states, strict=True)]
        return [state.unflatten(0, attention_mask.shape) for state in whole]

    def packing(self, length: int, device: torch.device) -> Packing | None:
        """How a row of so many tokens may hold several documents; None: their code does not read such rows as ours does."""
        if length not in self._packings:
            self._packings[length] = self._try_packings(length, device)
        return self._packings[length]

    @torch.no_grad()
    def _try_packings(self, length: int, device: torch.device) -> Packing | None:
        """Two documents in one row, the first of them long, so that local layers show: read in it, and apart."""
        ids = torch.arange(length, device=device)[None] * 7 % (self.theirs.vocab_size - 1)
        ids += ids >= self.pad_id  # some count positions over what is no padding
        mask = 1 + (torch.arange(length, device=device)[None] >= length - max(2, length // 4)).long()
        was_training = self.training
        self.eval()
        try:
            with torch.autocast(device.type, enabled=False):
                expected = self._apart(ids, mask, None, every=False)[0]
                for packing in self._packings_to_try():
                    try:
                        found = self._packed(packing, ids, mask, None, every=False)[0]
                    except (TypeError, ValueError, RuntimeError, IndexError):
                        continue
                    if (found - expected).abs().max() <= TOLERANCE * expected.abs().max():
                        return packing
        finally:
            self.train(was_training)
        return None

    def _packings_to_try(self) -> Iterator[Packing]:
        firsts = [0, self.pad_id + 1] if "position_ids" in self.takes else []
        for first_position in [*firsts, None]:
            for additive in (False, True):
                yield Packing(additive, first_position)

    @property
    def longest(self) -> int | None:
        """Tokens that their table of positions is enough for (RoBERTa's begins behind the padding's id); None where there is none."""
        for name, table in self.model.named_modules():
            if name.endswith("position_embeddings") and isinstance(table, nn.Embedding) and table.num_embeddings > 1:
                return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
        return None

    def _check_length(self, length: int) -> None:
        if (longest := self.longest) is not None and length > longest:
            raise UserError("the model has too few positions", given=f"rows of {length} tokens", allowed=f"{longest} or less")

    def flops(self, batch_size: int, length: int) -> float:
        """Forward FLOPs of the matrix products (a multiply-add is two), counted by torch over their code; a row counts as one document."""
        if length not in self._flops:
            self._flops[length] = self._count(length)
        return batch_size * self._flops[length]

    def _count(self, length: int) -> float:
        """Of one row, on tensors that have a shape and nothing else, with attention written out as matrix products."""
        from torch.utils.flop_counter import FlopCounterMode

        def on(device: str) -> float:
            with torch.random.fork_rng(devices=[]), torch.device(device), torch.no_grad():
                model = make(self.config, copy.deepcopy(self.theirs), attn_implementation="eager").eval().requires_grad_(False)
                ids = torch.ones(1, length, dtype=torch.long)
                with FlopCounterMode(display=False) as counter:
                    model(input_ids=ids, attention_mask=torch.ones_like(ids))
            return float(counter.get_total_flops())

        try:
            return on("meta")
        except (NotImplementedError, RuntimeError):  # some code looks into its tensors
            return on("cpu")


def make(config: TransformersEncoder, theirs: Any, **how: Any) -> nn.Module:
    """Their encoder with random weights in float32, without what stands behind the last layer."""
    from transformers import AutoModel, AutoModelForTextEncoding

    kind = AutoModelForTextEncoding if config.has_encoder_class else AutoModel
    return bare(kind.from_config(theirs, dtype=torch.float32, **how))


def bare(model: nn.Module) -> nn.Module:
    """The encoder of their model: without a decoder, and without a pooler, which no loss here would train."""
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return model


def places_within(attention_mask: torch.Tensor) -> torch.Tensor:
    """(B, L) numbers of documents -> (B, L) places within each, from 0."""
    place = torch.arange(attention_mask.shape[1], device=attention_mask.device).expand_as(attention_mask)
    return place - torch.where(_begins(attention_mask), place, 0).cummax(dim=1).values


def _begins(attention_mask: torch.Tensor) -> torch.Tensor:
    begins = torch.ones_like(attention_mask, dtype=torch.bool)
    begins[:, 1:] = attention_mask[:, 1:] != attention_mask[:, :-1]
    return begins


def rows_of_documents(attention_mask: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(B, L) numbers of documents -> for each power of two the documents up to this length and longer than the last: (N, T) places in the
    flattened rows, and where there is a token; behind a document the places are those of its first token."""
    numbers = attention_mask.flatten()
    begins = _begins(attention_mask).flatten()
    starts = begins.nonzero().squeeze(1)
    lengths = torch.diff(starts, append=starts.new_tensor([len(numbers)]))
    is_document = numbers[starts] > 0
    starts, lengths = starts[is_document], lengths[is_document]
    sizes = torch.ceil(torch.log2(lengths.double()))
    for size in sizes.unique():
        chosen = sizes == size
        place = torch.arange(int(lengths[chosen].max()), device=numbers.device)
        real = place < lengths[chosen][:, None]
        yield starts[chosen][:, None] + place * real, real
