"""Ports to storage (`tables`, `queues`, `logs`) and their adapters (`embedded`, `azure`).

Ports know entities, etags and bytes, and nothing of tasks. Adapters are strangers to each other.
"""
