"""Checks the definition of a tool, reads the options that its class states, and explains mistakes there."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from forge.core.arguments.call_style import takes
from forge.core.arguments.names import find_close_names, near
from forge.core.context import Scope
from forge.core.errors import DefinitionError
from forge.core.result import Attachment, ToolResult
from forge.core.spec import ToolOptions, ToolSpec, ToolTraits, collect_values

_DEFINITION = ("description", "parameters", "execute")
_SCOPE = frozenset({"context", "ctx", "init_context", "init_ctx", "scope"})
_RESULT = frozenset({"title", "output", "metadata", "attachments"})


def check_function(function: Any, tool_class: type) -> None:
    """Raises `DefinitionError` for an object that no tool can be made of."""
    if isinstance(function, type) and issubclass(function, tool_class):
        raise DefinitionError(f"{function.__name__} is a tool class; pass an instance: {function.__name__}()")
    if isinstance(function, type):
        raise DefinitionError(
            f"{function.__name__} is a class, not a tool; pass a typed function, or an instance of a Tool class"
        )
    if isinstance(function, tool_class):
        raise DefinitionError(
            f"{function!r} is a tool already, so it takes no further options; set them in its class, or as its spec:"
            " made.spec = made.spec.changed(confirm=True)"
        )
    if not callable(function):
        shown = repr(function) if isinstance(function, str | int | float) else f"a {type(function).__name__} object"
        raise DefinitionError(
            f"{shown[:80]} is not a tool and not callable; pass a typed function, or an instance of a Tool class"
        )


def check_listed(tools: Any) -> None:
    """Raises `DefinitionError` for one tool where a list of tools belongs."""
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        shown = getattr(tools, "__name__", "") or repr(tools)
        raise DefinitionError(f"{shown[:80]} is not a list of tools; put tools in brackets: tools=[…]")


_PREFIX = r"(?!.*__)[A-Za-z]([A-Za-z0-9_-]{0,30}[A-Za-z0-9-])?"


def add_prefix(function: str, prefix: str, name: str) -> str:
    """Returns the name of one's own tool in a set: `prefix_name`. Two underscores are for tools of others.

    Raises `DefinitionError` for an unusable prefix.
    """
    if not prefix:
        return name
    if not isinstance(prefix, str) or not re.fullmatch(_PREFIX, prefix):
        example = re.sub("__+", "_", re.sub(r"[^A-Za-z0-9_-]", "", str(prefix))).lstrip("0123456789_-")[:32].rstrip("_")
        example = example or "shop"
        raise DefinitionError(
            f"{function}(prefix={prefix!r:.80}): a prefix has letters, digits, - and single _; write "
            f"prefix={example!r}, which names tools {example}_NAME"
        )
    return f"{prefix}_{name}"


class NameFilter(NamedTuple):
    """Selects the tools of a set by patterns of their own names, without the prefix."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def read(cls, function: str, include: Collection[str], exclude: Collection[str]) -> NameFilter:
        """Returns the filter. Raises `DefinitionError` for one text where a list belongs."""
        for option, given in (("include", include), ("exclude", exclude)):
            if isinstance(given, str):
                write = f"{option}=[{given!r:.80}]"
                raise DefinitionError(f"{function}({option}={given!r:.80}): write a list, as in {write}")
        return cls(tuple(include), tuple(exclude))

    def selects(self, *names: str) -> bool:
        """Returns whether a tool is selected, which is known by any of these names."""
        if self.include and not _match_any(names, self.include):
            return False
        return not _match_any(names, self.exclude)

    def find_unmatched(self, names: Collection[str]) -> list[str]:
        """Returns the patterns that match no tool of the set."""
        return [one for one in (*self.include, *self.exclude) if not _match_any(names, (one,))]

    def find_problems(self, names: Collection[str]) -> list[str]:
        """Returns the patterns that match no tool of the set, each in words for a person."""
        return [self.explain(pattern, names) for pattern in self.find_unmatched(names)]

    def explain(self, pattern: str, names: Collection[str]) -> str:
        """Says that a pattern matches no tool, and what it may mean."""
        hints = near(pattern, names, 1)
        hint = f"did you mean {hints[0]!r}?" if hints else f"the names are {', '.join(sorted(names)[:8]) or 'none'}"
        return f"{'include' if pattern in self.include else 'exclude'}: {pattern!r} matches no tool; {hint}"


