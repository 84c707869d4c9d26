"""Requests that are right, and then spoilt at random places: whatever comes, the answer is no bug of the server.

    python -m tests.http.mutated --count 100000 [--seed N] [--store sqlite:///… | CONNECTION]

They go to the ASGI app in this process, without a socket between. Each answer must be one that the description of the
API names, be as its shape says, and never be a 500.
"""

import argparse
import asyncio
import copy
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.applications import Starlette

from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.http.asgi import opened
from taskgraph.interfaces.http.asked import ANONYMOUS
from taskgraph.interfaces.http.gate import Gate
from taskgraph.interfaces.http.routes import Parameter, Route
from taskgraph.interfaces.http.table import PATH, ROUTES, description
from taskgraph.interfaces.settings import read_settings
from taskgraph.model import schemas
from taskgraph.model.flag import Flag
from tests.http.serving import shape_errors

BODIES: Final[Mapping[str, Sequence[Any]]] = {
    **{
        name: schemas.schema(name)["examples"]
        for name in ("task-graph", "extension", "edit", "change", "changes", "schedule")
    },
    "reads.addresses": schemas.schema("reads")["examples"],
    **{
        f"work.{name}": each["examples"] for name, each in schemas.schema("work")["$defs"].items() if "examples" in each
    },
}
ODD: Final[Sequence[Any]] = (
    *(None, True, 0, -1, 1 << 70, 1e308, "", " ", "x" * 300, "\x00", "\ud800", "é", "../..", "%2F", "@last", "a/b"),
    *([], {}, [[]], {"": ""}, ["a", "a"], {"$param": "x"}, {"$result": "a"}, "2999-01-01T00:00:00Z"),
)
HEADERS: Final[Mapping[str, Sequence[str]]] = {
    "accept": ("text/event-stream", "*/*", "text/html"),
    "accept-encoding": ("gzip", "br"),
    "content-encoding": ("gzip", "identity", "br"),
    "content-type": ("application/json", "application/yaml", "application/toml", "text/html", "", ";"),
    "idempotency-key": ("k", "k k", "", "é"),
    "if-match": ('"x"', "*", ",", ""),
    "if-none-match": ('"x"', "*", ","),
    "last-event-id": ("1.0", "x", "99999999999"),
    "prefer": ("wait=0", "wait=x", "wait", ",", "wait=1"),
    "range": ("bytes=0-1", "bytes=-1", "bytes=5-2", "bytes=", "x"),
}
HOST: Final = {"host": "127.0.0.1"}
GRAPHS: Final = ("build", "gone", "g-1")


@dataclass(frozen=True, slots=True)
class Sent:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Got:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


