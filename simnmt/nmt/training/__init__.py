"""Training of small translation models on parallel text, in sessions that can be interrupted and resumed.

Open first: `trainer.py`, which runs a training; `learner.py`, one optimisation step; `recipe.py`, all settings. `corpus.py`
and `recipe.py` need no torch.
"""

from __future__ import annotations
