"""What is installed: every package, conf/ inside it, and a wheel that runs away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def test_every_package_of_the_checkout_is_named() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {".".join(path.parent.relative_to(REPOSITORY).parts) for path in (REPOSITORY / "mlm_lab").rglob("__init__.py")}
    assert set(settings["packages"]) == found | {"mlm_lab.conf"}


def test_every_folder_with_code_is_a_package() -> None:
    assert all((path.parent / "__init__.py").exists() for path in (REPOSITORY / "mlm_lab").rglob("*.py"))


@pytest.mark.slow
def test_an_installed_wheel_runs_away_from_the_checkout(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(source)], check=True)
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)], check=True)
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    python = str(environment / "bin" / "python")
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", "--quiet", "--no-deps", str(wheel)], check=True)
    here = subprocess.run([sys.executable, "-c", "import hydra; print(hydra.__file__)"], capture_output=True, text=True, check=True)
    dependencies = Path(here.stdout.strip()).parents[1]  # the requirements as they are installed here; only mlm_lab comes from the wheel
    (next((environment / "lib").glob("python*/site-packages")) / "requirements.pth").write_text(f"{dependencies}\n")
    away = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([python, *words], capture_output=True, text=True, cwd=tmp_path, env=away)

    assert call("-c", "import mlm_lab; print(mlm_lab.__file__)").stdout.startswith(str(environment))
    assert "+experiment=" in call("-m", "mlm_lab", "--help").stdout
    shown = call("-m", "mlm_lab", "--cfg", "job", "model=mini")
    assert shown.returncode == 0 and "num_layers: 4" in shown.stdout, shown.stderr
    refused = call("-m", "mlm_lab", "batch_size=0")
    assert (refused.returncode, refused.stderr) == (2, "error: batch_size=0: must be at least 1\n")
