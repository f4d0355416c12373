"""Reads a registry's document of a server (server.json) and plans the server that it describes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.project.servers.plan import ServerPlan
from forge.sources.untrusted import one_line

KINDS = ("npm", "pypi", "remote", "oci")
MOST = 50  # packages, remotes, arguments or variables that are read
_PLACE = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


class RegistryServer(NamedTuple):
    """A server of a registry, with texts that are safe to show."""

    name: str
    version: str
    description: str
    kinds: tuple[str, ...]  # of `KINDS`; how it can be used here
    document: Mapping[str, Any]


def read_document(document: Any) -> RegistryServer:
    """Reads a document, also one that a registry wraps as `{"server": …}`. Raises `ToolError`."""
    inner = document.get("server", document) if isinstance(document, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise _unusable("it has no name", "Name a server.json of an MCP registry.")
    return RegistryServer(
        one_line(inner["name"], 200),
        one_line(inner.get("version", ""), 60),
        one_line(inner.get("description", ""), 300),
        tuple(dict.fromkeys(kind for kind, _ in _list_ways(inner))),
        inner,
    )


def plan_document(server: RegistryServer, name: str, values: Mapping[str, str], kind: str = "") -> ServerPlan:
    """Plans the entry of a server; its package is not pinned yet. `values` answer what the document asks for.

    Raises `ToolError` if it cannot be used here, or asks for a value that is missing.
    """
    ways = list(_list_ways(server.document))
    chosen = sorted((way for way in ways if kind in ("", way[0])), key=lambda way: KINDS.index(way[0]))
    if not chosen:
        offered = ", ".join(_list_kinds(server.document)) or "nothing"
        raise _unusable(
            f"{server.name} offers {offered}" + (f", and no {kind}" if kind else ""),
            "Forge uses packages of npm, PyPI and OCI that speak over stdio, and URLs with streamable-http.",
        )
    way, part = chosen[0]
    answers = _Answers(values)
    entry = _plan_remote(part, answers) if way == "remote" else _plan_package(way, part, answers)
    answers.check(server.name)
    others = [one for one, _ in chosen[1:] if one != way]
    notes = [*answers.notes, *([f"It is also offered as {', '.join(dict.fromkeys(others))}."] if others else [])]
    return ServerPlan(name, entry, notes=tuple(notes))


def _list_ways(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for package in _mappings(document.get("packages")):
        transport = package.get("transport")
        over = transport.get("type", "stdio") if isinstance(transport, Mapping) else "stdio"
        if package.get("registryType") in ("npm", "pypi", "oci") and over == "stdio":
            yield str(package["registryType"]), package
    for remote in _mappings(document.get("remotes")):
        if remote.get("type") in ("streamable-http", "http"):
            yield "remote", remote


def _list_kinds(document: Mapping[str, Any]) -> list[str]:
    packages = [one_line(one.get("registryType", "?"), 30) for one in _mappings(document.get("packages"))]
    return [*packages, *(one_line(one.get("type", "?"), 30) for one in _mappings(document.get("remotes")))]


class _Answers:
    """Answers what a document asks for, and notes what is missing or left out."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.used: set[str] = set()
        self.missing: list[str] = []
        self.notes: list[str] = []

    def find(self, name: str, asked: Mapping[str, Any], *, is_variable: bool = False) -> str | None:
        """Returns a value, a reference to a variable of the environment, or None for an optional one."""
        if name in self.values:
            self.used.add(name)
            if asked.get("isSecret"):
                raise _unusable(f"{name} is a secret, and would be written into forge.yaml", f"Omit --set {name}.")
            return self.values[name]
        fixed = asked.get("value")
        if isinstance(fixed, str):
            return self._fill(fixed, asked)
        said = one_line(asked.get("description", ""), 200)
        default = asked.get("default")
        if asked.get("isSecret") or is_variable:
            variable = name if is_variable else re.sub(r"\W+", "_", name).strip("_").upper()
            if asked.get("isRequired") or asked.get("isSecret"):
                self.notes.append(f"Set the variable {variable} before Forge starts: {said or 'it is required'}")
                return f"${{{variable}}}"
            if default is not None:
                return f"${{{variable}:-{_plain_default(default)}}}"
        elif default is not None:
            return str(default)
        elif asked.get("isRequired"):
            self.missing.append(f"--set {name}=VALUE ({said or 'required'})")
            return None
        self.notes.append(f"Optional, left out: {name}{f' ({said})' if said else ''}")
        return None

    def _fill(self, text: str, asked: Mapping[str, Any]) -> str:
        """Fills the places {name} of a text."""
        variables = asked.get("variables")
        known = variables if isinstance(variables, Mapping) else {}

        def fill(match: re.Match[str]) -> str:
            of = known.get(match[1])
            if not isinstance(of, Mapping):
                return match[0]
            return self.find(match[1], {"isRequired": True, **of}) or ""

        return _PLACE.sub(fill, text)

    def check(self, server: str) -> None:
        if self.missing:
            raise _unusable(f"{server} asks for values", f"Add {'; '.join(self.missing)}.")
        if unknown := sorted(set(self.values) - self.used):
            raise _unusable(f"{server} asks for no {', '.join(unknown)[:200]}", "Remove this --set.")


