"""The HTTP requests of a program that its proxy can read: plain ones, and those in TLS that the proxy ends.

They are forwarded one by one. Into those for a secret's hosts goes the value, which the program never holds; in the
answers the value's bytes become the placeholder again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol
from urllib.parse import unquote

import h11

from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.network.address import read_url
from forge.network.program_secrets import ProgramSecret, encode_basic
from forge.network.value_cover import ValueCover

log = logging.getLogger(__name__)

PIECE = 128 * 1024
IDLE_SECONDS = 3_600.0  # without a byte from a server
LONGEST_ANSWER_HEAD = 256 * 1024
MOST_UNWANTED = 16 * 1024**2  # bytes of a body that is read though its request was refused
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade".split()
)
_ANSWERED_HERE = b"expect"  # the proxy itself asks for the body
_UNSEARCHABLE = frozenset(  # they ask for parts of an answer, or for a compressed one, in which no value is found
    (b"range", b"if-range", b"accept-encoding", b"sec-websocket-extensions")
)
_NOT_FORWARDED = MappingProxyType(
    {
        b"TRACE": "its answer repeats all headers",
        b"TRACK": "its answer repeats all headers",
        b"CONNECT": "it would lead to another server",
    }
)
_LONGEST_HELD = 256  # characters beside a value in a header that are looked for together with it
_BASIC = re.compile(rb"(?i)basic\s+([a-z0-9+/=_-]+)\s*\Z")


class RefusedRequest(Exception):
    """A request that the proxy does not forward; the text says why."""

    status = 403


class UnusableAnswer(RefusedRequest):
    """An answer that the proxy does not pass on."""

    status = 502


class Wire(Protocol):
    """A connection: plain, or TLS."""

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...
    def end(self) -> None:
        """Says that nothing more is written."""

    def close(self) -> None: ...


class SocketWire:
    """A plain connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._is_ours = True

    async def read(self) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.socket, PIECE)

    async def write(self, data: bytes) -> None:
        if data:
            await asyncio.get_running_loop().sock_sendall(self.socket, data)

    def end(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def hand_over(self) -> socket.socket:
        """Returns the socket, for whoever closes it from now on."""
        self._is_ours = False
        return self.socket

    def close(self) -> None:
        if self._is_ours:
            self.socket.close()


class StreamWire:
    """A connection with TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(PIECE)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def end(self) -> None:
        self._writer.close()  # TLS has no half-closed connections that clients agree about

    def close(self) -> None:
        self._writer.close()

    async def close_whole(self) -> None:
        """Closes the connection and waits until its socket is gone, at most as long as TLS waits for the other side."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Exchange:
    """The requests that come over one connection, and the answers."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._http = h11.Connection(h11.SERVER)

    @property
    def goes_on(self) -> bool:
        """Returns whether the client may send another request."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return self._http.our_state is h11.IDLE

    @property
    def trailing(self) -> bytes:
        """The bytes that came after the request."""
        return self._http.trailing_data[0]

    async def next_request(self) -> h11.Request | None:
        """Returns the head of the next request; None if there is none. Raises `RefusedRequest` if it is no request."""
        try:
            event = await self._next_event()
        except h11.RemoteProtocolError as error:
            await self.refuse(error.error_status_hint, why := f"the request cannot be read: {error}")
            raise RefusedRequest(why) from None
        return event if isinstance(event, h11.Request) else None

    async def next_of_kept(self, upstream: Wire) -> h11.Request | None:
        """Returns the next request of a kept connection; None if there is none, or the server has ended its side: the
        client then connects again, as it would without us.
        """
        if self.trailing:  # it came together with the last one
            return await self.next_request()
        asked, ended = asyncio.ensure_future(self.next_request()), asyncio.ensure_future(upstream.read())
        try:
            await asyncio.wait((asked, ended), return_when=asyncio.FIRST_COMPLETED)
            return None if ended.done() else await asked
        finally:
            for one in (asked, ended):
                one.cancel()
            await asyncio.gather(asked, ended, return_exceptions=True)

    async def wait_gone(self) -> None:
        """Returns once the client has ended its connection. It never returns if the client sends a further request
        instead, or speaks no TLS: such a client may have ended only its own side.
        """
        if isinstance(self.wire, StreamWire) and not self.trailing:
            piece = await self.wire.read()
            self._http.receive_data(piece)
            if not piece:
                return
        await asyncio.Event().wait()

    async def read_body(self) -> bytes | None:
        """Returns a piece of the request's body; None at its end."""
        if self._http.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        event = await self._next_event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            return None
        raise RefusedRequest("the client ended in the middle of a request")

    async def send(self, event: h11.Event) -> None:
        if (data := self._http.send(event)) is not None:
            await self.wire.write(data)

    async def refuse(self, status: int, words: str) -> None:
        """Answers a request that is not forwarded, the last one here. The words are for readers of the program's
        output.
        """
        body = f"Forge: {words}\n".encode()
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
            headers.append(("connection", "close"))
            await self.send(h11.Response(status_code=status, headers=headers, reason=_reason(words)))
            await self.send(h11.Data(data=body))
            await self.send(h11.EndOfMessage())
        read = 0
        while self._http.their_state is h11.SEND_BODY and read < MOST_UNWANTED:  # else the client may be reset
            if (piece := await self.read_body()) is None:
                break
            read += len(piece)

    async def accept_connect(self) -> None:
        await self.send(h11.Response(status_code=200, headers=[]))

    def plain_origin(self, request: h11.Request) -> tuple[str, int]:
        """Returns host and port of a request in the form that proxies get."""
        url = read_url(request.target.decode("ascii", "replace"))
        if url.scheme != "http":
            raise RefusedRequest(f"the proxy forwards http, not {url.scheme}")
        return url.host, url.port

    async def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED] | None:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self.wire.read())


