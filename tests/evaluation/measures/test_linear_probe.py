"""The linear probe: what a layer says and no more, the stated rule for the layer, the control task."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric
from scipy import optimize
from scipy.special import logsumexp

from mlm_lab.errors import UserError
from mlm_lab.evaluation.encode import NO_TOKEN, encode
from mlm_lab.evaluation.measures import linear_probe, logistic
from mlm_lab.evaluation.measures.frozen import FrozenEncoder, Head
from mlm_lab.evaluation.measures.linear_probe import ControlTask, LinearProbe, split_by_hash
from mlm_lab.evaluation.measures.logistic import L2, Linear, fit
from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.task import SequenceExample, TaggedExample, TaskData
from tests.evaluation.protocol import evaluation
from tests.evaluation.test_finetune import names, sentiment


def subject(encoder, tokenizer) -> Subject:
    module = torch.nn.Module()
    module.encoder = encoder
    return Subject("pretrained", module, tokenizer, Fabric(accelerator="cpu", devices=1), "test")


def tags(n: int, seed: int) -> list[TaggedExample]:
    """The class of a word is its own: N for names, V for is, O for others; sentences all differ."""
    generator = np.random.default_rng(seed)
    kinds = {"anna": "N", "berlin": "N", "is": "V"}
    words = [
        (*map(str, generator.choice(["the", "film", "is", "anna", "berlin"], size=generator.integers(2, 9))), f"xy{i}") for i in range(n)
    ]
    return [TaggedExample(sentence, tuple(kinds.get(word, "O") for word in sentence)) for sentence in words]


def probe(data: TaskData, encoder, tokenizer, metrics=("accuracy",), max_length=32, **changes) -> Outcome:
    return LinearProbe(metrics, data, evaluation(**changes), tokenizer, max_length)(subject(encoder, tokenizer), 0)


@pytest.fixture
def words() -> TaskData:
    return TaskData("tagging", ("O", "N", "V"), tags(120, 0), tags(40, 1))


def reference(features: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """(N, C) logits of the same model, found by scipy in double precision."""
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    rows, columns = standard.shape

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = flat[:-classes].reshape(columns, classes), flat[-classes:]
        logits = standard @ weight + bias
        norm = logsumexp(logits, axis=1)
        error = np.exp(logits - norm[:, None]) - np.eye(classes)[labels]
        value = (norm - logits[np.arange(rows), labels]).sum() + 0.5 * L2 * (weight**2).sum()
        return value, np.concatenate([(standard.T @ error + L2 * weight).ravel(), error.sum(axis=0)])

    start = np.zeros(columns * classes + classes)
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-8}).x
    return standard @ found[:-classes].reshape(columns, classes) + found[-classes:]


def test_the_regression_equals_scipy_s(monkeypatch):
    monkeypatch.setattr(logistic, "GRADIENT", 1e-7)
    generator = np.random.default_rng(0)
    features = generator.normal(size=(400, 12)) @ generator.normal(size=(12, 12)) * generator.uniform(0.01, 30, 12) + 5
    labels = np.argmax(features @ generator.normal(size=(12, 4)) / 30 + generator.gumbel(size=(400, 4)), axis=1)
    linear = fit(torch.from_numpy(features).float(), torch.from_numpy(labels), 4)
    ours = features @ linear.weight.double().numpy() + linear.bias.double().numpy()
    expected = reference(features, labels, 4)
    np.testing.assert_allclose(ours - ours.mean(axis=1, keepdims=True), expected - expected.mean(axis=1, keepdims=True), atol=5e-3)


def test_a_constant_feature_changes_nothing():
    features, labels = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2
    plain, more = fit(features, labels, 2), fit(torch.cat([features, torch.full((60, 1), 7.0)], dim=1), labels, 2)
    torch.testing.assert_close(more.weight[:3], plain.weight, atol=1e-3, rtol=1e-3)
    assert more.weight[3].eq(0).all()


def test_features_are_the_hidden_states_of_first_sub_tokens(encoder, tokenizer, words):
    part = encode(words, words.dev, tokenizer, 6)  # some words are cut off
    features = FrozenEncoder(subject(encoder, tokenizer), "mean").features(part)
    row = 0
    for ids, places in zip(part.ids, part.word_tokens, strict=True):
        with torch.no_grad():
            layers = encoder.eval()(torch.from_numpy(ids)[None], torch.ones(1, len(ids), dtype=torch.long), output_hidden_states=True)
        for place in places[places != NO_TOKEN]:
            torch.testing.assert_close(features[:, row], torch.stack([layer[0, place] for layer in layers]), atol=1e-5, rtol=1e-4)
            row += 1
    assert features.shape == (3, row, 32)


def test_words_that_were_cut_off_have_no_class(encoder, tokenizer, words):
    part = encode(words, words.dev, tokenizer, 6)
    head = Head(1, Linear(torch.zeros(32, 3), torch.tensor([0.0, 1.0, 0.0])))
    (answers,) = FrozenEncoder(subject(encoder, tokenizer), "mean").answers(part, [head])
    for classes, places, example in zip(answers, part.word_tokens, words.dev, strict=True):
        assert classes.tolist() == [NO_TOKEN if place == NO_TOKEN else 1 for place in places] and len(classes) == len(example.words)


def test_what_stands_in_the_embeddings_is_read_from_every_layer(encoder, tokenizer, words):
    outcome = probe(words, encoder, tokenizer)
    assert outcome.metrics["accuracy"] > 0.99 and outcome.metrics["layer"] == 0.0  # all layers have it: the lowest
    assert len(outcome.facts["layers"]) == 3 and len(outcome.predictions) == 40 and not outcome.collapsed
    assert outcome.metrics["selectivity"] == pytest.approx(outcome.metrics["accuracy"] - outcome.metrics["control_accuracy"])


def test_the_layer_is_the_best_on_what_was_not_fitted(encoder, tokenizer, monkeypatch):
    """The class of a word is the one before it: the embeddings cannot know."""
    data = TaskData("tagging", ("N", "O", "V"), tags(400, 0), tags(40, 1))
    shifted = [[example._replace(tags=("O", *example.tags[:-1])) for example in part] for part in (data.train, data.dev)]
    data = TaskData("tagging", ("N", "O", "V"), *shifted)
    outcome = probe(data, encoder, tokenizer)
    selecting = [layer["selecting"]["accuracy"] for layer in outcome.facts["layers"]]
    assert outcome.metrics["layer"] == float(np.argmax(selecting)) > 0 and selecting[0] < max(selecting) - 0.1
    assert outcome.metrics["accuracy"] == outcome.facts["layers"][int(outcome.metrics["layer"])]["dev"]["accuracy"]


def test_lost_words_count_as_missed(encoder, tokenizer, words):
    outcome = probe(words, encoder, tokenizer, max_length=6)
    lost = outcome.facts["lost_words"]["dev"] / sum(len(example.words) for example in words.dev)
    assert lost > 0.2 and outcome.metrics["accuracy"] <= 1 - lost and outcome.metrics["control_accuracy"] <= 1 - lost


def test_entities_and_texts(encoder, tokenizer):
    entities = TaskData("tagging", ("O", "B-LOC", "B-PER", "I-LOC", "I-PER"), names(300, 0), names(60, 1))
    outcome = probe(entities, encoder, tokenizer, ("f1", "precision", "recall"))
    assert outcome.metrics["f1"] > 0.95 and list(outcome.metrics)[:3] == ["f1", "precision", "recall"]
    texts = TaskData("classification", ("bad", "good"), sentiment(200, 0), sentiment(60, 1))
    outcome = probe(texts, encoder, tokenizer, ("accuracy", "macro_f1"))
    assert outcome.metrics["accuracy"] > 0.9 and {line["prediction"] for line in outcome.predictions} == {0, 1}


def test_the_same_twice_whatever_the_seed(encoder, tokenizer, words):
    measure = LinearProbe(("accuracy",), words, evaluation(), tokenizer, 32)
    first, second = (measure(subject(encoder, tokenizer), seed) for seed in (0, 1))
    assert first == second


def test_the_control_task_is_a_function_of_the_word(words):
    control = ControlTask(np.array([60, 30, 10]))
    classes = control.classes(words.dev)
    seen = {}
    for example, of_example in zip(words.dev, classes, strict=True):
        for word, number in zip(example.words, of_example, strict=True):
            assert seen.setdefault(word, number) == number
    shares = np.bincount([control.of_type(f"word {i}") for i in range(20_000)], minlength=3) / 20_000
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.015)
    assert [control.of_type(word) for word in ("Berlin", "the", "film", "is", "anna", "of", "a")] == CONTROL, (
        "another process drew otherwise"
    )
    text = SequenceExample("the film", None, 0)
    assert control.classes([text])[0].tolist() == [control.of_type("the")] and control.classes([text._replace(text_a="")])[0].shape == (1,)


CONTROL = [0, 0, 1, 1, 0, 0, 0]


def test_the_split_goes_by_the_text_alone(words):
    fitted, selecting = split_by_hash(words.train)
    assert 0.1 < len(selecting) / len(words.train) < 0.3
    again = split_by_hash(list(reversed([*words.train, *words.train])))
    assert {e.words for e in again[1]} == {e.words for e in selecting} and {e.words for e in again[0]} == {e.words for e in fitted}


def test_refusals(encoder, tokenizer, words):
    with pytest.raises(UserError, match="too few training examples"):
        probe(TaskData("tagging", words.label_names, words.train[:1], words.dev), encoder, tokenizer)


def test_the_share_is_as_stated():
    assert linear_probe.SELECTION_SHARE == 0.2
