"""Parts that all papers share: printed data, claims, figures, the renderer, and studies.

To read it, start with `claims.py` (claims and the judge), then `paper.py` (what a paper prints, from its data file),
`rendering.py` (document, text and page of a reproduction) and `figures.py`. `study.py` is for studies of trained models. It
imports no paper.
"""

from __future__ import annotations
