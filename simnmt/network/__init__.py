"""RTT series, their readers and synthetic processes, and links."""
