"""Claim a run, execute it, report it."""
