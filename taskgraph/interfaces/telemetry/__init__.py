"""OpenTelemetry behind taskgraph's own port of telemetry."""
