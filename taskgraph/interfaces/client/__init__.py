"""The Python API: build graphs, submit them, look at them, run them."""
