"""A whole ablation against the same grid through Transformers' example scripts: four masking ratios, two seeds, tiny; each pretrained, then
fine-tuned on CoLA, SST-2 (a tenth of it) and CoNLL-2003 with one seed. By hand, on one core (needs ../shared/data and `accelerate`):

    taskset -c 0 python -m tests.benchmarks.ablation [--share 1] [--ratios 0.15 0.3 0.4 0.6] [--seeds 0 1] [--contenders ours best scripts]

ours     python -m mlm_lab.sweep FILE --run: one process a point
best     for each point run_mlm.py, then run_glue.py twice and run_ner.py, in short: four processes, bf16, dropout 0, padded to the longest
         of a batch, as fast as they can be told to be
scripts  the same four as they come: float32, dropout 0.1, GLUE padded to 128 (pad_to_max_length)

Both: the same text, tokenizer, rows of 128, tokens, examples, epochs, batch sizes and learning rates; no random start beside it. --share
takes this share of the tokens and of the examples, for a look in minutes. Contenders take turns at each point; after each, the sums of
the wall time of all processes and of their CPU time so far.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mlm_lab.config import compose
from mlm_lab.evaluation.cells import limit_examples
from mlm_lab.stages.prepare import prepare
from tests.benchmarks.shapes import TEXTS, text_files

RATIOS, SEEDS = (0.15, 0.3, 0.4, 0.6), (0, 1)
TASKS = ("cola", "sst2", "conll2003")
EXAMPLES, TOKENS, LENGTH, BATCH = 6735, 3_000_000, 128, 16
"""Of each task at most: a tenth of SST-2. Of pretraining."""


def words_of(options: argparse.Namespace) -> list[str]:
    """What both sides share."""
    tasks = [f"evaluation.tasks=[{','.join(TASKS)}]", f"evaluation.data_dir={TEXTS.parent}", "evaluation.seeds=1", "evaluation.floor=false"]
    tasks += [f"evaluation.train_limit={round(EXAMPLES * options.share)}", "evaluation.overlap=false"]
    text = [
        "data=text",
        f"data.files=[{','.join(map(str, text_files(options.cache)))}]",
        f"cache_dir={options.cache}",
        "tokenizer.vocab_size=8192",
    ]
    own = [
        "model=tiny",
        f"max_length={LENGTH}",
        f"batch_size={BATCH}",
        "optim.peak_lr=2e-3",
        f"budget.tokens={round(TOKENS * options.share)}",
    ]
    return [*text, *own, *tasks, "trainer=cpu", "trainer.precision=bf16-mixed", "objective.input_format=contiguous"]


def write_sweep(path: Path) -> None:
    """The whole grid; each point is chosen on the command line."""
    ratios, seeds = (", ".join(map(str, values)) for values in (RATIOS, SEEDS))
    path.write_text(
        "# How long does a grid take?\n"
        "description: |\n"
        "  question: How long does a grid take?\n"
        f"  primary: {{metric: probe/mlm_15_loss, baseline: {RATIOS[0]}, contrast: {RATIOS[-1]}}}\n"
        "  margin: 0.05\n"
        "program: mlm_lab\nmethod: grid\nmetric: {name: probe/mlm_15_loss, goal: minimize}\n"
        f"parameters:\n  objective.mask_ratio: {{values: [{ratios}]}}\n  seed: {{values: [{seeds}]}}\n"
        "command: ['${env}', '${interpreter}', -m, mlm_lab, study=speed, '${args_no_hyphens}']\n",
        encoding="utf-8",
    )


def run_ours(options: argparse.Namespace, ratio: float, seed: int, folder: Path) -> None:
    write_sweep(folder / "speed.yaml")
    words = [*words_of(options), f"output_dir={folder / 'runs'}", f"objective.mask_ratio={ratio}", f"seed={seed}"]
    run([sys.executable, "-m", "mlm_lab.sweep", str(folder / "speed.yaml"), "--run", "--jobs", "1", *words])


def run_theirs(options: argparse.Namespace, ratio: float, seed: int, folder: Path, *, way: str) -> None:
    for job in ("pretraining", *TASKS):
        words = ["--theirs", job, "--contenders", way, "--ratios", str(ratio), "--seeds", str(seed), "--share", str(options.share)]
        run([sys.executable, "-m", "tests.benchmarks.ablation", *words, "--cache", str(options.cache), "--folder", str(folder)])


def run(words: list[str]) -> None:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout[-3000:]}")


def theirs(job: str, options: argparse.Namespace) -> None:
    """One of their scripts."""
    import torch
    import transformers

    torch.set_num_threads(1)
    config = compose(words_of(options))
    prepared = prepare(config)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(prepared.tokenizer_file), **names)
    make, best = pretraining if job == "pretraining" else fine_tuning, options.contenders == ["best"]
    model, train, collator, settings, dev = make(job, config, tokenizer, options)
    arguments = transformers.TrainingArguments(
        output_dir=str(options.folder / job),
        bf16=best,
        use_cpu=True,
        seed=options.seeds[0],
        weight_decay=0.01,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **settings,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=train, data_collator=collator)
    trainer.train()
    if dev is None:
        trainer.save_model(str(options.folder / "model"))
    else:
        trainer.predict(dev)


def pretraining(job: str, config: Any, tokenizer: Any, options: argparse.Namespace) -> tuple:
    import transformers

    from tests.benchmarks.contenders import open_stores, rows_of
    from tests.benchmarks.shapes import Shape

    rows = rows_of(open_stores(config)[0], Shape("tiny", LENGTH, 8192, 0, 0))
    model, steps = config.model, round(TOKENS * options.share) // (BATCH * (LENGTH - 2))
    shape = {"hidden_size": model.hidden_size, "num_hidden_layers": model.num_layers, "num_attention_heads": model.num_heads}
    shape |= {"intermediate_size": model.intermediate_size, "vocab_size": len(tokenizer), "max_position_embeddings": LENGTH}
    dropout = 0.0 if options.contenders == ["best"] else 0.1
    bert = transformers.BertConfig(**shape, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    settings = {"max_steps": steps, "per_device_train_batch_size": BATCH, "learning_rate": 2e-3}
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=options.ratios[0])
    return transformers.BertForMaskedLM(bert), rows, collator, settings, None


def fine_tuning(job: str, config: Any, tokenizer: Any, options: argparse.Namespace) -> tuple:
    import transformers

    from tests.benchmarks.finetuning import encode_tags

    data = config.tasks[job].load(config.evaluation, config.cache_dir)
    data = replace(data, train=limit_examples(data.train, config.evaluation.train_limit, 0))
    family = transformers.BertForTokenClassification if data.kind == "tagging" else transformers.BertForSequenceClassification
    model = family.from_pretrained(str(options.folder / "model"), num_labels=len(data.label_names))
    evaluation, parts = config.evaluation, [data.train, [example for part in data.parts.values() for example in part]]
    if data.kind == "tagging":
        index = {name: number for number, name in enumerate(data.label_names)}
        train, dev = (encode_tags(tokenizer, part, index) for part in parts)
        collator = transformers.DataCollatorForTokenClassification(tokenizer)
    else:
        padding = False if options.contenders == ["best"] else "max_length"
        texts = [[example.text_a for example in part] for part in parts]
        rows = [tokenizer(part, truncation=True, max_length=LENGTH, padding=padding) for part in texts]
        train, dev = (
            [{**{name: encoded[name][i] for name in encoded}, "label": example.label} for i, example in enumerate(part)]
            for part, encoded in zip(parts, rows, strict=True)
        )
        collator = transformers.DataCollatorWithPadding(tokenizer)
    settings = {"num_train_epochs": evaluation.epochs, "per_device_train_batch_size": evaluation.batch_size}
    settings |= {"per_device_eval_batch_size": 64, "learning_rate": evaluation.peak_rate(config.model.hidden_size), "warmup_steps": 0.1}
    return model, train, collator, settings, dev


CONTENDERS = {"ours": run_ours, "best": partial(run_theirs, way="best"), "scripts": partial(run_theirs, way="scripts")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--ratios", type=float, nargs="+", default=list(RATIOS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=["ours", "best"])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mlm_lab_benchmarks")
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.theirs:
        theirs(options.theirs, options)
        return
    prepare(compose(words_of(options)))
    spent = {name: Spent() for name in options.contenders}
    with tempfile.TemporaryDirectory() as place:
        for seed in options.seeds:
            for ratio in options.ratios:
                for name, mine in spent.items():  # in turn, so that what disturbs the machine disturbs all
                    folder = Path(place) / name
                    folder.mkdir(exist_ok=True)
                    with mine.one_point():
                        CONTENDERS[name](options, ratio, seed, folder)
                    print(f"{name:8} {ratio} seed {seed}: {mine.wall[-1]:,.0f} s, of a core {mine.cpu[-1]:,.0f}", flush=True)
                print(json.dumps({"share": options.share, "points": len(mine.wall), **as_record(spent)}), flush=True)


@dataclass
class Spent:
    """Seconds of each point."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @contextmanager
    def one_point(self) -> Iterator[None]:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        yield
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.wall.append(time.perf_counter() - start)
        self.cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def as_record(spent: dict[str, Spent]) -> dict[str, Any]:
    """Of the points done so far: seconds of each contender, and how many times ours the others took."""
    sums = {name: {"wall": round(sum(mine.wall)), "cpu": round(sum(mine.cpu))} for name, mine in spent.items()}
    ours = sums.get("ours")
    times = {name: {clock: round(sums[name][clock] / ours[clock], 2) for clock in ours} for name in sums} if ours else {}
    return {**sums, "times_ours": times}


if __name__ == "__main__":
    main()
