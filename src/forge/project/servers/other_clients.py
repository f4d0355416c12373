"""Finds and reads the servers of other MCP clients, and converts them to entries of forge.yaml, without secrets."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.secrets import Secrets
from forge.core.untrusted import one_line
from forge.core.yaml import Unreadable, bounded_text
from forge.mcp.client.names import find_secret_values
from forge.project.config.reader import VARIABLE, is_secret
from forge.project.servers.plan import ServerPlan, safe_name

LARGEST_FILE = 16 * 1024 * 1024  # bytes: Claude Code keeps much else in its file
CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode")
# What has no end goes to the end of the file, so that reading takes linear time.
_SKIPPED = re.compile(r'("(?:\\.|[^"\\])*(?:"|\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_COMMA = re.compile(r'("(?:\\.|[^"\\])*(?:"|\Z))|,(?=\s*[}\]])', re.DOTALL)


class ClientFile(NamedTuple):
    """The servers of one file, as another client writes them. `inputs` are the questions of VS Code, by id."""

    path: Path
    servers: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]]


def list_files(client: str, workspace: Path, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the files in which a client has its servers, as far as they exist: the project's first."""
    home = Path(environment.get("HOME", "") or "/")
    support = home / "Library" / "Application Support" if sys.platform == "darwin" else home / ".config"
    places = {
        "claude-desktop": [support / "Claude" / "claude_desktop_config.json"],
        "claude-code": [workspace / ".mcp.json", home / ".claude.json"],
        "cursor": [workspace / ".cursor" / "mcp.json", home / ".cursor" / "mcp.json"],
        "vscode": [
            workspace / ".vscode" / "mcp.json",
            support / "Code" / "User" / "mcp.json",
            support / "Code" / "User" / "settings.json",
        ],
    }
    return [path for path in places[client] if path.is_file()]


def read_file(path: Path, workspace: Path) -> ClientFile:
    """Reads a file with servers; comments and trailing commas are fine. Raises `ToolError`."""
    try:
        document = json.loads(strip_comments(bounded_text(path, LARGEST_FILE)))
    except (Unreadable, ValueError, RecursionError) as error:
        raise ToolError(
            f"{path} cannot be read: {str(error)[:300]}", ErrorKind.USER, "Name a file with MCP servers as JSON."
        ) from None
    if not isinstance(document, dict):
        raise ToolError(f"{path} has no servers", ErrorKind.USER, "Name a file with mcpServers or servers.")
    servers: dict[str, Any] = {}
    for found in _find_servers(document, workspace):
        servers |= {str(name): one for name, one in found.items()}
    inputs = document.get("inputs") or _mapping(document.get("mcp")).get("inputs") or ()
    return ClientFile(
        path, servers, {str(one["id"]): one for one in inputs if isinstance(one, Mapping) and one.get("id")}
    )


