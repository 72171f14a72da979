"""Libraries compiled for aarch64 and run in qemu, with the interface of `ctypes.CDLL`, so that Python calls them as its own.

A function runs in another process, `call_server.c`, that has this process's memory at the same addresses: it fetches a page
when it first touches it, and returns what it changed. Structures and columns have the same layout on both processors.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from simnmt.base.compile import PORTABLE, Library
from simnmt.world.compiled_library import AccountCopy, StreamingBox, WorldSettings

MACHINE = "aarch64"
COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
PACKAGES = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
HERE = Path(__file__).parent
PAGE = 4096
GUEST_ARRAYS = {"simnmt_world_account": ("steps", "timeline", "step_s"), "simnmt_world_stream": ("counts",)}
"""Functions that return addresses of the emulated process, and the fields that hold them."""


class EmulationError(Exception):
    """The emulated process ended; the message says where."""


def missing_tools() -> str:
    """Return which tools are missing, and the packages that have them; empty if none is."""
    missing = [tool for tool in (COMPILER, EMULATOR[0]) if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not installed (Debian, Ubuntu: apt install {PACKAGES})" if missing else ""


def compile_program(target: Path, *arguments: str) -> Path:
    """Compile a program for aarch64."""
    command = [COMPILER, "-std=gnu11", *arguments, "-o", str(target), "-lm"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return target


def run_program(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program for aarch64."""
    return subprocess.run([*EMULATOR, str(program), *arguments], capture_output=True, text=True, check=False)


