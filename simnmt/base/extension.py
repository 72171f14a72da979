"""Kinds of users: a class, function or object in the place of a shipped kind.

A scenario names code (`package.module:Name` or `file.py:Name`, which the user must allow) or an entry point of an installed
package; in Python it may hold an object. A key that accepts them is marked by `Extensible`, which loads an extension and checks
its parameters while the scenario is checked.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, get_args, get_type_hints
from zlib import crc32

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    create_model,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core.core_schema import with_info_wrap_validator_function
from typing_extensions import Self

from simnmt.base.configuration import Configuration, literal_kind, misfit
from simnmt.base.errors import InputError, Interrupted, describe_error
from simnmt.base.suggestions import did_you_mean

_LOG = logging.getLogger("simnmt.base")
OBJECT = "object"
"""Key under which a resolved scenario names the class of an object of Python."""
FAULTS = (Exception, SystemExit)
"""Faults of a user's code; `describe_fault` raises an `Interrupted`, which is a `SystemExit` too, again."""


class ExtensionError(InputError):
    """A fault of a user's class, function or object."""


class ListOfPython(list[Any]):
    """A list or tuple of a scenario in Python, which may be an object; as a file would have it, with the `original`."""

    original: Any = None


@cache
def installed_kinds(group: str) -> tuple[str, ...]:
    """Return the names of the kinds that installed packages add to a group of entry points; imports none of them."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=group)}))


class Code(NamedTuple):
    """A class, function or object that a scenario names."""

    kind: str
    """`package.module:Name` or `file.py:Name`, with an absolute path if it is no installed package; or an entry point."""
    group: str
    """The group of the entry point."""
    file: Path | None = None
    """The file of the code; None for an installed package."""

    @staticmethod
    def find(kind: str, group: str, folders: Sequence[str]) -> Code:
        """Return the code of a kind; a file or module is looked for in `folders` first. Raises `ExtensionError`."""
        module, _, name = kind.rpartition(":")
        written = Path(module)
        stem = written.name.replace(".", "/")
        names = (written.name,) if written.suffix == ".py" else (f"{stem}/__init__.py", f"{stem}.py")
        for folder in [(Path(folder) / written.parent).absolute() for folder in folders if ":" in kind]:
            for file in [folder / name for name in names]:
                if file.is_file():
                    return Code(f"{folder / written.name}:{name}", group, file)
        if written.suffix == ".py":
            raise ExtensionError(f"no file {module}", remedy=f"looked in {', '.join(folders)}")
        return Code(kind, group)

    @property
    def distribution(self) -> tuple[str, str] | None:
        """Name and version of the distribution that has the entry point; None for code that a scenario names."""
        point = None if ":" in self.kind else self._entry_point
        return None if point is None or point.dist is None else (point.dist.name, point.dist.version)

    def load(self) -> Any:
        """Import the class, function or object. A file is executed at each call. Raises `ExtensionError`."""
        module, _, name = self.kind.rpartition(":")
        try:
            if ":" not in self.kind:
                return self._entry_point.load()
            value = self._module(module)
        except ModuleNotFoundError as error:
            what = f"{self.kind} cannot be imported: no module {error.name}"
            raise ExtensionError(what, remedy="check the name, or install its package") from None
        except FAULTS as error:
            raise ExtensionError(f"{self.kind} cannot be imported: {describe_fault(error)}") from error
        try:
            return attrgetter(name)(value)
        except AttributeError:
            remedy = did_you_mean(name, [known for known in vars(value) if not known.startswith("_")])
            raise ExtensionError(f"{Path(module).name} has no {name}", remedy=remedy) from None

    @property
    def _entry_point(self) -> metadata.EntryPoint:
        (point, *_) = metadata.entry_points(group=self.group, name=self.kind)
        return point

    def _module(self, written: str) -> ModuleType:
        if self.file is None:
            return importlib.import_module(written)
        folder = str(Path(written).parent)
        sys.path.insert(0, folder)
        try:
            if written.endswith(".py"):
                # A name of its own, since scenarios in different folders may have files of one name.
                alias = f"simnmt_code_{crc32(bytes(self.file)):x}"
                module = sys.modules[alias] = ModuleType(alias)
                module.__file__ = str(self.file)
                exec(compile(self.file.read_bytes(), self.file, "exec"), vars(module))
                return module
            importlib.invalidate_caches()
            module = importlib.import_module(Path(written).name)
        finally:
            sys.path.remove(folder)
        if module.__file__ is None or not self.file.samefile(module.__file__):
            raise ImportError(f"another module of that name was imported from {module.__file__}: start Python anew")
        return module


def describe_fault(error: BaseException) -> str:
    """Return an error of a user's code on one line: its class, its text, and the last line that ran of the user's file.

    Logs the traceback. Raises an `Interrupted` again: a signal that arrives while the code runs is no fault of it.
    """
    if isinstance(error, Interrupted):
        raise error
    _LOG.info("a user's code raised %s", type(error).__name__, exc_info=error)
    ours, python = (str(Path(__file__).parents[1]), "<frozen"), str(Path(importlib.__file__).parents[1])
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    # simnmt calls the user's code, which may call a library.
    users = [frame for frame in frames if "-packages" in frame.filename or not frame.filename.startswith(python)]
    lines = [frame.lineno for frame in users if frame.filename == users[0].filename]
    place = f" in {Path(users[0].filename).name}:{lines[-1]}" if users else ""
    text, name = describe_error(error), type(error).__name__
    return f"{name}{'' if text == name else f': {text}'}{place}"


@dataclass(slots=True, eq=False)
class Extension:
    """A class, function or object of a user for one place of a scenario, with its parameters."""

    value: Any
    label: str
    """Its name in messages."""
    code: Code | None = None
    """How it is loaded; None for an object of Python."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Checked values by the names of its parameters."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """The keys as the scenario has them."""
    place: InputError | None = None
    """The key and the place at which the scenario names it; None before the scenario is checked."""

    def takes(self, name: str) -> bool:
        """Return whether it is a class or function with a parameter of this name."""
        return name in signature_parameters(self.value)

    def make(self, **given: Any) -> Any:
        """Return a new instance of a class, the result of a function, or a copy of an object.

        `given`: arguments beside the parameters, of which those are passed that it takes. Raises `ExtensionError`.
        """
        if not is_callable_kind(self.value):
            return copied(self.value, self.label)
        try:
            return self.value(**self.parameters, **{name: value for name, value in given.items() if self.takes(name)})
        except FAULTS as error:
            raise ExtensionError(f"{self.label} cannot be made: {describe_fault(error)}") from error

    def fault(self, what: str, remedy: str | None = None) -> ExtensionError:
        """Return the error of a call during a run, with the key of the scenario and its place."""
        place = self.place or InputError("")
        return ExtensionError(f"{place.what}{what}", path=place.path, line=place.line, column=place.column, remedy=remedy)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle the name of code, or an object with the definitions that another process lacks."""
        import cloudpickle  # type: ignore[import-untyped]

        content = cloudpickle.dumps(self.value) if self.code is None else None
        return _restored, (content, self.label, self.code, self.parameters, self.written, self.place)


def _restored(content: bytes | None, label: str, code: Code | None, *rest: Any) -> Extension:
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
    named = value if is_callable_kind(value) else type(value)
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", type(value).__name__)
    name = name.rpartition("<locals>.")[2]
    return Extension(value, name if module in (None, "builtins") else f"{module}.{name}")


def is_callable_kind(value: Any) -> bool:
    """Return whether a value is a class or function, which is called to make the object."""
    return inspect.isclass(value) or inspect.isroutine(value)


def is_object(value: Any) -> bool:
    """Return whether a value is one that no file can express."""
    return value is not None and not isinstance(value, (str, bool, int, float, dict, list))


def signature_parameters(value: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function by name; empty for an object, and if they are unknown."""
    try:
        return inspect.signature(value).parameters if is_callable_kind(value) else {}
    except (TypeError, ValueError):
        return {}


