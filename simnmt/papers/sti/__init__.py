"""The paper on elastic pipelines (ASPLOS 2023): a model streamed in shards of chosen fidelity, planned against a deadline.

Open `published.py` first (figures of the text, tables it lacks, its slips), then `study_claims.py` and `reproduction.py`. The
other files: `study.py` is the file of a study of a trained classifier, `study_run.py` measures it with `study_bench.py`, and
`pipeline.py` reads the measurement of `benchmarks.sti_pipeline`. Nothing but `study_run.py` and `study_bench.py` may import
torch, and no other paper is imported.
"""

from __future__ import annotations
