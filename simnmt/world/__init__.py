"""The SimPy world: one gateway, one cloud server, the link between them."""
