"""A process of tiny runs, one for each objective that is named, and what it saw: a program for torchrun, or alone.

python -m tests.strategies.ranks FOLDER OBJECTIVE,... [stop=STEP] [override ...]

FOLDER/OBJECTIVE/   the run's folder, and seen-RANK.jsonl: for each step a digest of each of the rank's rows; held_out.json: targets counted
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def start(ranks: int, folder: Path, objectives: Sequence[str], *words: str, **environment: str) -> subprocess.Popen:
    """So many processes of this program, under torchrun where it is more than one."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    several = ["trainer.strategy=ddp", f"trainer.devices={ranks}"] if ranks > 1 else []
    command = [sys.executable, *torchrun, "-m", "tests.strategies.ranks", str(folder), ",".join(objectives), *several, *words]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY), **environment}
    return subprocess.Popen(command, cwd=REPOSITORY, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(ranks: int, folder: Path, objectives: Sequence[str], *words: str) -> str:
    """Run them to their end; what they said."""
    process = start(ranks, folder, objectives, *words)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    return output


def rows_seen(folder: Path) -> Counter:
    """Digest of each row -> how often some rank had it in a step."""
    seen: Counter = Counter()
    for path in folder.glob("seen-*.jsonl"):
        for line in path.read_text().splitlines():
            seen.update(json.loads(line))
    return seen


def main(folder: Path, objectives: Sequence[str], words: Sequence[str]) -> None:
    import lightning

    from mlm_lab.training.recorder import Recorder
    from mlm_lab.training.validation import measure
    from mlm_lab.training.weights import save_weights
    from tests.training.tiny_run import make_config, train

    class Witness(lightning.Callback):
        def __init__(self, place: Path, stop: int | None):
            self.place, self.stop = place, stop

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            inputs, _ = batch
            rows = range(len(inputs["input_ids"]))
            seen = [hashlib.sha256(b"".join(inputs[name][row].numpy().tobytes() for name in sorted(inputs))).hexdigest() for row in rows]
            with (self.place / f"seen-{trainer.global_rank}.jsonl").open("a") as file:
                file.write(json.dumps(seen) + "\n")
            if module.step == self.stop and trainer.is_global_zero:
                os.kill(os.getpid(), signal.SIGTERM)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            recorder = next(each for each in trainer.callbacks if isinstance(each, Recorder))
            counts = {
                recipe or "own": measure(module.module, batches, **recorder._place(trainer, module))
                for recipe, batches in recorder.held_out.batches.items()
            }
            self.whole = module.whole()
            if trainer.is_global_zero:
                (self.place / "held_out.json").write_text(json.dumps(counts))

    stop = next((int(word.removeprefix("stop=")) for word in words if word.startswith("stop=")), None)
    others = [word for word in words if not word.startswith("stop=")]
    for objective in objectives:
        place = folder / objective
        place.mkdir(parents=True, exist_ok=True)
        witness = Witness(place, stop)
        done = train(make_config(f"objective={objective}", "trainer.log_every_steps=1", *others, steps=30), place, witness)
        if done.trainer.is_global_zero and done.module.step == done.module.total_steps:
            save_weights(witness.whole, place)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:])
