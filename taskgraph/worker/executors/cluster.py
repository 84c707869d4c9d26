"""Requests to the API of a Kubernetes cluster: those of one run.

Where the cluster is, who asks, and how that is renewed (service accounts, kubeconfig with its plugins, client
certificates, proxies) is for `kubernetes_asyncio`: the client that is generated from Kubernetes' own description, on
the transport that is here anyway. Its 700 models of resources are left alone: what goes over the wire is JSON.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidSettings

if TYPE_CHECKING:
    import aiohttp
    from kubernetes_asyncio.client import ApiClient, Configuration

_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_KNOWN_SECONDS: Final = 300.0  # for which settings are used again: tokens of plugins end
_CONNECT_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 60.0
_FOR_NOW: Final = frozenset({408, 429, 500, 502, 503, 504})
_UNAUTHORIZED: Final = 401


class Refused(Exception):
    """The API answered, and not with what was asked for. kind: its reason in one word, such as AlreadyExists."""

    def __init__(self, status: int, kind: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"the cluster answered {status} {kind}: {message}".removesuffix(": "))
        self.status = status
        self.kind = kind
        self.message = message
        self.retry_after = retry_after

    @property
    def for_now(self) -> bool:
        return self.status in _FOR_NOW


class Unreachable(Exception):
    """No answer came, or not all of it."""


def why_none() -> str | None:
    """Why this process knows no cluster; None if it does."""
    if os.environ.get(_IN_CLUSTER) or any(Path(each).is_file() for each in _kubeconfigs()):
        return None
    return "this worker runs in no cluster, and finds no kubeconfig (KUBECONFIG, ~/.kube/config)"


def _kubeconfigs() -> list[str]:
    return os.environ.get("KUBECONFIG", os.path.expanduser("~/.kube/config")).split(os.pathsep)


class Clusters:
    """Where the cluster of this worker is, and who asks there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: tuple[Configuration, str] | None = None
        self._until = 0.0

    @asynccontextmanager
    async def open(self) -> "AsyncIterator[Cluster]":
        """A client for one run, whose connections end with it. Raises InvalidSettings, Unreachable."""
        from kubernetes_asyncio.client import ApiClient  # takes a third of a second

        configuration, namespace = await self._settings()
        async with ApiClient(configuration) as api:
            yield Cluster(self, api, namespace)

    async def renew(self, api: "ApiClient") -> None:
        self._known = None
        api.configuration, _ = await self._settings()

    async def _settings(self) -> "tuple[Configuration, str]":
        if self._known is None or self._clock.monotonic() >= self._until:
            self._known = await _load()
            self._until = self._clock.monotonic() + _KNOWN_SECONDS
        return self._known


async def _load() -> "tuple[Configuration, str]":
    """Who asks where, and the namespace that goes with it. Raises InvalidSettings."""
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration

    configuration = Configuration()
    try:
        if os.environ.get(_IN_CLUSTER):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            namespace = await asyncio.to_thread(_OWN_NAMESPACE.read_text)
        else:
            files = os.pathsep.join(_kubeconfigs())
            loader = await config.load_kube_config(files, client_configuration=configuration, persist_config=False)
            namespace = (loader.current_context or {"context": {}})["context"].get("namespace", "")
    except (config.ConfigException, OSError, ValueError, KeyError) as error:
        raise InvalidSettings(f"it is not known how to reach the cluster of this worker: {error}") from error
    return configuration, namespace.strip() or "default"


class Cluster:
    """The API server, for one run. namespace: the one that goes with the credentials."""

    def __init__(self, clusters: Clusters, api: "ApiClient", namespace: str) -> None:
        self._clusters = clusters
        self._api = api
        self.namespace = namespace

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        """Raises Refused, Unreachable."""
        async with self._answer(method, path, body, query, _ANSWER_SECONDS) as response:
            found: dict[str, Any] = json.loads(await response.read())
            return found

    async def events(self, path: str, seconds: int, **query: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """What becomes of what a list names, for so many seconds at most: the kind of each change, and the new state.

        Raises Refused, Unreachable.
        """
        query = {"watch": "true", "timeoutSeconds": str(seconds), **query}
        async with self._answer("GET", path, None, query, seconds + _ANSWER_SECONDS) as response:
            while line := await response.content.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _refusal(event["object"].get("code", 500), event["object"])
                yield event["type"], event["object"]

    async def chunks(self, path: str, **query: str) -> AsyncGenerator[bytes]:
        """A log, as it comes. Raises Refused, Unreachable."""
        async with self._answer("GET", path, None, query, None) as response:
            async for chunk in response.content.iter_any():
                yield chunk

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, body: Any, query: dict[str, str], seconds: float | None
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        import aiohttp

        try:
            response = await self._send(method, path, body, query, seconds)
            if response.status == _UNAUTHORIZED:  # a token that has just ended
                response.release()
                await self._clusters.renew(self._api)
                response = await self._send(method, path, body, query, seconds)
            async with response:
                if not 200 <= response.status < 300:
                    raise await _refused(response)
                yield response
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as error:
            raise Unreachable(f"the cluster cannot be reached: {error or type(error).__name__}") from error

    async def _send(
        self, method: str, path: str, body: Any, query: dict[str, str], seconds: float | None
    ) -> "aiohttp.ClientResponse":
        import aiohttp

        response: aiohttp.ClientResponse = await self._api.call_api(
            path,
            method,
            header_params={"Accept": "application/json, */*"},
            query_params=list(query.items()),
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS),
        )
        return response


async def _refused(response: "aiohttp.ClientResponse") -> Refused:
    text = (await response.read())[:2000].decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except ValueError:
        found = {"message": text}
    try:
        pause = float(response.headers.get("Retry-After", ""))
    except ValueError:
        pause = None
    return _refusal(response.status, found if isinstance(found, dict) else {}, response.reason or "", pause)


def _refusal(status: int, said: dict[str, Any], kind: str = "", pause: float | None = None) -> Refused:
    return Refused(status, said.get("reason") or kind, said.get("message") or "", pause)
