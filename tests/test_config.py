"""From overrides to a frozen config, and from a config to the hashes that name its results."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer, models

from mlm_lab.config import compose, compose_values, instantiate, load
from mlm_lab.config.overrides import normalise
from mlm_lab.errors import InvalidFields, Problem, UserError
from mlm_lab.leaves import build, coerce, find_class
from mlm_lab.run_config import RunConfig, config_hash, evaluation_key, measured_how, store_key, to_dict, to_yaml
from mlm_lab.run_folder import RunFolder

REPOSITORY = Path(__file__).resolve().parents[1]
PRECISION = "trainer.precision=32-true"  # so that the hash needs not ask the machine


@pytest.fixture
def own_options(tmp_path: Path) -> Path:
    """A --config-dir with an experiment and two arms."""
    folder = tmp_path / "conf"
    files = {
        "experiment/first.yaml": "defaults:\n  - override /model: mini\nbudget:\n  steps: 7\nbatch_size: 5\ntask:\n  cola: {epochs: 9}\n",
        "experiment/second.yaml": "batch_size: 6\n",
        "experiment/wrong.yaml": "objective:\n  mask_ration: 0.2\nnonsense: {a: 1, b: 2}\n",
        "arm/wide.yaml": "defaults:\n  - override /model: small\nobjective:\n  mask_ratio: 0.4\nbatch_size: 7\n",
        "model/mine.yaml": (REPOSITORY / "conf/model/tiny.yaml").read_text(),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text if name.startswith("model") else f"# @package _global_\n# one for the tests\n{text}")
    return folder


# ---- composing


def test_defaults_are_a_frozen_config_of_frozen_leaves() -> None:
    config = compose()
    assert isinstance(config, RunConfig)
    leaves = [config, *(value for value in vars(config).values() if dataclasses.is_dataclass(value))]
    assert len(leaves) >= 12
    for leaf in leaves:
        with pytest.raises(dataclasses.FrozenInstanceError):
            leaf.seed = 1


@pytest.mark.parametrize("text", ["12_000", "12e3", "12000", "1.2e4"])
def test_sizes_read_well(text: str) -> None:
    config = compose([f"budget.steps={text}", f"max_length={text}"])
    assert config.budget.steps == 12_000 and isinstance(config.budget.steps, int) and config.max_length == 12_000


def test_one_seed_sets_the_four_and_each_may_be_set_apart() -> None:
    seeds = compose(["seed=7", "seeds.order=9"]).seeds
    assert dataclasses.astuple(seeds) == (7, 9, 7, 7)


def test_paths_know_the_home_folder_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLM_LAB_CACHE", raising=False)
    assert compose().cache_dir == Path.home() / ".cache" / "mlm_lab"
    monkeypatch.setenv("MLM_LAB_CACHE", "/elsewhere")
    assert compose().cache_dir == Path("/elsewhere")


@pytest.mark.parametrize("name", ["steps", "flops", "hours"])
def test_a_budget_on_the_command_line_replaces_the_inherited_one(name: str) -> None:
    budget = compose([f"budget.{name}=3"]).budget
    assert {key: value for key, value in vars(budget).items() if value is not None} == {name: 3}


def test_a_budget_of_an_experiment_replaces_the_default_and_the_command_line_both(own_options: Path) -> None:
    budget = compose(["+experiment=first"], own_options).budget
    assert (budget.steps, budget.tokens) == (7, None)
    budget = compose(["+experiment=first", "budget.tokens=1e6"], own_options).budget
    assert (budget.steps, budget.tokens) == (None, 1e6)


def test_two_budgets_on_the_command_line_are_an_error() -> None:
    with pytest.raises(UserError, match=r"two budgets are given\n.*budget\.steps=3 budget\.hours=1"):
        compose(["budget.steps=3", "budget.hours=1"])


def test_an_experiment_goes_before_the_defaults_an_arm_before_the_experiment_the_command_line_before_all(own_options: Path) -> None:
    hidden = {size: compose([f"model={size}"]).model.hidden_size for size in ("mini", "small")}
    config = compose(["experiment=first"], own_options)
    assert (config.batch_size, config.model.hidden_size) == (5, hidden["mini"])
    config = compose(["arm=wide", "+experiment=first"], own_options)
    assert (config.batch_size, config.objective.mask_ratio) == (7, 0.4)
    assert compose(["arm=wide", "+experiment=first", "batch_size=8"], own_options).batch_size == 8
    assert compose(["+experiment=[first,second]"], own_options).batch_size == 6
    assert compose(["arm=wide"], own_options).model.hidden_size == hidden["small"]


@pytest.mark.parametrize("word", ["arm=null", "arm=none"])
def test_no_arm_is_an_arm_too(word: str) -> None:
    assert compose([word]) == compose()


def test_own_options_come_from_the_config_dir(own_options: Path) -> None:
    assert compose(["model=mine"], own_options).model == compose(["model=tiny"]).model
    with pytest.raises(UserError, match="no such folder"):
        compose(config_dir=own_options / "missing")


def test_tasks_are_resolved_with_their_settings() -> None:
    config = compose(["evaluation.tasks=[cola,rte]", "task.cola.epochs=2"])
    assert list(config.tasks) == ["cola", "rte"] and config.tasks["cola"].epochs == 2 and config.tasks["rte"].epochs is None
    assert compose(["evaluation.tasks=cola"]).evaluation.tasks == ("cola",)


def test_what_an_experiment_sets_for_a_task_that_is_left_out_is_left_out(own_options: Path) -> None:
    assert compose(["+experiment=first"], own_options).tasks == {}
    assert compose(["+experiment=first", "evaluation.tasks=[cola]"], own_options).tasks["cola"].epochs == 9


def test_an_own_task_is_named_by_its_files() -> None:
    words = ["evaluation.tasks=[mine]", "evaluation.files.mine=some/file.csv", "task.mine.label_column=sentiment"]
    config = compose(words)
    assert config.tasks["mine"].name == "mine" and config.tasks["mine"].label_column == "sentiment"
    assert config.evaluation.files == {"mine": "some/file.csv"}
    assert compose(["evaluation.tasks=[mine]", "evaluation.files={mine: some/file.csv}"]).tasks["mine"].name == "mine"


def test_hydras_own_words_enter_neither_the_overrides_nor_the_hash() -> None:
    plain = compose(["seed=1", PRECISION])
    child = compose(["hydra.run.dir=/x", "seed=1", "hydra.output_subdir=null", "hydra.job.name=train_ddp_process_1", PRECISION])
    assert child.overrides == plain.overrides == ("seed=1", PRECISION)
    assert config_hash(child) == config_hash(plain)


def test_overrides_are_recorded_in_one_spelling() -> None:
    assert normalise(["++seed=1", "experiment=quick", "arm=wide", "hydra.verbose=true"]) == ("seed=1", "+experiment=quick", "arm=wide")


# ---- mistakes: every one of a kind at once


def test_unknown_keys_options_tasks_and_sweeps_are_told_at_once_with_suggestions(own_options: Path) -> None:
    words = ["modle=tiny", "model=tinny", "mask_ratio=0.3", "objective.mask_ration=1", "max_length.x=1", "seed=1,2", "+new=3"]
    with pytest.raises(UserError) as caught:
        compose([*words, "evaluation.tasks=[colla]", "~validation", "task.rte.epochs=1"], own_options)
    text = str(caught.value)
    for expected in [
        "modle=tiny: no such key; did you mean model?",
        "model=tinny: no such option; did you mean tiny? (",
        "mask_ratio=0.3: no such key; did you mean objective.mask_ratio?",
        "objective.mask_ration=1: no such key; did you mean objective.mask_ratio?",
        "max_length.x=1: no such key",
        "seed=1,2: several values need -m",
        "evaluation.tasks: no such task as colla; did you mean cola?",
        "... and 2 more",
    ]:
        assert expected in text
    assert len(text.splitlines()) <= 12


def test_keys_of_an_option_that_does_not_exist_are_not_called_unknown() -> None:
    with pytest.raises(UserError) as caught:
        compose(["objective=span_corruptoin", "objective.mean_span_length=3"])
    assert "mean_span_length" not in str(caught.value)


def test_unknown_keys_of_an_experiment_are_found(own_options: Path) -> None:
    with pytest.raises(UserError) as caught:
        compose(["+experiment=wrong"], own_options)
    text = str(caught.value)
    assert "objective.mask_ration, set by the experiment or arm: no such key; did you mean objective.mask_ratio?" in text
    assert text.count("nonsense") == 1  # not once more for each key inside


def test_a_task_setting_without_the_task_says_so() -> None:
    with pytest.raises(UserError, match=r"task\.rte\.epochs=1: rte is not in evaluation\.tasks"):
        compose(["task.rte.epochs=1"])


def test_words_that_cannot_be_read_are_told_at_once() -> None:
    with pytest.raises(UserError) as caught:
        compose(["seed", "tags=[a", "max_length=64"])
    assert "\n  seed\n" in str(caught.value) and "tags=[a" in str(caught.value) and "max_length" not in str(caught.value)


def test_types_and_ranges_are_told_at_once_with_their_whole_paths() -> None:
    words = ["objective.mask_ratio=1.5", "optim.peak_lr=fast", "trainer.devices=0", "seeds.init=-1", "batch_size=0", "max_length=4"]
    with pytest.raises(InvalidFields) as caught:
        compose([*words, "stages=[prepare,train]", "evaluation.tasks=[cola]", "task.cola.batch_size=0.5"])
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {word.partition("=")[0] for word in words} | {"stages", "task.cola.batch_size"}
    assert "batch_size=0: must be at least 1" in str(caught.value)


def test_a_mix_that_does_not_sum_to_one_is_refused() -> None:
    with pytest.raises(InvalidFields, match=r"objective\.replace_mix=.*sum to 1"):
        compose(["objective.replace_mix=[0.8,0.1,0.2]"])


# ---- leaves


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    width: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    names: tuple[str, ...]


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3.0, int, 3),
        (9e6, int, 9_000_000),
        (3, float, 3.0),
        (2024, str, "2024"),
        ([1, 2], tuple[int, ...], (1, 2)),
        ("a", tuple[str, ...], ("a",)),
        ([0.8, 0, 0.2], tuple[float, float, float], (0.8, 0.0, 0.2)),
        (None, int | None, None),
        (3.0, int | None, 3),
        (4, int | str, 4),
        ("auto", int | str, "auto"),
        (4, str | None, "4"),
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        ("~/x", Path, Path.home() / "x"),
    ],
)
def test_a_value_takes_the_type_of_its_field(value: object, hint: object, expected: object) -> None:
    found = coerce(value, hint)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3.5, int),
        (True, int),
        ("3", int),
        (float("inf"), float),
        (float("nan"), float),
        (float("nan"), int),
        (True, float),
        (1, bool),
        ("true", bool),
        (1.5, str),
        (None, str),
        (True, str),
        ([1], tuple[int, int]),
        (None, tuple[str, ...]),
        ({"a": 1}, tuple[str, ...]),
        ([1.5], tuple[int, ...]),
        ([1], dict[str, int]),
        ("x", int | None),
    ],
)
def test_a_value_that_would_lose_something_is_refused(value: object, hint: object) -> None:
    problems: list[Problem] = []
    cls = dataclasses.make_dataclass("Leaf", [("field", hint)])
    assert build({"field": value}, "leaf", problems, cls=cls) is None
    assert [problem.field for problem in problems] == ["leaf.field"]


def test_missing_unknown_and_unset_fields_are_told_with_their_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typing.get_type_hints", lambda cls: {"inner": Inner, "names": tuple[str, ...], "width": int})
    problems: list[Problem] = []
    build({"inner": {"width": "???", "depth": 1}, "more": 2}, "leaf", problems, cls=Outer)
    assert [problem.field for problem in problems] == ["leaf.more", "leaf.inner.depth", "leaf.inner.width", "leaf.names"]


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "torch.os.mkdir",
        "mlm_lab.config.compose",
        "mlm_lab.runner.shutil.rmtree",
        "mlm_lab.console.Iterator",
        "mlm_lab.run_folder.RunFolder",  # not a dataclass
        "mlm_lab.config.RunConfig",  # defined elsewhere
        "mlm_lab.nothing.Here",
        "mlm_lab.errors.Nothing",
        "mlm_lab..errors.UserError",
        "mlm_labx.errors.UserError",
        "lightning.Trainer",
        None,
        3,
    ],
)
def test_a_target_is_a_dataclass_of_the_package_by_its_own_module(target: object) -> None:
    with pytest.raises(UserError, match=r"where: +model\._target_"):
        find_class(target, "model")


def test_a_target_outside_the_package_is_refused_before_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "evil.yaml").write_text("# evil\n_target_: antigravity_of_mine.Thing\n")
    (tmp_path / "antigravity_of_mine.py").write_text(f"open({str(tmp_path / 'was_here')!r}, 'w')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "mlm_lab", "model=evil", "--config-dir", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, env=environment)
    assert result.returncode == 2 and "antigravity_of_mine.Thing" in result.stderr
    assert not (tmp_path / "was_here").exists()


# ---- serialising and hashing


def test_a_config_reads_back_from_its_yaml_with_the_same_hash(tmp_path: Path) -> None:
    words = ["evaluation.tasks=[cola,mine]", "evaluation.files.mine=x.csv", "optim.peak_lr=1e-5", "study=2024", "tags=[a,b]", PRECISION]
    config = compose(words)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert load(tmp_path) == config
    assert config_hash(load(tmp_path)) == config_hash(config)
    kept = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert measured_how("cola", kept) == measured_how("cola", to_dict(config)) != measured_how("mine", kept)
    assert measured_how("rte", kept) is None
    assert to_dict(config)["objective"]["_target_"].startswith("mlm_lab.objectives.")


def test_a_run_of_another_version_is_told_as_that(tmp_path: Path) -> None:
    text = to_yaml(compose())
    assert "  mask_ratio:" in text
    (tmp_path / "config.yaml").write_text("\n".join(line for line in text.splitlines() if not line.startswith("  mask_ratio:")))
    with pytest.raises(UserError, match="other keys") as caught:
        load(tmp_path)
    assert "objective.mask_ratio" in str(caught.value) and "git_commit" in str(caught.value)


@cache
def hashed(*words: str) -> str:
    return config_hash(compose([*words, *([] if any(w.startswith("trainer.precision") for w in words) else [PRECISION])]))


LEFT_OUT = ["output_dir=elsewhere", "cache_dir=elsewhere", "logger=wandb", "study=x", "tags=[x]", "stages=[evaluate]", "trainer=ddp"]
LEFT_OUT += ["trainer.devices=2", "trainer.micro_batch_size=3", "trainer.num_workers=2", "checkpoint.keep=3", "seeds.finetune=5"]
LEFT_OUT += ["evaluation.tasks=[cola]", "evaluation.seeds=5"]
KEPT = ["objective.mask_ratio=0.4", "model=mini", "optim.peak_lr=0.1", "schedule=cosine", "budget.steps=3", "validation.sequences=64"]
KEPT += [
    "max_length=64",
    "length_phases=[[64,0.9],[128,0.1]]",
    "batch_size=16",
    "seed=1",
    "seeds.init=1",
    "seeds.order=1",
    "seeds.corruption=1",
    "trainer.compile=true",
]
KEPT += ["trainer.precision=bf16-mixed", "pretrained=x", "tokenizer=bpe", "tokenizer.vocab_size=512", "data.validation_share=0.2"]


@pytest.mark.parametrize("word", LEFT_OUT)
def test_what_does_not_determine_the_result_is_left_out_of_the_hash(word: str) -> None:
    assert hashed(word) == hashed()


@pytest.mark.parametrize("word", KEPT)
def test_what_determines_the_result_is_in_the_hash(word: str) -> None:
    assert hashed(word) != hashed()


def test_every_root_key_is_either_hashed_or_left_out_on_purpose() -> None:
    named = {word.partition("=")[0].partition(".")[0] for word in [*LEFT_OUT, *KEPT]}
    assert named == set(to_dict(compose())) - {"task"}


def test_the_resolved_precision_is_hashed_and_not_the_word_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlm_lab.training.trainer.resolve_precision", lambda trainer: "bf16-mixed")
    config = compose(["trainer.precision=auto"])
    on_this = config_hash(config)
    monkeypatch.setattr("mlm_lab.training.trainer.resolve_precision", lambda trainer: "32-true")
    assert on_this != config_hash(config) == hashed(PRECISION)


def test_another_code_version_of_the_objective_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose([PRECISION])
    before = config_hash(config)
    monkeypatch.setattr(type(config.objective), "code_version", 99, raising=False)
    assert config_hash(config) != before


def test_runs_that_share_text_and_tokenizer_share_a_store() -> None:
    def key(*words: str) -> str:
        return store_key(compose(words))

    assert key("model=mini", "seed=3", "objective.mask_ratio=0.4", "max_length=64") == key()
    assert key("tokenizer=bpe") != key() != key("data.validation_share=0.2")


def test_a_corpus_is_named_by_its_text_not_by_its_place(tmp_path: Path) -> None:
    def run_of(place: str, text: str, *words: str) -> str:
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "a.txt").write_text(text)
        return config_hash(compose([PRECISION, "data=text", f"data.files={tmp_path / place}/a.txt", *words]))

    first = run_of("one", "Some text.\n\nMore of it.\n")
    assert run_of("copy", "Some text.\n\nMore of it.\n") == first
    assert run_of("one", "Some text.\n\nLess of it.\n") != first
    assert run_of("copy", "Some text.\n\nMore of it.\n", "data.validation_share=0.2") != first
    with pytest.raises(UserError, match="no such file"):
        config_hash(compose([PRECISION, "data=text", f"data.files={tmp_path}/nothing.txt"]))


def test_a_given_tokenizer_is_named_by_what_it_says_not_by_its_place(tmp_path: Path) -> None:
    def run_of(place: str, *tokens: str, names: str = "{}") -> str:
        vocabulary = {token: number for number, token in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tokens))}
        (tmp_path / place).mkdir(exist_ok=True)
        Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]")).save(str(tmp_path / place / "tokenizer.json"))
        (tmp_path / place / "special_tokens_map.json").write_text(names)
        return config_hash(compose([PRECISION, "tokenizer=pretrained", f"tokenizer.path={tmp_path / place}"]))

    first = run_of("one", "a", "b")
    assert run_of("copy", "a", "b") == first
    assert run_of("one", "a", "c") != first
    assert run_of("one", "a", "b", names='{"sep_token": "b"}') != first
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        config_hash(compose([PRECISION, "tokenizer=pretrained", f"tokenizer.path={tmp_path / 'nowhere'}"]))


def cell(words: Sequence[str] = (), task: str = "cola", seed: int = 0) -> str:
    config = compose([PRECISION, "evaluation.tasks=[cola,rte]", *words])
    return evaluation_key(config_hash(config), config, task, seed)


def test_a_cell_is_named_by_run_task_protocol_and_seed() -> None:
    others = [cell(["seed=1"]), cell(["task.cola.epochs=2"]), cell(["evaluation.epochs=7"]), cell(task="rte"), cell(seed=1)]
    others += [cell(["evaluation.train_limit=9"]), cell(["evaluation.train_limit=9", "seeds.finetune=1"])]
    assert len({cell(), *others}) == 8
    for same in [
        "seeds.finetune=1",
        "evaluation.seeds=9",
        "evaluation.tasks=[cola]",
        "task.rte.epochs=2",
        "evaluation.data_dir=x",
        "study=x",
    ]:
        assert cell([same]) == cell()


def test_another_code_version_of_the_fine_tuning_is_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    before, run = cell(), hashed()
    monkeypatch.setattr("mlm_lab.evaluation.settings.Evaluation.code_version", 99)
    assert cell() != before and config_hash(compose([PRECISION])) == run


def test_values_can_be_changed_between_composing_and_instantiating() -> None:
    values = compose_values(["model=mini"])
    assert instantiate({**values, "batch_size": 3}).batch_size == 3


def test_a_run_that_starts_from_another_is_named_by_the_weights_not_by_their_place(tmp_path: Path) -> None:
    def start_from(place: str, digest: str) -> str:
        RunFolder(tmp_path / place).update_summary(weights_sha256=digest)
        return config_hash(compose([PRECISION, f"pretrained={tmp_path / place}"]))

    first = start_from("one", "a" * 64)
    assert start_from("copy", "a" * 64) == first
    assert start_from("one", "b" * 64) != first