def _match_any(names: Collection[str], patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def check_settings(function: str, settings: Mapping[str, Any], known: type) -> None:
    """Raises `TypeError` for a keyword that the `TypedDict` of a function's further parameters does not have."""
    for key in settings.keys() - known.__annotations__.keys():
        hint = near(key, known.__annotations__, 1)
        advice = f". Did you mean {hint[0]!r}?" if hint else ""
        raise TypeError(f"{function}() got an unexpected keyword argument {key!r}{advice}")


def check_initialiser(name: str, initialise: Any, tool_class: type) -> None:
    """Raises `DefinitionError` for an object that cannot be called to build a tool."""
    if isinstance(initialise, tool_class):
        raise DefinitionError(f"Tool.define({name!r}, …): {initialise!r} is already a tool; use it directly")
    if not callable(initialise):
        raise DefinitionError(
            f"Tool.define({name!r}, …): pass a function that builds the tool, or a dictionary of description, "
            f"parameters and execute, not {type(initialise).__name__}"
        )
    if find_scope_parameter(initialise) is None:
        raise DefinitionError(
            f"Tool.define({name!r}, …): the function builds the tool and is called without arguments, or with one "
            "`scope: Scope`; to make a tool of the function itself, use tool(...) or {'execute': function}"
        )


def find_scope_parameter(initialise: Callable[..., Any]) -> str | None:
    """Returns the parameter of an initialiser that takes the `Scope`: its only needed one, typed so or named so.

    "" for an initialiser that is called without arguments; None for a function that cannot be one.
    """
    try:
        parameters = inspect.signature(initialise).parameters.values()
    except ValueError:  # some functions written in C do not say what they take
        return ""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one for one in parameters if one.default is one.empty and one.kind not in variable]
    if not needed:
        return ""
    first = needed[0]
    written = first.annotation
    if isinstance(written, str):
        is_scope = written.partition("|")[0].strip().rpartition(".")[2] == Scope.__name__
    else:
        is_scope = first.name in _SCOPE if written is first.empty else takes(written, Scope)
    return first.name if len(needed) == 1 and first.kind is not first.KEYWORD_ONLY and is_scope else None


def check_definition(name: str, definition: Mapping[str, Any]) -> None:
    """Raises `DefinitionError` for a dictionary that does not define the tool."""
    for key in definition:
        if key not in _DEFINITION and key not in OPTIONS:
            hint = near(str(key), [*_DEFINITION, *sorted(OPTIONS)], 1)
            advice = f"did you mean {hint[0]!r}?" if hint else f"known entries: {', '.join(_DEFINITION)} and options"
            raise DefinitionError(f"tool {name!r}: unknown entry {key!r} in its definition; {advice}")
    if not callable(definition.get("execute")):
        raise DefinitionError(f"tool {name!r}: its definition needs `execute`, the function that does the work")
    if definition.get("name", name) != name:
        raise DefinitionError(f"tool {name!r}: its definition has another name, {definition['name']!r}; keep one")
    if "parameters" not in definition or definition.get("description_file"):
        return  # they are those of `execute`, or the description is in a file
    description = definition.get("description")
    if not isinstance(description, str) or not description.strip():
        raise DefinitionError(f"tool {name!r}: its definition needs a `description`, which the model reads")


