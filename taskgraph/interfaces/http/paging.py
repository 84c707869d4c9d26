"""Pages: where the next one begins, as an opaque token that goes with its filters alone, and the link to it."""

import base64
import binascii
import hashlib
import json
import re
from urllib.parse import urlencode

from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem

PAGE = "page"


def after(asked: Asked, pattern: str) -> str:
    """The key behind which the page begins that is asked for, "" for the first. Raises Problem for a foreign token."""
    given = asked.query.get(PAGE)
    if not given:
        return ""
    try:
        filters, key = json.loads(base64.urlsafe_b64decode(given.encode("ascii") + b"=="))
    except (ValueError, binascii.Error, TypeError):
        filters = key = None
    if filters != _filters(asked) or not isinstance(key, str) or re.fullmatch(pattern, key) is None:
        raise Problem(
            400, "invalid-page", "the page is none of this list with these filters: take it from the page before"
        )
    return key


def links(asked: Asked, key: str) -> dict[str, str]:
    """The header with the address of the next page; nothing where there is none ("")."""
    if not key:
        return {}
    given = [(name, text) for name, text in asked.request.query_params.multi_items() if name != PAGE]
    return {"Link": f'<{asked.request.url.path}?{urlencode([*given, (PAGE, token(asked, key))])}>; rel="next"'}


def token(asked: Asked, key: str) -> str:
    """Of the page behind a key, of the list that is asked for."""
    return base64.urlsafe_b64encode(json.dumps([_filters(asked), key]).encode()).rstrip(b"=").decode()


def _filters(asked: Asked) -> str:
    given = {name: value for name, value in asked.query.items() if name not in (PAGE, "limit")}
    text = json.dumps([asked.request.url.path, given], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
