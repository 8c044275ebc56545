"""How training grows with the corpus and with the batch, and preparing with the text. By hand, on one core:

    taskset -c 0 python -m tests.benchmarks.growth [--millions 1 10 100 300] [--batches 8 16 32 64] [--text 1 2 4 8]

store   token stores of so many million tokens, made up on disk, each trained on for some steps of tiny by a process of its own: seconds
        from the opening of the store to the first batch, tokens a second of CPU time, memory of its own, and file pages that are mapped
batch   time of a step of tiny at so many rows of 128, for each row
text    characters a second, of so many million characters of documents, from text to token store, one process

Reading a store that does not fit into the page cache is the disk's speed: 4096 tokens a step are 12 KB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mlm_lab.config import compose
from mlm_lab.data.documents import RawDocument
from mlm_lab.data.store_build import build_store
from mlm_lab.data.token_store import ARRAYS, MANIFEST, SPLITS, FileRecord, Manifest, vocabulary_to_dict
from mlm_lab.types import Vocabulary
from tests.benchmarks.shapes import made_up_lines

VOCABULARY = Vocabulary(8192, 8192, 0, 1, 2, 3, 4, (0, 1, 2, 3, 4), (), "growth")
SENTENCE, SENTENCES, PART = 21, 50, 21_000_000
"""Tokens of a sentence, sentences of a document, tokens that are drawn at a time."""
WORDS = ["trainer=cpu", "trainer.precision=bf16-mixed", "model=tiny", "max_length=128", "batch_size=32", "stages=[pretrain]"]
STEPS, WARM_UP = 40, 4


def write_store(folder: Path, millions: int) -> None:
    """A store of made-up tokens on disk, in memory of a part."""
    counts, files = {}, []
    for split, total in zip(SPLITS, (millions * 1_000_000, 105_000), strict=True):
        sentences = total // SENTENCE
        (folder / split).mkdir(parents=True)
        shapes = {"tokens": (np.uint16, sentences * SENTENCE), "word_starts": (bool, sentences * SENTENCE)}
        arrays = {
            name: np.lib.format.open_memmap(folder / split / f"{name}.npy", "w+", dtype, (size,)) for name, (dtype, size) in shapes.items()
        }
        for start in range(0, sentences * SENTENCE, PART):
            generator, size = np.random.default_rng(start), min(PART, sentences * SENTENCE - start)
            arrays["tokens"][start : start + size] = 5 + np.minimum(generator.zipf(1.1, size) - 1, 8186)
            arrays["word_starts"][start : start + size] = generator.random(size, dtype=np.float32) < 0.7
        arrays["word_starts"][::SENTENCE] = True
        np.save(folder / split / "sentence_starts.npy", np.arange(0, sentences * SENTENCE + 1, SENTENCE))
        np.save(folder / split / "document_starts.npy", np.append(np.arange(0, sentences, SENTENCES), sentences))
        counts[split] = {
            "documents": sentences // SENTENCES,
            "sentences": sentences,
            "words": 0,
            "tokens": sentences * SENTENCE,
            "unknown": 0,
        }
        files += [FileRecord(path, (folder / path).stat().st_size, "") for path in (f"{split}/{name}.npy" for name in ARRAYS)]
    manifest = Manifest("growth", "", "", 1, counts, tuple(files), vocabulary_to_dict(VOCABULARY), ())
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def train_on(folder: Path) -> dict[str, float]:
    """In a process of its own."""
    import torch

    from mlm_lab.training.allocator import keep_large_blocks
    from mlm_lab.training.course import Course
    from mlm_lab.training.step import accumulate_gradients, clip_gradient

    torch.set_num_threads(1)
    keep_large_blocks()
    config = compose([*WORDS, f"budget.steps={STEPS + WARM_UP}"])
    started = time.perf_counter()
    course = Course.open(config, folder)
    data = course.dataset(STEPS + WARM_UP)
    data[0]
    first = time.perf_counter() - started
    module, optimizer, times = course.module.train(), config.optim.build(course.module), []
    for step in range(STEPS + WARM_UP):
        start = time.process_time()
        batch = {name: torch.from_numpy(array) for name, array in data[step][0].items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            accumulate_gradients(module, batch, module.target_counts(batch), micro_batch_size=None)
        clip_gradient(module, config.optim.gradient_clip)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.process_time() - start)
    tokens = course.costs[0].positions - course.costs[0].padding
    return {"first_batch": first, "tokens_per_second": tokens / statistics.median(times[WARM_UP:]), **memory()}


def memory() -> dict[str, int]:
    """Bytes of the process's own, and of the files that it maps, as far as the system has them in memory anyway."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: 1024 * int(fields[field].split()[0]) for name, field in (("own", "RssAnon"), ("mapped", "RssFile"))}


def stores(millions: list[int]) -> None:
    print(f"{'million tokens':>16} {'first batch':>12} {'tokens/s':>10} {'own memory':>12} {'mapped':>10}")
    for size in millions:
        with tempfile.TemporaryDirectory() as name:
            write_store(Path(name) / "store", size)
            words = [sys.executable, "-m", "tests.benchmarks.growth", "--train-on", str(Path(name) / "store")]
            done = subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            own, mapped = (found[name] / 1e9 for name in ("own", "mapped"))
            first, rate = found["first_batch"], found["tokens_per_second"]
            print(f"{size:16,} {first:10.2f} s {rate:10,.0f} {own:9.2f} GB {mapped:7.2f} GB", flush=True)


def batches(sizes: list[int]) -> None:
    import torch

    from tests.benchmarks.objectives import WARM_UP as WARM
    from tests.benchmarks.objectives import make_step

    torch.set_num_threads(1)
    steps = {size: make_step("mlm", "tiny", 128, size)[1] for size in sizes}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(WARM + 9):
        for size, step in steps.items():
            start = time.process_time()
            step(number)
            times[size].append(time.process_time() - start)
    print(f"\n{'rows a step':>16} {'ms a step':>12} {'ms a row':>10}")
    for size in sizes:
        spent = 1000 * statistics.median(times[size][WARM:])
        print(f"{size:16} {spent:12.1f} {spent / size:10.3f}", flush=True)


def texts(millions: list[int]) -> None:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

    lines = list(made_up_lines())
    documents = "\n".join(lines).split("\n\n")
    config = compose(["tokenizer.vocab_size=4096"])
    tokenizer = LoadedTokenizer(config.tokenizer.train(iter(documents[:2000])))
    print(f"\n{'million letters':>16} {'seconds':>12} {'million/s':>10}")
    for size in millions:
        found, length = [], 0
        while length < size * 1_000_000:
            text = documents[len(found) % len(documents)]
            split = "validation" if len(found) % 20 == 0 else "train"
            found.append(RawDocument(text, f"document {len(found)}", split))
            length += len(text)
        with tempfile.TemporaryDirectory() as name:
            start = time.perf_counter()
            build_store(Path(name) / "store", lambda found=found: iter(found), tokenizer, "growth", processes=1)
            spent = time.perf_counter() - start
        print(f"{size:16,} {spent:12.2f} {length / spent / 1e6:10.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--millions", type=int, nargs="*", default=[1, 10, 100, 300])
    parser.add_argument("--batches", type=int, nargs="*", default=[8, 16, 32, 64])
    parser.add_argument("--text", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--train-on", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train_on:
        print(json.dumps(train_on(options.train_on)))
        return
    stores(options.millions)
    batches(options.batches)
    texts(options.text)


if __name__ == "__main__":
    main()
