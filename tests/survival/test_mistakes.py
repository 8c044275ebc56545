"""Seventy things that people get wrong, one table: each is told in at most ten lines with exit code 2, without a traceback, and leaves
nothing half written. (Misspelt keys and options: tests/test_main.py.)"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from tests.survival.small_run import words as command_words
from tests.survival.small_run import write_inputs

SWEEP = {
    "description": "question: Which ratio?\n",
    "program": "mlm_lab",
    "method": "grid",
    "metric": {"name": "val/loss", "goal": "minimize"},
    "parameters": {"objective.mask_ratio": {"values": [0.15, 0.4]}, "seed": {"values": [0, 1]}},
    "command": ["${env}", "${interpreter}", "-m", "mlm_lab", "+experiment=ablation", "${args_no_hyphens}"],
}
DOORS = {
    "run": "mlm_lab.__main__",
    "sweep": "mlm_lab.sweep.__main__",
    "report": "mlm_lab.report.__main__",
    "export": "mlm_lab.export.__main__",
}


@dataclass(frozen=True)
class Mistake:
    """What somebody typed, among which files, and what is said to it."""

    words: str
    said: str
    files: dict[str, str | bytes] = field(default_factory=dict)
    damage: Callable[[Path], None] | None = None
    """What was done to the finished run and its cache, which are there then."""
    door: str = "run"


def sweep(said: str, **changes: object) -> Mistake:
    """A sweep file with other values at its top level (None: without the key)."""
    values = {name: value for name, value in {**SWEEP, **changes}.items() if value is not None}
    return Mistake("mine.yaml", said, {"mine.yaml": yaml.safe_dump(values)}, door="sweep")


def task(name: str, content: str | bytes, said: str, words: str = "") -> Mistake:
    """An own task with this file."""
    return Mistake(f"evaluation.tasks=[mine] evaluation.files.mine={name} {words}", said, {name: content})


def corpus(name: str, content: str | bytes, said: str, words: str = "") -> Mistake:
    return Mistake(f"data.files={name} evaluation.tasks=[] {words}", said, {name: content})


def remove(pattern: str) -> Callable[[Path], None]:
    return lambda place: [path.unlink() for path in place.glob(pattern)] and None


def rewrite(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def go(place: Path) -> None:
        (path,) = place.glob(pattern)
        path.write_bytes(change(path.read_bytes()))

    return go


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda place: [change(place) for change in changes] and None


def edit(pattern: str, **values: object) -> Callable[[Path], None]:
    return rewrite(pattern, lambda content: json.dumps({**json.loads(content), **values}).encode())


NO_WEIGHTS = remove("runs/*/weights.safetensors")
CONLL = "The O\ndog B-X\n\nA O\ncat B-X\n"
MISTAKES = {
    # configs
    "width and heads": Mistake("model.hidden_size=130", "model.num_heads=4: must be a divisor of hidden_size"),
    "a rate of zero": Mistake("optim.peak_lr=0", "optim.peak_lr=0.0: must be above 0"),
    "one beta": Mistake("optim.betas=[0.9]", "optim.betas=[0.9]: must be a list of 2"),
    "a negative warm-up": Mistake("schedule.warmup_steps=-1", "schedule.warmup_steps"),
    "no device": Mistake("trainer.devices=0", "trainer.devices=0: must be at least 1"),
    "an empty micro-batch": Mistake("trainer.micro_batch_size=0", "trainer.micro_batch_size=0: must be at least 1"),
    "no patience": Mistake("trainer.timeout_seconds=0", "trainer.timeout_seconds=0.0: must be above 0"),
    "no checkpoint kept": Mistake("checkpoint.keep=0", "checkpoint.keep=0: must be at least 1"),
    "nothing held out": Mistake("validation.sequences=0", "validation.sequences=0: must be at least 1"),
    "phases that are no whole": Mistake("length_phases=[[32,0.5]]", "shares that sum to 1"),
    "phases longer than rows": Mistake("length_phases=[[64,0.5],[128,0.5]]", "the longest of them max_length"),
    "a budget below zero": Mistake("budget.steps=null budget.hours=-1", "budget.hours=-1.0: must be greater than 0"),
    "too few positions": Mistake("model.positions=learned model.max_positions=16", "too few learned positions"),
    "a mix that is no mix": Mistake("objective.replace_mix=[0.9,0.2,-0.1]", "objective.replace_mix"),
    "a span of nothing": Mistake("objective=span_corruption objective.mean_span_length=0", "mean_span_length"),
    "tasks that are text": Mistake("evaluation.tasks=3", "evaluation.tasks: no such task as 3"),
    "a start that is no task": Mistake("evaluation.start_from.mood=mnli", "task mood cannot start from the encoder of mnli"),
    "weights that are not kept": Mistake("evaluation.checkpoints=all", "there will be no earlier weights"),
    "a first token that sees nothing": Mistake("objective=clm evaluation.pooling=cls", "fix:     evaluation.pooling=mean"),
    "a run that is none": Mistake("stages=[evaluate] pretrained=nothing", "neither a run folder"),
    "a file as output_dir": Mistake("output_dir=text.txt", "text.txt"),
    "a file as cache_dir": Mistake("cache_dir=text.txt/cache", "the tokenizer cannot be written here"),
    "a secret": Mistake("study=${oc.env:HF_TOKEN}", "a secret of the environment"),
    "a list without its end": Mistake("tags=[a,b", "these words cannot be read"),
    # corpora
    "a corpus that is missing": Mistake("data.files=nothing.txt", "no such file"),
    "a glob that finds nothing": Mistake("data.files=*.nothing", "no such file"),
    "an unknown format": corpus("text.docx", "x", "unknown file format"),
    "an empty corpus": corpus("empty.txt", " \n\n", "nothing but white space"),
    "a corpus in another encoding": corpus("latin.txt", "Grüße aus Köln.\n".encode("latin-1") * 9, "latin.txt"),
    "lines that are not JSON": corpus("broken.jsonl", '{"text": "a b"}\n{"text": \n', "broken.jsonl"),
    "JSON without the text": corpus("other.jsonl", '{"body": "a b"}\n', "data.text_column"),
    "a table without the text": corpus("other.csv", "body\na b\n", "data.text_column"),
    "a gzip file cut short": corpus("cut.txt.gz", gzip.compress(b"The dog sees the cat. " * 500)[:60], "cut.txt.gz"),
    "a gzip file that is none": corpus("none.txt.gz", "plain", "none.txt.gz"),
    "a parquet file that is none": corpus("none.parquet", "plain", "none.parquet"),
    "an encoding that nobody knows": Mistake("data.encoding=utf-9", "an encoding that Python knows"),
    "a held-out file that is missing": Mistake("data.validation_files=nothing.txt", "no such file"),
    "everything held out": Mistake("data.validation_files=text.txt", "holds out every file"),
    "one sentence": corpus("one.txt", "word\n", "one.txt"),
    "pairs without neighbours": corpus(
        "lines.txt", "One here.\n\nTwo there.\n\nThree now.\n\n" * 30, "most sentences stand alone", "objective=mlm_nsp"
    ),
    "one document for pairs": corpus("one.txt", "One. Two two. Three three. Four four. " * 9, "document", "objective=mlm_nsp"),
    # tokenizers
    "a vocabulary of nothing": Mistake("tokenizer.vocab_size=0", "tokenizer.vocab_size=0"),
    "a vocabulary below its letters": Mistake("tokenizer.vocab_size=12", "vocab_size"),
    "a tokenizer that is missing": Mistake("tokenizer=pretrained tokenizer.path=nothing", "there is no tokenizer.json"),
    "a tokenizer that is none": Mistake("tokenizer=pretrained tokenizer.path=tok.json", "this is not a tokenizer.json", {"tok.json": "{}"}),
    "no path": Mistake("tokenizer=pretrained", "tokenizer.path"),
    "new words that are missing": Mistake(
        "tokenizer=pretrained tokenizer.path=tok tokenizer.new_words=no.txt",
        "the new words cannot be read",
        damage=lambda place: shutil.copytree(next(place.glob("cache/tokenizers/*-*[0-9a-f]")), place / "tok") and None,
    ),
    "too few sentinels": Mistake("objective=span_corruption tokenizer.num_sentinels=1", "sentinel"),
    # stores
    "a store without an array": Mistake(
        "", "the token store is damaged", damage=both(NO_WEIGHTS, remove("cache/stores/*/train/tokens.npy"))
    ),
    "a store cut short": Mistake(
        "", "bytes were written", damage=both(NO_WEIGHTS, rewrite("cache/stores/*/train/tokens.npy", lambda content: content[:-10]))
    ),
    "a manifest that is none": Mistake("", "manifest.json cannot be read", damage=rewrite("cache/stores/*/manifest.json", lambda _: b"[]")),
    "a manifest without a vocabulary": Mistake("", "cannot be read", damage=edit("cache/stores/*/manifest.json", vocabulary={})),
    "a manifest that leads out": Mistake(
        "",
        "outside the store",
        damage=both(NO_WEIGHTS, edit("cache/stores/*/manifest.json", files=[{"path": "../../x", "bytes": 1, "sha256": ""}])),
    ),
    "another tokenizer in the store": Mistake(
        "",
        "is not the one that made its tokens",
        damage=both(NO_WEIGHTS, rewrite("cache/stores/*/tokenizer.json", lambda text: text[:-1] + b" ")),
    ),
    # runs, checkpoints and weights
    "a summary cut short": Mistake("", "the run's summary is damaged", damage=rewrite("runs/*/summary.json", lambda text: text[:50])),
    "a pretrained run without weights": Mistake("pretrained=runs/RUN", "no weights yet", damage=NO_WEIGHTS),
    "a pretrained run with damaged weights": Mistake(
        "pretrained=runs/RUN seed=3", "damaged", damage=rewrite("runs/*/weights.safetensors", lambda content: content[:100])
    ),
    "weights of another model": Mistake(
        "pretrained=runs/RUN model=tiny model.hidden_size=64", "of another model", damage=lambda place: None
    ),
    "a run whose config is damaged": Mistake(
        "stages=[evaluate] pretrained=runs/RUN", "config cannot be read", damage=rewrite("runs/*/config.yaml", lambda _: b"a: [")
    ),
    "a run whose config is empty": Mistake(
        "stages=[evaluate] pretrained=runs/RUN", "config is no mapping", damage=rewrite("runs/*/config.yaml", lambda _: b"")
    ),
    "steps that were not kept": Mistake(
        "evaluation.checkpoints=[7] checkpoint.keep_weights_at=[0.5]", "has not kept the weights", damage=lambda place: None
    ),
    "an export of nothing": Mistake("nothing out", "nothing", door="export"),
    # task files
    "a task without a file": Mistake("evaluation.tasks=[mine] evaluation.files.mine=no.csv", "there is no such file"),
    "a task of another format": task("mine.doc", "x", "a file that ends in"),
    "a task without its text": task("mine.csv", "sentence,label\na,b\n", "text_column=NAME"),
    "a task without its label": task("mine.csv", "text\na\n", "there is no label"),
    "a task without rows": task("mine.csv", "text,label\n", "no examples"),
    "a task that is empty": task("mine.jsonl", "", "no examples"),
    "a task that is not UTF-8": task("mine.tsv", b"text\tlabel\n\xff\xfe\tgood\n", "not UTF-8"),
    "rows that are not JSON": task("mine.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "mine.jsonl, line 2"),
    "rows that are lists": task("mine.jsonl", "[1, 2]\n", "not a JSON object"),
    "values that are words": task(
        "mine.csv", "text,label\na,high\n" * 1, "a label that the task does not know", "task.mine.regression=true"
    ),
    "columns that come and go": task("mine.conll", "The O\ndog\n", "wrong number of columns"),
    "words without tags": task("mine.conll", "The\ndog\n", "at least 2: word and tag"),
    "tags that are mixed": task("mine.conll", "The O\ndog B-X\ncat NOUN\n", "a label that the task does not know"),
    "a task of one sentence": task("mine.conll", CONLL[:14], "part is empty"),
    "GLUE that is not there": Mistake("evaluation.tasks=[cola] evaluation.data_dir=.", "task cola: a file is missing"),
    "GLUE of another layout": Mistake(
        "evaluation.tasks=[sst2] evaluation.data_dir=.",
        "the header lacks",
        {"glue/SST-2/train.tsv": "text\tscore\na\t1\n", "glue/SST-2/dev.tsv": "text\tscore\na\t1\n"},
    ),
    # sweep files and reports
    "a sweep that is missing": Mistake("nothing.yaml", "the sweep file cannot be read", door="sweep"),
    "a sweep that is no YAML": Mistake("mine.yaml", "this is not YAML", {"mine.yaml": "a: [\n"}, door="sweep"),
    "a sweep that is a list": Mistake("mine.yaml", "holds no mapping", {"mine.yaml": "- a\n"}, door="sweep"),
    "a sweep that is binary": Mistake("mine.yaml", "not UTF-8", {"mine.yaml": b"\xff\xfe\x00"}, door="sweep"),
    "a key of no schema": sweep("unknown key 'methods'", methods="grid"),
    "a method of nobody": sweep("method: must be one of", method="gird"),
    "no parameters": sweep("parameters: must be a mapping", parameters={}),
    "no values": sweep("must have a list of values", parameters={"seed": {"values": []}}),
    "a value twice": sweep("a value is given twice", parameters={"seed": {"values": [1, 1.0]}}),
    "a nested parameter": sweep("write its keys with dots", parameters={"model": {"parameters": {"num_layers": {"values": [1]}}}}),
    "an experiment as a parameter": sweep("an experiment is no parameter", parameters={"+experiment": {"values": ["tiny"]}}),
    "a parameter that is no key": sweep("no such key", parameters={"objective.mask_ration": {"values": [0.1, 0.2]}}),
    "a value out of range": sweep("line", parameters={"objective.mask_ratio": {"values": [0.15, 4]}}),
    "points that are one": sweep("are the same run", parameters={"trainer.num_workers": {"values": [0, 1]}}),
    "a metric that nobody logs": sweep("a metric that no run logs", metric={"name": "val/los", "goal": "minimize"}),
    "a command of another program": sweep("command: must be a list like", command=["python", "train.py"]),
    "two sweep files": Mistake("a.yaml b.yaml", "name one sweep file", door="sweep"),
    "no jobs": Mistake("a.yaml --jobs 0", "must be at least 1", door="sweep"),
    "a study that nobody ran": Mistake("nobody", "nobody", door="report"),
    "a report's setting of nobody": Mistake("mine otput_dir=x", "did you mean output_dir", door="report"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A working directory with text.txt, mood.csv, and a finished run with its cache."""
    place = tmp_path_factory.mktemp("finished")
    write_inputs(place)
    from mlm_lab import compose, run

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        run(compose(small("evaluation.tasks=[]")))
    return place


