"""Bits a character: the module's log-probabilities over the characters; words by the text; rows that are full; what no token stands for."""

from __future__ import annotations

import math
from itertools import chain, pairwise

import pytest
import torch
from lightning.fabric import Fabric
from tokenizers import Tokenizer, models, pre_tokenizers

from mlm_lab.evaluation.measures.bits import METRIC, BitsPerCharacter, metric_of, word_begins
from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.measures.minimal_pairs import UNDEFINED
from mlm_lab.evaluation.task import TaskData, TextExample
from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.objectives.sentence_scores import RULES
from mlm_lab.tokenizers.loading import LoadedTokenizer
from mlm_lab.types import Sentences
from tests.evaluation.conftest import SPECIAL

TEXTS = ["the film is good.", "anna is in berlin.", "bad."]
CHARACTERS = sum(len(text.replace(" ", "")) for text in TEXTS)


class Halves(torch.nn.Module):
    """Gives each token probability one half, by all of its rules."""

    def __init__(self, *rules: str):
        super().__init__()
        self.rules = rules

    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        return {rule: sentences.real.sum(dim=1).double() * math.log(0.5) for rule in self.rules}


def measured(tokenizer, texts=TEXTS, max_length=64) -> BitsPerCharacter:
    return BitsPerCharacter(TaskData("texts", (), (), [TextExample(text) for text in texts]), tokenizer, max_length)


def outcome(module: torch.nn.Module, tokenizer, texts=TEXTS, max_length=64) -> Outcome:
    subject = Subject("pretrained", module, tokenizer, Fabric(accelerator="cpu", devices=1), "test")
    return measured(tokenizer, texts, max_length)(subject, 0)


def test_a_bit_a_token_over_all_characters_but_spaces(tokenizer):
    found = outcome(Halves("pll", "pll_within_word", "likelihood"), tokenizer)
    tokens = sum(len(tokenizer.encode(text)) for text in TEXTS)
    assert found.metrics == {name: pytest.approx(tokens / CHARACTERS) for name in (f"pll/{METRIC}", METRIC, f"likelihood/{METRIC}")}
    assert found.facts["characters"] == CHARACTERS and found.facts["tokens"] == tokens
    assert [line["prediction"]["pll"] for line in found.predictions] == [len(tokenizer.encode(text)) for text in TEXTS]


@pytest.mark.parametrize("max_length", [3, 4, 7])
def test_what_does_not_fit_into_a_row_is_read_in_parts_and_nothing_is_lost(tokenizer, max_length):
    whole, parts = (outcome(Halves("pll"), tokenizer, max_length=length) for length in (64, max_length))
    assert whole.metrics == parts.metrics and whole.facts["cut"] == {"dev": 0}
    assert whole.predictions == parts.predictions
    lengths = [len(tokenizer.encode(text)) for text in TEXTS]
    assert parts.facts["cut"] == {"dev": sum(length > max_length - 2 for length in lengths)}
    rows = measured(tokenizer, max_length=max_length)
    for owner, text in enumerate(TEXTS):
        mine = [ids.tolist() for ids, of in zip(rows.ids, rows.owners, strict=True) if of == owner]
        assert list(chain.from_iterable(mine)) == tokenizer.encode(text) and all(len(ids) <= max_length - 2 for ids in mine)
        assert [len(ids) for ids in mine] == [len(starts) for starts, of in zip(rows.starts, rows.owners, strict=True) if of == owner]


def test_words_are_those_of_the_text():
    text = "Don't stop_it 3.5, 今天 très ok"
    begins = [*word_begins(text), len(text)]
    words = ["Don", "'", "t", " stop_it", " 3", ".", "5", ",", " 今", "天", " très", " ok"]
    assert [text[begin:end] for begin, end in pairwise(begins)] == words


def test_words_do_not_depend_on_the_tokenizer(tokenizer):
    """Letters in one vocabulary, words with the space before them in another: the same borders."""
    bytes_of_words = Tokenizer(models.BPE({name: i for i, name in enumerate([*SPECIAL, *map(chr, range(97, 123)), "Ġ", "."])}, []))
    bytes_of_words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # a sentence is its word
    assert [starts.tolist() for starts in measured(tokenizer, ["anna is."]).starts] == [[True, True, True]]
    (of_bytes,) = measured(LoadedTokenizer(bytes_of_words), ["anna is."]).starts
    assert of_bytes.tolist() == [True, False, False, False, True, False, False, True]  # anna, Ġis, .


@pytest.mark.parametrize("within_word", [False, True])
def test_a_masked_model_against_one_token_at_a_time(tokenizer, vocabulary, encoder_config, within_word):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = MaskedLM(encoder_config, vocabulary).eval()
    bits = 0.0
    for text in TEXTS:
        row = torch.tensor([vocabulary.cls_id, *tokenizer.encode(text), vocabulary.sep_id])
        spelt = [tokenizer.token(token) for token in row]
        for place in range(1, len(row) - 1):
            asked, after = row.clone(), place + 1
            asked[place] = vocabulary.mask_id
            while within_word and spelt[after].startswith("##"):
                asked[after] = vocabulary.mask_id
                after += 1
            logits = module.predict(asked[None], torch.ones_like(asked)[None], None, torch.tensor([[place]]))
            bits -= math.log2(logits[0, 0].softmax(dim=-1)[row[place]])
    found = outcome(module, tokenizer).metrics
    assert found[METRIC if within_word else f"pll/{METRIC}"] == pytest.approx(bits / CHARACTERS, rel=1e-4)
    assert found[METRIC] != found[f"pll/{METRIC}"]


def test_a_score_that_is_no_probability_of_the_text_is_left_out(tokenizer):
    assert list(outcome(Halves("replaced", "generator_pll"), tokenizer).metrics) == [f"generator_pll/{METRIC}"]


@pytest.mark.parametrize("rules", [(), ("replaced",)])
def test_a_model_that_predicts_no_tokens_is_undefined_and_says_so(tokenizer, rules):
    found = outcome(Halves(*rules), tokenizer)
    assert found.metrics == {METRIC: None} and found.facts["notes"] == [UNDEFINED]


def test_what_the_vocabulary_does_not_know_costs_its_bytes(tokenizer):
    found = outcome(Halves("pll"), tokenizer, ["the ☃ film.", "good ☂☂."])
    assert found.facts["unread_characters"] == 3 and any(note.startswith("3 of 16 characters are unknown") for note in found.facts["notes"])
    assert found.metrics[f"pll/{METRIC}"] == pytest.approx((7 + 3 * 3 * 8) / 16)  # 7 tokens; three characters of three bytes
    assert not any("unknown" in note for note in outcome(Halves("pll"), tokenizer, ["the film is good."]).facts["notes"])


def test_a_vocabulary_that_drops_what_it_does_not_know_gains_nothing_either():
    letters = Tokenizer(models.BPE({name: i for i, name in enumerate([*SPECIAL, *"abc"])}, []))
    found = outcome(Halves("pll"), LoadedTokenizer(letters), ["abxxc", "☃"])
    assert found.metrics[f"pll/{METRIC}"] == pytest.approx((3 + 2 * 8 + 3 * 8) / 6) and found.facts["cut"] == {"dev": 0}


def test_rules_and_metrics_have_one_name_each():
    assert len({metric_of(rule) for rule in RULES}) == len(RULES) and metric_of("pll_within_word") == METRIC
