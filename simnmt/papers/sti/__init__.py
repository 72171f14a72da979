"""The paper on elastic pipelines (ASPLOS 2023): a model streamed in shards of chosen fidelity, planned against a deadline.

Open `published.py` first (what the text gives, what is lost, its slips), then `reproduction.py`. `study.py` is the file that a
study of a trained classifier writes, and `study_run.py` measures it; `pipeline.py` reads the measurements of its benchmark.
"""

from __future__ import annotations
