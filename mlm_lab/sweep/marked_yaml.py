"""YAML whose mistakes name their lines: in a sweep file, and in the YAML inside its description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm_lab.errors import UserError, refuse
from mlm_lab.keys import suggest

if TYPE_CHECKING:
    import yaml


class Mistakes:
    """What is wrong with a file, in the order of its lines."""

    def __init__(self, path: Path, lines: Mapping[str, int]):
        self._path, self._lines, self.found = path, lines, []

    def add(self, key: str, text: str) -> None:
        """Note a mistake at a key's line, or at that of what holds the key."""
        while key and key not in self._lines:
            key = key.rpartition(".")[0]
        self.found.append((self._lines.get(key, 1), text))

    def expect(self, key: str, holds: bool, text: str) -> None:
        if not holds:
            self.add(key, text)

    def mapping(self, key: str, value: Any, allowed: tuple[str, ...], needed: tuple[str, ...] = ()) -> dict[str, Any]:
        """The mapping that stands at `key`, its unknown and missing keys noted; {} where it is none."""
        name = key.removeprefix("description.")
        if not isinstance(value, Mapping):
            self.add(key, f"{name}: must be a mapping of {', '.join(allowed)}")
            return {}
        for word in value:
            if word not in allowed:
                self.add(f"{key}.{word}", f"{name}: unknown key {word!r}{suggest(str(word), allowed)} ({', '.join(allowed)})")
        if missing := [word for word in needed if value.get(word) is None]:
            self.add(key, f"{name}: {', '.join(missing)} is missing")
        return dict(value)

    def refuse(self) -> None:
        """Raises UserError with all that were noted, if there are any."""
        refuse(f"{self._path}: not a sweep file", [f"line {line}: {text}" for line, text in sorted(self.found, key=lambda found: found[0])])


class Source:
    """The file as plain values, with the line of every key, those inside the description's own YAML too."""

    def __init__(self, path: Path, keys: tuple[str, ...]):
        """keys: those of the top level, for messages."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            there = sorted(str(file) for folder in {path.parent, Path("sweeps")} for file in folder.glob("*.yaml"))
            near = suggest(str(path), there) or suggest(f"sweeps/{path.stem}.yaml", there)
            raise UserError(
                f"the sweep file cannot be read: {error.strerror}{near}", where=str(path), fix="sweeps/ holds those there are"
            ) from None
        except UnicodeDecodeError as error:
            raise UserError("the sweep file is not UTF-8", where=str(path), given=str(error)) from None
        self.lines: dict[str, int] = {}
        self.mistakes = Mistakes(path, self.lines)
        self.values = self._load(path, text, "", 1)
        if not isinstance(self.values, dict):
            raise UserError("not a sweep file: it holds no mapping", where=str(path), allowed=", ".join(keys))
        description = self.values.get("description")
        if isinstance(description, str):
            first = self.lines["description"]
            block = re.match(r"description:\s*[|>]", text.splitlines()[first - 1])
            self.values["description"] = self._load(path, description, "description", first + bool(block))

    def _load(self, path: Path, text: str, prefix: str, first_line: int) -> Any:
        import yaml

        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            if node is None:
                return None
            if prefix and not _is_mapping_of_words(node):
                return text
            self._mark(node, prefix, first_line)
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            if prefix and not re.match(r"\w+:", text):
                return text  # prose, with a sign that YAML would read otherwise
            mark = getattr(error, "context_mark", None) or getattr(error, "problem_mark", None)
            where = f"{path}, line {mark.line + first_line}" if mark else str(path)
            raise UserError(f"this is not YAML: {getattr(error, 'problem', None) or error}", where=where) from None

    def _mark(self, node: yaml.Node, prefix: str, first_line: int) -> None:
        import yaml

        if not isinstance(node, yaml.MappingNode):
            return
        for name, value in node.value:
            key = f"{prefix}.{name.value}" if prefix else str(name.value)
            if key in self.lines:
                self.mistakes.add(key, f"{name.value}: given a second time in line {name.start_mark.line + first_line}")
            else:
                self.lines[key] = name.start_mark.line + first_line
                self._mark(value, key, first_line)


def _is_mapping_of_words(node: yaml.Node) -> bool:
    """Not prose, of which a colon makes a mapping too."""
    import yaml

    return isinstance(node, yaml.MappingNode) and all(re.fullmatch(r"\w+", name.value) for name, _ in node.value)
