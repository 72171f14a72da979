"""Parts that all papers share: printed data, claims, the renderer, and studies.

To read it, start with `claims.py` (claims and the judge), then `paper.py` (what a paper prints, from its data file),
`rendering.py` (document, text and page of a reproduction). `study.py` is for studies of trained models. It imports no paper.
"""
