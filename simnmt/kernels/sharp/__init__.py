"""The sharp decoder (SHARP-01): a source encoder and a beam search of one sentence, with a switch for each technique.

`model.py` has the arrays, `decoder.py` the classes to call, `reference.py` the same in numpy. The model in torch,
`simnmt.nmt.attentional_model`, finds the same.
"""
