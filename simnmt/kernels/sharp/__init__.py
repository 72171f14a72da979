"""The sharp decoder (SHARP-01): a source encoder and a beam search of one sentence, with a switch for each technique.

To read it, start with `model.py` (arrays and requests), `decoder.py` (the classes to call) and `reference.py` (the search in
numpy). `compiled.py` calls the same search in C.
"""
