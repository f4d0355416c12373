"""Remembers "always": exactly this path, host, command prefix or set of arguments; never a whole tool."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from forge.core.context import Scope
from forge.core.spec import Permission, ToolSpec
from forge.permissions.targets import PATHS, Opaque, Scalar, hosts, identity

MOST_SESSIONS = 1_000  # whose answers are remembered
MOST_ANSWERS = 1_000  # remembered in each

# Only commands that run no code but their own, with any further words, are remembered by their first words: no hooks,
# scripts, plugins, builds or interpreters. Of everything else exactly the line.
_READERS = frozenset(
    [
        "cat",
        "cut",
        "date",
        "df",
        "diff",
        "du",
        "echo",
        "file",
        "head",
        "ls",
        "md5sum",
        "pwd",
        "sha256sum",
        "stat",
        "tail",
        "uname",
        "wc",
        "which",
        "whoami",
    ]
)
_VERBS = {
    "docker": "images info inspect logs ps top version",
    "gh": "status",
    "git": "add blame branch describe diff grep log ls-files ls-tree rev-parse shortlog show status",
    "helm": "history list status version",
    "kubectl": "api-resources describe get logs top version",
    "npm": "list ls",
    "pip": "check freeze list show",
    "systemctl": "is-active is-enabled list-unit-files list-units show status",
}
_NOUNS = {  # remembered by three words
    "docker": {
        "container": "inspect list logs ls ps top",
        "image": "history inspect list ls",
        "network": "inspect list ls",
        "volume": "inspect list ls",
    },
    "gh": {
        "issue": "list status view",
        "pr": "checks diff list status view",
        "release": "list view",
        "run": "list view",
    },
    "git": {"remote": "get-url", "stash": "list", "worktree": "list"},
    "helm": {"get": "all manifest notes values", "repo": "list"},
    "kubectl": {"config": "current-context get-contexts view", "rollout": "history status"},
}
_SHORT = re.compile(r"-(?:[^-].*?)?[CHOceuwx]")  # alone or among others, as in -nO
_LONG = (  # options that start programs or write files
    "config edit-description exec exec-path ext-diff filters host kubeconfig open-files-in-pager output"
    " output-directory post-renderer pre python receive-pack script-shell textconv upload-pack use-askpass web"
).split()


class RememberedAnswer(NamedTuple):
    """`key` is equal for all questions that one answer covers, and empty for none; `rule` describes it to a person."""

    key: Hashable
    rule: str


def make_memory(
    spec: ToolSpec, permission: Permission | None, target: str, arguments: Mapping[str, Any], scope: Scope
) -> RememberedAnswer:
    """Returns the memory that an "always" for this question would add."""
    key: Hashable
    if permission is None or not target or isinstance(target, Opaque | Scalar) or spec.confirm:
        mark = fingerprint(arguments)
        return RememberedAnswer(
            mark and (spec.name, permission, "arguments", mark), f"allow tool:{spec.name} with exactly these arguments"
        )
    if permission in PATHS:
        key, text = identity(permission, target, scope), _literal(target)
    elif permission is Permission.NETWORK:
        key, text = _host(target)
    else:
        key, text = _command(target)
    return RememberedAnswer((spec.name, permission, key), f"allow {permission} {text}")


class RememberedAnswers:
    """The "always" answers, session by session."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, dict[Hashable, str]] = OrderedDict()

    def add(self, session_id: str, memories: Iterable[RememberedAnswer]) -> None:
        session = self._sessions.setdefault(session_id, {})
        session.update({found.key: found.rule for found in memories if found.key})
        while len(session) > MOST_ANSWERS:
            del session[next(iter(session))]
        self._sessions.move_to_end(session_id)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)

    def has(self, session_id: str) -> bool:
        return session_id in self._sessions

    def covers(self, session_id: str, found: RememberedAnswer) -> bool:
        return found.key in self._sessions.get(session_id, {})

    def rules(self, session_id: str) -> list[str]:
        return list(self._sessions.get(session_id, {}).values())

    def forget(self, session_id: str) -> None:
        """Forgets a session; all of them, if it is empty."""
        if session_id:
            self._sessions.pop(session_id, None)
        else:
            self._sessions.clear()


def fingerprint(arguments: Mapping[str, Any]) -> str:
    """Hashes a canonical text of the arguments; equal only for equal arguments, empty where they have no such text."""
    try:
        data = to_jsonable_python(
            dict(arguments), bytes_mode="base64", inf_nan_mode="constants", fallback=_unique_value
        )
        return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    except (ValueError, TypeError, RecursionError):  # cyclic, too deep, or a number of thousands of digits
        return ""


def _unique_value(value: object) -> str:
    return f"{type(value).__qualname__} at {id(value)}"


def _host(target: str) -> tuple[Hashable, str]:
    host = hosts.read_host(target)
    if not (host.clear and host.is_web):
        return ("exactly", target), _literal(target)
    (name,) = host.names
    return (name, host.port if host.explicit_port else None), hosts.pattern_of(target)


def _command(line: str) -> tuple[Hashable, str]:
    from forge.permissions.shell import commands  # loads what reads shell lines

    words = list(commands.split_literal(line)[0].words) if commands.is_simple(line) else []
    known = _first_words(words) if words else 0
    if known and not any(map(_starts_or_writes, words)):
        prefix = words[:known]
        return ("prefix", *prefix), f"{' '.join(prefix)} *"
    return ("exactly", line), _literal(line)


def _first_words(words: list[str]) -> int:
    """Returns how many words name the command, for commands that run no other code; 0 for all others."""
    name, verb, second = [*words, "", ""][:3]
    if name in _READERS:
        return 1
    if verb in _VERBS.get(name, "").split():
        return 2
    return 3 if second in _NOUNS.get(name, {}).get(verb, "").split() else 0


def _starts_or_writes(word: str) -> bool:
    """Returns whether an option starts programs or writes files; long ones may be shortened, as in --outp=x."""
    if not word.startswith("--"):
        return bool(_SHORT.match(word))
    name = word[2:].partition("=")[0]
    return bool(name) and any(option.startswith(name) for option in _LONG)


def _literal(text: str) -> str:
    """Returns the text as a pattern that covers nothing else."""
    return re.sub(r"([*?\[])", r"[\1]", text)
