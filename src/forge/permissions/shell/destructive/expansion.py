"""Replaces the variables and braces of a line by the values that are known before it runs."""

from __future__ import annotations

import re

from forge.core.context import Scope
from forge.permissions import shell
from forge.permissions.targets import paths

_ASSIGNED = re.compile(r"(?:^|[\s;&|(])(\w+)=(?:'([^'\n]*)'|\"([^\"$`\n]*)\"|([^\s;&|<>()$`\"'{}]*))(?=[\s;&|)]|$)")
_LOOPED = re.compile(r"\bfor\s+(\w+)\s+in\s+([^;\n$`]*)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^{}$`]*)|[^\w{}][^{}]*)?\})")
_BRACES = re.compile(r"([^\s{}'\"]{0,200})\{([^{}\s]{0,500},[^{}\s]{0,500})\}([^\s{}'\";|&)]*)")
_SAYS = re.compile(r"\$\((?:echo|printf(?: ['\"]?%s['\"]?)?) +([^()$`;|&<>]*)\)|`(?:echo|printf) +([^`$;|&<>]*)`")
_LONGEST_VALUE = 200  # characters
_PWD = re.compile(r"\$\(pwd\)|`pwd`")


def expand_line(line: str, scope: Scope) -> str:
    """Returns the line with braces, and variables with known values, expanded."""
    values = {"HOME": paths.home_directory(), "PWD": str(scope.workspace), "IFS": " "}
    for name, *texts in [*_ASSIGNED.findall(line), *_LOOPED.findall(line)]:
        values[name] = next((text for text in texts if text), "")[:_LONGEST_VALUE]

    def value(variable: re.Match[str]) -> str:
        name = variable[1] or variable[2]
        return values.get(name, variable[3] if variable[3] is not None else variable[0])

    text = _PWD.sub("$PWD", line)
    for _ in range(3):  # values that name other variables
        text = _VARIABLE.sub(value, text)[: shell.LONGEST]
    text = _SAYS.sub(lambda found: (found[1] or found[2] or "").strip("'\" "), text)
    return _BRACES.sub(_expand_braces, text)[: shell.LONGEST]


def _expand_braces(braces: re.Match[str]) -> str:
    return " ".join(f"{braces[1]}{one}{braces[3]}" for one in braces[2].split(",")[:50])
