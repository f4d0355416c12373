"""Runs in a network namespace of its own, in which named servers answer: what do programs in the sandbox reach?

Prints one line of JSON for each line of shell that was run: what the program said, what Forge noted about the network,
which questions were asked, and which servers were reached.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

from forge import Answer, Decision, Egress, PermissionRequest, Scope, ToolCall, ToolResult, rules
from forge.core.errors import Waiting
from forge.core.executor import ToolExecutor
from forge.core.registry import ToolRegistry
from forge.core.secrets import Secrets
from forge.network import connections
from forge.network.program_secrets import ProgramSecret
from forge.permissions.gate import JoinedGate, PolicyGate
from forge.permissions.questions import Policy
from forge.pipeline import standard_steps
from forge.tools.bash import Bash, BashOutput
from tests.network import inside_namespace as world
from tests.network.authority import Authority
from tests.network.private_git import answer_git, make_repository

silent_ended = asyncio.Event()  # a client left a server that never answers
SECRET = "A-value-that-no-program-may-see-0123456789"
PUBLIC_NAMES = ("allowed", "asked", "refused", "secret", "other", "late", "never")
HOSTS = {f"{name}.test": [[world.PUBLIC]] for name in PUBLIC_NAMES}
HOSTS |= {"denied.test": [[world.OTHER]], "inside.test": [["10.0.0.1"]], "mixed.test": [[world.PUBLIC, "10.0.0.1"]]}
RULES = (
    "allow execute",
    "allow network allowed.test",
    "allow network allowed.test:8443",
    "allow network secret.test",
    "allow network inside.test",
    "allow network mixed.test",
    "ask network asked.test",
    "ask network refused.test",
    "deny network denied.test",
)
SEARCH = f"""
import os
wanted = bytes(reversed({bytes(reversed(SECRET.encode()))!r}))[:20]
places = [f"/proc/{{one}}/{{name}}" for one in os.listdir("/proc") if one.isdigit() for name in ("environ", "cmdline")]
for top in (".", "/tmp", "/etc", "/run", "/dev/shm", os.path.expanduser("~")):
    places += [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
looked = 0
for place in places:
    if place.endswith("search.py"):
        continue
    try:
        content = open(place, "rb").read(10_000_000)
    except OSError:
        continue
    looked += 1
    if wanted in content:
        print("FOUND", place)
print("looked at", looked > 20)
"""
HOLDER = """
import os, ssl, sys, urllib.request
asked = urllib.request.Request("https://secret.test/a", headers={"Authorization": "Bearer " + os.environ["API_TOKEN"]})
answers = [urllib.request.urlopen(asked) for _ in range(3)]
said = [one.read() for one in answers]
print(b"authorization" in said[0].lower(), flush=True)
open("ready", "w").close()  # both wait for each other
open("go").close()
"""
MANY_HOSTS = """
import socket
for number in range(1_001):
    with socket.create_connection(("127.0.0.1", 3128), 20) as proxy:
        proxy.sendall(b"CONNECT denied.test:%d HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % (number + 1))
        said = proxy.recv(4_096)
print(said.decode())
"""
UPGRADE = """
import socket, ssl
tls = ssl.create_default_context().wrap_socket(
    socket.create_connection(("secret.test", 443), 20), server_hostname="secret.test"
)
tls.sendall(b"GET /upgraded HTTP/1.1\\r\\nHost: secret.test\\r\\n")
tls.sendall(b"Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n")
said = tls.recv(4_096)
tls.sendall(b"12")
while piece := tls.recv(4_096):
    said += piece
print(said.decode())
"""
KEPT = """
import socket, ssl
def connect():
    made = socket.create_connection(("secret.test", 443), 60)
    return ssl.create_default_context().wrap_socket(made, server_hostname="secret.test")
def ask(path, on):
    on.sendall(b"GET %s HTTP/1.1\\r\\nHost: secret.test\\r\\n\\r\\n" % path)
kept = connect()
ask(b"/closes", kept)
said = b""
while piece := kept.recv(4_096):
    said += piece
print(said.endswith(b"ok"), "and then the end")
gone = connect()
ask(b"/silent", gone)
gone.shutdown(socket.SHUT_WR)  # a close would reset the connection, perhaps before the request was read
left = connect()
ask(b"/waits", left)
said = b""
while not said.endswith(b"ended"):
    said += left.recv(4_096)
print(said[-5:])
"""
EARLY = """
import socket, ssl
tls = ssl.create_default_context().wrap_socket(
    socket.create_connection(("secret.test", 443), 60), server_hostname="secret.test"
)
tls.sendall(b"POST /only-a-part HTTP/1.1\\r\\nHost: secret.test\\r\\nContent-Length: 10\\r\\n\\r\\n12345")
said = tls.recv(4_096)
tls.sendall(b"67890")
while piece := tls.recv(4_096):
    said += piece
print(said.decode())
"""
ASKS = ("asked.test", "refused.test", "other.test")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with all that was asked, as a server does that returns its caller's secrets."""
    local = writer.get_extra_info("sockname")[0]
    world.hits[f"{local}:{writer.get_extra_info('sockname')[1]}"] += 1
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if b" /private.git/" in head.split(b"\r\n")[0]:
                await answer_git(Path(sys.argv[1], "git"), SECRET, head, reader, writer)
                continue
            length = next(
                (int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:")), 0
            )
            if await answer_as_an_enemy(head, reader, writer):
                continue
            body = head + (await reader.readexactly(length) if length else b"")
            coded = b"\r\nX-Again: " + b" ".join(one[15:] for one in head.split(b"\r\n") if one[:6] == b"author")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d%s\r\n\r\n" % (len(body), coded) + body)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def answer_as_an_enemy(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Returns a caller's secret in ways in which it is not found at once; False for an ordinary request."""
    path = head.split(b" ")[1]
    given = next((one[15:] for one in head.split(b"\r\n") if one.lower().startswith(b"authorization:")), b"")
    if path == b"/upgraded":
        writer.write(b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Again: %s\r\n\r\n" % given)
        await reader.readexactly(2)
        for at in range(0, len(given), 7):
            writer.write(given[at : at + 7])
            await writer.drain()
            await asyncio.sleep(0.02)  # so that each is a piece of its own
        writer.write(b" and the rest")
        writer.close()
        return True
    if path == b"/part":
        asked = [one for one in head.lower().split(b"\r\n") if one.startswith(b"range: bytes=")]
        first, _, last = asked[0][13:].partition(b"-") if asked else (b"0", b"", b"999")
        part = given[int(first) : int(last) + 1]
        status = b"206 Part\r\nContent-Range: bytes */%d" % len(given) if asked else b"200 OK"
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(part)) + part)
    elif path == b"/only-a-part":
        writer.write(b"HTTP/1.1 206 Part\r\nContent-Length: 12\r\n\r\n" + given[7:19])
    elif path == b"/coded":
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
    elif path == b"/named":
        name = given.partition(b" ")[2]
        writer.write(b"HTTP/1.1 200 OK\r\nX-%s: %s\r\nContent-Length: 0\r\n\r\n" % (name, name))
    elif path == b"/broken-line":
        writer.write(b"HTTP/1.1 200 OK\r\nno header: %s\r\n\r\n" % given)
    elif path == b"/broken-status":
        writer.write(b"HTTP/1.1 %s\r\n\r\n" % given)
    elif path == b"/broken-chunk":
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n" % given)
    elif path == b"/escaped":
        said = given.replace(b"-", b"\\u002d") + b" " + given.replace(b"-", b"&#45;") + b" " + given.upper()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
    elif path == b"/closes":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()
    elif path == b"/never":
        await reader.read()
    elif path == b"/silent":
        await reader.read()
        silent_ended.set()
    elif path == b"/slow":
        for at, byte in enumerate(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(given), given)):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.01 if at % 2 else 0)  # each byte is a piece of its own
    elif path == b"/waits":
        await asyncio.wait_for(silent_ended.wait(), 60)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nended")
    elif path == b"/endless-head":
        writer.write(b"HTTP/1.1 200 OK\r\nX: " + given * 20_000)
    elif path == b"/hints":
        writer.write(b"HTTP/1.1 103 Hints\r\nLink: %s\r\n\r\n" % given)
        writer.write(b"HTTP/1.1 200 %s\r\nTransfer-Encoding: chunked\r\n\r\n" % given)
        writer.write(b"2;x=%s\r\nok\r\n0\r\nX-Trailer: %s\r\n\r\n" % (given, given))
    else:
        return False
    await writer.drain()
    return True


