"""The evaluate stage: what the pretrained encoder is worth on labelled tasks, beside the same encoder from random weights.

    weights of the run ──┐
    random weights ──────┴─> for each task, setting and seed: what the task does with a model (the cells that are missing)
                             ──> summary.json, the table, files for a test server

On the first process only; fine-tuning fits on one device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab import console
from mlm_lab.data.documents import TRAIN
from mlm_lab.data.token_store import MANIFEST, TokenStore
from mlm_lab.errors import UserError
from mlm_lab.evaluation import glue_averages, summary
from mlm_lab.evaluation.bench import Bench, row_length
from mlm_lab.evaluation.cells import digest_parts, limit_examples
from mlm_lab.evaluation.floors import Origins
from mlm_lab.evaluation.plans import Measured, PlanName, Plans, describe_choice
from mlm_lab.evaluation.schedule import run_plans
from mlm_lab.evaluation.task import FLOOR, PRETRAINED
from mlm_lab.interchange.folder import HuggingFaceFolder, is_hugging_face
from mlm_lab.ranks import is_main_process
from mlm_lab.run_config import config_hash, measured_how, to_dict
from mlm_lab.run_folder import RunFolder
from mlm_lab.stages.prepare import store_folder
from mlm_lab.tokenizers.loading import TOKENIZER
from mlm_lab.tokenizers.pretrained import Pretrained
from mlm_lab.training.allocator import keep_large_blocks
from mlm_lab.training.trainer import resolve_precision

if TYPE_CHECKING:
    from mlm_lab.evaluation.task import TaskData
    from mlm_lab.run_config import RunConfig

SUBMISSION = "submission"


def check(config: RunConfig) -> None:
    """Refuse, before anything is prepared, what would stop the stage later.

    Raises:
        UserError: a task's files are missing, rows are longer than the encoder can read, a left-to-right encoder would be read at its
            first token, `pretrained` is no folder with weights, a task is to start from one that is not evaluated.
    """
    source, evaluation, folder = source_of(config), config.evaluation, given_weights(config)
    if folder is not None and is_hugging_face(folder):
        check_hugging_face(folder, config)
    for task in config.tasks.values():
        task.check(evaluation)
        if evaluation.pooling == "cls" and task.pools(evaluation) and getattr(source.objective, "causal", False):
            raise UserError(
                "the first token of a left-to-right encoder has seen nothing but itself, so that no task can be told from it",
                given="evaluation.pooling=cls",
                fix="evaluation.pooling=mean or last",
            )
        source.model.check_length(row_length(task, config, source), f"max_length of {task.name} (evaluation.max_length)")
    for name, before in evaluation.start_from.items():
        if name in config.tasks and (before not in config.tasks or before in evaluation.start_from):
            raise UserError(
                f"task {name} cannot start from the encoder of {before}",
                given=f"evaluation.start_from.{name}={before}, evaluation.tasks=[{','.join(config.tasks)}]",
                allowed="a task of evaluation.tasks that starts from no other",
            )
    if evaluation.checkpoints != "none" and "pretrain" in config.stages and not config.checkpoint.keep_weights_at:
        raise UserError(
            "there will be no earlier weights to evaluate",
            given=f"evaluation.checkpoints={evaluation.checkpoints}, checkpoint.keep_weights_at=[]",
            fix="checkpoint.keep_weights_at=[0.1,0.5] keeps them after these shares of the steps",
        )


def source_of(config: RunConfig) -> RunConfig:
    """The config of the run whose encoder is evaluated: of the run `pretrained` where nothing is pretrained here, else this one."""
    folder = given_weights(config)
    if folder is None or is_hugging_face(folder):
        return config
    from mlm_lab.config import load

    if not (folder / "config.yaml").exists():
        problem = "this is neither a run folder, with a config.yaml, nor a Hugging Face folder, with a config.json"
        raise UserError(problem, given=f"pretrained={config.pretrained}")
    return load(folder)


def given_weights(config: RunConfig) -> Path | None:
    """The folder of `pretrained` where its weights are evaluated as they are; None where the run has its own."""
    return None if config.pretrained is None or "pretrain" in config.stages else Path(config.pretrained).expanduser()


def check_hugging_face(folder: Path, config: RunConfig) -> None:
    """Raises UserError: a Hugging Face folder without weights that can be read, or without its tokenizer."""
    HuggingFaceFolder(folder).weight_files()
    if not isinstance(config.tokenizer, Pretrained):
        raise UserError(
            "these weights go with a tokenizer of their own",
            given=f"pretrained={folder}, {'which has no tokenizer.json' if not (folder / TOKENIZER).is_file() else 'another tokenizer='}",
            fix=f'AutoTokenizer.from_pretrained("{folder}").save_pretrained("{folder}"), or tokenizer=pretrained tokenizer.path=FOLDER',
        )


def run(config: RunConfig, folder: RunFolder) -> None:
    """Run the missing cells of every task, record them in summary.json and show the table.

    Raises:
        UserError: the run has no weights, a task's files cannot be read, weights of a step are asked for that were not kept.
    """
    if not config.tasks or not is_main_process():
        return
    console.heading("Evaluation")
    keep_large_blocks()
    source = source_of(config)
    weights = given_weights(config) or folder.path
    steps = steps_asked(config, weights)
    data = {name: load_examples(config, name) for name in config.tasks}
    bench = Bench(config, source, weights, data)
    if is_hugging_face(weights):
        describe_start(config, bench, weights, folder)
    plans = Plans(config, folder.path, config_hash(config), source.model.hidden_size, data, Origins(bench, folder))
    report_overlap(config, folder, RunFolder(weights), plans.fingerprints, data)
    measured = run_plans(plans.all(steps), plans.before, bench)
    results = record(config, folder, measured, data)
    for step in steps:
        record_step(config, folder, measured, step)
    if config.evaluation.submission:
        write_submission(config, folder, measured, data)
    show(results, config.evaluation.protocol)


def describe_start(config: RunConfig, bench: Bench, weights: Path, folder: RunFolder) -> None:
    """Say and record what a Hugging Face folder gave.

    Raises UserError where a task asks the pretraining head, and the folder has none.
    """
    from mlm_lab.training.weights import load_start

    module, taken = load_start(weights, config, bench.tokenizer)
    console.say(f"{weights}: {', '.join(taken.loaded)}" + (f"; not in it: {', '.join(taken.fresh)}" if taken.fresh else ""))
    if taken.fresh and (asking := [name for name, task in config.tasks.items() if task.reads_heads]):
        given = f"{', '.join(taken.fresh)} missing in {weights}"
        raise UserError(f"{', '.join(asking)}: asks the pretraining head, which would be a random one", given=given)
    parameters = {"total": sum(p.numel() for p in module.parameters()), "encoder": sum(p.numel() for p in module.encoder.parameters())}
    folder.update_summary(parameters=parameters, precision=resolve_precision(config.trainer))


def load_examples(config: RunConfig, name: str) -> TaskData:
    """A task's examples, as many as are asked for (for the baselines too)."""
    evaluation = config.evaluation
    data = config.tasks[name].load(evaluation, config.cache_dir)
    for note in data.notes:
        console.say(f"{name}: {note}")
    return replace(data, train=limit_examples(data.train, evaluation.train_limit, config.seeds.finetune))


