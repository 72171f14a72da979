"""Plans: how many requests a second a deployment can take, and the least deployment for a rate.

To read it, start with `trial.py` (one simulated run, judged by a service level), `capacity.py` (root search on the rate) and
`deployment.py` (the least deployment among `candidates.py`). `messages.py` has the sentences of both answers, and `basis.py`
the warnings. It must not import `live`, `report`, `api` or `cli`.
"""
