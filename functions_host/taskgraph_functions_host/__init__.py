"""A Functions host for one machine: `taskgraph functions start` tries function apps by it, without Core Tools."""
