"""Which program a file is of, where its name or what it begins with is certain."""

import re
from collections.abc import Callable
from typing import Final

from taskgraph.documents.importers import Format

_LOOKED_AT: Final = 200_000  # characters
_BY_NAME: Final[tuple[tuple[str, Format], ...]] = (
    (r"(.*/)?[^/]+\.ninja", "ninja"),
    (r"(.*/)?[^/]+\.dag", "dagman"),
    (r"(.*/)?\.github/workflows/[^/]+\.ya?ml", "github-actions"),
    (r"(.*/)?[^/]*\.?gitlab-ci\.ya?ml", "gitlab-ci"),
    (r"(.*/)?(full-)?task-graph\.json", "taskgraph"),
    (r"(.*/)?(GNUm|m|M)akefile", "make"),
)
_AIRFLOW_JSON: Final = re.compile(r'\s*\{\s*"(__version|dag|client_defaults)"')
_BY_CONTENT: Final[tuple[tuple[Callable[[str], object], Format], ...]] = (
    (lambda text: "# Make data base, printed on" in text, "make"),
    (re.compile(r"^\s*digraph snakemake_dag\b", re.MULTILINE).search, "snakemake"),
    (re.compile(r"^(from|import) airflow\b", re.MULTILINE).search, "airflow"),
    (lambda text: _AIRFLOW_JSON.match(text) and '"fileloc"' in text, "airflow"),
    (re.compile(r"^apiVersion:\s*[\"']?argoproj\.io/", re.MULTILINE).search, "argo"),
    (lambda text: text.lstrip().startswith("{") and '"schemaVersion"' in text and '"workflow"' in text, "wfformat"),
    (lambda text: _top(text, "jobs") and _top(text, "on"), "github-actions"),
    (lambda text: _top(text, "stages") and "script:" in text, "gitlab-ci"),
)


def _top(text: str, key: str) -> bool:
    return re.search(rf"^[\"']?{key}[\"']?:", text, re.MULTILINE) is not None


def guessed(name: str, data: bytes) -> Format | None:
    """The format, or None where it has to be named."""
    name = name.removesuffix(".gz")
    for pattern, found in _BY_NAME:
        if re.fullmatch(pattern, name):
            return found
    text = data[:_LOOKED_AT].decode("utf-8", "replace")
    return next((found for fits, found in _BY_CONTENT if fits(text)), None)
