"""Tools over standard input and output, by the SDK of the Model Context Protocol."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from taskgraph import __version__
from taskgraph.interfaces.app import App
from taskgraph.interfaces.http import asgi
from taskgraph.interfaces.http.gate import Gate
from taskgraph.interfaces.http.in_process import InProcess
from taskgraph.interfaces.mcp.tools import TOOLS, Tool
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.model.errors import InvalidInput
from taskgraph.model.roles import Role

ANSWER_CHARS_MAX: Final = 100_000
"""Of one answer: more would fill what an agent can keep in mind."""

_INSTRUCTIONS: Final = (
    "taskgraph runs graphs of tasks. Look with list_graphs, get_graph, why_graph and why_task. "
    "To change a graph, call plan_change, look at what it would do, and call apply_change with the same change and the "
    "plan's digest; if it is refused as stale, look at the new plan before you apply that."
)


async def serve(app: App, *, graphs: Sequence[str] = (), applies: bool = False) -> None:
    """Answer an agent until it closes standard input.

    graphs: patterns of the ids that it may see, none for all. applies: whether it may change them.
    """
    async with AsyncExitStack() as stack:
        door = _Door(app, graphs, stack)
        tools = {name: each for name, each in TOOLS.items() if applies or not each.applies}

        async def list_tools(context: Context, given: types.PaginatedRequestParams | None) -> types.ListToolsResult:
            return types.ListToolsResult(tools=[_described(each) for each in tools.values()])

        async def call_tool(context: Context, given: types.CallToolRequestParams) -> types.CallToolResult:
            tool = tools.get(given.name)
            if tool is None:
                return _said(f"there is no tool {given.name}; there are {', '.join(tools)}", wrong=True)
            return await door.call(_name_of(context), tool, given.arguments or {})

        server: Server[Any] = Server(
            "taskgraph",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
        )
        reading, writing = await stack.enter_async_context(stdio_server())
        await server.run(reading, writing, server.create_initialization_options())


Context = ServerRequestContext[Any, Any]


def _name_of(context: Context) -> str:
    """Of the agent, for the journal."""
    params = context.session.client_params
    return f"agent {params.client_info.name}" if params is not None else "an agent"


def _described(tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(read_only_hint=not tool.applies, destructive_hint=tool.applies)
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.input_schema(), annotations=hints)


class _Door:
    def __init__(self, app: App, graphs: Sequence[str], stack: AsyncExitStack) -> None:
        self._app = app
        self._graphs = tuple(graphs)
        self._stack = stack
        self._apis: dict[str, InProcess] = {}

    async def call(self, name: str, tool: Tool, arguments: dict[str, Any]) -> types.CallToolResult:
        try:
            asked = tool.request(arguments)
        except InvalidInput as error:
            return _said(str(error), wrong=True)
        status, answer = await (await self._api(name)).ask(asked.method, asked.path, asked.body, asked.headers)
        text = answer.decode("utf-8", "replace")
        if len(text) > ANSWER_CHARS_MAX:
            few = ", ".join(each.name for each in tool.query) or "another tool"
            return _said(f"the answer has {len(text):,} characters; ask for less of it, by {few}", wrong=True)
        return _said(text, wrong=status >= 400)

    async def _api(self, name: str) -> InProcess:
        if name not in self._apis:
            gate = Gate(self._app, tokenless=Token(name, Role.OPERATOR, self._graphs), hosts=None)
            api, _ = await self._stack.enter_async_context(asgi.opened(self._app, gate, streams=False))
            self._apis[name] = InProcess(api)
        return self._apis[name]


def _said(text: str, *, wrong: bool) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=wrong)
