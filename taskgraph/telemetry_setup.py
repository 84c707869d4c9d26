"""Whether this process measures what it does, and where that goes: read once from the environment.

What this room is for: turning OpenTelemetry's own variables, and the connection string of Application Insights, into a
`Telemetry`; what is not installed is said with the name of the extra that brings it. It never imports anything of
OpenTelemetry unless it is asked to, and never replaces what the program around it has set up already.
"""

from collections.abc import Mapping

from taskgraph.telemetry import OFF, Telemetry


def configure(
    environ: Mapping[str, str], *, strict: bool = True, export_logs: bool = True, service_name: str = "taskgraph"
) -> Telemetry:
    """The telemetry of this process; the same one again for every later call.

    Where a tracer provider has been set by somebody else, that one is used and nothing is set up. strict: whether a
    package that is asked for and missing is an error; otherwise it is a warning in the log, and nothing is measured.
    export_logs: with Application Insights, whether log lines of taskgraph go there as well; not where the host collects
    them. service_name: what the process is called unless the environment says otherwise. Raises InvalidSettings.
    """
    return OFF


def found() -> Telemetry:
    """The telemetry of this process as far as there is one: what `configure` made, or what the program has set up."""
    return OFF
