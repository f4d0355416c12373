"""The optional parts of an installation: what each extra is for, whether it is installed, and how to install it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from json import loads
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from forge.core.errors import ErrorKind, ToolError

DISTRIBUTION = "forge-tools"


class Extra(NamedTuple):
    """An extra: its use, and the modules that it brings."""

    purpose: str
    modules: tuple[str, ...]


EXTRAS = {
    "mcp": Extra("MCP servers, mcp_call, forge serve", ("mcp", "mcp_types", "starlette", "uvicorn")),
    "acp": Extra("forge acp, the agent in an editor", ("acp",)),
    "agui": Extra("front ends that speak AG-UI, forge serve --agui", ("ag_ui", "starlette", "uvicorn")),
    "terminal": Extra("the input line of a conversation, coloured code", ("prompt_toolkit", "pygments")),
    "web": Extra("web_fetch, which reads web pages", ("html_to_markdown", "selectolax")),
    "durable": Extra("durable runs, forge worker, forge runs", ("dbos", "sqlalchemy", "psycopg")),
    "console": Extra("forge console", ("starlette", "uvicorn", "dbos", "sqlalchemy", "psycopg")),
    "chats": Extra("forge listen, which receives from Slack and Telegram", ("uvicorn", "websockets")),
    "secrets": Extra("secrets that programs use and never hold, and the system's keyring", ("cryptography", "keyring")),
    "guardrails": Extra("guardrails that redact only the matching part", ("re2",)),
    "code": Extra("run_code, which runs scripts that call tools", ("pydantic_monty",)),
    "memory": Extra("search of memories by meaning", ("numpy", "safetensors", "tokenizers")),
    "local": Extra("a model in this process, local:PATH", ("xllamacpp",)),
    "vertex": Extra("Google Cloud's credentials, for vertex:MODEL", ("google.auth", "requests")),
    "bedrock": Extra("AWS credentials, for bedrock:MODEL", ("botocore",)),
    "azure": Extra("Entra ID tokens, for azure:DEPLOYMENT", ("azure.identity", "msal")),
    "otel": Extra("OpenTelemetry spans", ("opentelemetry",)),
    "langchain": Extra("forge.frameworks.langchain", ("langchain_core",)),
    "openai-agents": Extra("forge.frameworks.openai_agents", ("agents",)),
    "pydantic-ai": Extra("forge.frameworks.pydantic_ai", ("pydantic_ai",)),
}
"""The extras of pyproject.toml that a user chooses from. `all` is all of them."""


def find_missing(extra: str) -> list[str]:
    """Returns the modules of an extra that are not installed. Looks each time: a package may be installed meanwhile."""
    return [name for name in EXTRAS[extra].modules if not _is_there(name)]


def is_installed(extra: str) -> bool:
    return not find_missing(extra)


def check_extra(extra: str, attempt: str) -> None:
    """Raises `ToolError` if an extra is not installed. `attempt` begins the message: "durable runs cannot be used"."""
    if missing := find_missing(extra):
        raise missing_extra(extra, attempt, missing)


def missing_extra(extra: str, attempt: str, missing: list[str]) -> ToolError:
    """Returns the error of a feature whose extra is not installed."""
    message = f"{attempt}: the extra {extra!r} is not installed ({', '.join(missing)} missing)"
    return ToolError(message, ErrorKind.CONFIG, f"Install it with: {install_command(extra)}")


def missing_module(extra: str, attempt: str, name: str | None) -> ModuleNotFoundError:
    """Returns the error of a module that cannot be imported without an extra. `name` is the module that is missing."""
    error = missing_extra(extra, attempt, [(name or extra).partition(".")[0]])
    return ModuleNotFoundError(f"{error.message}. {error.suggestion}", name=name)


def install_command(extra: str) -> str:
    """Return the command that installs an extra into this environment, from where Forge itself was installed."""
    from shlex import quote  # needed only where something is missing

    if clone := _find_clone():
        return f"{install_program()} -e {quote(f'{clone}[{extra}]')}"
    return f"{install_program()} {quote(_requirement(extra))}"


def install_program() -> str:
    """Returns the command that installs packages into this environment: pip, or uv where there is no pip."""
    from shlex import quote
    from shutil import which

    found = which("pip")
    own = os.path.dirname(os.path.abspath(sys.executable))
    if not sys.executable or (found and os.path.dirname(os.path.abspath(found)) == own):
        return "pip install"  # the one that a shell finds is this environment's
    if _is_there("pip"):
        return f"{quote(sys.executable)} -m pip install"
    return f"uv pip install --python {quote(sys.executable)}"


def _requirement(extra: str) -> str:
    """Return what pip calls Forge with an extra: a folder, a file, an address, or a name in an index."""
    from importlib.metadata import distributions

    beside = os.path.abspath(os.path.join(__file__, "..", "..", ".."))
    found = next(iter(distributions(name=DISTRIBUTION, path=[beside])), None)
    try:
        source = loads((found and found.read_text("direct_url.json")) or "{}")  # of PEP 610
    except ValueError:
        source = {}
    url = source.get("url", "")
    if not url:
        return f"{DISTRIBUTION}[{extra}]"
    if "dir_info" in source:
        return f"{unquote(urlsplit(url).path)}[{extra}]"
    system = source.get("vcs_info", {}).get("vcs", "")
    return f"{DISTRIBUTION}[{extra}] @ {system}{'+' if system else ''}{url}"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # an import hook refuses it, or it is half removed
        return False


def _find_clone() -> str:
    """Returns the folder of the clone that this code runs from; empty if it was installed from a wheel."""
    folder = os.path.abspath(os.path.join(__file__, "..", "..", "..", ".."))
    try:
        with open(os.path.join(folder, "pyproject.toml"), encoding="utf-8") as file:
            return folder if f'name = "{DISTRIBUTION}"' in file.read() else ""
    except (OSError, UnicodeDecodeError):
        return ""
