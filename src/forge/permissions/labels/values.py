"""Finds the values in a call's arguments that name something: addresses, names, ids, dates, commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from forge.core.lazy import lazy_pattern
from forge.core.spec import Permission, ToolSpec
from forge.permissions.labels.folding import decode_parts, fold

LONGEST_NAME = 120  # characters: a longer text, or one of several lines, is content
MOST_VALUES = 2_000  # of one call
RUN = 3  # words of a command that are compared together
DEEPEST = 20
DELEGATING = frozenset({"task", "run_code"})  # they do nothing but make calls, each of which is judged
DEFERRING = frozenset({"schedule_set"})  # their texts are the orders of later runs, and count as a person's there

_ADDRESS = lazy_pattern(
    r"[a-z][a-z0-9+.-]*://[^\s\"'<>`]+"  # a URL
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # a mail address
    r"|(?<![\w@./-])(?:[a-z0-9-]+\.)+[a-z]{2,}(?:/[^\s\"'<>`]*)?(?![\w@])"  # a host, perhaps with a path
    r"|(?<!\w)(?=[a-z0-9]*\d[a-z0-9]*\d[a-z0-9]*\d)[a-z0-9]{10,}(?!\w)"  # an account or a key
)
_DATE = lazy_pattern(r"(\d{4})-(\d\d)-(\d\d)")
_MONTHS = "january february march april may june july august september october november december".split()


class Value(NamedTuple):
    """A folded value of an argument, and the name of the argument."""

    argument: str
    text: str
    shown: str  # as it was written


def find_values(spec: ToolSpec, arguments: Mapping[str, Any], permission: Permission | None) -> list[Value]:
    """Returns the values of a call that say what it does to what: those that must not come from untrusted text.

    Where a tool that only writes declares its target, its other arguments are content. Enumerated values, signs and
    single letters name nothing.
    """
    if spec.name in DELEGATING:
        return []
    only = frozenset(spec.targets) if permission is Permission.WRITE and spec.targets else None
    commands = frozenset(spec.targets) if permission is Permission.EXECUTE else frozenset()
    plain = _find_enumerated(spec)
    found: dict[tuple[str, str], Value] = {}
    for argument, leaf in _find_leaves(arguments):
        if (only is not None and argument not in only) or argument in plain:
            continue
        for text in _find_names(leaf, permission, is_command=argument in commands, is_order=spec.name in DEFERRING):
            value = Value(argument, fold(text), text)
            if value.text.isdigit() or (len(value.text) > 1 and any(map(str.isalnum, value.text))):
                found.setdefault(value[:2], value)
        if len(found) >= MOST_VALUES:
            break
    return list(found.values())


def find_texts(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields every text of the arguments with the name of its argument, encoded parts also decoded."""
    for argument, leaf in _find_leaves(arguments):
        text = leaf if isinstance(leaf, str) else str(leaf)
        yield argument, text
        for plain in decode_parts(text):
            yield argument, plain


def find_addresses(text: str) -> list[str]:
    """Returns the addresses in a text: URLs, hosts, mail addresses, account numbers."""
    return [match.group().rstrip(".,;:!?)'") for match in _ADDRESS.finditer(text.lower())]


def spell_date(text: str) -> Sequence[str]:
    """Returns the ways to write a date, for a value such as `2024-05-01`; otherwise the value alone."""
    match = _DATE.fullmatch(text[:10])
    if match is None or not 1 <= int(match[2]) <= 12:
        return (text,)
    year, month, day = match[1], _MONTHS[int(match[2]) - 1], str(int(match[3]))
    days = [day + ending for ending in ("", "st", "nd", "rd", "th")]
    names = (month, month[:3])
    spelled = [f"{name} {one}{comma} {year}" for name in names for one in days for comma in ("", ",")]
    spelled += [f"{one}{of} {name} {year}" for name in names for one in days for of in ("", " of")]
    return (text, *spelled) if len(text) == len(match.group()) else (text,)


def host_of(address: str) -> str:
    """Returns the host of a URL, or of an address that begins with a host; without user and port."""
    start = address.partition("://")[2] if "://" in address else address
    return re.split(r"[/?#]", start, maxsplit=1)[0].rpartition("@")[2].partition(":")[0]


def is_short_number(text: str) -> bool:
    """Says whether a value is a bare number of up to three digits, which also stands in texts by chance."""
    return len(text) <= 3 and text.isdigit()


def _find_names(leaf: Any, permission: Permission | None, *, is_command: bool, is_order: bool) -> Iterator[str]:
    if isinstance(leaf, int | float):
        digits = f"{leaf:g}" if isinstance(leaf, float) else str(leaf)
        if len(digits) >= 4 and not 1900 <= leaf <= 2100:
            yield digits
        return
    is_name = len(leaf) <= LONGEST_NAME and "\n" not in leaf.strip()
    if is_name:
        yield leaf
    if permission is Permission.WRITE and not is_order:
        return
    for text in (leaf, *decode_parts(leaf)):
        addresses = find_addresses(text)
        yield from (one for one in addresses if one != leaf)
        yield from (host for one in addresses if "@" not in one.partition("://")[0] and "." in (host := host_of(one)))
        if is_command:
            words = text.split()
            yield from (" ".join(words[at : at + RUN]) for at in range(min(len(words) - RUN + 1, 200)))


def _find_leaves(arguments: Any, argument: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(arguments, Mapping):
        for key, value in arguments.items():
            yield from _find_leaves(value, argument or str(key), depth + 1) if depth < DEEPEST else ()
    elif isinstance(arguments, list | tuple | set | frozenset):
        for value in arguments:
            yield from _find_leaves(value, argument, depth + 1) if depth < DEEPEST else ()
    elif isinstance(arguments, str | int | float) and not isinstance(arguments, bool):
        yield argument, arguments


def _find_enumerated(spec: ToolSpec) -> frozenset[str]:
    properties = spec.parameters.get("properties", {})
    if not isinstance(properties, Mapping):
        return frozenset()
    listed = (
        name for name, one in properties.items() if isinstance(one, Mapping) and ("enum" in one or "const" in one)
    )
    return frozenset(listed)
