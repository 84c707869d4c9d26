"""Commands and groups whose plain values are taken as they were typed.

typer hands every value to pydantic, whose import alone takes a third of what a short command does. A text where a
text is wanted needs none of it; a number, a choice or what is wrong goes there as ever.
"""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _PlainFirst:
    """Stands for what typer converts the values of one parameter by; typer's own is made when it is needed."""

    def __init__(self, param: Any) -> None:
        self._typers_own = param.get_runtime_param

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        wanted = param.type_descriptor.annotation
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if many and wanted == list[str] and all(type(each) is str for each in value):
            return list(value)
        if not many and type(value) is wanted and wanted in (str, int, float):
            return value
        return self._typers_own().coerce(value, param=param, ctx=ctx)


def _take_plainly(command: Any, ctx: Any) -> None:
    for param in command.get_params(ctx):
        made = "get_runtime_param" in vars(param)
        if not made and hasattr(param, "get_runtime_param"):  # releases of typer before pydantic have none
            param.get_runtime_param = lambda own=_PlainFirst(param): own


class PlainCommand(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_plainly(self, ctx)
        return super().parse_args(ctx, args)


class PlainGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_plainly(self, ctx)
        return super().parse_args(ctx, args)