def small(*words: str) -> list[str]:
    """The words of a small run in this directory; later ones replace earlier ones."""
    values: dict[str, str] = {}
    for word in (*command_words(Path("."), steps=4), "validation.every_steps=null", *words):
        values[word.partition("=")[0]] = word
    if "mood" not in values["evaluation.tasks"]:
        del values["task.mood.steps"]
    if "tokenizer" in values or "pretrained" in values:
        del values["tokenizer.vocab_size"]
    return list(values.values())


@pytest.fixture
def place(tmp_path, monkeypatch) -> Iterator[Path]:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_TOKEN", "planted-in-the-environment")
    yield folder


def listing(place: Path) -> dict[str, bytes]:
    left_out = (".lock", "overrides.txt", "summary.json", "config.yaml")
    return {
        str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file() and not path.name.endswith(left_out)
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told(name, place, finished, capfd):
    mistake = MISTAKES[name]
    if mistake.damage is not None:
        shutil.copytree(finished, place, dirs_exist_ok=True)
        mistake.damage(place)
    write_inputs(place)
    for path, content in mistake.files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    given = mistake.words.split()
    if "RUN" in mistake.words:
        given = [word.replace("RUN", next(place.glob("runs/*/config.yaml")).parent.name) for word in given]
    before = listing(place)
    capfd.readouterr()
    code = import_module(DOORS[mistake.door]).main(small(*given) if mistake.door == "run" else given)
    said = capfd.readouterr().err
    assert code == 2, said
    lines = said[said.index("error: ") :].splitlines()
    assert mistake.said in said and len(lines) <= 10 and "Traceback" not in said, said
    assert "planted" not in said
    after = listing(place)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert all(path.startswith(("cache/tokenizers/", "cache/stores/")) for path in changed), "what is whole, and nothing else"
    assert not list(place.rglob("*.tmp")) and not list(place.rglob("*.unfinished"))


def test_the_table_is_long_enough():
    assert len(MISTAKES) >= 60
