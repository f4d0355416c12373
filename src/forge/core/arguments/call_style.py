"""Decides how a function takes its arguments, its context and its dependencies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from forge.core.arguments.names import near
from forge.core.errors import DefinitionError, ErrorKind, ToolError

_ALL_AT_ONCE = frozenset({"args", "arguments", "input", "inputs", "parameters", "params"})
_CONTEXT = frozenset({"context", "ctx"})
_MAY_DECLARE_MORE = ("$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas", "dependencies")


class CallStyle(NamedTuple):
    """`context` and `whole` are parameters of the function; "" where it has none of the kind."""

    context: str = ""  # takes the `ToolContext`
    whole: str = ""  # takes all arguments; otherwise each goes to the parameter of its name
    model: Any = None  # of which `whole` takes an object; None: it takes a dictionary
    deps: Any = None  # the type that the function declares with `ToolContext[Db]`; None: it declares none


def call_style(
    function: Callable[..., Any], name: str, schema: Mapping[str, Any], context_type: type, model: Any = None
) -> CallStyle:
    """Returns the style. Raises `DefinitionError` where no call that fits the schema could ever work."""
    if not callable(function):
        raise DefinitionError(f"tool {name!r}: {type(function).__name__} is not callable; pass the function itself")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions written in C do not say what they take
        return CallStyle()
    hints, unread = read_hints(function)
    properties = schema.get("properties") or {}
    _check_types(name, parameters, properties, unread)
    context = next((key for key in parameters if takes(hints.get(key), context_type)), "")
    if context in properties:
        raise DefinitionError(
            f"tool {name!r}: {context!r} is a property of its schema and also takes the ToolContext; rename one"
        )
    if not context:
        context = next((key for key in _CONTEXT & parameters.keys() if key not in hints and key not in properties), "")
    deps = declared_type(hints.get(context), context_type)
    own = {key: parameter for key, parameter in parameters.items() if key != context}
    whole = _find_whole(own, hints, properties, model)
    if whole:
        takes_model = model is not None and takes(hints.get(whole, model), model)
        return CallStyle(context, whole, model if takes_model else None, deps)
    _check_names(name, own, schema, properties)
    return CallStyle(context, deps=deps)


def takes(hint: Any, wanted: type) -> bool:
    """Returns whether a parameter of this annotation takes objects of the type: `T`, `T[…]`, or one of them or None."""
    if hint is wanted or get_origin(hint) is wanted:
        return True
    return get_origin(hint) in (Union, UnionType) and any(takes(part, wanted) for part in get_args(hint))


def read_hints(
    function: Callable[..., Any], *, include_extras: bool = False
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Returns the annotations, and the error of each that cannot be read: a type that only type checkers see."""
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(called, include_extras=include_extras), {}
    except (NameError, TypeError):
        pass
    hints: dict[str, Any] = {}
    unread: dict[str, Exception] = {}
    names = getattr(inspect.unwrap(called), "__globals__", {})
    for key, annotation in dict(getattr(called, "__annotations__", {})).items():
        try:
            alone = SimpleNamespace(__annotations__={key: annotation})
            hints |= get_type_hints(alone, names, include_extras=include_extras)
        except (NameError, TypeError) as error:
            hints[key], unread[key] = annotation, error
    return hints, unread


def _check_types(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    properties: Mapping[str, Any],
    unread: Mapping[str, Exception],
) -> None:
    """Refuses a parameter of an unknown type that no argument fills: it may be the context, or the whole."""
    for key, reason in unread.items():
        if key in properties or key not in parameters or parameters[key].kind.name.startswith("VAR_"):
            continue
        raise DefinitionError(
            f"tool {name!r}: the type of the parameter {key!r} of its function cannot be read: {reason}; use types "
            "defined at module level, not inside a function or under TYPE_CHECKING"
        )


def _find_whole(
    own: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], properties: Mapping[str, Any], model: Any
) -> str:
    if len(own) != 1:
        return ""
    ((key, parameter),) = own.items()
    if key in properties or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return ""
    hint = hints.get(key)
    if model is not None and takes(hint, model):
        return key
    if hint is None:
        return key if key in _ALL_AT_ONCE else ""
    return key if (get_origin(hint) or hint) in (dict, Mapping) else ""


def _check_names(
    name: str, own: Mapping[str, inspect.Parameter], schema: Mapping[str, Any], properties: Mapping[str, Any]
) -> None:
    kinds = {parameter.kind for parameter in own.values()}
    for parameter in own.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise DefinitionError(f"tool {name!r}: remove the `/` from its function: arguments are passed by name")
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return
    required = schema.get("required") or ()
    for key in required:
        if key not in own:
            hint = near(key, own, 1)
            advice = f"did you mean {hint[0]!r}?" if hint else "add it, or take all in one parameter `arguments: dict`"
            raise DefinitionError(
                f"tool {name!r}: its schema requires {key!r}, which its function does not take; {advice}"
            )
    if any(key in schema for key in _MAY_DECLARE_MORE) or schema.get("additionalProperties", False) is not False:
        return
    for key, parameter in own.items():
        is_needed = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        if is_needed and key not in properties:
            raise DefinitionError(
                f"tool {name!r}: its function needs {key!r}, which its schema does not have; add it to the schema, or "
                "give the parameter a default"
            )


# Checks the dependencies of a run against the types that tools declare with `ToolContext[Deps]`.


HOW = "Pass it to the run: agent.run(prompt, deps=…); without an agent: Scope(deps=…)."


def declared_type(hint: Any, context_type: type) -> Any:
    """Returns the type in `ToolContext[Db]`; None where an annotation declares no type."""
    for part in (hint, *get_args(hint)):
        if get_origin(part) is context_type:
            (declared,) = get_args(part)
            return None if declared is Any or isinstance(declared, TypeVar) else declared
    return None


def check_deps(owner: str, declared: Any, deps: Any) -> None:
    """Raises `ToolError` where `deps` is missing or not of the declared type. `owner` declares it: "the tool 'a'"."""
    if is_of_type(deps, declared):
        return
    found = "the run has none" if deps is None else f"the run was given {type(deps).__name__}"
    raise ToolError(f"{owner} needs deps of type {name_type(declared)}, and {found}", ErrorKind.CONFIG, HOW)


def check_tool_deps(name: str, declared: Any, deps: Any, *, is_isolated: bool) -> None:
    """Raises `ToolError` where a run cannot give a tool the dependencies that it declares."""
    if is_isolated:
        message = f"the tool {name!r} needs deps of type {name_type(declared)}, and isolate=True runs it in a process"
        raise ToolError(f"{message} that cannot receive them", ErrorKind.CONFIG, "Remove isolate=True, or use no deps.")
    check_deps(f"the tool {name!r}", declared, deps)


def is_of_type(deps: Any, declared: Any) -> bool:
    """Returns whether `deps` is of a type. Where Python cannot check the type, any value but None is accepted."""
    if declared is Any or declared is object:
        return True
    if declared is None:
        return deps is None
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(is_of_type(deps, one) for one in get_args(declared))
    if origin is Annotated:
        return is_of_type(deps, get_args(declared)[0])
    plain = origin or getattr(declared, "__supertype__", declared)
    try:
        return isinstance(deps, plain)
    except TypeError:  # such as a protocol that is not runtime-checkable, or a TypedDict
        return deps is not None


def name_type(declared: Any) -> str:
    """Returns the name of a type as a person would write it."""
    is_plain = isinstance(declared, type) and get_origin(declared) is None
    return declared.__name__ if is_plain else str(declared).replace("typing.", "")
