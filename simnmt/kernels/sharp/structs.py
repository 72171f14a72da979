"""The structures that native/sharp_model.h, sharp_source.h and sharp.h declare, member for member."""

from __future__ import annotations

import ctypes
from typing import get_args

from simnmt.kernels.activations import Activation

_POINTER, _INT, _FLOAT, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_double

LAYER_KINDS = {"fc_relu": 0, "fc_tanh": 1, "gru": 2, "lstm": 3}
ACTIVATIONS = {way: number for number, way in enumerate(get_args(Activation))}
"""As simnmt_tanh and simnmt_sigmoid are told them too."""
MOST_MEMBERS = 16
"""Of an ensemble."""


class Matrix(ctypes.Structure):
    """`sharp_matrix`."""

    _fields_ = (
        ("packed", _POINTER),
        ("outputs", _INT),
        ("inner", _INT),
        ("limit", _FLOAT),
        ("scale", _FLOAT),
        ("rescale", _FLOAT),
    )


class Layer(ctypes.Structure):
    """`sharp_layer`."""

    _fields_ = (("kind", _INT), ("width", _INT), ("skip", _INT), ("input", Matrix), ("state", Matrix), ("bias", _POINTER))


class Model(ctypes.Structure):
    """`sharp_model`."""

    _fields_ = (
        *((name, _INT) for name in ("vocab", "e", "r", "s", "a", "gates", "top", "layers")),
        *((name, _INT) for name in ("additive", "int16", "activation", "attention_kept", "merge", "table_words")),
        *((name, Matrix) for name in ("state", "word", "context", "key", "output")),
        *((name, _POINTER) for name in ("embedding", "bias", "score", "output_bias", "table", "output_rows", "stack")),
    )


class SourceLayer(ctypes.Structure):
    """`sharp_source_layer`."""

    _fields_ = (
        ("kind", _INT),
        ("width", _INT),
        ("input", Matrix),
        ("state", Matrix * 2),
        ("bias", _POINTER),
        ("reset_bias", _POINTER),
    )


class Source(ctypes.Structure):
    """`sharp_source`."""

    _fields_ = (
        *((name, _INT) for name in ("vocab", "e", "layers", "int16", "activation", "table_words")),
        *((name, _POINTER) for name in ("embedding", "table", "stack")),
    )


class Request(ctypes.Structure):
    """`sharp_request`."""

    _fields_ = (
        *((name, _INT) for name in ("members", "src_len", "columns", "beam", "max_len")),
        ("ids", _POINTER),
        *((name, _INT) for name in ("start", "eos", "pad", "forced", "fused", "clock")),
        ("margin", _DOUBLE),
    )


class Result(ctypes.Structure):
    """`sharp_result`."""

    _fields_ = (
        ("log_prob", _DOUBLE),
        *((name, _INT) for name in ("length", "steps", "distinct", "hypotheses", "stopped_early")),
        ("seconds", _DOUBLE * 4),
    )


SIGNATURES: dict[str, tuple[type[ctypes.c_int64] | None, tuple[type, ...]]] = {
    "member_bytes": (_INT, (ctypes.POINTER(Model), _INT, _INT, _INT)),
    "beam_bytes": (_INT, (_INT, _INT, _INT)),
    "layout": (_INT, (_POINTER,)),
    "fill_table": (None, (_INT, ctypes.POINTER(Matrix), _POINTER, _INT, _POINTER, _POINTER)),
    "source_bytes": (_INT, (ctypes.POINTER(Source), _INT)),
    "encode": (None, (ctypes.POINTER(Source), _POINTER, _INT, _POINTER, _INT, _POINTER)),
    "decode": (
        _INT,
        (_POINTER, _POINTER, _POINTER, _POINTER, ctypes.POINTER(Request), ctypes.POINTER(Result), _POINTER, _POINTER),
    ),
    "forced": (
        None,
        (ctypes.POINTER(Model), _POINTER, _POINTER, ctypes.POINTER(Request), _POINTER, _POINTER, _INT, _POINTER, _POINTER),
    ),
}
"""Of the functions `simnmt_sharp_...`: what they return and take."""


def declare(cdll: ctypes.CDLL) -> int:
    """Declare the functions' types, and compare what is written down here with what was compiled; returns `ROW_BLOCK`.

    Raises `RuntimeError` where they differ: then one of the two was changed alone.
    """
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(cdll, f"simnmt_sharp_{name}")
        function.restype, function.argtypes = result, arguments
    own = [ctypes.sizeof(each) for each in (Matrix, Layer, Model, Request, Result, Source, SourceLayer)]
    own += [MOST_MEMBERS, *LAYER_KINDS.values(), *ACTIVATIONS.values()]
    told = (_INT * cdll.simnmt_sharp_layout(None))()
    cdll.simnmt_sharp_layout(told)
    *compiled, row_block = told
    if compiled != own:
        raise RuntimeError(f"structures and numbers of the sharp decoder are {own} in Python and {compiled} in C")
    return int(row_block)
