"""Finds the targets in a call's arguments, and the permissions it asks for on them."""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from forge.core.context import Runnable, Scope
from forge.core.spec import Permission, ToolSpec
from forge.permissions.targets import paths

PATHS = frozenset({Permission.READ, Permission.WRITE})


LONGEST_NUMBER = 400  # characters of a number that rules compare by its value

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,6})?")
_WORDS = frozenset({"true", "false", "null"})


class Opaque(str):
    """A target that is neither text nor a scalar: its JSON, for people. Its effect is not known."""

    __slots__ = ()


class Scalar(str):
    """A target that is a number, a boolean or null: its JSON. Rules name it by this text, and a number by its value."""

    __slots__ = ()


def is_scalar(text: str) -> bool:
    """Returns whether a text is the JSON of a number, a boolean or null."""
    return text in _WORDS or _NUMBER.fullmatch(text) is not None


def is_same_number(one: str, other: str) -> bool:
    """Returns whether two texts are the same number: 7 and 7.0, 1000 and 1e3."""
    if max(len(one), len(other)) > LONGEST_NUMBER or not (_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)):
        return False

    return Decimal(one) == Decimal(other)


def spell_number(text: str) -> set[str]:
    """Returns the spellings of a number that a pattern may mean: 7.0 is also 7, and 1e+20 a one with twenty zeros."""
    if len(text) > LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return {text}

    value = Decimal(text)
    if abs(value.adjusted()) > LONGEST_NUMBER:
        return {text}
    whole, point, rest = f"{value:f}".partition(".")
    rest = rest.rstrip("0")
    return {text, f"{value:f}", f"{whole}{point if rest else ''}{rest}"}


class CallJudge(NamedTuple):
    """Judges what a call may want, for a tool whose wishes depend on the rules."""

    policy: Any
    judge: Callable[[Permission | None, str], Any]  # returns a `Ruling`


def find_requests(
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    tool: Runnable | None = None,
    scope: Scope | None = None,
    judge: CallJudge | None = None,
) -> list[tuple[Permission | None, str]]:
    """Returns the permissions a call asks for before it runs: each declared one (else None) on every target.

    The targets of a tool that declares none belong to its optional permissions: a call that names a target asks for
    them at once. A call of which the tool says that it touches nothing asks for nothing. A tool that knows better
    names its requests itself, where the call's `scope` is known. `judge`: for a tool that looks at the rules, too.
    """
    requests = _own_requests(arguments, tool, scope, judge) if scope is not None else None
    if requests is not None:
        return list(dict.fromkeys((permission, text_of(target)) for permission, target in requests))
    own = _own_targets(arguments, tool)
    if own == []:
        return [(None, "")]
    targets = _list_targets(spec, arguments, tool, own)
    named = [target for target in targets if target]
    if named and spec.optional_permissions and not spec.permissions:
        return [(permission, target) for permission in sorted(spec.optional_permissions) for target in named]
    permissions: Sequence[Permission | None] = sorted(spec.permissions) or (None,)
    return [(permission, target) for permission in permissions for target in targets]


def _own_requests(
    arguments: Mapping[str, Any], tool: Runnable | None, scope: Scope, judge: CallJudge | None
) -> list[tuple[Permission | None, str]] | None:
    if tool is None:
        return None
    if judge is not None:
        return type(tool)._required_permissions_under(tool, arguments, scope, judge)
    return type(tool).required_permissions(tool, arguments, scope)


def targets_of(spec: ToolSpec, arguments: Mapping[str, Any], tool: Runnable | None = None) -> list[str]:
    """Returns the targets that the tool names, or else the texts in its target parameters, each element of a list on
    its own; one empty text if there is none.

    Of a parameter that was left out, the default that the schema promises. Numbers, booleans and the null of a list are
    `Scalar`; other values that are no texts are `Opaque`.
    """
    return _list_targets(spec, arguments, tool, _own_targets(arguments, tool))


def _list_targets(
    spec: ToolSpec, arguments: Mapping[str, Any], tool: Runnable | None, own: list[str] | None
) -> list[str]:
    if own is not None:
        return list(dict.fromkeys(map(text_of, own))) or [""]
    texts = (text for name in spec.targets for text in _texts(_value(spec, arguments, name, tool)))
    return list({(type(text), text): text for text in texts}.values()) or [""]


def _own_targets(arguments: Mapping[str, Any], tool: Runnable | None) -> list[str] | None:
    """Returns the targets that the tool itself names: none, if the list is empty; None where it does not say."""
    # of the class: an instance may have something else by that name
    return type(tool).targets(tool, arguments) if tool is not None else None


def identity(permission: Permission | None, target: str, scope: Scope) -> Hashable:
    """Returns the current meaning of a target: it differs as soon as a link on the way leads elsewhere."""
    if isinstance(target, Opaque | Scalar):
        return type(target), str(target)
    if permission not in PATHS or not target or len(target) > paths.LONGEST_PATH:
        return target
    return frozenset(paths.spellings(target, paths.roots(str(scope.workspace))[0]))


def _value(spec: ToolSpec, arguments: Mapping[str, Any], name: str, tool: Runnable | None) -> Any:
    if (value := arguments.get(name if tool is None else type(tool)._argument_key(tool, name))) is not None:
        return value
    schema = (spec.parameters.get("properties") or {}).get(name)
    return schema.get("default") if isinstance(schema, Mapping) else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield text_of(item)
    elif value is not None:
        yield text_of(value)


def text_of(value: Any) -> str:
    """Returns a value as a target: a text, a `Scalar`, or `Opaque`."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return value if isinstance(value, Scalar | Opaque) else str.__str__(value)
    if value is None or isinstance(value, bool | int | float):
        return _scalar(value)
    if isinstance(value, PurePath):
        return str(value)
    return _text_of_object(value) or Opaque(_to_text(value))


def _scalar(value: Any) -> str:
    try:
        return Scalar(json.dumps(value))
    except ValueError:  # a number of thousands of digits
        return Opaque(_to_text(value))


def _text_of_object(value: Any) -> str:
    """Returns the text of an object that is a text or a number in JSON, such as a date; empty for any other."""
    if isinstance(value, list | tuple | dict | set | frozenset):
        return ""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return ""
    import uuid

    if isinstance(value, Decimal):
        return Scalar(value) if is_scalar(str(value)) else ""
    networks = sys.modules.get("pydantic.networks")  # without it there is no such object
    if isinstance(value, uuid.UUID) or type(value) in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        return str(value)
    if networks is not None and isinstance(value, networks.AnyUrl):
        return str(value)
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return str(to_jsonable_python(value))
    return ""


def _to_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):  # keys of several types, cyclic, or too deep
        return f"a value of type {type(value).__name__}"


# The form in which rules are compared with a reading of a target.


class TargetForm:
    """One reading of a target. Rules decide about each; the strictest decision counts."""

    by_default = True  # whether the default applies where no rule matches; a reading that only denies look at has none
    is_repeated = False  # whether rulings on every command include it already
    command = ""  # one command of a line that has several, for people
    starter = ""  # a program that may start others, which the line does not show

    def matches(self, pattern: str, *, generous: bool) -> bool:
        """Returns whether a pattern covers it. Rules that forbid or ask are generous, those that allow are exact."""
        return False

    def surely_matches(self, pattern: str) -> bool:
        """Returns whether a pattern surely covers it. An ask that only may cover it does not soften an earlier deny."""
        return False


class UnreadTarget(TargetForm):
    """A target that cannot be read: it could hold anything forbidden, and no pattern allows it."""

    def __init__(self, *, by_default: bool = True) -> None:
        self.by_default = by_default

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return generous
