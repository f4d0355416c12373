"""The one way out of a program's sandbox: a proxy that judges each host, and connects by the egress.

The sandbox has a network of its own with nothing in it but the sockets that this proxy gets: a proxy for the clients
that know one, port 443 for those that do not, which name their host in the TLS greeting, and a name server that answers
every name with the address of that port. It runs in a thread, so that a program is served whatever loops do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NoReturn

import h11

from forge.core.errors import ToolError
from forge.network.address import Url, read_host
from forge.network.connections import connect, find_proxy, start_tls
from forge.network.egress import Egress
from forge.network.program_requests import (
    IDLE_SECONDS,
    Exchange,
    RefusedRequest,
    SecretReader,
    SocketWire,
    StreamWire,
    Wire,
    forward_request,
)

log = logging.getLogger(__name__)

PROXY_PORT = 3128
LISTENERS = (("tcp", "127.0.0.1", PROXY_PORT), ("tcp", "0.0.0.0", 443), ("udp", "127.0.0.1", 53))  # noqa: S104 - inside
"""Inside the sandbox: the proxy, TLS of clients that know no proxy, and names."""

MOST_CONNECTIONS = 256  # of one program at a time; further ones wait to be accepted
LEAST_CONNECTIONS = 64  # of all programs of this process; otherwise each program gets at most half of them
FILES_OF_ALL = 2  # part of the files that this process may have open, for the connections of all: each has two
MOST_BYTES = 20 * 1024**3  # of one program, both ways
MOST_HOSTS = 1_000  # that are judged and named; a program that tries more gets no further ones
LONGEST_HEAD = 64 * 1024  # bytes of a TLS greeting that names a host to connect to …
LONGEST_GREETING = 256 * 1024  # … and of any other: servers take none that is longer
HEAD_SECONDS = 60.0  # for the head of a request, or a TLS greeting, to come
CONNECT_SECONDS = 30.0
ENDED_SECONDS = 60.0  # without a byte from a server whose client has ended its side
PATIENCE = {  # settings of clients that would give up while a person is asked
    "PIP_DEFAULT_TIMEOUT": "300",
    "UV_HTTP_TIMEOUT": "300",
    "CARGO_HTTP_TIMEOUT": "300",
    "npm_config_fetch_timeout": "300000",
}
_PORTS = {"http": 80, "https": 443}
_TLS_HANDSHAKE = b"\x16"  # the first byte of a record
_CLIENT_HELLO = 1
_LINGER = 0.005  # seconds until the rest of a greeting may have come
_HERE = b"\x7f\x00\x00\x01"


@dataclass(slots=True)
class ReachedHost:
    """A host and port that a program tried, and what became of it."""

    host: str
    port: int
    refused: str = ""  # why
    connections: int = 0
    sent: int = 0  # bytes
    received: int = 0

    def as_json(self) -> dict[str, Any]:
        facts = {"connections": self.connections, "bytes_sent": self.sent, "bytes_received": self.received}
        refused = {"refused": self.refused} if self.refused else {}
        return {"host": self.host, "port": self.port, **(facts if self.connections else {}), **refused}


Judge = Callable[[str], Awaitable[str]]
"""Says why a program may not reach a URL's server; "" if it may. It may ask a person meanwhile. The scheme is
`https` for port 443, `http` for plain requests, and `tcp` for whatever else is sent."""


class ProgramProxy:
    """The network of one program. `take` and `close` can be called in any thread."""

    def __init__(self, judge: Judge, egress: Egress) -> None:
        """`judge` runs in the event loop that is running now."""
        self._judge = judge
        self._loop = asyncio.get_running_loop()
        self._egress = egress
        self._reader = SecretReader(egress.secrets)
        self._hosts: dict[tuple[str, int], ReachedHost] = {}
        self._verdicts: dict[str, asyncio.Future[str]] = {}
        self._asking = 0  # servers that are being judged
        self._waited = self._began = 0.0
        self._connections = asyncio.Semaphore(min(MOST_CONNECTIONS, _most_connections() // 2))
        self._bytes = 0
        self._open: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._serving: asyncio.Task[None] | None = None  # touched only in the thread of the proxies
        self._proxies: asyncio.AbstractEventLoop | None = None
        self._closed = False

    listeners: tuple[tuple[str, str, int], ...] = LISTENERS

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables by which clients find the proxy and, where it ends TLS, its certificate."""
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        here = dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
        found = {**dict.fromkeys(names, proxy), **here, "NODE_USE_ENV_PROXY": "1", **PATIENCE}
        if self._egress.ends_some_tls:
            from forge.network.session_authority import BUNDLE, BUNDLE_VARIABLES

            found |= dict.fromkeys(BUNDLE_VARIABLES, BUNDLE)
        return found | {one.name: one.placeholder for one in self._egress.secrets if one.name}

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files that the program sees instead of the machine's own."""
        found = {"/etc/resolv.conf": b"nameserver 127.0.0.1\noptions timeout:10 attempts:1\n"}
        if self._egress.ends_some_tls:
            from forge.network.session_authority import BUNDLE, JAVA_BUNDLE, java_bundle, trust_bundle

            found[BUNDLE] = trust_bundle()
            if for_java := java_bundle():
                found[JAVA_BUNDLE] = for_java
        return found

    def report(self) -> list[dict[str, Any]]:
        """Returns what was tried and reached, in its order."""
        return [one.as_json() for one in list(self._hosts.values())]

    @property
    def waited(self) -> float:
        """Seconds that the program waited for verdicts; infinite while it waits for one."""
        return math.inf if self._asking else self._waited

    def take(self, sockets: Sequence[int]) -> None:
        """Serves the sockets that listen inside, in the order of `listeners`."""
        made = [socket.socket(fileno=one) for one in sockets]
        with self._lock:
            if self._closed:
                for one in made:
                    one.close()
                return
            self._proxies = _find_proxy_loop()
            self._proxies.call_soon_threadsafe(self._begin, made)

    def close(self) -> None:
        """Ends all connections. A socket that still listened would keep the program's network alive."""
        with self._lock:
            self._closed = True
        if self._proxies is not None:
            self._proxies.call_soon_threadsafe(self._end)

    def _begin(self, sockets: Sequence[socket.socket]) -> None:
        def close_all(_: object) -> None:
            for one in sockets:
                one.close()

        self._serving = asyncio.ensure_future(self._serve(sockets))
        self._serving.add_done_callback(close_all)  # a task that is cancelled before it runs has no `finally`

    def _end(self) -> None:
        assert self._serving is not None
        self._serving.cancel()

    async def _serve(self, sockets: Sequence[socket.socket]) -> None:
        proxy, transparent, names = sockets
        loop = asyncio.get_running_loop()
        for one in sockets:
            one.setblocking(False)
        answering, _ = await loop.create_datagram_endpoint(_NameServer, sock=names)
        try:
            await asyncio.gather(
                self._accept(proxy, self._serve_proxy_client), self._accept(transparent, self._serve_tls_client)
            )
        finally:
            answering.close()
            ending: list[asyncio.Future[Any]] = [*self._open, *self._verdicts.values()]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _accept(self, listening: socket.socket, serve: Callable[[SocketWire], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._connections.acquire()
            try:
                client, _ = await loop.sock_accept(listening)
            except OSError:  # too many descriptors: it waits in the queue
                self._connections.release()
                await asyncio.sleep(0.1)
                continue
            except BaseException:
                self._connections.release()
                raise
            client.setblocking(False)
            try:
                await _all_connections(os.getpid()).acquire()  # other work of this process needs files, too
            except BaseException:
                client.close()
                self._connections.release()
                raise
            task = asyncio.ensure_future(self._serve_client(client, serve))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _serve_client(self, client: socket.socket, serve: Callable[[SocketWire], Awaitable[None]]) -> None:
        wire = SocketWire(client)
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await serve(wire)
        except* (OSError, TimeoutError, h11.ProtocolError, RefusedRequest, ToolError):
            pass  # the client sees its connection end; what was refused is in the report
        finally:
            wire.close()
            self._connections.release()
            _all_connections(os.getpid()).release()

    # A client that knows the proxy.

    async def _serve_proxy_client(self, client: SocketWire) -> None:
        exchange = Exchange(client)
        while (request := await _within(HEAD_SECONDS, exchange.next_request())) is not None:
            is_connect = request.method == b"CONNECT"
            try:
                host, port = _read_authority(request.target) if is_connect else exchange.plain_origin(request)
            except (RefusedRequest, ToolError) as error:
                await exchange.refuse(400, str(error))
                return
            scheme = "http" if port == 80 else "tcp"  # a body may be any protocol's
            try:
                upstream = await self._connect(host, port, "" if is_connect else scheme)
            except ToolError as error:
                await exchange.refuse(403, error.message)
                return
            with contextlib.closing(upstream):
                if is_connect:
                    await self._tunnel(exchange, client, upstream, host, port)
                    return
                try:
                    await self._forward(exchange, request, upstream, (host, port))
                except RefusedRequest as refused:
                    self._refuse(host, port, str(refused))
            if not exchange.goes_on:
                return

    async def _tunnel(self, exchange: Exchange, client: SocketWire, upstream: SocketWire, host: str, port: int) -> None:
        await exchange.accept_connect()
        if exchange.trailing:
            self._refuse(host, port, "it spoke before the proxy had answered")
        if self._egress.ends_tls(host):
            await self._end_tls(client, host, port, upstream)
        else:
            await self._relay_both(client, upstream, host, port)

    # A client that knows no proxy: it asked for a name, got our address, and says the name in its TLS greeting.

    async def _serve_tls_client(self, client: SocketWire) -> None:
        name = await _within(HEAD_SECONDS, _peek_server_name(client.socket))
        if not name:
            self._refuse("(no name)", 443, "it came without a name in its TLS greeting")
        host, _ = read_host(name)
        with contextlib.closing(await self._connect(host, 443)) as upstream:
            if self._egress.ends_tls(host):
                await self._end_tls(client, host, 443, upstream)
            else:
                await self._relay_both(client, upstream, host, 443)

    # Both: judge, connect, relay.

    async def _connect(self, host: str, port: int, scheme: str = "") -> SocketWire:
        """Connects to a host that may be reached. Raises `ToolError` with the reason otherwise."""
        name, address = read_host(host)
        url = Url("https", name, port, "/", address)
        self._note(host, port)
        try:
            self._egress.judge(url, proxied=bool(find_proxy(url, self._egress)))  # before anyone is asked
            if why := await self._verdict(host, port, scheme or ("https" if port == 443 else "tcp")):
                raise ToolError(f"{host}:{port} is not allowed: {why}")
            async with asyncio.timeout(CONNECT_SECONDS):
                found = SocketWire(await connect(url, self._egress))
        except ToolError as error:
            self._hosts[host, port].refused = self._hosts[host, port].refused or error.message
            raise
        except (OSError, TimeoutError) as error:
            problem = f"{host}:{port} cannot be reached: {getattr(error, 'strerror', '') or 'no answer'}"
            raise ToolError(problem, passing=True) from None
        self._hosts[host, port].connections += 1
        return found

    async def _verdict(self, host: str, port: int, scheme: str) -> str:
        """Judges a server once for all connections; those that come meanwhile wait for the same answer."""
        shown = f"[{host}]" if ":" in host else host
        url = f"{scheme}://{shown}" if port == _PORTS.get(scheme) else f"{scheme}://{shown}:{port}"
        if (known := self._verdicts.get(url)) is None:
            known = self._verdicts[url] = asyncio.ensure_future(self._ask_judge(url))
        why = await asyncio.shield(known)
        self._hosts[host, port].refused = why
        return why

    async def _ask_judge(self, url: str) -> str:
        """Returns the verdict of the judge, who is in another thread's loop; one that fails, or has ended, means no."""
        if not self._asking:
            self._began = time.monotonic()
        self._asking += 1
        judging = self._judge_safely(url)
        try:
            try:
                asked = asyncio.run_coroutine_threadsafe(judging, self._loop)
            except RuntimeError:  # its loop is closed
                judging.close()
                raise asyncio.CancelledError from None
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:  # the loop is being closed, or the program has ended: no one is asked any more
            return "no one can be asked any more: the run that started the program is over"
        finally:
            self._waited += time.monotonic() - self._began if self._asking == 1 else 0.0  # not once for each question
            self._asking -= 1

    async def _judge_safely(self, url: str) -> str:
        """Returns the verdict; a judge that fails means no."""
        try:
            return await self._judge(url)
        except ToolError as error:
            return error.message
        except Exception as error:  # whatever it is, the host is not reached
            log.warning("the rules about %s could not be asked", url, exc_info=True)
            return f"the rules could not be asked: {type(error).__name__}"

    def _refuse(self, host: str, port: int, why: str) -> NoReturn:
        self._note(host, port).refused = why
        raise RefusedRequest(why)

    def _note(self, host: str, port: int) -> ReachedHost:
        """Returns what is reported about a server. Raises `ToolError` where a program tries too many."""
        if (known := self._hosts.get((host, port))) is None:
            if len(self._hosts) >= MOST_HOSTS:
                raise ToolError(f"{host}:{port} is not allowed: the program tried {MOST_HOSTS:,} hosts already")
            known = self._hosts[host, port] = ReachedHost(host, port)
        return known

    async def _end_tls(self, client: SocketWire, host: str, port: int, upstream: SocketWire) -> None:
        from forge.network.session_authority import end_tls

        try:
            inside = await _within(HEAD_SECONDS, end_tls(client.hand_over(), host))
        except (ssl.SSLError, OSError, TimeoutError):
            self._refuse(host, port, "the client did not accept the certificate of this session (name it under `pass`)")
        async with _closing(inside):
            try:
                beyond = StreamWire(*await _within(CONNECT_SECONDS, start_tls(upstream.hand_over(), host)))
            except (ssl.SSLError, OSError, TimeoutError) as error:
                self._refuse(host, port, f"TLS to it failed: {error}")
            async with _closing(beyond):
                exchange = Exchange(inside)
                is_kept = False
                try:
                    request = await _within(IDLE_SECONDS, exchange.next_request())
                    while request is not None:
                        await self._forward(exchange, request, beyond, (host, port), "https", is_kept=is_kept)
                        if not exchange.goes_on:
                            return
                        is_kept = True
                        request = await _within(IDLE_SECONDS, exchange.next_of_kept(beyond))
                except RefusedRequest as refused:
                    self._refuse(host, port, str(refused))

    async def _forward(
        self,
        exchange: Exchange,
        request: h11.Request,
        upstream: Wire,
        origin: tuple[str, int],
        scheme: str = "http",
        *,
        is_kept: bool = False,
    ) -> None:
        count, found = partial(self._count, *origin), self._note(*origin)
        note = partial(setattr, found, "refused")
        await forward_request(
            exchange, request, upstream, origin, self._reader, count, note, scheme=scheme, is_kept=is_kept
        )

    def _count(self, host: str, port: int, way: str, size: int) -> None:
        found = self._hosts[host, port]
        setattr(found, way, getattr(found, way) + size)
        self._bytes += size
        if self._bytes > MOST_BYTES:
            self._refuse(host, port, f"the program moved more than {MOST_BYTES:,} bytes")

    async def _relay_both(self, client: Wire, upstream: Wire, host: str, port: int) -> None:
        """Relays until both sides have ended. The server may speak first, and goes on only while it speaks."""
        async with asyncio.TaskGroup() as both:
            sending = both.create_task(self._relay_client(client, upstream, host, port))
            answering = both.create_task(self._relay(upstream, client, host, port, "received"))
            both.create_task(self._end_silent(sending, answering, self._note(host, port)))

    async def _end_silent(self, sending: asyncio.Task[None], answering: asyncio.Task[None], found: ReachedHost) -> None:
        """Ends the answer of a server that is silent after its client has ended: no one may hear it any more."""
        await asyncio.wait([sending])
        while not answering.done():
            before = found.received
            await asyncio.wait([answering], timeout=ENDED_SECONDS)
            if found.received == before:
                answering.cancel()
                return

    async def _relay_client(self, client: Wire, upstream: Wire, host: str, port: int) -> None:
        """Relays what a client sends. In TLS, each greeting must name the host that was judged."""
        piece = await _within(IDLE_SECONDS, client.read())
        greetings = _Greetings() if piece[:1] == _TLS_HANDSHAKE else None
        if piece and greetings is None and port == 443:
            self._refuse(host, port, "what came was not TLS")
        while piece and greetings is not None:
            for name in greetings.find_names(piece):
                if name is None:
                    self._refuse(host, port, "its TLS greeting cannot be read")
                if not _same_host(name, host):
                    self._refuse(host, port, f"its TLS greeting names another host ({json.dumps(name[:200])})")
            self._count(host, port, "sent", len(piece))
            await upstream.write(piece)
            piece = await _within(IDLE_SECONDS if greetings.found else HEAD_SECONDS, client.read())
        if piece:
            self._count(host, port, "sent", len(piece))
            await upstream.write(piece)
            await self._relay(client, upstream, host, port, "sent")
        else:
            upstream.end()

    async def _relay(self, source: Wire, target: Wire, host: str, port: int, way: str) -> None:
        while piece := await _within(IDLE_SECONDS, source.read()):
            self._count(host, port, way, len(piece))
            await target.write(piece)
        target.end()


class _Greetings:
    """Finds the greetings in what a TLS client sends: the first, and another that a server may ask for.

    Nothing has to be kept back meanwhile: a server does nothing before a greeting is complete.
    """

    def __init__(self) -> None:
        self.found = 0
        self._head = b""  # of a record: its kind, a version, its length
        self._left = 0  # bytes of the record
        self._said = bytearray()  # the messages of the handshake that are not encrypted
        self._is_over = False  # from now on all of them are encrypted

    def find_names(self, piece: bytes) -> Iterator[str | None]:
        """Yields the host of each greeting that ends in this piece, "" for none; None if it cannot be read."""
        at = 0
        while at < len(piece) and not self._is_over:
            if not self._left:
                wanted = 5 - len(self._head)
                self._head += piece[at : at + wanted]
                at += wanted
                if len(self._head) == 5:
                    self._left = int.from_bytes(self._head[3:])
                    self._head = self._head[:1] if self._left else b""
                continue
            part = piece[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            if self._head == _TLS_HANDSHAKE:
                self._said += part
                yield from self._read_messages()
            if not self._left:
                self._head = b""

    def _read_messages(self) -> Iterator[str | None]:
        while len(self._said) >= 4 and not self._is_over:
            length = 4 + int.from_bytes(self._said[1:4])
            is_greeting = self._said[0] == _CLIENT_HELLO and length <= LONGEST_GREETING
            if not is_greeting:
                self._is_over = True
                if not self.found:
                    yield None
            elif len(self._said) < length:
                return
            else:
                self.found += 1
                yield read_server_name(_as_records(bytes(self._said[:length])))
                del self._said[:length]


def _as_records(message: bytes) -> bytes:
    pieces = (message[at : at + 16_384] for at in range(0, len(message), 16_384))
    return b"".join(_TLS_HANDSHAKE + b"\x03\x01" + len(one).to_bytes(2) + one for one in pieces)


class _NameServer(asyncio.DatagramProtocol):
    """Answers every name with the address of the port that judges it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if (answer := answer_name(data)) is not None:
            self._transport.sendto(answer, addr)


def answer_name(question: bytes) -> bytes | None:
    """Answers a DNS question: 127.0.0.1 for an IPv4 address, nothing for the rest; None if it cannot be read."""
    end = 12
    if len(question) < 17 or question[2] & 0x80 or question[4:6] != b"\0\1":
        return None
    while end < len(question) and question[end]:
        if question[end] > 63:
            return None
        end += question[end] + 1
    end += 5
    if end > len(question):
        return None
    asked = question[12:end]
    is_address = asked[-4:] == b"\0\1\0\1"
    flags = bytes([0x81 if question[2] & 1 else 0x80, 0x80])
    head = question[:2] + flags + b"\0\1" + (b"\0\1" if is_address else b"\0\0") + b"\0\0\0\0"
    return head + asked + (b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + _HERE if is_address else b"")


def read_server_name(greeting: bytes) -> str | None:
    """Returns the host that a TLS greeting names, "" for none; None if the greeting is not complete."""
    found: list[str] = []

    def note(_: object, name: str | None, __: object) -> int:
        found.append(name or "")
        return ssl.ALERT_DESCRIPTION_ACCESS_DENIED

    context = _greeting_context()
    context.sni_callback = note
    incoming = ssl.MemoryBIO()
    incoming.write(greeting)
    try:
        context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
    except ssl.SSLWantReadError:
        return None
    except ssl.SSLError:
        pass
    return found[0] if found else ""


@cache
def _greeting_context() -> ssl.SSLContext:
    """Only reads greetings; it answers none of them."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


async def _peek_server_name(client: socket.socket) -> str:
    """Returns the host of a greeting that is left unread. It wakes up only when more of the greeting has come."""
    loop = asyncio.get_running_loop()
    seen = 0
    try:
        while True:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, seen + 1)
            ready = asyncio.Event()
            loop.add_reader(client, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(client)
            said = client.recv(LONGEST_HEAD, socket.MSG_PEEK)
            if len(said) <= seen or said[:1] != _TLS_HANDSHAKE or len(said) >= LONGEST_HEAD:
                return ""  # nothing more comes, or it is no greeting
            if (name := read_server_name(said)) is not None:
                return name
            seen = len(said)
            await asyncio.sleep(_LINGER)
    finally:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _read_authority(target: bytes) -> tuple[str, int]:
    text = target.decode("ascii", "replace")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65_536:
        raise RefusedRequest(f"the proxy was asked for {text[:200]!r}, which is not HOST:PORT")
    name, _ = read_host(host.strip("[]"))
    return name, int(port)


def _same_host(name: str, host: str) -> bool:
    """Returns whether a TLS greeting names a host; for an address it names nothing."""
    if not name:
        with contextlib.suppress(ToolError):
            return read_host(host)[1] is not None
        return False
    return name.lower().removesuffix(".") == host.lower().removesuffix(".")


@contextlib.asynccontextmanager
async def _closing(wire: StreamWire) -> AsyncIterator[None]:
    """Closes a connection at the end, and waits until its socket is gone: a client may delay that."""
    try:
        yield
    finally:
        await wire.close_whole()


def _most_connections() -> int:
    """Returns how many connections all programs of this process may have at a time."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 65_536 if files == resource.RLIM_INFINITY else files
    return max(files // FILES_OF_ALL // 2, LEAST_CONNECTIONS)


@cache
def _all_connections(process: int) -> asyncio.Semaphore:
    return asyncio.Semaphore(_most_connections())


async def _within(seconds: float, work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(seconds):
        return await work


_lock = threading.Lock()


def _find_proxy_loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of the thread in which all proxies of this process run."""
    with _lock:
        return _proxy_loop(os.getpid())


@cache
def _proxy_loop(process: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="forge-program-proxy", daemon=True).start()
    return loop
