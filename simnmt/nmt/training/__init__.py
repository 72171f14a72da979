"""Training on one machine, in sessions that can be interrupted and resumed.

Open first: `trainer.py`, the loop of every training; `translation.py`, the training of a translation model; `recipe.py`, its
text and settings.
"""
