"""Does each objective learn? At +experiment=tiny on the embedded corpus, each against its own chance level, within three minutes.

By hand, a quarter of an hour of two cores:

    pytest -m exhaustive tests/objectives/test_learning.py -s

What was found is in README.md, section "The objectives".
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mlm_lab.config import compose
from mlm_lab.data.token_store import TokenStore
from mlm_lab.run_config import RunConfig
from mlm_lab.runner import run
from mlm_lab.stages.prepare import prepare
from mlm_lab.training.validation import HeldOut

pytestmark = pytest.mark.exhaustive

MINUTES = 3.0
CORES = 2
LEAVES_THE_PLATEAU = ["model.initializer_range=0.05", "optim.peak_lr=3e-3"]
"""As in the quickstart."""
SHORT_PAIRS = ["max_length=32", "batch_size=128", "objective.short_seq_prob=0", "model.initializer_range=0.05", "optim.peak_lr=2e-3"]
"""Many pairs of a sentence or two: a pair is one target, however long it is."""


@dataclass
class Learnt:
    metrics: dict[str, float]
    unigram: dict[str, float]
    """Loss and accuracy of token frequencies on the run's own held-out targets; of span corruption on the cut-out text."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded corpus is read and tokenised once."""
    return tmp_path_factory.mktemp("learning")


def learn(cache: Path, *words: str) -> Learnt:
    """Pretrain, hold the time against the limit, and look up what is known of the targets without context."""
    config = compose(
        [
            "+experiment=tiny",
            f"cache_dir={cache}/cache",
            f"output_dir={cache}/runs",
            "stages=[pretrain]",
            "validation.every_steps=100000",
            *words,
        ]
    )
    store = prepare(config).store_folder
    started = time.process_time()
    metrics = run(config)["metrics"]
    cpu = time.process_time() - started
    unigram = unigram_on(own_targets(config, store), TokenStore.open(store, "train"))
    shown = {name: round(value, 3) for name, value in metrics.items() if value is not None and name.startswith(("val/", "probe/"))}
    print(f"\n{' '.join(words)}\n  {shown}\n  {unigram}  {cpu:.0f} s of CPU")
    assert cpu < CORES * 60 * MINUTES
    return Learnt(metrics, unigram)


def unigram_on(labels: np.ndarray, train: TokenStore) -> dict[str, float]:
    """What the frequencies of the training text's tokens give: the loss, and the commonest token everywhere."""
    counts = np.bincount(train.tokens, minlength=train.vocabulary.size) + 1.0
    return {"loss": float(-np.log(counts / counts.sum())[labels].mean()), "accuracy": float((labels == counts.argmax()).mean())}


def own_targets(config: RunConfig, store: Path) -> np.ndarray:
    """(N,) tokens of the text among the held-out targets: no sentinels, no [SEP]."""
    validation = TokenStore.open(store, "validation")
    labels = HeldOut(config.objective, validation, config.max_length, config.validation.sequences, config.batch_size).labels("")
    vocabulary = validation.vocabulary
    return labels[~vocabulary.is_special[labels] | (labels == vocabulary.unk_id)]


def test_masked_tokens(cache: Path):
    found = learn(cache, "objective=mlm", "budget.tokens=2_000_000", *LEAVES_THE_PLATEAU)
    assert found.metrics["val/loss"] < found.unigram["loss"] - 1.0
    assert found.metrics["val/mlm_accuracy"] > 2 * found.unigram["accuracy"]


def test_left_to_right(cache: Path):
    found = learn(cache, "objective=clm", "budget.tokens=2_000_000", *LEAVES_THE_PLATEAU)
    assert found.metrics["val/loss"] < found.unigram["loss"] - 1.0
    assert found.metrics["val/clm_accuracy"] > 2 * found.unigram["accuracy"]


def test_cut_out_spans(cache: Path):
    found = learn(cache, "objective=span_corruption", "objective.mask_ratio=0.4", "budget.tokens=2_000_000")
    assert found.metrics["val/span_text_loss"] < found.unigram["loss"] - 0.5
    assert found.metrics["val/span_accuracy"] > 1.5 * found.unigram["accuracy"]


def test_replaced_tokens(cache: Path):
    found = learn(cache, "objective=rtd", "budget.tokens=2_000_000", *LEAVES_THE_PLATEAU)
    assert found.metrics["val/rtd_auc"] > 0.65


def test_sentence_order(cache: Path):
    """Docstrings do: no novels are needed. 2,000 pairs, whose accuracy by chance stays within .5 +- .033 (three standard errors)."""
    found = learn(cache, "objective=sop", "budget.steps=900", "validation.sequences=2000", *SHORT_PAIRS)
    assert found.metrics["val/sop_accuracy"] > 0.57
    assert found.metrics["val/mlm_accuracy"] > 0.2


def test_next_sentence(cache: Path):
    """With heads that start on equal tokens; without them it stays at chance for as long."""
    words = ["objective=mlm_nsp", "model.relative_bias=matches", "budget.steps=1200", "validation.sequences=2000"]
    found = learn(cache, *words, *SHORT_PAIRS)
    assert found.metrics["val/nsp_accuracy"] > 0.55
    assert found.metrics["val/mlm_accuracy"] > 0.2
