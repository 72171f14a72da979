"""The SimPy world: end nodes, gateways and servers in tiers, the links between them, and the requests that pass through.

To read it, start with `simulation.py` (what goes in and comes out), then `traffic.py` (how one request is decided and served),
then `fifo_server.py`, `batch_server.py` or `streaming_server.py` (one server of each kind, and its pool). `deciders.py` keeps
what a policy may see. It imports neither a model nor a page.
"""