class SecretReader:
    """Reads the secrets of one program, each only once at a time: a command or a keyring may take a while."""

    def __init__(self, secrets: Iterable[ProgramSecret]) -> None:
        self.secrets = tuple(secrets)
        self._reading: dict[str, asyncio.Future[str]] = {}  # by the placeholder

    async def read(self, secret: ProgramSecret) -> str:
        """Returns the value as it is now. Raises `UnusableAnswer`."""
        if (reading := self._reading.get(secret.placeholder)) is None:
            reading = self._reading[secret.placeholder] = asyncio.ensure_future(in_thread(secret.read))
            reading.add_done_callback(lambda _: self._reading.pop(secret.placeholder))
        try:
            return await asyncio.shield(reading)
        except ToolError as error:
            raise UnusableAnswer(error.message) from None
        except Exception as error:  # whatever a keyring raises
            log.warning("the secret %s could not be read", secret.name, exc_info=True)
            raise UnusableAnswer(f"the secret {secret.name} could not be read: {type(error).__name__}") from None


async def forward_request(
    exchange: Exchange,
    request: h11.Request,
    upstream: Wire,
    origin: tuple[str, int],
    reader: SecretReader,
    count: Callable[[str, int], None],
    note: Callable[[str], None],
    *,
    scheme: str = "http",
    is_kept: bool = False,
) -> None:
    """Forwards one request and its answer. Raises `RefusedRequest`, and `OSError` where a side has gone.

    `is_kept`: the connection to the server was used before; if it has ended, the client may connect again.

    `count`: is told what was "sent" and "received", in bytes, as it happens; it raises `RefusedRequest` for too much.
    `note`: is told why a request is refused, before the client is, which may end at once.
    """
    secrets = reader.secrets
    try:
        mine = [(one, await reader.read(one)) for one in secrets if one.is_for(origin[0]) and scheme == "https"]
        head, written = _forwarded_head(request, origin, scheme, mine, secrets)
    except RefusedRequest as refused:
        note(str(refused))
        await exchange.refuse(405 if request.method.upper() in _NOT_FORWARDED else refused.status, str(refused))
        raise
    back = ValueCover([(value, one.placeholder) for one, value in mine], _find_covered(written, mine))
    placeholders = _PlaceholderFinder([one.placeholder.encode() for one in secrets])
    forwarding = _Forwarding(exchange, upstream, origin[0], (placeholders, back), count, bool(mine))
    forwarding.is_kept = is_kept
    sending = asyncio.ensure_future(forwarding.send(head))
    answering = asyncio.ensure_future(forwarding.answer())
    both = asyncio.gather(sending, answering)  # an answer may come before the whole request was sent
    watching = asyncio.ensure_future(forwarding.watch_client(sending))

    async def stop() -> None:
        for one in (sending, answering, watching):
            one.cancel()
        await asyncio.gather(sending, answering, watching, both, return_exceptions=True)

    try:
        await asyncio.wait((both, watching), return_when=asyncio.FIRST_COMPLETED)
        if not both.done():
            await watching
        await both
    except RefusedRequest as refused:
        note(str(refused))
        await stop()  # they read and write the connection that is answered now
        await exchange.refuse(refused.status, str(refused))
        raise
    finally:
        await stop()


