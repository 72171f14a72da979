"""Kernels of a decoder step: one C source, a reference and a fallback for each, and the cases that measure them.

To read it, start with `output_layer.py` (bias, softmax and search fused, FNI-03 to 06), `packed_products.py` (products with
packed weights, SHARP-05) and `columns.py` (some columns of the vocabulary, FVP-07). `compile.py` builds `native/`.
"""
