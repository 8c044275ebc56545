"""What every objective of conf/objective/ holds to: fields as in its YAML, pure batches of constant shapes."""

from __future__ import annotations

import ast
import hashlib
import inspect
import pickle
from dataclasses import fields, is_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from mlm_lab.corruption.draws import Draws
from mlm_lab.types import IGNORE_INDEX, Batch, ObjectiveModule
from tests.corruption.stores import VOCABULARY, keys_of, many_documents
from tests.models.conftest import encoder_config

OPTIONS = sorted((Path(__file__).resolve().parents[2] / "conf" / "objective").glob("*.yaml"))
LENGTH = 64
EPOCHS = [0, 0, 1, 3, 12]
BATCHES = {
    "clm": (1, "c378fc018927fb78"),
    "mlm": (1, "4dcaaf62e2441a72"),
    "mlm_nsp": (1, "22b5841c5fd84404"),
    "rtd": (1, "c77090dde8a59b5d"),
    "sop": (1, "317e0974cfec488f"),
    "span_corruption": (2, "6649f0fb09752913"),
}
"""Objective -> its code_version, and a digest of one batch."""


def load(option: Path) -> tuple[type, dict[str, Any]]:
    values = yaml.safe_load(option.read_text())
    module, _, name = values.pop("_target_").rpartition(".")
    return getattr(import_module(module), name), values


@pytest.fixture(params=OPTIONS, ids=lambda option: option.stem)
def option(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def objective(option: Path) -> Any:
    kind, values = load(option)
    return kind(**values)


def make(objective: Any, index: list[int], epoch: list[int] | int = 0, seed: int = 0) -> Batch:
    store = many_documents(80)
    return objective.make_batch(store, objective.plan(store, LENGTH, Draws(seed, "train")), keys_of(index, epoch))


def test_defaults_live_in_the_yaml_alone(option: Path) -> None:
    kind, values = load(option)
    assert is_dataclass(kind) and kind.__dataclass_params__.frozen and all(field.kw_only for field in fields(kind))
    assert list(values) == [field.name for field in fields(kind)]
    assert all(field.default is field.default_factory for field in fields(kind)), "a field has a default in Python"
    assert option.read_text().startswith("# "), "the first line says what the option is"
    assert kind.__doc__ and isinstance(kind.code_version, int)
    assert kind.__module__ == f"mlm_lab.objectives.{option.stem}"


def test_each_field_is_documented(option: Path) -> None:
    kind, values = load(option)
    documented = {
        statement.target.id
        for base in kind.__mro__[:-1]
        for statement, following in pairwise(ast.parse(inspect.getsource(base)).body[0].body)
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    }
    assert set(values) <= documented


def test_other_batches_have_another_code_version(option: Path, objective: Any) -> None:
    """A run resumes, and counts as finished, by its hash, in which code_version stands for the code: also for what an objective takes from
    another one, from the recipe, the packing and the draws. Where these change what is in a batch, raise it and write the digest anew."""
    if option.stem not in BATCHES:
        pytest.skip("an objective whose batches are not recorded here")
    digest = hashlib.sha256()
    for name, array in sorted(make(objective, [0, 5, 2, 9], [0, 1, 3, 12]).items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    assert (type(objective).code_version, digest.hexdigest()[:16]) == BATCHES[option.stem]


def test_batches_are_pure(objective: Any) -> None:
    index = [0, 5, 5, 2, 9]
    batch, again = make(objective, index, EPOCHS), make(objective, index, EPOCHS)
    for name, array in batch.items():
        assert isinstance(array, np.ndarray) and len(array) == len(index)
        assert array.dtype == again[name].dtype and (array == again[name]).all()
    for row in range(len(index)):
        alone = make(objective, index[row : row + 1], EPOCHS[row : row + 1])
        assert alone.keys() == batch.keys()
        assert all((array[row : row + 1] == alone[name]).all() for name, array in batch.items())


def test_seeds_give_other_batches(objective: Any) -> None:
    if not hasattr(objective, "mask_ratio"):
        pytest.skip("nothing is drawn: only the order of the rows depends on the seed")
    first, second = make(objective, list(range(10))), make(objective, list(range(10)), seed=1)
    assert any((first[name] != second[name]).any() for name in first)


def test_shapes_are_those_of_every_batch(objective: Any) -> None:
    shapes = {tuple((name, array.shape) for name, array in make(objective, list(range(start, start + 8))).items()) for start in (0, 8, 20)}
    assert len(shapes) == 1


def test_ids_and_labels_are_of_the_vocabulary(objective: Any) -> None:
    batch = make(objective, list(range(30)))
    assert batch["input_ids"].min() >= 0 and batch["input_ids"].max() < VOCABULARY.size
    assert (batch["input_ids"][batch["attention_mask"] == 0] == VOCABULARY.pad_id).all()
    labels = batch["labels"][batch["labels"] != IGNORE_INDEX]
    assert len(labels) and labels.min() >= 0 and labels.max() < VOCABULARY.size


def test_plans_and_objectives_travel_to_worker_processes(objective: Any) -> None:
    store = many_documents(80)
    plan = objective.plan(store, LENGTH, Draws(0, "train"))
    there, plan_there, store_there = pickle.loads(pickle.dumps((objective, plan, store)))
    assert there == objective and len(plan_there) == len(plan) and plan.draws == plan_there.draws
    first, second = objective.make_batch(store, plan, keys_of([1, 2])), there.make_batch(store_there, plan_there, keys_of([1, 2]))
    assert all((first[name] == second[name]).all() for name in first)


def test_the_class_and_the_module_agree_on_what_they_are(objective: Any) -> None:
    """What is refused before anything is built goes by the class; what is trained, by the module."""
    module = objective.build(encoder_config(), VOCABULARY)
    assert isinstance(module, ObjectiveModule)
    assert module.encoder.causal == getattr(objective, "causal", False)
    assert module.token_loss in module.loss_weights, "each option, at its defaults, predicts tokens"


def test_probes_are_objectives_that_the_same_module_takes(objective: Any) -> None:
    probes, module = objective.probes(), objective.build(encoder_config(), VOCABULARY)
    assert any(name.startswith("mlm_15") for name in probes) == hasattr(module, "predict")
    for probe in probes.values():
        batch = {name: torch.from_numpy(array) for name, array in make(probe, [0, 1, 2]).items()}
        counts, output = module.target_counts(batch), module(batch)
        assert counts.keys() == output.losses.keys() <= module.loss_weights.keys()
        assert counts[next(iter(module.loss_weights))] > 0, "the first loss predicts tokens"
