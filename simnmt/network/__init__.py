"""Networks between tiers: links with RTT and bandwidth series, and their import.

To read it, start with `series.py` (RTT and bandwidth over time), `link.py` (transfer time of a request) and
`configuration.py` (the network in a scenario file). `traces/` imports measurements of other tools.
It imports only `base`.
"""
