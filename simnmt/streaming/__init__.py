"""Model streaming (STI): a Transformer is read from storage, shard by shard, while it is computed.

Open first: `plan/streaming_plan.py` (what is read, and at how many bits), `store.py` (shards on the disk), `pipeline.py` (the
execution of a plan). `encoder.py` is the model, `training.py` trains one, `evaluation.py` judges its submodels.

`plan/` imports neither torch nor the other modules: simulations need the plans alone.
"""
