"""Training of small translation models: corpus, subwords, batches, learning, and the folder that keeps it all."""
