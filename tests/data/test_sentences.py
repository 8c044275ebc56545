"""Sentence borders: the stated rules one by one, and what must hold for any text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlm_lab.data.sentences import split_paragraphs, split_sentences

# "|" marks the borders that the rules demand.
CASES = {
    "plain": "The cat sat.| It was warm!| Was it?| Yes.",
    "titles": "Dr. Smith met Mrs. Jones and Prof. Lee.| They spoke.",
    "initials": "J. R. R. Tolkien wrote it.| George W. Bush read it.",
    "latin abbreviations": "Use a stop, e.g. Berlin or, i.e. Paris.| See cf. Smith et al. Nature printed it.",
    "numbered references": "See Fig. 3 and No. 5 on p. 12 of vol. 2.| No.| Nothing else.",
    "no before a word": "He said no. 5 people heard him.",
    "abbreviation inside": "She joined the U.S. Army at 5 p.m. Monday for Acme Inc. Boston.",
    "abbreviation at the end": "She lives in the U.S.| The house is old.| He sold it to Acme Inc.| They moved, etc.| It ended.",
    "decimals and versions": "It costs 3.14 dollars in version 2.10.1 of torch.nn.| Good.",
    "urls": "Read https://example.org/a.b?c=d!e now.| Write to a.b@example.org.| Done.",
    "ellipses": "He waited... and waited.| Then...| Nothing came…| The end.",
    "several marks": "What?!| No!!| Yes.",
    "quotes after the stop": 'She said "Go."| He went.| (It was late.)| "Stop!" he cried.| “Why?”| “Because.”',
    "single quotes": "'Yea,' said he.| 'Good is that.'| 'So be it.'",
    "opening marks": "It rained.| (Nobody minded.)| “Go on,” she said.| [Applause.]| *Now* we go.",
    "list numbers": "1. Open the box.| 2. Close it.",
    "lower case continues": "The file a.b. c is read. and so on.",
    "digits may open": "It grew.| 12 men came.| Prices fell.",
    "chinese": "他说：“你好。”|然后他走了。|真的吗？|是的！|好",
    "chinese brackets": "（这是一句。）|「你好。」|那是另一句。",
    "japanese": "今日は晴れ。|明日は雨！|本当？|はい",
    "arabic": "مرحبا يا صديقي.| كيف حالك؟| أنا بخير.",
    "urdu": "یہ ایک جملہ ہے۔| یہ دوسرا ہے۔",
    "hebrew": "שלום לך.| מה שלומך?| טוב.",
    "hindi": "यह एक वाक्य है।| यह दूसरा है।",
    "greek and cyrillic": "Он пришёл.| Она ушла.| Ἦλθε.| Εἶδε.",
    "emoji": "Great 👩‍👩‍👧!| Next one 🎉.| Done",
    "tokenised": "He was here .| She , too , was there .",
    "line breaks are white space": "One sentence\nover two\r\nlines.|\n\nAnother one.",
}


def borders(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("|")]


@pytest.mark.parametrize("name", CASES)
def test_borders(name: str) -> None:
    marked = CASES[name]
    assert split_sentences(marked.replace("|", "")) == borders(marked)


def without_white_space(text: str) -> str:
    return "".join(text.split())


any_text = st.text(st.sampled_from(".!?…。！؟।\"'”’)(]« \n\r\t\u2028\x85\x1cAaZzé1אع字👩\u200d\u200f\x00:,;-*")) | st.text()


@given(any_text)
@example("")
@example("...")
@example('."')
@example("\x85a.\u2028b")
def test_nothing_but_white_space_is_lost_or_changed(text: str) -> None:
    for sentences in (split_sentences(text), [s for p in split_paragraphs(text) for s in split_sentences(p)]):
        assert without_white_space("".join(sentences)) == without_white_space(text)
        for sentence in sentences:
            assert sentence and sentence == sentence.strip() and len(sentence.splitlines()) == 1


@given(any_text)
def test_white_space_inside_a_line_stays(text: str) -> None:
    line = " ".join(text.splitlines()).strip()
    position = 0
    for sentence in split_sentences(line):
        position = line.index(sentence, position) + len(sentence)


def test_right_to_left_marks_and_joiners_come_through() -> None:
    text = "\u202bשלום\u202c \u200fعالم\u200e. 👨‍👩‍👧‍👦 e\u0301 क्‍ष."
    assert " ".join(split_sentences(text)) == text
    assert not unicodedata.is_normalized("NFC", text)


@pytest.mark.parametrize("unit", [".", '."', " ", ". ", "a.b.", "\n", "( ", ". (", "1. ", "。", "\u3000", "A. "])
def test_cost_is_linear(unit: str) -> None:
    """A text that repeats one unit 150,000 times: at quadratic cost this test would not end."""
    text = unit * 150_000 + "a"
    assert without_white_space("".join(split_sentences(text))) == without_white_space(text)


def test_lines_of_hard_wrapped_text_are_joined_but_its_headings_are_not() -> None:
    text = (
        "A HEADING\nIt may be, my dear grandchildren, that at one time or another I\nhave told you nearly all the incidents which have\n"
        "occurred. To your mother at least I know that none of them are\nUnfamiliar.\n"
        "Yet when I consider that time wears on, and that a grey head\n"
        "Is apt to fail.\n\nNew one."
    )
    paragraphs = split_paragraphs(text)
    assert [paragraph.split()[0] for paragraph in paragraphs] == ["A", "It", "Yet", "New"]
    assert "that at one time or another I have told you" in paragraphs[1]


def test_long_lines_are_paragraphs() -> None:
    first, second = "A title without a stop", "This line is a paragraph of its own and it goes on. " * 4
    assert split_paragraphs(f"{first}\n{second}\nAnother one.") == [first, second.strip(), "Another one."]
    assert split_paragraphs(f"{second}\nwhich continues here.") == [f"{second.strip()} which continues here."]


def test_real_prose_splits_into_sentences(shared_data) -> None:
    import gzip
    import json

    with gzip.open(shared_data / "text/en-novels/valid.jsonl.gz", "rt", encoding="utf-8") as lines:
        text = json.loads(next(lines))["text"]
    sentences = [sentence for paragraph in split_paragraphs(text) for sentence in split_sentences(paragraph)]
    assert without_white_space("".join(sentences)) == without_white_space(text)
    ended = sum(sentence.rstrip("\"'”’)").endswith((".", "!", "?")) for sentence in sentences)
    assert ended > 0.97 * len(sentences)
    assert 40 < sum(map(len, sentences)) / len(sentences) < 160
