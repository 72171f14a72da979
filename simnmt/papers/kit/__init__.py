"""Parts that all papers share: claims, tables, charts, pages and studies.

To read it, start with `claim.py` (claims and verdicts), then `table.py` (a table declared once for JSON, terminal and page),
`report.py` (a whole reproduction) and `page.py` (the page and its charts). `study.py` is for studies of trained models,
measured part by part. It imports no paper.
"""

from __future__ import annotations
