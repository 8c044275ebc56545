"""The tokenizer as Transformers takes it: the same pieces, the rows that pretraining had, special tokens that a text may spell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.interchange.format import Source

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer


def save_tokenizer(tokenizer: LoadedTokenizer, folder: Path, source: Source, segments: bool) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    Rows are [CLS] a [SEP] b [SEP] (of a model with a decoder: a [SEP] b [SEP]), as in pretraining. In our own use what spells "[MASK]" is
    ordinary text; who writes it for the exported model means the mask. It takes the space before it: where pieces carry their spaces, the
    model has only seen masks that stand for them too. segments: whether the second text is marked by its token_type_ids.
    """
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocabulary, names = source.vocabulary, tokenizer.names
    copy = Tokenizer.from_str(tokenizer.text)
    copy.encode_special_tokens = False
    ids = [(names["cls"], vocabulary.cls_id), (names["sep"], vocabulary.sep_id)]
    first, second = ("" if "decoder" in source.module._modules else f"{names['cls']}:0 "), int(segments)
    single = f"{first}$A:0 {names['sep']}:0"
    copy.post_processor = TemplateProcessing(
        single=single, pair=f"{single} $B:{second} {names['sep']}:{second}", special_tokens=list(dict.fromkeys(ids))
    )
    roles = {f"{role}_token": name for role, name in names.items() if role != "mask"}
    PreTrainedTokenizerFast(
        tokenizer_object=copy,
        mask_token=AddedToken(names["mask"], lstrip=True, special=True),
        model_max_length=longest(source),
        model_input_names=["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        **roles,
    ).save_pretrained(folder)


def longest(source: Source) -> int:
    """Tokens that the model can read: its positions, or, without a table of them, as many as it was trained on."""
    return source.module.encoder.longest or source.max_length