def _plan_package(kind: str, package: Mapping[str, Any], answers: _Answers) -> dict[str, Any]:
    name, version = str(package.get("identifier", "")), str(package.get("version", ""))
    arguments = list(_read_arguments(package.get("packageArguments"), answers))
    environment = {
        key: value
        for one in _mappings(package.get("environmentVariables"))
        if (key := str(one.get("name", ""))) and (value := answers.find(key, one, is_variable=True)) is not None
    }
    runtime = list(_read_arguments(package.get("runtimeArguments"), answers))
    if kind == "oci":
        return _plan_image(name, version, runtime, arguments, environment)
    if runtime := [one for one in runtime if one not in ("-y", "--yes")]:
        answers.notes.append(f"Left out: the options {' '.join(runtime)[:300]} of its own starter")
    words = ["npx", "-y", f"{name}@{version}" if version else name]
    if kind == "pypi":
        words = ["uvx", "--from", f"{name}=={version}" if version else name, name]
    return {"command": words[0], "args": [*words[1:], *arguments], **({"env": environment} if environment else {})}


def _plan_image(
    image: str, version: str, runtime: list[str], arguments: list[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Plans a container: it is a sandbox of its own, and its starter cannot run in ours."""
    whole = image if not version or ":" in image.rpartition("/")[2] or "@" in image else f"{image}:{version}"
    named = [word for name in environment for word in ("-e", name)]
    words = ["run", "-i", "--rm", *named, *[one for one in runtime if one not in ("run", "-i", "--rm")], whole]
    return {
        "command": "docker",
        "args": [*words, *arguments],
        **({"env": dict(environment)} if environment else {}),
        "sandbox": "off",
    }


def _plan_remote(remote: Mapping[str, Any], answers: _Answers) -> dict[str, Any]:
    url = answers.find("url", {"value": remote.get("url", ""), "variables": remote.get("variables")})
    headers = {
        key: value
        for one in _mappings(remote.get("headers"))
        if (key := str(one.get("name", ""))) and (value := answers.find(key, one)) is not None
    }
    return {"url": url, **({"headers": headers} if headers else {})}


def is_pinned_image(image: str) -> bool:
    """Tells whether an image is named by its digest."""
    return _DIGEST.search(image) is not None


def _read_arguments(listed: Any, answers: _Answers) -> Iterable[str]:
    for one in _mappings(listed):
        name = str(one.get("name", "") or one.get("valueHint", ""))
        is_named = one.get("type") == "named"
        if is_named and not any(key in one for key in ("value", "default", "isRequired", "isSecret", "valueHint")):
            yield name  # a flag
            continue
        value = answers.find(name.lstrip("-") or "argument", one)
        if value is not None:
            yield from (name, value) if is_named else (value,)


def _mappings(listed: Any) -> list[Mapping[str, Any]]:
    found = listed[:MOST] if isinstance(listed, list) else []
    return [one for one in found if isinstance(one, Mapping)]


def _plain_default(value: Any) -> str:
    return str(value).replace("}", "")


def _unusable(problem: str, advice: str) -> ToolError:
    return ToolError(f"the registry's document cannot be used: {problem}", ErrorKind.USER, advice)
