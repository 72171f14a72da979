"""Elastic encoders: Transformer classifiers that run at any depth and width, with their tokenizers, tasks and training.

Open first: `encoder_configuration.py` (configuration and weights), `elastic_encoder.py` (the forward pass),
`evaluation.py` (accuracy of submodels). Does not import `simnmt.streaming.pipeline`.
"""

from __future__ import annotations
