"""A whole ablation against the same grid through Transformers' example scripts: four masking ratios, two seeds, tiny; each pretrained, then
fine-tuned on CoLA, SST-2 (a tenth of it) and CoNLL-2003 with one seed. By hand, on one core (needs ../shared/data and `accelerate`):

    taskset -c 0 python -m tests.benchmarks.ablation [--share 1] [--ratios 0.15 0.3 0.4 0.6] [--seeds 0 1] [--contenders ours best scripts]

ours     python -m mlm_lab.sweep FILE --run: one process a point
best     for each point run_mlm.py, then run_glue.py twice and run_ner.py, in short: four processes, bf16, dropout 0, padded to the longest
         of a batch, as fast as they can be told to be
scripts  the same four as they come: float32, dropout 0.1, GLUE padded to 128 (pad_to_max_length)

Both: the same text, tokenizer, rows of 128, tokens, examples, epochs, batch sizes and learning rates; no random start beside it. --share
takes this share of the tokens and of the examples, for a look in minutes. Wall time of all processes, and their CPU time.
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mlm_lab.config import compose
from mlm_lab.evaluation.cells import limit_examples
from mlm_lab.stages.prepare import prepare
from tests.benchmarks.shapes import TEXTS, text_files

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


def run_ours(options: argparse.Namespace, folder: Path) -> None:
    ratios, seeds = (", ".join(map(str, values)) for values in (options.ratios, options.seeds))
    sweep = folder / "speed.yaml"
    sweep.write_text(
        "# How long does a grid take?\n"
        "description: |\n"
        "  question: How long does a grid take?\n"
        f"  primary: {{metric: probe/mlm_15_loss, baseline: {options.ratios[0]}, contrast: {options.ratios[-1]}}}\n"
        "  margin: 0.05\n"
        "program: mlm_lab\nmethod: grid\nmetric: {name: probe/mlm_15_loss, goal: minimize}\n"
        f"parameters:\n  objective.mask_ratio: {{values: [{ratios}]}}\n  seed: {{values: [{seeds}]}}\n"
        "command: ['${env}', '${interpreter}', -m, mlm_lab, study=speed, '${args_no_hyphens}']\n",
        encoding="utf-8",
    )
    words = [*words_of(options), f"output_dir={folder / 'runs'}"]
    run([sys.executable, "-m", "mlm_lab.sweep", str(sweep), "--run", "--jobs", "1", *words])


def run_theirs(options: argparse.Namespace, folder: Path, *, way: str) -> None:
    for ratio in options.ratios:
        for seed in options.seeds:
            for job in ("pretraining", *TASKS):
                words = ["--theirs", job, "--contenders", way, "--ratios", str(ratio), "--seeds", str(seed), "--share", str(options.share)]
                point = folder / f"{ratio}-{seed}"
                run([sys.executable, "-m", "tests.benchmarks.ablation", *words, "--cache", str(options.cache), "--folder", str(point)])


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
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.15, 0.3, 0.4, 0.6])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=["ours", "best"])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mlm_lab_benchmarks")
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.theirs:
        theirs(options.theirs, options)
        return
    prepare(compose(words_of(options)))
    found = {}
    for name in options.contenders:
        with tempfile.TemporaryDirectory() as folder:
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            CONTENDERS[name](options, Path(folder))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found[name] = {"wall": round(time.perf_counter() - start, 1), "cpu": round(cpu, 1)}
            print(name, found[name], flush=True)
    times = {
        name: {clock: round(spent[clock] / found["ours"][clock], 2) for clock in spent} for name, spent in found.items() if "ours" in found
    }
    print(json.dumps({"share": options.share, "ratios": options.ratios, "seeds": options.seeds, **found, "times_ours": times}))


if __name__ == "__main__":
    main()
