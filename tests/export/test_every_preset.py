"""Each option of conf/model and each experiment, under its own objective, goes out, or is refused by the key that no format can say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from mlm_lab.export.exporting import export
from tests.export.test_export import make_run

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

CONF = Path(__file__).resolve().parents[2] / "conf"
MODELS = [path.stem for path in sorted((CONF / "model").glob("*.yaml")) if path.stem != "transformers"]
EXPERIMENTS = [path.stem for path in sorted((CONF / "experiment").glob("*.yaml"))]
OBJECTIVES = [path.stem for path in sorted((CONF / "objective").glob("*.yaml"))]
NARROW = [
    "model.hidden_size=32",
    "model.num_layers=2",
    "model.num_heads=4",
    "model.intermediate_size=64",
    "max_length=48",
    "length_phases=null",
]


def check(tmp_path: Path, *words: str) -> None:
    """Exported (and so compared with what Transformers answers), or refused with a key; the encoder alone likewise."""
    _, run = make_run(tmp_path / "runs", *words, sizes=False)
    for name, alone in (("whole", False), ("encoder", True)):
        try:
            exported = export(run, tmp_path / name, encoder_only=alone)
        except UserError as error:
            assert "model." in str(error) or "objective" in str(error)
            assert not (tmp_path / name).exists()
        else:
            assert exported.largest_difference <= 1e-5 and (tmp_path / name / "model.safetensors").exists()


@pytest.mark.parametrize("model", MODELS)
def test_every_model(model: str, tmp_path: Path) -> None:
    check(tmp_path, *NARROW, f"model={model}")


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment(experiment: str, tmp_path: Path) -> None:
    check(tmp_path, *NARROW, f"+experiment={experiment}", "evaluation.tasks=[]", "model.embedding_size=16")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_on_the_smallest_preset(objective: str, tmp_path: Path) -> None:
    check(tmp_path, *NARROW, "model=tiny", f"objective={objective}")
