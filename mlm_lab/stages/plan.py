"""What a run would be: its sizes and costs, without a step of training. `python -m mlm_lab stages=[plan] ...`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlm_lab import console
from mlm_lab.stages import pretrain
from mlm_lab.stages.prepare import prepare
from mlm_lab.training.budget import StepFacts
from mlm_lab.training.trainer import resolve_precision

if TYPE_CHECKING:
    from mlm_lab.run_config import RunConfig
    from mlm_lab.run_folder import RunFolder


def check(config: RunConfig) -> None:
    """As for pretraining."""
    pretrain.check(config)


def run(config: RunConfig, folder: RunFolder) -> None:
    """Print parameters, rows, steps, tokens, positions, FLOPs and memory. Prepares the token store where there is none yet."""
    from mlm_lab.training.course import Course

    course = Course.open(config, prepare(config).store_folder)
    precision = resolve_precision(config.trainer)
    batch = course.sample_batch()
    positions, slots = int((batch["attention_mask"] != 0).sum()), batch["labels"].shape[1]
    memory = course.memory_bytes(config.trainer.micro_batch_size, 2 if precision.startswith("bf16") else 4)
    head = course.flops_per_step.head / course.flops_per_step.total
    rows = [
        ["parameters", f"{course.parameters:,}", ""],
        ["rows of an epoch", f"{course.rows:,}", f"of {config.max_length} tokens"],
        ["label slots of a row", f"{slots:,}", ""],
        ["corpus tokens a step", f"{course.tokens_per_step:,.0f}", f"{config.batch_size} sequences"],
        ["FLOPs a step", f"{course.flops_per_step.total:.3g}", f"{100 * head:.0f} % of them the vocabulary projection"],
        ["memory", f"{memory / 2**30:.2f} GiB", f"about, for each device, {precision}"],
    ]
    if config.budget.hours is not None:
        rows.append(["steps", "-", f"as many as fit into {config.budget.hours} h: measured when pretraining starts"])
    else:
        steps = config.budget.steps_for(StepFacts(course.tokens_per_step, course.flops_per_step.total, seconds=None))
        rows += [
            ["steps", f"{steps:,}", f"{course.epochs(steps):.2f} epochs"],
            ["corpus tokens", f"{steps * course.tokens_per_step:,.0f}", ""],
            ["positions", f"{steps * positions:,}", "inputs without padding, about"],
            ["FLOPs", f"{steps * course.flops_per_step.total:.3g}", ""],
        ]
    console.table("Plan", ["", "value", ""], rows)
