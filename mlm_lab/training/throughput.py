"""How fast the steps are: wall-clock time of training steps alone, warm-up, validation and checkpoints left out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

WARMUP_STEPS = 3
"""Steps after a start whose time is not counted: kernels are chosen and memory is claimed in them."""


@dataclass
class Throughput:
    """Laps between points at which the device is known to have finished its steps."""

    seconds: float = 0.0
    """Of all steps, warm-up included."""
    warm_seconds: float = 0.0
    warm_positions: float = 0.0
    _mark: float = field(default=0.0, repr=False)
    _last: float = field(default=0.0, repr=False)
    _warm: bool = field(default=False, repr=False)

    def begin(self, positions: float) -> None:
        """Training starts, or starts again, with so many positions done."""
        self._mark, self._last, self._warm = time.perf_counter(), positions, False

    def lap(self, positions: float) -> float:
        """So many are done in all. Returns the positions a second since the lap before. The first lap after `begin` is the warm-up."""
        now = time.perf_counter()
        elapsed, self._mark = now - self._mark, now
        new_positions, self._last = positions - self._last, positions
        self.seconds += elapsed
        if self._warm:
            self.warm_seconds += elapsed
            self.warm_positions += new_positions
        self._warm = True
        return new_positions / max(elapsed, 1e-9)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside is not training. Enter only when the device has finished its steps."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._mark += time.perf_counter() - started

    @property
    def positions_per_second(self) -> float | None:
        return self.warm_positions / self.warm_seconds if self.warm_seconds else None

    def state(self) -> dict[str, float]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}