def merge_options(who: str, stated: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Merges the options of a class's attributes and its bases; either may ask for confirmation."""
    for key in options.keys() & stated.keys() - {"confirm"}:
        if options[key] != stated[key]:
            both = f"{options[key]!r} and {stated[key]!r}"
            raise DefinitionError(f"{who}: `{key}` is given twice, {both}; keep one of them")
    confirm = {"confirm": options.get("confirm") or stated["confirm"]} if "confirm" in stated else {}
    return {**stated, **options, **confirm}


def wrap_invoke(name: str, invoke: Any) -> Any:
    """Wraps `invoke` so that it is awaited and returns a result, for any return value of the class's own."""
    if not inspect.isfunction(invoke):
        return invoke
    try:
        inspect.signature(invoke).bind(None, {}, None)
    except TypeError:
        raise DefinitionError(f"class {name}: `invoke` must take (self, arguments, ctx)") from None
    is_coroutine = inspect.iscoroutinefunction(invoke)
    if is_coroutine and invoke.__annotations__.get("return") in (ToolResult, "ToolResult"):
        return invoke

    @functools.wraps(invoke)
    async def invoke_and_read(self: Any, arguments: Mapping[str, Any], ctx: Any) -> ToolResult:
        if is_coroutine:
            return ToolResult.of(await invoke(self, arguments, ctx))
        from forge.core.execution.run_function import run_plain

        return await run_plain(lambda: invoke(self, arguments, ctx), {}, ctx)

    return invoke_and_read


def with_titles(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that a dictionary of `title`, `output` and `metadata` becomes a result."""
    if inspect.isgeneratorfunction(execute) or inspect.isasyncgenfunction(execute):
        return execute
    if inspect.iscoroutinefunction(execute):

        @functools.wraps(execute)
        async def run(*args: Any, **kwargs: Any) -> Any:
            return _with_title(await execute(*args, **kwargs))
    else:

        @functools.wraps(execute)
        def run(*args: Any, **kwargs: Any) -> Any:
            return _with_title(execute(*args, **kwargs))

    return run


def _with_title(value: Any) -> Any:
    if not isinstance(value, Mapping) or not {"title", "output"} <= value.keys() <= _RESULT:
        return value
    attachments = tuple(value.get("attachments") or ())
    if not all(isinstance(one, Attachment) for one in attachments):
        return value
    of_output = ToolResult.of(value["output"])
    return ToolResult(
        for_llm=of_output.for_llm,
        title=str(value["title"]),
        data=value.get("metadata") or of_output.data,
        attachments=(*of_output.attachments, *attachments),
        failure=of_output.failure,
    )


# Reads options that a class states as attributes: `name = "deploy"`, `requires_confirmation = True`.


OPTIONS = frozenset({*ToolOptions.__annotations__, *ToolTraits.__annotations__})
_OTHER_NAMES = {"requires_confirmation": "confirm", "suppress_execution_animation": "animate"}
_OPPOSITES = frozenset({"suppress_execution_animation"})
_DEFAULT = ToolSpec(name="default", description="", parameters={})
_SAFETY = ("requires_confirmation", "confirm", "permissions", "isolate", "timeout", "description", "strict")
_OWN = frozenset({"name", "aliases", "description", "description_file", "harmless"})
_SHORTEST_MISSPELT = 6  # characters
_NEVER = {
    "parameters": "they are the parameters of `run`; for your own schema use Tool.from_schema",
    "schema": "it is made from the parameters of `run`; for your own schema use Tool.from_schema",
}


def class_options(made: type, base: type) -> dict[str, Any]:
    """Returns the options of the class and its bases, the class first, without those of `base`."""
    found: dict[str, Any] = {}
    for owner in made.__mro__:
        if owner in base.__mro__:
            continue
        for key, value in own_options(owner, is_tool=issubclass(owner, base)).items():
            found[key] = found.get(key, False) or value if key == "confirm" else found.get(key, value)
    return found


def inherited_options(made: Any, run: Any) -> dict[str, Any]:
    """Returns the options that were given with the classes above, the nearest first, where they fit the new `run`.

    A name, an alias and a description belong to the class that has them, and so do the parameters that are harmless.
    """
    found: dict[str, Any] = {}
    for owner in made.__mro__[1:]:
        given = owner._given_options if "_given_options" in vars(owner) else {}
        for key, value in given.items():
            found[key] = found.get(key, False) or value if key == "confirm" else found.get(key, value)
    taken = getattr(getattr(run, "__code__", None), "co_varnames", ())
    if "argument_aliases" in found:
        found["argument_aliases"] = {key: name for key, name in found["argument_aliases"].items() if name in taken}
    return {key: value for key, value in found.items() if key not in _OWN}


def own_options(owner: type, *, is_tool: bool = True) -> dict[str, Any]:
    """Returns the options of the class itself. Raises `DefinitionError` for an attribute that would be ignored."""
    found: dict[str, Any] = {}
    for key, value in vars(owner).items():
        option = _OTHER_NAMES.get(key, key)
        is_code = callable(value) or hasattr(value, "__get__")
        if is_code and key == "reconcile":  # a method: the class says it
            continue
        if is_tool and key in _NEVER and not is_code and "run" in vars(owner):
            raise DefinitionError(f"class {owner.__name__}: `{key}` is not read; {_NEVER[key]}")
        if option not in OPTIONS:
            if is_tool and not is_code and (meant := _find_misspelt(key)):
                raise DefinitionError(
                    f"class {owner.__name__}: `{key}` is not read; did you mean `{meant}`? If it is for your own use, "
                    f"call it `_{key}`"
                )
            continue
        if is_code:
            if not is_tool:
                continue
            raise DefinitionError(
                f"class {owner.__name__}: `{key}` must be known before an object exists; write it as a value, "
                f"{key} = …, or give the object a spec: self.spec = self.spec.changed({option}=…)"
            )
        found[option] = not value if key in _OPPOSITES else value
    return found


def _find_misspelt(key: str) -> str:
    """Returns the option that an attribute probably misspells: a tool that wants confirmation must not run without."""
    if key.startswith("_") or len(key) < _SHORTEST_MISSPELT:
        return ""
    return next(iter(find_close_names(key, _SAFETY, False)), "")


def with_attributes(spec: ToolSpec, stated: Mapping[str, Any], own: Mapping[str, Any]) -> ToolSpec:
    """Adds to the spec of an object the options that its class (`stated`) and the object (`own`) state.

    Raises `DefinitionError` where the two disagree about the name.
    """
    name = own.get("name", stated.get("name"))
    if isinstance(name, str) and name != spec.name:
        raise DefinitionError(f"tool {spec.name!r}: an attribute gives it the name {name!r}; keep one of the two")
    changes: dict[str, Any] = {}
    for key in stated.keys() - {"name", "description", "description_file"}:
        if key in ("permissions", "optional_permissions"):
            changes[key] = getattr(spec, key) | collect_values(f"tool {spec.name!r}", key, stated[key])
        elif getattr(spec, key) == getattr(_DEFAULT, key):
            changes[key] = stated[key]
    if own.get("requires_confirmation") is True:
        changes["confirm"] = True
    return spec.changed(**changes) if changes else spec
