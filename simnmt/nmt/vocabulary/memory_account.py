"""Memory that clusters take beside their model (FVP-12, FVP-18)."""

from __future__ import annotations


def memory_account(vocab: int, width: int, clusters: int, columns: int, bytes_per_number: int = 2) -> dict[str, int]:
    """Return the bytes of clusters with so many active `columns` in all sets together, by part (FVP-12, FVP-13).

    The parts are the centroids; their squared norms and their mean in float32, computed beforehand (FVP-05); the indices of the
    active columns; the begins of the sets, which the paper's sum leaves out; and a flag per column for making a union (FVP-06).
    """
    return {
        "centroids": clusters * width * bytes_per_number,
        "norms": 4 * (clusters + width),
        "indices": 4 * columns,
        "starts": 8 * (clusters + 1),
        "flags": vocab,
    }
