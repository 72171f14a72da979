"""Extensions in a scenario: kinds of installed packages, allowed code and objects of Python, in the places of shipped kinds.

While the scenario is checked, a stand-in of a shipped kind has the place of each extension, so that the check imports nothing.
Then each extension is loaded, its parameters are checked with their places in the file, and it replaces its stand-in.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.json_schema import JsonSchemaValue

from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError
from simnmt.base.extension import (
    OBJECT,
    CodeName,
    Extension,
    ExtensionError,
    Placement,
    installed_kinds,
    is_code,
    of_object,
    signature_parameters,
)
from simnmt.base.suggestions import did_you_mean
from simnmt.batching.configuration import BatchingConfiguration
from simnmt.batching.custom import custom_batching
from simnmt.network.custom import custom_bandwidth, custom_rtt
from simnmt.policies import KINDS as POLICY_KINDS
from simnmt.policies.custom import custom_policy
from simnmt.policies.decision import Estimation
from simnmt.profile.custom import GIVEN, custom_device
from simnmt.scenario.document import Document, Held, Override, apply_overrides
from simnmt.scenario.errors import Location, format_location
from simnmt.scenario.validation import literal_kind, validate
from simnmt.workload.arrivals import Arrivals
from simnmt.workload.arrivals.custom import custom_arrivals
from simnmt.workload.custom import custom_lengths

_ANY = "*"
"""Any key or index, in the pattern of a location."""
_POLICY = ("policies", _ANY)
Part = TypeVar("Part")


class PlainParameters(Configuration):
    """Base of the models that are made of signatures; a parameter may have any type."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


class _PolicyParameters(PlainParameters, Estimation):
    """Keys that every policy accepts: how it estimates its targets."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place of the scenario where an extension may stand."""

    group: str | None
    """The group of entry points; None if only objects may stand there."""
    pattern: tuple[str, ...]
    stand_in: Any
    """A shipped kind, as plain data."""
    adopt: Callable[[Extension], Any]
    """Returns the configuration with the extension. Raises `InputError` for a class or an object that does not fit."""
    shipped: Sequence[str] = ()
    """The shipped kinds, which no package replaces."""
    given: tuple[str, ...] = ()
    """Arguments that simnmt passes to a class or function."""
    parameters: type[Configuration] = PlainParameters
    """Keys that are accepted beside the parameters."""
    takes_lists: bool = False
    """Whether a list or tuple of Python is an object."""

    def fits(self, location: Location) -> bool:
        """Return whether a location is such a place."""
        pairs = zip(location, self.pattern, strict=False)
        return len(location) == len(self.pattern) and all(pattern in (_ANY, part) for part, pattern in pairs)

    @property
    def installed(self) -> list[str]:
        """The kinds that installed packages add."""
        return [] if self.group is None else [kind for kind in installed_kinds(self.group) if kind not in self.shipped]


def _kinds_of(union: Any) -> tuple[str, ...]:
    """Return the kinds of a union of configurations."""
    return tuple(kind for member in get_args(get_args(union)[0]) if (kind := literal_kind(member)) is not None)


def _series_places(*link: str) -> Iterator[Place]:
    """Yield the places of the series of a link."""
    yield Place(None, (*link, "rtt"), {"constant_ms": 1.0}, custom_rtt, takes_lists=True)
    for key in ("uplink_mbps", "downlink_mbps"):
        yield Place(None, (*link, key), 100.0, custom_bandwidth, takes_lists=True)


