"""Recording a network: a responder to put at its far end, probes of round trips, short transfers, and the files they become."""
