"""Request logs, summaries with intervals, run directories."""