_POISSON, _BATCHINGS = {"kind": "poisson", "rate_rps": 1.0}, _kinds_of(BatchingConfiguration)
PLACES: tuple[Place, ...] = (
    Place("simnmt.policies", _POLICY, {"kind": "edge"}, custom_policy, POLICY_KINDS, ("knowledge",), _PolicyParameters),
    Place("simnmt.arrivals", ("workloads", _ANY, "arrivals"), _POISSON, custom_arrivals, _kinds_of(Arrivals), takes_lists=True),
    Place("simnmt.devices", ("devices", _ANY, "profile"), "@", custom_device, given=GIVEN),
    Place("simnmt.devices", ("devices", _ANY, "profile", _ANY), "@", custom_device, given=GIVEN),
    Place("simnmt.batchers", ("devices", _ANY, "batching"), {"kind": "mini"}, custom_batching, _BATCHINGS),
    Place(None, ("workloads", _ANY, "lengths"), "@x", custom_lengths, takes_lists=True),
    *_series_places("networks", _ANY),
    *_series_places("networks", _ANY, "hops", _ANY),
    *_series_places("networks", _ANY, "hops", _ANY, _ANY),
)
"""Every place; a further one is one line here and a function that adopts the extension."""


def holds_object(location: Location, value: object) -> bool:
    """Return whether a value of a mapping in Python is an object in the place of an extension."""
    if value is None or isinstance(value, (str, bool, numbers.Real, Mapping)):
        return False
    is_list = isinstance(value, (list, tuple))
    return any(place.fits(location) and (place.takes_lists or not is_list) for place in PLACES)


def schema_of_extension(place: Place) -> JsonSchemaValue:
    """Return the JSON Schema of a mapping that names an extension; its parameters are known to the class alone."""
    kind = {"type": "string", "anyOf": [{"pattern": ":"}, *([{"enum": place.installed}] if place.installed else [])]}
    return {"type": "object", "properties": {"kind": kind}, "required": ["kind"]}


@dataclass(frozen=True, slots=True)
class Mention:
    """An extension as the document has it, before it is loaded."""

    place: Place
    location: Location
    content: Any

    @property
    def keys(self) -> Mapping[str, Any]:
        """The keys of a mapping; empty for any other value."""
        return self.content if isinstance(self.content, dict) else {}

    @property
    def kind(self) -> str:
        """The kind that names it; empty for an object of Python. A policy named after its kind needs none."""
        if "kind" in self.keys:
            return self.keys["kind"] if isinstance(self.keys["kind"], str) else ""
        is_bare_policy = self.place.pattern == _POLICY and (self.keys or self.content in (None, {}))
        return str(self.location[-1]) if is_bare_policy else ""


def find_extensions(document: Document) -> list[Mention]:
    """Return the extensions of a document in its order; raise `ScenarioError` for an object that was not kept in a file."""
    mentions = []
    for place in PLACES:
        for location, content in _values(document.content, place.pattern):
            mention = Mention(place, location, content)
            if isinstance(content, Held):
                mentions.append(mention)
            elif OBJECT in mention.keys:
                what = f"was an object of Python, {content[OBJECT]}, which no file holds"
                remedy = "run it from Python, or name its class: kind: package.module:Class"
                raise document.error(location, what, remedy=remedy)
            elif place.group is not None and mention.kind and mention.kind not in place.shipped:
                if is_code(mention.kind) or mention.kind in place.installed:
                    mentions.append(mention)
                elif place.installed and "kind" in mention.keys:
                    known = [*place.shipped, *place.installed]
                    guess = did_you_mean(mention.kind, known, "") or remedy_of_unknown_kind(location)
                    raise document.error((*location, "kind"), f"unknown kind {mention.kind}", remedy=guess)
    return mentions


def remedy_of_unknown_kind(location: Location) -> str | None:
    """Return how a class of the user is named at a place; None where no class may stand."""
    if not any(place.group is not None and place.fits(location) for place in PLACES):
        return None
    return "for a class of yours write package.module:CLASS or FILE.py:CLASS, and give --allow-code or allow_code=True"


