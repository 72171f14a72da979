"""Training of small translation models on parallel text, in sessions that can be interrupted and resumed.

Open first: `session.py`, the loop that every training runs, the elastic classifier's too; `trainer.py`, the training of a
translation model; `recipe.py`, the text and all settings, which needs no torch.
"""

from __future__ import annotations
