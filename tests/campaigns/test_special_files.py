"""Whatever stands in the place of an input file: each reader refuses it in one line, at once, and reads no gigabytes."""

from __future__ import annotations

import importlib
import inspect
import os
import shlex
import shutil
import signal
import socket
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from simnmt.cli import app
from tests.campaigns.harness import SCALE
from tests.refusals import assert_one_line

KINDS = ("missing", "pipe", "zero", "random", "large", "folder", "loop", "dangling", "socket", "long", "unreadable")
"""`missing` comes first: what its readers import is not imported again as the user who may not read `unreadable`."""

DEEP = SCALE >= 10
"""Whether all kinds are tried everywhere, as under `make check-deep`."""
KINDS_OF_READERS = KINDS if DEEP else ("missing", "pipe", "zero", "large", "folder", "loop", "long", "unreadable")
KINDS_WITH_MODELS = KINDS if DEEP else ("missing", "pipe", "zero", "large")
KINDS_IN_FOLDERS = ("missing", "pipe", "zero", "large", *(("folder", "loop", "unreadable") if DEEP else ()))

READERS = {
    "scenario": "run {}",
    "measured scenario": "reproduce cnmt --out new --measured {}",
    "corpus": "corpus fit {} news.en",
    "targets of a corpus": "corpus fit news.de {}",
    "corpus to count": "corpus table {} news.en --out new.csv",
    "targets to count": "corpus table news.de {} --out new.csv",
    "source text": "run small.yaml --set workloads.news.lengths.source={}",
    "bandwidths": "run small.yaml --set networks.office.uplink_mbps={}",
    "trace to import": "trace import {} --out new.csv",
    "trace to resample": "trace resample {} --hours 1 --out new.csv",
    "recorded arrivals": """run small.yaml --set 'workloads.news.arrivals={{"kind":"recorded","speed":1,"file":"{}"}}'""",
    "arrival rates": """run small.yaml --set 'workloads.news.arrivals={{"kind":"varying","series":{{"csv":"{}"}}}}'""",
    "profile": "profile inspect {}",
    "compared profile": "profile compare gateway.json {}",
    "profile of a scenario": "run small.yaml --set devices.cloud.profile={}",
    "profile of top-up": "reproduce topup --out new --profile {}",
    "profile of fused layers": "reproduce fused --out new --profile {}",
    "round trips": "run small.yaml --set networks.office.rtt={}",
    "length table": """run small.yaml --set 'workloads.news.lengths={{"table":"{}"}}'""",
    "sentencepiece model": "corpus fit news.de news.en --unit sentencepiece:{}",
    "sentencepiece model to count": "corpus table news.de news.en --out new.csv --unit sentencepiece:{}",
    "sentencepiece model of a scenario": """run small.yaml --set 'workloads.news.lengths.src_unit={{"sentencepiece":"{}"}}'""",
    "trace": "trace inspect {}",
    "streaming profile": "sti plan --profile {} --deadline 100ms --preload 1MB",
    "importance": "reproduce sti --study {} --out new",
    "pipeline": "reproduce sti --pipeline {} --out new",
    "vocabulary study": "reproduce vocab --study {} --out new",
    "bench": "reproduce vocab --bench {} --out new",
    "run to compare": "compare {} other",
    "swept scenario": "sweep {} --out new --grid requests=1,2",
    "swept traces": "sweep small.yaml --out new --grid networks.office.rtt={},longer.csv",
    "trace of a sweep": "sweep small.yaml --out new --grid requests=1,2 --set networks.office.rtt={}",
    "planned scenario": "plan {} --slo 'p95_ms<=300'",
    "varied traces": """plan small.yaml --slo 'p95_ms<=300' --rate 1 --vary networks.office.rtt={},longer.csv """
    """--set 'workloads.news.arrivals={{"kind":"poisson","rate_rps":1}}'""",
    "trace of a plan": "plan small.yaml --slo 'p95_ms<=300' --set networks.office.rtt={}",
}
STUDY = "--study new.json --part sweep --quick --out new"
READERS_OF_MODELS = {
    "architecture": "nmt train --src news.de --tgt news.en --out new --model {}",
    "sources to train on": "nmt train --src {} --tgt other.txt --out new",
    "targets to train on": "nmt train --src one.txt --tgt {} --out new",
    "trained model": "nmt translate --model {} news.de",
    "text to translate": "nmt translate --model m {}",
    "bundle to translate with": "nmt translate --model m --vocabulary {} one.txt",
    "dictionary": "nmt translate --model m --dictionary {} one.txt",
    "task": "sti train --task {} --out new",
    "task to look at": "sti train --task task.tsv --dev {} --out new",
    "encoder": "sti shard {} --out new",
    "store": "sti inspect {}",
    "store to run": "sti run {} --deadline 100ms --preload 1MB",
    "profile to run": "sti run s --profile {} --deadline 100ms --preload 1MB",
    "task to run": "sti run s --task {} --deadline 100ms --preload 1MB",
    "store to profile": "sti profile {} --out new.json",
    "architecture to profile": "sti profile --model {} --out new.json",
    "task to profile": "sti profile s --task {} --lengths 4 --out new.json",
    "profile to complete": "sti profile s --into {} --lengths 4 --out new.json",
    "bundle": "vocab inspect {}",
    "model of a bundle": "vocab inspect b --model {}",
    "model to build for": "vocab build --model {} --text one.txt --out new",
    "text to build from": "vocab build --model m --text fr={} --out new",
    "targets to build from": "vocab build --model m --text one.txt --targets {} --out new",
    "calibrated model": "calibrate --model {} --out new.json",
    "calibrated lengths": "calibrate --model gru --paper --lengths {} --out new.json",
    "calibrated text": "calibrate --model m --beam 2 --text {} --out new.json",
    "authorities": "calibrate --endpoint https://127.0.0.1:9 --api libretranslate --text one.txt --ca-file {} --out new.json",
    "calibrated vocabulary": "calibrate --model m --beam 2 --text one.txt --vocabulary {} --out new.json",
    "model of fused layers": "reproduce fused --out new --measure 1 --model {}",
    "sharp model": "reproduce sharp --quick --model {} --text one.txt --out new",
    "sharp text": "reproduce sharp --quick --model a --text {} --out new",
    "sharp references": "reproduce sharp --quick --model a --text one.txt --references {} --out new",
    "model to study": f"reproduce vocab --model {{}} {STUDY} --text fr=one.txt --heldout fr=held.txt",
    "text to study": f"reproduce vocab --model m {STUDY} --text fr={{}} --heldout fr=held.txt",
    "targets to study": f"reproduce vocab --model m {STUDY} --part candidates "
    "--text fr=one.txt --targets fr={} --heldout fr=held.txt",
    "held-out text": f"reproduce vocab --model m {STUDY} --text fr=one.txt --heldout fr={{}}",
    "references": f"reproduce vocab --model m {STUDY} --text fr=one.txt --heldout fr=held.txt --references fr={{}}",
    "store to study": "reproduce sti --store {} --task task.tsv --study new.json --quick --out new",
    "task to study": "reproduce sti --store s --task {} --study new.json --quick --out new",
    "task to rank by": "reproduce sti --store s --task task.tsv --importance-task {} --study new.json --quick --out new",
    "profile to study": "reproduce sti --store s --task task.tsv --study new.json --profile {} --quick --out new",
}
WITH_PIPES = {
    "scenario", "measured scenario", "corpus", "targets of a corpus", "corpus to count", "targets to count", "source text",
    "round trips", "length table", "bandwidths", "trace", "trace to import", "trace to resample",
    "recorded arrivals", "arrival rates", "calibrated lengths", "sources to train on", "targets to train on",
    "text to translate", "dictionary", "text to build from", "targets to build from", "task", "task to look at", "task to run",
    "task to profile", "task to study", "task to rank by", "swept scenario", "planned scenario",
}  # fmt: skip
"""Readers that take a pipe, and so wait for what is written to it."""

