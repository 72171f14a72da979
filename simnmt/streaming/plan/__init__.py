"""Streaming plans: which shards are loaded, and at how many bits, within a deadline and a preload buffer.

Open first: `streaming_plan.py` (the plan and the planner), `submodel.py` (the two planning stages), `engagement.py` (what the
simulated world asks about a streamed request). Pure functions of costs; this package imports no torch and nothing else of
`simnmt.streaming`.
"""
