"""Run folders as rows, and their validations as curves. A folder that cannot be read is named, whatever is wrong with it.

OUTPUT_DIR/RUN_ID/  summary.json ─┐
                    config.yaml  ─┼─> row        one for each run
                    metrics.csv  ───> curve      one line for each validation
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlm_lab.report.rows import CONFIG, Row, config_text, flatten, text
from mlm_lab.run_config import EVALUATED_DIGITS, RUN_KEYS, SPENT, TRAINER_KEYS, measured_how

HASHED = (*RUN_KEYS, "data", "tokenizer", "pretrained", "seeds")
"""Parts of the config that enter a run's hash, with some keys of the trainer; seeds.finetune does not."""
CURVE_PREFIXES = ("val/", "probe/")
OVERLAP = "overlap/"
NUMBERS = ("steps", "tokens", "positions", "seconds", "tokens_per_second", "peak_memory_bytes")
FINISHED, FAILED, DAMAGED = "finished", "failed", "damaged"
OF_START = ("failed", "collapsed")
"""Lists of fine-tuning seeds in an evaluation's entry, of which the row keeps the length."""


@dataclass(frozen=True)
class Damaged:
    """A folder that cannot be read, or a curve or a record."""

    folder: str
    reason: str
    row: Row | None = None
    """Of a run folder without a readable summary: which run it is, as far as its config says. It has no number."""

    @property
    def told(self) -> str:
        """In a sentence, without its point."""
        return f"`{self.folder}`: {self.reason}"


@dataclass
class Gathered:
    """What the run folders hold of a study."""

    rows: list[Row] = field(default_factory=list)
    curves: dict[str, list[Row]] = field(default_factory=dict)
    """config_hash -> its validations, in order."""
    folders: dict[str, Path] = field(default_factory=dict)
    """config_hash -> the run folder."""
    damaged: list[Damaged] = field(default_factory=list)


class _Unreadable(Exception):
    """Why a folder is left out."""


def gather(output_dir: Path, study: str) -> Gathered:
    """Every run of the study under output_dir, in the order of the folders' names. A folder that does not exist holds none.

    A folder that lies there twice (a copy) counts once: the finished one, or the first.
    """
    found = Gathered()
    for folder in sorted(path for path in output_dir.iterdir() if path.is_dir()) if output_dir.is_dir() else []:
        if not any((folder / name).exists() for name in ("summary.json", "config.yaml")):
            continue  # not a run: floors, sweeps' own files
        try:
            row = _read_run(folder, study)
        except _Unreadable as reason:
            found.damaged.append(Damaged(folder.name, str(reason), _row_of_config(folder, str(reason))))
            continue
        if row is not None:
            _add(found, folder, row)
    return found


def studies(output_dir: Path) -> set[str]:
    """The names of all studies that have a run folder under output_dir, as far as their summaries can be read."""
    names: set[str] = set()
    for file in output_dir.glob("*/summary.json"):
        try:
            summary = json.loads(file.read_text(encoding="utf-8"))
            names |= {name for name in summary.get("studies") or [summary.get("study")] if isinstance(name, str)}
        except (OSError, ValueError, AttributeError, TypeError):
            continue
    return names


def _add(found: Gathered, folder: Path, row: Row) -> None:
    name = row["config_hash"]
    if name in found.folders:
        first = next(other for other in found.rows if other["config_hash"] == name)
        if first["status"] == FINISHED or row["status"] != FINISHED:
            return
        found.rows.remove(first)
    found.rows.append(row)
    found.folders[name] = folder
    found.curves.pop(name, None)
    if not (folder / "metrics.csv").exists() and (row["status"] != FINISHED or "steps" not in row):
        return  # it had not got as far, or it has trained nothing: a published model that was evaluated
    try:
        curve = _read_curve(folder / "metrics.csv", row)
    except (OSError, ValueError, csv.Error) as error:
        found.damaged.append(
            Damaged(folder.name, f"metrics.csv cannot be read ({_first_line(error)}): its row is kept, its curve left out")
        )
        return
    if curve:
        found.curves[name] = curve


