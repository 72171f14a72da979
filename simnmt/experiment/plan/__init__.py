"""Deployment plans: how many requests a second a deployment can take, and the least deployment for a rate.

To read it, start with `trial.py` (one simulated run, judged by a service level), `capacity.py` (bisection on the rate) and
`search.py` (the least deployment among candidates). It must not import `live`, `report`, `api` or `cli`.
"""
