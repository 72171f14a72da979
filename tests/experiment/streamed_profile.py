"""A profile of a made-up phone that streams a made-up translation model from its flash; synthetic, and says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simnmt.profile.device_profile import DeviceProfile
from tests.profile.made_profile import whole_profile
from tests.profile.made_sti import sti_block

STI = "sti: {deadline_ms: 900, preload_mb: 2, cache_mb: 20}"
TEXT = f"""\
version: 1
name: x
requests: 400
replications: 2
workloads:
  w:
    lengths: "@de-en-news"
    arrivals:
      kind: engagements
      begin: {{kind: poisson, rate_rps: 0.02}}
      turns: [0.4, 0.3, 0.3]
      think_time: {{mean_s: 5}}
networks: {{n: {{rtt: "@cp2"}}}}
devices:
  gateway:
    profile: "phone.json"
    {STI}
    outside_range_share: 0.5
  cloud: {{profile: "@titan-xp-gru"}}
policies:
  edge: {{}}
  cloud: {{}}
  oracle: {{}}
  cnmt: {{}}
  knowing: {{kind: cnmt, plan_state: known}}
"""


def streamed_profile(**changed: Any) -> DeviceProfile:
    """Six encoder and six decoder layers of 512 x 8 heads, on a disk of 30 MB/s."""
    content = whole_profile(name="phone")
    content["execution"]["plane"] = {"s_per_src_token": 0.001, "s_per_tgt_token": 0.012, "s_fixed": 0.02}
    content["execution"]["samples"] = []
    content["sti"] = sti_block(6, 8, 512, 2048, lengths=(16, 32, 64), bytes_per_s=30e6, decoder_layers=6, importance=False)
    return DeviceProfile.model_validate_json(json.dumps(content | changed))


def written(folder: Path, profile: DeviceProfile) -> Path:
    """The profile as a file of its name."""
    path = folder / f"{profile.name}.json"
    path.write_text(profile.model_dump_json(), encoding="utf-8")
    return path
