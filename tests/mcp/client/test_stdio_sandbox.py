"""The program of a server reaches its directory and what is declared, and nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, Answer, Scripted
from forge.core.activity import ActivityStream
from forge.core.context import Root, Scope
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.events import ToolProgress
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry, mount_source
from forge.mcp import Stdio, mcp
from forge.mcp.client.link import ReachedHosts
from forge.network.egress import Egress
from forge.network.program_secrets import ProgramSecret
from forge.permissions.gate import approve_all, nobody
from forge.permissions.policy import rules
from forge.permissions.questions import OpeningQuestions, let_ask
from forge.pipeline import standard_executor
from forge.process import sandbox
from forge.process.sandbox import Tier, problem
from tests.mcp.remote import Desk
from tests.network.authority import make_authority

SERVER = Path(__file__).with_name("tries_server.py")
confined = pytest.mark.skipif(
    sys.platform != "linux" or bool(problem(Tier.BUBBLEWRAP) and problem(Tier.LANDLOCK)),
    reason="no sandbox can be had on this machine",
)


@pytest.fixture
def home(tmp_path):
    """A directory with a server, and beside it a secret."""
    (tmp_path / "home").mkdir()
    shutil.copy(SERVER, tmp_path / "home" / "server.py")
    (tmp_path / "secret").write_text("a secret")
    return tmp_path / "home"


@asynccontextmanager
async def tries(home, more=(), **settings):
    """Yields a function that runs code in a server. `more`: further arguments."""
    desk = Desk()
    server = mcp(Stdio(sys.executable, [str(home / "server.py"), *more], cwd=home, **settings), name="tries")
    async with mount_source(desk.registry, server):

        async def attempt(code):
            return (await desk.call("tries__try", code=code)).for_llm

        yield attempt


def reading(path):
    return f"found = open({str(path)!r}).read()"


def writing(path):
    return f"found = open({str(path)!r}, 'w').write('x')"


@confined
async def test_a_program_reaches_its_directory_and_nothing_beside_it(home):
    async with tries(home, sandbox="required") as attempt:
        assert await attempt(writing(home / "note")) == "1"
        assert "Error" in await attempt(reading(home.parent / "secret"))
        await attempt(writing(home.parent / "new"))  # perhaps into a /tmp of its own
    assert (home / "note").read_text() == "x"
    assert not (home.parent / "new").exists()
    async with tries(home, sandbox="off") as attempt:
        assert await attempt(reading(home.parent / "secret")) == "a secret"


@confined
@pytest.mark.parametrize(("access", "reads", "writes"), [("write", True, True), ("read", True, False)])
async def test_its_access_to_its_directory_is_declared(home, access, reads, writes):
    async with tries(home, sandbox="required", workspace=access) as attempt:
        assert ("tries" in await attempt(reading(home / "server.py"))) is reads
        assert (await attempt(writing(home / "note")) == "1") is writes


@confined
async def test_a_program_without_the_workspace_works_in_an_empty_folder(home):
    where = home.parent / "elsewhere"
    where.mkdir()
    shutil.copy(SERVER, where / "server.py")
    desk = Desk()
    server = Stdio(
        sys.executable, [str(where / "server.py")], cwd=home, sandbox="required", workspace="none", roots=[where]
    )
    async with mount_source(desk.registry, mcp(server, name="tries")):
        found = await desk.call("tries__try", code="import os; open('x', 'w').close(); found = os.listdir('.')")
        assert found.for_llm == "['x']"
        assert "Error" in (await desk.call("tries__try", code=reading(home / "server.py"))).for_llm
    assert os.listdir(home) == ["server.py"]


@confined
async def test_declared_roots_are_opened_as_they_are_declared(home):
    for name in ("shown", "given", "hidden"):
        (home.parent / name).mkdir()
        (home.parent / name / "text").write_text(name)
    roots = [home.parent / "shown", Root(home.parent / "given", writable=True)]
    async with tries(home, sandbox="required", roots=roots) as attempt:
        assert await attempt(reading(home.parent / "shown" / "text")) == "shown"
        assert "Error" in await attempt(writing(home.parent / "shown" / "text"))
        assert await attempt(writing(home.parent / "given" / "text")) == "1"
        assert "Error" in await attempt(reading(home.parent / "hidden" / "text"))


@confined
@pytest.mark.parametrize("how", ["script", "program", "link"])
async def test_a_file_that_the_sandbox_hides_is_named_with_the_setting_that_shows_it(home, how):
    where = home.parent / "elsewhere"
    where.mkdir()
    shutil.copy(SERVER, where / "server.py")
    (where / "program").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{where}/server.py"\n')
    (where / "program").chmod(0o755)
    (home / "node_modules").symlink_to(where)
    command = {
        "script": [sys.executable, str(where / "server.py")],
        "program": [str(where / "program")],
        "link": [sys.executable, "node_modules/server.py"],
    }[how]
    server = Stdio(command[0], command[1:], cwd=home, sandbox="required")
    with pytest.raises(ToolError) as caught:
        async with mcp(server, name="tries"):
            pass
    assert "sandbox hides" in caught.value.suggestion
    assert "roots" in caught.value.suggestion
    assert "by hand" not in caught.value.suggestion
    desk = Desk()
    async with mount_source(desk.registry, mcp(replace(server, roots=[where]), name="tries")):
        assert (await desk.call("tries__try", code="found = 1")).for_llm == "1"


@confined
async def test_a_server_that_fails_for_another_reason_is_run_by_hand(home):
    with pytest.raises(ToolError) as caught:
        async with mcp(Stdio(sys.executable, ["-c", "raise SystemExit(3)"], cwd=home, sandbox="required")):
            pass
    assert caught.value.suggestion == "Run its command by hand to see the error."


@confined
@pytest.mark.parametrize("network", [True, False])
async def test_the_network_is_there_if_it_is_declared(home, network):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        code = f"import socket; found = socket.create_connection(('127.0.0.1', {port}), 5).getpeername()[1]"
        async with tries(home, sandbox="required", network=network) as attempt:
            assert (await attempt(code) == str(port)) is network


@pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="rules about hosts of programs need bubblewrap")
async def test_the_rules_about_hosts_hold_for_a_server_and_its_secret_stays_outside(home):
    asked = []

    async def answer(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    code = (
        "import os, urllib.request\n"
        "to = urllib.request.build_opener(urllib.request.ProxyHandler({'http': os.environ['http_proxy']}))\n"
        "os.environ.pop('no_proxy'), os.environ.pop('NO_PROXY')\n"
        f"found = [os.environ['TOKEN'][:6], to.open('http://localhost:{port}/').read()]"
    )
    secret = ProgramSecret(lambda: "the-value-itself", ("api.example.com",), name="TOKEN")
    egress = Egress(private=("localhost",), secrets=(secret,))
    async with listening:
        for rule, came in (
            (f"allow network localhost:{port}", "['forge-', b'hello']"),
            ("allow network x.test", "HTTPError"),
        ):
            settings = {"hosts": rules(rule, "deny network evil.test"), "egress": egress, "env": {"TOKEN": "outside"}}
            async with tries(home, sandbox="required", **settings) as attempt:
                assert came in await attempt(code)
    assert len(asked) == 1


@pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="rules about hosts of programs need bubblewrap")
async def test_a_program_holds_placeholders_and_one_with_the_whole_network_the_values(home):
    """In its variables and in its arguments; one without a network could only give the value away."""
    value = "the-value-itself"
    secret = ProgramSecret(lambda: value, ("api.example.com",), name="TOKEN")
    settings = {
        "egress": Egress(secrets=(secret,)),
        "env": {"TOKEN": value, "KEY": value},
        "placeholders": {value: secret.placeholder},
    }
    wanted = f"b{value[:8]!r} + b{value[8:]!r}"
    code = (
        "import glob, os\n"
        f"places = glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline')\n"
        f"held = [{wanted} in open(one, 'rb').read() for one in places]\n"
        "found = [os.environ['TOKEN'] + os.environ['KEY'], any(held)]"
    )
    hosts = {"hosts": rules("allow network api.example.com")}
    for network, some in ((False, hosts), (False, {"hosts": rules("allow read")}), (False, {}), (True, hosts)):
        async with tries(
            home, sandbox="required", network=network, more=(f"--token={value}",), **some, **settings
        ) as t:
            assert await t(code) == str([value * 2, True] if network else [secret.placeholder * 2, False])


@pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="rules about hosts of programs need bubblewrap")
async def test_a_host_that_a_program_did_not_reach_is_reported_with_the_call(home):
    code = (
        "import socket\n"
        "with socket.create_connection(('127.0.0.1', 3128)) as proxy:\n"
        "    proxy.sendall(b'CONNECT denied.test:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "    found = proxy.recv(12)"
    )
    registry, activity, said = ToolRegistry(), ActivityStream(), []
    activity.subscribe(lambda event: said.append(event.title), ToolProgress)
    hosts = rules("allow network x.test", "deny network denied.test")
    server = mcp(Stdio(sys.executable, [str(home / "server.py")], cwd=home, hosts=hosts), name="tries")
    executor = standard_executor(registry, policy=rules("allow *"), approve=approve_all, activity=activity)
    async with mount_source(registry, server):
        for one, came in ((code, "403"), ("found = []", "[]")):
            call = ToolCall("tries__try", {"code": one})
            assert came in (await executor.execute(call, Scope(session_id="hosts"))).for_llm
    assert said == ["tries: denied.test:443 was not reached: the rule `deny network denied.test` (rule 2)"]


CONNECT = """
import os, select, ssl, sys, urllib.request
os.environ.pop("no_proxy", None), os.environ.pop("NO_PROXY", None)
proxies = urllib.request.ProxyHandler({"https": "http://127.0.0.1:3128"})
tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=AUTHORITY))
read = lambda port: urllib.request.build_opener(proxies, tls).open(f"https://localhost:{port}/").read()
"""


@asynccontextmanager
async def watched(home, connected=None):
    """Yields a call of a server whose program may reach two TLS servers on this machine, and their ports."""
    authority = make_authority(home)

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if connected is not None:
            connected.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    tls = authority.certify("DNS:localhost")
    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as one,
        await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as other,
    ):
        ports = [each.sockets[0].getsockname()[1] for each in (one, other)]
        hosts = rules(*(f"allow network localhost:{port}" for port in ports), "deny network denied.test")
        egress = Egress(private=("localhost",))
        start = f"AUTHORITY = {str(authority.file)!r}{CONNECT}"
        desk = Desk()
        server = mcp(
            Stdio(sys.executable, [str(home / "server.py")], cwd=home, hosts=hosts, egress=egress), name="tries"
        )
        async with mount_source(desk.registry, server):

            async def call(code):
                return await desk.call("tries__try", code=start + code)

            yield call, ports


def reached(result):
    return [(one["host"], one["port"], one.get("connections", 0)) for one in result.data.get("network", ())]


def begun(result):
    """The hosts to which connections began: the end of an earlier one may still be under way, and then has 0."""
    return [one for one in reached(result) if one[2]]


@pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="rules about hosts of programs need bubblewrap")
async def test_the_hosts_that_a_program_reached_are_told_with_the_call_of_that_time(home):
    async with watched(home) as (call, (port, _)):
        first = await call(f"found = read({port})")
        assert first.for_llm == "b'hello'"
        assert reached(first) == [("localhost", port, 1)]
        (facts,) = first.data["network"]
        assert facts["bytes_received"] > 100
        assert not begun(await call("found = 1"))
        again = await call(f"found = [read({port}), read({port})]")
        assert reached(again) == [("localhost", port, 2)]  # of this call alone
        assert again.data["network"][0]["bytes_received"] < 3 * facts["bytes_received"]
        refused = await call("found = proxies")
        assert reached(refused) == []
        refused = await call("urllib.request.build_opener(proxies).open('https://denied.test')")
        assert refused.data["network"][0]["refused"] == "the rule `deny network denied.test` (rule 3)"


@pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="rules about hosts of programs need bubblewrap")
async def test_of_several_calls_at_once_each_is_told_of_the_hosts_of_its_time(home):
    connected = asyncio.Event()
    async with watched(home, connected) as (call, (early, late)):
        waits = f"read({early}); select.select([sys.stdin], [], []); found = read({late})"  # until the other call came
        first = asyncio.ensure_future(call(waits))
        await connected.wait()
        second = await call("found = 2")
        assert reached(await first) == [("localhost", early, 1), ("localhost", late, 1)]
        assert begun(second) == [("localhost", late, 1)]


async def test_what_a_call_without_a_result_reached_is_told_with_the_next_one():
    report: list[dict[str, Any]] = []
    hosts = ReachedHosts(lambda: [dict(one) for one in report])
    report.append({"host": "start.test", "port": 443, "connections": 1, "bytes_sent": 1, "bytes_received": 1})
    before = hosts.begin()
    report.append({"host": "lost.test", "port": 443, "connections": 1, "bytes_sent": 1, "bytes_received": 1})
    other = hosts.begin()
    assert hosts.end(before, has_result=False) == []
    assert [one["host"] for one in hosts.end(other, has_result=True)] == ["start.test", "lost.test"]
    assert hosts.end(hosts.begin(), has_result=True) == []


@pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="only bubblewrap hides single files")
async def test_a_hidden_file_of_its_directory_cannot_be_read(home):
    for name in ("token", "other"):
        (home / name).write_text("a value")
    async with tries(home, sandbox="required", hidden=[home / "token"]) as attempt:
        assert await attempt(reading(home / "token")) == "PermissionError"
        assert await attempt(reading(home / "other")) == "a value"


@confined
async def test_only_named_variables_arrive_and_the_home_directory_is_empty(home, monkeypatch):
    monkeypatch.setenv("FORGE_TEST_SECRET", "not for servers")
    look = "import os; found = [os.environ.get('GIVEN'), os.environ.get('FORGE_TEST_SECRET')]"
    async with tries(home, sandbox="required", env={"GIVEN": "yes"}) as attempt:
        assert await attempt(look) == "['yes', None]"
        assert await attempt("import os; found = os.listdir(os.environ['HOME'])") == "[]"


@confined
async def test_the_memory_of_a_process_is_bounded(home):
    async with tries(home, sandbox="required", memory=256) as attempt:
        assert await attempt("found = len(bytearray(64 * 2**20))") == str(64 * 2**20)
        assert await attempt("found = len(bytearray(512 * 2**20))") == "MemoryError"


@confined
async def test_a_program_that_crashes_in_its_sandbox_is_restarted(home):
    async with tries(home, sandbox="required") as attempt:
        died = await attempt("import os; os.kill(os.getpid(), 9)")
        assert "tries is down (SIGKILL" in died
        async with asyncio.timeout(60):
            while True:  # a call says when it is back, no event does
                said = await attempt("found = 'back'")
                if "is down" not in said:
                    break
                await asyncio.sleep(0.05)
        assert said == "back"


@confined
async def test_a_program_that_is_missing_in_the_sandbox_is_named(home):
    with pytest.raises(ToolError) as caught:
        async with mcp(Stdio("surely-no-such-program", cwd=home, sandbox="required")):
            pass
    assert "surely-no-such-program" in str(caught.value)
    assert caught.value.kind is ErrorKind.CONFIG


@confined
async def test_files_that_would_start_programs_are_set_aside_when_it_ends(home):
    async with tries(home, sandbox="required") as attempt:
        assert await attempt(writing(home / "forge.yaml")) == "1"
    assert not (home / "forge.yaml").exists()
    assert (home / "forge.yaml.rejected").exists()


async def test_without_a_sandbox_nothing_starts_and_the_error_says_what_to_do(home, monkeypatch):
    monkeypatch.setattr(sandbox, "_problem", lambda tier: "it is switched off")
    with pytest.raises(ToolError) as caught:
        async with tries(home, sandbox="required"):
            pass
    assert caught.value.kind is ErrorKind.CONFIG
    assert "the server tries cannot be started in a sandbox" in caught.value.message
    assert "it is switched off" in caught.value.message
    assert "bubblewrap" in caught.value.suggestion
    assert "`sandbox: off` for this server" in caught.value.suggestion
    for setting in ("auto", "off"):
        async with tries(home, sandbox=setting) as attempt:
            assert await attempt("found = 'it runs'") == "it runs"


@pytest.mark.parametrize(
    ("answer", "setting", "starts"),
    [
        (Answer.ONCE, True, True),
        (Answer.NO, True, False),
        (None, True, False),  # no one to ask
        ("yes", True, False),  # --yes
        (Answer.ONCE, False, False),  # a person wrote `sandbox: required`
    ],
)
async def test_without_a_sandbox_a_person_is_asked_who_is_told_so(home, monkeypatch, answer, setting, starts):
    monkeypatch.setattr(sandbox, "_problem", lambda tier: "it is switched off")
    asked = []

    async def approve(request):
        asked.append(request)
        return answer

    approver = {None: nobody, "yes": approve_all}.get(answer, approve) if not isinstance(answer, Answer) else approve
    transport = Stdio(
        sys.executable, [str(home / "server.py")], cwd=home, sandbox="required", ask_unconfined=setting, hosts=rules()
    )
    agent = Agent(Scripted("Hello!"), tools=[mcp(transport, name="tries")], approve=approver)
    if starts:
        async with agent:
            assert "tries__try" in agent.registry.names
    else:
        with pytest.raises(ToolError, match="cannot be started in a sandbox"):
            async with agent:
                pass
    if setting and approver is approve:
        (request,) = asked
        assert "There is no sandbox on this machine" in request.question
        assert "all your permissions" in request.question
        assert str(home / "server.py") in request.question
        assert request.personal
    else:
        assert not asked


async def test_only_the_agent_that_opens_a_server_is_asked(home, monkeypatch):
    monkeypatch.setattr(sandbox, "_problem", lambda tier: "it is switched off")
    asked = []
    answers = [Answer.NO, Answer.ONCE]

    async def approve(request):
        asked.append(request)
        return answers[len(asked) - 1]

    command = sys.executable, [str(home / "server.py")]
    server = mcp(Stdio(*command, cwd=home, sandbox="required", ask_unconfined=True), name="tries")
    agent = Agent(Scripted("Hello!"), tools=[server], approve=approve)
    with pytest.raises(ToolError, match="cannot be started in a sandbox"):
        async with agent:
            pass
    with pytest.raises(ToolError, match="cannot be started in a sandbox"):
        async with server:  # without an agent: the answer of the last one counts no more, and no one is asked
            pass
    assert len(asked) == 1
    async with agent:
        assert "tries__try" in agent.registry.names
    assert len(asked) == 2


async def test_rules_about_hosts_keep_a_program_from_starting_without_a_sandbox(home, monkeypatch):
    monkeypatch.setattr(sandbox, "_problem", lambda tier: "it is switched off")
    transport = Stdio(
        sys.executable,
        [str(home / "server.py")],
        cwd=home,
        sandbox="required",
        ask_unconfined=True,
        hosts=rules("deny network evil.example"),
    )
    with pytest.raises(ToolError, match="only bubblewrap"):
        async with Agent(Scripted("Hello!"), tools=[mcp(transport, name="tries")], approve=lambda request: True):
            pass


@pytest.mark.parametrize("command", ["uvx mcp-server-git", "npx -y @scope/server", "pipx run x", "bunx x"])
async def test_a_program_that_is_fetched_at_its_start_must_be_pinned_first(command, home):
    program, *args = command.split()
    with pytest.raises(ToolError) as caught:
        async with mcp(Stdio(program, args, cwd=home), name="git"):
            pass
    assert "the server git is fetched when it starts" in caught.value.message
    assert f"forge mcp add git --replace -- {command}" in caught.value.suggestion


@pytest.mark.parametrize("wrong", [{"sandbox": "loose"}, {"workspace": "all"}, {"memory": 1}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(DefinitionError, match=next(iter(wrong))):
        Stdio("x", **wrong)


def test_a_wrapper_may_forward_the_question_of_a_source():
    class Wrapper:
        def __init__(self, source: object) -> None:
            self._source = source

        def __getattr__(self, name: str) -> Any:
            return getattr(self._source, name)

    class Asking:
        def ask_while_opening(self, questions: OpeningQuestions | None) -> None:
            asked.append(questions)

    asked: list[OpeningQuestions | None] = []
    questions = OpeningQuestions(nobody)
    for source in (Asking(), Wrapper(Asking()), Wrapper(object())):  # the last one has no questions
        let_ask(source, questions)
    assert asked == [questions] * 2
