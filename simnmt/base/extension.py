"""Extensions: classes, functions and objects that users bring in the place of a shipped kind.

An extension comes from an installed package (an entry point), from code that the user allows (`package.module:Name` or
`file.py:Name`), or from Python as an object. Its parameters are the keys of a scenario; they are checked by the class's own
model, or by one made of its signature. Nothing is imported before `load`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model, model_serializer

from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError, Interrupted, describe_error
from simnmt.base.user_code import (
    UserModule,
    find_module,
    import_installed,
    installed_module,
    load_module,
    loaded_module,
)

OBJECT = "object"
"""Key under which a resolved scenario names the class of an object of Python."""


FAULTS = (Exception, SystemExit)
"""What counts as a fault of a user's code: `exit()` in it would end the command without a word, too.

`describe_fault` raises an `Interrupted` again, which is a `SystemExit` as well, so each handler of these calls it first.
"""


class ExtensionError(InputError):
    """A fault of a user's class, function or object."""

    is_placed = False
    """True if the message names the key of the scenario and its place."""


class PlainParameters(Configuration):
    """Base of the models that are made of signatures; a parameter may have any type."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


@cache
def installed_kinds(group: str) -> tuple[str, ...]:
    """Return the names of the kinds that installed packages add to a group of entry points; imports none of them."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=group)}))


def is_code(kind: str) -> bool:
    """Return whether a kind names code, such as `package.module:Name`, rather than a registered kind."""
    return ":" in kind


@dataclass(frozen=True, slots=True)
class CodeName:
    """The name of a class or function, as a scenario gives it."""

    kind: str
    """`package.module:Name`, `file.py:Name`, or the name of an entry point."""
    group: str
    """The group of the entry point."""
    folders: tuple[str, ...] = ()
    """Folders in which modules and files are looked for before the installed packages."""

    def load(self, expected: Mapping[str, str] | None = None) -> Any:
        """Import the module and return the class, function or object. Raises `ExtensionError`.

        `expected`: the digests of an earlier load, in another process too, whose code is meant though it has changed since.
        """
        if not is_code(self.kind):
            point = self._entry_point
            self._check_expected(self._guarded(lambda: import_installed(point.module, _files_of(point.dist))), expected)
            return self._guarded(point.load)
        module_name, _, name = self.kind.rpartition(":")
        loaded: UserModule = self._guarded(lambda: self._module(module_name, expected))
        self._check_expected(loaded, expected)
        value: Any = loaded.module
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is None:
            module = loaded.module
            defined = {key: part for key, part in vars(module).items() if getattr(part, "__module__", "") == module.__name__}
            known = [key for key in defined if not key.startswith("_")]
            remedy = f"it has {', '.join(known[:8])}" if known else "define it there"
            raise ExtensionError(f"{module_name} has no {name or 'name after the colon'}", remedy=remedy)
        return value

    @property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of each file of the loaded code, by its path."""
        module_name = self.kind.rpartition(":")[0] if is_code(self.kind) else self._entry_point.module
        place = self._place(module_name) if is_code(self.kind) else None
        loaded = installed_module(module_name) if place is None else loaded_module(*place)
        return {} if loaded is None else loaded.digests

    @property
    def distribution(self) -> tuple[str, str] | None:
        """Name and version of the distribution that has the entry point; None for code that a scenario names."""
        point = None if is_code(self.kind) else self._entry_point
        return None if point is None or point.dist is None else (point.dist.name, point.dist.version)

    @property
    def _entry_point(self) -> metadata.EntryPoint:
        (point, *_) = metadata.entry_points(group=self.group, name=self.kind)
        return point

    def _check_expected(self, loaded: UserModule, expected: Mapping[str, str] | None) -> None:
        """Raise `ExtensionError` if a loaded file differs; another process may have imported more of an installed package."""
        if expected is not None and any(expected.get(file, digest) != digest for file, digest in loaded.digests.items()):
            raise ExtensionError(f"the code of {self.kind} changed during the run", remedy="run it again")

    def _guarded(self, load: Any) -> Any:
        try:
            return load()
        except ExtensionError:
            raise
        except ModuleNotFoundError as error:
            looked = f"; looked in {', '.join(self.folders)}" if self.folders else ""
            raise ExtensionError(
                f"{self.kind} cannot be imported: no module {error.name}{looked}",
                remedy="check the name, or install its package",
            ) from None
        except FAULTS as error:
            raise ExtensionError(
                f"{self.kind} cannot be imported: {describe_fault(error)}", remedy="correct the module"
            ) from error

    def _module(self, module_name: str, expected: Mapping[str, str] | None) -> UserModule:
        place = self._place(module_name)
        return import_installed(module_name) if place is None else load_module(*place, expected)

    def _place(self, module_name: str) -> tuple[Path, str] | None:
        """Return the folder in which a module is found, and its name there; None for one of an installed package."""
        written = Path(module_name)
        folders = [(Path(folder) / written.parent).absolute() for folder in self.folders or (".",)]
        if written.name.partition(".")[0] != "simnmt":
            folder = next((folder for folder in folders if find_module(folder, written.name) is not None), None)
            if folder is not None:
                return folder, written.name
        if written.suffix == ".py" or written.name != module_name:
            places = ", ".join(str(folder / written.name) for folder in folders)
            raise ExtensionError(f"no file {module_name}", remedy=f"looked for {places}")
        return None

    @property
    def resolved(self) -> str:
        """The kind with the absolute path of its file or module, so that it is valid from any folder."""
        module_name, _, name = self.kind.rpartition(":")
        place = self._place(module_name) if is_code(self.kind) else None
        return self.kind if place is None else f"{place[0] / place[1]}:{name}"


def _files_of(distribution: metadata.Distribution | None) -> list[Path]:
    """Return the files of a distribution; none of one that keeps no record of them."""
    files = [] if distribution is None else distribution.files or []
    return [Path(str(file.locate())) for file in files]


def describe_fault(error: BaseException) -> str:
    """Return an error of a user's code on one line: its class, its text, and the line of the code that raised it.

    Raises an `Interrupted` again: a signal that arrives while the code runs is no fault of it.
    """
    if isinstance(error, Interrupted):
        raise error
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    package = str(Path(__file__).parents[1])
    of_user = [frame for frame in frames if not frame[0].startswith((package, "<frozen"))]
    place = f" in {Path(of_user[-1][0]).name}:{of_user[-1][1]}" if of_user else ""
    text = describe_error(error)
    name = type(error).__name__
    return f"{name}{'' if text == name else f': {text}'}{place}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a scenario names an extension."""

    key: str
    """Its key; an option that set the key comes first."""
    path: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Extension:
    """What a user brings for one place of a scenario, with its parameters."""

    value: Any
    """The class, function or object."""
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
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file of its code, by its path; empty for an object."""

    @property
    def is_object(self) -> bool:
        """Whether it came from Python, so that no file can hold it."""
        return self.code is None

    @property
    def document(self) -> Mapping[str, Any]:
        """What a resolved scenario says of it."""
        if self.code is None:
            return {OBJECT: self.label}
        return {**self.written, "kind": self.code.resolved}

    def takes(self, name: str) -> bool:
        """Return whether it is a class or function with a parameter of this name."""
        return name in _signature_parameters(self.value)

    def make(self, **given: Any) -> Any:
        """Return a new instance of a class, what a function returns, or a copy of an object.

        `given`: arguments beside the parameters, of which those are passed that it takes. Raises `ExtensionError`.
        """
        if not (inspect.isclass(self.value) or inspect.isroutine(self.value)):
            return copied(self.value, self.label)
        passed = {name: value for name, value in given.items() if self.takes(name)}
        try:
            return self.value(**self.parameters, **passed)
        except FAULTS as error:
            raise ExtensionError(f"{self.label} cannot be made: {describe_fault(error)}") from error

    def fault(self, what: str, remedy: str | None = None) -> ExtensionError:
        """Return the error of a call during a run, with the key of the scenario and its place."""
        place = self.placement
        if place is None:
            return ExtensionError(what, remedy=remedy)
        error = ExtensionError(f"{place.key}: {what}", path=place.path, line=place.line, column=place.column, remedy=remedy)
        error.is_placed = True
        return error

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle the name of code, or an object with the definitions that another process lacks."""
        if self.code is not None:
            parts = (dict(self.parameters), dict(self.written), self.placement, dict(self.digests))
            return _reloaded, (self.code, self.label, *parts)
        import cloudpickle  # type: ignore[import-untyped]

        return _unpickled, (cloudpickle.dumps(self.value), self.label, self.placement)


