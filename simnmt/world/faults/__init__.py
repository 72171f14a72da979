"""Faults of the world: boxes that fail and are repaired, messages that are lost, answers that come late or never.

To read it, start with `configuration.py` (what a scenario says), then `faulty_traffic.py` (the life of a request that may be
sent again, sent twice, fall back or be lost), then `failing_boxes.py` (servers that are down at times). Outages and losses of
links are drawn by `simnmt.network.link_faults`; everything random is keyed, so that all policies meet the same faults.
"""
