"""One GPU in at most eight minutes: base at 128 and 512, large at 512, against Transformers' Trainer at its best.

    python -m tests.benchmarks.gpu                    on a GPU
    python -m tests.benchmarks.gpu                    without one: tiny on the CPU, to see that the script runs

65,536 tokens a step, vocabulary 30522, bf16, dropout 0, fused AdamW on both sides; ours as it is, with varlen attention, and compiled;
theirs with SDPA as it is, and compiled. Processes of their own, one after the other, three laps of some seconds after the warm-up, of which
compilation is a part. Prints tokens/s of wall time, the share of the bf16 peak measured in the same run (8192 x 8192 products), the peak
memory of the card, and the ratio of the best of each side. A contender that is not warm when its time is over is left out, and is named.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch

from mlm_lab.training.ceiling import matmul_flops_per_second
from tests.benchmarks.shapes import BY_NAME
from tests.benchmarks.throughput import Contender, machine, prepare_once

MINUTES = 8.0
WAYS = {
    "ours": {"name": "ours", "OURS": ""},
    "ours, varlen": {"name": "ours", "OURS": "trainer.attention=varlen"},
    "ours, compiled": {"name": "ours", "OURS": "trainer.compile=true"},
    "Trainer": {"name": "trainer_sdpa", "THEIRS": ""},
    "Trainer, compiled": {"name": "trainer_sdpa", "THEIRS": "compile"},
}
ON_GPU, ON_CPU = ("base-128-30522-gpu", "base-512-30522-gpu", "large-512-30522-gpu"), ("tiny-128-8192",)


def measure(way: str, shape_name: str, seconds: float, cache_dir: Path) -> dict | None:
    """A few laps of one contender; None where it did not get warm in time or failed."""
    words = dict(WAYS[way])
    name, before = words.pop("name"), dict(os.environ)
    os.environ.update(words)
    try:
        with Contender(name, BY_NAME[shape_name], cache_dir, warm_within=seconds) as contender:
            for _ in range(3):
                contender.lap(3.0)
            contender.stop()
            return {"tokens_per_second": sorted(contender.speed("wall"))[1], **contender.facts}
    except SystemExit as error:
        print(f"{way}: left out: {str(error)[-300:]}", flush=True)
        return None
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "mlm_lab_benchmarks")
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    shapes, ends = ON_GPU if on_gpu else ON_CPU, time.monotonic() + 60 * options.minutes
    card = torch.cuda.get_device_name() if on_gpu else machine()["cpu"]
    peak = matmul_flops_per_second(device, "bf16-mixed")
    print(
        f"{card}: {peak / 1e12:.3f} TFLOP/s in bfloat16\n{'shape':22} {'contender':20} {'tokens/s':>12} {'of the peak':>12} {'memory':>10}",
        flush=True,
    )
    found, left = [], len(shapes) * len(WAYS)
    for shape in shapes:
        prepare_once(BY_NAME[shape], options.cache)
        flops = 0.0
        for way in WAYS:
            record = measure(way, shape, (ends - time.monotonic()) / left - 10.0, options.cache)
            left -= 1
            if record is None:
                continue
            flops = record.get("flops_per_token", flops)
            share = record["tokens_per_second"] * flops / peak
            found.append({"shape": shape, "way": way, **record, "peak_share": share})
            speed, memory = record["tokens_per_second"], record["peak_bytes"] / 1e9
            print(f"{shape:22} {way:20} {speed:12,.0f} {share:12.1%} {memory:7.2f} GB", flush=True)
        best = {
            side: max((one["tokens_per_second"] for one in found if one["shape"] == shape and one["way"].startswith(side)), default=0.0)
            for side in ("ours", "Trainer")
        }
        if all(best.values()):
            print(f"{shape:22} {best['ours'] / best['Trainer']:.2f}x", flush=True)
    print(json.dumps({**machine(), "card": card, "bf16_tflops": peak / 1e12, "found": found}))


if __name__ == "__main__":
    main()
