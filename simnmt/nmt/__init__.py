"""Real translation models: load or build them, decode step by step, time them, train them.

Open first: `step_model.py`, the interface that every model implements; `slot_decoder.py`, which decodes a changing set of
sentences; `engine.py`, which calibration measures. `vocabulary/` restricts the output layer to a part of the target
vocabulary, `training/` trains small models. Most modules need torch; `errors`, `devices`, `architecture`, `engine`,
`engines` and `subwords` do not import it at top level. No import of `scenario`, `experiment`, `calibrate`
or anything above.
"""

from __future__ import annotations
