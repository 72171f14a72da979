"""The other half of the paper on top-up batching: softmax and search fused into one pass over the output layer's products.

Read `published` first (Tables 2 and 3 and what follows from them), then `devices` (whose decoders are known in which variants),
`stages` (the tables' seconds on a device), `speeds` (all sentences at hand), `claims`, `reproduction` (all of it).
"""
