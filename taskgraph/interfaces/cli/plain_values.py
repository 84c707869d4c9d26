"""Commands and groups whose plain values are taken as they were typed, and options that were not typed as declared.

typer hands every value to pydantic, whose import alone takes a third of what a short command does. A text where a
text is wanted needs none of it; a number, a choice or what is wrong goes there as ever. Of thirty options one or two
are typed: the default of another is its value, without a look at what it might have been given.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

_GIVEN_OTHERWISE: Final = ("envvar", "prompt", "required", "callback", "is_eager")


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


def _untyped(param: Any) -> Callable[[Any, Mapping[str, Any], list[str]], tuple[Any, list[str]]]:
    """What typer handles one parameter by: its own way where it was typed, or may be given in another way."""
    typers_own, name = param.handle_parse_result, param.name
    value = param.default
    plain = value is None or type(value) in (bool, int, float, str)
    if value is None and (param.multiple or param.nargs != 1):
        value = ()

    def handle(ctx: Any, opts: Mapping[str, Any], args: list[str]) -> tuple[Any, list[str]]:
        if opts.get(name) is not None or ctx.default_map or ctx.auto_envvar_prefix:
            return typers_own(ctx, opts, args)  # type: ignore[no-any-return]
        ctx.params[name] = value
        return value, args

    return handle if plain and not any(getattr(param, each, None) for each in _GIVEN_OTHERWISE) else typers_own


def _take_plainly(command: Any, ctx: Any) -> None:
    for param in command.get_params(ctx):
        made = "get_runtime_param" in vars(param)
        if not made and hasattr(param, "get_runtime_param"):  # releases of typer before pydantic have none
            param.get_runtime_param = lambda own=_PlainFirst(param): own
            param.handle_parse_result = _untyped(param)


class PlainCommand(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_plainly(self, ctx)
        return super().parse_args(ctx, args)


class PlainGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_plainly(self, ctx)
        return super().parse_args(ctx, args)
