"""The sharp decoder (SHARP-01): a source encoder and a beam search of one sentence, with a switch for each technique.

To read it, start with `model.py` (arrays, requests, results), `decoder.py` (the classes to call) and `reference.py` (the search
in numpy). `native_search.py` calls the same search in C; `model_shapes.py` counts operations and draws random models.
"""
