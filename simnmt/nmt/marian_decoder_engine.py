"""The engine of Marian itself: `marian-decoder` as a process that translates lines of forced words; needs no torch.

A batch of random words goes to the process with a target for each line (`--force-decode`), and the greatest length is set to
that of the targets, so that every sentence takes exactly that many steps. Number and greatest length are options of the
process: another work starts it again, which is not timed. The output is counted: a version without these options is refused.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import IO, Any

import numpy as np

from simnmt.base.files import MOST_MODEL_BYTES, read_bounded
from simnmt.batching import Batching
from simnmt.nmt.devices import cpu_name
from simnmt.nmt.engine import EngineAccount, EngineRequest, SentenceDecoder, Timing, Work
from simnmt.nmt.errors import NmtError, need

PROGRAM = "marian-decoder"
CONFIGURATION = "decoder.yml"
_FOLDER = f"name a folder of Marian with {CONFIGURATION}, its models and vocabs"
_MARKS = {"</s>", "<unk>", "<s>", "<pad>"}


class MarianDecoderEngine:
    """An engine that times whole translations of `marian-decoder`, whose parts cannot be timed."""

    def __init__(self, request: EngineRequest, program: str) -> None:
        """Read the folder. Raises `NmtError` for one that holds no model of Marian."""
        self._folder, self._program, self._seed = Path(request.model).absolute(), program, request.seed
        self._threads = request.threads or 1
        self._files = models, vocabularies = _files(self._folder)
        self._source, self._target = (_words(path) for path in (vocabularies[0], vocabularies[-1]))
        self._process: _Process | None = None
        self._closed = False
        self.account = EngineAccount(
            request.model,
            {"kind": "marian"} | _sizes(models[0]) | {"src_vocab": len(self._source), "tgt_vocab": len(self._target)},
            "checkpoint",
            len(self._target),
            backend="marian",
            compute_type="float32",
            device="cpu",
            device_name=cpu_name(),
            threads=self._threads,
            versions={"marian": _version(program)},
        )

    @classmethod
    def load(cls, request: EngineRequest) -> MarianDecoderEngine:
        """Load an engine; see `load_engine`, which has checked the device's name."""
        request.supported_type("marian-decoder", ["float32"])
        if request.device != "cpu":
            raise NmtError(f"marian-decoder runs on the CPU here, not on {request.device}", remedy="use cpu")
        if request.vocabulary is not None:
            raise NmtError("no bundle of the vocabulary with marian-decoder", remedy="leave --vocabulary out")
        program = shutil.which(PROGRAM)
        if program is None:
            raise NmtError(f"no {PROGRAM} on PATH", remedy="build Marian, and add its folder to PATH")
        return cls(request, program)

    def run(self, work: Work) -> Timing:
        """See `Engine`."""
        if self._closed:
            raise NmtError("this engine is closed", remedy="load it again")
        draw = Random(self._seed)
        lines = [
            " ".join(draw.choices(self._source, k=work.src_len - 1))
            + "\t"
            + " ".join(draw.choices(self._target, k=work.tgt_len))
            for _ in range(work.batch)
        ]
        # The length of a source counts its end; half a step less, lest a rounded product ask for one more.
        factor = (work.tgt_len - 0.5) / work.src_len
        options = [
            *("--beam-size", str(work.beam), "--mini-batch", str(work.batch), "--maxi-batch", "1"),
            *("--max-length-factor", f"{factor:.6f}", "--max-length", str(max(work.src_len, work.tgt_len) + 1)),
        ]
        if self._process is None or self._process.options != options:
            self._stop()
            self._process = _Process(self._folder, self._files, self._program, self._threads, options)
            self._process.translate(lines)  # loads the model, and is not timed
        start_s = time.perf_counter()
        outputs = self._process.translate(lines)
        total_s = time.perf_counter() - start_s
        for output in outputs:
            if (count := len(output.split())) != work.tgt_len:
                what = f"{PROGRAM} gave {count} tokens where {work.tgt_len} were forced"
                raise NmtError(what, path=self._folder, remedy="give Marian 1.11 or later, and a model without other limits")
        return Timing(total_s, None, None)

    def sentence_decoder(self, batching: Batching, beam: int) -> SentenceDecoder:
        """Raise `NmtError`: the process translates forced batches alone."""
        raise NmtError(f"{PROGRAM} serves no sentences here", remedy="calibrate with it, and serve with another backend")

    def close(self) -> None:
        """See `Engine`; no run afterwards."""
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    """A running `marian-decoder`."""

    def __init__(
        self, folder: Path, files: tuple[list[Path], list[Path]], program: str, threads: int, options: list[str]
    ) -> None:
        """Start the program; `files`: models and vocabularies."""
        self.options = options
        fixed = ["--force-decode", "--tsv", "--tsv-fields", "2", "--no-spm-encode", "--no-spm-decode", "--quiet"]
        # Not `-c decoder.yml`: a configuration may name files to be written, or another input.
        named = ["--models", *map(str, files[0]), "--vocabs", *map(str, files[1])]
        command = [program, *named, "--cpu-threads", str(threads), *fixed, "--quiet-translation", *options]
        self._folder = folder
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        try:
            self._running = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
                encoding="utf-8",
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise NmtError(f"{PROGRAM} does not start: {error.strerror}", path=program, remedy="install it again") from None

    def translate(self, lines: list[str]) -> list[str]:
        """Return the translations of a batch. Raises `NmtError` if the process has ended."""
        assert self._running.stdin is not None and self._running.stdout is not None
        with suppress(BrokenPipeError):
            self._running.stdin.write("".join(f"{line}\n" for line in lines))
            self._running.stdin.flush()
        outputs = [self._running.stdout.readline() for _ in lines]
        if not outputs[-1]:
            self._running.wait()
            self._errors.seek(0)
            messages = self._errors.read(1 << 16).decode("utf-8", "replace").split("\n")
            reason = next((line.strip() for line in reversed(messages) if line.strip()), f"status {self._running.returncode}")
            raise NmtError(f"{PROGRAM} has ended: {reason[:150]}", path=self._folder, remedy=_FOLDER)
        return outputs

    def end(self) -> None:
        """End the process."""
        self._running.kill()
        self._running.wait()
        for pipe in (self._running.stdin, self._running.stdout):
            with suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()
        self._errors.close()


