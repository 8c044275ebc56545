"""How encoders are evaluated: the protocol that all tasks share, so that two encoders differ in their weights alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlm_lab.errors import require
from mlm_lab.evaluation.protocol import PROTOCOLS, Grid

POOLINGS = ("mean", "cls", "last")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Fine-tuning and what it is run on. A task's own `epochs`, `steps`, `learning_rate`, `batch_size`, `max_length` go before these."""

    code_version: ClassVar[int] = 2
    """Raised when the same settings and examples come to mean other numbers (encoding, batches, head, recipe, scores): cells run again."""

    tasks: tuple[str, ...]
    """Which tasks to run: names of conf/task/, or of `files`."""
    protocol: str
    """How a task's setting (learning rate, batch, epochs) is found. fixed: the one given here, the same for every run. paper: the best of
    `grid` on dev, which is then reported, as papers do; marked as selected on its reporting set. heldout: the best of `grid` on a part
    of train; with it the whole of train is learnt, and dev is reported. A task's own setting goes before the grid's."""
    grid: Grid
    """Settings that `paper` and `heldout` try."""
    seeds: int
    """Fine-tuning runs of each task: seeds.finetune + 0, 1, 2, ..."""
    data_dir: str | None
    """Folder with glue/NAME/{train,dev}.tsv, ner/NAME/{train,valid,test}.txt, blimp/PARADIGM.jsonl, squad2/{train,dev}*.json and
    text/en-wikitext2/wiki.valid.txt, each also .gz; null: the Hugging Face hub."""
    files: dict[str, str]
    """Own tasks: name -> a file, or a folder with train and dev files (evaluation.files.mine=PATH)."""
    floor: bool
    """Also measure the same encoder from three random initialisations: what the task gives without pretraining. Runs of the same encoder,
    tokenizer and settings share them (output_dir/floors)."""
    epochs: int
    """Passes over the training examples."""
    batch_size: int
    """Examples of an optimiser step."""
    learning_rate: float | None
    """Peak learning rate; null: 1e-3 at width 128, falling with the width to the power 1.75 (4.3e-5 at 768)."""
    floor_learning_rate: tuple[float, ...] | None
    """Peak learning rate of the random initialisations; of several the one that does best on a part of train. null: that of the pretrained
    encoder where the protocol is fixed, else the best of the grid's, likewise on a part of train."""
    warmup_share: float
    """Share of the steps over which the learning rate rises; it then falls linearly to zero."""
    weight_decay: float
    """Of matrices; biases and norms have none."""
    max_length: int | None
    """Tokens of an example, special tokens included; null: as in pretraining."""
    pooling: str
    """What a sequence head reads of the encoder's output: mean (over the tokens), cls (the first one) or last (the one before the padding:
    with objective=clm the only one that has seen them all, as in GPT; cls, which has seen nothing but itself there, is refused)."""
    train_limit: int | None
    """Use only so many training examples (drawn with seeds.finetune, the same ones for every seed); null: all."""
    start_from: dict[str, str]
    """Task -> task that its encoder is fine-tuned on before, with the same seed (evaluation.start_from.rte=mnli), as RoBERTa does for RTE,
    MRPC and STS-B. The floor takes the same way."""
    checkpoints: tuple[int, ...] | str
    """Which earlier weights of the run are evaluated beside its last: none, all that checkpoint.keep_weights_at kept, or [step, ...]."""
    submission: bool
    """Also predict the test sets that come without labels, and write them in the form that their server takes (GLUE)."""
    overlap: bool
    """Report how many of a task's examples share a run of words with the training text."""
    jobs: int | None
    """Processes that measure side by side, on the CPU; each computes with one thread, whatever their number, so that it does not change a
    result. null: as many as this process would compute with threads."""

    def __post_init__(self) -> None:
        require(
            ("seeds", self.seeds, self.seeds >= 1, "at least 1"),
            ("epochs", self.epochs, self.epochs >= 1, "at least 1"),
            ("batch_size", self.batch_size, self.batch_size >= 1, "at least 1"),
            ("learning_rate", self.learning_rate, self.learning_rate is None or self.learning_rate > 0, "null or above 0"),
            ("floor_learning_rate", self.floor_learning_rate, _rates_hold(self.floor_learning_rate), "null, or one or several above 0"),
            ("protocol", self.protocol, self.protocol in PROTOCOLS, "one of " + ", ".join(PROTOCOLS)),
            ("warmup_share", self.warmup_share, 0 <= self.warmup_share < 1, "in [0, 1)"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, "at least 0"),
            ("max_length", self.max_length, self.max_length is None or self.max_length >= 8, "null or at least 8"),
            ("pooling", self.pooling, self.pooling in POOLINGS, "one of " + ", ".join(POOLINGS)),
            ("train_limit", self.train_limit, self.train_limit is None or self.train_limit >= 1, "null or at least 1"),
            ("start_from", self.start_from, all(task != before for task, before in self.start_from.items()), "another task for each"),
            ("checkpoints", self.checkpoints, _steps_hold(self.checkpoints), "none, all, or a list of steps"),
            ("jobs", self.jobs, self.jobs is None or self.jobs >= 1, "null or at least 1"),
        )

    def peak_rate(self, hidden_size: int) -> float:
        """The learning rate where none is given: 1e-3 at 128, 3.0e-4 at 256, 8.8e-5 at 512, 4.3e-5 at 768, 2.6e-5 at 1024.

        Tiny encoders want far more than the 2e-5 to 5e-5 of BERT (Devlin et al. 2019, A.3); the power joins the two ranges.
        """
        return self.learning_rate if self.learning_rate is not None else 1e-3 * min(1.0, (128 / hidden_size) ** 1.75)


def _rates_hold(rates: tuple[float, ...] | None) -> bool:
    return rates is None or (len(rates) > 0 and min(rates) > 0)


def _steps_hold(checkpoints: tuple[int, ...] | str) -> bool:
    return checkpoints in ("none", "all") if isinstance(checkpoints, str) else all(step >= 1 for step in checkpoints)
