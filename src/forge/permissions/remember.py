"""What "always" remembers: exactly this path, host, command prefix or set of arguments; never a whole tool."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from forge.core.context import Scope
from forge.core.spec import Permission, ToolSpec
from forge.permissions import commands, hosts
from forge.permissions.targets import PATHS, identity

# Only programs known not to be interpreters are remembered by their first words: any other program may run anything.
_READERS = frozenset(
    "cat cut date df diff du echo file head ls md5sum pwd sha256sum stat tail uname wc which whoami".split()
)
_FAMILIES = frozenset(
    "apt brew cargo docker dotnet gh git go helm kubectl npm pip pnpm podman poetry systemctl uv yarn".split()
)
_RUNS_CODE = frozenset(
    "alias bisect build config create debug difftool dlx eval exec explore filter-branch foreach hook i init install"
    " mergetool rebase run run-script script shell start submodule tool x".split()
)
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9-]*")
_RUNS_OR_WRITES = re.compile(  # options that start programs or write files, whatever the subcommand promises
    r"-[OcuxC].*|--(?:output|open-files-in-pager|ext-diff|textconv|exec|exec-path|upload-pack|receive-pack|config|pre|use-askpass)(?:=.*)?"
)


class Memory(NamedTuple):
    """`key` is the same for all questions one answer settles, and empty for none; `rule` says it to a person."""

    key: Hashable
    rule: str


def memory(
    spec: ToolSpec, permission: Permission | None, target: str, arguments: Mapping[str, Any], scope: Scope
) -> Memory:
    """What an "always" for this question would cover."""
    key: Hashable
    if permission is None or not target or spec.confirm:
        mark = fingerprint(arguments)
        return Memory(
            mark and (spec.name, permission, "arguments", mark), f"allow tool:{spec.name} with exactly these arguments"
        )
    if permission in PATHS:
        key, text = identity(permission, target, scope), _literal(target)
    elif permission is Permission.NETWORK:
        key, text = _host(target)
    else:
        key, text = _command(target)
    return Memory((spec.name, permission, key), f"allow {permission} {text}")


def fingerprint(arguments: Mapping[str, Any]) -> str:
    """A canonical text of the arguments, hashed; equal only for equal arguments, empty where they have no such text."""
    from hashlib import sha256  # only where somebody is asked

    from pydantic_core import to_jsonable_python

    try:
        data = to_jsonable_python(
            dict(arguments), bytes_mode="base64", inf_nan_mode="constants", fallback=_one_of_a_kind
        )
        return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    except (ValueError, TypeError, RecursionError):  # cyclic, too deep, or a number of thousands of digits
        return ""


def _one_of_a_kind(value: object) -> str:
    return f"{type(value).__qualname__} at {id(value)}"


def _host(target: str) -> tuple[Hashable, str]:
    host = hosts.read_host(target)
    if not host.clear:
        return ("exactly", target), _literal(target)
    (name,) = host.names
    shown = f"[{name}]" if ":" in name else name
    return (name, host.port if host.explicit_port else None), f"{shown}:{host.port}" if host.explicit_port else shown


def _command(line: str) -> tuple[Hashable, str]:
    words = commands.collapsed(line).split(" ")
    if commands.is_simple(line) and not any(_RUNS_OR_WRITES.fullmatch(word.strip("\"'")) for word in words):
        if words[0] in _READERS:
            return ("prefix", words[0]), f"{words[0]} *"
        if words[0] in _FAMILIES and len(words) > 1 and _SUBCOMMAND.fullmatch(words[1]) and words[1] not in _RUNS_CODE:
            return ("prefix", *words[:2]), f"{words[0]} {words[1]} *"
    return ("exactly", line), _literal(line)


def _literal(text: str) -> str:
    """The text as a pattern that covers nothing else."""
    return re.sub(r"([*?\[])", r"[\1]", text)
