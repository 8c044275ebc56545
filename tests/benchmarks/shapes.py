"""The shapes that speed is compared at, what is asked of each, and the text and settings that both sides train on.

Each shape is 4096 tokens a step: 32 rows of 128 or 8 of 512, of English Wikipedia articles (or, where ../shared/data is missing, of made-up
text: a fixed Zipf law over made-up words, drawn with one seed), by one WordPiece vocabulary for both sides. 15 % of the tokens, 80/10/10.

full rows     both sides: documents end to end, cut to rows that are full to the last place. Theirs is what run_mlm.py's group_texts does.
documents     paragraphs, each a document. Theirs: one a row, cut at the row's length, padded to the longest of the batch (run_mlm.py
              --line_by_line); ours: packed, and no document sees another. Tokens that are not padding count.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlm_lab.config import RunConfig, compose

TOKENS_A_STEP = 4096
TEXTS = Path(__file__).resolve().parents[3] / "shared" / "data" / "text"
SOURCES = ("en-wiki/train.txt.gz", "en-speech-news/train.parquet")
SENTENCES = 120_000
"""Of the made-up text: 2.5 million words."""
FIXED = ["stages=[pretrain]", "objective.input_format=contiguous", "validation.sequences=32"]
NEVER = ["validation.every_steps=1000000", "checkpoint.every_steps=1000000", "budget.steps=1000000"]


class Shape(NamedTuple):
    """What is trained, and the ratios to Transformers' Trainer, at its best and at its defaults, that it is meant to reach."""

    model: str
    length: int
    vocabulary: int
    best: float
    defaults: float
    documents: bool = False
    """Whether rows are single documents on their side, and packed ones on ours."""
    tokens: int = TOKENS_A_STEP
    """Of a step, padding included. Another number than that of the CPU's shapes: a GPU's."""

    @property
    def name(self) -> str:
        return f"{self.model}-{self.length}-{self.vocabulary}" + "-documents" * self.documents + "-gpu" * self.on_gpu

    @property
    def batch_size(self) -> int:
        return self.tokens // self.length

    @property
    def on_gpu(self) -> bool:
        return self.tokens != TOKENS_A_STEP


SHAPES = (
    Shape("tiny", 128, 8192, 5.5, 6),
    Shape("tiny", 128, 30522, 7, 10),
    Shape("mini", 128, 8192, 2, 3.3),
    Shape("mini", 128, 30522, 3.6, 5.5),
    Shape("mini", 512, 8192, 2, 3.3),
    Shape("small", 128, 8192, 1.6, 3),
    Shape("small", 512, 30522, 2.2, 4),
    Shape("mini", 128, 8192, 3, 5, documents=True),
)
GPU_SHAPES = tuple(Shape(model, length, 30522, 1, 1, tokens=65536) for model, length in (("base", 128), ("base", 512), ("large", 512)))
BY_NAME = {shape.name: shape for shape in (*SHAPES, *GPU_SHAPES)}


def make_config(shape: Shape, cache_dir: Path, *words: str) -> RunConfig:
    """Our side of a shape. Its files are written the first time."""
    files = paragraphs(cache_dir) if shape.documents else text_files(cache_dir)
    own = [f"model={shape.model}", f"max_length={shape.length}", f"batch_size={shape.batch_size}", "data=text"]
    own += [f"data.files=[{','.join(map(str, files))}]", f"tokenizer.vocab_size={shape.vocabulary}", f"cache_dir={cache_dir}"]
    return compose([f"trainer={'gpu' if shape.on_gpu else 'cpu'}", *FIXED, *NEVER, *own, *words])


def text_files(cache_dir: Path) -> list[Path]:
    """The real text, or where there is none a made-up one under cache_dir."""
    found = [TEXTS / source for source in SOURCES]
    if all(path.exists() for path in found):
        return found
    path = cache_dir / "made_up.txt"
    if not path.exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(made_up_lines()), encoding="utf-8")
    return [path]


def made_up_lines() -> Iterator[str]:
    """Sentences of 8 to 33 words, a blank line after every fifth on average: the same text everywhere."""
    generator = np.random.default_rng(0)
    syllables = np.array([a + b for a in "bdfgklmnprstvz" for b in "aeiou"])
    words = ["".join(generator.choice(syllables, size)) for size in generator.integers(1, 5, 60_000)]
    for _ in range(SENTENCES):
        ranks = np.minimum(generator.zipf(1.2, generator.integers(8, 34)), len(words)) - 1
        yield " ".join(words[rank] for rank in ranks).capitalize() + "."
        if generator.random() < 0.2:
            yield ""


def paragraphs(cache_dir: Path) -> list[Path]:
    """The first of the text files with each line as a document of its own."""
    source = text_files(cache_dir)[0]
    path = cache_dir / f"paragraphs-{source.name.partition('.')[0]}-{source.stat().st_size}.txt"
    if not path.exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
        lines = [line for line in text.decode("utf-8").splitlines() if line.strip()]
        path.write_text("\n\n".join(lines), encoding="utf-8")
    return [path]
