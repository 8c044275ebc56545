"""Choosing examples by a hash of their text: the same ones on every machine and in every order, and more of them hold the fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypeVar

Example = TypeVar("Example")


def hash_share(purpose: str, text: str) -> float:
    """A number in [0, 1) that depends on the two alone."""
    digest = blake2b(f"{purpose}/{text}".encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def first_by_hash(examples: Sequence[Example], number: int | None, purpose: str, text: Callable[[Example], str]) -> list[Example]:
    """So many of the examples, those of the smallest hashes, in the order they were in; None: all."""
    if number is None or number >= len(examples):
        return list(examples)
    order = sorted(range(len(examples)), key=lambda i: hash_share(purpose, text(examples[i])))
    return [examples[i] for i in sorted(order[:number])]
