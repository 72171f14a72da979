"""One self-contained HTML page per run: the verdict, the table, the figures, and where every number comes from.

Begin with `page.py`; `figures.py` says what is drawn, `page.js` how.
"""

from simnmt.report.page import PublishedTable, render

__all__ = ["PublishedTable", "render"]
