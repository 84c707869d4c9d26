"""In place of `rpds` in a tab, for which it is not built: as much of its maps as `jsonschema` and `referencing` use.

They are copied where the library shares, which takes longer and gives the same.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class HashTrieMap(dict[Any, Any]):
    """A mapping that is never changed."""

    @classmethod
    def convert(cls, value: Mapping[Any, Any] | Iterable[Any]) -> "HashTrieMap":
        return value if isinstance(value, cls) else cls(value)

    def insert(self, key: Any, value: Any) -> "HashTrieMap":
        return HashTrieMap({**self, key: value})

    def remove(self, key: Any) -> "HashTrieMap":
        """Raises KeyError."""
        left = HashTrieMap(self)
        del left[key]
        return left

    def update(self, *others: Any, **named: Any) -> "HashTrieMap":  # type: ignore[override]
        made = dict(self)
        for other in others:
            made.update(other)
        return HashTrieMap({**made, **named})


class HashTrieSet(frozenset[Any]):
    """A set that is never changed."""

    def insert(self, value: Any) -> "HashTrieSet":
        return HashTrieSet({*self, value})

    def remove(self, value: Any) -> "HashTrieSet":
        return HashTrieSet(self - {value})

    def update(self, *others: Iterable[Any]) -> "HashTrieSet":
        return HashTrieSet(self.union(*others))


class List:
    """A list whose front grows."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._values = tuple(values)

    def push_front(self, value: Any) -> "List":
        return List((value, *self._values))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def install() -> None:
    """Have `import rpds` give this module."""
    sys.modules["rpds"] = sys.modules[__name__]