def _values(content: Any, pattern: Sequence[str], location: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield the values at the locations that fit a pattern."""
    if not pattern:
        yield location, content
        return
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for part, below in parts:
        if pattern[0] in (_ANY, part):
            yield from _values(below, pattern[1:], (*location, part))


def with_stand_ins(document: Document, mentions: Sequence[Mention]) -> Document:
    """Return the document with a shipped kind in the place of each extension."""
    stand_ins = [Override(tuple(map(str, mention.location)), mention.place.stand_in, "") for mention in mentions]
    return apply_overrides(document, stand_ins)


def adopt_extensions(
    scenario: Part, document: Document, mentions: Sequence[Mention], base: Path, *, allow_code: bool
) -> tuple[Part, dict[str, Extension]]:
    """Return the scenario with every extension loaded and checked, and the extensions by their places.

    Args:
        scenario: the checked scenario, with stand-ins.
        document: the document without them, in which errors find their line.
        mentions: the extensions.
        base: the folder in which modules and files of code are looked for first, before the current folder.
        allow_code: whether code that the scenario names may run.

    Raises `ScenarioError`.
    """
    if not allow_code:
        for mention in mentions:
            if is_code(mention.kind):
                what = f"{mention.kind} is code, which runs only if you allow it"
                remedy = "give --allow-code, or allow_code=True, if you trust the scenario"
                raise document.error((*mention.location, "kind"), what, remedy=remedy)
    folders = tuple(dict.fromkeys((str(base.absolute()), str(Path.cwd()))))
    extensions: dict[str, Extension] = {}
    for mention in mentions:
        extension = replace(_loaded(mention, document, folders), placement=_placement(mention, document))
        try:
            adopted = mention.place.adopt(extension)
        except InputError as error:
            raise document.error(_location_of_fault(mention), error.what, remedy=error.remedy) from error
        extensions[format_location(mention.location)] = extension
        scenario = _replaced_part(scenario, mention.location, adopted)
    return scenario, extensions


def _location_of_fault(mention: Mention) -> Location:
    return (*mention.location, "kind") if mention.kind else mention.location


def _placement(mention: Mention, document: Document) -> Placement:
    place = document.error(_location_of_fault(mention), "")
    option = f"{place.override}: " if place.override else ""
    return Placement(f"{option}{format_location(mention.location)}", place.path, place.line, place.column)


def _loaded(mention: Mention, document: Document, folders: tuple[str, ...]) -> Extension:
    """Return the extension with its checked parameters."""
    if isinstance(mention.content, Held):
        return of_object(mention.content.value)
    code = CodeName(mention.kind, str(mention.place.group), folders)
    try:
        value = code.load()
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            return Extension(value, mention.kind, code)
        model, names = _parameter_model(value, mention)
    except InputError as error:
        raise document.error(_location_of_fault(mention), error.what, remedy=error.remedy) from error
    keys = {key: content for key, content in mention.keys.items() if key != "kind"}
    own_kind = {} if literal_kind(model) is None else {"kind": literal_kind(model)}
    parameters: BaseModel = validate(model, Document({**own_kind, **keys}, document.marks, document.path, mention.location))
    # A key that is left out stays so: the default of a dataclass may be a private sentinel, which is no value.
    values = {name: getattr(parameters, name) for name in names if name in parameters.model_fields_set}
    return Extension(value, mention.kind, code, values, keys)


def _parameter_model(value: Any, mention: Mention) -> tuple[type[BaseModel], Sequence[str]]:
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
        if name in mention.place.given or parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            what = f"{mention.kind} has the parameter {parameter}, which no key can give"
            raise ExtensionError(what, remedy="give it a name")
        fields[name] = (hints.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
    make_model: Any = create_model
    return make_model(mention.kind.rpartition(":")[2], __base__=mention.place.parameters, **fields), list(fields)


def _replaced_part(part: Any, location: Location, value: Any) -> Any:
    """Return a part of the scenario with another value at a location."""
    if not location:
        return value
    key, rest = location[0], location[1:]
    if isinstance(part, BaseModel):
        return part.model_copy(update={str(key): _replaced_part(getattr(part, str(key)), rest, value)})
    if isinstance(part, dict):
        return {**part, key: _replaced_part(part[key], rest, value)}
    return [_replaced_part(item, rest, value) if at == key else item for at, item in enumerate(part)]