def steps_asked(config: RunConfig, weights: Path) -> list[int]:
    """The earlier steps that evaluation.checkpoints asks for. Raises UserError where the weights of one were not kept."""
    from mlm_lab.training.weights import kept_steps, weights_file

    asked = config.evaluation.checkpoints
    steps = kept_steps(weights) if asked == "all" else [] if asked == "none" else sorted(asked)
    for step in steps:
        weights_file(weights, step)
    return steps


def report_overlap(
    config: RunConfig, folder: RunFolder, source: RunFolder, fingerprints: Mapping[str, str], data: Mapping[str, TaskData]
) -> None:
    """Say how much of each task's dev and test stands in the text that the encoder has learnt, and record it."""
    fingerprint = source.read_summary().get("fingerprints", {}).get("store")
    store = store_folder(config.cache_dir, fingerprint) if fingerprint else None
    if not config.evaluation.overlap or store is None or not (store / MANIFEST).exists():
        return
    from mlm_lab.evaluation.overlap import LONG, SHORT, measure_overlaps
    from mlm_lab.tokenizers.loading import load

    parts = {(name, part or "dev"): examples for name, of_task in data.items() for part, examples in of_task.parts.items()}
    marks = {(name, part): f"{fingerprints[name]} {part}" for name, part in parts}
    overlaps = measure_overlaps(TokenStore.open(store, TRAIN), load(store), parts, config.cache_dir, marks)
    recorded: dict[str, dict] = {}
    for (name, part), overlap in overlaps.items():
        recorded.setdefault(name, {})[part] = {**asdict(overlap), "share": overlap.share}
    folder.update_summary(overlap=recorded)
    rows = [
        [name, part, overlap.examples, overlap.too_short, overlap.shared, "-" if overlap.share is None else f"{overlap.share:.1%}"]
        for (name, part), overlap in overlaps.items()
    ]
    note = f"shared: {LONG} words in a row ({SHORT} where a text has fewer than {LONG}) stand in the training text"
    console.table("Examples that the training text contains", ("task", "part", "examples", "too short", "shared", "share"), rows, note)


