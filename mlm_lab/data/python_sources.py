"""Which Python modules are installed by the language and by the project's core requirements, and what their source documents.

Found from package metadata and read with `ast`: nothing is imported or run. Requirements of extras are left out, so that installing an
extra changes nothing; the project itself is left out too.
"""

from __future__ import annotations

import ast
import gc
import importlib.metadata
import sysconfig
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mlm_lab
from mlm_lab.data.docstrings import prose

PROJECT = "mlm_lab"
LARGEST_FILE = 2_000_000
"""Bytes; larger sources are generated tables."""
SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "idle_test", "_internal", "vendor", "vendored", "_vendor", "third_party", "turtledemo", "site-packages")
)
"""Tests, and copies of other packages."""
TOPICS = "pydoc_data.topics"


class SourceFile(NamedTuple):
    path: Path
    module: str
    """Dotted name."""
    distribution: str
    """Name of the distribution that installed it; "python" for the standard library."""


class Docstring(NamedTuple):
    """A documented definition, before duplicates are dropped."""

    module: str
    distribution: str
    qualname: str
    """Inside the module; empty for the module itself."""
    kind: str
    """"module", "class", "function" (methods too) or "topic" (a chapter of the language reference)."""
    parameters: tuple[str, ...]
    sentences: tuple[str, ...]


def core_distributions(project: str = PROJECT) -> list[importlib.metadata.Distribution]:
    """The installed distributions that the project requires, directly or not, without extras; sorted by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(Requirement(text), frozenset(("",))) for text in _requirements(project)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, extras = waiting.pop()
        name = canonicalize_name(requirement.name)
        wanted = frozenset(("", *requirement.extras))
        if requirement.marker is not None and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # needed on another platform only, or left out by hand
            continue
        waiting += [(Requirement(text), wanted) for text in found[name].requires or ()]
    return [found[name] for name in sorted(found) if name != canonicalize_name(project)]


def _requirements(project: str) -> list[str]:
    try:
        return importlib.metadata.requires(project) or []
    except importlib.metadata.PackageNotFoundError:  # a bare checkout on the path
        pyproject = Path(mlm_lab.__file__).parent.parent / "pyproject.toml"
        return tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["dependencies"]


def has_stdlib() -> bool:
    """Whether the standard library is there as source files (it may be compiled only, or in an archive)."""
    return Path(sysconfig.get_path("stdlib"), "abc.py").is_file()


def stdlib_files() -> list[SourceFile]:
    """The standard library's modules, sorted by name; its tests left out."""
    root = Path(sysconfig.get_path("stdlib"))
    return _source_files(root, (path.relative_to(root) for path in root.rglob("*.py")), "python")


def distribution_files(distribution: importlib.metadata.Distribution) -> list[SourceFile] | None:
    """The modules that a distribution installed, sorted by name; None where it has no list of its files."""
    if distribution.files is None:
        return None
    relative = (Path(file) for file in distribution.files if file.name.endswith(".py"))
    return _source_files(Path(str(distribution.locate_file(""))), relative, canonicalize_name(distribution.metadata["Name"]))


def _source_files(root: Path, relative: Iterator[Path], distribution: str) -> list[SourceFile]:
    found = []
    for path in relative:
        parts = path.with_suffix("").parts
        names = parts[:-1] if parts[-1] == "__init__" else parts
        if names and SKIPPED_FOLDERS.isdisjoint(parts) and all(name.isidentifier() for name in names):
            found.append(SourceFile(root / path, ".".join(names), distribution))
    return sorted(found, key=lambda file: file.module)


def read_docstrings(file: SourceFile) -> list[Docstring] | None:
    """The documented definitions of a source file, in order; None where it cannot be read or parsed."""
    try:
        if file.path.stat().st_size > LARGEST_FILE:
            return None
        tree = _parsed(file.path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if file.module == TOPICS:
        return list(_topics(tree))
    found = [_docstring(file, tree, "", "module", ()), *_definitions(file, tree.body, "")]
    return [docstring for docstring in found if docstring is not None]


def _parsed(source: bytes) -> ast.Module:
    """Parse with the garbage collector off: a tree has no cycles, and going through its many nodes takes a third of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's sources
            return ast.parse(source)
    finally:
        if collects:
            gc.enable()


def _topics(tree: ast.Module) -> Iterator[Docstring]:
    """The chapters of the language reference; each counts as a module of its own, so that they are split like modules."""
    (table,) = (node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict))
    for name, text in sorted(ast.literal_eval(table).items()):
        if sentences := tuple(prose(text)):
            yield Docstring(f"{TOPICS}.{name}", "python", "", "topic", (), sentences)


def _definitions(file: SourceFile, body: list[ast.stmt], prefix: str) -> Iterator[Docstring | None]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield _docstring(file, node, prefix + node.name, "class", ())
            yield from _definitions(file, node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _docstring(file, node, prefix + node.name, "function", _parameters(node.args))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(file, [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)], prefix)


def _docstring(file: SourceFile, node: ast.AST, qualname: str, kind: str, parameters: tuple[str, ...]) -> Docstring | None:
    text = ast.get_docstring(node)
    sentences = tuple(prose(text)) if text else ()
    return Docstring(file.module, file.distribution, qualname, kind, parameters, sentences) if sentences else None


def _parameters(arguments: ast.arguments) -> tuple[str, ...]:
    named = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return tuple(argument.arg for argument in named if argument is not None and argument.arg not in ("self", "cls"))
