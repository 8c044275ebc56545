"""Evaluation sets on the Hugging Face hub: asked for before anything is prepared."""

from __future__ import annotations

from mlm_lab.errors import UserError


def check_hub_set(task: str, name: str, config: str | None, column: str, split: str, folder: str) -> None:
    """Ask the hub, or its cache on this machine, for a set.

    Args:
        column: that the set must have; split: likewise.
        folder: what evaluation.data_dir would have to hold instead.

    Raises:
        UserError: out of reach, or no such set.
    """
    from mlm_lab.data.corpora.hub import Hub

    source = Hub(
        name=name,
        config=config,
        revision=None,
        split=split,
        validation_split=None,
        validation_share=0.5,
        text_column=column,
        heading=None,
        streaming=False,
    )
    try:
        source.check()
    except UserError as error:
        fix = f"give a folder that has {folder}: evaluation.data_dir=PATH"
        raise UserError(f"task {task}: {error.problem}", where=error.where, given="evaluation.data_dir=null", fix=fix) from None
