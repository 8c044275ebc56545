"""Where and how the steps run: the choices of conf/trainer, handed to Lightning. Composing them imports neither torch nor Lightning."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mlm_lab.errors import UserError, require

if TYPE_CHECKING:
    import lightning
    from lightning.fabric import Fabric

PRECISIONS = ("auto", "32-true", "bf16-mixed", "bf16-true", "64-true")
ATTENTIONS = ("auto", "written_out", "sdpa", "varlen")


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """One machine or many; the result does not depend on it beyond the rounding of sums and the draws of
    dropout, except by precision and compile."""

    accelerator: str
    """auto, cpu, gpu, tpu, mps: Lightning's names."""
    strategy: str
    """auto, ddp, fsdp (torch's FSDP2: parameters, gradients and moments in parts), or another of Lightning's names."""
    devices: int | str
    """Number of devices of each node, or auto."""
    num_nodes: int
    """Number of machines."""
    precision: str
    """auto (bf16-mixed where the machine has bfloat16 arithmetic, else 32-true), 32-true, bf16-mixed, bf16-true, 64-true."""
    compile: bool
    """Whether the module is compiled with torch.compile."""
    static_shapes: bool | str
    """Whether all steps compute on the same shapes, unused label slots too, so that a compiler compiles once (for each length phase). auto:
    where the module is compiled, and on every device but the CPU, which would wait to count the slots. Never changes the result."""
    fused_loss: bool | str
    """Whether the projection to the vocabulary and its cross-entropy are computed in one buffer (models/vocabulary_loss.py), which takes
    less time and a fifth of the memory. auto: on the CPU, not compiled. Changes a result by the rounding of sums alone."""
    attention: str
    """written_out: scores, softmax, weighted sum; sdpa: torch's scaled_dot_product_attention; auto: whichever is faster for the device and
    the precision (models/attention.py); varlen: leaves out other documents of a row (GPUs in bf16, attention_dropout 0). A relative bias is
    always written out, and a decoder has no varlen. Changes a result by the rounding of sums alone."""
    micro_batch_size: int | None
    """Sequences that pass through a device at a time; null: a rank's whole share of the step. Follows memory;
    what it changes is the rounding of sums and, in a model with dropout, which values are dropped."""
    activation_checkpointing: bool
    """Whether each layer keeps its input alone for the backward pass and computes the rest a second time: a layer's activations in place
    of all layers', for about a third more time (Chen et al. 2016). Never changes the result."""
    num_workers: int
    """Processes of each rank that make batches; 0 makes them in the training process (a batch takes a millisecond)."""
    log_every_steps: int
    """Steps between rows of metrics.csv; metrics are fetched from the device only then."""
    timeout_seconds: float
    """How long a step waits for a data worker or for another rank before the run ends with a message."""

    ADDED: ClassVar[Mapping[str, object]] = {
        "fused_loss": "auto",
        "attention": "auto",
        "activation_checkpointing": False,
        "timeout_seconds": 1800.0,
    }

    def __post_init__(self) -> None:
        require(
            (
                "devices",
                self.devices,
                self.devices in ("auto", -1) or (isinstance(self.devices, int) and self.devices >= 1),
                "at least 1, or auto",
            ),
            ("num_nodes", self.num_nodes, self.num_nodes >= 1, "at least 1"),
            ("precision", self.precision, self.precision in PRECISIONS, ", ".join(PRECISIONS)),
            ("static_shapes", self.static_shapes, self.static_shapes in (True, False, "auto"), "true, false or auto"),
            ("fused_loss", self.fused_loss, self.fused_loss in (True, False, "auto"), "true, false or auto"),
            ("attention", self.attention, self.attention in ATTENTIONS, ", ".join(ATTENTIONS)),
            ("micro_batch_size", self.micro_batch_size, self.micro_batch_size is None or self.micro_batch_size >= 1, "at least 1, or null"),
            ("num_workers", self.num_workers, self.num_workers >= 0, "at least 0"),
            ("log_every_steps", self.log_every_steps, self.log_every_steps >= 1, "at least 1"),
            ("timeout_seconds", self.timeout_seconds, self.timeout_seconds > 0, "above 0"),
        )

    def check_devices(self) -> None:
        """Raises UserError where this machine has fewer devices than are asked for: told before a text is prepared for them, and so that
        `devices` of `accelerator: auto` never become as many processes on a CPU."""
        count = self.devices if isinstance(self.devices, int) and self.devices > 0 else 1
        here = None if self.accelerator == "cpu" or (self.accelerator == "auto" and count == 1) else _devices_here(self.accelerator)
        if here is None or here >= count:
            return
        kind = {"gpu": "GPU", "cuda": "GPU", "tpu": "TPU"}.get(self.accelerator, "accelerator")
        raise UserError(
            f"this machine has {here} of the {count} devices" if here else f"this machine has no {kind}",
            given=f"trainer.accelerator={self.accelerator} trainer.devices={self.devices}",
            fix=f"trainer.devices={here}" if here else "trainer=cpu; or trainer.accelerator=cpu for so many processes on the CPU",
        )

    def build(self, *, folder: Path, loggers: list, callbacks: list) -> lightning.Trainer:
        """Lightning's Trainer for one pass over the run's steps. It writes no checkpoints of its own (training/checkpoint.py does).

        Raises:
            UserError: the machine has not what is asked for.
        """
        quieten_lightning()
        import lightning
        from lightning.pytorch import plugins
        from lightning.pytorch.plugins.environments import SLURMEnvironment

        slurm = [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []  # training/interrupt.py does that
        with _what_is_here(self):
            return lightning.Trainer(
                accelerator=self.accelerator,
                strategy=_strategy(self.strategy, self.timeout_seconds),
                devices=self.devices,
                num_nodes=self.num_nodes,
                max_epochs=1,
                logger=loggers,
                callbacks=callbacks,
                **_precision(self, plugins.XLAPrecision, slurm),
                default_root_dir=str(folder),
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                use_distributed_sampler=False,
                num_sanity_val_steps=0,
                log_every_n_steps=self.log_every_steps,
            )


def _devices_here(accelerator: str) -> int | None:
    """How many of them this machine has; None for an accelerator that is a plugin's."""
    from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator, XLAAccelerator

    kinds = {"gpu": (CUDAAccelerator, MPSAccelerator), "cuda": (CUDAAccelerator,), "mps": (MPSAccelerator,), "tpu": (XLAAccelerator,)}
    kinds["auto"] = (*kinds["gpu"], *kinds["tpu"])
    if accelerator not in kinds:
        return None
    return next((int(kind.auto_device_count()) for kind in kinds[accelerator] if kind.is_available()), 0)


def _strategy(name: str, timeout_seconds: float) -> Any:
    """Lightning's strategy, told how long its processes wait for each other; a name where it has no such choice."""
    from datetime import timedelta

    from lightning.pytorch.strategies import DDPStrategy

    from mlm_lab.training.sharding import Sharded

    known = {"ddp": DDPStrategy, "fsdp": Sharded}
    return known[name](timeout=timedelta(seconds=timeout_seconds)) if name in known else name


def make_fabric(settings: TrainerSettings) -> Fabric:
    """One device, in the precision of the steps.

    Raises:
        UserError: the machine has not what is asked for.
    """
    quieten_lightning()
    from lightning.fabric import Fabric, plugins

    with _what_is_here(settings):
        return Fabric(accelerator=settings.accelerator, devices=1, **_precision(settings, plugins.XLAPrecision))


@contextmanager
def _what_is_here(settings: TrainerSettings) -> Iterator[None]:
    """Lightning's words for what is missing, as a UserError."""
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    try:
        yield
    except (MisconfigurationException, ModuleNotFoundError, RuntimeError) as error:
        raise UserError(
            "this machine cannot run that trainer",
            where=f"trainer.accelerator={settings.accelerator} trainer.strategy={settings.strategy} trainer.devices={settings.devices}",
            given=str(error).strip().partition("\n")[0],
            fix="trainer=auto takes what is there",
        ) from error


def _precision(settings: TrainerSettings, xla: type, plugins: Sequence[Any] = ()) -> dict[str, Any]:
    """Arguments of Lightning's Trainer or Fabric. xla: its precision for XLA, which has no bf16-mixed; a Trainer takes the one or the
    other, name or plugin."""
    precision = resolve_precision(settings)
    if settings.accelerator == "tpu" and precision == "bf16-mixed":
        from mlm_lab.training.xla import mixed_precision

        return {"plugins": [*plugins, mixed_precision(xla)]}
    return {"precision": precision, "plugins": list(plugins) or None}


def resolve_precision(settings: TrainerSettings) -> str:
    """The precision that the steps run in. `auto` becomes bf16-mixed where bfloat16 arithmetic is fast, else 32-true."""
    if settings.precision != "auto":
        return settings.precision
    return "bf16-mixed" if _has_fast_bfloat16(settings.accelerator) else "32-true"


def _has_fast_bfloat16(accelerator: str) -> bool:
    if accelerator == "tpu":
        return True
    import torch

    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if accelerator == "mps" or (accelerator == "auto" and torch.backends.mps.is_available()):
        return False
    cpuinfo = Path("/proc/cpuinfo")  # torch has no public question for this; elsewhere than on Linux float32 is the safe answer
    if not cpuinfo.exists():
        return False
    flags = {
        flag for line in cpuinfo.read_text(errors="replace").splitlines() if line.startswith(("flags", "Features")) for flag in line.split()
    }
    return not flags.isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})


