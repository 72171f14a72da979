"""Build the clusters (FVP-02 to 04, FVP-10) and candidate lists (SHARP-02) of a trained model from text.

Clusters need unlabelled text, candidate lists need parallel text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from simnmt.nmt.errors import NmtError
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.alignment import EM_ITERATIONS, alignable, ibm_model1
from simnmt.nmt.vocabulary.bundle_file import control_tokens
from simnmt.nmt.vocabulary.candidate_lists import CANDIDATES, CandidateLists, candidate_lists, most_frequent
from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle, ClusterSet
from simnmt.nmt.vocabulary.contexts import BATCH, ITERATIONS, Contexts, Progress, cluster, collect, join_contexts


def build_clusters(
    translator: Translator,
    texts: Mapping[str, Sequence[str]],
    clusters: int,
    top: int,
    *,
    pool: str | None = None,
    beam: int = 1,
    batch: int = BATCH,
    seed: int = 1,
    iterations: int = ITERATIONS,
    name: str = "",
    progress: Progress | None = None,
) -> ClusterBundle:
    """Build the clusters of each text by its label, or with `pool` one set of that label for all texts together (FVP-10).

    `name`: of the model, for messages. Raises the `NmtError` and `OutOfMemory` of `collect` and `cluster`.
    """
    if clusters < 1 or iterations < 1:  # decoding may take long
        raise NmtError(f"{clusters:,} clusters by {iterations:,} iterations", remedy="give 1 or more of each")
    report = progress or (lambda stage, share: None)
    model, max_len = translator.model, translator.max_len

    def collected(label: str) -> Contexts:
        sources, stage = translator.encode(texts[label]), f"decoding {label}"
        return collect(
            model, sources, top, beam=beam, batch=batch, max_len=max_len, progress=lambda _, share: report(stage, share)
        )

    def clustered(label: str, contexts: Contexts) -> ClusterSet:
        report(f"clustering {label}", None)
        return ClusterSet.of(label, contexts, cluster(contexts, clusters, seed=seed, iterations=iterations), model)

    if pool is None:
        sets = [clustered(label, collected(label)) for label in texts]
    else:
        sets = [clustered(pool, join_contexts([collected(label) for label in texts]))]
    return ClusterBundle.of(model, sets, name=name)


def sample_evenly(lines: Sequence[str], count: int | None) -> list[str]:
    """Return `count` lines, evenly spread over all and in their order; all lines if `count` is None or not smaller."""
    if count is None or count >= len(lines):
        return list(lines)
    return [lines[at * len(lines) // count] for at in range(count)]


def build_candidates(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    count: int = CANDIDATES,
    always: int = 0,
    iterations: int = EM_ITERATIONS,
    progress: Callable[[int], None] = lambda _: None,
) -> CandidateLists:
    """List the `count` most probable target tokens of each source token, by IBM model 1 of parallel lines.

    `targets[i]` translates `sources[i]`; pairs with an empty side are left out. The source's end mark has no list: it is the
    empty word of the alignment, whose target tokens the `always` most frequent ones replace, which are candidates of every
    sentence. `progress` is called with the number of pairs done.

    Raises `NmtError` for unequal numbers of lines, without any pair, and for more candidates than the vocabulary holds.
    """
    model = translator.model
    if not 1 <= count <= model.vocab or not 0 <= always <= model.vocab:
        what = f"{count:,} candidates, and {always:,} always, with a vocabulary of {model.vocab:,}"
        raise NmtError(what, remedy="give fewer, and 1 or more a token")
    # Targets without their end mark, which every list has.
    src = [ids if len(ids) > 1 else [] for ids in translator.source.encode(sources)]
    tgt = [ids[:-1] for ids in translator.target.encode(targets)]
    pairs = alignable(src, tgt)
    table = ibm_model1(
        pairs,
        src_vocab=translator.source.size,
        tgt_vocab=translator.target.size,
        iterations=iterations,
        progress=lambda done: progress(len(pairs) * done // iterations),
    )
    every = [*control_tokens(model), *most_frequent((target for _, target in pairs), always, model.vocab).tolist()]
    return candidate_lists(table, every, count=count, without=[translator.source.eos], pairs=len(pairs))
