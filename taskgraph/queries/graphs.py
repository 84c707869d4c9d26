"""Everything that can be asked of one installation, in one object."""

from taskgraph.queries.graph_list import GraphListQueries
from taskgraph.queries.listing import TaskQueries
from taskgraph.queries.timeline import TimelineQueries
from taskgraph.queries.why import WhyQueries


class Queries(GraphListQueries, TaskQueries, WhyQueries, TimelineQueries):
    """Everything that can be asked of one installation."""
