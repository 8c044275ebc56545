"""Generator and discriminator: sampling, labels, losses, what learns from what (traps.md 4, 17-20, 23, 24, 27, 28)."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.objectives.rtd_module import ReplacedTokenDetection
from mlm_lab.training.weights import load_weights, save_weights
from mlm_lab.types import IGNORE_INDEX, ObjectiveModule, Output
from tests.models.conftest import encoder_config, make_vocabulary, recipe  # noqa: F401
from tests.objectives.test_rtd import make, rtd

Batch = dict[str, torch.Tensor]


def make_module(recipe: str = "bert", size: int = 200, padded_size: int = 256, **changes: object) -> ReplacedTokenDetection:  # noqa: F811
    torch.manual_seed(0)
    model = encoder_config(recipe, **{"max_positions": 128, "initializer_range": 0.2, **changes})
    return rtd().build(model, make_vocabulary(size, padded_size))


def real_batch(rows: int | list[int] = 8, length: int = 64, **changes: object) -> Batch:
    return {name: torch.from_numpy(array) for name, array in make(rtd(**changes), rows, length=length).items()}


def without_targets(batch: Batch) -> Batch:
    return batch | {"labels": torch.full_like(batch["labels"], IGNORE_INDEX), "label_positions": torch.zeros_like(batch["label_positions"])}


def seen_by_discriminator(module: ReplacedTokenDetection, batch: Batch) -> torch.Tensor:
    """(B, L): the ids that the discriminator gets."""
    seen = []
    hook = module.encoder.register_forward_pre_hook(lambda encoder, inputs: seen.append(inputs[0]))
    module(batch)
    hook.remove()
    return seen[0]


def original(batch: Batch) -> torch.Tensor:
    """(B, L): the ids before masking."""
    ids = batch["input_ids"].clone()
    for row in range(len(ids)):
        for place, label in zip(batch["label_positions"][row], batch["labels"][row], strict=True):
            if label != IGNORE_INDEX:
                ids[row, place] = label
    return ids


def selected(batch: Batch) -> torch.Tensor:
    """(B, L) bool"""
    chosen = torch.zeros(batch["input_ids"].shape, dtype=torch.bool)
    for row in range(len(chosen)):
        chosen[row, batch["label_positions"][row][batch["labels"][row] != IGNORE_INDEX]] = True
    return chosen


def gradients(module: ReplacedTokenDetection, loss: torch.Tensor) -> dict[str, torch.Tensor | None]:
    names, parameters = zip(*module.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True), strict=True))


def total(output: Output) -> torch.Tensor:
    return output.losses["generator"] + 50 * output.losses["discriminator"]


def test_satisfies_the_contract():
    module, batch = make_module(), real_batch()
    assert isinstance(module, ObjectiveModule) and module.encoder.hidden_size == 32
    counts, output = module.target_counts(batch), module(batch)
    assert module.loss_weights == {"generator": 1.0, "discriminator": 50.0}
    assert counts.keys() == output.losses.keys() == module.loss_weights.keys()
    assert not any(value.requires_grad for metric in output.metrics.values() for value in metric)
    assert all(loss.dtype == torch.float32 and loss.shape == () for loss in output.losses.values())


def test_trap_17_embeddings_are_shared_with_a_projection_and_the_output_is_tied_to_them():
    module = make_module(tie_output=False)
    assert module.generator.embeddings is module.encoder.embeddings
    tables = {name for name, p in module.named_parameters() if p.shape[0] in (256, 128) and p.ndim == 2}
    assert tables == {"encoder.embeddings.tokens.weight", "encoder.embeddings.positions.weight"}, "one of each, none of the generator's own"
    projection = module.generator.embedding_projection
    assert (projection.in_features, projection.out_features) == (32, 8)
    assert isinstance(module.encoder.embedding_projection, torch.nn.Identity)
    batch = real_batch()
    unseen = torch.tensor([token for token in range(5, 200) if not (original(batch) == token).any()])
    gradient = gradients(module, module(batch).losses["generator"])["encoder.embeddings.tokens.weight"]
    assert len(unseen) and gradient[unseen].abs().sum(-1).min() > 0, "the projection to the vocabulary reaches rows that no input has"


def test_trap_18_samples_are_the_softmax_of_the_generator():
    """Chi-square over 100,000 draws of what the generator says at the first slot."""
    module, batch = make_module(initializer_range=0.1), real_batch()
    hidden = module.generator(batch["input_ids"], batch["attention_mask"], batch["position_ids"])
    hidden = hidden[0, batch["label_positions"][0, 0]].detach().expand(100_000, -1)
    log_probabilities = module.generator_head(hidden[:1], module.generator.embedding_weight)[0].detach().log_softmax(-1)
    batches = [make(rtd(mask_ratio=0.9), rows=240, epoch=epoch) for epoch in range(5)]
    drawn = np.concatenate([batch["sampling_uniforms"][batch["labels"] != IGNORE_INDEX] for batch in batches])
    uniforms = torch.from_numpy(drawn[:100_000])
    assert len(uniforms) == 100_000
    with torch.no_grad():
        guess = module.generator_head.loss(hidden, module.generator.embedding_weight, torch.zeros(100_000, dtype=torch.long), uniforms)
    counts = torch.bincount(guess.sampled, minlength=256)[:200]
    expected = log_probabilities[:200].double().exp()
    assert expected.min() * 100_000 > 5
    assert stats.chisquare(counts.numpy(), (expected / expected.sum() * 100_000).numpy()).pvalue > 1e-3


def test_trap_18_samples_stand_at_all_selected_places_and_nowhere_else():
    module, batch = make_module(), real_batch()
    seen, chosen = seen_by_discriminator(module, batch), selected(batch)
    assert (seen[~chosen] == original(batch)[~chosen]).all()
    assert (batch["input_ids"][chosen] == 4).float().mean() > 0.7 and not (seen[chosen] == 4).any(), "no mask token is left"
    kept = chosen & (batch["input_ids"] == original(batch))
    assert kept.any() and (seen[kept] != original(batch)[kept]).any(), "what was left unchanged gets a sample too"


@pytest.mark.parametrize("static_shapes", [False, True])
def test_trap_18_samples_do_not_depend_on_the_batch(static_shapes: bool):
    module, rows = make_module(), [3, 0, 7, 7, 5]
    module.static_shapes = static_shapes
    together = seen_by_discriminator(module, real_batch(rows))
    alone = torch.cat([seen_by_discriminator(module, real_batch([row])) for row in rows])
    assert (together == alone).all()
    torch.manual_seed(123)
    assert (seen_by_discriminator(module, real_batch(rows)) == together).all(), "nor on a generator of torch's"


@pytest.mark.parametrize("static_shapes", [False, True])
def test_trap_19_a_lucky_sample_is_original(static_shapes: bool):
    module, batch = make_module(), real_batch()
    module.static_shapes = static_shapes
    token = int(batch["labels"][0, 0])
    with torch.no_grad():
        module.generator_head.bias[token] = 1000.0  # every sample is this token
    labels, chosen = [], selected(batch)
    handle = module.head.register_forward_hook(lambda head, inputs, scores: labels.append(scores))
    output = module(batch)
    handle.remove()
    lucky = chosen & (original(batch) == token)
    replaced = chosen & ~lucky
    assert 0 < lucky.sum() < chosen.sum()
    real = batch["attention_mask"] != 0
    expected = F.binary_cross_entropy_with_logits(labels[0][real], replaced[real].float(), reduction="sum")
    torch.testing.assert_close(output.losses["discriminator"], expected)
    assert output.metrics["replaced_share"] == (replaced.sum(), real.sum())
    assert output.metrics["sampled_accuracy"] == (lucky.sum(), chosen.sum())


def test_trap_19_the_share_of_replaced_tokens_is_p_times_1_minus_a(monkeypatch: pytest.MonkeyPatch):
    """9 % at p = .15 and a = .4; of all candidates, which is what p is of."""
    module, batch = make_module(), real_batch(rows=150, length=128)
    labels = batch["labels"][batch["labels"] != IGNORE_INDEX]
    hit = torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < 0.4
    loss, sampled = module.generator_head.loss, torch.where(hit, labels, (labels + 1) % 200)
    monkeypatch.setattr(module.generator_head, "loss", lambda *given: loss(*given)._replace(sampled=sampled))
    metrics = module(batch).metrics
    candidates = int((~torch.isin(original(batch), torch.tensor([0, 2, 3]))).sum())
    accuracy = (metrics["sampled_accuracy"].sum / metrics["sampled_accuracy"].count).item()
    assert metrics["replaced_share"].sum / candidates == pytest.approx(0.15 * (1 - accuracy), rel=0.01)
    assert metrics["replaced_share"].sum / candidates == pytest.approx(0.09, abs=0.005)


def test_trap_20_the_discriminator_is_asked_about_every_token_but_padding():
    module, batch = make_module(), real_batch(rows=8)
    ids, real = original(batch), batch["attention_mask"] != 0
    assert not real.all() and ((ids == 2) & real).any() and ((ids == 3) & real).any()
    assert module.target_counts(batch) == {"generator": (batch["labels"] != IGNORE_INDEX).sum(), "discriminator": real.sum()}
    seen = seen_by_discriminator(module, batch)
    scores = module.head(module.encoder(seen, batch["attention_mask"], batch["position_ids"]))
    expected = torch.zeros(())
    for row, place in real.nonzero().tolist():
        probability = scores[row, place].sigmoid()
        expected = expected - (probability if seen[row, place] != ids[row, place] else 1 - probability).log()
    torch.testing.assert_close(module(batch).losses["discriminator"], expected, rtol=1e-5, atol=1e-4)


def test_trap_20_the_two_models_learn_from_each_other_through_the_embeddings_alone(recipe: str):  # noqa: F811
    module = make_module(recipe)
    losses = module(real_batch()).losses
    for loss, own in (("discriminator", ("encoder.", "head.")), ("generator", ("generator.", "generator_head."))):
        for name, gradient in gradients(module, losses[loss]).items():
            reached = name.startswith(own) or name.startswith("encoder.embeddings.")
            assert (gradient is not None) == reached, (loss, name)


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 24}, {"share_layers": True}, {"tie_output": False}])
@pytest.mark.parametrize("targets", [True, False])
def test_every_parameter_has_a_gradient_in_every_step(recipe: str, changes: dict[str, object], targets: bool):  # noqa: F811
    module, batch = make_module(recipe, **changes), real_batch()
    total(module(batch if targets else without_targets(batch))).backward()
    assert not [name for name, parameter in module.named_parameters() if parameter.grad is None], "ddp would wait for it"


@pytest.mark.parametrize("static_shapes", [False, True])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_trap_4_no_target_is_a_generator_loss_of_zero(static_shapes: bool, bfloat16: bool):
    module, batch = make_module(), without_targets(real_batch())
    module.static_shapes = static_shapes
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        output = module(batch)
    assert output.losses["generator"].item() == 0 and module.target_counts(batch)["generator"] == 0
    assert torch.isfinite(output.losses["discriminator"]) and output.metrics["replaced_share"].sum == 0
    assert output.metrics["rtd_auc"] == (0, 0)
    assert all(torch.isfinite(gradient).all() for gradient in gradients(module, total(output)).values())


def test_trap_23_micro_batches_sum_to_the_batch():
    module, batch = make_module(), real_batch()
    whole, parts = module(batch), [module({k: v[i : i + 3] for k, v in batch.items()}) for i in (0, 3, 6)]
    for name, loss in whole.losses.items():
        torch.testing.assert_close(sum(part.losses[name] for part in parts), loss, rtol=1e-5, atol=1e-4)
    for name, metric in whole.metrics.items():
        assert sum(part.metrics[name].sum for part in parts) == metric.sum, name
        assert sum(part.metrics[name].count for part in parts) == metric.count, name


def test_trap_24_compact_and_static_slots_agree():
    module, batch = make_module(), real_batch(rows=8, mask_count="bernoulli")
    assert (batch["labels"] == IGNORE_INDEX).any()
    compact = module(batch)
    module.static_shapes = True
    static = module(batch)
    for name, loss in compact.losses.items():
        torch.testing.assert_close(static.losses[name], loss, rtol=1e-6, atol=0)
    assert static.metrics == compact.metrics
    expected = gradients(module, total(compact))
    for name, gradient in gradients(module, total(static)).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("static_shapes", [False, True])
def test_trap_24_only_selected_positions_reach_the_projection(static_shapes: bool):
    module, batch, seen = make_module(), real_batch(mask_count="bernoulli"), []
    module.static_shapes, module.generator_head.fused = static_shapes, False  # the fused way rounds the rows up with empty ones
    module.generator_head.norm.register_forward_hook(lambda norm, inputs, output: seen.append(len(output)))  # what is projected
    module(batch)
    assert seen == [batch["labels"].numel() if static_shapes else int((batch["labels"] != IGNORE_INDEX).sum())]


@pytest.mark.parametrize("bfloat16", [False, True])
def test_trap_27_padding_rows_of_the_vocabulary_are_never_sampled(bfloat16: bool):
    module, batch = make_module(), real_batch()
    with torch.no_grad():
        module.generator_head.bias[200:] = 1000.0  # padding rows that would win everywhere
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        batch["sampling_uniforms"].fill_(1 - 2.0**-24)
        assert seen_by_discriminator(module, batch).max() < 200
        loss = module(batch).losses["generator"]
        logits = module.predict(batch["input_ids"], batch["attention_mask"], batch["position_ids"], batch["label_positions"])
    assert logits.shape[-1] == 200
    expected = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORE_INDEX, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-2 if bfloat16 else 1e-5, atol=0)


@pytest.mark.parametrize("move", ["copied", "to float64 and back", "reloaded"])
def test_trap_28_shared_embeddings_stay_shared(move: str, tmp_path: Path):
    module, batch = make_module(), real_batch()
    expected = module(batch).losses
    if move == "copied":
        module = copy.deepcopy(module)
    elif move == "reloaded":
        save_weights(module, tmp_path)
        torch.manual_seed(5)
        module = rtd().build(module.encoder.config, make_vocabulary(200, 256))
        load_weights(module, tmp_path)
    else:
        module = module.to(torch.float64).to(torch.float32)
    for name, loss in module(batch).losses.items():
        torch.testing.assert_close(loss, expected[name], rtol=0, atol=0)
    with torch.no_grad():
        module.encoder.embedding_weight.mul_(2.0)
    assert (module.generator.embedding_weight == module.encoder.embedding_weight).all()


def test_the_metrics_are_what_they_say():
    module, batch, seen = make_module(), real_batch(rows=12, mask_ratio=0.3, mask_count="bernoulli"), []
    module.head.out.bias.data.fill_(0.5)
    handle = module.head.register_forward_hook(lambda head, inputs, scores: seen.append(scores))
    metrics = module(batch).metrics
    handle.remove()
    scores, real = seen[0], batch["attention_mask"] != 0
    replaced = seen_by_discriminator(module, batch) != original(batch)
    flagged = (scores > 0) & real
    assert flagged.any() and not flagged[real].all() and (scores > 0)[~real].any(), "or precision and recall say nothing"
    assert metrics["rtd_precision"] == ((flagged & replaced).sum(), flagged.sum())
    assert metrics["rtd_recall"] == ((flagged & replaced).sum(), replaced.sum())
    assert metrics["replaced_share"] == (replaced.sum(), real.sum())
    wins = pairs = 0.0
    for row in range(len(scores)):
        positive, negative = scores[row][replaced[row]], scores[row][real[row] & ~replaced[row]]
        wins += stats.mannwhitneyu(positive.detach(), negative.detach()).statistic
        pairs += len(positive) * len(negative)
    auc = metrics["rtd_auc"]
    assert auc.sum / auc.count == pytest.approx(wins / pairs) and auc.count == 2 * pairs
    slots = batch["input_ids"], batch["attention_mask"], batch["position_ids"], batch["label_positions"]
    hits = (module.predict(*slots).argmax(-1) == batch["labels"]).sum()
    assert metrics["generator_accuracy"] == (hits, (batch["labels"] != IGNORE_INDEX).sum())


def test_auc_is_1_for_a_discriminator_that_knows_and_a_half_for_one_that_does_not():
    module, batch = make_module(), real_batch()
    replaced = (seen_by_discriminator(module, batch) != original(batch)).float()
    for scores, auc in ((replaced, 1.0), (-replaced, 0.0), (torch.zeros_like(replaced), 0.5)):
        module.head.forward = lambda hidden, scores=scores: scores + 0 * hidden.sum()
        sums = module(batch).metrics["rtd_auc"]
        assert sums.sum / sums.count == auc


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 24}])
@pytest.mark.parametrize("probe", [False, True])
def test_flops_of_both_models_in_closed_form(recipe: str, changes: dict[str, object], probe: bool):  # noqa: F811
    module, batch = make_module(recipe, **changes), real_batch()
    if probe:
        del batch["sampling_uniforms"]
    module.static_shapes, module.generator_head.fused = True, False
    flops = module.flops(batch)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            losses = module(batch).losses
        assert flops.total == pytest.approx(forward.get_total_flops(), rel=0.02)
        with FlopCounterMode(display=False) as backward:
            sum(losses.values()).backward()
    assert 3 * flops.total == pytest.approx(forward.get_total_flops() + backward.get_total_flops(), rel=0.02)
    assert flops.head == 2 * batch["labels"].numel() * module.encoder.config.embedding_width * 256


def test_a_batch_of_masked_language_modelling_is_the_generators():
    module, batch = make_module(), real_batch()
    whole = module(batch)
    del batch["sampling_uniforms"]
    ran = []
    module.encoder.register_forward_hook(lambda *_: ran.append(1))
    output = module(batch)
    assert not ran and output.losses.keys() == module.target_counts(batch).keys() == {"generator"}
    assert output.losses["generator"] == whole.losses["generator"]
    assert output.metrics == {"mlm_accuracy": whole.metrics["generator_accuracy"]}


@pytest.mark.parametrize("recipe", ["relative", "modern"])
def test_static_slots_compile_without_a_graph_break(recipe: str):  # noqa: F811
    torch._dynamo.reset()
    module, batch = make_module(recipe), real_batch()
    module.static_shapes = True
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        got, expected = compiled(batch), module(batch)
    for name, loss in expected.losses.items():
        torch.testing.assert_close(got.losses[name], loss, rtol=1e-2, atol=0)
