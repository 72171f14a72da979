"""The paper on vocabulary projection: each step multiplies the columns of the clusters that its decoder contexts fall into.

Open `published.py` first (Tables 1 to 6, and the claims that they decide), then `reproduction.py` (tables, figures and the
verb) and `study.py` (the file of a study of a trained model). `study_claims.py` judges a study, and `measure.py` measures
one. Only this imports torch, and nothing here imports another paper.
"""
