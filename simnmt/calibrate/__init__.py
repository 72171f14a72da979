"""From the box at hand to its device profile: what is timed, in which order, and what is made of it."""