def cross_compiled(library: Library, folder: Path, change: Callable[[str, str], str] = lambda name, text: text) -> Library:
    """Compile a library for aarch64 in a folder, with its flags; `change` returns the changed text of a source."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in library.folder.glob("*.[ch]"):
        (folder / source.name).write_text(change(source.name, source.read_text(encoding="utf-8")), encoding="utf-8")
    emulated = replace(library, folder=folder)
    with mock.patch.dict(os.environ, {"CC": COMPILER}):
        emulated.compile_level(PORTABLE, MACHINE)
    return emulated


@functools.cache
def call_server() -> Path:
    """Return the program that calls functions, compiled once."""
    folder = tempfile.TemporaryDirectory(prefix="simnmt-aarch64-")
    call_server.folder = folder  # type: ignore[attr-defined]  # lives as long as this process
    return compile_program(Path(folder.name) / "call_server", "-O1", "-Wall", "-Wextra", "-Werror", str(HERE / "call_server.c"))


class EmulatedFunction:
    """A function of an emulated library, with the attributes of a function of `ctypes`."""

    restype: Any = ctypes.c_int
    argtypes: Any = ()

    def __init__(self, library: EmulatedLibrary, name: str) -> None:
        self._library, self._name = library, name

    def __call__(self, *arguments: Any) -> Any:
        """Call it, and return its result as `restype` reads it."""
        numbers, reals = list[int](), list[bytes]()
        for kind, argument in zip(self.argtypes, arguments, strict=True):
            if kind in (ctypes.c_float, ctypes.c_double):
                reals.append(struct.pack("<f4x" if kind is ctypes.c_float else "<d", argument))
            else:
                numbers.append(_number(argument))
        result = self._library.call(self._name, numbers, reals, arguments)
        if self.restype is None:
            return None
        if self.restype is ctypes.c_void_p:
            return result or None
        return self.restype(result).value


class EmulatedLibrary:
    """A library for aarch64 in a process of its own, which ends with this object."""

    def __init__(self, path: Path) -> None:
        command = [*EMULATOR, str(call_server()), str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._lock = threading.Lock()
        self._memory = os.open("/proc/self/mem", os.O_RDONLY)
        self._fetched: dict[int, bytes] = {}
        self._probe: Callable[[int, int, float], float] | None = None
        self._returned: list[Any] = []
        self.pages = 0
        """Fetched so far."""
        (self._probe_address,) = struct.unpack("<q", self._get(8))

    def __getattr__(self, name: str) -> EmulatedFunction:
        if not name.startswith("simnmt_"):
            raise AttributeError(name)
        function = EmulatedFunction(self, name)
        setattr(self, name, function)
        return function

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.stdout.close()  # type: ignore[union-attr]
        self._process.kill()
        self._process.wait()
        os.close(self._memory)

    def call(self, name: str, numbers: list[int], reals: list[bytes], arguments: tuple[Any, ...]) -> int:
        """Call a function, and return what it left in the first register."""
        with self._lock:
            if name != "simnmt_world_new":
                result = self._called(name, numbers, reals)
            else:
                result = self._with_own_probes(arguments[0]._obj, lambda: self._called(name, numbers, reals))
            for field in GUEST_ARRAYS.get(name, ()):
                copied = arguments[-1]._obj
                assert isinstance(copied, AccountCopy | StreamingBox)
                self._bring(copied, field)
            return result

    def block(self, address: int) -> bytes:
        """Return the content of a block that a function allocated."""
        return self._content(b"b", address)

    def text(self, address: int) -> str:
        """Return a text of the library."""
        return self._content(b"s", address).decode()

    def _content(self, kind: bytes, address: int) -> bytes:
        self._put(kind + struct.pack("<q", address))
        (size,) = struct.unpack("<q", self._get(8))
        return self._get(size)

    def _called(self, name: str, numbers: list[int], reals: list[bytes]) -> int:
        self._put(b"c" + struct.pack("<64s16q", name.encode(), *numbers, *[0] * (16 - len(numbers))))
        self._put(b"".join(reals).ljust(64, b"\0"))
        self._fetched.clear()
        while True:
            kind = self._get(1)
            if kind == b"p":
                self._send_page(*struct.unpack("<q", self._get(8)))
            elif kind == b"t":
                assert self._probe is not None
                self._put(struct.pack("<d", self._probe(*struct.unpack("<qqd", self._get(24)))))
            elif kind == b"d":
                result, changed = struct.unpack("<qq", self._get(16))
                for _ in range(changed):
                    self._take_page(*struct.unpack("<q", self._get(8)))
                return int(result)
            else:
                raise EmulationError(f"{name} touches {struct.unpack('<Q', self._get(8))[0]:#x}, which is not there")

    def _with_own_probes(self, settings: WorldSettings, call: Callable[[], int]) -> int:
        """Call with the emulated function of probes in the settings, which asks the one that they hold."""
        held = ctypes.c_uint64.from_address(ctypes.addressof(settings) + WorldSettings.rtt_s.offset)
        self._probe, own = settings.rtt_s, held.value
        held.value = self._probe_address
        try:
            return call()
        finally:
            held.value = own

    def _bring(self, structure: ctypes.Structure, field: str) -> None:
        """Copy an array of the emulated process, and let the field point to the copy."""
        pointer = getattr(structure, field)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        if address:
            copy = ctypes.create_string_buffer(self.block(address))
            self._returned.append(copy)
            setattr(structure, field, ctypes.cast(copy, type(pointer)))

    def _send_page(self, address: int) -> None:
        try:
            page = os.pread(self._memory, PAGE, address)
        except (OSError, OverflowError):
            self._put(b"\0")
            return
        self._fetched[address] = page
        self.pages += 1
        self._put(b"\1" + page)

    def _take_page(self, address: int) -> None:
        """Write the bytes of a page that were changed; Python's own objects may lie beside them."""
        old, new = np.frombuffer(self._fetched[address], np.uint8), np.frombuffer(self._get(PAGE), np.uint8)
        changed = np.flatnonzero(old != new)
        np.ctypeslib.as_array((ctypes.c_uint8 * PAGE).from_address(address))[changed] = new[changed]

    def _put(self, content: bytes) -> None:
        try:
            os.write(self._process.stdin.fileno(), content)  # type: ignore[union-attr]
        except BrokenPipeError:
            raise EmulationError(f"the emulated process ended with status {self._process.wait()}") from None

    def _get(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            part = self._process.stdout.read(size - len(content))  # type: ignore[union-attr]
            if not part:
                raise EmulationError(f"the emulated process ended with status {self._process.wait()}")
            content += part
        return bytes(content)


def _number(argument: Any) -> int:
    """Return an argument as an integer register holds it."""
    if argument is None:
        return 0
    if hasattr(argument, "_obj"):  # of `ctypes.byref`
        return ctypes.addressof(argument._obj)
    if isinstance(argument, ctypes.Array | ctypes.Structure):
        return ctypes.addressof(argument)
    if isinstance(argument, ctypes._SimpleCData):
        return int(argument.value or 0)
    if isinstance(argument, ctypes._Pointer):
        return ctypes.cast(argument, ctypes.c_void_p).value or 0
    return int(argument)


def opened(library: Library, path: Path, sources: bytes) -> EmulatedLibrary:
    """Open a library as `Library.opened` does; it must be made from the present sources."""
    emulated = EmulatedLibrary(path)
    emulated.simnmt_sources.restype = ctypes.c_void_p
    assert emulated.text(emulated.simnmt_sources()).encode() == sources
    return emulated
