"""Where the store is: what is said of a text that names none."""

from pathlib import Path

import pytest

from taskgraph.interfaces.settings import STORE_VARIABLE, read_settings
from taskgraph.model.errors import InvalidSettings


def refusal(text: str) -> str:
    with pytest.raises(InvalidSettings) as raised:
        read_settings(None, {STORE_VARIABLE: text}, cwd=Path("/"))
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("foo.db", "sqlite:///foo.db"),
        ("data/store.sqlite", "sqlite:///data/store.sqlite"),
        ("/srv/tg/foo.db", "sqlite:////srv/tg/foo.db"),
    ],
)
def test_a_path_is_repeated_with_what_was_meant(text: str, meant: str) -> None:
    said = refusal(text)
    assert said.startswith(f"TASKGRAPH_STORE is no store (“{text}”): write sqlite:///PATH, ")
    assert said.endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    "text", ["nonsense", "postgres://host/name", "http://host/x.db", "sqlite:foo.db", "sqlite://x"]
)
def test_other_texts_are_repeated(text: str) -> None:
    said = refusal(text)
    assert f"(“{text}”)" in said
    assert "did you mean" not in said


@pytest.mark.parametrize(
    "text",
    [
        "AcountName=acct;AccountKey=c2VjcmV0",
        "c2VjcmV0" * 10 + "c2VjcmU=",
        "c2VjcmV0" * 10,
        "https://acct.table.core.windows.net/?sv=2024-01-01&sig=c2VjcmV0",
        "https://user:c2VjcmV0@host/path.db",
        "AccountKey c2VjcmV0c2VjcmV0c2VjcmV0c2Vj.db",
    ],
)
def test_what_may_hold_a_key_is_not_repeated(text: str) -> None:
    said = refusal(text)
    assert "c2VjcmV0" not in said
    assert said.startswith("TASKGRAPH_STORE is no store: write sqlite:///PATH, ")
