"""Options of the command line: declarations, options that verbs share, and parsers of values.

One name has one meaning in all verbs: `--out` the output, `--page` an HTML page, `--json` figures instead of text, `--part` a
part of a measurement, `--seed` the random numbers, `--restart` to begin interrupted work anew, `--force` to replace an output
that exists, `-` standard input or output. Sizes and rates take units. A verb calls `check_output` before its work.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer

from simnmt.base import shipped_files
from simnmt.base.errors import InputError, shorten
from simnmt.base.files import is_standard, keep_standard_output, refuse_replacing

Settings = TypeVar("Settings")
VALUES = "Values KEY=V1,V2,... of a key, or a range KEY=FROM:TO, or N numbers KEY=FROM:TO:N."
"""What options say of values by the notation of `parse_varied_key`."""


def option(metavar: str | None, text: str, *names: str, group: str | None = None, **settings: Any) -> Any:
    """Return an option that takes a value, named as its parameter unless `names` are given.

    `group`: heading in the help of this option and of those after it.
    """
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=group, **settings)


def flag(name: str, text: str, *names: str, group: str | None = None, **settings: Any) -> Any:
    """Return an option that takes no value; `group` as in `option`."""
    return typer.Option(name, *names, help=text, rich_help_panel=group, **settings)


def time_option(text: str, *names: str) -> Any:
    """Return an option that takes a time with its unit; its text names the default."""
    return option("TIME", text, *names, parser=parse_duration, show_default=False)


def share_option(text: str) -> Any:
    """Return an option that takes a percentage, and is a share."""
    return option("P%", text, parser=parse_share)


def pace_option(default: str) -> Any:
    """Return the option of a rate of reads; `default` is its default as the help prints it."""
    text = f"Read no faster than a slower storage, such as 20MB/s. [default: {default}]"
    return option("RATE", text, "--pace", parser=parse_rate)


def argument(metavar: str, text: str) -> Any:
    """Return a positional argument."""
    return typer.Argument(metavar=metavar, help=text)


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb whose parameters that are dataclasses are options: one for each field, after those of the verb itself."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    declared = [(name, hints[name], given.default) for name, given in inspect.signature(verb).parameters.items()]
    declared = [parameter for parameter in declared if parameter[0] not in groups]
    for kind in groups.values():
        types = get_type_hints(kind, include_extras=True)
        declared += [(field.name, types[field.name], field.default) for field in fields(kind)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword, default=default, annotation=hint) for name, hint, default in declared]

    @functools.wraps(verb)
    def call(**values: Any) -> None:
        made = {name: kind(**{field.name: values.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()}
        verb(**values, **made)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


AsJson = Annotated[bool, flag("--json", "Print JSON in SI units and nothing else.")]
Device = Annotated[str, option("cpu|cuda", "Where the model runs.", "--device")]
Threads = Annotated[int | None, option("T", "CPU threads. [default: torch's own]", "--threads", min=1)]
Page = Annotated[Path | None, option("FILE", "Write an HTML page with plots.", "--page")]
Seed = Annotated[int, option("S", "Seed of the random numbers.", "--seed", min=0)]
Jobs = Annotated[int, option("J", "Processes; 0: one per processor.", "--jobs", min=0, max=1024)]
MostJobs = Annotated[
    int, option("J", "Processes; 0: as many as save time, at most one per processor.", "--jobs", min=0, max=1024)
]
Keys = Annotated[str | None, option("SRC:TGT", "The source is JSON Lines: keys of its two texts, e.g. de:en.", "--keys")]
Force = Annotated[bool, flag("--force", "Replace an output that exists, whole and at the end.")]
AllowCode = Annotated[
    bool, flag("--allow-code", "Run modules and files that the scenario names, such as kind: mypackage.module:MyPolicy.")
]


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a verb changes of its scenario, and whether it may run code that the scenario names."""

    overrides: Annotated[list[str] | None, option("KEY=VALUE", "Override any key of the scenario.", "--set")] = None
    allow_code: AllowCode = False

    @property
    def values(self) -> Any:
        """The overrides as `simnmt.api` takes them. Raises `InputError`."""
        from simnmt.scenario.document import overrides_of_call

        keys = [field.name for field in fields(self) if field.name not in ("overrides", "allow_code")]
        return overrides_of_call(self.overrides or [], as_options=True, **{key: getattr(self, key) for key in keys})


@dataclass(frozen=True, slots=True)
class Changes(Overrides):
    """As `Overrides`, and the keys that have an option of their own."""

    requests: Annotated[int | None, option("N", "Requests of each run. [default: the scenario's]")] = None
    replications: Annotated[int | None, option("R", "Independent repeats. [default: the scenario's, else 5]")] = None
    seed: Annotated[int | None, option("S", "Same seed, same bytes. [default: the scenario's, else 1]")] = None


@contextmanager
def prints_of_users() -> Iterator[None]:
    """Send what a user's code prints to standard error: on standard output it would come between the lines of the verb."""
    with redirect_stdout(sys.stderr):
        yield


def chosen(context: typer.Context, kind: type[Settings], **others: Any) -> Settings:
    """Return settings of a dataclass or pydantic model, each field from the option of the same name or from `others`.

    None and an empty list, which the context has for options that are not given, keep the default.
    """
    names = getattr(kind, "model_fields", None) or [field.name for field in fields(cast(Any, kind))]
    values = {name: context.params[name] for name in names if name in context.params} | others
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kind(**{name: value for name, value in values.items() if value is not None and value != ()})


def given(context: typer.Context, names: Iterable[str]) -> list[str]:
    """Return those of a verb's parameters that the command line gives."""
    return [name for name in names if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]


