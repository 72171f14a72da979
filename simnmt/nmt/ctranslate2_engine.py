"""The CTranslate2 engine: the same Marian model, converted offline into a temporary folder, without tokenizer or network."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from ctranslate2.converters.transformers import BartLoader

from simnmt.nmt.devices import cpu_name
from simnmt.nmt.engine import EngineAccount, EngineRequest, Timing, Work, random_sources
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.marian_model import MarianModel
from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.step_model import check_lengths
from simnmt.nmt.vocabulary.candidate_lists import KIND, CandidateLists, write_vocabulary_map

VOCABULARY_MAP = "vmap.txt"
"""What CTranslate2 calls the map in a model's folder."""
_TYPES = ("float32", "int8", "int16", "bfloat16", "float16")


class CTranslate2Engine:
    """Runs forced lengths through CTranslate2's own search, of which only the whole can be timed.

    Its tokens are texts: each id stands as its decimal digits. As in our own search, padding is never an output.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        model: MarianModel,
        device: str,
        threads: int | None,
        compute_type: str,
        seed: int,
        lists: CandidateLists | None = None,
    ) -> None:
        """`lists`: its vocabulary map; None: every token may be chosen."""
        architecture = loaded.architecture
        self._architecture, self._seed, self._mapped = architecture, seed, lists is not None
        never = {architecture.pad_token} - {architecture.eos_token}
        if lists is not None:
            # In no list stands padding; the start token CTranslate2 adds to each of them.
            never = {architecture.start_token} - {architecture.eos_token}
        self._suppressed = [[str(token)] for token in sorted(never)] or None
        kind, _, index = device.partition(":")
        with tempfile.TemporaryDirectory(prefix="simnmt-ctranslate2-") as folder:
            convert(model, Path(folder), lists)
            # The weights are read whole when the translator is made: the folder need not outlive it.
            self._translator: ctranslate2.Translator | None = ctranslate2.Translator(
                folder,
                device=kind,
                device_index=int(index or 0),
                compute_type=compute_type,
                inter_threads=1,
                intra_threads=threads or 0,
            )
        self.account = EngineAccount(
            model=loaded.name,
            architecture=architecture.model_dump(mode="json"),
            weights=loaded.weights,
            vocab=architecture.tgt_vocab,
            backend="ctranslate2",
            compute_type=self._translator.compute_type,
            device=device,
            device_name=_gpu_name(int(index or 0)) if kind == "cuda" else cpu_name(),
            threads=threads,
            versions={"ctranslate2": ctranslate2.__version__},
            vocabulary=None if lists is None else KIND,
        )

    def run(self, work: Work) -> Timing:
        """See `Engine`."""
        check_lengths(self._architecture.max_positions, work.src_len, work.tgt_len)
        sources = [[str(token) for token in source] for source in random_sources(work, self._architecture, self._seed)]
        start = time.perf_counter()
        within_memory(self.account.device, lambda: self.translate(sources, beam=work.beam, forced_len=work.tgt_len))
        return Timing(time.perf_counter() - start, None, None)

    def translate(
        self, sources: list[list[str]], *, beam: int, forced_len: int | None = None, max_len: int = 200
    ) -> list[list[str]]:
        """The best hypothesis of each source, of just `forced_len` tokens or up to `max_len`; all sources in one batch."""
        if self._translator is None:
            raise NmtError("this engine is closed", remedy="load it again")
        results = self._translator.translate_batch(
            sources,
            beam_size=beam,
            min_decoding_length=1 if forced_len is None else forced_len,
            max_decoding_length=max_len if forced_len is None else forced_len,
            max_input_length=0,
            suppress_sequences=self._suppressed,
            use_vmap=self._mapped,
        )
        return [result.hypotheses[0] for result in results]

    def close(self) -> None:
        """See `Engine`; no run afterwards."""
        self._translator = None


def convert(model: MarianModel, folder: Path, lists: CandidateLists | None = None) -> None:
    """Write a model in CTranslate2's form, float32; other types are made from it when it is loaded. `lists`: with their map.

    Raises `NmtError` for lists that hold padding or the start token, which are no output.
    """
    spec, order = _Marian().get_model_spec(model.hf), list(range(model.vocab))
    if lists is not None:
        if ({model.pad_token, model.start_token} - {model.eos_token}) & set(lists.columns.tolist() + lists.always.tolist()):
            raise NmtError("lists that hold padding or the start token", remedy="build them again")
        order = _reorder(spec, [model.eos_token, model.architecture.unk_token, model.start_token])
    vocabulary = [str(token) for token in order]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.unk_token = str(model.architecture.unk_token)
    spec.config.eos_token = str(model.eos_token)
    spec.config.bos_token = spec.config.decoder_start_token = str(model.start_token)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))
    if lists is not None:
        texts = [str(token) for token in range(model.vocab)]
        write_vocabulary_map(folder / VOCABULARY_MAP, lists, texts, texts)


def _reorder(spec: Any, first: list[int]) -> list[int]:
    """Put these tokens at the vocabulary's beginning; returns the order.

    From one list to the next CTranslate2 (4.8.5) keeps in mind the columns of tokens that stood in an earlier one
    (Decoder::update_output_layer), so that a start or end token whose column moves is taken for another. What is in every list
    and lower than all else does not move.
    """
    kept = list(dict.fromkeys(first))
    order = kept + [token for token in range(len(spec.decoder.embeddings.weight)) if token not in set(kept)]
    embeddings, places = spec.encoder.embeddings, torch.tensor(order)
    parts = [*(embeddings if isinstance(embeddings, list) else [embeddings]), spec.decoder.embeddings]
    for part in [*parts, spec.decoder.projection]:
        part.weight = torch.as_tensor(part.weight).detach()[places]
    if not isinstance(spec.decoder.projection.bias, str):
        spec.decoder.projection.bias = torch.as_tensor(spec.decoder.projection.bias).detach()[places]
    return order


class _Marian(BartLoader):  # type: ignore[misc]  # an untyped library
    """Reads the weights as CTranslate2's own Marian converter does, but keeps the row of the padding token.

    Its own drops the vocabulary's last token, taking it for padding with a vector of zeros that also starts the target; that
    holds for published Marian models alone.
    """

    def get_model_spec(self, model: Any) -> Any:
        """The weights, in CTranslate2's names."""
        config = model.config
        config.normalize_before = config.normalize_embedding = False
        return super().get_model_spec(model)


