"""The live testbed: the gateway and the server that run the policies and batchers of the simulation on real models.

Start with `engine_process` (a model in a process of its own), `model_engines` (several), `server`, and `gateway`.
"""
