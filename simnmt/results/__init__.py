"""Request logs, summaries with intervals, run directories."""

from simnmt.results.result import Cell, RunResult

__all__ = ["Cell", "RunResult"]