def refuse_given(context: typer.Context, names: Iterable[str], why: str) -> None:
    """Raise `typer.BadParameter` for the first of these parameters that the command line gives."""
    for name in given(context, names):
        raise typer.BadParameter(why, param_hint=f"--{name.replace('_', '-')}")


def print_json(document: Mapping[str, Any]) -> None:
    """Print the only output of a verb that was called with `--json`."""
    print(json.dumps(document, indent=1, allow_nan=False))


def print_result(as_json: bool, document: Callable[[], Mapping[str, Any]], text: Callable[[], str]) -> None:
    """Print the result of a verb: its document if the verb was called with `--json`, else its text."""
    if as_json:
        print_json(document())
    else:
        print(text())


def print_page(page: Path | None, as_json: bool, render: Callable[[], str]) -> None:
    """Write an HTML page after the result of a verb, and print where it is."""
    if page is None:
        return
    from simnmt.base.files import write_text

    write_text(page, render())
    if not is_standard(page) and not as_json:
        print(f"page: {page}")


def _quantity(text: str | float, units: Mapping[str, float], remedy: str) -> float:
    if not isinstance(text, str):  # the option's default
        return text
    match = re.fullmatch(r" *(\d{1,12}(?:\.\d{1,9})?) *([A-Za-z%]*) *", text, re.ASCII)
    per_unit = None if match is None else units.get(match[2].lower())
    if match is None or per_unit is None:
        raise typer.BadParameter(f"{shorten(text)!r} is not such a quantity; {remedy}")
    return float(match[1]) * per_unit


_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def parse_duration(text: str | float) -> float:
    """Return the seconds of a positive time with its unit, such as `200ms`, `10m` or `2h`."""
    remedy = "give a positive one with its unit, such as 200ms or 2s"
    seconds = _quantity(text, _SECONDS, remedy)
    if not seconds > 0.0:
        raise typer.BadParameter(f"{text!r} is not a time; {remedy}")
    return seconds


def parse_bytes(text: str | int) -> int:
    """Return the bytes of `256kB`, `1MB`, `64KiB` or 0."""
    return 0 if text == "0" else round(_quantity(text, _BYTES, "write it as 256kB, 1MB or 64KiB"))


def parse_rate(text: str) -> float:
    """Return the bytes per second of `200MB/s`."""
    if not text.strip().endswith("B/s"):  # 200Mb/s are bits
        raise typer.BadParameter(f"{shorten(text)!r} is not a rate in bytes; write it as 200MB/s, with kB, MB or GB")
    return _quantity(text.strip().removesuffix("/s"), _BYTES, "write it as 200MB/s, with kB, MB or GB")


def parse_share(text: str) -> float:
    """Return the share for a percentage such as `2%`."""
    share = _quantity(text, {"%": 0.01}, "write 2% for two percent")
    if not 0.0 < share < 1.0:
        raise typer.BadParameter(f"{text!r} is not a percentage above 0 and below 100; write 2% for two percent")
    return share


def parse_integers(text: str) -> Sequence[int]:
    """Return the whole numbers of a list such as `2,6,32`."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{shorten(text)!r} is not a list; give whole numbers, as in 2,6,32") from None


def json_keys(keys: str | None) -> tuple[str, str] | None:
    """Return the two keys of `de:en`, or None if the option is not given."""
    if keys is None:
        return None
    src, _, tgt = keys.partition(":")
    if not (src and tgt):
        raise typer.BadParameter("give two keys with a colon between, e.g. de:en", param_hint="--keys")
    return src, tgt


def profile_path(profile: str | Path) -> Path:
    """Return the file of a device profile given by its path or as `@name` of a shipped one."""
    return shipped_files.find("calibration", str(profile)) if str(profile).startswith("@") else Path(profile)


def outlines(
    kinds: Sequence[shipped_files.Kind], local: Path | None, outline: Callable[[Path], Sequence[Mapping[str, Any]]]
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the outlines of shipped files and of files below `local`, each with its `name`, and why others are left out.

    `local`: None for the folder of the kind, if there is one here; `outline` returns the rows of one file, or raises
    `InputError`. Folders of runs are left out.
    """
    usual = kinds[0].partition("/")[0]
    folder = Path(usual) if local is None else local
    if local is not None and not local.is_dir():
        raise InputError("no such folder", path=local, remedy=f"name a folder; left out, it is {usual}/")
    files = {f"@{name}": shipped_files.find(kind, name) for kind in kinds for name in shipped_files.names(kind)}
    # In a checkout of the source the folder holds the shipped files.
    shipped = {shipped_files.folder(kind).resolve() for kind in shipped_files.KINDS}
    suffix = next(iter(files.values())).suffix
    for path in sorted([*folder.glob(f"*{suffix}"), *folder.glob(f"*/*{suffix}")]):
        # Runs have a manifest beside their tables and documents.
        if shipped.isdisjoint(path.resolve().parents) and not (path.parent / "manifest.json").exists():
            files[str(path)] = path
    rows: list[Mapping[str, Any]] = []
    faults: list[str] = []
    for name, path in files.items():
        try:
            rows.extend({"name": name, **row} for row in outline(path))
        except InputError as error:  # noqa: PERF203
            faults.append(str(error))
    return rows, faults


def check_output(path: Path | None, force: bool, *inputs: str | Path | None) -> None:
    """Refuse, before the work, an output that is one of `inputs`, or that exists where `--force` is not given.

    If the output is `-`, standard output is kept for it.
    """
    refuse_replacing(path, *inputs)
    if path is None:
        return
    if is_standard(path):
        keep_standard_output()
    elif not force and os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for a name that no file can have
        raise InputError("exists already", path=path, remedy="choose another name, or replace it with --force")
