"""`python -m mlm_lab.export RUN OUT`: a finished run as a Hugging Face folder, compared with the run's own answers before it is kept."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mlm_lab.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, or 2 for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="python -m mlm_lab.export", description=__doc__, allow_abbrev=False)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("out", type=Path, help="folder to write; must not exist or be empty")
    parser.add_argument(
        "--format", help="bert, roberta, albert, electra, mpnet, modernbert, t5 or transformers; default: the one that fits"
    )
    parser.add_argument("--encoder-only", action="store_true", help="leave heads, generator and decoder behind")
    parser.add_argument("--license", default="unknown", help="of the model card, as the Hugging Face hub names it, e.g. apache-2.0")
    parser.add_argument(
        "--wandb", action="store_true", help="also log the folder as an artifact of the run on W&B (of a run with logger=wandb)"
    )
    options = parser.parse_args(argv)
    try:
        from mlm_lab.export.exporting import export

        exported = export(
            options.run.expanduser(),
            options.out.expanduser(),
            format_name=options.format,
            encoder_only=options.encoder_only,
            licence=options.license,
            artifact=options.wandb,
        )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for folder, architecture in exported.architectures.items():
        print(f"{options.out / folder}: {architecture}")
    print(f"answers as the run does on three batches: the largest difference is {exported.largest_difference:.1g}")
    if exported.left_out:
        print(f"left out, because no model of Transformers has it: {', '.join(exported.left_out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
