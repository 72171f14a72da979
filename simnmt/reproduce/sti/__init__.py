"""The paper on elastic pipelines: a model streamed in shards of chosen fidelity, planned against a deadline.

Read `published` first (what the text gives, what is lost, its slips), then `derived` (what follows from it), `paper_claims`,
`study_claims`, `pipeline_claims`, `reproduction` (all of it). What is measured comes from `simnmt.calibrate`'s study of a
trained classifier, and from a file of the pipeline's benchmark.
"""