_UNHELPFUL = (
    # What Lightning says about itself. Matched by the beginning of the exact message, so that nothing else is hidden.
    "GPU available: ",
    "TPU available: ",
    "HPU available: ",
    "💡 Tip: ",
    "Using bfloat16 Automatic Mixed Precision (AMP)",
    "`Trainer.fit` stopped: ",  # we say ourselves how far the run is
    "----------------------------------------------------------------------------------------------------",
    "distributed_backend=",
    "Initializing distributed: ",
    "Your model can run with static graph optimizations",
)
_UNHELPFUL_WARNINGS = (
    r"The 'train_dataloader' does not have many workers",  # batches are made in a millisecond
    r"The number of training batches \(\d+\) is smaller than the logging interval",  # we write the last step's row ourselves
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning's own use of torch
    r"`training_step` returned `None`",
    r"Total length of `\w+` across ranks is zero",  # a run whose steps are done and whose weights are missing
)


def quieten_lightning() -> None:
    """Keep to itself what Lightning says about itself, and nothing else."""

    def is_helpful(record: logging.LogRecord) -> bool:
        return not record.getMessage().lstrip().startswith(_UNHELPFUL)

    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.distributed", "lightning.fabric.utilities.rank_zero"):
        logger = logging.getLogger(name)
        if not any(getattr(old, "__qualname__", "") == is_helpful.__qualname__ for old in logger.filters):
            logger.addFilter(is_helpful)
    for message in _UNHELPFUL_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
