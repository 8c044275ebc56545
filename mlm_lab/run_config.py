"""What a run is, and what names its results: `RunConfig`, its one serialisation, and the hashes of what determines each stage's result.

token store <- pretraining run <- evaluation (task x protocol x seed)
store_key      config_hash        evaluation_key
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from mlm_lab.errors import require
from mlm_lab.run_folder import RunFolder

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_STAGES = Path(__file__).parent / "stages"
SHORTEST_ROW = 8
PHASES_ALLOWED = f"lengths of at least {SHORTEST_ROW}, the longest of them max_length; shares that sum to 1"


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """What is random, each with its own seed."""

    init: int
    """Initial weights."""
    order: int
    """Order of the examples in each epoch."""
    corruption: int
    """Which positions are masked, and by what; dropout in pretraining."""
    finetune: int
    """First of the fine-tuning seeds (heads, order, dropout)."""

    def __post_init__(self) -> None:
        require(*((name, value, 0 <= value < 2**63, "at least 0") for name, value in vars(self).items()))


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A run. Each group's choice is here as the frozen dataclass that its `_target_` names; `stages` build what they describe."""

    objective: Any
    """What is predicted, from what."""
    data: Any
    """The corpus."""
    tokenizer: Any
    """How text becomes ids."""
    model: Any
    """Layers and widths."""
    optim: Any
    """Optimiser."""
    schedule: Any
    """Learning rate over the budget."""
    trainer: Any
    """Device, precision, strategy."""
    evaluation: Any
    """Which tasks, and how encoders are fine-tuned on them."""
    logger: Any
    """Where metrics go."""
    budget: Any
    """How long pretraining goes on."""
    validation: Any
    """When held-out loss is measured, and on how much."""
    checkpoint: Any
    """When checkpoints are written, and how many are kept."""
    max_length: int
    """Tokens of a row, special tokens included; with length_phases, of the longest. Held-out rows have it from the first step on."""
    length_phases: tuple[tuple[int | float, ...], ...] | None
    """Rows of other lengths for a part of the run: [[max_length, share of the steps], ...], and a third number where a phase has a
    batch_size of its own (BERT: [[128, 0.9], [512, 0.1]]). Positions beyond the first phase's rows are not trained before the second.
    null: max_length throughout."""
    batch_size: int
    """Sequences of an optimiser step, over all ranks."""
    seed: int
    """What the four seeds are unless they are set apart."""
    seeds: Seeds
    stages: tuple[str, ...]
    """What to do, in this order: names of mlm_lab/stages."""
    pretrained: str | None
    """A run folder, or a Hugging Face folder, to start from. Its model and tokenizer are taken with it, unless `model` or `tokenizer` is
    chosen on the command line; single keys (model.hidden_dropout=0) go on top."""
    study: str | None
    """The question that the run belongs to: a name, which a folder of experiments/ has as well."""
    tags: tuple[str, ...]
    """Free words to find the run by."""
    output_dir: Path
    """Parent of the run folders."""
    cache_dir: Path
    """Corpora, tokenizers and token stores, shared by all runs."""
    tasks: dict[str, Any]
    """evaluation.tasks, each with its settings (task.NAME.key on the command line)."""
    overrides: tuple[str, ...] = field(default=(), compare=False)
    """The command line that it was composed from."""

    def __post_init__(self) -> None:
        stages = sorted(path.stem for path in _STAGES.glob("[a-z]*.py"))
        groups = ("objective", "data", "tokenizer", "model", "optim", "schedule", "trainer", "evaluation", "logger")
        is_name = self.study is None or bool(_NAME.fullmatch(self.study))
        known = bool(self.stages) and set(self.stages) <= set(stages)
        require(
            *((name, getattr(self, name), is_dataclass(getattr(self, name)), "an option with a _target_") for name in groups),
            ("max_length", self.max_length, self.max_length >= SHORTEST_ROW, f"at least {SHORTEST_ROW}"),
            ("batch_size", self.batch_size, self.batch_size >= 1, "at least 1"),
            ("length_phases", self.length_phases, self._phases_hold(), f"[[max_length, share of the steps], ...]: {PHASES_ALLOWED}"),
            ("seed", self.seed, 0 <= self.seed < 2**63, "at least 0"),
            ("study", self.study, is_name, "a name of letters, digits, _, - and ., or null"),
            ("stages", list(self.stages), known, "a list of " + ", ".join(stages)),
        )

    def _phases_hold(self) -> bool:
        phases = self.length_phases
        if phases is None:
            return True
        whole = [number for phase in phases for number in (phase[:1] + phase[2:])]
        return (
            len(phases) > 0
            and all(len(phase) in (2, 3) and phase[0] >= SHORTEST_ROW and 0 < phase[1] <= 1 for phase in phases)
            and all(isinstance(number, int) and number >= 1 for number in whole)
            and abs(sum(phase[1] for phase in phases) - 1) <= 1e-6
            and max(phase[0] for phase in phases) == self.max_length
        )


RUN_KEYS = ("objective", "model", "optim", "schedule", "budget", "validation", "max_length", "length_phases", "batch_size")
"""What decides the result of pretraining, besides the seeds, the token store and what follows."""
TRAINER_KEYS = ("compile",)
"""What of the trainer decides the result, besides the resolved precision. Devices, strategy, micro-batches and workers only change how the
sums are rounded; they are recorded, not hashed."""
EVALUATION_LEFT_OUT = (
    *("tasks", "seeds", "floor", "data_dir", "files", "protocol", "grid", "floor_learning_rate", "start_from", "checkpoints"),
    *("submission", "overlap", "jobs"),
)
"""What of the evaluation names cells or places, or chooses among cells, and does not change what is in one."""


