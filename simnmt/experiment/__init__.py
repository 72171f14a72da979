"""Run a scenario: read its inputs, draw requests, set policies up, simulate every unit, and gather the result.

Start with `inputs` (the files that a scenario names, as a `RunPlan` of `Case`s), then `units` (one workload on one network in
one replication, under every policy; `mix` has the workloads and sites that share devices), then `run` (all units into a
`Run`). `sweep` runs the points of a grid; `trial` (one run judged by a service level), `capacity` and `deployment` are plans.
Imports no service, calibration or report.
"""
