"""The world, in SimPy: end nodes, gateways and servers in tiers, the links between them, and the requests that pass through.

To read it, start with `simulation.py` (the three disciplines), then `traffic.py` (how one request is decided on and sent), then
`server.py` (the protocol of every kind of server). The kinds are `fifo_server.py`, `batch_pool.py` and `streaming_server.py`; a
fourth is one more class. `deciders.py` holds what a policy may see. `compiled_world.py` runs in C what `compiled/` covers, with
the same results. The room imports neither a model nor a page.
"""
