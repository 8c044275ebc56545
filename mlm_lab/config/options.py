"""conf/ and a user's own folder beside it: the groups, and the options in each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader


def conf_dir() -> Path:
    """The YAML files: packaged as mlm_lab/conf in a wheel, conf/ beside the package in a checkout."""
    package = Path(__file__).parents[1]
    packaged = package / "conf"
    return packaged if packaged.is_dir() else package.resolve().parent / "conf"


def header(path: Path) -> str:
    """The first comment of the file that is not an instruction to Hydra: what the option is."""
    with path.open(encoding="utf-8") as lines:
        comments = (line[1:].strip() for line in lines if line.startswith("#"))
        return next((text for text in comments if not text.startswith("@package")), "")


def make_loader(config_dir: Path | str | None) -> ConfigLoader:
    """Hydra's loader over conf/ and config_dir, without Hydra's global state: a job of a multirun may compose too."""
    from hydra import version
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_config_search_path
    from hydra.core.utils import setup_globals

    version.setbase("1.3")
    setup_globals()
    path = create_config_search_path(str(conf_dir()))
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise UserError("--config-dir: there is no such folder", given=config_dir)
        path.prepend("command-line", f"file://{Path(config_dir).resolve()}", "schema")
    return ConfigLoaderImpl(path)


class Options:
    """The groups of conf/ and the options in each."""

    def __init__(self, loader: ConfigLoader):
        self._loader = loader
        self.groups = [name for name in loader.list_groups("") if name != "hydra"]

    def is_group(self, key: str) -> bool:
        return key in self.groups and key != "task"

    def of(self, group: str) -> list[str]:
        return self._loader.get_group_options(group)

    def word(self, group: str, option: str) -> str:
        """The choice in Hydra's spelling. Experiments are not in the defaults list and are added; an arm is added after them, because
        what is under test goes before the experiment's own choice."""
        return {"experiment": f"+experiment={option}", "arm": f"+arm@_global_={option}"}.get(group, f"{group}={option}")