class Extended(Configuration):
    """Base of the configurations by which an extension stands in the place of a shipped kind."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: str
    """Its name in messages and pages."""
    extension: Extension

    @classmethod
    def of(cls, extension: Extension) -> Self:
        """Return the configuration of an extension."""
        return cls(kind=extension.label, extension=extension)

    @model_serializer
    def _document(self) -> Mapping[str, Any]:
        code, written = self.extension.code, self.extension.written
        return {OBJECT: self.extension.label} if code is None else {**written, "kind": code.kind}


def extensions_in(value: Any, *place: str | int) -> Iterator[tuple[tuple[str | int, ...], Extension]]:
    """Yield the extensions of a configuration with their places."""
    if isinstance(value, Extended):
        yield place, value.extension
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from extensions_in(getattr(value, name), *place, name)
    elif isinstance(value, (dict, list)):
        for part, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from extensions_in(below, *place, part)


class Parameters(Configuration):
    """Base of the models that are made of signatures; a parameter may have any type."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


def _refuse_object(value: Any) -> NoReturn:
    raise misfit("", f"a {type(value).__name__} object is no parameter of code (give the class itself in place of its name)")


@dataclass(slots=True)
class UserCode:
    """The context in which a scenario is checked: what code may be loaded, and the parameters of what was loaded."""

    folders: Sequence[str] = ()
    """Folders in which a file or module is looked for before the installed packages."""
    is_allowed: bool = False
    parameters: dict[str, type[BaseModel]] = field(default_factory=dict)
    """The models that check the keys beside `kind`, by kind."""


