"""The paper on elastic pipelines (ASPLOS 2023): a model streamed in shards of chosen fidelity, planned against a deadline.

Open first: `printed.py` (what follows from the figures of the text, which are in `data/sti.toml`), `claims.py` (what a study of
a trained classifier decides) and `reproduction.py`. `study.py` is the file of a study, `study_run.py` measures it, and
`pipeline.py` judges the measurement of `benchmarks.sti_pipeline`. Only `study_run.py` imports torch.
"""

from __future__ import annotations