def to_dict(config: object) -> Any:
    """The config as plain values: dataclasses as mappings with their `_target_`, paths as text, tuples as lists; tasks under "task"."""
    if isinstance(config, RunConfig):
        values = {f.name: to_dict(getattr(config, f.name)) for f in fields(config) if f.name not in ("tasks", "overrides")}
        return {**values, "task": to_dict(config.tasks)}
    if is_dataclass(config):
        target = {} if isinstance(config, Seeds) else {"_target_": f"{type(config).__module__}.{type(config).__qualname__}"}
        return {**target, **{f.name: to_dict(getattr(config, f.name)) for f in fields(config)}}
    if isinstance(config, Mapping):
        return {name: to_dict(value) for name, value in config.items()}
    if isinstance(config, list | tuple):
        return [to_dict(value) for value in config]
    return str(config) if isinstance(config, Path) else config


def to_yaml(config: RunConfig) -> str:
    """The text of a run folder's config.yaml."""
    import yaml

    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True, width=140)


def config_hash(config: RunConfig) -> str:
    """64 hexadecimal digits of what determines the pretrained weights and the metrics recorded with them; names the run folder.

    Left out, and recorded in the run folder: output_dir, cache_dir, logger, study, tags, stages, checkpoint, evaluation and tasks,
    seeds.finetune, and of the trainer all but compile and the precision that `auto` resolves to on this machine. Files enter by their
    content (of data, tokenizer, pretrained), wherever they lie; config.yaml records where.
    """
    from mlm_lab.training.trainer import resolve_precision

    values = to_dict(config)
    kept = {name: values[name] for name in RUN_KEYS} | {"model": _by_content(config.model)}
    kept["seeds"] = {name: value for name, value in values["seeds"].items() if name != "finetune"}
    kept["trainer"] = {"precision": resolve_precision(config.trainer), **{name: values["trainer"][name] for name in TRAINER_KEYS}}
    kept["pretrained"] = _origin(config.pretrained)
    kept["store"] = store_key(config)
    kept["code"] = getattr(type(config.objective), "code_version", 1)
    return _digest(kept)


def store_key(config: RunConfig) -> str:
    """64 hexadecimal digits of what determines the token store: the text, and the tokenizer, as configured or given.

    Raises UserError: the files are missing (each stage's `check`, which comes first, says so with more detail).
    """
    return _digest({"data": _by_content(config.data), "tokenizer": _by_content(config.tokenizer)})


def _by_content(part: Any) -> dict:
    """What reads files is named by their content, so that neither a copy elsewhere nor another text under the same path is mistaken."""
    values = settings_of(part)
    return {"_target_": values["_target_"], "fingerprint": part.fingerprint()} if hasattr(part, "fingerprint") else values


def settings_of(part: Any) -> dict:
    """A dataclass as plain values, without the fields that were added to it later where they say what was so before (leaves.py): what names
    its results stays as it was."""
    later = getattr(type(part), "ADDED", {})
    return {name: value for name, value in to_dict(part).items() if name not in later or value != later[name]}


def evaluation_key(origin: str, config: RunConfig, task: str, seed: int, **more: object) -> str:
    """64 hexadecimal digits of what determines a cell: where its weights come from (of a run's last: its config_hash), the task, how
    `evaluation` measures it, the fine-tuning seed; and what is given beside that by name.

    seeds.finetune, the first of the seeds, only counts where it draws the examples (train_limit): the cell's own seed is what it is.
    """
    values = to_dict(config)
    protocol = {name: value for name, value in values["evaluation"].items() if name not in EVALUATION_LEFT_OUT}
    own_file = values["evaluation"].get("files", {}).get(task)
    drawn_with = None if config.evaluation.train_limit is None else config.seeds.finetune
    return _digest([origin, config.evaluation.code_version, values["task"][task], protocol, own_file, drawn_with, seed, more])


def measured_how(task: str, values: Mapping[str, Any]) -> str | None:
    """Eight digits of how a task is measured, by which the report tells which scores may stand in one column. None where it is not asked
    for.

    values: the config as plain values (`to_dict`, or a run folder's config.yaml).
    """
    own = (values.get("task") or {}).get(task)
    if own is None:
        return None
    protocol = {name: value for name, value in values.get("evaluation", {}).items() if name not in EVALUATION_LEFT_OUT}
    return hashlib.sha256(json.dumps([own, protocol], sort_keys=True).encode()).hexdigest()[:8]


SPENT = "spent/"
"""Before what a row of metrics.csv says of the run so far: corpus tokens, FLOPs, and seconds of training steps. With phases of several
lengths they are no fixed share of the steps."""
EVALUATED_DIGITS = 12
"""Of a hash of `evaluations_asked`, as results.csv has it."""


def evaluations_asked(run_hash: str, config: RunConfig) -> dict[str, str]:
    """task -> the hash of all its cells that the config asks for, so that a run whose evaluation is finished can be told by its summary."""
    values = to_dict(config)
    settings = {
        name: value for name, value in values["evaluation"].items() if name not in ("tasks", "data_dir", "files", "overlap", "jobs")
    }
    about = [run_hash, config.evaluation.code_version, settings, config.seeds.finetune]
    return {name: _digest([*about, task, values["evaluation"].get("files", {}).get(name)]) for name, task in values["task"].items()}


def _origin(folder: str | None) -> str | None:
    """The weights that a run starts from: by their digest, wherever the folder lies; by its path where it names none."""
    from mlm_lab.interchange.folder import HuggingFaceFolder, is_hugging_face

    if folder and is_hugging_face(Path(folder).expanduser()):
        return HuggingFaceFolder(Path(folder).expanduser()).fingerprint()
    return folder and RunFolder(Path(folder).expanduser()).read_summary().get("weights_sha256", folder)


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
