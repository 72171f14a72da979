"""A study as a file, whatever it is of: read and checked, written whole, a line for each entry of a part."""

from __future__ import annotations

import json
import os
from typing import Any, TypeVar

from pydantic import ValidationError

from simnmt.calibrate.errors import CalibrationError
from simnmt.configuration import Configuration
from simnmt.files import read_bounded, written_whole

Study = TypeVar("Study", bound=Configuration)


def read_study(path: str | os.PathLike[str], kind: type[Study]) -> Study:
    """Read and check the file of a study of this kind; raises `CalibrationError` naming the place and the key."""
    try:
        text = read_bounded(path).decode("utf-8")
    except OSError as error:
        raise CalibrationError(f"cannot read the study: {error.strerror}", path=path, remedy="name a readable file") from None
    except UnicodeDecodeError as error:
        raise CalibrationError(f"no UTF-8 text at byte {error.start}", path=path, remedy="a study is a JSON file") from None
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        what = f"no study: {key}: {said}" if key else f"no study: {said}"
        raise CalibrationError(what, path=path, remedy="make the study again with this version") from None


def study_text(study: Configuration) -> str:
    """JSON with each entry of a list on one line: thousands of numbers else stand one below the other."""
    parts = []
    for key, value in study.model_dump(mode="json").items():
        if isinstance(value, list) and value:
            entries = ",\n  ".join(_json(each) for each in value)
            parts.append(f" {_json(key)}: [\n  {entries}\n ]")
        else:
            parts.append(f" {_json(key)}: {_json(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def write_study(path: str | os.PathLike[str], study: Configuration) -> None:
    """Write a study whole or not at all; raises `CalibrationError` where the file cannot be written."""
    try:
        with written_whole(path) as partial:
            partial.write_text(study_text(study), encoding="utf-8")
    except OSError as error:
        raise CalibrationError(f"cannot be written: {error.strerror}", path=path, remedy="choose another folder") from None
