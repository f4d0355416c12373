"""Explains failures that the sandbox caused, since the failed program cannot know it."""

from __future__ import annotations

import re

_LOOKED_AT = 8_000  # characters at the end of what a program wrote

_UNREACHED = re.compile(
    r"could ?n.t resolve|could not resolve|name resolution|name or service not known|nodename nor servname"
    r"|network is unreachable|getaddrinfo|EAI_AGAIN|ENOTFOUND|dns error|failed to lookup address|no such host"
    r"|\(from versions: none\)",  # pip, when it is told to be quiet
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"connection refused|ECONNREFUSED|couldn't connect|failed to connect|can't connect", re.IGNORECASE
)
_HERE = re.compile(r"\blocalhost\b|\b127\.0\.0\.\d|\[?::1\b")
_NAMELESS = re.compile(r"^\*\*\* Please tell me who you are", re.MULTILINE)
_SETTINGS = re.compile(r"could not (?:write|lock) config file \S*\.git/config")

_NO_NETWORK = (
    "programs have no network in this sandbox; the person can open it with the rule `allow network`, or network: true"
    " in the tool's config"
)
_OWN_LOOPBACK = (
    "each command has its own network in this sandbox: a server can be reached only from the line that starts it, as"
    " in `server & sleep 1; client`, unless the person opens the network"
)
_NO_NAME = "name the author in the command: git -c user.name=… -c user.email=… commit"
_READ_ONLY = "Git's settings are read-only in this sandbox; give them for one command: git -c KEY=VALUE …"


def find_hints(output: str, sandbox: str, *, network: bool, line: str = "") -> list[str]:
    """Returns hints to show after a failed program's output; usually none."""
    if sandbox == "none":
        return []
    end = output[-_LOOKED_AT:]
    found = []
    if not network and _UNREACHED.search(end):
        found.append(_NO_NETWORK)
    elif not network and _REFUSED.search(end) and (_HERE.search(end) or _HERE.search(line)):
        found.append(_OWN_LOOPBACK if sandbox == "bubblewrap" else _NO_NETWORK)
    if _NAMELESS.search(end):
        found.append(_NO_NAME)
    if _SETTINGS.search(end):
        found.append(_READ_ONLY)
    return found
