"""How long a step takes: the middle half counts, and nothing of the run is touched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mlm_lab.training import calibration
from mlm_lab.training.course import Course
from tests.training.tiny_run import make_config, make_course


def measure(
    monkeypatch: pytest.MonkeyPatch, durations: list[float], enough_seconds: float, course: Course | None = None, **more: float
) -> float:
    """With a clock by which the steps take so long, the first of them included."""
    course = course or make_course(make_config())

    def clock() -> Iterator[float]:
        now = 0.0
        for duration in durations:
            yield now
            now += duration
            yield now

    monkeypatch.setattr(calibration.time, "perf_counter", clock().__next__)
    return calibration.seconds_per_step(
        course.module,
        course.config.optim,
        lambda step: course.sample_batch(step),
        device=torch.device("cpu"),
        micro_batch_size=None,
        context=torch.enable_grad,
        enough_seconds=enough_seconds,
        **more,
    )


def test_a_neighbour_of_a_moment_does_not_count(monkeypatch):
    assert measure(monkeypatch, [9.0, 1.0, 1.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0], enough_seconds=13.5) == 1.0


def test_what_slows_many_steps_counts(monkeypatch):
    assert measure(monkeypatch, [9.0, *[1.0, 1.0, 2.0, 2.0] * 4], enough_seconds=23.5) == 1.5


def test_it_goes_on_for_so_many_seconds_however_short_a_step_is(monkeypatch):
    assert measure(monkeypatch, [0.5] + [0.0625] * 50 + [0.125] * 150, enough_seconds=21.8) == 0.125


def test_so_many_steps_are_enough_where_it_need_not_be_exact(monkeypatch):
    course = make_course(make_config())
    course.sample_batch = lambda step, sample=course.sample_batch: asked.append(step) or sample(step)
    asked: list[int] = []
    measure(monkeypatch, [1.0] * 20, enough_seconds=19.5, course=course, enough_steps=5)
    assert asked == [0, 1, 2, 3, 4]


def test_two_steps_at_least(monkeypatch):
    assert measure(monkeypatch, [9.0, 3.0], enough_seconds=0.0) == 3.0


def test_weights_and_random_state_are_left_alone(monkeypatch):
    course = make_course(make_config())
    before = {name: value.clone() for name, value in course.module.state_dict().items()}
    state = torch.random.get_rng_state()
    measure(monkeypatch, [1.0, 1.0, 1.0], enough_seconds=1.5, course=course)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in course.module.state_dict().items())