def _reloaded(
    code: CodeName,
    label: str,
    parameters: Mapping[str, Any],
    written: Mapping[str, Any],
    placement: Placement | None,
    digests: Mapping[str, str],
) -> Extension:
    return Extension(code.load(digests), label, code, parameters, written, placement, digests)


def _unpickled(content: bytes, label: str, placement: Placement | None) -> Extension:
    import cloudpickle

    return Extension(cloudpickle.loads(content), label, placement=placement)


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


def _signature_parameters(value: Any) -> dict[str, inspect.Parameter]:
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return {}
    try:
        return dict(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return {}


def parameter_model(
    value: Any, given: Iterable[str], base: type[Configuration], label: str
) -> tuple[type[BaseModel], Sequence[str]]:
    """Return the model that checks the parameters of a class or function, and the names of its own parameters.

    Args:
        value: the class or function; a pydantic model is its own.
        given: parameters that are no keys of a scenario, since simnmt passes them.
        base: a model whose keys are accepted beside the parameters.
        label: name of the model.

    Raises `ExtensionError` for parameters that have no name.
    """
    if inspect.isclass(value) and issubclass(value, BaseModel):
        return value, list(value.model_fields)
    fields: dict[str, Any] = {}
    hints = _hints(value)
    for name, parameter in _signature_parameters(value).items():
        if name in given or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise ExtensionError(f"{label} has the parameter {parameter}, which no key can give", remedy="give it a name")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints.get(name, Any), default)
    make_model: Any = create_model
    model: type[BaseModel] = make_model(label.rpartition(":")[2] or label, __base__=base, **fields)
    return model, list(fields)


def _hints(value: Any) -> Mapping[str, Any]:
    target = value.__init__ if inspect.isclass(value) else value
    try:
        return get_type_hints(target, include_extras=True)
    except Exception:  # a name in an annotation that only a type checker imports
        return {}


def literal_kind(model: type[BaseModel]) -> str | None:
    """Return the word that a model requires as its `kind`; None if it has none."""
    annotation: Any = model.model_fields["kind"].annotation if "kind" in model.model_fields else None
    return get_args(annotation)[0] if get_origin(annotation) is Literal else None


class Extended(Configuration):
    """Base of the configurations by which an extension stands in the place of a shipped kind."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: str
    """Its name in messages and pages."""
    extension: Extension

    @model_serializer
    def _document(self) -> Mapping[str, Any]:
        return self.extension.document
