"""How sentences are scored: each objective's rule against the slow reference that asks for one token at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mlm_lab.corruption.recipe import MaskingRecipe
from mlm_lab.objectives import sentence_scores
from mlm_lab.objectives.clm_module import CausalLM
from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.objectives.sentence_pairs_module import Pairs
from mlm_lab.objectives.sentence_scores import one_token_rows, within_word_rows
from mlm_lab.types import Sentences
from tests.evaluation.protocol import make
from tests.models.conftest import encoder_config, make_vocabulary
from tests.objectives.test_rtd_module import make_module as make_rtd
from tests.objectives.test_span_corruption_module import make_module as make_spans
from tests.objectives.test_span_corruption_module import vocabulary as sentinel_vocabulary

SENTENCES = ([[11, 12], [13], [14, 15, 16]], [[17]], [[18], [19, 20]], [[21], [22], [23], [24]])
"""Words of tokens."""
VOCABULARY = make_vocabulary()
PAD, CLS, SEP, MASK = VOCABULARY.pad_id, VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.mask_id


def batch_of(sentences=SENTENCES) -> Sentences:
    rows = [[token for word in words for token in word] for words in sentences]
    starts = [[place == 0 for word in words for place in range(len(word))] for words in sentences]
    longest = max(map(len, rows))
    ids, begins = (torch.tensor([row + [0] * (longest - len(row)) for row in part]) for part in (rows, starts))
    return Sentences(ids, torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None], begins.bool())


@pytest.fixture
def masked() -> MaskedLM:
    torch.manual_seed(0)
    return MaskedLM(encoder_config("bert", initializer_range=0.3), VOCABULARY).eval()


def one_at_a_time(log_probability: Callable[[list[int], int, list[int]], float], within_word: bool) -> list[float]:
    """log_probability(tokens, place, hidden places) summed over the tokens of each sentence."""
    scores = []
    for words in SENTENCES:
        tokens, ends = [token for word in words for token in word], []
        for word in words:
            ends += [len(ends) + len(word)] * len(word)
        hidden = [list(range(place, ends[place])) if within_word else [place] for place in range(len(tokens))]
        scores.append(sum(log_probability(tokens, place, hidden[place]) for place in range(len(tokens))))
    return scores


def fill(encoder: nn.Module, head: nn.Module, embedding: torch.Tensor) -> Callable[[list[int], int, list[int]], float]:
    """Of a masked model: a pass over one row with its masks."""

    def log_probability(tokens: list[int], place: int, hidden: list[int]) -> float:
        row = [CLS, *(MASK if i in hidden else token for i, token in enumerate(tokens)), SEP]
        with torch.no_grad():
            output = encoder(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.long))
            return head(output[0, place + 1][None], embedding)[0].float().log_softmax(-1)[tokens[place]].item()

    return log_probability


def close(values: torch.Tensor, expected: list[float]) -> None:
    assert values.dtype == torch.float64
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-4)


def test_pseudo_log_likelihoods_equal_one_token_at_a_time(masked):
    scores = masked.sentence_scores(batch_of())
    reference = fill(masked.encoder, masked.head, masked.encoder.embedding_weight)
    assert set(scores) == {"pll", "pll_within_word"}
    close(scores["pll"], one_at_a_time(reference, within_word=False))
    close(scores["pll_within_word"], one_at_a_time(reference, within_word=True))


def test_the_two_differ_only_where_a_word_has_several_tokens(masked):
    scores = masked.sentence_scores(batch_of())
    assert (scores["pll"] == scores["pll_within_word"]).tolist() == [False, True, False, True]


def test_the_number_of_rows_at_once_changes_nothing(masked, monkeypatch):
    whole = masked.sentence_scores(batch_of())
    monkeypatch.setattr(sentence_scores, "TOKENS_AT_ONCE", 1)
    for rule, values in masked.sentence_scores(batch_of()).items():
        torch.testing.assert_close(values, whole[rule], rtol=1e-5, atol=1e-5)


def test_rows_hide_the_token_or_it_and_the_rest_of_its_word():
    single, word = one_token_rows(batch_of()), within_word_rows(batch_of())
    assert len(single.sentence) == 6 + 1 + 3 + 4 and (single.hidden.sum(dim=1) == 1).all()
    found = [
        (s, p, hidden.nonzero().flatten().tolist())
        for s, p, hidden in zip(word.sentence.tolist(), word.place.tolist(), word.hidden, strict=True)
    ]
    assert found == [(0, 0, [0, 1]), (0, 3, [3, 4, 5]), (0, 4, [4, 5]), (2, 1, [1, 2])]


def test_a_left_to_right_model_is_judged_by_its_likelihood():
    torch.manual_seed(0)
    module = CausalLM(encoder_config("bert", initializer_range=0.3), VOCABULARY).eval()

    def log_probability(tokens: list[int], place: int, hidden: list[int]) -> float:
        row = torch.tensor([[CLS, *tokens[:place]]])  # nothing but what came before
        with torch.no_grad():
            output = module.encoder(row, torch.ones_like(row))
            return module.head(output[0, -1][None], module.encoder.embedding_weight)[0].log_softmax(-1)[tokens[place]].item()

    scores = module.sentence_scores(batch_of())
    assert set(scores) == {"likelihood"}
    close(scores["likelihood"], one_at_a_time(log_probability, within_word=False))


def test_replaced_token_detection_in_one_clean_pass_and_its_generator_labelled_so():
    module = make_rtd().eval()

    def log_original(tokens: list[int], place: int, hidden: list[int]) -> float:
        row = torch.tensor([[CLS, *tokens, SEP]])
        with torch.no_grad():
            score = module.head(module.encoder(row, torch.ones_like(row)))[0, place + 1]
        return (1 - score.double().sigmoid()).log().item()

    scores = module.sentence_scores(batch_of())
    assert list(scores) == ["replaced", "generator_pll", "generator_pll_within_word"]
    close(scores["replaced"], one_at_a_time(log_original, within_word=False))
    reference = fill(module.generator, module.generator_head, module.generator.embedding_weight)
    close(scores["generator_pll_within_word"], one_at_a_time(reference, within_word=True))


@pytest.mark.parametrize("model", ["bert", "t5"])
def test_span_corruption_fills_a_sentinel_of_one_token(model):
    module, words = make_spans(model).eval(), sentinel_vocabulary()
    sentinel = words.sentinel_ids[0]

    def log_probability(tokens: list[int], place: int, hidden: list[int]) -> float:
        row = torch.tensor([[*tokens[:place], sentinel, *tokens[place + 1 :], words.sep_id]])
        target = torch.tensor([[sentinel, tokens[place], words.sep_id]])
        batch = {
            "input_ids": row,
            "attention_mask": torch.ones_like(row),
            "decoder_input_ids": torch.tensor([[words.pad_id, sentinel, tokens[place]]]),
            "decoder_attention_mask": torch.ones_like(target),
        }
        with torch.no_grad():  # the pretraining loss of this target alone
            return -module(batch | {"labels": torch.tensor([[-100, tokens[place], -100]])}).losses["span"].item()

    scores = module.sentence_scores(batch_of())
    assert set(scores) == {"sentinel_fill"}
    close(scores["sentinel_fill"], one_at_a_time(log_probability, within_word=False))


def test_neighbours_in_the_batch_do_not_matter(masked):
    for module in (masked, make_rtd().eval(), make_spans().eval()):
        together = module.sentence_scores(batch_of())
        for number, words in enumerate(SENTENCES):
            for rule, value in module.sentence_scores(batch_of([words])).items():
                torch.testing.assert_close(value[0], together[rule][number], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("option", ["mlm", "mlm_nsp", "sop", "rtd"])
def test_a_model_that_never_reads_the_mask_token_is_not_asked_with_it(option):
    model = encoder_config("bert")
    rules = {}
    for mix in ((0.8, 0.1, 0.1), (0.0, 0.5, 0.5)):
        objective = make(f"objective/{option}", replace_mix=mix)
        assert isinstance(objective, MaskingRecipe)
        rules[mix[0]] = set(objective.build(model, VOCABULARY).eval().sentence_scores(batch_of()))
    assert {rule for rule in rules[0.8] if "pll" in rule}
    assert rules[0.0] == {rule for rule in rules[0.8] if "pll" not in rule}


def test_a_model_that_predicts_no_tokens_scores_none():
    module = make("objective/mlm_nsp", mlm_weight=0.0).build(encoder_config("bert"), VOCABULARY)
    assert isinstance(module, Pairs) and module.sentence_scores(batch_of()) == {}
