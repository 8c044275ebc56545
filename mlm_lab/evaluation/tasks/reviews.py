"""Texts with a class each, from a folder of evaluation.data_dir: train and dev (and test) as jsonl, csv or tsv."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mlm_lab.errors import UserError
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.tasks.own import Own


@dataclass(frozen=True, kw_only=True)
class Reviews(Own):
    """Classification, read as a task of your own is, from a place that is known."""

    folder: str
    """Folder under evaluation.data_dir."""

    def _files(self, evaluation: Evaluation) -> dict[str, Path]:
        if evaluation.data_dir is None:
            raise UserError(
                f"task {self.name} is read from files",
                given="evaluation.data_dir=null",
                fix=f"give a folder that has {self.folder}/train.jsonl: evaluation.data_dir=PATH",
            )
        place = str(Path(evaluation.data_dir).expanduser() / self.folder)
        return super()._files(replace(evaluation, files={self.name: place, **evaluation.files}))
