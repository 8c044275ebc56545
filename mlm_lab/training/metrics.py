"""Metrics as sums and counts: kept on the device while steps run, averaged exactly when fetched, written as rows of metrics.csv."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from mlm_lab.atomic import write_text
from mlm_lab.training.xla import close_step
from mlm_lab.types import Sums

LOSS_PREFIX = "loss:"
"""Before the names of losses, which count their targets, among other metrics."""


class Meter:
    """Sums and counts that accumulate without a synchronisation or a computation: they are added up when they are fetched. Every rank adds
    the same names. In float64 the sums of float32 values are exact, so that no order and no interruption changes them."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]] = {}

    def add(self, name: str, total: torch.Tensor, count: torch.Tensor, counts_for: torch.Tensor | None = None) -> None:
        """total, count: scalars of this rank, without gradient. counts_for: scalar; where it is False both are left out (None: True)."""
        self._parts.setdefault(name, []).append((total, count, counts_for))

    def add_all(self, metrics: Mapping[str, Sums], counts_for: torch.Tensor | None = None) -> None:
        for name, sums in metrics.items():
            self.add(name, *sums, counts_for)

    def fetch(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, tuple[float, float]]:
        """name -> (sum, count) over all ranks, in one reduction and one copy to the host. Every rank calls it."""
        if not self._parts:
            return {}
        own = torch.stack([_sum(parts) for parts in self._parts.values()])  # (N, 2)
        self._parts = {name: [(pair[0], pair[1], None)] for name, pair in zip(self._parts, own, strict=True)}
        over_ranks = reduce(own.clone())
        close_step(own.device)  # with what goes on from here, which would be part of the next step
        return {name: (total, count) for name, (total, count) in zip(self._parts, over_ranks.tolist(), strict=True)}

    def clear(self) -> None:
        self._parts.clear()

    def restore(self, fetched: Mapping[str, tuple[float, float]], device: torch.device) -> None:
        """Continue from what `fetch` returned (on one rank only, since it is the sum over all)."""
        pairs = {name: torch.tensor(pair, dtype=_exact(device), device=device) for name, pair in fetched.items()}
        self._parts = {name: [(pair[0], pair[1], None)] for name, pair in pairs.items()}


def _sum(parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]) -> torch.Tensor:
    """(2,): sum and count."""
    exact = _exact(parts[0][0].device)
    pairs = torch.stack([torch.stack([part[i].to(exact) for part in parts]) for i in (0, 1)])  # (2, N)
    given = next((counts_for for *_, counts_for in parts if counts_for is not None), None)
    if given is not None:
        counted = torch.stack([torch.ones_like(given) if counts_for is None else counts_for for *_, counts_for in parts])
        pairs = torch.where(counted, pairs, 0.0)
    return pairs.sum(dim=1)


def _exact(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


LARGEST_EXPONENT = 700.0
"""What a float's exponential can still be written for."""


def averages(fetched: Mapping[str, tuple[float, float]], weights: Mapping[str, float], token_loss: str | None = None) -> dict[str, float]:
    """Means of what a meter fetched: `loss` (weighted, each loss over its own targets), each loss where there are several, the metrics,
    and `<token loss>_perplexity`: the exponential of that loss's sum over its count, once, never a mean of perplexities. It has the loss's
    name, since those of masked, left-to-right and span models answer different questions. A loss without any target is 0 (traps.md 4); a
    metric or a perplexity without any is left out: it would be a number that nobody measured (traps.md 33).

    fetched: losses under "loss:<name>", metrics under their own names. weights: of the losses; one that was not fetched (a probe may have
    fewer than training) is left out. token_loss: the one that has a perplexity, if any has.
    """
    losses = {name: _mean(*fetched[f"{LOSS_PREFIX}{name}"]) for name in weights if f"{LOSS_PREFIX}{name}" in fetched}
    values = {"loss": sum(weights[name] * value for name, value in losses.items())}
    if len(losses) > 1:
        values |= {f"{name}_loss": value for name, value in losses.items()}
    else:  # a module that also reports its only loss as a metric says nothing new
        fetched = {name: pair for name, pair in fetched.items() if name not in {f"{loss}_loss" for loss in losses}}
    values |= {name: total / count for name, (total, count) in fetched.items() if count and not name.startswith(LOSS_PREFIX)}
    if token_loss in losses and fetched[f"{LOSS_PREFIX}{token_loss}"][1]:
        values[f"{token_loss}_perplexity"] = perplexity(losses[token_loss])
    return values


def perplexity(loss: float) -> float:
    """Of a mean loss in nats a token."""
    return math.exp(loss) if loss < LARGEST_EXPONENT else math.inf


def _mean(total: float, count: float) -> float:
    """0 where there was no target: it must not turn a column into NaN."""
    return total / max(count, 1.0)


class MetricsFile:
    """metrics.csv: a row for each logged step, columns added as metrics appear, cut back when a run resumes from a checkpoint.

    The rows are in the file alone: what a run holds in memory does not grow with its length.
    """

    def __init__(self, path: Path):
        self.path = path
        self._columns = self._read()[0] if path.exists() else []

    def __len__(self) -> int:
        return len(self._read()[1]) if self.path.exists() else 0

    def cut_back(self, rows: int) -> None:
        """Keep the first rows only: those that the checkpoint knows. Columns that only later rows had go too."""
        columns, kept = self._read() if self.path.exists() else ([], [])
        kept = kept[:rows]
        self._columns = [name for name in columns if any(name in row for row in kept)]
        self._rewrite(kept)

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        row = {"step": str(step), **{name: repr(float(value)) for name, value in metrics.items() if value is not None}}
        if new := [name for name in row if name not in self._columns]:
            earlier = self._read()[1] if self.path.exists() else []
            self._columns += new
            self._rewrite([*earlier, row])
        else:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._columns, lineterminator="\n").writerow(row)

    def _read(self) -> tuple[list[str], list[dict[str, str]]]:
        """Columns, and the rows without empty cells."""
        with self.path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = [{name: value for name, value in row.items() if name is not None and value} for row in reader]
            return list(reader.fieldnames or []), rows

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        """Through a temporary file, so that a reader or a crash never meets half of it."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.path, text.getvalue(), temporary=f"{self.path.name}.tmp")
