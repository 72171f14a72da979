"""A process that draws RTT series like a given one: fitted, drawn, judged."""
