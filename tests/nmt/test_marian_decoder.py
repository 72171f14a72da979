"""The engine of `marian-decoder`, on a small program that speaks its protocol: lines in, as many lines out, forced words."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from simnmt.nmt.engine import Work
from simnmt.nmt.engines import load_engine
from simnmt.nmt.errors import NmtError

STUB = """\
#!{python}
import sys, time
from math import ceil
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("v1.12.0 65bf82f"); sys.exit()
given = dict(zip(arguments, arguments[1:]))
if "-c" in arguments or not given["--models"].endswith("/opus/model.npz"):
    sys.exit("the options name another model")
if "--force-decode" not in arguments or given["--tsv-fields"] != "2":
    sys.exit("unknown options")
{fault}
batch, factor = int(given["--mini-batch"]), float(given["--max-length-factor"])
open("log.txt", "a").write("started\\n")
while True:
    lines = [sys.stdin.readline() for _ in range(batch)]
    if not lines[-1]:
        break
    for line in lines:
        source, target = line.rstrip("\\n").split("\\t")
        width = len(source.split()) + 1
        steps = ceil(factor * width)
        time.sleep(0.002 * steps)
        print(" ".join(target.split()[:steps]{cut}), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Marian, with the program on PATH."""
    place = tmp_path / "opus"
    place.mkdir()
    config = b"type: transformer\ndim-emb: 512\nenc-depth: 6\ndec-depth: 6\n\0"
    np.savez(place / "model.npz", **{"special:model.yml": np.frombuffer(config, dtype=np.int8)})
    (place / "vocab.yml").write_text('"</s>": 0\n"<unk>": 1\n' + "".join(f'"\\u2581w{n}": {n + 2}\n' for n in range(20)))
    (place / "decoder.yml").write_text("relative-paths: true\nmodels: [model.npz]\nvocabs: [vocab.yml, vocab.yml]\n")
    install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return place


def install(tmp_path: Path, fault: str = "", cut: str = "") -> None:
    (tmp_path / "bin").mkdir(exist_ok=True)
    program = tmp_path / "bin" / "marian-decoder"
    program.write_text(STUB.format(python=sys.executable, fault=fault, cut=cut))
    program.chmod(0o755)


def test_it_times_forced_steps_and_loads_the_model_before(folder: Path) -> None:
    engine = load_engine(str(folder), backend="marian", threads=1)
    short, long = engine.run(Work(5, 4)), engine.run(Work(5, 20))
    assert long.total_s - short.total_s == pytest.approx(0.032, abs=0.02)
    assert (short.encode_s, short.steps_s) == (None, None)
    assert (folder / "log.txt").read_text().count("started") == 2
    assert engine.run(Work(5, 20)).total_s < 0.2
    assert (folder / "log.txt").read_text().count("started") == 2
    for work in (Work(1, 1), Work(1, 100), Work(100, 1), Work(7, 13, batch=3, beam=2), Work(33, 32)):
        assert engine.run(work).total_s > 0
    account = engine.account
    assert (account.backend, account.vocab, account.versions) == ("marian", 20, {"marian": "v1.12.0"})
    assert account.architecture["type"] == "transformer" and account.architecture["dim-emb"] == 512
    engine.close()
    engine.close()
    with pytest.raises(NmtError, match="closed"):
        engine.run(Work(5, 4))


@pytest.mark.parametrize(
    ("fault", "cut", "message"),
    [
        ("sys.exit('[error] cannot open model.npz')", "", "marian-decoder has ended: [error] cannot open model.npz"),
        ("sys.exit(3)", "", "marian-decoder has ended: status 3"),
        ("", "[:-1]", "marian-decoder gave 3 tokens where 4 were forced (give Marian 1.11 or later"),
    ],
    ids=["says why", "says nothing", "another length"],
)
def test_a_program_that_fails_is_one_line(folder: Path, tmp_path: Path, fault: str, cut: str, message: str) -> None:
    install(tmp_path, fault, cut)
    engine = load_engine(str(folder), backend="marian")
    with pytest.raises(NmtError) as caught:
        engine.run(Work(5, 4))
    engine.close()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_without_the_program_the_remedy_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(NmtError, match=r"no marian-decoder on PATH \(build Marian"):
        load_engine(str(folder), backend="marian")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("decoder.yml", None, "cannot read decoder.yml: No such file or directory"),
        ("decoder.yml", "models: [", "names no models and vocabs"),
        ("decoder.yml", "models: [a.npz]\nvocabs: [vocab.yml]\n", "decoder.yml names a.npz, which is missing"),
        ("decoder.yml", "models: [../a.npz]\nvocabs: [vocab.yml]\n", "names ../a.npz, which lies outside its folder"),
        ("decoder.yml", "models: [model.npz]\nvocabs: [/etc/hostname]\n", "names /etc/hostname, which lies outside"),
        ("vocab.yml", '"</s>": 0\n', "a vocabulary without words"),
    ],
    ids=range(6),
)
def test_a_damaged_folder_is_one_line(folder: Path, name: str, content: str | None, message: str) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(NmtError) as caught:
        load_engine(str(folder), backend="marian")
    assert message in str(caught.value) and "\n" not in str(caught.value)
