"""What a floor belongs to: all runs of one architecture start from the same random encoders, so they share what was measured on them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from mlm_lab.run_config import to_dict

if TYPE_CHECKING:
    from mlm_lab.evaluation.bench import Bench
    from mlm_lab.run_folder import RunFolder


class Origins:
    """Digests of the random modules that a run could have started from, told once and kept in its summary."""

    def __init__(self, bench: Bench, folder: RunFolder):
        self._bench, self._folder = bench, folder

    def __call__(self, init: int, reads_heads: bool) -> str:
        """64 hexadecimal digits of the encoder (or of the whole module), its tokenizer, and the precision that it is measured in. init: in
        place of seeds.init."""
        name = f"{'module' if reads_heads else 'encoder'}_{init}"
        known = self._folder.read_summary().get("random_weights", {})
        if name not in known:
            known[name] = self._digest(init, reads_heads)
            self._folder.update_summary(random_weights={name: known[name]})
        return known[name]

    def _digest(self, init: int, reads_heads: bool) -> str:
        from mlm_lab.training.trainer import resolve_precision

        module = self._bench.initial_module(init)
        encoder = module.encoder
        about = [to_dict(encoder.config), encoder.causal, self._bench.tokenizer.fingerprint, resolve_precision(self._bench.config.trainer)]
        about += [f"{type(module).__module__}.{type(module).__qualname__}", module.extra_repr()] if reads_heads else []
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
        for name, tensor in (module if reads_heads else encoder).state_dict().items():
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()
