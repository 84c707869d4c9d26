"""Notifications between processes of one machine, and locks that show which workers live."""
