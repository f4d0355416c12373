"""Reserves the standard streams; answers a client's first message before the SDK is loaded, which takes a second."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from forge.process.running.standard_streams import await_file

TASKS = "io.modelcontextprotocol/tasks"  # the extension
INSTRUCTIONS = (
    "The tools of a project. Some calls need a person's approval: the person is asked if this client can ask,"
    " otherwise the call is refused. A refusal names the rule that would allow the call."
)
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
LONGEST_MESSAGE = 64 * 1024  # bytes of a first message; a longer one is left to the SDK
_META = "io.modelcontextprotocol/"


class FirstAnswer(NamedTuple):
    """The bytes read so far, which the SDK's server reads again, and the request that was answered already."""

    read: bytes = b""
    request: int | str | None = None
    result: Mapping[str, Any] | None = None


def list_capabilities(*, resources: bool, prompts: bool, modern: bool) -> dict[str, Any]:
    """Returns the same as the SDK's server declares: a test compares."""
    found: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
    found |= {"extensions": {TASKS: {}}} if modern else {}
    found |= {"resources": {"subscribe": True, "listChanged": True}} if resources else {}
    found |= {"prompts": {"listChanged": True}} if prompts else {}
    return found | ({"completions": {}} if resources or prompts else {})


async def answer_first(
    given: int, taken: int, name: str, version: str, *, resources: bool = False, prompts: bool = False
) -> FirstAnswer:
    """Reads the first message, and answers `initialize` or `server/discover`. Leaves other messages to the SDK."""
    read = b""
    while b"\n" not in read and len(read) <= LONGEST_MESSAGE:
        try:
            await await_file(given)
        except PermissionError:  # a file or the null device: the system cannot poll it
            return FirstAnswer(read)
        piece = os.read(given, LONGEST_MESSAGE)
        if not piece:
            return FirstAnswer(read)
        read += piece
    request, result = _answer(read.partition(b"\n")[0], {"name": name, "version": version})
    if result is not None:
        modern = "supportedVersions" in result
        result["capabilities"] = list_capabilities(resources=resources, prompts=prompts, modern=modern)
    if result is None:
        return FirstAnswer(read)
    line = json.dumps({"jsonrpc": "2.0", "id": request, "result": result}).encode() + b"\n"
    try:
        while line:  # a new pipe has room for it
            line = line[os.write(taken, line) :]
    except OSError:
        return FirstAnswer(read)  # the client is gone; the server notices
    return FirstAnswer(read, request, result)


def _answer(line: bytes, server: dict[str, str]) -> tuple[int | str | None, dict[str, Any] | None]:
    """Returns the id and the result of a request that is surely valid."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None, None
    request, params = message.get("id"), message.get("params")
    if not isinstance(request, int | str) or isinstance(request, bool) or not isinstance(params, dict):
        return None, None
    if message.get("method") == "initialize" and _is_client(params.get("clientInfo"), params.get("capabilities")):
        asked = params.get("protocolVersion")
        agreed = asked if asked in HANDSHAKES else HANDSHAKES[-1]
        return request, {"protocolVersion": agreed, "serverInfo": server, **_describe()} if isinstance(
            asked, str
        ) else None
    meta = params.get("_meta")
    if message.get("method") == "server/discover" and isinstance(meta, dict) and len(params) == 1:
        known = _is_client(meta.get(f"{_META}clientInfo"), meta.get(f"{_META}clientCapabilities"))
        if known and meta.get(f"{_META}protocolVersion") == MODERN:
            about = {"supportedVersions": [MODERN], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            return request, {**about, **_describe(), "_meta": {f"{_META}serverInfo": server}}
    return None, None


def _describe() -> dict[str, Any]:
    return {"capabilities": {}, "instructions": INSTRUCTIONS}


def _is_client(info: Any, capabilities: Any) -> bool:
    has_names = isinstance(info, dict) and all(isinstance(info.get(key), str) for key in ("name", "version"))
    return has_names and isinstance(capabilities, dict)
