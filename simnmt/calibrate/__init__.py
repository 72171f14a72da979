"""Calibration: time a model on this box, fit cost models, and write a device profile.

Start with `calibration.py` (one calibration from plan to profile), `plan.py` (the works to time, in order) and `fits.py`
(samples to cost models). `streaming/` measures a streamed model; `doctor.py` examines a box. This room must not import
`live`, `report`, `papers` and `cli`.
"""
