"""Parts that all papers share: what a paper prints, claims and their judge, figures, and the renderer.

To read it, start with `claims.py` (claims and verdicts), then `paper.py` (the data of a paper) and `rendering.py` (document,
text and page of a reproduction). `study.py` is for studies of trained models, measured part by part. It imports no paper.
"""
