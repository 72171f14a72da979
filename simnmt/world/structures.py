"""The structures that the C in `compiled/` reads, as `settings.h` declares them, and the library itself."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.compile import PORTABLE, WORLD_LIBRARY

NUMBER, REAL, POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


def _declarations(header: str) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Return the structures and the numbers of the enumerations of a header, by name."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    types: dict[str, Any] = {"int64_t": NUMBER, "double": REAL}
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, flags=re.DOTALL):
        fields = []
        for declaration in filter(None, (line.strip() for line in body.split(";"))):
            kind, names = re.fullmatch(r"(?:const )?(\w+)\s*(.*)", declaration, flags=re.DOTALL).groups()  # type: ignore[union-attr]
            for declared in names.split(","):
                field = declared.replace("const", "").strip()
                fields.append((field.lstrip("* "), POINTER if field.startswith("*") else types[kind]))
        types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    numbers = {
        name.strip(): number for names in re.findall(r"enum \{(.*?)\}", text) for number, name in enumerate(names.split(","))
    }
    return types, numbers


_TYPES, _NUMBERS = _declarations((WORLD_LIBRARY.folder / "settings.h").read_text())
c: Any = SimpleNamespace(**_TYPES, **_NUMBERS)
"""The structures and numbers of `settings.h` by name."""
DecideCallback = ctypes.CFUNCTYPE(NUMBER, NUMBER)


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled world; None if it was not compiled, or from other sources, which a warning says."""
    path = WORLD_LIBRARY.compiled().get(PORTABLE)
    cdll = None if path is None else WORLD_LIBRARY.opened(path)
    if cdll is None:
        return None
    signatures: dict[str, tuple[Any, ...]] = {
        "new": (POINTER, POINTER),
        "block": (NUMBER, POINTER, POINTER),
        "end": (NUMBER, POINTER),
        "free": (None, POINTER),
        "account": (None, POINTER, NUMBER, NUMBER, POINTER),
        "stream": (None, POINTER, NUMBER, NUMBER, POINTER),
        "decode": (NUMBER, POINTER, POINTER),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(cdll, f"simnmt_world_{name}")
        function.restype, function.argtypes = result, arguments
    return cdll


class PinnedMemory(list[Any]):
    """Arrays and structures that the C points to, which must live as long as it reads them."""

    def address(self, column: NDArray[Any] | None, dtype: Any = np.float64) -> int | None:
        """Return the address of a column's numbers."""
        if column is None:
            return None
        contiguous = np.ascontiguousarray(column, dtype)
        self.append(contiguous)
        return contiguous.ctypes.data

    def addresses(self, columns: Sequence[NDArray[Any] | None], dtype: Any = np.float64) -> int:
        """Return the address of the addresses of columns."""
        return self.array(POINTER, [self.address(column, dtype) for column in columns])

    def tables(self, tables: Sequence[Sequence[NDArray[Any]] | None]) -> int:
        """Return the address of the addresses of tables of columns."""
        return self.array(POINTER, [None if columns is None else self.addresses(columns) for columns in tables])

    def array(self, kind: Any, items: Sequence[Any]) -> int:
        """Return the address of an array of structures or numbers."""
        array = (kind * len(items))(*items)
        self.append(array)
        return ctypes.addressof(array)

    def structure(self, structure: Any) -> int:
        """Return the address of a structure."""
        self.append(structure)
        return ctypes.addressof(structure)
