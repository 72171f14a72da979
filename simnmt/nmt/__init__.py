"""Real translation models: load or build them, decode step by step, time them, train them.

Open first: `step_model.py`, what every model implements; `decoder.py`, the loop in which sentences join and leave a batch, with
`search.py` and `output_layer.py` as its arguments; `engine.py`, which calibration measures. A new engine is one line there, a
new family of Transformers one entry in `architecture.py`. `vocabulary/` restricts the output layer to a part of the target
vocabulary, `training/` trains small models. Most modules need torch; `errors`, `devices`, `architecture`, `engine`,
`sentence_decoder` and `subwords` do not import it at top level. No import of `scenario`, `experiment`, `calibrate` or anything
above.
"""
