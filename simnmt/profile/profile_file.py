"""Read, check and write device profile files; a wrong file gives one message that names the place and the key."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from simnmt.base.configuration import message_of
from simnmt.base.files import read_bounded, written_whole
from simnmt.profile.blocks import ProfileError
from simnmt.profile.device_profile import SCHEMA_VERSION, DeviceProfile

_LOG = logging.getLogger("simnmt.profile")


def read_profile(path: str | os.PathLike[str]) -> DeviceProfile:
    """Read and check a profile; raises `ProfileError` naming the place and the key."""
    try:
        text = read_bounded(path).decode("utf-8")
    except OSError as error:
        remedy = "name a readable file, or a shipped one as @name"
        raise ProfileError(f"cannot read the profile: {error.strerror}", path=path, remedy=remedy) from None
    except UnicodeDecodeError as error:
        raise ProfileError(f"no UTF-8 text at byte {error.start}", path=path, remedy="a profile is a JSON file") from None
    # A key that every scenario has, and no profile.
    if re.search(r"^(?: *[\"'])?(?:workloads|policies)[\"']?\s*:", text, re.MULTILINE):
        remedy = "name a JSON file that simnmt calibrate wrote, or a shipped profile as @name"
        raise ProfileError("this is a scenario, no device profile", path=path, remedy=remedy)
    profile = _checked(text, path)
    _LOG.info("read the device profile %s: %s, execution %s", path, profile.name, profile.execution.kind)
    return profile


def checked_profile(content: Mapping[str, Any]) -> DeviceProfile:
    """Return the checked profile of plain JSON content; raises `ProfileError` naming the key."""
    return _checked(json.dumps(content), None)


def write_profile(path: str | os.PathLike[str], profile: DeviceProfile) -> None:
    """Write a profile whole or not at all; raises `ProfileError` if the file cannot be written."""
    content = {name: block for name, block in profile.model_dump(mode="json", exclude_defaults=True).items() if block != {}}
    # Objects and lists without others in them take one line.
    text = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda leaf: re.sub(r"\n *", " ", leaf[0]), json.dumps(content, indent=1))
    try:
        with written_whole(path) as partial:
            partial.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"cannot be written: {error.strerror}", path=path, remedy="choose another folder") from None


def _checked(text: str, path: str | os.PathLike[str] | None) -> DeviceProfile:
    try:
        return DeviceProfile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    key, what, remedy, line, column = ".".join(map(str, first["loc"])), message_of(first), "correct the file", None, None
    if first["type"] == "json_invalid":
        what, _, place = what.removeprefix("Invalid JSON: ").partition(" at line ")
        line, column = map(int, place.split(" column "))
        what = f"no JSON: {what}"
    elif key == "schema_version":
        version = None if first["type"] == "missing" else first["input"]
        what, remedy = f"{version!r:.40} where this simnmt reads {SCHEMA_VERSION}", "calibrate again with this version"
    elif first["type"] == "extra_forbidden":
        what, remedy = "unknown key here", "remove it"
    raise ProfileError(f"{key}: {what}" if key else what, path=path, line=line, column=column, remedy=remedy)
