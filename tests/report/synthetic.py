"""A study of made-up runs: run folders as the runner leaves them, and a sweep file, without training anything."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from mlm_lab.report.study import Places

TOKENS = 3_000_000
CONFIG: dict[str, Any] = {
    "objective": {
        "_target_": "mlm_lab.objectives.mlm.MLM",
        "mask_ratio": 0.15,
        "replace_mix": [0.8, 0.1, 0.1],
        "unit": "token",
        "mask_count": "exact",
        "duplicates": None,
    },
    "data": {"_target_": "mlm_lab.data.corpora.pydocs.PyDocs", "validation_share": 0.05},
    "tokenizer": {"_target_": "mlm_lab.tokenizers.wordpiece.WordPiece", "vocab_size": 4096},
    "model": {"_target_": "mlm_lab.models.encoder_config.Encoder", "hidden_size": 128, "num_layers": 2},
    "optim": {"_target_": "mlm_lab.optim.adamw.AdamW", "peak_lr": 0.002},
    "schedule": {"_target_": "mlm_lab.optim.schedules.Linear", "warmup_steps": 0.06},
    "trainer": {"accelerator": "auto", "precision": "auto", "compile": False},
    "evaluation": {"tasks": ["pydocs_entities"], "seeds": 1, "epochs": 3},
    "task": {"pydocs_entities": {"name": "pydocs_entities", "epochs": 3}},
    "logger": {"_target_": "mlm_lab.training.logging.CsvLogger"},
    "budget": {"steps": None, "tokens": float(TOKENS), "flops": None, "hours": None},
    "validation": {"every_steps": None, "sequences": 512},
    "max_length": 128,
    "length_phases": None,
    "batch_size": 16,
    "stages": ["prepare", "pretrain", "evaluate"],
    "pretrained": None,
}
STEPS = 1692
SWEEP = """\
# Which ratio? A made-up study.
description: |
  question: Which masking ratio serves an encoder best, at equal corpus tokens?
  primary: {metric: probe/mlm_15_loss, baseline: 0.15, contrast: 0.4}
  metrics: [pydocs_entities/f1, val/loss]
  margin: 0.05
  ordered: true
  published: [wettig_mask_rate_sweep_large]
program: mlm_lab
method: grid
metric: {name: probe/mlm_15_loss, goal: minimize}
parameters:
  objective.mask_ratio: {values: [0.15, 0.4, 0.8]}
  seed: {values: [10, 11, 12]}
command: ["${env}", "${interpreter}", -m, mlm_lab, +experiment=ablation, study=ratios, "${args_no_hyphens}"]
"""
LOSSES = {0.15: 4.9, 0.4: 4.5, 0.8: 4.95}
F1 = {0.15: 0.52, 0.4: 0.56, 0.8: 0.51}


def places(root: Path, study: str = "ratios") -> Places:
    return Places(output_dir=root / "runs", folder=root / "experiments" / study, sweep=root / "sweeps" / f"{study}.yaml")


def write_sweep(root: Path, text: str = SWEEP, study: str = "ratios") -> Path:
    file = root / "sweeps" / f"{study}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def write_study(root: Path, ratios: Sequence[float] = (0.15, 0.4, 0.8), seeds: Sequence[int] = (10, 11, 12)) -> list[Path]:
    """A sweep file of three ratios, and a finished run for each ratio and seed."""
    write_sweep(root)
    return [write_run(root / "runs", seed=seed, config={"objective.mask_ratio": ratio}) for ratio in ratios for seed in seeds]


def write_run(
    output_dir: Path,
    *,
    seed: int,
    config: Mapping[str, Any] | None = None,
    study: str = "ratios",
    metrics: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Mapping[str, dict]] | None = None,
    **summary: Any,
) -> Path:
    """One run folder. config: dotted keys that differ from CONFIG; summary: fields that differ; its numbers follow from ratio and seed."""
    values = copy.deepcopy(CONFIG)
    values |= {"seed": seed, "seeds": dict.fromkeys(("init", "order", "corruption", "finetune"), seed), "study": study}
    for key, value in (config or {}).items():
        *path, last = key.split(".")
        part = values
        for name in path:
            part = part[name]
        part[last] = value
    hashed = {name: value for name, value in values.items() if name != "study"}
    config_hash = hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()
    ratio = values["objective"].get("mask_ratio", 0.15)
    noise = np.random.default_rng([seed, 7])
    shared, own = noise.normal(), np.random.default_rng([seed, round(1000 * ratio)]).normal(size=4)
    loss = LOSSES.get(ratio, 5.0) + 0.1 * shared + 0.02 * own[0]
    f1 = F1.get(ratio, 0.5) + 0.01 * shared + 0.004 * own[1]
    found = {
        "status": "finished",
        "error": None,
        "config_hash": config_hash,
        "study": study,
        "studies": [study],
        "precision": "bf16-mixed",
        "versions": {"python": "3.11.7", "torch": "2.13.0+cpu"},
        "hardware": {"host": "vm", "cpu": "AMD EPYC", "cpus": 2, "threads": 1, "gpus": []},
        "git_commit": "0" * 40,
        "metrics": {
            "unigram_loss": 6.42,
            "train/loss": loss + 0.5,
            "val/loss": loss + 2.0 * (ratio - 0.15),
            "val/perplexity": float(np.exp(loss + 2.0 * (ratio - 0.15))),
            "probe/mlm_15_loss": loss,
            "probe/mlm_15_accuracy": 0.9 - 0.13 * loss,
            "plateau_left_step": 170 + seed,
            "left_plateau": True,
            **(metrics or {}),
        },
        "steps": STEPS,
        "tokens": TOKENS,
        "positions": 3_143_000,
        "flops": {"total": 5.5e12 * (1 + ratio), "head": 1.3e12 * (0.15 + ratio)},
        "parameters": {"total": 942_336, "encoder": 921_472},
        "seconds": 150 + 20 * ratio + 0.5 * (seed % 3),
        "tokens_per_second": 24_000.5 - 3000 * ratio,
        "peak_memory_bytes": 700 * 2**20,
        "fingerprints": {"corpus": "c" * 16, "tokenizer": "t" * 64, "store": "s" * 64},
        "weights_sha256": hashlib.sha256(f"{config_hash} weights".encode()).hexdigest(),
        "evaluation": evaluation if evaluation is not None else {"pydocs_entities": {"f1": entry([f1], floor=[0.31, 0.33, 0.32])}},
        **summary,
    }
    folder = output_dir / config_hash[:12]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    (folder / "summary.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    _write_metrics(folder / "metrics.csv", found["metrics"])
    return folder


def entry(values: Sequence[float], floor: Sequence[float] | None = None, collapsed: Sequence[int] = (), **further: Any) -> dict:
    """An evaluation's numbers, as summary.json holds them."""
    found = _described(values) | {"collapsed": list(collapsed), "failed": [], **further}
    return found | ({"floor": _described(floor)} if floor else {})


