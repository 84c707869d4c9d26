"""Everything that changes a graph: handlers, requests, the sweep, and what they need."""
