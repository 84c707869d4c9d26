"""One SQLite file behind the ports: tables, queues, logs."""