def edit_summary(folder: Path, **fields: Any) -> None:
    file = folder / "summary.json"
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


def _described(values: Sequence[float]) -> dict:
    return {
        "n": len(values),
        "mean": float(np.mean(values)),
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "median": float(np.median(values)),
        "values": list(values),
        "seeds": list(range(len(values))),
    }


def _write_metrics(file: Path, metrics: Mapping[str, Any]) -> None:
    """Ten validations that end at the run's own numbers, and training steps between them."""
    names = [name for name in metrics if name.startswith(("val/", "probe/"))]
    lines = [",".join(["step", "train/loss", *names])]
    for part in range(1, 11):
        fall = 2.5 * np.exp(-0.6 * part) - 2.5 * np.exp(-6.0)
        step = STEPS * part // 10
        lines.append(",".join([str(step - 10), f"{metrics['train/loss'] + fall:.6f}", *["" for _ in names]]))
        lines.append(",".join([str(step), "", *(f"{metrics[name] + fall * (name.endswith('loss')):.6f}" for name in names)]))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_records(root: Path, folders: Sequence[Path], tables: Sequence[str] = ("common",), study: str = "ratios") -> None:
    """What the sweep door leaves of the points that it planned."""
    place = root / "runs" / "sweeps" / study / "points"
    place.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        values = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        ratio, seed = values["objective"]["mask_ratio"], values["seed"]
        record = {
            "config_hash": json.loads((folder / "summary.json").read_text(encoding="utf-8"))["config_hash"],
            "arm": f"mask_ratio={ratio}",
            "seed": seed,
            "values": {"objective.mask_ratio": ratio, "seed": seed},
            "tables": list(tables),
            "error": None,
        }
        (place / f"{folder.name}.json").write_text(json.dumps(record), encoding="utf-8")


def edit_record(root: Path, folder: Path, study: str = "ratios", **fields: Any) -> None:
    file = root / "runs" / "sweeps" / study / "points" / f"{folder.name}.json"
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


def write_tuned_study(root: Path) -> None:
    """Two ratios and seeds at the common rate 0.002; 0.4 has 0.001 as its own, half a nat better there."""
    tune = "tune: {key: optim.peak_lr, values: [0.001, 0.002], metric: val/loss, goal: minimize, seed: 0, budget_share: 0.25}"
    write_sweep(root, SWEEP.replace("ordered: true", tune).replace("[0.15, 0.4, 0.8]", "[0.15, 0.4]").replace("[10, 11, 12]", "[10, 11]"))
    runs, seeds = root / "runs", (10, 11)
    base = [write_run(runs, seed=seed, config={"objective.mask_ratio": 0.15}) for seed in seeds]
    common = [write_run(runs, seed=seed, config={"objective.mask_ratio": 0.4}) for seed in seeds]
    own = []
    for seed, folder in zip(seeds, common, strict=True):
        loss = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["metrics"]["probe/mlm_15_loss"] - 0.5
        config = {"objective.mask_ratio": 0.4, "optim.peak_lr": 0.001}
        tuned = {"ratios": "optim.peak_lr=0.001"}
        own.append(write_run(runs, seed=seed, config=config, metrics={"probe/mlm_15_loss": loss}, tuned=tuned))
    write_records(root, base, ("common", "tuned"))
    write_records(root, common)
    write_records(root, own, ("tuned",))
    arms = {
        "mask_ratio=0.15": {"best": 0.002, "shared": True, "scores": {"0.001": 5.2, "0.002": 5.1}, "runs": []},
        "mask_ratio=0.4": {"best": 0.001, "shared": False, "scores": {"0.001": 5.2, "0.002": 5.3}, "runs": []},
    }
    found = {"key": "optim.peak_lr", "common": dict.fromkeys(arms, 0.002), "arms": arms, "cost": {"runs": 4, "tokens": 3e6}}
    (runs / "sweeps" / "ratios" / "tune.json").write_text(json.dumps(found), encoding="utf-8")