def judge_by_function(request: PermissionRequest) -> Decision:
    """A policy that is a function, about hosts."""
    if "denied.test" in request.target and request.permission == "network":
        return Decision.DENY
    return Decision.ASK if "asked.test" in request.target and request.permission == "network" else Decision.ALLOW


def say_about_the_network(decision: Decision) -> Policy:
    return lambda request: decision if request.permission == "network" else Decision.ALLOW


def find_in_memory(marker: bytes, wanted: Sequence[bytes]) -> dict[str, Any]:
    """Looks through the memory of all processes of the sandbox in which a process has `marker` in its environment."""
    numbers = [one for one in os.listdir("/proc") if one.isdigit()]
    spaces = {"self": read_link("/proc/self/ns/pid")} | {one: read_link(f"/proc/{one}/ns/pid") for one in numbers}
    inside = {spaces[one] for one in numbers if marker in read_bytes(f"/proc/{one}/environ")} - {spaces["self"]}
    searched = [one for one in numbers if spaces[one] in inside]
    parents = [read_bytes(f"/proc/{one}/stat").rpartition(b")")[2].split()[1].decode() for one in searched]
    searched += [one for one in {*parents} - {*searched} if read_bytes(f"/proc/{one}/comm") == b"bwrap\n"]
    found: dict[str, Any] = {"processes": [read_bytes(f"/proc/{one}/comm").decode().strip() for one in searched]}
    found |= {"bytes": 0, "unread": 0, "marked": 0, "found": []}
    for number in searched:
        for line in read_bytes(f"/proc/{number}/maps").decode().splitlines():
            span, rights, *_ = line.split()
            if rights[0] != "r" or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            begin, end = (int(one, 16) for one in span.split("-"))
            try:
                with open(f"/proc/{number}/mem", "rb", buffering=0) as memory:
                    memory.seek(begin)
                    content = memory.read(end - begin)
            except OSError:
                found["unread"] += 1
                continue
            found["unread"] += len(content) < end - begin
            found["bytes"] += len(content)
            found["marked"] += marker in content
            found["found"] += [f"{line} {one!r}" for one in wanted if one in content]
    return found