WRITTEN = {
    "init path", "run out", "calibrate out", "calibrate page", "profile inspect page", "compare page", "corpus table out",
    "reproduce cnmt out", "reproduce topup out", "reproduce fused out", "reproduce sharp out", "reproduce vocab out",
    "reproduce sti out", "trace import out", "trace inspect page", "trace resample out",
    "nmt train out", "nmt translate out", "sti train out",
    "sti shard out", "sti profile out", "sti profile folder", "sti plan page", "vocab bench out", "vocab build out",
    "doctor disk", "sweep out", "plan out", "plan page",
}  # fmt: skip
"""Parameters that name a file or folder to write to; what already exists is the subject of tests/base/test_files.py."""
NO_FILES = {
    None, "P%", "NAME", "cpu|cuda", "TYPE", "PARTS", "RATE", "SRC:TGT", "ROLE=NAME[:UNIT]", "KIND", "DATE", "URL", "HOST",
    "TIME", "SIZE", "ADDRESS", "REQUIREMENT", "float32|bfloat16", "mini|maxi|top-up", "half-empty|immediate|N", "exact|fast",
    "mean|first", "CODE", "B,B...", "L,...", "TEXT", "LABEL", "ibm1|attention",
    "tcp://HOST:PORT",
}  # fmt: skip
"""What the help calls parameters of text that name no file."""
UNITS_OF_PROFILES = {"calibrate unit", "calibrate src_unit", "calibrate tgt_unit", "sti profile unit"}
"""Units that are noted as they are given; no file is opened."""

