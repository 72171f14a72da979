"""Lines of a file or of standard input, one after another as they come."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from simnmt.workload.text_lines import TextLines


def lines_of(file: Path | None) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or gzip, or of standard input where None; without their line ends.

    Raises `CorpusError` for what cannot be read, is no UTF-8 text, or is larger than `TextLines` reads.
    """
    if file is not None:
        return iter(TextLines(file))
    # A stream and not a path: a terminal is a device, and those are refused by their path.
    return iter(TextLines("standard input", stream=cast(io.BufferedReader, sys.stdin.buffer)))
