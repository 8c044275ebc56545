"""Minimal pairs: the module's scores decide, by paradigm; equal scores are half right; nothing is trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric

from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.measures.minimal_pairs import UNDEFINED, MinimalPairs, metric_of
from mlm_lab.evaluation.task import PairExample, TaskData
from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.objectives.sentence_scores import RULES
from mlm_lab.types import Sentences

PAIRS = [
    PairExample("the film is good", "the film is bad", "b"),
    PairExample("anna is in berlin", "anna berlin is in", "a"),
    PairExample("the film", "film the", "b"),
    PairExample("☃", "☂", "a"),  # both are [UNK]
    PairExample("the film is good", "the film", "a"),
]


class ByLength(torch.nn.Module):
    """Scores a sentence by its length and its first token."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        self.seen.append((sentences.real.sum(dim=1).tolist(), self.training))
        length = sentences.real.sum(dim=1).double()
        return {"pll": length - 0.001 * sentences.ids[:, 0], "likelihood": -length}


def outcome(module: torch.nn.Module, tokenizer, pairs=PAIRS, max_length=64, **options: bool) -> Outcome:
    subject = Subject("pretrained", module, tokenizer, Fabric(accelerator="cpu", devices=1), "test")
    return MinimalPairs(TaskData("pairs", (), (), pairs), tokenizer, max_length, **options)(subject, 0)


def test_accuracy_is_the_mean_of_the_paradigms(tokenizer):
    found = outcome(ByLength(), tokenizer)
    # as many tokens on both sides of the first three pairs; "film" has a larger id than "the", and [UNK] is one token
    assert found.facts["paradigms"]["pll"] == {"a": pytest.approx((0.5 + 0.5 + 1) / 3), "b": pytest.approx((0.5 + 1) / 2)}
    assert found.facts["paradigms"]["likelihood"] == {"a": pytest.approx((0.5 + 0.5 + 0) / 3), "b": 0.5}
    assert list(found.metrics) == ["accuracy", "likelihood/accuracy"]
    for rule, metric in (("pll", "accuracy"), ("likelihood", "likelihood/accuracy")):
        assert found.metrics[metric] == pytest.approx(np.mean(list(found.facts["paradigms"][rule].values())))
    assert found.facts["equal_pairs"] == 3


def test_each_paradigm_is_a_metric_if_asked(tokenizer):
    found = outcome(ByLength(), tokenizer, by_paradigm=True)
    plain = outcome(ByLength(), tokenizer).metrics
    expected = {f"{name}/accuracy": value for name, value in found.facts["paradigms"]["pll"].items()}
    expected |= {f"{name}/likelihood/accuracy": value for name, value in found.facts["paradigms"]["likelihood"].items()}
    assert found.metrics == {**plain, **expected} and len(expected) == 4


def test_every_pair_is_kept_with_its_scores(tokenizer):
    lines = outcome(ByLength(), tokenizer).predictions
    assert [line["index"] for line in lines] == list(range(5)) and {line["gold"] for line in lines} == {"good"}
    assert [line["prediction"] for line in lines] == ["equal", "equal", "good", "equal", "good"]
    assert lines[4]["scores"]["likelihood"] == [-4.0, -2.0] and lines[1]["paradigm"] == "a"


def test_batches_hold_sentences_of_alike_length_and_change_nothing(tokenizer, vocabulary, encoder_config, monkeypatch):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = MaskedLM(encoder_config, vocabulary)
    whole = outcome(module, tokenizer)
    monkeypatch.setattr("mlm_lab.evaluation.measures.sentence_scoring.BATCH_TOKENS", 1)
    single = outcome(module, tokenizer)
    for ours, alone in zip(whole.predictions, single.predictions, strict=True):
        for rule, scores in ours["scores"].items():
            assert scores == pytest.approx(alone["scores"][rule], abs=2e-3)
    assert module.training, "the module is the run's own: a copy is measured"


def test_each_different_sentence_is_scored_once_in_evaluation_mode(tokenizer, monkeypatch):
    module = ByLength()
    monkeypatch.setattr("copy.deepcopy", lambda value: value)
    outcome(module, tokenizer)
    assert sum(len(lengths) for lengths, _ in module.seen) == 8 and not any(training for _, training in module.seen)


def test_a_model_that_scores_nothing_is_undefined_and_says_so(tokenizer):
    class Silent(torch.nn.Module):
        def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
            return {}

    found = outcome(Silent(), tokenizer)
    assert found.metrics == {"accuracy": None} and found.facts["notes"] == [UNDEFINED] and found.predictions == []


def test_longer_sentences_are_cut_and_counted(tokenizer):
    module = ByLength()
    found = outcome(module, tokenizer, [PairExample("the film is good", "the film", "a")], max_length=5)
    assert found.facts["truncated"] == {"dev": 1} and found.predictions[0]["scores"]["likelihood"] == [-3.0, -2.0]


def test_rules_and_metrics_have_one_name_each():
    assert len({metric_of(rule) for rule in RULES}) == len(RULES) and metric_of("pll") == "accuracy"
