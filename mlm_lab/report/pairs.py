"""What two arms share seed by seed, and so what pairing them takes out of their difference."""

from __future__ import annotations

from collections.abc import Sequence

from mlm_lab.report.comparable import TARGET
from mlm_lab.report.rows import CONFIG, Row

_OBJECTIVE = f"{CONFIG}objective."
_FORMAT = f"{_OBJECTIVE}input_format"
_ORDER = ("fingerprints/store", f"{CONFIG}max_length", f"{CONFIG}length_phases", f"{CONFIG}batch_size")
_MASKS = (TARGET, *(f"{CONFIG}objective.{key}" for key in ("unit", "mask_count", "input_format", "duplicates")))
_ROWS = tuple(_OBJECTIVE + key for key in ("short_seq_prob", "cross_documents"))
"""What sentence pairs and windows of raw text are cut by."""
_WINDOWS = tuple(_OBJECTIVE + key for key in ("mask_ratio", "final_mask_ratio", "mean_span_length"))
"""What the length of a window of raw text follows from."""
_OWN_SEEDS = {"weights": "init", "order": "order", "masks": "corruption"}


def shared(arm: Sequence[Row], baseline: Sequence[Row]) -> list[str]:
    """What runs of the two arms with one seed have in common: initial weights (of equal shapes), the order of the text, the draws of the
    masks (nested where the ratios differ).

    arm, baseline: finished runs. Nothing is shared where no seed is.
    """
    theirs = {row.get("seed"): row for row in baseline}
    pairs = [(row, theirs[row.get("seed")]) for row in arm if row.get("seed") and row.get("seed") in theirs]
    if not pairs:
        return []
    found = []
    one_model = all(_alike(pair, ["parameters", TARGET, "fingerprints/tokenizer"], f"{CONFIG}model.") for pair in pairs)
    one_order = all(_alike(pair, _ORDER) and _rows_alike(pair) for pair in pairs)
    for name, holds in (("weights", one_model), ("order", one_order), ("masks", one_order and all(_alike(pair, _MASKS) for pair in pairs))):
        if holds and all(_alike(pair, [f"{CONFIG}seeds.{_OWN_SEEDS[name]}"]) for pair in pairs):
            found.append(name)
    return found


def _rows_alike(pair: tuple[Row, Row]) -> bool:
    """Whether both cut the text into the same rows: packed ones by their format alone; pairs and windows by their objective's keys."""
    if all(row.get(_FORMAT) for row in pair):
        return _alike(pair, [_FORMAT])
    windows = _WINDOWS if any(f"{_OBJECTIVE}cross_documents" in row for row in pair) else ()
    return _alike(pair, [TARGET, *_ROWS, *windows])


def _alike(pair: tuple[Row, Row], columns: Sequence[str], prefix: str | None = None) -> bool:
    ours, theirs = pair
    further = [column for column in {*ours, *theirs} if prefix is not None and column.startswith(prefix)]
    return all(ours.get(column) == theirs.get(column) for column in [*columns, *further])
