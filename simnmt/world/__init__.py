"""The SimPy world: end nodes, gateways and servers in tiers, the links between them, and the requests that pass through.

To read it, start with `simulate.py` (what goes in and comes out), then `traffic.py` (one request's decision and way), then
`pools.py` (servers behind a balancer).
"""
