"""Kinds of users: a class, function or object in the place of a shipped kind.

A scenario names code (`package.module:Name` or `file.py:Name`, which the user must allow) or an entry point of an installed
package; in Python it may hold an object. Only `CodeName.load` imports anything. `scenario.extensions` checks the parameters.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, NamedTuple
from zlib import crc32

from pydantic import ConfigDict, model_serializer

from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError, Interrupted, describe_error
from simnmt.base.suggestions import did_you_mean

OBJECT = "object"
"""Key under which a resolved scenario names the class of an object of Python."""
FAULTS = (Exception, SystemExit)
"""Faults of a user's code; `describe_fault` raises an `Interrupted`, which is a `SystemExit` too, again."""


class ExtensionError(InputError):
    """A fault of a user's class, function or object."""


@cache
def installed_kinds(group: str) -> tuple[str, ...]:
    """Return the names of the kinds that installed packages add to a group of entry points; imports none of them."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=group)}))


def is_code(kind: str) -> bool:
    """Return whether a kind names code, such as `package.module:Name`, rather than a registered kind."""
    return ":" in kind


class CodeName(NamedTuple):
    """The name of a class, function or object, as a scenario gives it."""

    kind: str
    """`package.module:Name`, `file.py:Name`, or the name of an entry point."""
    group: str
    """The group of the entry point."""
    folders: tuple[str, ...] = ()
    """Folders in which a file or module is looked for before the installed packages."""

    @property
    def file(self) -> Path | None:
        """The file of the code; None for a module of an installed package."""
        return None if self._place is None else self._place[1]

    @property
    def resolved(self) -> str:
        """The kind with the absolute path of its file or module, so that it is valid from any folder."""
        module, _, name = self.kind.rpartition(":")
        return self.kind if self._place is None else f"{self._place[0] / Path(module).name}:{name}"

    @property
    def distribution(self) -> tuple[str, str] | None:
        """Name and version of the distribution that has the entry point; None for code that a scenario names."""
        point = None if is_code(self.kind) else self._entry_point
        return None if point is None or point.dist is None else (point.dist.name, point.dist.version)

    def load(self) -> Any:
        """Import the class, function or object. A file is executed at each call. Raises `ExtensionError`."""
        module, _, name = self.kind.rpartition(":")
        if module.endswith(".py") and self.file is None:
            raise ExtensionError(f"no file {module}", remedy=f"looked in {', '.join(self.folders)}")
        try:
            value: Any = self._module(module) if is_code(self.kind) else self._entry_point.load()
        except ModuleNotFoundError as error:
            looked = f"; looked in {', '.join(self.folders)}" if self.folders else ""
            remedy = "check the name, or install its package"
            raise ExtensionError(f"{self.kind} cannot be imported: no module {error.name}{looked}", remedy=remedy) from None
        except FAULTS as error:
            raise ExtensionError(f"{self.kind} cannot be imported: {describe_fault(error)}") from error
        try:
            return attrgetter(name)(value) if is_code(self.kind) else value
        except AttributeError:
            remedy = did_you_mean(name, [known for known in vars(value) if not known.startswith("_")])
            raise ExtensionError(f"{module} has no {name}", remedy=remedy) from None

    @property
    def _entry_point(self) -> metadata.EntryPoint:
        (point, *_) = metadata.entry_points(group=self.group, name=self.kind)
        return point

    @property
    def _place(self) -> tuple[Path, Path] | None:
        """The folder that has the file or module, and the file."""
        written = Path(self.kind.rpartition(":")[0])
        stem = written.name.replace(".", "/")
        names = (written.name,) if written.suffix == ".py" else (f"{stem}/__init__.py", f"{stem}.py")
        for folder in [(Path(folder) / written.parent).absolute() for folder in self.folders if is_code(self.kind)]:
            for file in [folder / name for name in names]:
                if file.is_file():
                    return folder, file
        return None

    def _module(self, written: str) -> ModuleType:
        if self._place is None:
            return importlib.import_module(written)
        folder, file = self._place
        sys.path.insert(0, str(folder))
        try:
            if written.endswith(".py"):
                # A name of its own, since scenarios in different folders may have files of one name.
                alias = f"simnmt_code_{crc32(bytes(file)):x}"
                module = sys.modules[alias] = ModuleType(alias)
                module.__file__ = str(file)
                exec(compile(file.read_bytes(), file, "exec"), vars(module))
                return module
            importlib.invalidate_caches()
            module = importlib.import_module(Path(written).name)
        finally:
            sys.path.remove(str(folder))
        if module.__file__ is None or not file.samefile(module.__file__):
            raise ImportError(f"another module of that name was imported from {module.__file__}: start Python anew")
        return module


def describe_fault(error: BaseException) -> str:
    """Return an error of a user's code on one line: its class, its text, and the line of the code that raised it.

    Raises an `Interrupted` again: a signal that arrives while the code runs is no fault of it.
    """
    if isinstance(error, Interrupted):
        raise error
    ours = (str(Path(__file__).parents[1]), "<frozen")
    of_user = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    place = f" in {Path(of_user[-1].filename).name}:{of_user[-1].lineno}" if of_user else ""
    text, name = describe_error(error), type(error).__name__
    return f"{name}{'' if text == name else f': {text}'}{place}"


class Placement(NamedTuple):
    """Where a scenario names an extension."""

    key: str
    """Its key; an option that set the key comes first."""
    path: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Extension:
    """A class, function or object of a user for one place of a scenario, with its parameters."""

    value: Any
    label: str
    """Its name in messages."""
    code: CodeName | None = None
    """How it is loaded; None for an object of Python."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Checked values by the names of its parameters."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """The keys as the scenario has them."""
    placement: Placement | None = None
    """Where the scenario names it; None before that is known."""

    @property
    def document(self) -> Mapping[str, Any]:
        """The extension in a resolved scenario."""
        return {OBJECT: self.label} if self.code is None else {**self.written, "kind": self.code.resolved}

    def takes(self, name: str) -> bool:
        """Return whether it is a class or function with a parameter of this name."""
        return name in signature_parameters(self.value)

    def make(self, **given: Any) -> Any:
        """Return a new instance of a class, the result of a function, or a copy of an object.

        `given`: arguments beside the parameters, of which those are passed that it takes. Raises `ExtensionError`.
        """
        if not (inspect.isclass(self.value) or inspect.isroutine(self.value)):
            return copied(self.value, self.label)
        try:
            return self.value(**self.parameters, **{name: value for name, value in given.items() if self.takes(name)})
        except FAULTS as error:
            raise ExtensionError(f"{self.label} cannot be made: {describe_fault(error)}") from error

    def fault(self, what: str, remedy: str | None = None) -> ExtensionError:
        """Return the error of a call during a run, with the key of the scenario and its place."""
        if self.placement is None:
            return ExtensionError(what, remedy=remedy)
        key, path, line, column = self.placement
        return ExtensionError(f"{key}: {what}", path=path, line=line, column=column, remedy=remedy)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle the name of code, or an object with the definitions that another process lacks."""
        import cloudpickle  # type: ignore[import-untyped]

        content = cloudpickle.dumps(self.value) if self.code is None else None
        return _restored, (content, self.label, self.code, self.parameters, self.written, self.placement)


def _restored(content: bytes | None, label: str, code: CodeName | None, *rest: Any) -> Extension:
    import cloudpickle

    return Extension(cloudpickle.loads(content) if code is None else code.load(), label, code, *rest)


def copied(value: Any, label: str) -> Any:
    """Return a copy of a user's object. Raises `ExtensionError` for one that cannot be copied, such as one with a lock."""
    try:
        return copy.deepcopy(value)
    except Exception as error:
        remedy = "define __deepcopy__, or give a class or function that makes one"
        raise ExtensionError(f"{label} cannot be copied: {describe_fault(error)}", remedy=remedy) from error


def of_object(value: Any) -> Extension:
    """Return an object of Python as an extension."""
    named = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", type(value).__name__)
    name = name.rpartition("<locals>.")[2]
    return Extension(value, name if module in (None, "builtins") else f"{module}.{name}")


def signature_parameters(value: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function by name; empty for an object, and if they are unknown."""
    try:
        return inspect.signature(value).parameters if inspect.isclass(value) or inspect.isroutine(value) else {}
    except (TypeError, ValueError):
        return {}


class Extended(Configuration):
    """Base of the configurations by which an extension stands in the place of a shipped kind."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: str
    """Its name in messages and pages."""
    extension: Extension

    @model_serializer
    def _document(self) -> Mapping[str, Any]:
        return self.extension.document
