"""Wake processes of this machine: who waits for a message hears of it at once."""