def record(config: RunConfig, folder: RunFolder, measured: Mapping[PlanName, Measured], data: Mapping[str, TaskData]) -> dict[str, dict]:
    """Put the numbers of the last weights into summary.json, with the floor beside them and how each setting was found. Returns them."""
    results, protocol, values = {}, config.evaluation.protocol, to_dict(config)
    for name, task in config.tasks.items():
        ours, floor = measured[PlanName(name, PRETRAINED)], measured.get(PlanName(name, FLOOR), Measured())
        within = " ".join(task.ranked_within)
        results[name] = summary.summarise(ours.records, floor.records, task.baselines(data[name]), protocol, within)
        choice = {**describe_choice(ours, protocol, folder.path), "digest": measured_how(name, values)}
        choice["examples"] = digest_parts((), data[name].parts)[:8]
        if floor.records:
            choice["floor"] = describe_choice(floor, "heldout" if floor.tried else "fixed", config.output_dir)
        folder.update_summary(evaluation={name: results[name]}, evaluation_settings={name: choice})
        for line in dict.fromkeys(note for cell in (*ours.records.values(), *floor.records.values()) for note in cell.get("notes", [])):
            console.say(f"{name}: {line}")
    averages, lacking = glue_averages.average_all(results)
    if averages:
        results["glue"] = averages
        folder.update_summary(evaluation={"glue": averages})
    if len(glue_averages.TASKS & set(config.tasks)) > 1:
        for average, missing in lacking.items():
            tasks = dict.fromkeys(score if (task := score.partition("/")[0]) in config.tasks else task for score in missing)
            console.say(f"glue {average}: incomplete, lacks {', '.join(tasks)}")
    return results


def record_step(config: RunConfig, folder: RunFolder, measured: Mapping[PlanName, Measured], step: int) -> None:
    """Put the numbers of earlier weights into summary.json, beside those of other steps, and show them."""
    results = {
        name: summary.summarise(measured[PlanName(name, PRETRAINED, step)].records, {}, {}, config.evaluation.protocol)
        for name in config.tasks
    }
    known = folder.read_summary().get("evaluation_at", {}).get(str(step), {})
    folder.update_summary(evaluation_at={str(step): {**known, **results}})
    console.table(f"Downstream tasks after step {step:,}", summary.COLUMNS, summary.table_rows(results))


def write_submission(config: RunConfig, folder: RunFolder, measured: Mapping[PlanName, Measured], data: Mapping[str, TaskData]) -> None:
    """evaluation/submission/seed_N/: the files of each fine-tuning seed, as the test server takes them."""
    written: dict[Path, list[str]] = {}
    for name, task in config.tasks.items():
        for seed, cell in measured[PlanName(name, PRETRAINED)].cells.items():
            files = task.submission(data[name], cell.read_unlabelled() if cell.unlabelled else {})
            place = folder.path / "evaluation" / SUBMISSION / f"seed_{seed}"
            for file, text in files.items():
                place.mkdir(parents=True, exist_ok=True)
                (place / file).write_text(text, encoding="utf-8")
                written.setdefault(place, []).append(file)
    if not written:
        console.warn("evaluation.submission: no task has a test set without labels at hand")
    for place, files in written.items():
        console.say(f"for the test server: {place}: {', '.join(files)}")


def show(results: Mapping[str, Mapping[str, dict]], protocol: str) -> None:
    """The table of results, and what to be careful about."""
    console.table("Downstream tasks", summary.COLUMNS, summary.table_rows(results), note=summary.note(protocol, results))
    for task, metrics in results.items():
        for line in summary.flags(task, metrics):
            console.warn(line)
