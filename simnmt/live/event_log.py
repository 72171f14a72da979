"""The log that a live service writes: JSON lines, handed to the disk by a thread, so that a slow disk stops no request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

from simnmt.results.live_log import Record, format_record


class EventLog:
    """A log of JSON lines; without a file nothing is written. A killed service loses the last `FLUSH_S` seconds at most."""

    FLUSH_S = 0.5

    def __init__(self, file: TextIO | None, on_error: Callable[[str], None] = lambda text: None) -> None:
        """`file`: the caller closes it, after `close`; `on_error`: called once with a line if the file cannot be written."""
        self._file, self._on_error = file, on_error
        self._lines: deque[str] = deque()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, record: Record) -> None:
        """Append a record. Returns at once."""
        if self._file is None:
            return
        # Formatted here: a thread that formats many records would hold Python's lock for milliseconds.
        self._lines.append(format_record(record))
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_out, daemon=True, name="event log")
            self._thread.start()

    def close(self) -> None:
        """Write what is left, and end the thread."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write_out(self) -> None:
        ends = False
        while not ends:
            ends = self._ends.wait(self.FLUSH_S)
            lines = "".join([self._lines.popleft() for _ in range(len(self._lines))])
            if self._file is None or not lines:
                continue
            try:
                self._file.write(lines)
                self._file.flush()
            except (OSError, ValueError) as error:  # a full disk; a file that the caller has closed
                self._file = None
                self._on_error(f"the log cannot be written any more: {getattr(error, 'strerror', None) or error}")