LISTED = {"profile list folder", "trace list folder"}
"""Folders whose unreadable files are left out with a note."""


def commands(verbs: typer.Typer, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    """Yield the words of each command and its function."""
    for command in verbs.registered_commands:
        assert command.callback is not None
        yield (*before, command.name or command.callback.__name__), command.callback
    for group in verbs.registered_groups:
        assert group.typer_instance is not None and group.name is not None
        yield from commands(group.typer_instance, (*before, group.name))


@cache
def functions() -> dict[tuple[str, ...], Callable[..., Any]]:
    """Return the function of each command by its words."""
    return dict(commands(app.application()))


@cache
def parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return the type and the description of each parameter of a command."""
    hints = typing.get_type_hints(function, include_extras=True)
    described = {name: typing.get_args(hints[name]) for name in inspect.signature(function).parameters}
    return {name: (parts[0], parts[1]) for name, parts in described.items() if len(parts) == 2 and parts[1] is not type(None)}


def parameter_of(command: str) -> str:
    """Return the verb and the parameter in whose place a command of the matrix has `{}`."""
    words = shlex.split(command)
    by_verb = functions()
    verb = next(tuple(words[:length]) for length in (2, 1) if tuple(words[:length]) in by_verb)
    described = parameters(by_verb[verb])
    options = {option: name for name, (_, about) in described.items() for option in (about.default, *(about.param_decls or ()))}
    options |= {f"--{name.replace('_', '-')}": name for name, (_, about) in described.items() if about.default is ...}
    positional = [name for name, (_, about) in described.items() if isinstance(about, typer.models.ArgumentInfo)]
    given = list[str]()
    rest = words[len(verb) :]
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            name = positional[min(len(given), len(positional) - 1)]
            given.append(word)
        elif described[name := options[word]][0] is bool:
            continue
        else:
            word = rest.pop(0)
        if "{}" in word:
            return f"{' '.join(verb)} {name}"
    raise AssertionError(f"no {{}} in {command}")


def test_every_parameter_that_names_a_file_is_in_the_matrix() -> None:
    tried = {parameter_of(command) for command in (READERS | READERS_OF_MODELS).values()}
    named = set[str]()
    for verb, function in functions().items():
        for name, (kind, about) in parameters(function).items():
            if "Path" in str(kind) or ("str" in str(kind) and about.metavar not in NO_FILES):
                named.add(f"{' '.join(verb)} {name}")
    # Services read scenarios, profiles and series by the readers above; tests/live and tests/cli refuse the rest.
    served = {name for name in named if name.startswith(("live ", "validate "))}
    assert named == tried | WRITTEN | UNITS_OF_PROFILES | LISTED | served
    assert not tried & WRITTEN and not tried & UNITS_OF_PROFILES


@pytest.fixture
def special(folder: Path) -> dict[str, str]:
    """Names of special files in the current folder, by kind."""
    Path("longer.csv").write_text("time_s,rtt_ms\n" + "".join(f"{k},{50 + k * k % 17}\n" for k in range(400)))
    for kind in KINDS:
        make_special(Path(kind), kind)
    return {kind: kind for kind in KINDS} | {"long": "x" * 300}


def make_special(path: Path, kind: str) -> None:
    """Put a special file of a kind at a path where nothing is."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "zero" | "random":
            path.symlink_to("/dev/zero" if kind == "zero" else "/dev/urandom")
        case "dangling":
            path.symlink_to("dangling-end")
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        case "unreadable":
            path.write_text("x")
            path.chmod(0)
        case "large":
            path.touch()
            os.truncate(path, 200 << 30)  # sparse; 200 GB, more than any reader takes
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a translation model, its bundle, text, an encoder's store, and a task; the models have learnt nothing."""
    pytest.importorskip("sacrebleu", reason="the extra packages of simnmt[models] are not installed")
    pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")
    importlib.import_module("simnmt.nmt.models")  # its libraries take long, and an import must not be broken off
    from simnmt.nmt.architecture import Architecture
    from simnmt.nmt.checkpoint import save_checkpoint
    from simnmt.nmt.models import build_model
    from simnmt.nmt.subwords import learn_vocabulary
    from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle
    from simnmt.streaming.encoder.encoder_folder import load_elastic, save_encoder
    from simnmt.streaming.encoder.tokenizer import PIECES_FILE, learn_pieces
    from simnmt.streaming.store.writer import write_store
    from tests.nmt import toy_language
    from tests.nmt.test_cluster_bundle import a_set
    from tests.nmt.tiny import SHARP, lively
    from tests.streaming.made_encoder import made_weights

    place = tmp_path_factory.mktemp("models")
    toy_language.write(place, 120)
    (place / "held.txt").write_text("".join(f"{one}\n" for one, _ in toy_language.pairs(40, seed=1)))
    sizes = {"src_vocab": 36, "tgt_vocab": 36}
    architecture = toy_language.GRU.model_copy(update=sizes)
    texts = [text for pair in toy_language.pairs(300) for text in pair]
    subwords = learn_vocabulary(texts, 36, side="whole", pad=0, unk=1, start=2, eos=3)
    shapes: dict[str, Architecture] = {"m": architecture, "a": SHARP.model_copy(update=sizes)}
    for name, shape in shapes.items():
        save_checkpoint(place / name, build_model(shape, seed=4), shape)
        for side in ("source.model", "target.model"):
            (place / name / side).write_bytes(subwords)
    (place / "tiny.json").write_text(toy_language.GRU.model_dump_json())
    ClusterBundle.of(lively("gru"), [a_set("fr-en", 1)], name="tiny").save(place / "b")
    pieces = learn_pieces(["a good film", "a bad film", "it is good"] * 9, 40)
    (place / "e").mkdir()
    (place / "e" / PIECES_FILE).write_bytes(pieces.files[PIECES_FILE])
    weights = made_weights(layers=2, heads=2, width=16, ffn=32, vocabulary=pieces.size)
    save_encoder(place / "e", weights, {"label_names": ["no", "yes"]})
    encoder, _ = load_elastic(place / "e")
    write_store(encoder, place / "s", beside={PIECES_FILE: pieces.files[PIECES_FILE]}, label_names=("no", "yes"))
    (place / "task.tsv").write_text("sentence\tlabel\n" + "a good film\tyes\na bad film\tno\n" * 9)
    return place


@contextmanager
def limited_time() -> Iterator[None]:
    """Fail where a reader waits for a pipe or reads without end."""

    def fail(*_: object) -> None:
        pytest.fail("the reader did not end within 60 s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Act as nobody where the tests are run by root, who may read every file."""
    if os.geteuid():
        yield
        return
    folder = Path.cwd()
    for path in (folder, folder.parent):
        path.chmod(0o777)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def assert_refused(
    simnmt: Callable[..., Any], folder: Path, special: dict[str, str], kinds: Sequence[str], reader: str, command: str
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    for kind, name in ((kind, special[kind]) for kind in kinds):
        if kind == "pipe" and reader in WITH_PIPES:
            continue
        with limited_time(), without_privileges() if kind == "unreadable" else nullcontext():
            done = simnmt(*shlex.split(command.format(name)))
        assert (done.status, done.out) == (2, ""), (kind, done)
        assert_one_line(done.err)
        assert name[:20] in done.err and "unknown key" not in done.err, (kind, done.err)
        assert sorted(path.name for path in folder.iterdir()) == before, kind


@pytest.mark.parametrize("reader", READERS)
def test_a_special_file_is_refused_in_one_line(
    folder: Path, special: dict[str, str], simnmt: Callable[..., Any], reader: str
) -> None:
    assert_refused(simnmt, folder, special, KINDS_OF_READERS, reader, READERS[reader])


@pytest.mark.parametrize("reader", READERS_OF_MODELS)
def test_a_special_file_is_refused_by_readers_of_models(
    folder: Path, models: Path, special: dict[str, str], simnmt: Callable[..., Any], reader: str
) -> None:
    shutil.copytree(models, folder, dirs_exist_ok=True)
    assert_refused(simnmt, folder, special, KINDS_WITH_MODELS, reader, READERS_OF_MODELS[reader])


FOLDERS = {
    "translation model": ("m", "nmt translate --model m one.txt --max-len 2"),
    "model of a bundle": ("m", "vocab build --model m --text one.txt --sentences 2 --clusters 2 --out new"),
    "encoder": ("e", "sti shard e --out new"),
    "store": ("s", "sti inspect s --check"),
    "run directory": ("r", "run r --out new"),
    "training": ("t", "nmt train --out t --steps 2 --threads 1"),
    "training of an encoder": ("te", "sti train --task task.tsv --out te --epochs 2 --threads 1"),
}
"""By kind of folder: its name, and a command that reads all its files."""
MADE_BY = {
    "r": "run small.yaml --requests 100 --replications 1 --out r",
    "t": "nmt train --src one.txt --tgt other.txt --model tiny.json --heldout 10 --steps 1 --threads 1 --out t",
    "te": "sti train --task task.tsv --out te --epochs 1 --layers 1 --slices 2 --width 8 --ffn 8 --vocab 30 --positions 8 "
    "--threads 1",
}
TRAININGS = ("t", "te")
"""Folders of which a command writes anew what it does not read."""


@pytest.mark.parametrize("kind_of_folder", FOLDERS)
def test_a_special_file_within_a_folder_is_refused_in_one_line(
    folder: Path, models: Path, simnmt: Callable[..., Any], kind_of_folder: str
) -> None:
    shutil.copytree(models, folder, dirs_exist_ok=True)
    name, command = FOLDERS[kind_of_folder]
    if name in MADE_BY:
        assert simnmt(*shlex.split(MADE_BY[name])).status == 0
    files = sorted(path for path in Path(name).rglob("*") if path.is_file())
    assert files
    shutil.copytree(name, "whole")
    for path in files:
        for kind in KINDS_IN_FOLDERS:
            path.unlink()
            make_special(path, kind)
            with limited_time(), without_privileges() if kind == "unreadable" else nullcontext():
                done = simnmt(*shlex.split(command))
            if name in TRAININGS and done.status == 0:
                assert path.is_file() and path.stat().st_size < 1 << 20, (path, kind)
            else:
                assert (done.status, done.out) == (2, ""), (path, kind, done)
                assert_one_line(done.err)
                assert not Path("new").exists(), (path, kind)
            shutil.rmtree(name)
            shutil.copytree("whole", name)
