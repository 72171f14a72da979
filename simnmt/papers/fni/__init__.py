"""Faster NMT inference (anonymous ACL submission): top-up batching and a fused output layer, each with its own verb.

To read it, start with `topup.py` (claims, tables and figures), then `fused_claims.py` and `fused.py`. Below: `simulation.py`
(device profiles with batch costs or a fused output layer, occupancies and speeds as frames, and the facts of a device) and
`real_decoder.py` (torch, with and without the fused layer). It imports `kit` and no other paper.
"""
