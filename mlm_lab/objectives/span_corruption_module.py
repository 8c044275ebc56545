"""Span corruption on an encoder-decoder (T5: Raffel et al. 2020): all targets reach the vocabulary projection.

encoder -> memory (B, L, D) -> decoder (B, T, D) -> positions with a target -> (N, D) -> projection -> (N, V) -> summed cross-entropy
sentinels -> place of each decoder position's gap (B, T) ----^  where the model starts on the neighbours (models/decoder.py)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from mlm_lab.models.decoder import TransformerDecoder, VocabularyProjection
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.objectives.sentence_scores import Rows, in_parts, of_tokens, one_token_rows
from mlm_lab.types import IGNORE_INDEX, Flops, Output, Sentences, Sums, Vocabulary


class SpanCorruptionModel(nn.Module):
    """Encoder, decoder and projection; satisfies `types.ObjectiveModule`. The two stacks share their embeddings.

    Every target carries loss: sentinels and the end too, as in T5. `span_loss` is the mean over them; `span_accuracy` and `span_text_loss`
    are over the cut-out tokens alone, which token frequencies can be held against: sentinels come in order and teach little.

    static_shapes keeps all decoder positions, for compilers that want constant shapes; otherwise those without a target are left out before
    the projection, which gives the same sums.
    """

    loss_weights: Mapping[str, float] = {"span": 1.0}
    token_loss = "span"

    def __init__(self, model: Encoder, vocabulary: Vocabulary):
        super().__init__()
        self.static_shapes = False
        self.vocabulary = vocabulary
        self.encoder = model.build(vocabulary)
        self.decoder = TransformerDecoder(model, self.encoder.embeddings)
        self.projection = VocabularyProjection(model, vocabulary.padded_size, vocabulary.size)
        sentinels = torch.zeros(vocabulary.padded_size, dtype=torch.bool)
        sentinels[list(vocabulary.sentinel_ids)] = True
        self.register_buffer("is_sentinel", sentinels, persistent=False)
        marks = sentinels.clone()
        marks[vocabulary.sep_id] = True
        self.register_buffer("is_mark", marks, persistent=False)

    def target_counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"span": (batch["labels"] != IGNORE_INDEX).sum()}

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Output:
        hidden = self.decode(batch).flatten(0, 1)  # (B * T, D)
        labels = batch["labels"].flatten()
        if not self.static_shapes:
            labelled = (labels != IGNORE_INDEX).nonzero().squeeze(1)
            hidden, labels = hidden.index_select(0, labelled), labels[labelled]
        found, labelled = self.projection.loss(hidden, self.encoder.embedding_weight, labels), labels != IGNORE_INDEX
        text = labelled & ~self.is_mark[labels.clamp(min=0)]
        metrics = {
            "span_loss": Sums(found.total.detach(), labelled.sum()),
            "span_accuracy": Sums((found.correct & text).sum(), text.sum()),
            "span_text_loss": Sums((found.each * text).sum(), text.sum()),
        }
        return Output({"span": found.total}, metrics)

    def decode(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """(B, T, D): the decoder's output, from the encoder's."""
        memory = self.encoder(batch["input_ids"], batch["attention_mask"], batch.get("position_ids"))
        return self.decoder(
            batch["decoder_input_ids"], batch["decoder_attention_mask"], memory, batch["attention_mask"], self.gap_places(batch)
        )

    def gap_places(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """(B, T): where in the encoder's row the gap is that each decoder position writes, by its sentinel; 0 before the first."""
        gaps = self.is_sentinel[batch["input_ids"]].long().cumsum(1)  # (B, L): sentinels so far; XLA's sums of bool stay bool
        written = self.is_sentinel[batch["decoder_input_ids"]].long().cumsum(1)  # (B, T)
        places = (gaps[:, None] < written[:, :, None]).sum(-1)
        return places.clamp(max=gaps.shape[1] - 1)  # a row that lacks the sentinel has no such gap

    @torch.no_grad()
    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        found = torch.zeros(sentences.ids.shape, dtype=torch.float64, device=sentences.ids.device)
        for rows in in_parts(one_token_rows(sentences), sentences.ids.shape[1] + 1):
            tokens = sentences.ids[rows.sentence, rows.place]
            found[rows.sentence, rows.place] = of_tokens(self._filled(sentences, rows), tokens)
        return {"sentinel_fill": found.sum(dim=1)}

    def _filled(self, sentences: Sentences, rows: Rows) -> torch.Tensor:
        """(R, V) logits of what the decoder writes behind the sentinel that stands in the place of each row's hidden token."""
        sentinel, end, start = self.vocabulary.sentinel_ids[0], self.vocabulary.sep_id, self.vocabulary.pad_id
        real = sentences.real[rows.sentence]
        ids = sentences.ids[rows.sentence].masked_fill(rows.hidden, sentinel).masked_fill(~real, start)
        ids = F.pad(ids, (0, 1), value=start).scatter(1, real.sum(dim=1, keepdim=True), end)
        mask = F.pad(real, (1, 0), value=True).long()
        written = torch.tensor([[start, sentinel]], device=ids.device).expand(len(ids), -1)
        places = self.gap_places({"input_ids": ids, "decoder_input_ids": written})
        hidden = self.decoder(written, torch.ones_like(written), self.encoder(ids, mask), mask, places)
        return self.projection(hidden[:, 1], self.encoder.embedding_weight)

    def flops(self, batch: Mapping[str, torch.Tensor]) -> Flops:
        """Of encoder, decoder and projection, at all positions: a function of the shapes alone."""
        batch_size, memory_length = batch["input_ids"].shape
        length = batch["decoder_input_ids"].shape[1]
        stacks = self.encoder.flops(batch_size, memory_length) + self.decoder.flops(batch_size, length, memory_length)
        projection = self.projection.flops(batch_size * length)
        return Flops(stacks + projection.total, projection.head)
