"""The model card: what the model is, where it comes from, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlm_lab.export.exporting import Exported
    from mlm_lab.run_config import RunConfig
    from mlm_lab.tokenizers.loading import LoadedTokenizer

SHOWN_METRICS = 12


def model_card(config: RunConfig, summary: Mapping, exported: Exported, tokenizer: LoadedTokenizer, licence: str) -> str:
    """README.md of the exported folder, with the fields that the Hugging Face hub reads on top."""
    architecture = exported.architectures["."]
    lines = [
        "---",
        f"license: {json.dumps(licence)}",
        "library_name: transformers",
        *(["pipeline_tag: fill-mask"] if architecture.endswith("MaskedLM") else []),
        "---",
        "",
        f"# {exported.format}: {summary.get('config_hash', '')[:12]}",
        "",
        f"Pretrained with mlm_lab: {config.objective.__class__.__name__}, {_spent(summary)}.",
        "",
        "```python",
        f"from transformers import AutoTokenizer, {architecture}",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        f'model = {architecture}.from_pretrained("FOLDER")',
        "```",
        "",
        *_table("Run", _facts(config, summary, tokenizer)),
        *_table("Held-out text", list(summary.get("metrics", {}).items())[:SHOWN_METRICS]),
        *_table("Downstream, mean over fine-tuning seeds (dev)", _evaluation(summary)),
        f"Written models: {', '.join(f'{name} in {folder}' for folder, name in exported.architectures.items())}. Loaded again, they answer "
        f"as the run's own does, up to {exported.largest_difference:.1g} in float32.",
    ]
    if exported.left_out:
        lines.append(f"Left out, because no model of Transformers has it: {', '.join(exported.left_out)}.")
    return "\n".join(lines) + "\n"


def _spent(summary: Mapping) -> str:
    return f"{summary.get('steps', 0):,} steps, {summary.get('tokens', 0):,} corpus tokens"


def _facts(config: RunConfig, summary: Mapping, tokenizer: LoadedTokenizer) -> list[tuple[str, object]]:
    from mlm_lab.run_config import to_dict

    objective = {name: value for name, value in to_dict(config.objective).items() if name != "_target_"}
    return [
        ("objective", " ".join(f"{name}={value}" for name, value in objective.items())),
        ("vocabulary", f"{tokenizer.vocabulary.size:,}"),
        ("rows", f"{config.max_length} tokens"),
        ("seeds", summary.get("seeds")),
        ("FLOPs", f"{summary.get('flops', {}).get('total') or 0:.3g}"),
        *((f"fingerprint of the {name}", value) for name, value in summary.get("fingerprints", {}).items()),
        ("sha256 of the run's weights", summary.get("weights_sha256")),
        ("versions", summary.get("versions")),
    ]


def _evaluation(summary: Mapping) -> list[tuple[str, object]]:
    rows = []
    for task, metrics in summary.get("evaluation", {}).items():
        for name, entry in metrics.items():
            if isinstance(entry, Mapping) and entry.get("mean") is not None:
                rows.append((f"{task} {name}", f"{entry['mean']:.3f} (n = {entry['n']})"))
    return rows


def _table(title: str, rows: list[tuple[str, object]]) -> list[str]:
    if not rows:
        return []
    return [f"| {title} | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in rows), ""]


def _cell(value: object) -> str:
    text = " ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, Mapping) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
