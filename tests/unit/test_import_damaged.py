"""Whatever becomes of a file of another program, an importer says what is wrong, or takes it."""

import json
from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.importers import Format, import_graph
from taskgraph.model.errors import InvalidGraph
from tests.unit import test_import_builds as builds
from tests.unit import test_import_pipelines as pipelines
from tests.unit import test_import_workflows as workflows

DATA_BASE: Final = """\
# Make data base, printed on Thu
# Variables

# makefile (from 'Makefile', line 1)
CC = cc $(FLAGS)
.DEFAULT_GOAL := all

# Files

all: CC := gcc
all: app | out
#  Phony target (prerequisite of .PHONY).

app: a.o
#  recipe to execute (from 'Makefile', line 3):
\t@$(CC) \\
\t$^ ${X}

# Not a target:
a.o: a.c
# automatic
# ^ := a.c
#  recipe to execute (built-in):
\t$(CC) -c $<

out:
# files hash-table stats:
"""
TEXTS: Final[tuple[tuple[Format, str], ...]] = (
    ("ninja", builds.NINJA),
    ("make", DATA_BASE),
    ("github-actions", pipelines.ACTIONS),
    ("gitlab-ci", pipelines.GITLAB),
    ("dagman", workflows.DAG),
    ("snakemake", workflows.SNAKEMAKE),
    ("argo", workflows.ARGO),
    ("airflow", workflows.AIRFLOW),
    ("airflow", json.dumps(workflows.serialized())),
)
FILES: Final[Mapping[str, str]] = {"ci/more.yml": pipelines.MORE}


def test_the_data_base_of_make_is_one_that_is_read():
    graph = import_graph(DATA_BASE.encode(), "make", commands=True)
    assert [*graph.document.tasks] == ["all", "app", "a.o", "out"]


@pytest.mark.parametrize(("format_", "text"), TEXTS, ids=[format_ for format_, _ in TEXTS])
@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_no_damage_breaks_an_importer(format_: Format, text: str, data: st.DataObject):
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 40)))
        other = data.draw(st.integers(0, len(text)))
        put = data.draw(st.sampled_from(["", text[other : other + 30], *'$\n "[{:é\t', "$("]))
        text = text[:begin] + put + text[end:]
    try:
        graph = import_graph(text.encode(), format_, beside=FILES.get, commands=format_ in ("ninja", "make"))
    except InvalidGraph as error:
        assert error.problems[0].message  # noqa: PT017 - a file may as well be good
    else:
        assert graph.document.tasks
