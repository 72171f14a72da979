"""The ONNX Runtime engine: encoder-decoders exported as optimum writes them, with a search in numpy; needs no torch.

The folder holds config.json, encoder_model.onnx and decoder_model.onnx with decoder_with_past_model.onnx, or
decoder_model_merged.onnx; files in a folder `onnx` below it are found too. Keys and values stay in ONNX Runtime from step to
step, except where a beam reorders its rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from simnmt.base.errors import describe_error
from simnmt.batching import Batching
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.devices import cpu_name
from simnmt.nmt.engine import DecodeRequest, EngineAccount, EngineRequest, Hypothesis, Timing, Work, random_sources
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.hub import model_path
from simnmt.nmt.pretrained_config import read_pretrained_architecture
from simnmt.nmt.whole_batch_decoder import MOST_TARGET_TOKENS, WholeBatchDecoder

_SUFFIXES = {"float32": "", "int8": "_quantized"}
"""Ends of the files' names by compute type."""
_REMEDY = "export it with optimum-cli export onnx --task text2text-generation-with-past"
_PAST, _PRESENT = "past_key_values", "present"

Array = NDArray[Any]


class OnnxEngine:
    """An engine that times the encoder and each step of the decoder in ONNX Runtime, on the CPU."""

    def __init__(self, request: EngineRequest, compute_type: str) -> None:
        """Load the sessions. Raises `NmtError` for a folder that holds no exported model."""
        folder = Path(model_path(request.model, weight_patterns(compute_type)))
        if not (folder / "config.json").is_file():
            remedy = f"name a folder with config.json; to make one, {_REMEDY}"
            raise NmtError("ONNX Runtime runs exported folders alone", path=request.model, remedy=remedy)
        self._architecture, _ = read_pretrained_architecture(folder)
        self._seed = request.seed
        self._sessions: _Sessions | None = _Sessions.load(folder, _SUFFIXES[compute_type], request.threads)
        self.account = EngineAccount(
            request.model,
            self._architecture.model_dump(mode="json"),
            "checkpoint",
            self._architecture.tgt_vocab,
            backend="onnxruntime",
            compute_type=compute_type,
            device="cpu",
            device_name=cpu_name(),
            threads=request.threads,
            versions={"onnxruntime": onnxruntime.__version__},
        )

    @classmethod
    def load(cls, request: EngineRequest) -> OnnxEngine:
        """Load an engine; see `load_engine`, which has checked the device's name."""
        if request.vocabulary is not None:
            raise NmtError("no bundle of the vocabulary with ONNX Runtime", remedy="leave --vocabulary out")
        compute_type = request.supported_type("ONNX Runtime", supported_types(request.device))
        return within_memory("cpu", lambda: cls(request, compute_type))

    def run(self, work: Work) -> Timing:
        """See `Engine`."""
        longest = self._architecture.max_positions
        if longest is not None and max(work.src_len, work.tgt_len) > longest:
            side, length = ("source", work.src_len) if work.src_len > longest else ("target", work.tgt_len)
            raise NmtError(f"a {side} of {length} tokens where the model has {longest} positions", remedy="shorten it")
        sources = random_sources(work, self._architecture, self._seed)
        marks: list[float] = []
        start_s = time.perf_counter()
        self._decode(sources, work.beam, [work.tgt_len] * work.batch, work.tgt_len, marks)
        total_s = time.perf_counter() - start_s
        encoded_s, *steps = marks
        return Timing(
            total_s,
            encoded_s - start_s,
            tuple(after - before for before, after in zip(steps[::2], steps[1::2], strict=True)),
        )

    def sentence_decoder(self, batching: Batching, beam: int) -> WholeBatchDecoder:
        """Return a decoder of whole batches. Raises `NmtError` for batches that are refilled."""

        def decode(requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
            forced = {request.forced_len for request in requests}
            if len(forced) > 1:
                remedy = "decode one sentence at a time, or with torch"
                raise NmtError("ONNX Runtime forces one length for a whole batch", remedy=remedy)
            (forced_len,) = forced
            most = [forced_len or request.max_len or MOST_TARGET_TOKENS for request in requests]
            return self._decode([request.source for request in requests], beam, most, forced_len, [])

        return WholeBatchDecoder(decode, batching)

    def _decode(
        self, sources: Sequence[Sequence[int]], beam: int, most: Sequence[int], forced_len: int | None, marks: list[float]
    ) -> list[Hypothesis]:
        """Return the best hypothesis of each source of at most `most` tokens.

        Appends to `marks` the moments at which the encoder and each step begin and end.
        """
        sessions = self._sessions
        if sessions is None:
            raise NmtError("this engine is closed", remedy="load it again")
        search = _Search(self._architecture, len(sources), beam, most, forced=forced_len is not None)
        try:
            return within_memory("cpu", lambda: _decode(sessions, search, sources, self._architecture.pad_token, marks))
        except (onnxruntime.capi.onnxruntime_pybind11_state.Fail, onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,
                onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument) as error:  # fmt: skip
            raise NmtError(f"ONNX Runtime cannot run it: {describe_error(error)}", remedy=_REMEDY) from None

    def close(self) -> None:
        """See `Engine`; no run afterwards."""
        self._sessions = None


def _decode(
    sessions: _Sessions, search: _Search, sources: Sequence[Sequence[int]], pad_token: int, marks: list[float]
) -> list[Hypothesis]:
    longest = max(map(len, sources))
    rows = np.array([[*source, *[pad_token] * (longest - len(source))] for source in sources], dtype=np.int64)
    mask = np.array([[1] * len(source) + [0] * (longest - len(source)) for source in sources], dtype=np.int64)
    state = sessions.encode(rows, mask, search.beam)
    marks.append(time.perf_counter())
    while not search.done:
        marks.append(time.perf_counter())
        logits = sessions.step(state, search.tokens)
        marks.append(time.perf_counter())
        parents = search.choose(logits)
        if parents is not None and not search.done:
            sessions.reorder(state, parents)
    return search.hypotheses()


@dataclass(slots=True)
class _State:
    """What the decoder reads in its next step; a row is a hypothesis."""

    inputs: dict[str, Any]
    """Inputs by name as ONNX Runtime holds them: the source's states and mask, and after the first step keys and values."""
    begun: bool = False


@dataclass(frozen=True, slots=True)
class _Sessions:
    """The encoder, the first step of the decoder, and its further steps."""

    encoder: Any
    first: Any
    next: Any
    """The same session as `first` if the export has merged both."""
    empty: dict[str, Any]
    """Keys and values of no tokens, which a merged decoder reads in its first step; [] by rows, made when needed."""

    @classmethod
    def load(cls, folder: Path, suffix: str, threads: int | None) -> _Sessions:
        """Load the files of a folder. Raises `NmtError` for missing and damaged ones."""
        place = folder if (folder / f"encoder_model{suffix}.onnx").is_file() else folder / "onnx"
        names = {name: place / f"{name}{suffix}.onnx" for name in _NAMES}
        there = {name: path for name, path in names.items() if path.is_file()}
        if "encoder_model" not in there:
            raise NmtError(f"holds no encoder_model{suffix}.onnx", path=folder, remedy=_REMEDY)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if threads is not None:
            options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1

        def session(name: str) -> Any:
            try:
                return onnxruntime.InferenceSession(str(there[name]), options, providers=["CPUExecutionProvider"])
            except Exception as error:  # the library has many
                what = f"no usable model for ONNX Runtime: {describe_error(error)}"
                raise NmtError(what, path=there[name], remedy=_REMEDY) from None

        if "decoder_model" in there and "decoder_with_past_model" in there:
            return cls(session("encoder_model"), session("decoder_model"), session("decoder_with_past_model"), {})
        if "decoder_model_merged" in there:
            merged = session("decoder_model_merged")
            return cls(session("encoder_model"), merged, merged, {})
        what = f"holds neither decoder_model_merged{suffix}.onnx nor decoder_with_past_model{suffix}.onnx"
        raise NmtError(what, path=folder, remedy=_REMEDY)

    @property
    def merged(self) -> bool:
        """Whether one session takes all steps."""
        return self.first is self.next

    def encode(self, rows: Array, mask: Array, beam: int) -> _State:
        """Read the sources, int64 [batch, src_len]; each has `beam` rows in the state."""
        (states,) = self.encoder.run(["last_hidden_state"], {"input_ids": rows, "attention_mask": mask})
        inputs = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
        return _State({name: _held(np.repeat(value, beam, axis=0)) for name, value in inputs.items()})

    def step(self, state: _State, tokens: Array) -> Array:
        """Feed the last token of each row; return logits, float32 [rows, vocab]."""
        session = self.next if state.begun else self.first
        inputs = dict(state.inputs) | {"input_ids": _held(tokens[:, None])}
        if self.merged:
            inputs["use_cache_branch"] = _held(np.array([state.begun]))
            if not state.begun:
                inputs |= self._nothing_before(len(tokens))
        wanted = {value.name for value in session.get_inputs()}
        outputs = [value.name for value in session.get_outputs()]
        results = session.run_with_ort_values(outputs, {name: inputs[name] for name in wanted & inputs.keys()})
        for name, value in zip(outputs, results, strict=True):
            # A merged decoder returns empty keys and values of the source after the first step: the first ones stay.
            if name.startswith(_PRESENT) and not (state.begun and ".encoder." in name):
                state.inputs[name.replace(_PRESENT, _PAST, 1)] = value
        state.begun = True
        logits: Array = results[outputs.index("logits")].numpy()[:, -1]
        return logits

    def reorder(self, state: _State, parents: Array) -> None:
        """Replace row i by row `parents[i]`, of the same sentence."""
        for name, value in state.inputs.items():
            if ".decoder." in name:
                state.inputs[name] = _held(value.numpy()[parents])

    def _nothing_before(self, rows: int) -> dict[str, Any]:
        """Return the keys and values of no tokens."""
        shapes = {value.name: value.shape for value in self.first.get_inputs() if value.name.startswith(_PAST)}
        return {
            name: _held(np.zeros([rows, *(size if isinstance(size, int) else 0 for size in shape[1:])], dtype=np.float32))
            for name, shape in shapes.items()
        }


_NAMES = ("encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged")


def _held(value: Array) -> Any:
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))


