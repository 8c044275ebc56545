"""Replaced token detection's batches: masks without random tokens, a uniform for each slot, probes for the generator (traps.md 17-19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from scipy import stats

from mlm_lab.corruption.draws import Draws
from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.objectives.mlm import MLM
from mlm_lab.objectives.rtd import RTD
from mlm_lab.training.validation import HeldOut, evaluate
from mlm_lab.types import IGNORE_INDEX, Batch
from tests.corruption.stores import VOCABULARY, keys_of, many_documents
from tests.models.conftest import encoder_config

CONF = Path(__file__).resolve().parents[2] / "conf" / "objective"


def option(name: str) -> dict[str, Any]:
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    del values["_target_"]
    return values


def rtd(**changes: object) -> RTD:
    return RTD(**(option("rtd") | changes))


def make(objective: RTD | MLM, rows: int | list[int] = 60, epoch: int = 0, seed: int = 0, length: int = 128) -> Batch:
    store = many_documents(200)
    index = list(range(rows)) if isinstance(rows, int) else rows
    return objective.make_batch(store, objective.plan(store, length, Draws(seed, "train")), keys_of(index, epoch))


def test_trap_17_selected_tokens_are_masked_or_kept_and_distinct():
    batch = make(rtd(), rows=100)
    kinds = np.bincount(batch["label_kinds"].ravel(), minlength=4)[1:]
    assert kinds[1] == 0, "no random tokens"
    share = kinds[0] / kinds.sum()
    assert abs(share - 0.85) < 4 * np.sqrt(0.85 * 0.15 / kinds.sum())
    for positions, labels in zip(batch["label_positions"], batch["labels"], strict=True):
        used = positions[labels != IGNORE_INDEX]
        assert len(set(used)) == len(used)


def test_rows_and_masks_are_those_of_mlm_by_the_same_recipe():
    same = MLM(**(option("mlm") | {"replace_mix": [0.85, 0, 0.15], "duplicates": 2}))
    batch, masked = make(rtd(duplicates=2), epoch=3), make(same, epoch=3)
    assert batch.keys() == {*masked, "sampling_uniforms"}
    assert all((batch[name] == array).all() for name, array in masked.items())


def test_trap_18_uniforms_are_uniform_and_below_1_in_float32():
    uniforms = make(rtd(mask_ratio=0.5), rows=100)["sampling_uniforms"]
    assert uniforms.dtype == np.float32 and uniforms.min() >= 0 and uniforms.max() < 1
    assert stats.kstest(uniforms.ravel(), "uniform").pvalue > 1e-3
    assert (uniforms * 2.0**24 == np.floor(uniforms * 2.0**24)).all(), "no number that float32 would round up to 1"


def test_trap_18_a_token_has_its_own_uniform_for_each_epoch_and_seed():
    batch, more = make(rtd()), make(rtd(mask_ratio=0.4))
    used, used_more = batch["labels"] != IGNORE_INDEX, more["labels"] != IGNORE_INDEX
    by_place = {
        (row, place): uniform
        for row in range(60)
        for place, uniform in zip(more["label_positions"][row][used_more[row]], more["sampling_uniforms"][row][used_more[row]], strict=True)
    }
    for row in range(60):  # common random numbers: arms that differ in the ratio alone sample the same tokens at the same uniforms
        for place, uniform in zip(batch["label_positions"][row][used[row]], batch["sampling_uniforms"][row][used[row]], strict=True):
            assert by_place[row, place] == uniform
    assert len(set(by_place.values())) > 0.999 * len(by_place)
    static = rtd(duplicates=1)
    first, second = make(static), make(static, epoch=1)
    assert (first["input_ids"] == second["input_ids"]).all(), "static masks"
    assert (first["sampling_uniforms"] != second["sampling_uniforms"])[used].all(), "and yet another sample each epoch"
    assert (first["sampling_uniforms"] != make(rtd(), seed=1)["sampling_uniforms"])[used].all()
    replaced = Draws(0, "train").uniform(np.zeros(60, int), np.arange(60), "replace", batch["label_positions"])
    assert abs(np.corrcoef(replaced[used], batch["sampling_uniforms"][used])[0, 1]) < 0.15, "nor the uniform that decided on the mask"


def test_the_probe_is_the_one_of_every_arm_and_its_columns_name_the_generator():
    objective = rtd(mask_ratio=0.25, unit="word")
    assert objective.probes() == {f"{name}_generator": probe for name, probe in MLM(**option("mlm")).probes().items()}
    torch.manual_seed(0)
    module = objective.build(encoder_config(max_positions=128), VOCABULARY)
    held_out = HeldOut(objective, many_documents(40), 128, sequences=6, batch_size=4)
    values = evaluate(module, held_out, torch.device("cpu"))
    assert held_out.probe == "mlm_15_generator"
    probe = {name for name in values if name.startswith("probe/")}
    own = {f"{word}{what}" for word in ("", "masked_", "random_", "kept_") for what in ("loss", "accuracy")} | {"perplexity"}
    assert probe == {f"probe/mlm_{ratio}_generator_{name}" for ratio in (15, 40) for name in own}
    names = ["loss", "discriminator_loss", "generator_perplexity", "replaced_share", "sampled_accuracy"]
    names += ["rtd_precision", "rtd_recall", "rtd_auc"]
    generator = {f"generator_{name}" for name in own if "random" not in name}
    assert set(values) - probe == {f"val/{name}" for name in {*names, *generator}}, "ELECTRA's mix has no random tokens"
    assert values["val/loss"] == pytest.approx(values["val/generator_loss"] + 50 * values["val/discriminator_loss"])
    assert values["val/generator_perplexity"] == pytest.approx(np.exp(values["val/generator_loss"]))
    total = 0.0
    for batch in held_out.batches["mlm_15_generator"]:
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        places = tensors["input_ids"], tensors["attention_mask"], tensors["position_ids"], tensors["label_positions"]
        logits = module.predict(*places)
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), tensors["labels"].flatten(), reduction="sum").item()
    assert values["probe/mlm_15_generator_loss"] == pytest.approx(total / len(held_out.labels("mlm_15_generator")), rel=1e-5)


@pytest.mark.parametrize(
    ("field", "value"),
    [("generator_ratio", 1.5), ("generator_ratio", 0.0), ("discriminator_weight", 0.0), ("predict_share", 0.5), ("input_format", "rows")],
)
def test_values_out_of_range_are_refused(field: str, value: object):
    with pytest.raises(InvalidFields) as error:
        rtd(**{field: value})
    assert [(problem.field, problem.given) for problem in error.value.problems] == [(field, value)]


def test_trap_17_a_generator_wider_than_its_discriminator_is_refused_with_all_other_mistakes():
    with pytest.raises(InvalidFields, match=r"generator_ratio=2.0: must be in \(0, 1\]: a generator is no wider than its discriminator"):
        rtd(generator_ratio=2.0)
    with pytest.raises(InvalidFields) as error:
        rtd(generator_ratio=2.0, mask_ratio=0.0)
    assert {problem.field for problem in error.value.problems} == {"generator_ratio", "mask_ratio"}


@pytest.mark.parametrize(("ratio", "heads"), [(0.25, 1), (0.5, 2), (1.0, 4)])
def test_trap_17_the_generator_is_the_model_at_a_share_of_its_width(ratio: float, heads: int):
    generator = rtd(generator_ratio=ratio).generator(encoder_config(tie_output=False))
    assert (generator.hidden_size, generator.num_heads, generator.intermediate_size) == (8 * heads, heads, 16 * heads)
    assert generator.embedding_width == 32 and generator.num_layers == 2
    assert generator.tie_output, "whatever the model says of its own output"


def test_a_ratio_that_does_not_divide_the_model_names_its_key():
    with pytest.raises(UserError) as error:
        rtd(generator_ratio=0.3).build(encoder_config(), VOCABULARY)
    assert error.value.where == "objective.generator_ratio" and "0.3" in str(error.value) and "1/4" in error.value.allowed


def test_a_third_is_that_of_a_base_model():
    model = encoder_config(hidden_size=768, num_heads=12, intermediate_size=3072)
    assert rtd(generator_ratio=0.333).generator(model).hidden_size == 256