def _find_servers(document: Mapping[str, Any], workspace: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the mappings of servers; those of this project of Claude Code last, since they count more."""
    yield _mapping(document.get("servers"))
    yield _mapping(_mapping(document.get("mcp")).get("servers"))
    yield _mapping(document.get("mcpServers"))
    project = _mapping(_mapping(document.get("projects")).get(str(workspace)))
    yield _mapping(project.get("mcpServers"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def strip_comments(text: str) -> str:
    """Removes comments and trailing commas outside of strings."""
    plain = _SKIPPED.sub(lambda found: found[1] or " ", text)
    return _COMMA.sub(lambda found: found[1] or "", plain)


# Converts servers of other MCP clients to entries of forge.yaml. Values of secrets are not taken over.


_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_KNOWN = frozenset(("command", "args", "env", "cwd", "url", "serverUrl", "headers", "type", "transport", "disabled"))
_APPROVALS = ("autoApprove", "alwaysAllow")
_SSE = ("sse",)
_HTTP = ("http", "streamable-http", "streamableHttp", "streamable_http")


class Converter:
    """Converts the servers of one file. `inputs` are the questions of VS Code, by id."""

    def __init__(self, workspace: Path, inputs: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._workspace = workspace
        self._inputs = inputs or {}
        self._values: dict[str, str] = {}  # of variables that take the place of a secret
        self._server = ""
        self._notes: list[str] = []

    def convert(self, name: str, said: Any) -> ServerPlan:
        """Returns the plan of a server. Its notes say what was changed or left out."""
        self._server, self._notes = name, []
        given: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
        entry = (
            self._convert_remote(given) if given.get("url") or given.get("serverUrl") else self._convert_program(given)
        )
        if given.get("disabled") is True:
            entry["disabled"] = True
        for key in given:
            if key in _APPROVALS:
                rule = f"allow tool:{safe_name(name)}__TOOL"
                self._note(f"{key} is left out: write permission rules such as `{rule}`")
            elif key not in _KNOWN:
                self._note(f"{one_line(key, 60)} is left out: Forge has no such setting")
        if safe_name(name) != name:
            self._note(f"it is called {one_line(name, 100)} there")
        return ServerPlan(safe_name(name), entry, notes=tuple(dict.fromkeys(self._notes)))

    def _convert_program(self, given: Mapping[str, Any]) -> dict[str, Any]:
        words = [self._fill(str(one)) for one in (given.get("command", ""), *_listed(given.get("args")))]
        if [one.lower() for one in words[:2]] == ["cmd", "/c"]:  # how Windows starts npx
            words = words[2:]
        program, *arguments = self._hide_arguments(words) or [""]
        entry: dict[str, Any] = {"command": program}
        if arguments:
            entry["args"] = arguments
        environment = {str(key): self._hide(str(key), self._fill(str(one))) for key, one in _items(given.get("env"))}
        if environment:
            entry["env"] = environment
        if isinstance(given.get("cwd"), str):
            entry["cwd"] = self._fill(given["cwd"])
        if outside := [one for one in arguments if self._is_folder_outside(one)]:
            entry["roots"] = [{"path": one, "access": "write"} for one in dict.fromkeys(outside)]
        return entry

    def _convert_remote(self, given: Mapping[str, Any]) -> dict[str, Any]:
        url = self._fill(str(given.get("url") or given.get("serverUrl")))
        entry: dict[str, Any] = {"url": self._take("URL", url) if _looks_secret(url) else url}
        headers = {
            str(key): self._hide_header(str(key), self._fill(str(one))) for key, one in _items(given.get("headers"))
        }
        if headers:
            entry["headers"] = headers
        kind = str(given.get("type") or given.get("transport") or "")
        if kind in _SSE:
            entry |= {"type": "sse", "disabled": True}
            self._note("it speaks the old SSE transport, which Forge does not support: it is added as disabled")
        elif kind and kind not in _HTTP:
            self._note(f"its type {one_line(kind, 40)} is left out")
        return entry

    def _fill(self, text: str) -> str:
        """Rewrites references: ${env:NAME}, ${input:ID}, ${workspaceFolder}, ${userHome}."""
        return _REFERENCE.sub(self._refer, text)

    def _refer(self, found: re.Match[str]) -> str:
        kind, colon, name = found[1].partition(":")
        match kind:
            case "env" if colon:
                return f"${{{name}}}"
            case "input" if colon:
                return self._refer_to_input(name)
            case "workspaceFolder" | "workspaceRoot":
                return "."
            case "userHome":
                return "${HOME}"
            case "pathSeparator" | "/":
                return "/"
        if not re.fullmatch(rf"{VARIABLE}(:-[^}}]*)?", found[1]):
            self._note(f"${{{one_line(found[1], 60)}}} means nothing to Forge; change it by hand")
        return found[0]

    def _refer_to_input(self, name: str) -> str:
        variable = re.sub(r"\W+", "_", name).strip("_").upper() or "INPUT"
        asked = one_line(self._inputs.get(name, {}).get("description", ""), 200)
        self._note(f"set the variable {variable} before Forge starts{f': {asked}' if asked else ''}")
        return f"${{{variable}}}"

    def _hide_arguments(self, words: list[str]) -> list[str]:
        """Replaces secrets on a command line by variables."""
        secret = {value for value in find_secret_values(words) if value and "${" not in value}
        hidden = []
        for index, word in enumerate(words):
            option, assigned, value = word.partition("=")
            if assigned and value in secret:
                hidden.append(f"{option}={self._take(option, value)}")
            elif word in secret or (index and _looks_secret(word)):
                hidden.append(self._take(words[index - 1] if words[index - 1].startswith("-") else "SECRET", word))
            else:
                hidden.append(word)
        return hidden

    def _hide(self, name: str, value: str) -> str:
        """Replaces the value of a variable by a reference, if it is a secret."""
        if "${" in value or not value or not (is_secret(name) or _looks_secret(value)):
            return value
        return self._take(name, value, is_variable=True)

    def _hide_header(self, name: str, value: str) -> str:
        if "${" in value or not (is_secret(name) or _looks_secret(value)):
            return value
        scheme, space, token = value.partition(" ")
        return f"{scheme} {self._take('TOKEN', token)}" if space and token else self._take(name, value)

    def _take(self, name: str, value: str, *, is_variable: bool = False) -> str:
        """Returns a reference to a variable that a person has to set to this value."""
        plain = re.sub(r"\W+", "_", name).strip("_").upper()
        prefixed = f"{re.sub(r'[^A-Za-z0-9]+', '_', self._server).strip('_').upper()}_{plain}"
        variable = name if is_variable and self._values.get(name, value) == value else prefixed
        self._values[variable] = value
        self._note(f"its secret is not copied: set the variable {variable} before Forge starts")
        return f"${{{variable}}}"

    def _is_folder_outside(self, argument: str) -> bool:
        """Returns whether an argument names a folder that the sandbox would hide."""
        if not os.path.isabs(argument) or not os.path.isdir(argument):
            return False
        inside = os.path.realpath(self._workspace)
        return os.path.commonpath([inside, os.path.realpath(argument)]) != inside

    def _note(self, text: str) -> None:
        self._notes.append(f"{one_line(self._server, 60)}: {text}")


def _looks_secret(text: str) -> bool:
    return "${" not in text and Secrets().mask_all(text) != text


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _items(value: Any) -> list[tuple[Any, Any]]:
    return [(key, one) for key, one in value.items() if one is not None] if isinstance(value, Mapping) else []
