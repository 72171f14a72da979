"""Speed and agreement of the simulated world beside models of other hands, on common inputs."""
