"""Extensions: classes, functions and objects that users bring in the place of a shipped kind.

An extension comes from an installed package (an entry point), from code that the user allows (`package.module:Name` or
`file.py:Name`), or from Python as an object. Its parameters are the keys of a scenario; they are checked by the class's own
model, or by one made of its signature. Nothing is imported before `load`.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model, model_serializer

from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError, describe_error

OBJECT = "object"
"""Key under which a resolved scenario names the class of an object of Python."""


FAULTS = (Exception, SystemExit)
"""What counts as a fault of a user's code: `exit()` in it would end the command without a word, too."""


class ExtensionError(InputError):
    """A fault of a user's class, function or object."""


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
    """Folders in which modules and files are looked for first."""

    def load(self) -> Any:
        """Import the module and return the class or function. Raises `ExtensionError`."""
        if not is_code(self.kind):
            (point, *_) = metadata.entry_points(group=self.group, name=self.kind)
            return self._guarded(point.load)
        module_name, _, name = self.kind.rpartition(":")
        file = _file_of(module_name)
        module = self._guarded(lambda: self._import(module_name) if file is None else self._execute(file))
        value: Any = module
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is None:
            defined = {key: part for key, part in vars(module).items() if getattr(part, "__module__", "") == module.__name__}
            known = [key for key in defined if not key.startswith("_")]
            remedy = f"it has {', '.join(known[:8])}" if known else "define it there"
            raise ExtensionError(f"{module_name} has no {name or 'name after the colon'}", remedy=remedy)
        return value

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

    def _import(self, name: str) -> ModuleType:
        for folder in reversed(self.folders):
            if folder not in sys.path:
                sys.path.insert(0, folder)
        return importlib.import_module(name)

    def _execute(self, file: str) -> ModuleType:
        path = self._path_of(file)
        # By its content as well: a notebook that edits the file and runs again means the new one.
        name = f"simnmt_code_{hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:16]}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def _path_of(self, file: str) -> Path:
        places = [Path(folder) / file for folder in self.folders or (".",)]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise ExtensionError(f"no file {file}", remedy=f"looked for {', '.join(str(place) for place in places)}")
        return path.absolute()

    @property
    def resolved(self) -> str:
        """The kind with an absolute path if it names a file, so that it is valid from any folder."""
        module_name, _, name = self.kind.rpartition(":")
        file = _file_of(module_name)
        return self.kind if file is None else f"{self._path_of(file)}:{name}"


def _file_of(module_name: str) -> str | None:
    return module_name if module_name.endswith(".py") else None


def describe_fault(error: BaseException) -> str:
    """Return an error of a user's code on one line: its class, its text, and the line of the code that raised it."""
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

    @property
    def file(self) -> Path | None:
        """The file of its code; None if it is unknown or belongs to an installed package."""
        if self.code is None or not is_code(self.code.kind):
            return None
        try:
            return Path(inspect.getfile(inspect.unwrap(self.value)))
        except TypeError:
            return None

    def takes(self, name: str) -> bool:
        """Return whether it is a class or function with a parameter of this name."""
        return name in _signature_parameters(self.value)

    def make(self, **given: Any) -> Any:
        """Return a new instance of a class, what a function returns, or a copy of an object.

        `given`: arguments beside the parameters, of which those are passed that it takes. Raises `ExtensionError`.
        """
        if not (inspect.isclass(self.value) or inspect.isroutine(self.value)):
            return copy.deepcopy(self.value)
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
        return ExtensionError(f"{place.key}: {what}", path=place.path, line=place.line, column=place.column, remedy=remedy)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle the name of code, or an object with the definitions that another process lacks."""
        if self.code is not None:
            return _reloaded, (self.code, self.label, dict(self.parameters), dict(self.written), self.placement)
        import cloudpickle  # type: ignore[import-untyped]

        return _unpickled, (cloudpickle.dumps(self.value), self.label, self.placement)


def _reloaded(
    code: CodeName, label: str, parameters: Mapping[str, Any], written: Mapping[str, Any], placement: Placement | None
) -> Extension:
    return Extension(code.load(), label, code, parameters, written, placement)


def _unpickled(content: bytes, label: str, placement: Placement | None) -> Extension:
    import cloudpickle

    return Extension(cloudpickle.loads(content), label, placement=placement)


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
