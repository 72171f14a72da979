"""What a recording found, in a sentence for each of its files."""

from __future__ import annotations

import math
import statistics

from simnmt.network.recording.samples import Samples


def rtts(samples: Samples) -> str:
    """Of a recording of which a probe came back."""
    arrived = [ms for ms in samples.rtt_ms if not math.isnan(ms)]
    typical = f"median {statistics.median(arrived):.4g} ms, from {min(arrived):.4g} to {max(arrived):.4g}"
    return f"RTT, measured; {_probes(samples)}; {typical}"


def bandwidths(samples: Samples) -> str:
    """Of both directions."""
    ways = []
    for name, column in (("downlink", samples.downlink_mbps), ("uplink", samples.uplink_mbps)):
        arrived = [mbps for mbps in column if not math.isnan(mbps)]
        ways.append(f"{name} median {statistics.median(arrived):.4g} Mbit/s" if arrived else f"{name} all lost")
    transfers = len(samples.transfer_s)
    return f"bandwidth, measured; {transfers:,} transfer{'s' * (transfers != 1)} each way; {', '.join(ways)}"


def so_far(samples: Samples) -> str:
    """While it runs."""
    last = samples.rtt_ms[-1] if samples.rtt_ms else math.nan
    return _probes(samples) + ("" if math.isnan(last) else f", last {last:.4g} ms")


def _probes(samples: Samples) -> str:
    return f"{len(samples.rtt_ms):,} probes, {samples.lost:,} lost"
