"""Held-out text: which sentences are taken, from which files; bad input; the real one."""

from __future__ import annotations

import gzip
import json

import pytest

from mlm_lab.errors import UserError
from mlm_lab.evaluation.tasks.held_out_text import whole_sentences
from tests.evaluation.protocol import evaluation, task

LINES = [f"The sentence with number {i} is no heading. Nor is this one, its neighbour with number {i}!" for i in range(30)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("\n\n".join(LINES), encoding="utf-8")
    return path


def load(file, **changes) -> list[str]:
    return [example.text for example in task("held_out_text", file=str(file), **changes).load(evaluation(), file.parent).dev]


def test_whole_sentences_without_headings_and_hidden_words():
    lines = (
        "= = Description = =",
        "It is a lobster . It has a large <unk> , and claws . It weighs 0 @.@ 7 kg",
        'He said "Stop!" There it was .',
        'They called it " right . " And so on .',  # the second one would begin with a mark that closes
    )
    text = "\n\n".join(lines)
    assert list(whole_sentences(text)) == ["It is a lobster .", 'He said "Stop!"', "There it was ."]
    assert list(whole_sentences("今天天气很好。明天会下雨吗？标题")) == ["今天天气很好。", "明天会下雨吗？"]
    assert list(whole_sentences("他读《好。》 ሰላም። Բարեւ։ He lives in St. Louis etc. The end")) == [
        "他读《好。》",
        "ሰላም።",
        "Բարեւ։",
        "He lives in St. Louis etc.",
    ]


def test_so_many_sentences_whatever_their_order_and_more_hold_the_fewer(file):
    whole, few, more = load(file, sentences=None), load(file, sentences=5), load(file, sentences=9)
    assert len(whole) == 60 and len(few) == 5 and set(few) < set(more) < set(whole)
    file.write_text("\n\n".join(reversed(LINES)), encoding="utf-8")
    assert set(load(file, sentences=5)) == set(few), "the file's order chose"


def test_a_sentence_counts_once_and_by_its_length(file):
    file.write_text("\n\n".join([*LINES, *LINES]), encoding="utf-8")
    assert len(load(file, sentences=None)) == 60
    assert {len(text) for text in load(file, sentences=None, characters=[42, 45])} == {42, 45}


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "csv"])
def test_the_forms_that_a_corpus_may_have(file, ending):
    other = file.with_name(f"own.{ending}")
    rows = [json.dumps({"body": line}) for line in LINES] if "jsonl" in ending else ["body", *(f'"{line}"' for line in LINES)]
    content = "\n".join(rows).encode()
    other.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    assert load(other, text_column="body") == load(file)


def test_one_cell_for_each_start_and_it_reads_the_heads():
    found = task("held_out_text")
    assert list(found.seeds(evaluation(seeds=5), 7)) == [0] and found.reads_heads and found.starts == ("pretrained", "floor")
    assert found.ranked_within == ("objective", "tokenizer.lowercase")


def test_bad_input_is_refused_before_anything_is_prepared(tmp_path, file):
    with pytest.raises(UserError, match=r"there is no text[\s\S]*wiki\.valid\.txt"):
        task("held_out_text").check(evaluation(data_dir=str(tmp_path)))
    for wrong in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(UserError, match=r"no such file[\s\S]*task\.held_out_text\.file="):
            task("held_out_text", file=str(wrong)).check(evaluation())
    with pytest.raises(UserError, match="characters"):
        task("held_out_text", characters=[20, 10])
    with pytest.raises(UserError, match=r"no whole sentence of 500 to 600"):
        task("held_out_text", file=str(file), characters=[500, 600]).check(evaluation())
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress("\n\n".join(LINES).encode())[:-20])
    (tmp_path / "other.txt").write_bytes("\n\n".join([*LINES, "今天天气很好。"]).encode("gb18030"))
    for name in ("cut.txt.gz", "other.txt"):
        with pytest.raises(UserError, match=r"task held_out_text: [\s\S]*task\.held_out_text\.text_column") as error:
            task("held_out_text", file=str(tmp_path / name)).check(evaluation())
        assert "data.encoding" not in str(error.value)
    with pytest.raises(UserError, match=r"a folder that has text/en-wikitext2/wiki\.valid\.txt"):
        task("held_out_text").check(evaluation())


def test_real_text(shared_data):
    found = task("held_out_text")
    texts = [example.text for example in found.load(evaluation(data_dir=str(shared_data)), shared_data).dev]
    assert len(texts) == len(set(texts)) == 400 and all(20 <= len(text) <= 200 for text in texts)
    assert not any("<unk>" in text or text.startswith("=") for text in texts)
