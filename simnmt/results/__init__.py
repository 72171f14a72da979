"""Results of a run: request log, summary with intervals, recommendation, run directory.

To read it, start with `columns.py` and `requests.py`, `summary.py` (rows by cell and policy) and `statistics.py`
(intervals). `run.py` is a finished run, which `run_directory.py` writes and loads; `live_log.py` what a live gateway logs.
It imports no world and no page.
"""

from simnmt.results.run import Cell, Run

__all__ = ["Cell", "Run"]
