"""Which sources are read, and that nothing of them runs."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path

from mlm_lab.data.python_sources import SourceFile, core_distributions, distribution_files, read_docstrings, stdlib_files

SOURCE = '''"""The module is about numbers."""
raise SystemExit("a module that is imported ends the test")


class Shape(object):
    """A shape in the plane."""

    def area(self, unit, *parts, scale=1, **rest):
        """Return the area of the shape."""

    if True:
        async def move(self):
            """Move the shape to somewhere."""


try:
    def fast():
        """The fast way to do it."""
except ImportError:
    pass


def undocumented():
    return "not a docstring of anything"
'''


def install(site: Path, name: str, requires: list[str], files: dict[str, str]) -> None:
    """A distribution as pip leaves it."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {line}" for line in requires)]
    (info / "METADATA").write_text("\n".join(lines))
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))


def test_definitions_are_found_without_running_the_module(tmp_path: Path) -> None:
    path = tmp_path / "numbers.py"
    path.write_text(SOURCE)
    found = read_docstrings(SourceFile(path, "fake.numbers", "fake"))
    assert [(entry.kind, entry.qualname, entry.parameters) for entry in found] == [
        ("module", "", ()),
        ("class", "Shape", ()),
        ("function", "Shape.area", ("unit", "parts", "scale", "rest")),
        ("function", "Shape.move", ()),
        ("function", "fast", ()),
    ]
    assert found[2].sentences == ("Return the area of the shape.",)


def test_files_that_cannot_be_read_give_none(tmp_path: Path) -> None:
    for name, content in (("syntax", b"def f(:\n"), ("null", b"x = 1\0"), ("encoding", b'"""\xff\xfe"""')):
        path = tmp_path / f"{name}.py"
        path.write_bytes(content)
        assert read_docstrings(SourceFile(path, name, "fake")) is None
    assert read_docstrings(SourceFile(tmp_path / "missing.py", "missing", "fake")) is None


def test_requirements_of_extras_are_left_out(tmp_path: Path, monkeypatch) -> None:
    """Transitive requirements count, extras that a requirement names count, extras that nobody named do not; cycles end."""
    install(tmp_path, "top", ["middle>=1", "with-extra[net]", 'only-extra; extra == "test"', 'windows; sys_platform == "win32"'], {})
    install(tmp_path, "middle", ["leaf", "top", "not-installed"], {})
    install(tmp_path, "with-extra", ['net-part; extra == "net"', 'db-part; extra == "db"'], {})
    for name in ("leaf", "net-part", "db-part", "only-extra", "windows"):
        install(tmp_path, name, [], {})
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    importlib.invalidate_caches()
    assert [found.name for found in core_distributions("top")] == ["leaf", "middle", "net-part", "with-extra"]


def test_tests_and_copies_of_other_packages_are_left_out(tmp_path: Path, monkeypatch) -> None:
    files = ["a/__init__.py", "a/b.py", "a/tests/test_b.py", "a/_vendor/c.py", "a/data.txt", "a/not-a-module.py"]
    install(tmp_path, "a", [], dict.fromkeys(files, '"""About."""'))
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    importlib.invalidate_caches()
    found = distribution_files(importlib.metadata.distribution("a"))
    assert [(file.module, file.distribution) for file in found] == [("a", "a"), ("a.b", "a")]
    assert found[1].path == tmp_path / "a/b.py"
    (tmp_path / "a-1.0.dist-info/RECORD").unlink()
    assert distribution_files(importlib.metadata.distribution("a")) is None


def test_the_installed_set() -> None:
    names = {found.name.lower() for found in core_distributions()}
    assert {"torch", "numpy", "lightning", "hydra-core", "sympy", "packaging"} <= names  # the last two by way of others
    assert names.isdisjoint({"mlm_lab", "mlm-lab", "pytest", "hypothesis", "ruff", "transformers"})
    modules = [file.module for file in stdlib_files()]
    assert "json.decoder" in modules and modules == sorted(modules)
    assert not any(set(module.split(".")) & {"test", "tests", "site-packages"} for module in modules)


def test_the_language_reference_is_read() -> None:
    (file,) = (file for file in stdlib_files() if file.module == "pydoc_data.topics")
    topics = {entry.module: entry for entry in read_docstrings(file)}
    entry = topics["pydoc_data.topics.assert"]
    assert entry.kind == "topic"
    assert "The value for the built-in variable is determined when the interpreter starts." in entry.sentences
