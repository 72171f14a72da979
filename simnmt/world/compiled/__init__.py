"""The world in C: the same trails as the world in SimPy, to the bit, at the speed of compiled code.

To read it, start with `world.py` (what it covers, and how a run is handed over) beside `native/simulation.h`. The C is a
translation of the modules above, function by function: what anything means is documented there.
"""
