"""The old TaskCluster scheduler, version 1, for its own clients: a translation to operations and queries, no more."""
