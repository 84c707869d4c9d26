"""The HTTP API: one table of routes over the operations and views that the command line has; it decides nothing."""