def load_ctranslate2_engine(request: EngineRequest) -> CTranslate2Engine:
    """See `load_engine`, which has checked the device's name; the vocabulary is a bundle of candidate lists."""
    device, threads, seed = request.device, request.threads, request.seed
    # int16 is fast with Intel's MKL alone, and offered only there.
    compute_type = request.supported_type("CTranslate2", supported_types(device))
    loaded = load_model(request.model, seed=seed)
    marian = loaded.model
    if not isinstance(marian, MarianModel):
        raise NmtError(f"CTranslate2 runs no {loaded.architecture.kind} model", remedy="use the torch backend, or marian")
    lists = None if request.vocabulary is None else CandidateLists.load(request.vocabulary, marian)
    if device == "cpu":
        threads = threads or torch.get_num_threads()
    return within_memory(device, lambda: CTranslate2Engine(loaded, marian, device, threads, compute_type, seed, lists))


def supported_types(device: str) -> list[str]:
    """Compute types that the engine takes on a device, the default first. Raises `NmtError` where there is no such device."""
    kind = device.partition(":")[0]
    if kind == "cuda" and not ctranslate2.get_cuda_device_count():
        raise NmtError(f"CTranslate2 sees no {device} here", remedy="use cpu, or install a driver with CUDA")
    offered = ctranslate2.get_supported_compute_types(kind)
    return [name for name in _TYPES if name in offered]


def _gpu_name(index: int) -> str:
    return torch.cuda.get_device_name(index) if index < torch.cuda.device_count() else "GPU"
