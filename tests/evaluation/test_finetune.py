"""Fine-tuning learns what can be learnt, and the same seed gives the same bits."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric

from mlm_lab.evaluation.encode import encode
from mlm_lab.evaluation.finetune import BiLSTM, Diverged, FineTuned, Recipe, finetune, predict
from mlm_lab.evaluation.metrics import score_sequences, score_tags
from mlm_lab.evaluation.task import SequenceExample, TaggedExample, TaskData

WORDS = ("the", "film", "is", "a", "xx", "yy")


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Fabric(accelerator="cpu", devices=1, precision="32-true")


def recipe(**changes) -> Recipe:
    defaults = {"learning_rate": 3e-3, "steps": 60, "batch_size": 16, "warmup_share": 0.1, "weight_decay": 0.01}
    defaults |= {"pooling": "mean", "feature_based": False}
    return Recipe(**(defaults | changes))


def sentiment(n: int, seed: int, labels=(0, 1)) -> list[SequenceExample]:
    """A word decides the label, among others in any order."""
    generator = np.random.default_rng(seed)
    examples = []
    for i in range(n):
        words = [*generator.choice(WORDS, size=generator.integers(2, 8)), ("bad", "good")[i % 2]]
        examples.append(SequenceExample(" ".join(generator.permutation(words)), None, labels[i % 2]))
    return examples


def names(n: int, seed: int) -> list[TaggedExample]:
    generator = np.random.default_rng(seed)
    tags = {"anna": "B-PER", "berlin": "B-LOC"}
    sentences = [tuple(map(str, generator.choice([*WORDS, *tags], size=generator.integers(2, 9)))) for _ in range(n)]
    return [TaggedExample(words, tuple(tags.get(word, "O") for word in words)) for words in sentences]


def run(encoder, data: TaskData, tokenizer, vocabulary, fabric, seed=0, **changes) -> list:
    train, dev = (encode(data, part, tokenizer, 32) for part in (data.train, data.dev))
    model = finetune(copy.deepcopy(encoder), data, train, recipe(**changes), seed, fabric, vocabulary.pad_id, "test")
    return predict(model, dev, data.label_names, fabric, vocabulary.pad_id)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_separable_classification_is_learnt(encoder, tokenizer, vocabulary, fabric, pooling):
    data = TaskData("classification", ("bad", "good"), sentiment(300, 0), sentiment(100, 1))
    predictions = run(encoder, data, tokenizer, vocabulary, fabric, pooling=pooling)
    assert score_sequences(["accuracy"], [e.label for e in data.dev], predictions, 2)["accuracy"] > 0.9


def test_values_come_back_on_their_own_scale(encoder, tokenizer, vocabulary, fabric):
    data = TaskData("regression", (), sentiment(300, 0, (90.0, 110.0)), sentiment(100, 1, (90.0, 110.0)))
    predictions = run(encoder, data, tokenizer, vocabulary, fabric)
    errors = np.abs(np.array(predictions) - [example.label for example in data.dev])
    assert errors.mean() < 3


@pytest.mark.parametrize("feature_based", [False, True])
def test_a_tagger_is_learnt(encoder, tokenizer, vocabulary, fabric, feature_based):
    data = TaskData("tagging", ("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), names(300, 0), names(100, 1))
    predictions = run(encoder, data, tokenizer, vocabulary, fabric, feature_based=feature_based, learning_rate=1e-2)
    assert score_tags(["f1"], [e.tags for e in data.dev], predictions)["f1"] > 0.9


def test_the_same_seed_gives_the_same_bits_and_another_does_not(encoder, tokenizer, vocabulary, fabric):
    data = TaskData("regression", (), sentiment(64, 0, (0.0, 1.0)), sentiment(20, 1, (0.0, 1.0)))
    torch.manual_seed(1)
    first = run(encoder, data, tokenizer, vocabulary, fabric, seed=5, steps=10)
    torch.manual_seed(2)  # the global generator has no part in it
    assert run(encoder, data, tokenizer, vocabulary, fabric, seed=5, steps=10) == first
    assert run(encoder, data, tokenizer, vocabulary, fabric, seed=6, steps=10) != first


def test_predictions_do_not_depend_on_their_neighbours_in_the_batch(encoder, tokenizer, vocabulary, fabric):
    dev = [SequenceExample("good", None, 1.0), *sentiment(40, 1, (0.0, 1.0))]
    data = TaskData("regression", (), sentiment(64, 0, (0.0, 1.0)), dev)
    alone = TaskData("regression", (), data.train, dev[:1])
    together, single = (run(encoder, d, tokenizer, vocabulary, fabric, steps=5)[0] for d in (data, alone))
    assert together == pytest.approx(single, abs=1e-5)


def test_feature_based_leaves_the_encoder_as_it_was_and_has_its_width(encoder, tokenizer, vocabulary, fabric):
    """traps.md 32: the last min(4, layers) layers, a BiLSTM of the encoder's width."""
    data = TaskData("tagging", ("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), names(50, 0), names(10, 1))
    train = encode(data, data.train, tokenizer, 32)
    before = copy.deepcopy(encoder.state_dict())
    finetune(encoder, data, train, recipe(feature_based=True, steps=5), 0, fabric, vocabulary.pad_id, "test")
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    lstm = FineTuned(encoder, "tagging", 5, recipe(feature_based=True)).features.lstm
    assert (lstm.input_size, lstm.hidden_size, lstm.num_layers, lstm.bidirectional) == (2 * 32, 32, 2, True)


def test_bilstm_reads_the_last_layers_and_no_padding(encoder):
    features = BiLSTM(encoder)
    states = [torch.randn(2, 5, 32) for _ in range(3)]
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    output = features(states, mask)
    changed = [state.clone() for state in states]
    changed[0] += 1  # the embeddings: two layers, so they are not among the last two
    changed[1][0, 3:] += 1  # padding
    assert torch.allclose(features(changed, mask)[0, :3], output[0, :3], atol=1e-6)
    changed[1][0, 0] += 1
    assert not torch.allclose(features(changed, mask)[0, :3], output[0, :3], atol=1e-3)


def test_a_diverged_run_is_a_failure(encoder, tokenizer, vocabulary, fabric):
    data = TaskData("regression", (), [SequenceExample("good", None, float("nan"))] * 4, sentiment(4, 0))
    with pytest.raises(Diverged, match="step 0"):
        run(encoder, data, tokenizer, vocabulary, fabric)
