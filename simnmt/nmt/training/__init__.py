"""Training on one machine, in sessions that can be interrupted and resumed.

Open first: `trainer.py`, the loop of every training, the elastic encoder's of `simnmt.streaming` too; `translation.py`, the
training of a translation model; `recipe.py`, its text and settings.
"""

from __future__ import annotations
