"""Reads what an editor sends: lines of bounded length, prompts, folders and MCP servers. Nothing of it is trusted."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import RequestError
from acp.helpers import ContentBlock
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    HttpMcpServer,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    TextContentBlock,
)

from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.messages import Message
from forge.core.plain_values import visible
from forge.core.provider import NotSetUp
from forge.core.result import Attachment, recognise_any, recognise_file
from forge.doors.open_session import OpenSession
from forge.models.vendors import setup_advice
from forge.process.running.standard_streams import InputLines, OutputLines
from forge.project.config.sources import McpEntry
from forge.project.runs.sessions import session_store
from forge.workspace.reading import read_attachments
from forge.workspace.state import NAME as STATE

MOST_LINE = 48 * 1024 * 1024  # bytes of one message: 20 MB of images, as base64
MOST_REQUESTS = 100  # of the editor that wait for their answer
MOST_SERVERS = 50  # MCP servers of one session
MOST_BLOCKS = 1_000  # parts of one prompt
UNROUTED = frozenset({"session/delete"})  # the SDK has no routes for these methods: they arrive as extensions


class LineTransport:
    """Messages of an editor, one a line. A line that is no message is answered with an error, and skipped.

    Requests beyond a limit are refused. An editor that does not read delays the sender, never the event loop.
    """

    def __init__(self, given: int, taken: int) -> None:
        self._lines, self._output = InputLines(given, MOST_LINE), OutputLines(taken)
        self._requests: dict[int | str | None, int] = {}  # of the editor that have no answer yet
        self._reading: asyncio.Task[Any] | None = None

    async def receive(self) -> dict[str, Any] | None:
        while True:
            self._reading = asyncio.current_task()
            try:
                line = None if self._output.is_closed else await self._lines.next()
            finally:
                self._reading = None
            if line is None:
                return None
            if len(line) > MOST_LINE:
                await self._complain(-32600, f"A message may have at most {MOST_LINE:,} bytes.")
                continue
            if line.strip() and (message := await self._parse(line)) is not None:
                return message

    async def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            await self._complain(-32700, "The line is not JSON.")
            return None
        id_ = message.get("id") if isinstance(message, dict) else None
        if not isinstance(message, dict) or isinstance(id_, bool) or not isinstance(id_, int | str | None):
            await self._complain(-32600, "The line is not a JSON-RPC message.")
            return None
        if "method" not in message:
            if "error" in message and not isinstance(message["error"], dict):
                message["error"] = {"message": "an error without words"}
            return message if "id" in message else None
        if not isinstance(message["method"], str):
            await self._complain(-32600, "The method of a message is a text.", id_)
            return None
        if "id" in message:
            if sum(self._requests.values()) >= MOST_REQUESTS:
                await self._complain(-32000, f"{MOST_REQUESTS} requests wait for their answer already.", id_)
                return None
            self._requests[id_] = self._requests.get(id_, 0) + 1
        if isinstance(params := message.get("params"), dict):
            params.pop("_meta", None)  # the SDK would use its keys as arguments, unchecked and instead of the real ones
        if message["method"] in UNROUTED:
            message["method"] = f"_{message['method']}"
        return message

    async def send(self, message: Mapping[str, Any]) -> None:
        if "method" not in message and (count := self._requests.pop(message.get("id"), 0)) > 1:
            self._requests[message.get("id")] = count - 1
        line = f"{json.dumps(message, ensure_ascii=False, separators=(',', ':'))}\n".encode("utf-8", "replace")
        await self._output.write(line)

    async def close(self) -> None:
        self.close_soon()
        self._output.cancel()

    def close_soon(self) -> None:
        """Ends the connection: no message is read any more, and only those that are under way are written."""
        self._output.close()
        if self._reading is not None:
            self._reading.cancel()

    async def _complain(self, code: int, message: str, id_: int | str | None = None) -> None:
        with suppress(ConnectionError):
            await self.send({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}})


# Errors.


def invalid(problem: str, hint: str) -> RequestError:
    """Returns the error of a request that cannot be used."""
    return RequestError(-32602, f"{problem}. {hint}", {"details": problem, "hint": hint})


@contextmanager
def errors(doing: str) -> Iterator[None]:
    """Turns an error into the answer that an editor shows: what was tried, what went wrong, what to do next."""
    try:
        yield
    except (NotSetUp, ToolError) as error:
        data = {"details": f"{doing}: {error.message}", "hint": error.suggestion}
        if isinstance(error, NotSetUp) or error.message == setup_advice():
            raise RequestError(-32000, f"Authentication required: {error.message}", data) from None
        code = -32002 if error.kind is ErrorKind.NOT_FOUND else -32603
        if error.kind in (ErrorKind.USER, ErrorKind.VALIDATION, ErrorKind.CONFIG):
            code = -32602
        raise RequestError(
            code, " ".join(filter(None, (f"{doing}: {error.message}.", error.suggestion))), data
        ) from None
    except (DefinitionError, ValueError) as error:
        raise RequestError(-32602, f"{doing}: {error}", {"details": str(error)}) from None


# Folders, servers and prompts.


def check_folder(path: str) -> Path:
    """Returns the directory of a session. Raises `RequestError`."""
    folder = Path(path)
    if not path or "\0" in path or not folder.is_absolute():
        raise invalid(f"opening a session in {visible(path[:200])!r}: this is no absolute path", "Send one as cwd.")
    if not folder.is_dir():
        raise invalid(f"opening a session in {visible(path[:200])!r}: there is no such directory", "Send another cwd.")
    return folder.resolve()


def check_stored(folder: Path, name: str) -> None:
    """Raises `ToolError` if there is no such session."""
    if not (folder / STATE).is_dir():
        message = f"there is no session {visible(name[:60])!r} in {folder}"
        raise ToolError(message, ErrorKind.NOT_FOUND, "Open a new one with session/new.")
    with session_store(folder) as store:
        store.show(name)


def read_servers(servers: Sequence[Any], taken: Mapping[str, object]) -> dict[str, McpEntry]:
    """Returns the MCP servers of the editor as entries of forge.yaml, by names that are free. Raises `ToolError`."""
    if len(servers) > MOST_SERVERS:
        message = f"{len(servers)} MCP servers were sent, the limit is {MOST_SERVERS}"
        raise ToolError(message, ErrorKind.VALIDATION, "Send fewer.")
    found: dict[str, McpEntry] = {}
    for server in servers:
        name = base = re.sub(r"[^A-Za-z0-9]+", "-", server.name).strip("-")[:24].rstrip("-")
        name = base = base if base[:1].isalpha() else f"editor-{base}".rstrip("-")
        number = 1
        while name in found or name in taken:
            number += 1
            name = f"{base}-{number}"
        if isinstance(server, McpServerStdio):
            variables = {one.name: one.value for one in server.env}
            found[name] = McpEntry(program=server.command, args=tuple(server.args), environment=variables)
        elif isinstance(server, HttpMcpServer):
            found[name] = McpEntry(url=server.url, plain_headers={one.name: one.value for one in server.headers})
        else:
            message = f"the MCP server {visible(server.name[:60])!r} has a transport that cannot be used"
            raise ToolError(message, ErrorKind.VALIDATION, "Use stdio or http.")
    return found


def read_blocks(blocks: Sequence[ContentBlock], session: OpenSession) -> str | Message:
    """Returns a prompt: its text, and what is attached to it. Raises `ToolError`."""
    if len(blocks) > MOST_BLOCKS:
        message = f"the prompt has {len(blocks)} parts, the limit is {MOST_BLOCKS}"
        raise ToolError(message, ErrorKind.VALIDATION, "Send fewer.")
    words: list[str] = []
    files: list[Attachment] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                words.append(block.text)
            case ImageContentBlock():
                files.append(recognise_file("image/*", _decode(block.data), block.uri or "image"))
            case AudioContentBlock():
                files.append(recognise_file("audio/*", _decode(block.data), "sound"))
            case ResourceContentBlock():
                words.append(_name_resource(block.uri, block.name, session))
            case EmbeddedResourceContentBlock():
                resource = block.resource
                words.append(name := _name_resource(resource.uri, "", session))
                if isinstance(resource, BlobResourceContents):
                    files.append(recognise_any(_decode(resource.blob), resource.uri))
                else:
                    files.append(Attachment("text/plain", resource.text.encode("utf-8", "replace"), name.lstrip("@")))
    text = "".join(words)
    if not text.strip() and not files:
        raise ToolError("the prompt is empty", ErrorKind.VALIDATION, "Say what to do.")
    return Message("user", text, attachments=read_attachments(session.agent.scope, files)) if files else text


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ToolError("a part of the prompt is not base64", ErrorKind.VALIDATION, "Encode it again.") from None


def _name_resource(uri: str, name: str, session: OpenSession) -> str:
    """Returns how a prompt names a resource: a file of the workspace by its path, others by their URI."""
    parts = urlsplit(uri) if len(uri) <= 4096 else None
    if parts is not None and parts.scheme == "file":
        path = Path(unquote(parts.path))
        with suppress(ValueError):
            return f"@{path.relative_to(session.project.workspace)}"
        return f"@{path}"
    return f"[{name}]({uri[:4096]})" if name else uri[:4096]
