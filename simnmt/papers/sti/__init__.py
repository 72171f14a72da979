"""The paper on elastic pipelines (ASPLOS 2023): a model streamed in shards of chosen fidelity, planned against a deadline.

Open first: `plans.py` (methods and deadlines that are compared, and what follows from the boards' costs), `claims.py` and
`reproduction.py`. `study.py` is the file of measured answers, `study_run.py` measures them, and `printed.py` has what follows
from the figures in `data/sti.toml`. Only `study_run.py` imports torch.
"""
