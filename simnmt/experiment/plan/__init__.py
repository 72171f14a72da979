"""Plans: how many requests a second a deployment can take, and the least deployment for a rate.

To read it, start with `trial.py` (one simulated run, judged by a service level), `capacity.py` (bisection on the rate) and
`deployment.py` (the least of the candidates); `basis.py` has the warnings of both. It must not import `live`, `report`, `api`
or `cli`.
"""
