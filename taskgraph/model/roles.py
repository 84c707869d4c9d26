"""What a token of the HTTP API may do."""

from enum import StrEnum


class Role(StrEnum):
    """Each of the first four may all that those before it may; a worker only works."""

    READER = "reader"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    WORKER = "worker"

    def may(self, needed: "Role") -> bool:
        if Role.WORKER in (self, needed):
            return self is needed
        order = list(Role)
        return order.index(self) >= order.index(needed)
