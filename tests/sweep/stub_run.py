"""A point's process without any training: `python stub_run.py FOLDER BEHAVIOUR`, in a fraction of a second.

Claims the folder, notes its start in starts.txt, writes metrics.csv step by step and summary.json at the end; ends with a checkpoint of its
kind (the step in summary.json) on SIGTERM. BEHAVIOUR: steps and seconds a step ("20x0.05"), "fail", "die" (SIGKILL by itself).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from mlm_lab.errors import Claimed
from mlm_lab.run_folder import RunFolder


def main(path: str, behaviour: str) -> int:
    folder = RunFolder(Path(path))
    stop = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    try:
        with folder.claim():
            if folder.read_summary().get("status") == "finished":
                return 0
            with open(folder.path / "starts.txt", "a") as starts:
                starts.write(f"{os.getpid()} {len(os.sched_getaffinity(0))} {os.environ.get('OMP_NUM_THREADS')}\n")
            if behaviour == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if behaviour == "fail":
                print("Traceback ...\nerror: the loss is not finite\n  where: step 7", flush=True)
                return 2
            steps, seconds = behaviour.split("x")
            done = folder.read_summary().get("steps", 0)
            with open(folder.metrics_csv, "a") as rows:
                rows.write("step,val/loss\n" if not done else "")
                for step in range(done + 1, int(steps) + 1):
                    time.sleep(float(seconds))
                    rows.write(f"{step},{10 / step}\n")
                    rows.flush()
                    is_asked = bool(stop) and step < int(steps)
                    folder.update_summary(status="interrupted" if is_asked else "running", steps=step, budget_steps=int(steps))
                    if is_asked:
                        return 143
            folder.update_summary(status="finished", metrics={"val/loss": 10 / int(steps)}, weights_sha256="0")
    except Claimed as error:
        print(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
