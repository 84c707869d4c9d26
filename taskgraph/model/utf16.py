"""Lengths of texts as the table service counts them: in units of UTF-16."""

import re
from typing import Final

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def utf16_units(text: str) -> int:
    """Length of a text in UTF-16 units. A lone surrogate, which no store can keep, counts as one."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def has_surrogate(text: str) -> bool:
    """Whether a text holds a lone surrogate, which no UTF-8 can carry."""
    return not text.isascii() and _SURROGATE.search(text) is not None