def _files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the models and the vocabularies that the folder's configuration names."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path = folder / CONFIGURATION
    try:
        content = YAML(typ="safe", pure=True).load(read_bounded(path, 1 << 16).decode("utf-8"))
        names = [[str(name) for name in content[key]] for key in ("models", "vocabs")]
    except OSError as error:
        raise NmtError(f"cannot read {CONFIGURATION}: {error.strerror}", path=folder, remedy=_FOLDER) from None
    except (YAMLError, ValueError, TypeError, KeyError):
        raise NmtError("names no models and vocabs", path=path, remedy=_FOLDER) from None
    if not all(names):
        raise NmtError("names no models and vocabs", path=path, remedy=_FOLDER)
    if outside := [name for name in names[0] + names[1] if Path(name).is_absolute() or ".." in Path(name).parts]:
        raise NmtError(f"names {outside[0]}, which lies outside its folder", path=path, remedy="name files in the folder")
    models, vocabularies = ([folder / name for name in part] for part in names)
    for file in (*models, *vocabularies):
        if not file.is_file():
            raise NmtError(f"{CONFIGURATION} names {file.name}, which is missing", path=folder, remedy=_FOLDER)
    return models, vocabularies


def _words(path: Path) -> list[str]:
    """Return the words of a vocabulary: a sentencepiece model, `word: number` lines, or a word a line; marks are left out."""
    if path.suffix == ".spm":
        try:
            processor = need("sentencepiece").SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError):
            raise NmtError("no sentencepiece model", path=path, remedy=_FOLDER) from None
        words = [str(processor.id_to_piece(number)) for number in range(processor.get_piece_size())]
    else:
        try:
            lines = read_bounded(path, MOST_MODEL_BYTES).decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise NmtError("no vocabulary that can be read", path=path, remedy=_FOLDER) from None
        words = [_word(line) for line in lines]
    kept = [word for word in words if word not in _MARKS and word and not re.search(r"\s", word)]
    if not kept:
        raise NmtError("a vocabulary without words", path=path, remedy=_FOLDER)
    return kept


def _word(line: str) -> str:
    match = re.fullmatch(r"\s*(.*?):?\s+\d+,?\s*", line)
    key = match[1] if match else line.strip()
    if key.startswith('"') and key.endswith('"') and len(key) > 1:
        with suppress(json.JSONDecodeError):
            return str(json.loads(key))
    return key


def _sizes(model: Path) -> dict[str, Any]:
    """Return the sizes that a model in numpy's format states; none for another format."""
    wanted = ("type", "dim-emb", "dim-rnn", "enc-depth", "dec-depth", "transformer-heads", "transformer-dim-ffn")
    try:
        with np.load(model, allow_pickle=False) as tensors:
            text = tensors["special:model.yml"].tobytes().decode("utf-8", "replace")
    except (OSError, ValueError, KeyError):
        return {}
    stated = re.findall(r"^([a-z-]+): *([\w.-]+)", text, re.MULTILINE)
    return {key: int(value) if value.isdigit() else value for key, value in stated if key in wanted}


def _version(program: str) -> str:
    """Return the version that the program prints."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NmtError(f"{PROGRAM} does not run: {type(error).__name__}", path=program, remedy="install it again") from None
    return next(iter((done.stdout or done.stderr).split()), "unknown")
