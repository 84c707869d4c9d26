"""A document as YAML that every reader of YAML reads alike, of version 1.1 or 1.2."""

import re
from typing import Any, Final

import yaml

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
_WIDTH: Final = 1 << 30  # no line is folded
_OTHER_VALUES: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
"""What a reader of one version takes for something else than a string, in any case of letters."""


def yaml_of(document: dict[str, Any]) -> str:
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """What occurs twice is written twice: documents have no anchors."""
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"'
    if _PLAIN.fullmatch(text) and text.lower() not in _OTHER_VALUES:
        style = ""
    elif "\n" in text and not text[0].isspace() and text.isascii():
        style = "|"  # the library writes it in quotes where a block cannot hold it
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)
