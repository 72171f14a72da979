"""Calibration: time a model on this box, or a running service, fit cost models, and write a device profile.

Start with `harness.py` (how everything is timed), `calibration.py` (one calibration from its parts to the profile) and `parts/`
(a part is what it times, and what it fits). `endpoint.py` measures a service through HTTP, with `endpoint_load.py` and
`slot_ladder.py`; `streamed_model.py` measures a streamed model; `doctor.py` examines a box; the `*_bench.py` and `*_speeds.py`
measure for papers. This room must not import `live`, `report`, `papers` and `cli`.
"""
