"""Speedy Transformer Inference: which shards of a model to load at which fidelity, within a deadline and a preload buffer; pure planning."""
