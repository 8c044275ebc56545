"""What stands in a row of metrics: means of what was counted, and nothing in place of what was not."""

from __future__ import annotations

import math

from mlm_lab.training.metrics import averages

NOTHING = (0.0, 0.0)


def test_trap_33_a_metric_without_a_target_is_left_out_and_trap_4_the_loss_is_zero():
    fetched = {"loss:mlm": NOTHING, "mlm_accuracy": NOTHING, "padded_share": (3.0, 12.0), "gradient_norm": (0.5, 0.25)}
    assert averages(fetched, {"mlm": 1.0}) == {"loss": 0.0, "padded_share": 0.25, "gradient_norm": 2.0}


def test_a_perplexity_is_of_the_loss_on_tokens_alone():
    """traps.md 25."""
    fetched = {"loss:order": (6.0, 4.0), "loss:mlm": (8.0, 4.0)}
    weights = {"order": 1.0, "mlm": 1.0}
    assert averages(fetched, weights, token_loss="mlm")["mlm_perplexity"] == math.exp(2.0)
    assert not any(name.endswith("perplexity") for name in averages(fetched, weights, token_loss=None))


def test_two_losses_have_two_counts():
    fetched = {"loss:mlm": NOTHING, "loss:pair": (6.0, 4.0), "pair_accuracy": (3.0, 4.0)}
    expected = {"loss": 0.75, "mlm_loss": 0.0, "pair_loss": 1.5, "pair_accuracy": 0.75}
    assert averages(fetched, {"mlm": 1.0, "pair": 0.5}) == expected
