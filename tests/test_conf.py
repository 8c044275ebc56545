"""The YAML files: each says what it is, each has exactly the fields of its dataclass, each composes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from mlm_lab.config import compose, compose_values, instantiate
from mlm_lab.help import field_docs
from mlm_lab.leaves import find_class
from mlm_lab.run_config import RunConfig, to_dict

CONF = Path(__file__).resolve().parents[1] / "conf"
FILES = sorted(CONF.rglob("*.yaml"))
OPTIONS = [path for path in FILES if path.parent.name not in ("conf", "experiment", "arm")]
EXPERIMENTS = [path.stem for path in sorted((CONF / "experiment").glob("*.yaml"))]
RECIPES = [name for name in EXPERIMENTS if name not in ("tiny", "quickstart", "first_light") and not name.startswith("ablation")]
"""Those of papers."""
ARMS = [path.stem for path in sorted((CONF / "arm").glob("*.yaml"))]
REQUIRED = {
    "data=text": ["data.files=[x.txt]"],
    "tokenizer=pretrained": ["tokenizer.path=x"],
    "model=transformers": ["model.config.model_type=bert"],
}
"""What an option asks for that has no default."""


def name_of(path: Path) -> str:
    return f"{path.parent.name}={path.stem}"


def check_documented(cls: type) -> None:
    """Frozen, and each field by its keyword alone, documented, without a default: defaults live in the YAML only."""
    assert cls.__dataclass_params__.frozen
    documented = dict(field_docs(cls))
    for field in dataclasses.fields(cls):
        assert field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING, field.name
        assert field.kw_only and documented.get(field.name), f"{cls.__name__}.{field.name} has no docstring"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_it_begins_with_a_line_that_says_what_it_is(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "@package" not in line]
    assert lines[0].startswith("# ") and len(lines[0]) > 12


@pytest.mark.parametrize("path", OPTIONS, ids=name_of)
def test_an_option_has_exactly_the_documented_fields_of_its_dataclass_and_can_be_chosen(path: Path) -> None:
    group, word = path.parent.name, name_of(path)
    if group == "task":
        values = compose_values([f"evaluation.tasks=[{path.stem}]", f"evaluation.files.{path.stem}=y"])
        leaf = values["task"][path.stem]
    else:
        values = compose_values([word, *REQUIRED.get(word, [])])
        leaf = values[group]
    cls = find_class(leaf["_target_"], group)
    assert {name for name in leaf if name != "_target_"} == {field.name for field in dataclasses.fields(cls)}
    check_documented(cls)
    config = instantiate(values)
    assert isinstance(config.tasks[path.stem] if group == "task" else getattr(config, group), cls)


@pytest.mark.parametrize("key", ["budget", "validation", "checkpoint"])
def test_the_roots_own_leaves_have_exactly_the_fields_of_their_dataclasses(key: str) -> None:
    leaf = compose_values()[key]
    check_documented(find_class(leaf["_target_"], key))
    assert set(leaf) - {"_target_"} == {field.name for field in dataclasses.fields(find_class(leaf["_target_"], key))}


def test_the_root_has_exactly_the_fields_of_the_run_config() -> None:
    assert set(compose_values()) == {field.name for field in dataclasses.fields(RunConfig)} - {"tasks", "overrides"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name: str) -> None:
    assert to_dict(compose([f"+experiment={name}"])) != to_dict(compose())


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "tiny"])
def test_every_experiment_has_a_size_that_finishes_in_minutes(name: str) -> None:
    whole, tiny = compose([f"+experiment={name}"]), compose([f"+experiment=[{name},tiny]"])
    assert (tiny.model.num_layers, tiny.model.hidden_size, tiny.max_length, tiny.budget.tokens) == (2, 128, 128, 1e6)
    assert tiny.objective == whole.objective
    assert tiny.model.positions == whole.model.positions and tiny.model.norm_position == whole.model.norm_position


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiments_header_says_what_it_is_and_then_its_command(name: str) -> None:
    _, meaning, command, *_ = (CONF / "experiment" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    assert meaning.startswith("# ") and "python" not in meaning and not meaning.endswith(".")
    assert command.startswith("# python -m mlm_lab +experiment=") and name in command


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipes_header_says_its_paper_what_differs_and_what_it_costs(name: str) -> None:
    lines = (CONF / "experiment" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    header = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    assert re.search(r"\((\w+ )+et al\. 20\d\d, section|\(Geiping and Goldstein 20\d\d, section|\(the checkpoints of ", header)
    assert "Differs: " in header and re.search(r"Cost: (\S+ FLOPs|24 hours)", header) and f"+experiment=[{name},tiny]" in header


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_composes(name: str) -> None:
    compose([f"arm={name}"])
