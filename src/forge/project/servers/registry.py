"""Reads documents of MCP servers (server.json) from a file, a URL or a registry, and plans the servers."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.untrusted import one_line
from forge.core.yaml import Unreadable, bounded_text
from forge.mcp.programs.installer import run_installer, scratch_folder
from forge.network.client import fetch
from forge.network.egress import Egress
from forge.network.headers import RequestLimits
from forge.project.servers.plan import URL, ServerPlan

VARIABLE = "FORGE_MCP_REGISTRY"
DEFAULT = "https://registry.modelcontextprotocol.io"
LARGEST_ANSWER = 4 * 1024 * 1024  # bytes of an answer
MOST_SERVERS = 100  # servers of one answer
_LIMITS = RequestLimits(read=20.0, total=30.0, size=LARGEST_ANSWER)


def registry_url(given: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """Returns the URL of the registry: as given, of the variable FORGE_MCP_REGISTRY, or the official one."""
    return (given or environment.get(VARIABLE, "") or DEFAULT).rstrip("/")


async def search_registry(word: str, registry: str, *, limit: int = 20) -> list[RegistryServer]:
    """Returns the newest versions of servers whose name contains a word. Raises `ToolError`."""
    query = urlencode({"search": word, "version": "latest", "limit": min(limit, MOST_SERVERS)})
    answer = await _get(f"{registry}/v0/servers?{query}")
    listed = answer.get("servers") if isinstance(answer, Mapping) else None
    if not isinstance(listed, list):
        raise _failed(registry, "it answered without a list of servers")
    found = []
    for one in listed[:limit]:
        try:
            found.append(read_document(one))
        except ToolError:  # one bad document does not affect the others
            continue
    return found


async def load_document(where: str, registry: str) -> RegistryServer:
    """Loads the document of a server: from a file, a URL, or by its name in the registry. Raises `ToolError`."""
    if URL.match(where):
        return read_document(await _get(where))
    if where.endswith(".json") or where.startswith((".", "/")):
        found: RegistryServer = await in_thread(lambda: _read_file(Path(where)))
        return found
    return read_document(await _get(f"{registry}/v0/servers/{quote(where, safe='')}/versions/latest"))


def _read_file(path: Path) -> RegistryServer:
    try:
        return read_document(json.loads(bounded_text(path, LARGEST_ANSWER)))
    except (Unreadable, ValueError, RecursionError) as error:
        raise ToolError(
            f"{path} cannot be read: {str(error)[:300]}", ErrorKind.USER, "Name a server.json of an MCP registry."
        ) from None


async def _get(url: str) -> Any:
    """Returns the JSON at a URL that a person named; only its own server is asked."""
    answer = await fetch(
        "GET", url, headers={"accept": "application/json"}, egress=Egress.only(url), limits=_LIMITS, follow="same-host"
    )
    if answer.status == 404:
        raise _failed(url, "there is no such server", "Find it with `forge mcp search WORD`.")
    if answer.status != 200:
        raise _failed(url, f"the server answered {answer.status}")
    if answer.truncated:
        raise _failed(url, f"the answer has more than {LARGEST_ANSWER // 1024 // 1024} MiB")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise _failed(url, "the answer is not JSON") from None


def _failed(url: str, problem: str, advice: str = "") -> ToolError:
    return ToolError(
        f"{url[:200]} cannot be used: {problem}",
        ErrorKind.USER,
        advice or f"Name another registry with --registry or {VARIABLE}.",
    )


# Reads a registry's document of a server (server.json) and plans the server that it describes.


KINDS = ("npm", "pypi", "remote", "oci")
MOST_ENTRIES = 50  # packages, remotes, arguments or variables that are read
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
    """Returns whether an image is named by its digest."""
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
    found = listed[:MOST_ENTRIES] if isinstance(listed, list) else []
    return [one for one in found if isinstance(one, Mapping)]


def _plain_default(value: Any) -> str:
    return str(value).replace("}", "")


def _unusable(problem: str, advice: str) -> ToolError:
    return ToolError(f"the registry's document cannot be used: {problem}", ErrorKind.USER, advice)


# Pins the image of a server that runs in a container.


_STARTER = "docker"


async def pin_image(plan: ServerPlan) -> ServerPlan:
    """Names the image of a container by its digest; another entry stays as it is. Raises `ToolError`."""
    words = list(plan.entry.get("args", ()))
    if plan.entry.get("command") != _STARTER or words[:1] != ["run"]:
        return plan
    starter = shutil.which(_STARTER) or shutil.which("podman")
    if starter is None:
        raise ToolError(
            "a server in a container needs docker or podman, and neither is installed",
            ErrorKind.CONFIG,
            "Install one of them, or choose another offer with --kind.",
        )
    place = next((index for index, word in enumerate(words) if index > 2 and _is_image(words, index)), -1)
    image = words[place]
    if not is_pinned_image(image):
        with scratch_folder() as folder:
            await run_installer([starter, "pull", "--quiet", image], folder)
            said = await run_installer(
                [starter, "image", "inspect", "--format", "{{index .RepoDigests 0}}", image], folder
            )
        words[place] = said.strip()
    if not is_pinned_image(words[place]):
        raise ToolError(
            f"the image {image[:200]} cannot be pinned: it has no digest",
            ErrorKind.USER,
            "Name it with its digest: IMAGE@sha256:…",
        )
    entry = {**plan.entry, "command": starter.rpartition("/")[2], "args": words}
    return plan._replace(entry=entry, notes=(*plan.notes, "It runs in a container, outside Forge's sandbox."))


def _is_image(words: list[str], index: int) -> bool:
    return not words[index].startswith("-") and words[index - 1] not in ("-e", "-v", "--mount", "--env", "--network")
