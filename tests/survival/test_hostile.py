"""Files that try to run something, to lead out of their folder, to put markup into the report, or a secret into a record: each is data."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from mlm_lab import __main__
from mlm_lab.config import compose, load
from mlm_lab.data.token_store import MANIFEST, TokenStore
from mlm_lab.errors import UserError
from mlm_lab.interchange.folder import HuggingFaceFolder
from mlm_lab.report.__main__ import main as report
from mlm_lab.sweep.__main__ import main as sweep
from mlm_lab.tokenizers.loading import load as load_tokenizer
from mlm_lab.training import checkpoint
from mlm_lab.training.weights import load_weights
from tests.report import synthetic
from tests.sweeps.test_files import SWEEPS
from tests.training.tiny_run import make_config, make_course

REPOSITORY = Path(__file__).resolve().parents[2]


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, sign: Path):
        self.sign = sign

    def __reduce__(self):
        return os.mkdir, (str(self.sign),)


@pytest.fixture
def sign(tmp_path: Path) -> Path:
    """What must not be there afterwards."""
    path = tmp_path / "it_ran"
    yield path
    assert not path.exists()


# ---- checkpoints and weights


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_checkpoint_whose_digest_is_right_is_still_data(tmp_path, sign, in_parts):
    folder = tmp_path / "checkpoints"
    file = tmp_path / "bomb"
    torch.save({"step": Bomb(sign)}, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if in_parts:
        name = f"rank-0000.{digest}.part"
        place = folder / f"step-00000010.{hashlib.sha256(name.encode()).hexdigest()}.ckpt"
        place.mkdir(parents=True)
        file.rename(place / name)
    else:
        folder.mkdir()
        file.rename(folder / f"step-00000010.{digest}.ckpt")
    with pytest.raises(UserError, match="no checkpoint of this program"):
        checkpoint.load_last(folder)


def test_weights_that_are_a_pickle_are_no_weights(tmp_path, sign):
    torch.save({"encoder": Bomb(sign)}, tmp_path / "weights.safetensors")
    with pytest.raises(UserError, match="the weights are damaged"):
        load_weights(make_course(make_config()).module, tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    torch.save({"encoder": Bomb(sign)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="no weights that can be read safely"):
        HuggingFaceFolder(tmp_path).weight_files()
    (tmp_path / "weights.safetensors").rename(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="the weights are damaged"):
        HuggingFaceFolder(tmp_path).state()


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": "../../outside.safetensors"}}', '{"weight_map": {"a": 7}}']
)
def test_a_list_of_weight_files_leads_nowhere_else(tmp_path, content):
    folder = tmp_path / "a" / "model"
    folder.mkdir(parents=True)
    (tmp_path / "outside.safetensors").write_bytes(b"")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(UserError, match=r"cannot be read|no weights that can be read"):
        HuggingFaceFolder(folder).weight_files()


def test_a_store_of_pickled_arrays_is_refused(tmp_path, sign):
    import numpy as np

    (tmp_path / "train").mkdir()
    np.save(tmp_path / "train/tokens.npy", np.array([Bomb(sign)], dtype=object), allow_pickle=True)
    vocabulary = {
        name: getattr(make_course(make_config()).train.vocabulary, name)
        for name in ("size", "padded_size", "pad_id", "unk_id", "cls_id", "sep_id", "mask_id", "special_ids", "sentinel_ids", "fingerprint")
    }
    counts = {"train": {"tokens": 1}, "validation": {"tokens": 1}}
    manifest = {
        "fingerprint": "f",
        "text": "t",
        "tokenizer": "k",
        "code": 1,
        "counts": counts,
        "files": [],
        "vocabulary": vocabulary,
        "found": [],
    }
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="the token store is damaged"):
        TokenStore.open(tmp_path, "train")


def test_a_tokenizer_file_is_data(tmp_path, sign):
    import pickle

    (tmp_path / "tokenizer.json").write_bytes(pickle.dumps(Bomb(sign)))
    with pytest.raises(UserError, match=r"not a tokenizer\.json"):
        load_tokenizer(tmp_path)
    shutil.copy(REPOSITORY / "tests/survival/__init__.py", tmp_path / "tokenization_mine.py")
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["tokenization_mine.Mine", null]}}')
    with pytest.raises(UserError, match=r"not a tokenizer\.json"):
        load_tokenizer(tmp_path)


# ---- YAML and _target_

PYTHON = ["!!python/object/apply:os.mkdir ['{sign}']", "!!python/object/new:os.mkdir ['{sign}']", "!!python/name:os.mkdir"]


@pytest.mark.parametrize("payload", PYTHON)
def test_yaml_is_loaded_safely_at_every_door(tmp_path, sign, payload, monkeypatch, capsys):
    payload = payload.format(sign=sign)
    run = tmp_path / "runs" / "0123456789ab"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(f"study: ratios\nobjective: {payload}\n")
    (run / "summary.json").write_text("{}")
    with pytest.raises(UserError, match="config cannot be read"):
        load(run)
    assert __main__.main([f"pretrained={run}"]) == 2
    (tmp_path / "options/model").mkdir(parents=True)
    (tmp_path / "options/model/evil.yaml").write_text(f"# evil\n_target_: {payload}\n")
    assert __main__.main(["model=evil", "--config-dir", str(tmp_path / "options")]) == 2
    (tmp_path / "evil.yaml").write_text(f"method: {payload}\n")
    assert sweep([str(tmp_path / "evil.yaml")]) == 2
    synthetic.write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert report(["ratios"]) == 0
    said = capsys.readouterr()
    assert "Traceback" not in said.err and "0123456789ab" in said.err, "told as left out of the report"


def test_a_target_is_refused_through_a_sweep_file_and_its_parameters(tmp_path, capsys):
    """Parameters of W&B's agent arrive as words of the command line, which tests/test_config.py tries too."""
    for name, change in {
        "parameter": lambda values: values["parameters"].update({"model._target_": {"values": ["os.system", "os.mkdir"]}}),
        "command": lambda values: values["command"].insert(-1, "optim._target_=os.system"),
    }.items():
        values = yaml.safe_load((SWEEPS / "mask_ratio.yaml").read_text())
        change(values)
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(values))
        assert sweep([str(tmp_path / f"{name}.yaml")]) == 2
        assert "_target_ is not one that a config may name" in capsys.readouterr().err
    study = tmp_path / "study.yaml"
    values["command"].remove("optim._target_=os.system")
    values["description"] = "question: What?\nfactor: !!python/name:os.mkdir\n"
    study.write_text(yaml.safe_dump(values))
    assert sweep([str(study)]) == 2 and "not YAML" in capsys.readouterr().err


