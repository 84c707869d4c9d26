"""The read side: it looks at rows and counts queues, and writes nothing of a graph."""
