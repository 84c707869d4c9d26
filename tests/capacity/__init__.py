"""What one graph, one account and many carry, on paper (`model`) and in virtual time (`playing`); `scripts/model`."""