def test_no_resolver_of_omegaconf_reaches_a_file_or_a_secret(monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "planted")
    for name in ("WANDB_API_KEY", "hf_token", "AWS_SECRET_ACCESS_KEY", "PASSWORD"):
        with pytest.raises(UserError, match="a secret of the environment"):
            compose([f"tags=[x,'${{oc.env:{name},none}}']"])
    assert __main__.main(["study=${oc.env:WANDB_API_KEY}"]) == 2
    assert "planted" not in capsys.readouterr().err
    monkeypatch.setenv("TOKENIZERS_THING", "plain")
    assert compose(["study=${oc.env:TOKENIZERS_THING}"]).study == "plain"
    assert __main__.main(["study=${python:1}"]) == 2 and "cannot be composed" in capsys.readouterr().err


# ---- paths


def test_names_lead_out_of_no_folder(tmp_path, capsys, monkeypatch):
    """A task's name makes a folder below the run's; a study's name one below experiments/."""
    monkeypatch.chdir(tmp_path)
    assert __main__.main(["evaluation.tasks=[../../outside]", "evaluation.files={../../outside: x.csv}"]) == 2
    assert report(["../outside"]) == 2 and "a study's name is no path" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ---- the report


def test_what_comes_from_runs_is_text_in_the_report(tmp_path, monkeypatch):
    markup = '<script>alert("run")</script><img src=x onerror=alert(1)>'
    folders = synthetic.write_study(tmp_path)
    synthetic.edit_summary(folders[1], status="failed", weights_sha256=None, evaluation={}, error=f"UserError: {markup}")
    hardware = {"cpu": markup, "host": markup, "system": markup}
    for folder in folders:
        synthetic.edit_summary(folder, hardware=hardware, git_commit=markup)
    path = tmp_path / "sweeps" / "ratios.yaml"
    path.write_text(path.read_text().replace("Which masking ratio serves", f"Which {markup} serves"))
    monkeypatch.chdir(tmp_path)
    assert report(["ratios"]) == 0
    page = (tmp_path / "experiments/ratios/report.html").read_text()
    assert "&lt;script&gt;" in page, "it is shown"
    assert markup not in page and "<script>alert" not in page and "<img" not in page
    for drawing in (tmp_path / "experiments/ratios").glob("*.svg"):
        assert "<script" not in drawing.read_text()