async def call(api: Starlette, sent: Sent) -> Got:
    """The answer; of a stream only its beginning."""
    got, gone = Got(), Flag()
    pieces = [{"type": "http.request", "body": sent.body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if pieces:
            return pieces.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            got.status = message["status"]
            got.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            if got.headers.get("content-type", "").startswith("text/event-stream"):
                gone.set()
        elif message["type"] == "http.response.body":
            got.body += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": sent.method,
        "scheme": "http",
        "path": sent.path,
        "raw_path": quote(sent.path).encode(),
        "query_string": sent.query.encode("utf-8", "replace"),
        "root_path": "",
        "headers": [(name.encode(), value.encode("utf-8")) for name, value in sent.headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    async with asyncio.timeout(60):
        await api(scope, receive, send)
    return got


class Mutator:
    """Makes requests by one stream of chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.file = b""

    def some(self, share: float) -> bool:
        return self.random.random() < share

    def request(self) -> tuple[Route, Sent]:
        route = self.random.choice(ROUTES)
        path = "/api/v1" + route.path
        for name in route.path_names:
            path = path.replace(f"{{{name}}}", self.part(name).replace("/", ""))
        query = [(each.name, self.value(each)) for each in route.query if self.some(0.4)]
        if route.free and self.some(0.3):
            query.append((f"{route.free}{self.random.choice(('x', 'event', 'goal', 'a:', ''))}", str(self.odd())))
        if self.some(0.05):
            query.append((str(self.odd()), str(self.odd())))
        headers = {"host": "127.0.0.1", "content-type": "application/json"}
        headers |= {
            name: self.random.choice(values)
            for name, values in HEADERS.items()
            if self.some(0.2 if name == "if-match" else 0.05)
        }
        method = route.method if self.some(0.97) else self.random.choice(("GET", "HEAD", "POST", "PUT", "OPTIONS", "X"))
        return route, Sent(method, path, urlencode(query, errors="replace"), headers, self.body(route))

    def part(self, name: str) -> str:
        if self.some(0.15):
            return str(self.odd())[:100].encode("utf-8", "replace").decode() or "x"  # as a server reads a path
        match name:
            case "graph":
                return self.random.choice(GRAPHS)
            case "target" if self.some(0.5):
                return "default"
            case "claim":
                return f"{self.random.choice(GRAPHS)}.JmOc96TiRZ2-1RYP9iJbFg.{self.random.randrange(2)}.c"
            case "run":
                return str(self.random.randrange(3))
            case _:
                return self.random.choice(("a", "compile circle", "report", "x", PATH[name].name))

    def value(self, one: Parameter) -> str:
        schema = one.schema
        if self.some(0.2):
            return str(self.odd())
        if "enum" in schema:
            return str(self.random.choice(schema["enum"]))
        if schema["type"] in ("integer", "number"):
            low, high = schema["minimum"], min(schema.get("maximum", 1_000), 50 if one.name != "wait" else 0.01)
            return str(self.random.randint(low, max(low, int(high))))
        return "1" if schema["type"] == "boolean" else self.random.choice(("a", "1.0", "3", "build", "nightly*"))

    def odd(self) -> Any:
        return copy.deepcopy(self.random.choice(ODD))

    def body(self, route: Route) -> bytes:
        if not route.body:
            return b""
        if "/" in route.body:
            return self.broken(self.file)
        value = json.loads(json.dumps(self.random.choice(BODIES.get(route.body, BODIES["task-graph"]))))
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 4))):
            value = self.spoilt(value)
        data = json.dumps(value).encode("utf-8", "surrogatepass")
        return self.broken(data) if self.some(0.1) else data

    def broken(self, data: bytes) -> bytes:
        place = self.random.randrange(len(data) + 1)
        return data[:place] + self.random.choice((b"", b"\xff", b"\x00", b"[", b'"', b"1e999")) + data[place + 1 :]

    def spoilt(self, value: Any) -> Any:
        """With one place in it that is odd, or gone."""
        if isinstance(value, dict) and value and self.some(0.85):
            key = self.random.choice(list(value))
            if self.some(0.15):
                del value[key]
            elif self.some(0.1):
                value[f"{key}x"] = value.pop(key)
            else:
                value[key] = self.spoilt(value[key])
            return value
        if isinstance(value, list) and value and self.some(0.7):
            place = self.random.randrange(len(value))
            value[place] = self.spoilt(value[place])
            return value
        return self.odd()


def trouble(route: Route, sent: Sent, got: Got) -> str:
    """What is wrong with an answer, "" for nothing."""
    if got.status == 500 or not got.status:
        return f"status {got.status}"
    if sent.method != route.method:
        return ""
    named = description()["paths"][route.whole_path][route.method.lower()]["responses"]
    if str(got.status) not in named and got.status not in (206, 304, 404):
        return f"status {got.status} is not described"
    kind = got.headers.get("content-type", "")
    if got.status >= 400:
        return "" if kind == "application/problem+json" else f"a problem of kind {kind}"
    if kind == "application/json" and "/" not in route.answer and "content-encoding" not in got.headers:
        return "; ".join(shape_errors(route.answer, json.loads(got.body)))
    return ""


async def play(app: App, count: int, seed: int, say: bool = False) -> tuple[Counter[int], list[str]]:
    """Answers by status, and what is wrong."""
    found: Counter[int] = Counter()
    wrong: list[str] = []
    mutator = Mutator(seed)
    async with opened(app, Gate(app, tokenless=ANONYMOUS)) as (api, _):
        for name in ("build", "gone"):
            body = json.dumps(BODIES["task-graph"][0]).encode()
            await call(api, Sent("PUT", f"/api/v1/graphs/{name}", "", HOST, body))
        mutator.file = (await call(api, Sent("GET", "/api/v1/graphs/build/archive", "", HOST, b""))).body
        for number in range(count):
            route, sent = mutator.request()
            got = await call(api, sent)
            found[got.status] += 1
            if problem := trouble(route, sent, got):
                wrong.append(f"{number}: {problem}: {sent} -> {got.body[:300]!r}")
            if say and number % 10_000 == 9_999:
                print(f"{number + 1:,} requests, {len(wrong)} troubles, {dict(sorted(found.items()))}", flush=True)
    return found, wrong


async def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", default="")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings(options.store or f"sqlite:///{folder}/store.db", {}, cwd=Path(folder))
        async with open_app(settings) as app:
            found, wrong = await play(app, options.count, options.seed, say=True)
    print("\n".join(wrong[:20]))
    print(
        f"{sum(found.values()):,} requests (seed {options.seed}), {len(wrong)} troubles; {dict(sorted(found.items()))}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
