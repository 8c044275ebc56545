"""Which part may import which: the dependency direction of the design, held by reading every import of the package."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "mlm_lab"
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"errors", "ranks", "statistics", "types"},
    {"atomic", "claim", "console", "fold", "gate", "keys", "leaves", "processes", "provenance", "run_config", "run_folder"},
    {"corruption", "tokenizers", "models", "optim"},
    {"data", "interchange", "objectives"},
    {"training"},
    {"evaluation"},
    {"stages"},
    {"config", "runner", "help"},
    {"__main__", "__init__", "export", "report", "sweep"},
]
"""A part imports its own layer and those above it in this list. Imports for type checking do not count."""
LAYER = {part: number for number, layer in enumerate(LAYERS) for part in layer}
TRAINING_LIBRARIES = {"lightning", "torch"}


class Import(NamedTuple):
    name: str
    typing_only: bool
    inside_function: bool


def part_of(module: Path) -> str:
    inside = module.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports(module: Path) -> Iterator[Import]:
    def visit(node: ast.AST, typing_only: bool, inside_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, typing_only, inside_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            yield from (Import(f"{node.module}.{alias.name}", typing_only, inside_function) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for child in node.body:
                yield from visit(child, True, inside_function)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, typing_only, inside_function or is_function)

    yield from visit(ast.parse(module.read_text(encoding="utf-8")), False, False)


def names(module: Path) -> set[str]:
    """Top-level packages that are imported, for whatever purpose but type checking."""
    return {found.name.partition(".")[0] for found in imports(module) if not found.typing_only}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_part_imports_only_what_comes_before_it(module: Path) -> None:
    part = part_of(module)
    assert part in LAYER, f"{part} has no place in the dependency direction"
    for found in imports(module):
        top, _, rest = found.name.partition(".")
        imported = rest.partition(".")[0]
        if top != "mlm_lab" or found.typing_only or imported not in LAYER:
            continue
        if found.inside_function and imported in ("config", "interchange", "training"):
            continue  # the hash asks training for the precision, interchange for a start's weights; a stage reads another run's config
        assert LAYER[imported] <= LAYER[part], f"{module.name} imports {found.name}"


@pytest.mark.parametrize("library", ["hydra", "omegaconf"])
def test_only_the_config_and_the_door_know_hydra(library: str) -> None:
    users = {part_of(module) for module in MODULES if library in names(module)}
    assert users <= {"config", "__main__"} and "config" in users


def test_objectives_and_corruption_know_neither_lightning_nor_files() -> None:
    for module in [*PACKAGE.glob("objectives/*.py"), *PACKAGE.glob("corruption/**/*.py")]:
        assert names(module).isdisjoint({"lightning", "pathlib", "os", "io", "shutil", "tempfile"}), module
        calls = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)]
        assert not any(ast.unparse(call.func) in ("open", "np.load", "np.save", "torch.load", "torch.save") for call in calls), module


def test_corruption_and_data_do_without_torch() -> None:
    for module in [*PACKAGE.glob("corruption/**/*.py"), *PACKAGE.glob("data/**/*.py"), *PACKAGE.glob("tokenizers/*.py")]:
        assert names(module).isdisjoint(TRAINING_LIBRARIES), module


def test_statistics_is_pure() -> None:
    """numpy and scipy alone: nothing that trains, no config, no file, and scipy only when a number is asked for."""
    for module in PACKAGE.glob("statistics/*.py"):
        assert names(module) <= {*sys.stdlib_module_names, "mlm_lab", "numpy", "scipy"} - {"pathlib", "os", "io", "random"}, module
        assert {found.name.split(".")[1] for found in imports(module) if found.name.startswith("mlm_lab.")} <= {"statistics"}, module
        assert not any(found.name.startswith("scipy") for found in imports(module) if not found.inside_function), module


def test_the_run_folder_can_be_read_without_what_trains() -> None:
    for name in ["run_folder", "atomic", "claim", "run_config", "errors", "ranks", "types", "console", "leaves"]:
        at_import = {
            found.name.partition(".")[0] for found in imports(PACKAGE / f"{name}.py") if not (found.inside_function or found.typing_only)
        }
        assert at_import.isdisjoint({*TRAINING_LIBRARIES, "hydra", "omegaconf", "transformers", "datasets", "rich"}), name


def test_no_file_is_named_for_holding_anything() -> None:
    """A file is one idea, and its name says which."""
    for module in MODULES:
        assert module.stem not in {"utils", "util", "helpers", "helper", "common", "misc", "tools"}, module


def test_every_file_says_its_idea_first() -> None:
    for module in MODULES:
        text = module.read_text(encoding="utf-8")
        assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{module} has no docstring"


def test_the_report_reads_files_and_imports_nothing_that_trains() -> None:
    for module in PACKAGE.glob("report/*.py"):
        assert names(module).isdisjoint({*TRAINING_LIBRARIES, "hydra", "omegaconf"}), module
        used = {found.name.split(".")[1] for found in imports(module) if found.name.startswith("mlm_lab.")}
        allowed = {"__main__", "atomic", "config", "console", "errors", "fold", "keys", "report", "run_config", "statistics", "sweep"}
        pure = {found.name for found in imports(module) if found.name.startswith("mlm_lab.evaluation.")}
        assert used <= allowed | {"evaluation"} and pure <= {"mlm_lab.evaluation.spans.extract_spans"}, module
