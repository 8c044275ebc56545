"""Bits a character: the module's log-probabilities over the characters; rows that are full; what is not defined."""

from __future__ import annotations

import math

import pytest
import torch
from lightning.fabric import Fabric

from mlm_lab.evaluation.measures.bits import METRIC, BitsPerCharacter, metric_of
from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.measures.minimal_pairs import UNDEFINED
from mlm_lab.evaluation.task import TaskData, TextExample
from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.objectives.sentence_scores import RULES
from mlm_lab.types import Sentences

TEXTS = ["the film is good.", "anna is in berlin.", "bad!"]


class Halves(torch.nn.Module):
    """Gives each token probability one half, by both rules."""

    def __init__(self, *rules: str):
        super().__init__()
        self.rules = rules

    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        return {rule: sentences.real.sum(dim=1).double() * math.log(0.5) for rule in self.rules}


def outcome(module: torch.nn.Module, tokenizer, texts=TEXTS, max_length=64) -> Outcome:
    subject = Subject("pretrained", module, tokenizer, Fabric(accelerator="cpu", devices=1), "test")
    return BitsPerCharacter(TaskData("texts", (), (), [TextExample(text) for text in texts]), tokenizer, max_length)(subject, 0)


def test_a_bit_a_token_over_all_characters(tokenizer):
    found = outcome(Halves("pll", "pll_within_word", "likelihood"), tokenizer)
    tokens, characters = sum(len(tokenizer.encode(text)) for text in TEXTS), sum(map(len, TEXTS))
    assert found.metrics == {name: pytest.approx(tokens / characters) for name in (f"pll/{METRIC}", METRIC, f"likelihood/{METRIC}")}
    assert found.facts["characters"] == characters and found.facts["tokens"] == tokens
    assert [line["prediction"]["pll"] for line in found.predictions] == [len(tokenizer.encode(text)) for text in TEXTS]


@pytest.mark.parametrize("max_length", [3, 4, 7])
def test_what_does_not_fit_into_a_row_is_read_in_parts_and_no_character_is_lost(tokenizer, max_length):
    whole, parts = (outcome(Halves("pll"), tokenizer, max_length=length) for length in (64, max_length))
    assert whole.metrics == parts.metrics and whole.facts["cut"] == {"dev": 0}
    rows = sum(math.ceil(len(tokenizer.encode(text)) / (max_length - 2)) for text in TEXTS)
    assert parts.facts["cut"] == {"dev": rows - len(TEXTS)}


def test_a_masked_model_against_one_token_at_a_time(tokenizer, vocabulary, encoder_config):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = MaskedLM(encoder_config, vocabulary).eval()
    bits = 0.0
    for text in TEXTS:
        row = torch.tensor([vocabulary.cls_id, *tokenizer.encode(text), vocabulary.sep_id])
        for place in range(1, len(row) - 1):
            asked = row.clone()
            asked[place] = vocabulary.mask_id
            logits = module.predict(asked[None], torch.ones_like(asked)[None], None, torch.tensor([[place]]))
            bits -= math.log2(logits[0, 0].softmax(dim=-1)[row[place]])
    found = outcome(module, tokenizer).metrics
    assert found[f"pll/{METRIC}"] == pytest.approx(bits / sum(map(len, TEXTS)), rel=1e-4)
    assert found[METRIC] > found[f"pll/{METRIC}"] - 0.5  # letters of a word hidden together are no easier; untrained, hardly harder


def test_a_score_that_is_no_probability_of_the_text_is_left_out(tokenizer):
    assert list(outcome(Halves("replaced", "generator_pll"), tokenizer).metrics) == [f"generator_pll/{METRIC}"]


@pytest.mark.parametrize("rules", [(), ("replaced",)])
def test_a_model_that_predicts_no_tokens_is_undefined_and_says_so(tokenizer, rules):
    found = outcome(Halves(*rules), tokenizer)
    assert found.metrics == {METRIC: None} and found.facts["notes"] == [UNDEFINED]


def test_unknown_tokens_are_told(tokenizer):
    found = outcome(Halves("pll"), tokenizer, ["the ☃ film.", "good ☂."])
    assert found.facts["unknown_tokens"] == 2 and any("2 of 7 tokens are unknown" in note for note in found.facts["notes"])
    assert not any("unknown" in note for note in outcome(Halves("pll"), tokenizer, ["the film is good."]).facts["notes"])


def test_rules_and_metrics_have_one_name_each():
    assert len({metric_of(rule) for rule in RULES}) == len(RULES) and metric_of("pll_within_word") == METRIC
