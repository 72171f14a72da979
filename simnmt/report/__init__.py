"""The tables, words and pages: one self-contained HTML file for a run, a comparison, a plan, a sweep, a profile or a trace.

Open first: `table.py` (the one table of terminal, pages and papers), `page_template.py` (the frame of every page: a list of
sections) and `charts.py` (the grammar of all figures, plain plotly data that a notebook shows too). `words.py` fills the
templates of `words/`; `page.py` is the page of a run. The room imports no paper, and nothing of plotly's Python side: building
the figures of one run as `plotly.graph_objects` takes half a second, a sixth of a short run.
"""

from simnmt.report.page import render

__all__ = ["render"]
