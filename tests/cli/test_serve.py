"""`forge serve` as a client starts it: a real process, the official client, the protocol by hand, the inspector."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from forge.cli.commands.serve import command
from tests import programs
from tests.cli.conftest import SOURCES, environment

SERVE = (
    "import sys; from forge.cli.commands.serve import command; sys.exit(command(sys.argv[1:], standalone_mode=False))"
)
ERAS = ("legacy", "auto")


def serve(*arguments: str) -> list[str]:
    return [sys.executable, "-c", SERVE, *arguments]


@contextlib.contextmanager
def talking(*arguments: str, program: str = SERVE):
    """The server with pipes, which is ended at the end."""
    process = programs.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        _ended(process)


def send(process, *messages) -> None:
    for message in messages:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        process.stdin.write(line + b"\n")
    process.stdin.flush()


def received(process):
    return json.loads(process.stdout.readline())


def request(number, method, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number, name, **arguments):
    return request(number, "tools/call", name=name, arguments=arguments)


def hello(process, version="2025-11-25"):
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "hand", "version": "0"}}
    send(process, request(0, "initialize", **client), {"jsonrpc": "2.0", "method": "notifications/initialized"})
    return received(process)


@pytest.mark.parametrize("era", [pytest.param("legacy", marks=pytest.mark.slow), "auto"])
async def test_the_official_client_over_stdio(era, tmp_path):
    asked: list = []
    heard: list = []

    async def once(ctx, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "once"})

    async def hear(progress, total, message):
        heard.append(message)

    server = StdioServerParameters(
        command=sys.executable, args=serve("--workspace", str(tmp_path))[1:], env={"PYTHONPATH": SOURCES}
    )
    async with Client(server, mode=era, elicitation_callback=once) as client:
        names = {one.name for one in (await client.list_tools()).tools}
        assert {"file_read", "bash", "math_calculate"} <= names
        assert not names & {"converse", "ask_question", "task_completion"}
        answer = await client.call_tool("math_calculate", {"expression": "6 * 7"})
        assert answer.structured_content == {"result": 42}
        script = "echo begun; echo done > made.txt"
        answer = await client.call_tool("bash", {"command": script}, progress_callback=hear)
        assert not answer.is_error, answer
        assert (tmp_path / "made.txt").read_text() == "done\n"
        assert script in asked[0]
        assert "begun" in heard
        many = await asyncio.gather(*(client.call_tool("uuid_generate", {}) for _ in range(200)))
        assert len({str(answer.content) for answer in many}) == 200
    log = (tmp_path / ".forge" / "audit.ndjson").read_text()
    assert '"permission_answered"' in log
    assert '"session": "mcp-' in log


def test_hand_written_messages_of_every_kind_are_answered_and_the_server_goes_on(tmp_path):
    with talking("--workspace", str(tmp_path), "--no-audit") as process:
        send(process, b"not json", b"[]", b"{" * 50_000, b'{"jsonrpc": "1.0"}', b"", b"\xff\xfe")
        assert [received(process)["error"]["code"] for _ in range(5)] == [-32700] * 5
        send(process, request(1, "tools/list"))
        assert received(process)["error"]["code"] == -32602  # no handshake yet
        assert hello(process, "1999-01-01")["result"]["protocolVersion"] == "2025-11-25"
        for left, number in enumerate((10**30, "x" * 100_000, -1)):
            send(process, call(number, "math_calculate", expression=f"{left} - {left} + 2"))
            answer = received(process)
            assert answer["id"] == number
            assert answer["result"]["content"] == [{"type": "text", "text": "2"}]
        send(process, request(2, "tools/call"), request(3, "no/such"), call(4, "no_such"))
        codes = {answer["id"]: answer["error"]["code"] for answer in (received(process) for _ in range(3))}
        assert codes == {2: -32602, 3: -32601, 4: -32602}
        send(process, call(5, "math_calculate", wrong=1))
        assert received(process)["result"]["isError"]
        send(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "never"}})
        send(process, {"jsonrpc": "2.0", "id": 9, "result": {}})
        send(process, b'{"a": "' + b"x" * (9 * 1024 * 1024) + b'"}')
        assert "at most 8,388,608 bytes" in received(process)["error"]["message"]
        send(process, call(6, "math_calculate", expression="2+2"))
        assert received(process)["id"] == 6
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""


def _without_trial(folder: Path) -> tuple[str, str]:
    """A rule that allows programs: their files are seen while they run."""
    (folder / "my.rules").write_text("allow execute\n")
    return "--policy", str(folder / "my.rules")


def test_the_end_of_the_input_ends_calls_and_programs_within_seconds(tmp_path):
    with talking("--workspace", str(tmp_path), *_without_trial(tmp_path), "--no-audit") as process:
        hello(process)
        send(process, call(1, "bash", command="sleep 6001.7 & echo begun > job; sleep 6001.7"))
        _wait_for(tmp_path / "job")
        began = time.monotonic()
        process.stdin.close()
        assert process.wait(60) == 0
        assert time.monotonic() - began < 60
        assert _is_gone("6001.7")


def test_sigterm_ends_it_within_seconds_whatever_runs(tmp_path):
    with talking("--workspace", str(tmp_path), *_without_trial(tmp_path), "--no-audit") as process:
        hello(process)
        send(process, call(1, "bash", command="trap '' TERM; echo begun > job; while :; do sleep 6002.7; done"))
        _wait_for(tmp_path / "job")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert time.monotonic() - began < 60
        assert _is_gone("6002.7")


@pytest.mark.slow
def test_a_client_that_reads_nothing_does_not_keep_it_from_ending(tmp_path):
    with talking("--workspace", str(tmp_path), "--no-audit") as process:
        hello(process)
        for number in range(100):
            send(process, request(number, "tools/list"))  # megabytes of answers
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.stderr.read()


def test_files_are_resources_and_skills_are_prompts(tmp_path):
    (tmp_path / "notes.txt").write_text("Nothing.")
    (tmp_path / "private.txt").write_text("No.")
    (tmp_path / "rules.txt").write_text("allow read\ndeny read private.txt\n")
    folder = tmp_path / "skills" / "tidy-up"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tidy-up\ndescription: Tidy up.\n---\nFirst look, then move.\n")
    rules = str(tmp_path / "rules.txt")
    with talking("--workspace", str(tmp_path), "--no-audit", "--policy", rules) as process:
        offered = hello(process)["result"]["capabilities"]
        assert {"tools", "resources", "prompts", "completions", "logging"} <= offered.keys()
        send(process, request(1, "resources/list"))
        listed = {one["name"]: one["uri"] for one in received(process)["result"]["resources"]}
        assert "notes.txt" in listed
        assert "private.txt" not in listed
        send(process, request(2, "resources/read", uri=listed["notes.txt"]))
        assert received(process)["result"]["contents"][0]["text"] == "Nothing."
        send(process, request(3, "resources/read", uri=listed["notes.txt"].replace("notes", "private")))
        assert "denied" in received(process)["error"]["message"]
        send(process, request(4, "prompts/get", name="tidy-up", arguments={"request": "Tidy ~/x."}))
        [message] = received(process)["result"]["messages"]
        assert message["content"]["text"] == "First look, then move.\n\nTidy ~/x."


def test_nothing_but_the_protocol_is_on_the_standard_output(tmp_path):
    """What a tool prints, and what a program it starts writes, goes elsewhere."""
    printing = (
        "import os\nfrom forge.core.executor import ToolExecutor\nexecute = ToolExecutor.execute\n"
        "async def loud(*given):\n    print('noise'); os.write(1, b'raw noise'); return await execute(*given)\n"
        f"ToolExecutor.execute = loud\n{SERVE}"
    )
    with talking("--workspace", str(tmp_path), "--no-audit", program=printing) as process:
        hello(process)
        send(process, call(1, "math_calculate", expression="6 * 7"))
        assert received(process)["result"]["content"][0]["text"] == "42"
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stdout.read() == b""
        assert b"raw noise" in process.stderr.read()


@pytest.mark.slow
def test_an_input_that_is_no_pipe_works_too(tmp_path):
    ended = subprocess.run(
        serve("--workspace", str(tmp_path), "--no-audit"),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=150,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


async def test_the_official_client_over_http_with_the_token_that_was_printed(tmp_path):
    with talking("--workspace", str(tmp_path), "--http", "--port", "0", "--no-audit") as process:
        banner = process.stderr.readline().decode()
        url = banner.split(" at ")[1].strip()
        assert url.startswith("http://127.0.0.1:")
        token = process.stderr.readline().decode().split("Bearer ")[1].strip()
        async with httpx2.AsyncClient(
            verify=False, headers={"Authorization": f"Bearer {token}"}, trust_env=False
        ) as http:
            async with Client(streamable_http_client(url, http_client=http)) as client:
                answer = await client.call_tool("math_calculate", {"expression": "6 * 7"})
                assert answer.structured_content == {"result": 42}
            assert (await http.post(url, headers={"Authorization": "Bearer x"}, content=b"{}")).status_code == 401
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)  # while connections are open
            assert await asyncio.to_thread(process.wait, 60) == 0
            assert time.monotonic() - began < 60
        assert process.stdout.read() == b""


async def test_an_issuer_in_the_configuration_protects_the_server(tmp_path):
    auth = {"issuer": "http://127.0.0.1:9", "resource": "https://tools.example.com/mcp", "scopes": {"r": "read"}}
    (tmp_path / "forge.yaml").write_text(json.dumps({"serve": {"auth": auth}}))
    named = ("--config", str(tmp_path / "forge.yaml"), "--require-scope", "tools")
    with talking("--workspace", str(tmp_path), "--http", "--port", "0", "--no-audit", *named) as process:
        url = process.stderr.readline().decode().split(" at ")[1].strip()
        assert (
            "access token of http://127.0.0.1:9 for https://tools.example.com/mcp" in process.stderr.readline().decode()
        )
        async with httpx2.AsyncClient(verify=False, trust_env=False) as http:
            refused = await http.post(url, content=b"{}")
            assert refused.status_code == 401
            where = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"
            assert refused.headers["www-authenticate"] == f'Bearer scope="tools", resource_metadata="{where}"'
            found = (await http.get(url.replace("/mcp", "/.well-known/oauth-protected-resource"))).json()
            assert (found["resource"], found["scopes_supported"]) == (auth["resource"], ["tools", "r"])
            head = "eyJhbGciOiJFUzI1NiJ9.e30.AAAA"  # ES256: the keys would decide
            assert (await http.post(url, headers={"Authorization": f"Bearer {head}"})).status_code == 503


def test_the_variable_of_a_secret_is_named_and_its_value_is_used_and_never_shown(tmp_path, monkeypatch):
    auth = {"issuer": "http://127.0.0.1:9", "client_id": "forge", "client_secret_env": "SERVE_SECRET"}
    (tmp_path / "forge.yaml").write_text(json.dumps({"serve": {"auth": auth}}))
    asked = ("--workspace", str(tmp_path), "--http", "--port", "0", "--no-audit", "--config", f"{tmp_path}/forge.yaml")
    monkeypatch.delenv("SERVE_SECRET", raising=False)
    with pytest.raises(click.ClickException, match="the variable SERVE_SECRET is not set"):
        command([*asked], standalone_mode=False)
    monkeypatch.setenv("SERVE_SECRET", "s3cret-of-the-issuer")
    with talking(*asked) as process:
        said = process.stderr.readline().decode() + process.stderr.readline().decode()
    assert "access token of http://127.0.0.1:9" in said
    assert "s3cret-of-the-issuer" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--http", "--host", "0.0.0.0"), "--token-env"),
        (("--http", "--token-env", "NO_SUCH_TOKEN"), "token of 16"),
        (("--http", "--token-env", "SHORT_TOKEN"), "token of 16"),
        (("--http", "--host", "192.0.2.1", "--token-env", "GOOD_TOKEN"), "cannot listen on 192.0.2.1"),
        (("--http", "--require-scope", "tools"), "--issuer URL"),
        (("--http", "--issuer", "http://login.example.com", "--port", "0"), "not encrypted"),
        (("--config", "no-such.yaml"), "no-such.yaml"),
    ],
)
def test_what_cannot_be_served_is_refused(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHORT_TOKEN", "short")
    monkeypatch.setenv("GOOD_TOKEN", "long-enough-to-be-one")
    with pytest.raises(click.ClickException, match=words) as refusal:
        command([*arguments, "--no-audit"], standalone_mode=False)
    assert refusal.value.exit_code == 2


def test_the_configuration_for_other_clients_starts_this_server(tmp_path, capsys):
    command(["--workspace", str(tmp_path), "--no-audit", "--print-config"], standalone_mode=False)
    (entry,) = json.loads(capsys.readouterr().out)["mcpServers"].values()
    assert entry["args"][-4:] == ["serve", "--workspace", str(tmp_path), "--no-audit"]
    assert Path(entry["command"]).is_absolute()


def test_the_configuration_does_not_import_files_of_the_clients_directory(tmp_path):
    """Clients start servers in any directory, for example in a hostile clone."""
    (tmp_path / "click.py").write_text("raise SystemExit('imported from the directory')")
    asked = [sys.executable, "-P", "-m", "forge", "serve", "--workspace", str(tmp_path), "--no-audit"]
    environment_ = {**os.environ, "PYTHONPATH": SOURCES}
    said = subprocess.run([*asked, "--print-config"], env=environment_, capture_output=True, timeout=60, check=True)
    (entry,) = json.loads(said.stdout)["mcpServers"].values()
    started = [entry["command"], *entry["args"], "--print-config"]
    again = subprocess.run(started, env=environment_, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert again.stdout == said.stdout
    assert entry["args"][:3] == ["-P", "-m", "forge"]


def test_the_configuration_over_http_names_a_variable_and_no_token(capsys):
    command(["--http", "--print-config"], standalone_mode=False)
    (entry,) = json.loads(capsys.readouterr().out)["mcpServers"].values()
    assert entry == {
        "type": "http",
        "url": "http://127.0.0.1:8484/mcp",
        "headers": {"Authorization": "Bearer ${FORGE_TOKEN}"},
    }


def test_with_an_issuer_the_configuration_over_http_has_no_token(capsys):
    command(["--http", "--issuer", "https://login.example.com", "--print-config"], standalone_mode=False)
    (entry,) = json.loads(capsys.readouterr().out)["mcpServers"].values()
    assert entry == {"type": "http", "url": "http://127.0.0.1:8484/mcp"}


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("mcp-inspector") is None,
    reason="npm install -g @modelcontextprotocol/inspector: it is not on the PATH",
)
def test_the_official_inspector(tmp_path):
    inspector = [str(shutil.which("mcp-inspector")), "--cli", *serve("--workspace", str(tmp_path), "--no-audit")]
    environment_ = {**os.environ, "PYTHONPATH": SOURCES}
    question = ["--method", "tools/call", "--tool-name", "math_calculate", "--tool-arg", "expression=6*7"]
    found = subprocess.run([*inspector, *question], env=environment_, capture_output=True, timeout=150, check=True)
    assert json.loads(found.stdout)["structuredContent"] == {"result": 42}


def _ended(process) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            pipe.close()


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, "the program did not start"
        time.sleep(0.01)


def _is_gone(argument: str) -> bool:
    """No process is called with this argument any more: inside a sandbox it has another number than here."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not any(f"sleep\0{argument}" in _command_line(one) for one in Path("/proc").glob("[0-9]*")):
            return True
        time.sleep(0.01)
    return False


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
