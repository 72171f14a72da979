"""Kernels of a decoder step: one C source, what runs without it, and the cases that measure them.

To read it, start with `output_layer.py` (bias, softmax and search fused, FNI-03 to 06), `columns.py` (some columns of the
vocabulary, FVP-07) and `sharp_decoder.py` (the sharp decoder, SHARP-01). `unpack.py` is the pattern of a kernel with its cases,
which `registry.py` finds. `simnmt.base.compile` builds `native/`.
"""
