"""Everything that can be asked of one installation, in one object.

What this room is for: the questions of its neighbours together. None of them writes, sends, or formats for a terminal.
"""

from taskgraph.queries.journal import JournalQueries
from taskgraph.queries.listing import TaskQueries
from taskgraph.queries.why import WhyQueries


class Queries(TaskQueries, WhyQueries, JournalQueries):
    """Everything that can be asked of one installation."""
