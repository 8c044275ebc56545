"""The left-to-right baseline: targets, isolation, density, and equality with Transformers' causal BERT."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.token_store import TokenStore
from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.objectives.clm import CLM, next_tokens
from mlm_lab.objectives.clm_module import CausalLM
from mlm_lab.types import IGNORE_INDEX, Batch, ObjectiveModule
from tests.corruption.stores import VOCABULARY, keys_of, make_store, many_documents, odd_documents, stores
from tests.models.conftest import encoder_config, make_vocabulary, recipe  # noqa: F401


def clm(**changes: object) -> CLM:
    return CLM(**({"input_format": "full_sentences", "cross_document_attention": False} | changes))


def batch_of(store: TokenStore, length: int = 64, **changes: object) -> Batch:
    objective = clm(**changes)
    plan = objective.plan(store, length, Draws(0, "train"))
    return objective.make_batch(store, plan, keys_of(np.arange(len(plan))))


def tensors(batch: Batch) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def make_module(recipe: str = "bert", **changes: object) -> CausalLM:  # noqa: F811
    torch.manual_seed(0)
    return CausalLM(encoder_config(recipe, **({"initializer_range": 0.2, "max_positions": 128} | changes)), VOCABULARY).eval()


def check_targets(batch: Batch) -> None:
    """Walk over each document: all its tokens but [CLS] are targets, each at the place before it."""
    for ids, documents, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True):
        expected = np.full(len(ids), IGNORE_INDEX)
        for number in range(1, documents.max() + 1):
            places = np.flatnonzero(documents == number)
            assert ids[places[0]] == VOCABULARY.cls_id and ids[places[-1]] == VOCABULARY.sep_id
            expected[places[:-1]] = ids[places[1:]]
        assert (labels == expected).all()


@given(stores())
@settings(max_examples=25, deadline=None)
def test_targets_are_the_next_tokens_of_the_same_document(store: TokenStore):
    check_targets(batch_of(store, length=24))


@pytest.mark.parametrize("input_format", ["full_sentences", "document_sentences", "contiguous"])
def test_targets_of_odd_documents(input_format: str):
    check_targets(batch_of(odd_documents(), length=32, input_format=input_format))


def test_trap_13_one_document_in_a_row_of_512_has_511_targets():
    batch = batch_of(make_store([[510]]), length=512)
    assert (batch["labels"] != IGNORE_INDEX).sum() == 511
    assert batch["corpus_tokens"].tolist() == [510]


def test_no_target_crosses_a_border_even_where_documents_see_each_other():
    store = many_documents(60)
    apart, together = batch_of(store), batch_of(store, cross_document_attention=True)
    assert (apart["labels"] == together["labels"]).all() and (apart["input_ids"] == together["input_ids"]).all()
    assert together["attention_mask"].max() == 1 and apart["attention_mask"].max() > 1
    assert (together["position_ids"].max(axis=1) == (together["attention_mask"] > 0).sum(axis=1) - 1).all()
    labelled = apart["labels"] != IGNORE_INDEX
    assert not (apart["labels"] == VOCABULARY.cls_id).any() and not labelled[apart["input_ids"] == VOCABULARY.sep_id].any()


def test_next_tokens():
    ids, documents = np.array([[7, 8, 9, 5, 6, 0, 0]]), np.array([[1, 1, 1, 2, 2, 0, 0]])
    assert next_tokens(ids, documents).tolist() == [[8, 9, -100, 6, -100, -100, -100]]


def test_bad_fields_and_corpora_that_cannot_serve():
    with pytest.raises(InvalidFields, match="full_sentences, document_sentences or contiguous"):
        clm(input_format="lines")
    with pytest.raises(UserError, match="3 or more"):
        clm().plan(many_documents(5), 2, Draws(0, "train"))
    with pytest.raises(UserError, match="too small"):
        clm().plan(make_store([[1], []]), 64, Draws(0, "train"))


def test_metrics_share_no_name_with_a_masked_model():
    module, batch = make_module(), tensors(batch_of(many_documents(20)))
    assert isinstance(module, ObjectiveModule) and not hasattr(module, "predict") and clm().probes() == {}
    out = module(batch)
    assert set(module.loss_weights) == set(out.losses) == set(module.target_counts(batch)) == {"clm"}
    assert set(out.metrics) == {"clm_loss", "clm_accuracy"}


def test_loss_and_accuracy_equal_the_dense_computation(recipe: str):  # noqa: F811
    module, batch = make_module(recipe), tensors(batch_of(many_documents(20)))
    out = module(batch)
    hidden = module.encoder(batch["input_ids"], batch["attention_mask"], batch["position_ids"])
    logits = module.head(hidden, module.encoder.embedding_weight)
    rows, places = (batch["labels"] != IGNORE_INDEX).nonzero(as_tuple=True)
    labels = batch["labels"][rows, places]
    expected = -logits.log_softmax(-1)[rows, places, labels].double().sum()
    torch.testing.assert_close(out.losses["clm"].double(), expected, rtol=1e-5, atol=0)
    assert out.metrics["clm_accuracy"].sum == (logits.argmax(-1)[rows, places] == labels).sum()
    assert out.metrics["clm_accuracy"].count == out.metrics["clm_loss"].count == module.target_counts(batch)["clm"] == len(labels)


def test_static_and_compact_positions_agree():
    module, batch = make_module(), tensors(batch_of(many_documents(20)))
    compact = module(batch)
    expected = torch.autograd.grad(compact.losses["clm"], list(module.parameters()))
    module.static_shapes = True
    static = module(batch)
    torch.testing.assert_close(static.losses["clm"], compact.losses["clm"], rtol=1e-6, atol=0)
    assert static.metrics["clm_accuracy"] == compact.metrics["clm_accuracy"]
    gradients = torch.autograd.grad(static.losses["clm"], list(module.parameters()))
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-4)


def test_trap_26_the_loss_of_a_packed_row_is_that_of_its_documents():
    module, batch = make_module(), tensors(batch_of(make_store([[6, 4], [9], [3], [11]] * 8)))
    assert (batch["attention_mask"].max(dim=1).values[:3] > 1).all()
    alone = 0.0
    for row in range(3):
        for number in range(1, int(batch["attention_mask"][row].max()) + 1):
            places = batch["attention_mask"][row] == number
            part = {name: batch[name][row][places][None] for name in ("input_ids", "labels", "position_ids")}
            alone += module(part | {"attention_mask": torch.ones_like(part["input_ids"])}).losses["clm"].item()
    packed = module({name: value[:3] for name, value in batch.items()}).losses["clm"].item()
    assert packed == pytest.approx(alone, rel=1e-5)


def test_a_target_is_never_among_the_inputs_that_predict_it():
    """Changing a token changes the loss at its own place and after it, but not what was predicted before it."""
    module, batch = make_module("relative"), tensors(batch_of(make_store([[40]]), length=42))
    place = 20

    def losses(ids: torch.Tensor) -> torch.Tensor:
        hidden = module.encoder(ids, batch["attention_mask"], batch["position_ids"])
        logits = module.head(hidden, module.encoder.embedding_weight)
        return torch.nn.functional.cross_entropy(logits[0], batch["labels"][0], ignore_index=IGNORE_INDEX, reduction="none")

    changed = batch["input_ids"].clone()
    changed[0, place] = VOCABULARY.mask_id
    before, after = losses(batch["input_ids"]), losses(changed)
    assert torch.equal(before[:place], after[:place]), "the loss at place - 1 is that of the token at place"
    assert not torch.allclose(before[place:-1], after[place:-1], atol=1e-3)


def test_flops_in_closed_form(recipe: str):  # noqa: F811
    module, batch = make_module(recipe), tensors(batch_of(many_documents(20)))
    module.static_shapes = True
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(batch)
    flops = module.flops(batch)
    assert flops.total == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert flops.head == 2 * batch["input_ids"].numel() * module.encoder.config.embedding_width * VOCABULARY.padded_size


def test_every_parameter_is_used(recipe: str):  # noqa: F811
    module = make_module(recipe)
    module(tensors(batch_of(many_documents(5)))).losses["clm"].backward()
    assert [name for name, p in module.named_parameters() if p.grad is None] == []


def test_loss_equals_transformers_causal_bert():
    transformers = pytest.importorskip("transformers")
    from tests.models.test_transformers_equality import NO_DROPOUT, SIZES, copy_bert, randomise

    config = transformers.BertConfig(**SIZES, **NO_DROPOUT, max_position_embeddings=64, is_decoder=True)
    theirs = randomise(transformers.BertLMHeadModel(config))
    ours = CausalLM(encoder_config(), make_vocabulary())
    copy_bert(theirs, ours)
    ids = torch.randint(5, 96, (3, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 13:] = 0
    labels = torch.from_numpy(next_tokens(ids.numpy(), mask.numpy()))
    loss = ours({"input_ids": ids, "attention_mask": mask, "labels": labels}).losses["clm"] / (labels != IGNORE_INDEX).sum()
    # Their labels are the inputs: they shift them themselves.
    expected = theirs(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, IGNORE_INDEX), use_cache=False).loss
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
