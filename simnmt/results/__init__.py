"""Results of a run: request log, summary with intervals, recommendation, run directory.

To read it, start with `columns.py` and `request_log.py` (requests), `summary.py` (rows by cell and policy) and `statistics.py`
(intervals). `run_directory.py` writes what a run leaves, and `loaded_run.py` reads it; `live_log.py` what a live gateway logs.
It imports no world and no page.
"""

from simnmt.results.result import Cell, FinishedRun, RecordedCell, RunResult

__all__ = ["Cell", "FinishedRun", "RecordedCell", "RunResult"]
