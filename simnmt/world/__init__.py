"""One run of the world: end nodes, gateways and boxes in tiers, the links between them, and the requests that pass through.

To read it, start with `inputs.py` and `reference.py`: plain SimPy, with a process for each request where requests can wait.
The reference runs everything that a scenario can say. The boxes are in `simnmt.devices`, `deciders.py` holds what a policy may
see, `faults.py` the links that fail. To run it, `engine.py` chooses the engine; `compiled_world.py` hands what scenarios use
every day to the C in `compiled/`, whose structures `structures.py` reads from `compiled/settings.h`. Both engines make the same
choices. The room imports neither a model nor a page.
"""