def _read_run(folder: Path, study: str) -> Row | None:
    """The run's row; None for a run of another study."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if _config_study(folder) not in (study, None):
            return None
        raise _Unreadable(f"summary.json cannot be read ({_first_line(error)})") from None
    if not isinstance(summary, dict):
        raise _Unreadable("summary.json is not a mapping")
    if study not in (summary.get("studies") or [summary.get("study")]):
        return None
    name = summary.get("config_hash")
    if not (isinstance(name, str) and len(name) == 64):
        raise _Unreadable("summary.json has no config_hash")
    config = _read_config(folder)
    try:
        return _row(summary, config, study)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise _Unreadable(f"summary.json does not have the shape of one ({type(error).__name__}: {_first_line(error)})") from None


def _row_of_config(folder: Path, reason: str) -> Row:
    """A run that has no summary to be read: its name for want of its hash, and its config, if that can be read."""
    try:
        config = _read_config(folder)
    except _Unreadable:
        config = {}
    row = {"config_hash": folder.name, "status": DAMAGED, "error": text(reason), "seed": text(config.get("seed"))}
    row |= {CONFIG + key: config_text(value) for key, value in _hashed(config)}
    return {name: cell for name, cell in row.items() if cell}


def _config_study(folder: Path) -> str | None:
    """The study in config.yaml, which says whether a folder without a readable summary is of interest; None where nothing says."""
    try:
        return _read_config(folder).get("study")
    except _Unreadable:
        return None


def _read_config(folder: Path) -> dict:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is there
    try:
        config = yaml.load((folder / "config.yaml").read_text(encoding="utf-8"), Loader=loader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _Unreadable(f"config.yaml cannot be read ({_first_line(error)})") from None
    if not isinstance(config, dict):
        raise _Unreadable("config.yaml is not a mapping")
    return config


def _row(summary: Mapping, config: Mapping, study: str) -> Row:
    flops, parameters, metrics = (summary.get(name) or {} for name in ("flops", "parameters", "metrics"))
    values: dict[str, object] = {
        "config_hash": summary["config_hash"],
        "weights_sha256": summary.get("weights_sha256"),
        "status": summary.get("status"),
        "error": (summary.get("error") or "").split("\n")[0] or None,
        "failure": summary.get("failure"),
        "seed": config.get("seed"),
        "tuned": (summary.get("tuned") or {}).get(study),
        "evaluated": " ".join(sorted(digest[:EVALUATED_DIGITS] for digest in summary.get("evaluated") or ())),
        "precision": summary.get("precision") or config.get("trainer", {}).get("precision"),
        **{name: summary.get(name) for name in NUMBERS},
        "flops": flops.get("total"),
        "flops_head": flops.get("head"),
        "parameters": parameters.get("total"),
        "git_commit": summary.get("git_commit"),
        "versions/torch": (summary.get("versions") or {}).get("torch"),
        **{f"hardware/{name}": _joined(value) for name, value in (summary.get("hardware") or {}).items()},
        **{f"step_time/{name}": value for name, value in (summary.get("step_time") or {}).items()},
        **{f"fingerprints/{name}": value for name, value in (summary.get("fingerprints") or {}).items()},
        **{name: value for name, value in metrics.items() if isinstance(value, int | float | None)},
        "left_plateau": metrics.get("left_plateau", _left(metrics)),
        **dict(_overlaps(summary.get("overlap") or {})),
        **dict(_evaluations(summary, config)),
    }
    row = {name: text(value) for name, value in values.items()}
    row |= {CONFIG + key: config_text(value) for key, value in _hashed(config)}
    return {name: cell for name, cell in row.items() if cell}


def _left(metrics: Mapping) -> bool | None:
    """A run that records the step at which it left the plateau, and has none, has not left it."""
    return None if "plateau_left_step" not in metrics else metrics["plateau_left_step"] is not None


def _hashed(config: Mapping) -> Iterator[tuple[str, object]]:
    parts = {name: config[name] for name in HASHED if name in config}
    parts["trainer"] = {name: value for name, value in config.get("trainer", {}).items() if name in TRAINER_KEYS}
    return ((key, value) for key, value in flatten(parts) if key != "seeds.finetune")


def _evaluations(summary: Mapping, config: Mapping) -> Iterator[tuple[str, object]]:
    """TASK/METRIC is the mean over fine-tuning seeds; what belongs to it stands behind a further slash.

    How a task was measured is noted with its numbers. Runs of before that have config.yaml for it, which is of their last start.
    """
    noted = summary.get("evaluation_settings") or {}
    for task, metrics in (summary.get("evaluation") or {}).items():
        yield f"{task}/settings", (noted.get(task) or {}).get("digest") or measured_how(task, config)
        yield f"{task}/examples", (noted.get(task) or {}).get("examples")
        for metric, entry in metrics.items():
            name, floor = f"{task}/{metric}", entry.get("floor") or {}
            yield name, entry.get("mean")
            yield f"{name}/std", entry.get("std")
            yield f"{name}/n", entry.get("n")
            for state in OF_START:
                if state in entry:
                    yield f"{name}/{state}", len(entry[state])
            yield f"{name}/floor", floor.get("mean")
            yield f"{name}/floor_std", floor.get("std")
            yield f"{name}/protocol", entry.get("protocol") or config.get("evaluation", {}).get("protocol")
            yield f"{name}/within", entry.get("within")


def _overlaps(overlap: Mapping[str, Mapping[str, Mapping]]) -> Iterator[tuple[str, object]]:
    """Share of each evaluated part's examples that the training text contains."""
    for task, parts in overlap.items():
        for part, found in parts.items():
            yield f"{OVERLAP}{task}/{part}", found.get("share")


def _read_curve(file: Path, row: Row) -> list[Row]:
    """The validations of a run, each with what was spent by then. Runs that do not say it have that share of their totals: right where all
    rows are of one length."""
    steps = float(row.get("steps") or 0)
    with file.open(newline="", encoding="utf-8") as handle:
        lines = csv.reader(handle)
        header = next(lines, [])
        if "step" not in header:
            raise ValueError("no column step")
        curve = []
        for cells in lines:
            line = {name: cell for name, cell in zip(header, cells, strict=False) if cell}
            values = {name: cell for name, cell in line.items() if name.startswith(CURVE_PREFIXES)}
            if values:
                share = int(line["step"]) / steps if steps else None
                spent = {name: line.get(SPENT + name) or _of_total(row, name, share) for name in ("tokens", "seconds", "flops")}
                curve.append({"config_hash": row["config_hash"], "step": line["step"], **spent, **values})
    return curve


def _of_total(row: Row, name: str, share: float | None) -> str:
    return "" if share is None or not row.get(name) else f"{float(row[name]) * share:.6g}"


def _joined(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _first_line(error: Exception) -> str:
    """What is wrong; of YAML the problem and its line, which PyYAML says after what it was about to read."""
    if problem := getattr(error, "problem", None):
        mark = getattr(error, "problem_mark", None)
        return f"{problem}, line {mark.line + 1}" if mark is not None else str(problem)
    return (str(getattr(error, "strerror", None) or error).strip().splitlines() or [type(error).__name__])[0]