def _find_covered(written: Iterable[bytes], mine: Sequence[tuple[ProgramSecret, str]]) -> Iterator[tuple[str, str]]:
    """Yields what headers hold around values, such as the base64 of a user and a password."""
    for text in written:
        for one, value in mine:
            held = text.rpartition(b" ")[2].decode("utf-8", "replace")
            if len(value) <= len(held) <= _LONGEST_HELD + 2 * len(value):
                yield held, one.placeholder


class _Forwarding:
    """One request on its way to the server, and the answer on its way back."""

    def __init__(
        self,
        exchange: Exchange,
        upstream: Wire,
        host: str,
        changers: tuple[_PlaceholderFinder, ValueCover],
        count: Callable[[str, int], None],
        checked: bool,
    ) -> None:
        self._exchange, self._upstream, self._host, self._count = exchange, upstream, host, count
        self._placeholders, self._back = changers
        self._checked = checked  # the answer may hold a secret
        self.is_kept = False
        self._upgrades = False
        self._server = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_ANSWER_HEAD)

    async def send(self, head: h11.Request) -> None:
        self._upgrades = any(name == b"upgrade" for name, _ in head.headers)
        await self._give(head)
        while (piece := await self._exchange.read_body()) is not None:
            self._check(piece, "body")
            await self._give(h11.Data(data=piece))
        await self._give(h11.EndOfMessage())

    async def watch_client(self, sending: asyncio.Future[None]) -> None:
        """Raises `ConnectionResetError` when the client goes away after its request: a server may never answer."""
        await asyncio.wait([sending])
        if self._upgrades:  # the client goes on to speak
            await asyncio.Event().wait()
        await self._exchange.wait_gone()
        raise ConnectionResetError

    def _check(self, piece: bytes, where: str) -> None:
        if self._placeholders.finds(piece):
            raise RefusedRequest(f"its {where} holds the placeholder of a secret, which goes only into a header")

    async def answer(self) -> None:
        while True:
            try:
                event = self._server.next_event()
            except h11.RemoteProtocolError as error:
                why = str(error).partition(":")[0]  # what follows is from the answer: it may be the secret
                raise UnusableAnswer(f"the answer of {self._host} cannot be read: {why}") from None
            if event is h11.NEED_DATA:
                piece = await self._read_answer()
                self._count("received", len(piece))
                self._server.receive_data(piece)
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    await self._exchange.send(_upgraded_head(event, self._back))
                    await self._relay_upgraded()
                    return
                # otherwise nothing: the proxy itself said 100 Continue
            elif isinstance(event, h11.Response):
                await self._exchange.send(_returned_head(event, self._back, checked=self._checked))
            elif isinstance(event, h11.Data):
                await self._pass_on(self._back.change(bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await self._pass_on(self._back.change(b"", last=True))
                await self._exchange.send(h11.EndOfMessage())
                return
            else:
                raise UnusableAnswer(f"{self._host} ended its answer too early")

    async def _read_answer(self) -> bytes:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                piece = await self._upstream.read()
        except TimeoutError:
            raise UnusableAnswer(f"{self._host} did not answer within {IDLE_SECONDS / 60:.0f} minutes") from None
        except OSError as error:
            if self.is_kept:
                raise
            raise UnusableAnswer(f"the connection to {self._host} broke: {error.strerror or error}") from None
        if self.is_kept and not piece:
            raise ConnectionResetError  # nothing was answered: the client sees the same as we do
        self.is_kept = False
        return piece

    async def _give(self, event: h11.Event) -> None:
        if data := self._server.send(event):
            self._count("sent", len(data))
            await self._upstream.write(data)

    async def _pass_on(self, data: bytes) -> None:
        if data:
            await self._exchange.send(h11.Data(data=data))

    async def _relay_upgraded(self) -> None:
        """Relays what is no longer HTTP, with the same checks; it ends with either side."""
        client, upstream = self._exchange.wire, self._upstream

        async def forth(piece: bytes) -> None:
            while piece or (piece := await client.read()):
                self._check(piece, "connection")
                self._count("sent", len(piece))
                await upstream.write(piece)
                piece = b""
            upstream.end()

        async def returned(piece: bytes) -> None:
            while piece or (piece := await upstream.read()):
                self._count("received", len(piece))
                await client.write(self._back.change(piece))
                piece = b""
            await client.write(self._back.change(b"", last=True))
            client.end()

        sides = [
            asyncio.ensure_future(forth(self._exchange.trailing)),
            asyncio.ensure_future(returned(self._server.trailing_data[0])),
        ]
        try:
            await asyncio.wait(sides, return_when=asyncio.FIRST_EXCEPTION)
            for one in sides:
                if one.done():
                    one.result()
        finally:
            for one in sides:
                one.cancel()
            await asyncio.gather(*sides, return_exceptions=True)


def _forwarded_head(
    request: h11.Request,
    origin: tuple[str, int],
    scheme: str,
    mine: Sequence[tuple[ProgramSecret, str]],
    secrets: Iterable[ProgramSecret],
) -> tuple[h11.Request, list[bytes]]:
    """Returns the head to send, and the values of the headers that hold a secret."""
    host, port = origin
    method = request.method.upper()  # some servers take it in any case
    if method in _NOT_FORWARDED:
        raise RefusedRequest(f"{method.decode()} is not forwarded: {_NOT_FORWARDED[method]}")
    named = [value for name, value in request.headers if name == b"host"]
    if len(named) != 1 or not _names(named[0], scheme, host, port):
        raise RefusedRequest(f"its Host header does not name {host}")
    if scheme == "https" and not request.target.startswith(b"/") and (method, request.target) != (b"OPTIONS", b"*"):
        raise RefusedRequest("its target is not a path, so it may name another host")  # servers prefer it to Host
    headers = _end_to_end(request.headers)
    by_header = {one.header_name for one, _ in mine}
    if mine:
        headers = [(name, value) for name, value in headers if name not in _UNSEARCHABLE]
        headers.append((b"accept-encoding", b"identity"))
    chosen = _chosen(headers, mine)
    target = request.target
    if scheme == "http":
        target = read_url(request.target.decode("ascii", "replace")).target.encode()  # of the URL that was judged
    _refuse_placeholders(target, headers, {one.placeholder: one.header_name for one, _ in chosen}, secrets)
    for one, value in chosen:
        headers = _with_secret(headers, one, value)
    written = [value for name, value in headers if name in by_header]
    return h11.Request(method=request.method, target=target, headers=headers), written


def _refuse_placeholders(
    target: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    places: Mapping[str, bytes],
    secrets: Iterable[ProgramSecret],
) -> None:
    """Raises `RefusedRequest` for a placeholder that is not in its place. `places`: the headers of those to send."""
    for one in secrets:
        others = [(name, value) for name, value in headers if name != places.get(one.placeholder)]
        rest = b"\n".join([target, unquote(target.decode("ascii", "replace")).encode(), *map(b": ".join, others)])
        if one.placeholder.encode() in rest or _in_basic(others, one):
            where = f"{' and '.join(one.hosts)}, in the header {one.header.partition(':')[0]}"
            raise RefusedRequest(f"it holds the placeholder of {one.name or 'a secret'}, which is only for {where}")


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns the headers that are not about the connection to the proxy: one length, and no protocol but WebSocket,
    since in another one, such as HTTP/2, requests could name other hosts.
    """
    given = list(headers)
    named = {one.strip().lower() for name, value in given if name == b"connection" for one in value.split(b",")}
    left_out = {_ANSWERED_HERE, *_HOP_BY_HOP}
    if any(name == b"transfer-encoding" for name, _ in given):
        left_out.add(b"content-length")  # servers disagree about which one holds
    found = [(name, value) for name, value in given if name not in left_out]
    if b"upgrade" in named and [value.lower() for name, value in given if name == b"upgrade"] == [b"websocket"]:
        found += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    return found


def _chosen(
    headers: Sequence[tuple[bytes, bytes]], mine: Sequence[tuple[ProgramSecret, str]]
) -> list[tuple[ProgramSecret, str]]:
    """Returns one secret for each header: of several for a host, the one that the program named, or else the first."""
    found: dict[bytes, tuple[ProgramSecret, str]] = {}
    for pair in sorted(mine, key=lambda pair: not _is_named(headers, pair[0])):  # the order is kept otherwise
        found.setdefault(pair[0].header_name, pair)
    return list(found.values())


def _is_named(headers: Iterable[tuple[bytes, bytes]], secret: ProgramSecret) -> bool:
    texts = [value for name, value in headers if name == secret.header_name]
    inside = [_decode_base64(basic[1]) for text in texts if (basic := _BASIC.match(text))]
    return any(secret.placeholder.encode() in text for text in (*texts, *inside))


def _with_secret(headers: list[tuple[bytes, bytes]], secret: ProgramSecret, given: str) -> list[tuple[bytes, bytes]]:
    """Puts the value into its header: where the program wrote the placeholder, or in place of what it wrote."""
    found = []
    placeholder, value = secret.placeholder.encode(), given.encode()
    is_done = False
    for name, text in headers:
        if name == secret.header_name:
            basic = _BASIC.match(text)
            inside = _decode_base64(basic[1]) if basic else b""
            if placeholder in inside:
                text = b"Basic " + base64.b64encode(inside.replace(placeholder, value))
                is_done = True
            elif placeholder in text:
                text = encode_basic(text.replace(placeholder, value))
                is_done = True
            else:
                continue
        found.append((name, text))
    return found if is_done else [*found, (secret.header_name, secret.write_header(given))]


def _in_basic(headers: Iterable[tuple[bytes, bytes]], secret: ProgramSecret) -> bool:
    return any(
        (basic := _BASIC.match(value)) and secret.placeholder.encode() in _decode_base64(basic[1])
        for name, value in headers
        if name in (b"authorization", b"proxy-authorization")
    )


def _decode_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=False)
    except ValueError:
        return b""


def _returned_head(response: h11.Response, back: ValueCover, *, checked: bool) -> h11.Response:
    raw = response.headers.raw_items()  # a name may be the value, whose letters count
    headers = [(name, value) for name, value in raw if name.lower() not in _HOP_BY_HOP]
    coding = b", ".join(value for name, value in headers if name.lower() == b"content-encoding").strip().lower()
    if checked and coding not in (b"", b"identity"):
        raise UnusableAnswer("its answer is compressed, so it cannot be looked through for the secret")
    if checked and response.status_code == 206:
        raise UnusableAnswer("its answer is a part, so it cannot be looked through for the secret")
    changed = [(back.change_whole(name), back.change_whole(value)) for name, value in headers]
    ends = any(name == b"connection" and b"close" in value.lower() for name, value in response.headers)
    if ends or response.http_version != b"1.1":
        changed.append((b"connection", b"close"))
    return h11.Response(
        status_code=response.status_code, headers=changed, reason=back.change_whole(bytes(response.reason))
    )


def _upgraded_head(response: h11.InformationalResponse, back: ValueCover) -> h11.InformationalResponse:
    raw = response.headers.raw_items()
    changed = [(back.change_whole(name), back.change_whole(value)) for name, value in raw]
    return h11.InformationalResponse(
        status_code=response.status_code, headers=changed, reason=back.change_whole(bytes(response.reason))
    )


class _PlaceholderFinder:
    """Finds placeholders in pieces of a text, also across pieces."""

    def __init__(self, placeholders: Sequence[bytes]) -> None:
        self._found = re.compile(b"|".join(map(re.escape, placeholders))) if placeholders else None
        self._overlap = max(map(len, placeholders), default=1) - 1
        self._kept = b""

    def finds(self, piece: bytes) -> bool:
        """Returns whether a placeholder is in the text so far."""
        if self._found is None:
            return False
        text = self._kept + piece
        self._kept = text[max(0, len(text) - self._overlap) :]
        return self._found.search(text) is not None


def _names(header: bytes, scheme: str, host: str, port: int) -> bool:
    """Returns whether a Host header names a server, and says nothing else that another reader may take for a host."""
    try:
        url = read_url(f"{scheme}://{header.decode('ascii', 'replace')}")
    except ToolError:
        return False
    return (url.host, url.port, url.target) == (host, port, "/") and b"#" not in header and header[-1:] != b"/"


def _reason(words: str) -> bytes:
    return re.sub(r"[^\x20-\x7e]", " ", words)[:200].encode()
