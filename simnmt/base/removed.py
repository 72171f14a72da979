"""Verbs, options and keys of a scenario that simnmt no longer has, and what to use in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from simnmt.base.errors import InputError

_LOAD_LOG = "make a recording of it by pandas: docs/reference/arrivals.md#logs-of-load-tools"
_NEVER_TWICE = "use late_answers.timeout_ms, after which the first device executes the request itself"
_BACKEND = "use --backend ctranslate2 or torch"

COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(("sti plan --page", "sti plan --force"), "the plan is printed, and --json holds its timeline"),
    "sweep --sample": "give a coarser grid, such as KEY=FROM:TO:N",
    "sweep --local-if-cluster-fails": "go on without the cluster by simnmt sweep DIR",
    "trace record": "record with ping -D or irtt, and iperf3 -J, and read the files with simnmt trace import",
    "trace respond": "run irtt server or iperf3 -s at the far end",
    "trace synth": "draw a longer trace with simnmt trace resample",
    "trace fetch": "download the results from atlas.ripe.net and read them with simnmt trace import",
    "validate --record": "keep the folder of --out",
    "validate --engine": "calibrate the engine, and give --set devices.NAME.profile=FILE",
    "validate --batching": "give --set devices.NAME.batching=YAML",
    "validate --loads": "give --set workloads.NAME.arrivals.rate_rps=RATE, once for each load",
    "validate --repeats": "give --replications",
    **dict.fromkeys(("validate --seconds", "validate --smoke"), "give --requests"),
    "validate --text": "send the texts with simnmt live replay --text",
    "live stream-server": "run the streamed model with simnmt sti run, and simulate its device",
    "live link": "give --delays to live gateway or live replay; between boxes, use the kernel's netem",
    **dict.fromkeys(
        ("live server --connections", "live gateway --connections"), "limit connections in a proxy before the service"
    ),
    **dict.fromkeys(
        ("live server --reference-every", "live gateway --reference-every"),
        "watch the gauge simnmt_execution_over_predicted of the gateway",
    ),
    "live watch": "calibrate again, and compare the profiles with simnmt profile compare",
    **dict.fromkeys(("trace import --host", "trace inspect --host"), "give a log of ping to one host"),
    **dict.fromkeys(("trace import --reply first", "trace inspect --reply first"), "use --reply min or --reply mean"),
    "trace import --json": "give --json to simnmt trace inspect",
    **dict.fromkeys(("trace import --measurement", "trace inspect --measurement"), "give each measurement a file of its own"),
    **dict.fromkeys(
        ("trace import --idle-below", "trace inspect --idle-below"), "leave the cells empty where nothing was sent"
    ),
    "live import": _LOAD_LOG,
    "corpus --expect-ratio": "simnmt corpus fit prints the ratio of mean lengths",
    "vocab build --pool": "leave it out: several --text give one set of clusters",
    **dict.fromkeys(("nmt translate --direction", "calibrate --direction"), "build one bundle for each direction"),
    "vocab build --method": "leave it out: contexts are clustered by scikit-learn",
    **dict.fromkeys(("calibrate --gaps", "calibrate --part in_situ"), "use --gap TIME, the mean time that the box idles"),
    **dict.fromkeys(("calibrate --pace", "calibrate --part disk"), "reads of a streamed model: simnmt sti profile --pace RATE"),
    "calibrate --max-concurrency": "leave it out, and set workers of the device to what you know of the service",
    "reproduce cnmt --find-network": "set rtt_mean_ms of the networks in your scenario, and see what the oracle offloads",
    **dict.fromkeys(
        ("reproduce vocab --heldout", "reproduce vocab --references"), "give --text LABEL=TRAIN,HELDOUT,REFERENCES"
    ),
    "sti run --pace": "profile the store at that pace, and name the profile",
    "sti inspect --layers": "leave it out: the table of the layers is always printed",
    **dict.fromkeys(
        [f"sti train --{name}" for name in ("pooling", "embedding-rate", "embedding-dropout", "word-dropout", "smoothing")],
        "leave it out, or give an ElasticRecipe to simnmt.streaming.training.train_encoder",
    ),
    "sti plan --exact": "compare with --fill, or with another deadline",
    "sti profile --folder": "write the profile to that folder",
    "sti profile --name": "name the file of --out so",
    "sti profile --device-name": "edit the profile",
    "reproduce sti --importance-on-task": "give the file of --task as --importance-task too",
    "reproduce sti --part": "leave it out: the parts that the file of --study lacks are measured",
    "reproduce sti --quick": "give --task a file of fewer examples",
    **dict.fromkeys(
        ("nmt translate --cache", "nmt translate --tune"), "leave it out: the active columns are always multiplied"
    ),
    "vocab build --align": "leave it out: candidate lists are learnt by IBM model 1",
    "calibrate --backend onnxruntime": _BACKEND,
    "calibrate --backend marian": _BACKEND,
    **dict.fromkeys(
        ("nmt translate --prefix", "calibrate --prefix", "live server --prefix", "live gateway --prefix"),
        "put the text before each line yourself",
    ),
    "run --engine simpy": "use --engine reference",
    "run @live-split": "use @live-smoke",
    "corpus sacrebleu:": "write the texts to two files, and give SOURCE TARGET",
    "run @locked-local": "run @quickstart with --set 'policies.cnmt.transfer_estimate={kind: quantile}'",
    "calibrate --neighbour": "start the other program yourself, and measure with --gap",
}
"""Remedy by verb, such as `trace fetch`, by verb and option, such as `trace import --host`, or by these and a value; or by
verb and prefix of an argument, such as `corpus sacrebleu:`."""

KEYS: Mapping[str, str] = {
    "lengths request_log": "use {table: FILE} of simnmt corpus table",
    "lengths dataset": "write the pairs to a file, and use {jsonl: FILE}",
    **dict.fromkeys(
        ("lengths sacrebleu", "lengths pair"), "write the texts to two files, and use {source: FILE, target: FILE}"
    ),
    "lengths expect_ratio": "leave it out: simnmt corpus fit prints the ratio of mean lengths",
    "lengths end_of_sentence": "state it in the header of the table, as # end_of_sentence: both",
    **dict.fromkeys(("lognormal end", "lognormal seed"), "remove it: a target counts one end symbol, and the draw is fixed"),
    "filter paracrawl": "use ratio, or clean the corpus with Bicleaner before",
    "arrivals benchmark": _LOAD_LOG,
    "arrivals form": "leave it out: the columns of the file tell",
    "arrivals speed": "write rate_rps: the mean rate at that speed",
    "arrivals scale_s": "write rate_rps: one over the mean gap",
    "arrivals series": "use {kind: recorded, file: FILE} with the columns t_s and rate_rps",
    "daily rate_rps": "write rate_rps beside daily",
    "daily hourly_rps": "write 24 steps of 3600 s",
    "transfer_estimate probing": "use quantile",
    **dict.fromkeys(("hedge_after_ms", "hedge_to", "failures retries", "retry_after_ms", "requests retried"), _NEVER_TWICE),
    "balancer kind": "choose a shipped one, such as round_robin",
    "rtt kind": "write the series to a file, or give it as an array in Python",
    "load_sweeps": "use simnmt sweep over arrivals.rate_rps",
    "grid": "give simnmt sweep --grid KEY=FROM:TO:N or KEY=V1,V2 for each key, and --set",
    "filter_replay": "remove it, or give filter: none to fit and replay all pairs",
    "lengths models": "state fertility: tokens of each profile's unit per token of the text, by unit",
    "lengths kind": "write the lengths to a file, or give them as an array in Python",
    **dict.fromkeys(("cost bench", "cost in_service"), "remove it: a profile has the executions of one calibration"),
    "loss": "describe the times in which nothing passes by outages",
    "retransmission": "remove it: a message that is sent during an outage is lost",
    "shared": "remove it: each message has the bandwidth to itself, so divide the bandwidth by the messages that meet",
    "neighbour": "remove it: no time depended on it",
    "carbon_intensity": "remove it, and multiply mean_energy_j by your intensity: 3.6e6 J are one kWh",
    "power load_w": "remove it: a box whose workers are all busy draws busy_w",
    "characters_per_src_token": "remove it, and judge energy and money per thousand tokens",
    "minimises energy": "compare policies by objective: energy_j, or write one that compares knowledge.costs",
    "minimises cost": "compare policies by objective: cost_per_request, or write one that compares knowledge.costs",
    "outages kind": "write outages: trace",
    "published": "remove it: simnmt reproduce cnmt sets the paper's Table I beside ours",
    "warm_up": "write warm_up_requests: N",
    "slo answered_within": "limit a percentile, as in p99_ms: 500, or give deadline_ms and limit deadline_met_share",
    "budget": "limit policies by slo, such as {energy_j: 2.5}, or write one that compares knowledge.costs",
}
"""Remedy by a key of a scenario and a key or a value below it."""


def refuse_removed_command(arguments: Sequence[str]) -> None:
    """Raise `InputError` with the remedy if the arguments of a command line name a removed verb or option."""
    words = [argument for argument in arguments if not argument.startswith("-")]
    options = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    options += [argument.replace("=", " ", 1) for argument in arguments if argument.startswith("--")]
    options += [" ".join(pair) for pair in pairwise(arguments) if pair[0].startswith("--")]
    options += [word.partition(":")[0] + ":" for word in words]
    for verb in (" ".join(words[:1]), " ".join(words[:2])):
        for name in (verb, *(f"{verb} {option}" for option in options)):
            if name in COMMANDS:
                raise InputError(f"simnmt {name} was removed", remedy=COMMANDS[name])


def removed_key_remedy(location: Sequence[str | int], value: object) -> str | None:
    """Return the remedy if a place of a scenario, or what stands there, was removed; else None."""
    names = [" ".join(map(str, location[-2:])), *map(str, location[-1:])]
    below = [*value, value.get("kind")] if isinstance(value, dict) else [value]
    names += [f"{part} {name}" for part in (*location[-1:], *location[:1]) for name in below]
    return next((KEYS[name] for name in names if name in KEYS), None)
