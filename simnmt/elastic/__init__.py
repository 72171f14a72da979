"""Elastic encoders: Transformer classifiers in shards, trained, stored, evaluated and run in a pipeline of reads and layers."""
