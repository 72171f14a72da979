"""What the output layer's last three steps move through memory, fused and not (FNI-02)."""

from __future__ import annotations


def memory_traffic(vocab: int, *, fused: bool) -> int:
    """Elements that bias, softmax and 1-best move for one hypothesis.

    Unfused, the products are read five times and written twice, and the bias read once; fused, each is read once.
    """
    return 2 * vocab if fused else 8 * vocab
