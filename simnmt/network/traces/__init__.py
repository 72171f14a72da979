"""Import of measurements that other tools recorded: CSV logs, `ping` output, RIPE Atlas results.

To read it, start with `trace_file.py` (detect the form, read, write), `readings.py` (raw samples and the repaired trace) and
`summary.py` (figures of a trace). To add a form, write a module with a reader and add a line to `trace_file.FORMS`.
"""

from __future__ import annotations
