"""What W&B's client has recorded of a run on disk: its summary, read from the .wandb file (LevelDB's log format, records in protobuf)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

FILE_HEADER = 7
BLOCK = 32768
RECORD_HEADER = struct.Struct("<IHB")
FULL, LAST = 1, 4


def read_summary(file: Path) -> dict[str, Any]:
    """The run's summary, as the viewer would show it."""
    summary: dict[str, Any] = {}
    for record in read_records(file):
        if record.WhichOneof("record_type") == "summary":
            for item in record.summary.update:
                summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    return summary


def read_exit_code(file: Path) -> int | None:
    """What the run was closed with; None where it was not."""
    codes = [record.exit.exit_code for record in read_records(file) if record.WhichOneof("record_type") == "exit"]
    return codes[-1] if codes else None


def read_records(file: Path) -> Iterator[Any]:
    data, place, parts = file.read_bytes(), FILE_HEADER, b""
    while place + RECORD_HEADER.size <= len(data):
        left = BLOCK - place % BLOCK
        if left < RECORD_HEADER.size:
            place += left
            continue
        _, length, kind = RECORD_HEADER.unpack_from(data, place)
        parts += data[place + RECORD_HEADER.size : place + RECORD_HEADER.size + length]
        place += RECORD_HEADER.size + length
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""
