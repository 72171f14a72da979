"""Calibration: time a model on the box at hand, fit cost models, and write a device profile.

To read it, start with `calibration.py` (one calibration from plan to profile), `plan.py` (what is timed, in which order) and
`fits.py` (samples to cost models). `streaming/` measures what STI needs; `doctor.py` says what a box lacks.
"""
