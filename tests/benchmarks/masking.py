"""Masking against Transformers' collator: the same rows of real text, 15 % with 80/10/10, tokens and whole words. By hand, on one core:

    taskset -c 0 python -m tests.benchmarks.masking [--rows 256] [--length 512] [--rounds 9]

Ours is `MaskingRecipe.mask_rows`, theirs DataCollatorForLanguageModeling (with whole_word_mask) on rows that are of one length and say
where their special tokens and words are, so that it pads and looks up nothing. In turn in one process, with the allocator that training
has, CPU time, medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.packing import gather_rows
from mlm_lab.training.allocator import keep_large_blocks
from mlm_lab.types import ExampleKeys
from tests.benchmarks.contenders import open_stores
from tests.benchmarks.shapes import BY_NAME, make_config

TARGETS = {"token": 20, "word": 50}


def ours(unit: str, rows: int, length: int, cache_dir: Path) -> Callable[[int], object]:
    config = make_config(BY_NAME["mini-128-8192"], cache_dir, f"max_length={length}", f"objective.unit={unit}")
    store = open_stores(config)[0]
    plan = config.objective.plan(store, length, Draws(0, "train"))
    index = np.arange(rows, dtype=np.int64) % len(plan)
    found = gather_rows(store, plan, index)

    def mask(epoch: int) -> object:
        keys = ExampleKeys(index, np.full_like(index, epoch), index)
        return config.objective.mask_rows(found.input_ids, found.special, found.source, store, plan.draws, keys)

    return mask


def theirs(unit: str, rows: int, length: int, cache_dir: Path) -> Callable[[int], object]:
    import transformers

    config = make_config(BY_NAME["mini-128-8192"], cache_dir, f"max_length={length}")
    store, _, tokenizer_file = open_stores(config)
    plan = config.objective.plan(store, length, Draws(0, "train"))
    found = gather_rows(store, plan, np.arange(rows) % len(plan))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), **names)
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=unit == "word")
    examples = []
    for ids, special, source in zip(found.input_ids, found.special, found.source, strict=True):
        example = {"input_ids": ids, "attention_mask": np.ones_like(ids), "special_tokens_mask": special.astype(np.int64)}
        if unit == "word":  # as a fast tokenizer gives it: where each token stands in the text; a word goes on where the last one ended
            begins, ends = store.word_starts[source] | special, 2 * np.arange(1, length + 1)
            example["offset_mapping"] = np.stack([ends - 2 + begins, ends], axis=1)
        examples.append(example)
    return lambda epoch: collator(examples)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mlm_lab_benchmarks")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    keep_large_blocks()
    shape = options.rows, options.length, options.cache
    print(f"{'unit':6} {'ours':>14} {'collator':>14} {'ratio':>8} {'target':>8}   million tokens a second")
    for unit, target in TARGETS.items():
        contenders = [ours(unit, *shape), theirs(unit, *shape)]
        spent: list[list[float]] = [[], []]
        for epoch in range(options.rounds + 1):
            for work, times in zip(contenders, spent, strict=True):
                start = time.process_time()
                work(epoch)
                times.append(time.process_time() - start)
        rates = [options.rows * options.length / statistics.median(times[1:]) / 1e6 for times in spent]
        print(f"{unit:6} {rates[0]:14.1f} {rates[1]:14.2f} {rates[0] / rates[1]:7.1f}x {target:7}x", flush=True)


if __name__ == "__main__":
    main()
