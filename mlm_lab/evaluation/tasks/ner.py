"""Named entities (traps.md 32): CoNLL columns, entity-level F1 on words, the encoder fine-tuned or frozen under a BiLSTM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlm_lab.errors import UserError
from mlm_lab.evaluation.conll import label_names, read_conll
from mlm_lab.evaluation.files import find_file
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import Check, FineTunedTask, TaskData

STEMS = {"train": ("train",), "dev": ("valid", "dev"), "test": ("test*",)}
SUFFIXES = (".txt", ".conll")
MODES = ("finetune", "feature_based")


@dataclass(frozen=True, kw_only=True)
class Ner(FineTunedTask):
    """Entities of one corpus. dev is what is reported; a test part, where there is one, is reported as test/f1 and never mixed with it."""

    folder: str
    """Folder under evaluation.data_dir/ner/, or, with a slash in it, under evaluation.data_dir itself (zh/ner-msra)."""
    mode: str
    """finetune, or feature_based: encoder frozen, its last min(4, layers) layers concatenated, a two-layer BiLSTM of its width.

    The layout is that of Devlin et al. 2019, section 5.3, with the width of the encoder in place of 768, and no CRF."""
    word_prefix: str
    """Taken off the front of every word (WikiANN writes "en:word")."""
    document_context: bool
    """Read each sentence between as much of its document as max_length holds, left and right; only its own words are learnt and predicted.

    The "maximal document context" of Devlin et al. 2019, section 5.3. Documents start at -DOCSTART- lines; without any, sentences stay
    alone."""

    def checks(self) -> tuple[Check, ...]:
        return (*super().checks(), ("mode", self.mode, self.mode in MODES, "one of " + ", ".join(MODES)))

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("f1", "precision", "recall")

    @property
    def feature_based(self) -> bool:
        return self.mode == "feature_based"

    def pools(self, evaluation: Evaluation) -> bool:
        return False

    def check(self, evaluation: Evaluation) -> None:
        corpus_files(self.name, self.folder, evaluation)

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        files = corpus_files(self.name, self.folder, evaluation)
        parts = {part: read_conll(file, self.word_prefix, documents=self.document_context) for part, file in files.items()}
        names = label_names(*parts.values())
        alone = [files[part].name for part, examples in parts.items() if self.document_context and not examples[0].document]
        notes = (f"no document context in {', '.join(alone)}: no -DOCSTART- lines",) if alone else ()
        return TaskData("tagging", names, parts.pop("train"), parts.pop("dev"), extra=parts, notes=notes)


def corpus_files(task: str, folder: str, evaluation: Evaluation) -> dict[str, Path]:
    """part -> file of a corpus under evaluation.data_dir (folder as in `Ner.folder`). Raises UserError where train or dev is missing."""
    folder = folder if "/" in folder else f"ner/{folder}"
    if evaluation.data_dir is None:
        raise UserError(
            f"task {task} is read from files",
            given="evaluation.data_dir=null",
            fix=f"give a folder that has {folder}/train.txt: evaluation.data_dir=PATH",
        )
    place = Path(evaluation.data_dir).expanduser() / folder
    files = {part: find_file(place, stems, SUFFIXES) for part, stems in STEMS.items()}
    for part in ("train", "dev"):
        if files[part] is None:
            raise UserError(
                f"task {task}: the {part} file is missing",
                where=str(place),
                given=f"evaluation.data_dir={evaluation.data_dir}",
                allowed=" or ".join(f"{stem}.txt" for stem in STEMS[part]) + ", also .conll, also .gz",
            )
    return {part: file for part, file in files.items() if file is not None}
