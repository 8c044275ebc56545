"""Ctrl-C and SIGTERM while steps run: after the first the step is finished and a checkpoint written; the second ends the process."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """A context in which the signals only set `signal_number`. Where signals cannot be caught (another thread) nothing changes."""

    signal_number: int | None = None

    def __enter__(self) -> StopRequest:
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._previous: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS} if in_main_thread else {}
        for number in self._previous:
            signal.signal(number, self._request)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is not None:
            os._exit(128 + number)
        self.signal_number = number
        # A signal may arrive in the middle of a print: the console must not be entered a second time.
        os.write(2, b"\nstopping: this step is finished and a checkpoint written; once more ends it at once\n")
