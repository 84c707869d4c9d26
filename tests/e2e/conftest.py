"""Commands that go over their store, or over a server in front of it."""

from tests.http.typed import door

__all__ = ["door"]
