"""Which metrics a run of a config logs, before it runs: what the objective and the tasks declare, and for the rest one validation of the
untrained model on made-up text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.errors import UserError

if TYPE_CHECKING:
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.run_config import RunConfig

KINDS = ("accuracy", "macro_f1", "f1", "precision", "recall", "pearson", "spearman")
"""What a task reports that leaves its metrics to the kind of its data."""
TRAINING = (
    "positions",
    "supervised_positions",
    "supervision_density",
    "flops_per_token",
    "learning_rate",
    "tokens_per_second",
    "flops_per_second",
    "ceiling_share",
    "padded_share",
)
"""train/NAME of every run, besides those that validation has too."""
SUMMARY = ("left_plateau", "plateau_left_step")
SENTENCES, SENTENCE_TOKENS, WORDS, SENTINELS = 400, 24, 200, 100


def plain(config: RunConfig) -> list[str]:
    """The names that need no model: losses and accuracies of validation and probes, and of every task."""
    probes = [f"probe/{name}_{what}" for name in config.objective.probes() for what in ("loss", "accuracy")]
    tasks = [f"{task.name}/{metric}" for task in config.tasks.values() for metric in task.metrics or KINDS]
    return ["train/loss", "val/loss", *probes, *(tasks if "evaluate" in config.stages else [])]


def missing(names: Sequence[str], configs: Sequence[RunConfig]) -> list[str]:
    """Those of the names that a run of none of the configs logs."""
    left = [name for name in names if not any(_is_plain(name, config) for config in configs)]
    for config in configs:
        if not any(name.startswith(("val/", "probe/", "train/")) for name in left):
            break
        measured = _measured(config)
        left = [name for name in left if name not in measured]
    return left


def _is_plain(name: str, config: RunConfig) -> bool:
    """A part of a task (mnli/mismatched/accuracy) has the task's metrics; glue/... are averages of several tasks."""
    first, _, rest = name.partition("/")
    task = config.tasks.get(first) if "evaluate" in config.stages else None
    of_part = task is not None and rest.rpartition("/")[2] in (task.metrics or KINDS)
    return name in plain(config) or name in SUMMARY or of_part or (first == "glue" and len(config.tasks) > 1)


def _measured(config: RunConfig) -> set[str]:
    """val/*, probe/* and train/* of an untrained model on made-up text."""
    import torch

    from mlm_lab.training.validation import HeldOut, evaluate

    store = _made_up_store(max(config.max_length, SENTENCE_TOKENS))
    try:
        held_out = HeldOut(config.objective, store, config.max_length, sequences=2, batch_size=2)
        with torch.random.fork_rng(devices=[]):
            module = config.objective.build(config.model, store.vocabulary)
        names = evaluate(module, held_out, torch.device("cpu"))
    except UserError:  # made-up text is not what this objective needs; the run's own will be looked at when it is prepared
        return set()
    losses = {f"train/{name.removeprefix('val/')}" for name in names if name.startswith("val/")}
    return {*names, *losses, *(f"train/{name}" for name in TRAINING)}


def _made_up_store(length: int) -> TokenStore:
    """Documents of eight sentences, whose words are one token each."""
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.types import Vocabulary

    specials = tuple(range(5 + SENTINELS))
    size = len(specials) + WORDS
    names = dict(zip(("pad_id", "unk_id", "cls_id", "sep_id", "mask_id"), range(5), strict=True))
    vocabulary = Vocabulary(size=size, padded_size=size, special_ids=specials, sentinel_ids=specials[5:], fingerprint="made up", **names)
    sentences = max(SENTENCES, 8 * length // SENTENCE_TOKENS)
    tokens = np.random.default_rng(0).integers(len(specials), size, sentences * SENTENCE_TOKENS)
    starts = np.arange(0, len(tokens) + 1, SENTENCE_TOKENS)
    documents = np.unique([*range(0, sentences, 8), sentences])
    return TokenStore.from_arrays(tokens, np.ones(len(tokens), bool), starts, documents, vocabulary, "validation")
