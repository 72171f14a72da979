"""Import of measurements that other tools recorded: CSV logs, `ping` output, RIPE Atlas results.

To read it, start with `trace_file.py` (detect the form, read, write), `readings.py` (raw samples and the repaired trace) and
`summary.py` (what a trace is like). A new form is a module with a reader and a line in `trace_file.FORMS`.
"""

from __future__ import annotations
