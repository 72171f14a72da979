"""Speedy Transformer Inference: which shards to load, and how finely, within a deadline and a preload buffer; pure planning."""
