"""Everything that can be asked of one installation, in one object."""

from taskgraph.queries.listing import TaskQueries
from taskgraph.queries.why import WhyQueries


class Queries(TaskQueries, WhyQueries):
    """Everything that can be asked of one installation."""
