"""What things are: states, ids, names, bounds, times, messages. No I/O; it imports nothing else of taskgraph."""
