"""Check a document against the schema, and turn its first fault into one line with its place."""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core.core_schema import ErrorType

from simnmt.base.configuration import literal_kind, message_of
from simnmt.base.extension import UserCode
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Document, child
from simnmt.scenario.errors import Location, ScenarioError, describe_value

_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "a mapping"}


def validate(document: Document, code: UserCode | None = None) -> ScenarioConfiguration:
    """Return the scenario that the document describes.

    `code`: code of users that may be loaded; None: no code. Raises `ScenarioError`, the first fault in the document's order.
    """
    code = code or UserCode()
    try:
        return ScenarioConfiguration.model_validate(document.content, context=code)
    except ValidationError as error:
        faults = [(_location(document.content, fault), fault) for fault in error.errors(include_url=False)]
    unknown = {location[:-1] for location, fault in faults if fault["type"] == "extra_forbidden"}
    # A misspelt key is not reported as a missing one, too.
    faults = [(location, fault) for location, fault in faults if fault["type"] != "missing" or location[:-1] not in unknown]
    location, fault = min(faults, key=lambda item: document.position(item[0], key=True) or (math.inf, math.inf))
    raise _error(document, location, fault, code)


def _location(value: Any, fault: Mapping[str, Any]) -> Location:
    """Return the user's keys in pydantic's `loc`, which names the branches of unions, too."""
    location: list[str | int] = []
    is_branch_named = False
    for part in fault["loc"]:
        if child(value, "kind") == part and not is_branch_named:
            is_branch_named = True
        elif (isinstance(value, dict) and part in value) or child(value, part) is not None:
            location, value, is_branch_named = [*location, part], child(value, part), False
    missing = fault["loc"][-1:] if fault["type"] == "missing" else ()
    return (*location, *missing, *fault.get("ctx", {}).get("location", ()))


def _forms(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _forms(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [form for member in get_args(annotation) for form in _forms(member)]
    return [] if annotation is types.NoneType else [annotation]


def _fields(form: Any) -> dict[str, Any]:
    """Return the types of a model's fields by their keys; empty for any other type."""
    if not (inspect.isclass(form) and issubclass(form, BaseModel)):
        return {}
    return {field.alias or name: field.annotation for name, field in form.model_fields.items()}


def _forms_at(document: Document, location: Location, code: UserCode) -> list[Any]:
    """Return the types that a value may have; of models with a kind, those of the value's kind."""
    forms: list[Any] = [ScenarioConfiguration]
    for depth, part in enumerate(location, start=1):
        below = []
        for form in forms:
            if get_origin(form) in (dict, list):
                below += _forms(get_args(form)[-1])
            elif part in _fields(form):
                below += _forms(_fields(form)[str(part)])
        kind = document.value((*location[:depth], "kind")) or part
        forms = [form for form in below if _fields(form) and literal_kind(form) == kind] or below
        forms = [code.parameters[kind]] if isinstance(kind, str) and kind in code.parameters else forms
    return forms


def _error(document: Document, location: Location, fault: Mapping[str, Any], code: UserCode) -> ScenarioError:
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    written = document.mark(location)[0].text
    got = written if written and not isinstance(value, str) and value is not None else describe_value(value)
    choices = re.findall(r"'([^']*)'", context.get("expected") or context.get("expected_tags") or "")
    if kind == "extra_forbidden":
        given = document.value(location[:-1]).keys()
        at_place = [_fields(form) for form in _forms_at(document, location[:-1], code)]
        forms = [keys for keys in at_place if keys and location[-1] not in keys]
        most = max((len(given & keys) for keys in forms), default=0)
        nearest = dict.fromkeys(key for keys in forms if len(given & keys) == most for key in keys)
        known = f"known: {format_list(nearest, ',', most=len(nearest)) or 'none'}"
        if most and any(location[-1] in keys for keys in at_place):  # a key of another form
            return document.error(
                location, f"does not go with {format_list([key for key in given if key in nearest], 'and')}", key=True
            )
        return document.error(location, "unknown key", remedy=did_you_mean(location[-1], nearest, known), key=True)
    if kind == "union_tag_not_found" and context["discriminator"] == "'kind'":
        kinds = [literal_kind(form) for form in _forms_at(document, location, code) if _fields(form)]
        remedy: str | None = _meant_name(document, location) or f"one of {format_list(filter(None, kinds), ',')}"
        return document.error((*location, "kind"), "missing key", remedy=remedy)
    if kind == "missing":
        return document.error(location, "missing key", remedy=_meant_name(document, location[:-1]))
    if kind == "union_tag_invalid":
        location, got = (*location, "kind"), describe_value(context["tag"])
        remedy = did_you_mean(context["tag"], choices, "") or None
        return document.error(location, f"must be one of {format_list(choices, ',')}, got {got}", remedy=remedy)
    if kind == "union_tag_not_found" or kind.endswith(("_type", "_parsing", "int_from_float")):
        words = [_word(form) for form in _forms_at(document, location, code)]
        expected = " or ".join(dict.fromkeys(words)) or "another value"
        return document.error(location, f"expected {expected}, got {got}")
    is_of_validator = kind not in get_args(ErrorType) or kind in ("value_error", "assertion_error")
    message = " ".join(message_of(fault).replace(" after validation", "").split())
    message = re.sub("^(Input|Dictionary|List|String) should ", "must ", message)
    for name, sign in _BOUNDS.items():
        message = f"must be {sign} {f'{context[name]:,}'.removesuffix('.0')}" if name in context else message
    if not is_of_validator and not kind.endswith(("too_short", "too_long")):
        message = f"{message}, got {got}"
    remedy = did_you_mean(value, choices, "") or None
    at_key = fault["loc"][-1:] == ("[key]",) or context.get("at_key", False)
    return document.error(location, message, remedy=remedy, key=at_key)


def _word(form: Any) -> str:
    if get_origin(form) is Literal:
        return format_list(map(str, get_args(form)), "or")
    return _WORDS.get(get_origin(form) or form, "a mapping" if _fields(form) else "another value")


def _meant_name(document: Document, location: Location) -> str | None:
    """Return the remedy for a name that an option alone has made, such as that of a device, from the names beside it."""
    mark = document.mark(location)[0]
    if mark.override is None or mark.key_place is not None or not location:
        return None
    names = [name for name in document.value(location[:-1]) if document.mark((*location[:-1], name))[0].override is None]
    return did_you_mean(location[-1], names, "") or None
