"""Which queue a task goes to, and what a worker must have for it."""

import re

import pytest

from taskgraph.model import limits
from taskgraph.model.placement import (
    Offer,
    host_target,
    is_host,
    is_worker_label,
    labels_text,
    target_of,
    worker_options,
)


@pytest.mark.parametrize(
    ("task", "target"),
    [
        ({}, "default"),
        ({"target": "gpu"}, "gpu"),
        ({"host": "build7"}, "host-build7"),
        ({"host": "Build-7"}, "host-build-7"),
    ],
)
def test_a_task_goes_to_its_target_or_to_its_host(task: dict[str, str], target: str):
    assert target_of(task) == target


def test_every_host_has_a_legal_target_of_its_own():
    hosts = ["a", "a.b", "a-b", "a_b", "a..b", "a--b", "a-", "x" * 63, "x" * 62 + "y", "x" * 34 + "-b", "1.2.3.4"]
    targets = [host_target(host) for host in hosts]
    assert all(re.fullmatch(limits.TARGET_PATTERN, each) for each in targets), targets
    assert len(set(targets)) == len(hosts)
    assert host_target("LAB.Example.COM") == host_target("lab.example.com"), "names of hosts know no case"


@pytest.mark.parametrize("text", ["", "-a", "a b", "a\n", "é", "x" * 64, 7, None])
def test_what_is_neither_host_nor_label(text: object):
    assert not is_host(text)
    assert not is_worker_label(text)


def test_a_worker_takes_what_asks_for_no_more_than_it_has():
    offer = Offer(frozenset({"gpu", "ssd"}), "Build-7")
    for fits in ({}, {"workerLabels": []}, {"workerLabels": ["gpu"]}, {"host": "build-7", "workerLabels": ["ssd"]}):
        assert offer.why_not(fits) is None
    assert offer.why_not({"workerLabels": ["cuda", "gpu", "x"]}) == "this worker lacks the labels cuda and x"
    assert offer.why_not({"host": "build-8"}) == "the task is for the host build-8, and this worker serves Build-7"
    assert Offer().why_not({"host": "h"}) == "the task is for the host h, and this worker serves no host by name"


def test_words():
    assert labels_text(["a"]) == "the label a"
    assert labels_text(["a", "b", "c"]) == "the labels a, b and c"
    assert worker_options("gpu", {"workerLabels": ["cuda"]}) == "--target gpu --label cuda"
    assert worker_options("host-h", {"host": "h"}) == "--host h"
    assert worker_options("default", {}) == "--target default"