def read_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # it ended, or is another user's
        return b""


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


class Bench:
    """Runs lines behind the gate, with a person who answers by the host; or as `answer` says.

    `outer`: the rules of whoever this one works for.
    """

    def __init__(
        self,
        workspace: Path,
        egress: Egress,
        policy: Sequence[str] | Policy = RULES,
        answer: Answer | Waiting | None = None,
        outer: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.asked: list[str] = []
        self.hesitates = 0.2  # seconds
        self.answer = answer
        self.scope = Scope(session_id="proxy", workspace=workspace)
        gate = PolicyGate(policy if callable(policy) else rules(*policy), self._answer)
        gate = JoinedGate(gate, PolicyGate(rules(*outer), self._answer)) if outer else gate
        steps = standard_steps(gate, Secrets(), egress=egress)
        self.executor = ToolExecutor(ToolRegistry([Bash(**settings), BashOutput()]), steps)

    async def _answer(self, request: PermissionRequest) -> Answer:
        if request.effects is not None:
            self.asked.append(request.effects.summary)
            return Answer.ONCE
        self.asked.append(str(request.target) or request.question)
        if isinstance(self.answer, Waiting):
            raise self.answer
        if self.answer is not None:
            return self.answer
        await asyncio.sleep(self.hesitates if "asked" in str(request.target) or "slow" in str(request.target) else 0)
        return Answer.ONCE if "asked" in str(request.target) else Answer.no("not that one")

    async def look(self, arguments: dict[str, Any]) -> ToolResult:
        return await self.executor.execute(ToolCall("bash_output", arguments), self.scope)

    async def run(self, name: str, line: str, searching: Awaitable[Any] | None = None, **arguments: Any) -> None:
        world.hits.clear()
        self.asked.clear()
        result = await self.executor.execute(ToolCall("bash", {"command": line, **arguments}), self.scope)
        data = result.data or {}
        if "job_id" in data:
            asked = {"id": data["job_id"], "wait": 20}
            while (data := (await self.look(asked)).data or {}).get("running"):
                pass
            result = await self.look({**asked, "since": 0})
        said = {"output": data.get("output", result.for_llm), "told": result.for_llm, "exit": data.get("exit_code")}
        seen = {"network": data.get("network", []), "asked": list(self.asked), "hits": dict(world.hits)}
        memory = {"memory": await searching} if searching is not None else {}
        sys.stdout.write(json.dumps({"name": name, **said, **seen, **memory}) + "\n")
        sys.stdout.flush()

    async def run_at_once(self, name: str, lines: Sequence[str]) -> None:
        """Runs each line in a sandbox of its own, all at the same time."""
        world.hits.clear()
        calls = [self.executor.execute(ToolCall("bash", {"command": one, "timeout": 240}), self.scope) for one in lines]
        results = await asyncio.gather(*calls)
        said = [(one.data or {}).get("output", one.for_llm) for one in results]
        seen = [len((one.data or {}).get("network", [])) for one in results]
        sys.stdout.write(json.dumps({"name": name, "said": said, "network": seen, "hits": dict(world.hits)}) + "\n")
        sys.stdout.flush()


async def search_memory(name: str, bench: Bench, workspace: Path, line: str, marker: str) -> None:
    """Runs a line that waits in the middle, after its requests; meanwhile the memory of its sandbox is searched."""
    for fifo in ("ready", "go"):
        os.mkfifo(workspace / fifo)

    def search() -> dict[str, Any]:
        (workspace / "ready").read_bytes()
        value = SECRET.encode()
        try:
            return find_in_memory(marker.encode(), [value, value[::-1], base64.b64encode(value), value.hex().encode()])
        finally:
            (workspace / "go").write_bytes(b"")

    searching = asyncio.get_running_loop().run_in_executor(None, search)
    await bench.run(name, line, searching=searching)
    for fifo in ("ready", "go"):
        (workspace / fifo).unlink()


async def scenarios(folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir()
    (workspace / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    (workspace / "ways.py").write_bytes(Path(__file__).with_name("ways_around.py").read_bytes())
    plain = Bench(workspace, Egress())
    curl = "curl -sS --max-time 20 --cacert ca.pem"
    await plain.run("allowed", f"{curl} https://allowed.test/a")
    await plain.run("allowed on its port", f"{curl} https://allowed.test:8443/a")
    await plain.run("allowed on another port", f"{curl} https://allowed.test:8444/a")
    await plain.run("allowed, plain", f"{curl} http://allowed.test/a; {curl} http://allowed.test/b")
    await plain.run("allowed on another port, plain", f"{curl} -d 'EHLO me' http://allowed.test:25/")
    (workspace / "many_hosts.py").write_text(MANY_HOSTS)
    await plain.run("many hosts", "python3 many_hosts.py")
    await plain.run("knows no proxy", f"{curl} --noproxy '*' https://allowed.test/a")
    await plain.run("denied", f"{curl} https://denied.test/a")
    await plain.run("denied, plain", f"{curl} http://denied.test/a")
    await plain.run("denied, knows no proxy", f"{curl} --noproxy '*' https://denied.test/a")
    await plain.run("asked", f"{curl} https://asked.test/a -o /dev/null & {curl} https://asked.test/b; wait")
    plain.hesitates = 2.5
    await plain.run("asked longer than its time", f"{curl} https://asked.test/a", timeout=2)
    plain.hesitates = 0.2
    await plain.run("refused by the person", f"{curl} https://refused.test/a")
    await plain.run("no rule", f"{curl} https://other.test/a")
    many = f"for one in 1 2 3 4 5 6 7 8 9; do {curl} https://slow$one.test/ & done; wait"
    await plain.run("many refused at once", many)
    await plain.run("leads inside", f"{curl} https://inside.test/a")
    await plain.run("leads outside and inside", f"{curl} https://mixed.test/a")
    await plain.run("ways around", "python3 ways.py")
    await plain.run_at_once("many", [f"{curl} --max-time 200 https://allowed.test/{number}" for number in range(50)])
    late = Bench(workspace, Egress(), ("allow execute", "allow network late.test", "allow network never.test"))
    world.silent.update({"late.test": 4, "never.test": 1_000})  # two of each try
    await late.run("late name", f"{curl} https://late.test/a")
    connections.LATE_NAME = 1.5
    await late.run("no name", f"{curl} https://never.test/a")
    await plain.run(
        "background", f"{curl} https://allowed.test/a; {curl} https://denied.test/a; echo end", background=True
    )
    tried = Bench(workspace, Egress(), [one for one in RULES if one != "allow execute"])
    await tried.run("a trial", f"{curl} https://allowed.test/a -o fetched; {curl} https://denied.test/b")
    opened = Bench(workspace, Egress(), network=True)
    await opened.run("opened", f"{curl} https://other.test/a")
    await opened.run("opened, denied", f"{curl} https://denied.test/a")
    for policy in ("deny network", "ask network", "allow network"):
        bench = Bench(workspace, Egress(), ("allow execute", policy), network=True)
        await bench.run(f"opened, {policy}", f"{curl} https://other.test/a")
    for yes in (False, True):
        unconfined = Bench(workspace, Egress(), answer=Answer.ONCE if yes else None, sandbox="off")
        await unconfined.run(f"no sandbox, {yes}", f"{curl} https://denied.test/a")
    only_allows = ("allow execute", "allow network allowed.test")
    for yes in (False, True):
        unconfined = Bench(workspace, Egress(), only_allows, Answer.ONCE if yes else None, sandbox="off")
        await unconfined.run(f"no sandbox, only allows, {yes}", f"{curl} https://denied.test/a")
    about_commands = Bench(workspace, Egress(), ("allow tool:bash curl *",), sandbox="off")
    await about_commands.run("no sandbox, a rule about commands", f"{curl} https://denied.test/a")
    open_commands = Bench(workspace, Egress(), ("allow execute", "deny tool:bash rm *"), network=True)
    straight = f"{curl} --noproxy '*' --resolve denied.test:8444:{world.OTHER} https://denied.test:8444/a"
    await open_commands.run("opened, a rule about commands", straight)
    nothing_said = Bench(workspace, Egress(), ("allow execute",), sandbox="off")
    await nothing_said.run("no sandbox, no rule", f"{curl} https://denied.test/a")
    uninspected = Bench(workspace, Egress(inspect=True), ("allow execute",), sandbox="off")
    await uninspected.run("no sandbox, inspect", f"{curl} https://denied.test/a")
    for host in ("denied", "asked", "other"):
        by_function = Bench(workspace, Egress(), judge_by_function, network=True)
        await by_function.run(f"a function, {host}", f"{curl} https://{host}.test/a")
        closed = Bench(workspace, Egress(), judge_by_function)
        await closed.run(f"a function, no network, {host}", f"{curl} https://{host}.test/a")
    for decision in Decision:
        about_all = Bench(workspace, Egress(), say_about_the_network(decision), sandbox="off")
        await about_all.run(f"a function, no sandbox, {decision}", f"{curl} https://denied.test/a")
    for host in ("denied", "asked", "other"):
        joined = Bench(workspace, Egress(), ("allow execute",), outer=RULES, network=True)
        await joined.run(f"working for another, {host}", f"{curl} https://{host}.test/a")
    kept = ProgramSecret(lambda: SECRET, ("secret.test",), name="API_TOKEN")
    holding = Bench(workspace, Egress(secrets=(kept,)))
    curl = "curl -sS --max-time 20"
    bearer = '-H "Authorization: Bearer $API_TOKEN"'
    await holding.run("secret", f"{curl} {bearer} https://secret.test/a -D -")
    tries = Bench(workspace, Egress(secrets=(kept,)), [one for one in RULES if one != "allow execute"])
    look = "grep -ac forge- tried && echo reached; cat tried"
    await tries.run("a trial with a secret", f"{curl} {bearer} https://secret.test/a -o tried; {look}")
    await holding.run("secret without a header", f"{curl} https://secret.test/a --compressed")
    await holding.run("secret as a password", f'{curl} -u "me:$API_TOKEN" https://secret.test/a')
    if shutil.which("git") is not None:
        make_repository(folder / "git")
        quiet = "export GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1;"
        show = "git -C got log --oneline | wc -l; head -c 6 got/file; cat got/.git/config"
        at = "secret.test/private.git"
        clone = f"{quiet} rm -rf got; git clone -q https://x-access-token:$API_TOKEN@{at} got && {show}"
        await holding.run("git, private", clone)
        coded = '$(printf "x-access-token:$API_TOKEN" | base64 -w0)'
        header = f'-c http.extraHeader="Authorization: Basic {coded}"'
        await holding.run(
            "git, private, by a header", f"{quiet} rm -rf got; git {header} clone -q https://{at} got; {show}"
        )
        await holding.run(
            "git, private, a wrong password", f"{quiet} rm -rf got; git clone -q https://x:y@{at} got; {show}"
        )
        as_password = ProgramSecret(lambda: SECRET, ("secret.test",), header="Authorization: Basic x-access-token:{}")
        giving = Bench(workspace, Egress(secrets=(as_password,)))
        await giving.run("git, without a password", f"{quiet} rm -rf got; git clone -q https://{at} got; {show}")
        author = "-c user.name=a -c user.email=a@b"
        change = (
            f"{clone} >/dev/null && cd got && head -c 3000000 /dev/urandom >> file && git {author} commit -qam second"
        )
        push = "git -c http.postBuffer=65536 push -q && git ls-remote -q origin main && git rev-parse HEAD"
        await holding.run("git, pushed", f"{change} && {push}")
    await holding.run("secret, knows no proxy", f"{curl} --noproxy '*' {bearer} https://secret.test/a")
    await holding.run("placeholder elsewhere", f"{curl} {bearer} --cacert ca.pem http://allowed.test/a")
    strange = ProgramSecret(lambda: SECRET[::-1], ("elsewhere.test",), name="STRANGE")
    beside = Bench(workspace, Egress(secrets=(kept, strange)))
    await beside.run("placeholder of another host", f'{curl} -H "Authorization: Bearer $STRANGE" https://secret.test/')
    await beside.run("placeholder of another host, basic", f'{curl} -u "me:$STRANGE" https://secret.test/')
    await holding.run("placeholder in a URL", f'{curl} "https://secret.test/?q=$API_TOKEN"')
    await holding.run("placeholder in a body", f'{curl} -d "q=$API_TOKEN" https://secret.test/')
    await holding.run("body", f"head -c 300000 /dev/zero | {curl} --data-binary @- https://secret.test/ | wc -c")
    halves = '{ printf %s "${API_TOKEN%??????}"; sleep 0.2; printf %s "${API_TOKEN#"${API_TOKEN%??????}"}"; }'
    await holding.run("placeholder in two chunks", f"{halves} | {curl} -T - https://secret.test/never")
    await holding.run("trace", f"{curl} -X TRACE https://secret.test/")
    await holding.run("fronting", f'{curl} -H "Host: denied.test" https://secret.test/')
    (workspace / "odd.py").write_bytes(Path(__file__).with_name("odd_requests.py").read_bytes())
    await holding.run("odd requests", "python3 odd.py")
    (workspace / "upgrade.py").write_text(UPGRADE)
    await holding.run("upgraded", "python3 upgrade.py")
    await holding.run("in parts", f"for at in 0-15 16-31 32-90; do {curl} -r $at https://secret.test/part; done")
    await holding.run("only a part", f"{curl} https://secret.test/only-a-part")
    (workspace / "kept.py").write_text(KEPT)
    await holding.run("kept", "python3 kept.py")
    (workspace / "early.py").write_text(EARLY)
    await holding.run("refused while the request is sent", "python3 early.py")
    for what in ("line", "status", "chunk"):
        await holding.run(f"broken {what}", f"{curl} -i {bearer} https://secret.test/broken-{what}")
    await holding.run("escaped", f"{curl} {bearer} https://secret.test/escaped")
    await holding.run("named", f"{curl} -i {bearer} https://secret.test/named")
    await holding.run("slow", f"{curl} -i {bearer} https://secret.test/slow")
    await holding.run("hints", f"{curl} -i https://secret.test/hints")
    await holding.run("trace, small", f"{curl} -X trace https://secret.test/")
    await holding.run("connect inside", f"{curl} -X CONNECT --request-target denied.test:443 https://secret.test/")
    await holding.run("another target", f"{curl} --request-target http://denied.test/x https://secret.test/")
    two = "-H 'Transfer-Encoding: chunked' -H 'Content-Length: 4'"
    await holding.run("two lengths", f"{curl} --http1.1 {two} -d 'hello world' https://secret.test/")
    http2 = "-H 'Connection: Upgrade, HTTP2-Settings' -H 'Upgrade: h2c' -H 'HTTP2-Settings: AAMAAABk'"
    await holding.run("another protocol", f"{curl} --http1.1 {http2} https://secret.test/")
    open_holding = Bench(workspace, Egress(secrets=(kept,)), ("allow execute",), network=True)
    await open_holding.run("opened, secret", f"{curl} {bearer} https://secret.test/a")
    await open_holding.run("opened, beside a secret", f"{curl} --cacert ca.pem https://other.test/a")
    await open_holding.run("opened, no proxy", "python3 -c 'import socket; socket.create_connection((\"a.test\", 22))'")
    inspecting = Bench(workspace, Egress(inspect=True), ("allow execute",), network=True)
    await inspecting.run("opened, inspected", f'{curl} -H "Host: denied.test" https://other.test/a')
    await inspecting.run("opened, inspected, honest", f"{curl} https://other.test/a")
    await holding.run("passed through", f"{curl} --cacert ca.pem https://allowed.test/a")
    later = Bench(workspace, Egress(), answer=Waiting("it waits for a person", kind="approval"))
    await later.run("answered later", f"{curl} https://asked.test/a")
    two_tokens = (
        ProgramSecret(lambda: "may-only-read".ljust(40, "0"), ("secret.test",), name="READS"),
        ProgramSecret(lambda: "may-write-too".ljust(40, "0"), ("secret.test",), name="WRITES"),
    )
    both = Bench(workspace, Egress(secrets=two_tokens))
    show = "cut -d' ' -f2- | tr -d '\\r' | sed s/$READS/reads/\\;s/$WRITES/writes/"
    for name in ("READS", "WRITES"):
        named = f'{curl} -H "Authorization: Bearer ${name}" https://secret.test/a'
        basic = f'{curl} -u "me:${name}" https://secret.test/a -o /dev/null -D /dev/null'
        await both.run(f"two secrets, {name}", f"{named} | grep -a ^authorization: | {show}; {basic}")
    at_once = '-H "Authorization: Bearer $READS $WRITES"'
    await both.run("two secrets, both", f"{curl} {at_once} https://secret.test/a")
    await both.run("two secrets, none", f"{curl} https://secret.test/a | grep -a ^authorization: | {show}")
    (workspace / "holder.py").write_text(HOLDER)
    await search_memory("memory", holding, workspace, "python3 holder.py; sleep 0", kept.placeholder)
    given = Bench(workspace, Egress(secrets=(kept,)), env_passthrough=("GIVEN_TOKEN",))
    os.environ["GIVEN_TOKEN"] = SECRET
    await search_memory(
        "memory of a program that was given it", given, workspace, "python3 holder.py", kept.placeholder
    )
    del os.environ["GIVEN_TOKEN"]
    (workspace / "search.py").write_text(SEARCH)
    await holding.run("search", f"{curl} {bearer} https://secret.test/a -o answer; python3 search.py")


async def main(folder: Path) -> None:
    world.NAMES.update(HOSTS)
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(world.NameServer, local_addr=("127.0.0.1", 53))
    context = Authority(folder).certify(*(f"DNS:{name}" for name in HOSTS))
    for port in (443, 8443, 8444):
        await asyncio.start_server(echo, "0.0.0.0", port, ssl=context)
    for port in (80, 25):
        await asyncio.start_server(echo, "0.0.0.0", port)
    await scenarios(folder)


if __name__ == "__main__":
    os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    world.prepare(Path(sys.argv[1]))
    asyncio.run(main(Path(sys.argv[1])))