@dataclass(frozen=True, slots=True)
class Extensible:
    """Mark, the last one, of a key that accepts an extension: `Annotated[Arrivals, Extensible(custom_arrivals, GROUP)]`."""

    adopt: Callable[[Extension], Any]
    """Returns the configuration with the extension. Raises `InputError` for a class or an object that does not fit."""
    group: str | None = None
    """The group of entry points; None if only objects may stand there."""
    given: Sequence[str] = ()
    """Arguments that simnmt passes to a class or function."""
    parameters: type[Configuration] = Parameters
    """Keys that are accepted beside the parameters."""
    takes_lists: bool = False
    """Whether a list or tuple of Python is an object."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check extensions here, and any other value as the type that is marked."""
        shipped = [kind for member in get_args(source) if (kind := literal_kind(member)) is not None]
        return with_info_wrap_validator_function(partial(self._validate, shipped), handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Accept a mapping that names an extension; its parameters are known to the class alone."""
        shipped = handler(schema)
        if self.group is None:
            return shipped
        installed = installed_kinds(self.group)
        kind = {"type": "string", "anyOf": [{"pattern": ":"}, *([{"enum": [*installed]}] if installed else [])]}
        return {"anyOf": [shipped, {"type": "object", "properties": {"kind": kind}, "required": ["kind"]}]}

    def _validate(self, shipped: list[str], value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if isinstance(value, dict) and self.group is not None and isinstance(kind := value.get("kind"), str):
            installed = [name for name in installed_kinds(self.group) if name not in shipped]
            if ":" in kind or kind in installed:
                code = info.context if isinstance(info.context, UserCode) else UserCode()
                return self._adopted(self._loaded(kind, value, code), "kind")
            if shipped and kind not in shipped:
                known = {"discriminator": "'kind'", "tag": kind, "expected_tags": ", ".join(map(repr, [*shipped, *installed]))}
                raise PydanticKnownError("union_tag_invalid", known)
        if isinstance(value, dict) and self.group is not None and is_object(value.get("kind")):
            raise misfit("kind", "expected a text, got an object of Python (give the object in place of the mapping)")
        if isinstance(value, dict) and OBJECT in value:
            remedy = "run it from Python, or name its class: kind: package.module:Class"
            raise misfit("", f"was an object of Python, {value[OBJECT]}, which no file holds ({remedy})")
        if self.takes_lists and isinstance(value, ListOfPython):
            return self._adopted(of_object(value.original))
        return self._adopted(of_object(value)) if is_object(value) else handler(value)

    def _adopted(self, extension: Extension, key: str = "") -> Any:
        try:
            return self.adopt(extension)
        except InputError as error:
            raise misfit(key, str(error)) from error

    def _loaded(self, kind: str, content: Mapping[str, Any], context: UserCode) -> Extension:
        """Return the extension with its checked parameters. Raises pydantic's errors."""
        if ":" in kind and not context.is_allowed:
            remedy = "give --allow-code, or allow_code=True, if you trust the scenario"
            raise misfit("kind", f"{kind} is code, which runs only if you allow it ({remedy})")
        try:
            code = Code.find(kind, str(self.group), context.folders)
            value = code.load()
            if not is_callable_kind(value):
                return Extension(value, kind, code)
            model, names = self._parameter_model(kind, value)
        except InputError as error:
            raise misfit("kind", str(error)) from error
        context.parameters[kind] = model
        keys = {key: part for key, part in content.items() if key != "kind"}
        kind_key = {} if literal_kind(model) is None else {"kind": literal_kind(model)}
        # As JSON, so that strict models accept what a file can express: lists for tuples, texts for paths and enums.
        parameters = model.model_validate_json(json.dumps({**kind_key, **keys}, default=_refuse_object))
        # A key that is left out stays so: the default of a dataclass may be a private sentinel, which is no value.
        values = {name: getattr(parameters, name) for name in names if name in parameters.model_fields_set}
        return Extension(value, kind, code, values, keys)

    def _parameter_model(self, kind: str, value: Any) -> tuple[type[BaseModel], Sequence[str]]:
        """Return the model that checks the parameters of a class or function, and the names of its own parameters.

        A pydantic model is its own. Raises `ExtensionError` for parameters that have no name.
        """
        if inspect.isclass(value) and issubclass(value, BaseModel):
            return value, list(value.model_fields)
        fields: dict[str, Any] = {}
        try:
            hints = get_type_hints(value.__init__ if inspect.isclass(value) else value, include_extras=True)
        except Exception:  # a name in an annotation that only a type checker imports
            hints = {}
        for name, parameter in signature_parameters(value).items():
            if name in self.given or parameter.kind is parameter.VAR_KEYWORD:
                continue
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise ExtensionError(f"{kind} has the parameter {parameter}, which no key can give", remedy="give it a name")
            fields[name] = (hints.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
        make_model: Any = create_model
        return make_model(kind.rpartition(":")[2], __base__=self.parameters, **fields), list(fields)
