"""Fine-tuning against Transformers' Trainer: CoLA and CoNLL-2003, the same examples, epochs, batch size, rows of at most 128, and their dev
predicted at the end. By hand, on one core (needs ../shared/data, and `pip install accelerate` for their side):

    taskset -c 0 python -m tests.benchmarks.finetuning [--model mini] [--examples 2000] [--epochs 2] [--seeds 3]

ours              `evaluation.measures.fine_tuning`, as the evaluate stage runs it: encoded once, bf16, lengths alike in a batch
trainer           run_glue.py and run_ner.py in short: tokenised for each run, padded to the longest of a batch, bf16, dropout 0
trainer_defaults  the same as they come: float32, dropout 0.1, and for GLUE padded to 128 (pad_to_max_length)

Weights are random ones of the same size: what a step costs does not depend on them. Seconds of CPU time of a seed, in turn, medians.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mlm_lab.evaluation.cells import limit_examples
from mlm_lab.evaluation.measures.measure import Subject
from mlm_lab.evaluation.task import PRETRAINED, TaskData
from mlm_lab.tokenizers.loading import LoadedTokenizer, load
from mlm_lab.training.allocator import keep_large_blocks
from mlm_lab.training.weights import fresh_module
from tests.benchmarks.contenders import open_stores
from tests.benchmarks.shapes import BY_NAME, TEXTS, make_config

LENGTH, BATCH = 128, 32
TASKS = ("cola", "conll2003")


def make_ours(config: Any, task: str, data: TaskData, tokenizer: LoadedTokenizer) -> Callable[[int], object]:
    from lightning.fabric import Fabric

    from mlm_lab.training.trainer import quieten_lightning

    quieten_lightning()
    module = fresh_module(config, tokenizer.vocabulary).eval()
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    measures: list[Any] = []

    def run(seed: int) -> object:
        if not measures:  # for all seeds
            measures.append(config.tasks[task].measure(data, config.evaluation, tokenizer, LENGTH))
        return measures[0](Subject(PRETRAINED, module, tokenizer, fabric, task), seed)

    return run


def make_theirs(config: Any, data: TaskData, tokenizer_file: Path, *, best: bool) -> Callable[[int], object]:
    import transformers

    transformers.logging.set_verbosity_error()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), **names)
    model, tagging, dropout = config.model, data.kind == "tagging", 0.0 if best else 0.1
    shape = {"hidden_size": model.hidden_size, "num_hidden_layers": model.num_layers, "num_attention_heads": model.num_heads}
    shape |= {"intermediate_size": model.intermediate_size, "vocab_size": len(tokenizer), "max_position_embeddings": LENGTH}
    bert = transformers.BertConfig(
        **shape, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, num_labels=len(data.label_names)
    )
    family = transformers.BertForTokenClassification if tagging else transformers.BertForSequenceClassification
    collators = (transformers.DataCollatorForTokenClassification, transformers.DataCollatorWithPadding)

    def encode(examples: Any) -> list[dict]:
        if tagging:
            return encode_tags(tokenizer, examples, {name: number for number, name in enumerate(data.label_names)})
        padding = False if best else "max_length"
        rows = tokenizer([example.text_a for example in examples], truncation=True, max_length=LENGTH, padding=padding)
        return [{**{name: rows[name][i] for name in rows}, "label": example.label} for i, example in enumerate(examples)]

    def run(seed: int) -> object:
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                output_dir=folder,
                num_train_epochs=config.evaluation.epochs,
                per_device_train_batch_size=BATCH,
                per_device_eval_batch_size=BATCH,
                learning_rate=config.evaluation.peak_rate(model.hidden_size),
                warmup_steps=0.1,
                weight_decay=0.01,
                bf16=best,
                use_cpu=True,
                seed=seed,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            )
            collator = collators[0 if tagging else 1](tokenizer)
            train, dev = encode(data.train), encode(data.dev)
            trainer = transformers.Trainer(model=family(bert), args=arguments, train_dataset=train, data_collator=collator)
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
            return trainer.predict(dev)

    return run


def encode_tags(tokenizer: Any, examples: Any, index: dict[str, int]) -> list[dict]:
    """As run_ner.py: the tag on a word's first token."""
    rows = tokenizer([list(example.words) for example in examples], is_split_into_words=True, truncation=True, max_length=LENGTH)
    encoded = []
    for i, example in enumerate(examples):
        words, labels, before = rows.word_ids(i), [], None
        for word in words:
            labels.append(-100 if word is None or word == before else index[example.tags[word]])
            before = word
        encoded.append({**{name: rows[name][i] for name in rows}, "labels": labels})
    return encoded


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mlm_lab_benchmarks")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    keep_large_blocks()
    words = [f"evaluation.tasks=[{','.join(TASKS)}]", f"evaluation.data_dir={TEXTS.parent}", f"evaluation.epochs={options.epochs}"]
    config = make_config(BY_NAME["mini-128-8192"], options.cache, f"model={options.model}", *words)
    tokenizer_file = open_stores(config)[2]
    tokenizer = load(tokenizer_file.parent)
    print(f"{'task':10} {'contender':18} {'seconds a seed':>15} {'of the first':>13} {'ratio':>7}")
    for task in TASKS:
        data = config.tasks[task].load(config.evaluation, options.cache)
        data = replace(data, train=limit_examples(data.train, options.examples, 0), dev=data.dev[: options.examples // 2], extra={})
        contenders = {
            "ours": make_ours(config, task, data, tokenizer),
            "trainer": make_theirs(config, data, tokenizer_file, best=True),
            "trainer_defaults": make_theirs(config, data, tokenizer_file, best=False),
        }
        spent: dict[str, list[float]] = {name: [] for name in contenders}
        for seed in range(options.seeds):
            for name, run in contenders.items():
                start = time.process_time()
                run(seed)
                spent[name].append(time.process_time() - start)
        for name, times in spent.items():
            ratio = statistics.median(theirs / ours for theirs, ours in zip(times, spent["ours"], strict=True))
            print(f"{task:10} {name:18} {statistics.median(times):15.2f} {times[0]:13.2f} {ratio:6.2f}x", flush=True)


if __name__ == "__main__":
    main()