class _Search:
    """Greedy or beam search over whole batches, with the rules of `searches.BeamSearch`."""

    def __init__(self, architecture: Architecture, batch: int, beam: int, most: Sequence[int], *, forced: bool) -> None:
        self.beam = beam
        self.tokens: Array = np.full(batch * beam, architecture.start_token, dtype=np.int64)
        """The tokens that the next step is fed, int64 [rows]."""
        self._eos, self._forced, self._most = architecture.eos_token, forced, list(most)
        banned = {architecture.pad_token} - {architecture.eos_token} | ({architecture.eos_token} if forced else set())
        self._banned = sorted(banned)
        self._scores = np.full((batch, beam), -np.inf)
        self._scores[:, 0] = 0.0
        self._paths: list[list[tuple[int, ...]]] = [[()] * beam for _ in range(batch)]
        self._ended: list[list[tuple[float, tuple[int, ...]]]] = [[] for _ in range(batch)]
        self._open = [True] * batch
        self._steps = [0] * batch

    @property
    def done(self) -> bool:
        """Whether every sentence is done."""
        return not any(self._open)

    def choose(self, logits: Array) -> Array | None:
        """Choose the tokens of a step, using up its logits; return the row that each row continues, None if its own."""
        logits[:, self._banned] = -np.inf
        batch, vocab = len(self._paths), logits.shape[1]
        if self.beam == 1 and self._forced:
            words = logits.argmax(axis=1)  # no probability decides anything
            for sentence, word in enumerate(words.tolist()):
                self._paths[sentence] = [(*self._paths[sentence][0], word)]
                self._step_taken(sentence)
            self.tokens = words
            return None
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        sums = (self._scores[:, :, None] + log_probs.reshape(batch, self.beam, vocab)).reshape(batch, -1)
        count = min(2 * self.beam, sums.shape[1])
        best = np.argpartition(-sums, count - 1, axis=1)[:, :count]
        parents = np.arange(batch * self.beam)
        for sentence in range(batch):
            if self._open[sentence]:
                order = best[sentence][np.argsort(-sums[sentence][best[sentence]], kind="stable")]
                self._extend(sentence, [(float(sums[sentence][place]), *divmod(int(place), vocab)) for place in order], parents)
        return parents if self.beam > 1 else None

    def _extend(self, sentence: int, candidates: list[tuple[float, int, int]], parents: Array) -> None:
        """Continue a sentence by its best candidates (score, parent, word)."""
        length, paths = self._steps[sentence] + 1, self._paths[sentence]
        first = sentence * self.beam
        kept = list[tuple[float, int, int]]()
        for rank, (score, parent, word) in enumerate(candidates):
            if word == self._eos and not self._forced:
                if rank < self.beam and score > -np.inf:
                    self._ended[sentence].append((score / length, paths[parent]))
            elif len(kept) < self.beam:
                kept.append((score, parent, word))
        while len(kept) < self.beam:
            kept.append((-np.inf, 0, candidates[0][2]))
        self._paths[sentence] = [(*paths[parent], word) for _, parent, word in kept]
        self._scores[sentence] = [score for score, _, _ in kept]
        for row, (_, parent, word) in enumerate(kept):
            parents[first + row], self.tokens[first + row] = first + parent, word
        ended = sorted(self._ended[sentence], reverse=True, key=lambda one: one[0])[: self.beam]
        self._ended[sentence] = ended
        if len(ended) == self.beam and self._scores[sentence][0] / length <= ended[-1][0]:
            self._open[sentence] = False
        self._step_taken(sentence)

    def _step_taken(self, sentence: int) -> None:
        self._steps[sentence] += 1
        if self._open[sentence] and self._steps[sentence] == self._most[sentence]:
            self._open[sentence] = False
            length = self._steps[sentence]
            open_ones = zip(self._scores[sentence].tolist(), self._paths[sentence], strict=True)
            self._ended[sentence] += [(score / length, path) for score, path in open_ones]

    def hypotheses(self) -> list[Hypothesis]:
        """Return the best hypothesis of each sentence."""
        scored = not (self.beam == 1 and self._forced)
        best = [max(ended, key=lambda one: one[0]) for ended in self._ended]
        return [
            Hypothesis(path, score if scored else None, steps) for (score, path), steps in zip(best, self._steps, strict=True)
        ]


def weight_patterns(compute_type: str) -> tuple[tuple[str, ...]]:
    """Return the patterns of the files of a model that are read for a compute type; see `model_path`."""
    return (tuple(f"*{name}{_SUFFIXES[compute_type]}.onnx*" for name in _NAMES),)


def supported_types(device: str) -> list[str]:
    """Return the compute types supported on a device, the default first. Raises `NmtError` for another device than the CPU."""
    if device != "cpu":
        raise NmtError(f"ONNX Runtime runs on the CPU here, not on {device}", remedy="use cpu")
    return list(_SUFFIXES)
