"""The pages: one self-contained HTML file for a run, a comparison, a device profile, a trace or a streaming plan.

Open first: `charts.py` (the grammar of all figures, which a notebook shows too), `page.py` (the page of a run) and `figures.py`
(what its figures show). `page_template.py` fills a template with style, scripts and packed charts; `charts.js` draws them. The
room imports no paper, and nothing of plotly's Python side.
"""

from simnmt.report.page import render

__all__ = ["render"]
