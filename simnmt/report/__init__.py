"""The pages: one self-contained HTML file for a run, a device profile, a trace or a streaming plan.

To read it, start with `page.py` (the page of a run), then `tables.py` and `figures.py` (what it shows). `page_template.py`
fills a template with style, scripts and packed figures; `page.js` and its neighbours draw them. It imports no paper.
"""

from simnmt.report.page import PublishedTable, render

__all__ = ["PublishedTable", "render"]
