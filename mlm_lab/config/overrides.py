"""The words of a command line: read, and spelt in one way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.config.options import Options, make_loader
from mlm_lab.errors import refuse

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


def parse(overrides: Iterable[str]) -> list[Override]:
    """The words as Hydra reads them. Raises UserError with every one that it cannot read."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, parsed, unreadable = OverridesParser.create(), [], []
    for text in overrides:
        try:
            parsed.append(parser.parse_override(text))
        except HydraException as error:
            reason = "" if "=" not in text else f": {str(error).splitlines()[0]}"
            unreadable.append(f"{text}{reason}")
    hint = "key=value; a value with blanks, commas, brackets or other signs in two quotes: 'data.files=\"a (b).txt\"'"
    refuse("these words cannot be read", unreadable, hint)
    return parsed


def normalise(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides as they are recorded: without Hydra's own words, and each spelt in one way."""
    return tuple(_plain_word(override) for override in parse(overrides) if not override.is_hydra_override())


def words_for_hydra(overrides: Sequence[str], config_dir: Path | str | None = None) -> list[str]:
    """The overrides, spelt so that Hydra's own multirun takes them: it refuses a key that an open mapping does not hold yet without `++`,
    and null as a group's option."""
    options, words = Options(make_loader(config_dir)), []
    for override in parse(overrides):
        word, (key, _, value) = override.input_line, _plain_word(override).lstrip("+").partition("=")
        if options.is_group(key):
            word = options.word(key, re.sub(r"\bnull\b", "none", value))
        elif not override.is_hydra_override():
            word = f"++{key}={value}"
        words.append(word)
    return words


def _plain_word(override: Override) -> str:
    key, value = override.key_or_group, override.input_line.partition("=")[2]
    return f"{'+' if key == 'experiment' else ''}{key}={value}"


def first_values(overrides: Sequence[str]) -> list[str]:
    """The overrides of a multirun with the first of several values: one point of it, to check before any runs."""
    from hydra.core.override_parser.types import ValueType

    words = []
    for override in parse(overrides):
        if override.is_sweep_override() and override.value_type != ValueType.GLOB_CHOICE_SWEEP:
            words.append(f"{override.input_line.partition('=')[0]}={next(iter(override.sweep_string_iterator()))}")
        else:
            words.append(override.input_line)
    return words


def each_value(word: str) -> tuple[str, list[str]]:
    """The key of an override, and every value that it gives: seed=0,1,2 -> seed, [0, 1, 2]; one value where it is no sweep.

    Raises UserError where it cannot be read.
    """
    from hydra.core.override_parser.types import ValueType

    (override,) = parse([word])
    if override.is_sweep_override() and override.value_type != ValueType.GLOB_CHOICE_SWEEP:
        return override.key_or_group, list(override.sweep_string_iterator())
    key, _, value = _plain_word(override).partition("=")
    return key, [value]
