"""Errors at the door: exit codes, words, and JSON."""

import inspect

import pytest

from taskgraph.interfaces.cli import failures
from taskgraph.model import errors
from taskgraph.model.errors import (
    Conflict,
    DeletedGraph,
    IntegrityError,
    InvalidGraph,
    InvalidInput,
    InvalidMessage,
    InvalidSettings,
    NoGraph,
    NotFound,
    OutOfSight,
    Problem,
    Refused,
    StaleDelivery,
    StorageError,
    StorageUnavailable,
    TaskgraphError,
    TooLarge,
    Unclear,
)
from taskgraph.model.messages import UnknownVersion
from taskgraph.protocol.rows import NewerSchema

CODES = {
    InvalidInput("x"): 2,
    InvalidGraph([Problem("/a", "c", "m", "r")]): 2,
    InvalidMessage("x"): 2,
    InvalidSettings("x"): 2,
    TooLarge("x"): 2,
    NotFound("x"): 3,
    NoGraph("x"): 3,
    DeletedGraph("x", "a", "a-2"): 3,
    Refused("x"): 4,
    Conflict("x"): 4,
    StaleDelivery("x"): 4,
    OutOfSight("x"): 4,
    NewerSchema("x"): 4,
    UnknownVersion("x"): 4,
    StorageUnavailable("x"): 5,
    Unclear("x"): 5,
    StorageError("x"): 5,
    IntegrityError("x"): 70,
    failures.TimedOut("x"): 124,
    failures.Interrupted("x"): 130,
    TaskgraphError("x"): 4,
}


@pytest.mark.parametrize(("error", "code"), CODES.items(), ids=lambda each: type(each).__name__)
def test_every_error_has_its_exit_code(error: TaskgraphError, code: int) -> None:
    assert failures.exit_code(error) == code
    told = failures.error_object(error)["error"]
    assert told["exitCode"] == code
    assert told["code"]
    assert told["code"].isascii()


def test_no_error_is_left_out() -> None:
    known = {
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, TaskgraphError) and each.__module__ == errors.__name__
    }
    assert known <= {type(each) for each in CODES}


def test_nearest_names_are_told() -> None:
    assert failures.sentences(NotFound("there is no graph a", ["b", "c"])) == [
        "there is no graph a",
        "did you mean “b” or “c”?",
    ]
    assert failures.error_object(NotFound("x", ["b"]))["error"]["near"] == ["b"]


def test_the_endpoint_is_named_once() -> None:
    assert failures.sentences(StorageUnavailable("timed out", "http://h:1")) == [
        "the store at http://h:1 does not answer: timed out"
    ]
    assert failures.sentences(StorageUnavailable("http://h:1 cannot be reached", "http://h:1")) == [
        "http://h:1 cannot be reached"
    ]


def test_problems_with_and_without_a_line() -> None:
    error = InvalidGraph([Problem("/tasks/a", "c", "Wrong.", "Mend it.", 7), Problem("", "d", "Bad.", "")], "g.json")
    assert failures.problem_lines(error) == [
        ("g.json:7: /tasks/a", "Wrong.", "Mend it."),
        ("g.json", "Bad.", ""),
    ]
    told = failures.error_object(error)["error"]
    assert told["source"] == "g.json"
    assert told["problems"][0] == {
        "pointer": "/tasks/a",
        "code": "c",
        "message": "Wrong.",
        "remedy": "Mend it.",
        "line": 7,
        "source": None,
    }
