"""Files of any content: the readers give what they read, or the clear error, and nothing else."""

from __future__ import annotations

import gzip
import json
import os
import string
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlm_lab.config import load as load_config
from mlm_lab.data.text_files import read_records
from mlm_lab.data.token_store import MANIFEST, Manifest, check_files
from mlm_lab.errors import UserError
from mlm_lab.evaluation.conll import read_conll
from mlm_lab.evaluation.tasks.glue import TABLE, _read
from mlm_lab.evaluation.tasks.own import _read_jsonl, _read_table
from mlm_lab.interchange.folder import HuggingFaceFolder
from mlm_lab.report.results import read as read_results
from mlm_lab.sweep import reading
from mlm_lab.tokenizers.loading import load as load_tokenizer
from tests.survival.test_mistakes import SWEEP

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20")),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
WORDS = st.sampled_from(
    ["O", "B-X", "I-X", "S-Y", "NOUN", "-DOCSTART-", "good", "1", "0.5", '"', "'", "\u2028", "", "text", "label", "\ufeff"]
)
LINES = st.lists(st.lists(st.one_of(WORDS, st.text(max_size=6)), max_size=5), max_size=8)
TABLES = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda rows, sep: "\n".join(sep.join(row) for row in rows).encode("utf-8", "surrogatepass"), LINES, st.sampled_from("\t ,")),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(string.ascii_letters, max_size=8), inner, max_size=3)),
    max_leaves=6,
)
MANIFEST_NOW = {
    "fingerprint": "f",
    "text": "t",
    "tokenizer": "k",
    "code": 1,
    "counts": {split: {"documents": 1, "tokens": 2} for split in ("train", "validation")},
    "files": [{"path": "train/tokens.npy", "bytes": 3, "sha256": "0"}],
    "vocabulary": {
        **dict.fromkeys(("size", "padded_size", "pad_id", "unk_id", "cls_id", "sep_id", "mask_id"), 3),
        "special_ids": [0],
        "sentinel_ids": [],
        "fingerprint": "v",
    },
    "found": ["a line"],
}


@st.composite
def altered(draw: st.DrawFn, whole: dict[str, Any]) -> Any:
    """A JSON value that is like `whole`, but for one or two places at any depth."""
    values = json.loads(json.dumps(whole))
    for _ in range(draw(st.integers(1, 2))):
        place: Any = values
        while isinstance(place, dict | list) and place:
            key = draw(st.sampled_from(sorted(place, key=str) if isinstance(place, dict) else range(len(place))))
            if draw(st.booleans()) or not isinstance(place[key], dict | list):
                if draw(st.integers(0, 3)) or isinstance(place, list):
                    place[key] = draw(VALUES)
                else:
                    del place[key]
                break
            place = place[key]
    return values


def read(path: Path, content: bytes, reader: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with suppress(UserError):
        found = reader(path)
        if hasattr(found, "__next__"):
            list(found)


@fuzzed
@given(content=TABLES)
@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("a.conll", lambda path: read_conll(path, plain_tags=True, documents=True)),
        ("a.tsv", _read_table),
        ("a.csv", _read_table),
        ("dev.tsv", lambda path: _read(path, TABLE["sst2"])),
        ("cola.tsv", lambda path: _read(path, TABLE["cola"])),
        ("a.jsonl", _read_jsonl),
        ("a.txt", lambda path: read_records(path, "text", "utf-8")),
        ("b.csv", lambda path: read_records(path, "text", "utf-8")),
        ("b.jsonl", lambda path: read_records(path, "text", "utf-8")),
        ("b.parquet", lambda path: read_records(path, "text", "utf-8")),
        ("results.csv", read_results),
        ("a.yaml", reading.read),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_any_bytes(tmp_path, name, reader, content):
    read(tmp_path / name, content, reader)
    if name.endswith((".jsonl", ".conll", ".txt")) and name != "results.csv":
        read(tmp_path / f"{name}.gz", gzip.compress(content)[: -len(content) % 7 or None], reader)


@fuzzed
@given(rows=st.lists(st.one_of(VALUES, st.dictionaries(st.sampled_from(["text", "label", "x"]), VALUES, max_size=3)), max_size=4))
def test_any_json_lines(tmp_path, rows):
    content = "\n".join(json.dumps(row) for row in rows).encode()
    read(tmp_path / "a.jsonl", content, _read_jsonl)
    read(tmp_path / "b.jsonl", content, lambda path: read_records(path, "text", "utf-8"))


@fuzzed
@given(values=altered(MANIFEST_NOW))
def test_any_manifest(tmp_path, values):
    read(tmp_path / MANIFEST, json.dumps(values).encode(), lambda path: check_files(tmp_path, Manifest.read(tmp_path)))


@fuzzed
@given(values=altered(SWEEP))
def test_any_sweep_file(tmp_path, values):
    read(tmp_path / "a.yaml", yaml.safe_dump(values, allow_unicode=True).encode(), reading.read)


STUDY = {
    "question": "What?",
    "primary": {"metric": "val/loss", "baseline": 0.15, "contrast": 0.4},
    "margin": 0.1,
    "ordered": True,
    "tune": {"key": "optim.peak_lr", "values": [0.1, 0.2], "metric": "val/loss", "goal": "minimize", "seed": 9, "budget_share": 0.2},
    "published": ["a"],
    "metrics": ["val/loss"],
    "factor": ["seed"],
}


@fuzzed
@given(study=altered(STUDY))
def test_any_study(tmp_path, study):
    values = {**SWEEP, "description": yaml.safe_dump(study, allow_unicode=True)}
    read(tmp_path / "a.yaml", yaml.safe_dump(values, allow_unicode=True).encode(), reading.read)


@fuzzed
@given(
    values=st.one_of(VALUES, altered({"model": {"_target_": "mlm_lab.models.encoder_config.Encoder", "num_layers": 2}, "task": {"a": {}}}))
)
def test_any_config_of_a_run(tmp_path, values):
    read(tmp_path / "config.yaml", yaml.safe_dump(values, allow_unicode=True).encode(), lambda path: load_config(tmp_path))


BERT = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 9}


@fuzzed
@given(values=st.one_of(VALUES, altered(BERT)))
def test_any_config_of_a_hugging_face_folder(tmp_path, values):
    read(tmp_path / "config.json", json.dumps(values).encode(), lambda path: HuggingFaceFolder(tmp_path).model())


@fuzzed
@given(names=st.one_of(VALUES, altered({"mask_token": {"content": "[MASK]"}, "pad_token": "[PAD]", "new_words": ["a"]})))
def test_any_names_of_special_tokens(tmp_path, names):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    model = {
        "type": "WordPiece",
        "vocab": {token: number for number, token in enumerate(tokens)},
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    read(tmp_path / "special_tokens_map.json", json.dumps(names).encode(), lambda path: load_tokenizer(tmp_path).vocabulary)
