"""Ports to storage (`tables`, `queues`, `logs`), and their adapters (`azure`, `sqlite`, `memory`), which share none."""
