"""A server as a source: its tools chosen and named, its list followed, its hostile definitions left out."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.registry import mount_source
from forge.core.spec import Category
from forge.mcp import Http, Stdio, mcp
from forge.mcp.client.names import server_name
from forge.mcp.client.source import MANY, McpSource
from tests.mcp.remote import Desk, Remote, definition, until


@pytest.fixture
def remote(monkeypatch):
    return Remote(definition("status"), definition("log", "Show the log.")).install(monkeypatch)


async def tools_of(server: McpSource) -> dict[str, Any]:
    async with server as tools:
        return {tool.spec.name: tool for tool in tools}


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("uvx mcp-server-git", "git"),
        ("uvx --python 3.12 mcp-server-git==1.2 --repo .", "git"),
        ("npx -y @scope/server-x", "x"),
        ("npx -y @modelcontextprotocol/server-filesystem@1.0 /tmp", "filesystem"),
        ("python server.py", "server"),
        ("/usr/bin/python3.11 tools/weather_mcp.py", "weather"),
        ("python -m mcp_server_time --local", "time"),
        ("docker run -i --rm -e TOKEN=x mcp/github", "github"),
        (["./bin/my thing"], "my_thing"),
        ("https://docs.example.com/mcp", "docs"),
        ("https://mcp.example.com/mcp", "example"),
        ("http://localhost:8000/mcp", "localhost"),
        ("http://127.0.0.1:8000/mcp", "at_127_0_0_1"),
        ("http://[::1]:8000/", "at_1"),
    ],
)
def test_a_server_has_a_short_name_of_its_own(where, name):
    assert server_name(where) == name


@pytest.mark.parametrize("where", ["", "   ", [], [""], "uvx 'unclosed"])
def test_what_is_no_command_is_refused(where):
    with pytest.raises(DefinitionError, match=r"mcp\("):
        mcp(where)


@pytest.mark.parametrize("where", ["https://", "http://user:secret@host/", "https://a b/"])
def test_what_is_no_url_is_refused(where):
    with pytest.raises(ToolError):
        mcp(where)


async def test_tools_are_named_after_their_server_and_say_where_they_are_from(remote):
    tools = await tools_of(mcp("uvx mcp-server-git"))
    assert list(tools) == ["git__status", "git__log"]
    spec = tools["git__status"].spec
    assert (spec.origin, spec.category, spec.description) == ("mcp:git", Category.ADAPTER, "Show the status.")
    assert (remote.opened, remote.closed) == (1, 1)
    assert remote.transport.command_line == ("uvx", "mcp-server-git")


@pytest.mark.parametrize(
    ("prefix", "found"), [("my repo!", "my_repo__status"), ("", "git__status"), ("a__b", "a_b__status")]
)
async def test_a_prefix_is_made_safe_and_is_always_there(remote, prefix, found):
    assert found in await tools_of(mcp("uvx mcp-server-git", prefix=prefix))


async def test_include_exclude_and_rename(remote, caplog):
    remote.definitions = [definition(name) for name in ("git_status", "git_log", "git_push", "other")]
    server = mcp(
        "uvx mcp-server-git",
        include=["git_*", "nothing_*"],
        exclude=["*push", "git_pull"],
        rename={"git_status": "status"},
    )
    with caplog.at_level(logging.WARNING):
        assert list(await tools_of(server)) == ["git__status", "git__git_log"]
    assert "nothing_* of git is left out: it is in `include`" in caplog.text
    assert "git_pull of git is left out: it is in `exclude`" in caplog.text
    assert [one.partition(";")[0] for one in server.problems] == [
        "include: 'nothing_*' matches no tool",
        "exclude: 'git_pull' matches no tool",
    ]


async def test_names_that_become_equal_or_too_long_get_a_hash_and_stay_the_same(remote):
    remote.definitions = [definition(name) for name in ("a/b", "a.b", "x" * 100, "日本", "Log", "log")]
    first, second = await tools_of(mcp("x")), await tools_of(mcp("x"))
    assert list(first) == list(second)
    assert len(first) == 6
    assert all(len(name) <= 64 for name in first)
    assert {tool.remote for tool in first.values()} == {"a/b", "a.b", "x" * 100, "日本", "Log", "log"}


async def test_what_is_called_so_keeps_its_name_beside_what_only_becomes_it(remote):
    remote.definitions = [definition(name) for name in ("a!b", "a_b", "a b")]
    names = {tool.remote: name for name, tool in (await tools_of(mcp("x"))).items()}
    assert names["a_b"] == "x__a_b"
    assert len(set(names.values())) == 3


async def test_a_tool_that_runs_as_a_task_only_is_left_out(remote):
    definitions = [definition(kind, execution={"taskSupport": kind}) for kind in ("required", "optional", "forbidden")]
    remote.definitions = [*definitions, definition("odd", execution="nonsense")]
    server = mcp("x")
    async with server:
        assert {tool.remote for tool in server.tools} == {"optional", "forbidden", "odd"}
        assert "task" in server.left_out["required"]


async def test_one_bad_definition_leaves_out_that_tool_alone(remote, caplog):
    deep: dict = {}
    for _ in range(5_000):
        deep = {"properties": {"a": deep}}
    remote.definitions = [
        definition("good"),
        definition("good", "Again."),
        definition("broken", inputSchema={"type": 7}),
        definition("text", inputSchema="nonsense"),
        definition("list", inputSchema={"type": "array"}),
        definition("remote", inputSchema={"$ref": "https://evil.example/schema"}),
        definition("huge", "x" * 1_000_000),
        definition("deep", inputSchema=deep),
        definition("wide", inputSchema={"type": "object", "properties": {f"p{n}": {} for n in range(30_000)}}),
        definition("steers", properties={"\x1b[2J": {"type": "string"}}),
        definition(None),
        definition(""),
        definition("n" * 300),
        "no definition",
        {"name": "bare"},
    ]
    server = mcp("uvx mcp-server-git")
    with caplog.at_level(logging.WARNING):
        tools = await tools_of(server)
    assert list(tools) == ["git__good", "git__bare"]
    assert set(server.left_out) == {
        *("good", "broken", "text", "list", "remote", "huge", "deep", "wide", "steers"),
        *("tool 11", "tool 12", "tool 13", "tool 14"),
    }
    assert "deep of git is left out: its definition is more than 100 levels deep" in caplog.text
    assert tools["git__bare"].parse("{}") == {}


async def test_descriptions_are_cleaned_and_bounded_and_cannot_pass_for_another_tool(remote):
    remote.definitions = [
        definition("file_read", "\x1b[31mRead\x1b[0m\u200b it." + " more" * 5_000),
        definition("task_completion", ""),
        definition("\x1b[2Jname", "", title="A title."),
    ]
    tools = await tools_of(mcp("uvx mcp-server-git"))
    assert list(tools) == ["git__file_read", "git__task_completion", "git__2Jname"]
    assert tools["git__file_read"].spec.description.startswith("Read it. more")
    assert len(tools["git__file_read"].spec.description) <= 2_000
    assert tools["git__task_completion"].spec.description == (
        "The tool task_completion; its server gives no description."
    )
    assert tools["git__2Jname"].spec.description == "A title."


async def test_many_tools_are_hidden_unless_it_is_said_otherwise(remote):
    remote.definitions = [definition(f"tool_{number}") for number in range(MANY + 1)]
    assert all(tool.spec.hidden for tool in (await tools_of(mcp("x"))).values())
    assert not any(tool.spec.hidden for tool in (await tools_of(mcp("x", hidden=False))).values())
    remote.definitions.pop()
    assert not any(tool.spec.hidden for tool in (await tools_of(mcp("x"))).values())
    assert all(tool.spec.hidden for tool in (await tools_of(mcp("x", hidden=True))).values())


@pytest.mark.slow
async def test_five_thousand_tools_are_mounted_soon_and_harm_nobody(remote):
    remote.definitions = [definition(f"tool_{number}", "d" * 2_000) for number in range(5_000)]
    longest = 0.0

    async def beat():
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - began)

    beating = asyncio.create_task(beat())
    began = time.perf_counter()
    assert len(await tools_of(mcp("x"))) == 5_000
    assert time.perf_counter() - began < 90
    beating.cancel()
    assert longest < 5


async def test_a_list_that_changes_is_followed(remote):
    desk = Desk()
    server = mcp("uvx mcp-server-git")
    async with mount_source(desk.registry, server):
        status = desk.registry["git__status"]
        await remote.change(definition("status"), definition("new"))
        await until(lambda: "git__new" in desk.registry)
        assert "git__log" not in desk.registry
        assert desk.registry["git__status"] is status, "what did not change stays the same object"
        assert (await desk.call("git__log")).failure.kind is ErrorKind.NOT_FOUND
    assert not desk.registry
    assert server.tools == []


async def test_a_flood_of_changes_is_read_a_few_times(remote):
    server = mcp("uvx mcp-server-git")
    async with server:
        told: list[Any] = []
        server.follow(told.append)
        for _ in range(1_000):
            remote.listener.tools_changed()
        await until(lambda: remote.listed >= 2)
        await asyncio.sleep(0)
        assert remote.listed <= 3
        assert told == [], "the same tools are no news"


async def test_a_list_that_cannot_be_read_again_keeps_the_old_one(remote, caplog):
    server = mcp("uvx mcp-server-git")
    async with server:

        async def down():
            raise ToolError("server git is down", ErrorKind.SYSTEM)

        remote.list_tools = down
        with caplog.at_level(logging.WARNING):
            remote.listener.tools_changed()
            await until(lambda: "could not be listed again" in caplog.text)
        assert len(server.tools) == 2


async def test_a_server_is_opened_once_however_often_it_is_used(remote):
    server = mcp("uvx mcp-server-git")
    async with server, server as tools:
        assert len(tools) == 2
        assert (remote.opened, remote.closed) == (1, 0)
    assert (remote.opened, remote.closed) == (1, 1)
    async with server as tools:
        assert len(tools) == 2
    assert remote.opened == 2


def test_a_server_can_be_opened_on_one_loop_after_another(remote):
    server = mcp("uvx mcp-server-git")
    for _ in range(2):
        assert len(asyncio.run(tools_of(server))) == 2


async def test_a_server_that_cannot_be_opened_leaves_nothing_behind(remote):
    server = mcp("uvx mcp-server-git")
    remote.failure = ToolError("server git does not start", ErrorKind.CONFIG)
    with pytest.raises(ToolError, match="does not start"):
        async with server:
            pass
    assert not server.is_open
    remote.failure = None
    assert await tools_of(server)


async def test_a_list_that_fails_at_the_beginning_closes_the_connection(remote):
    async def never():
        raise ToolError("no answer", ErrorKind.TIMEOUT)

    remote.list_tools = never
    with pytest.raises(ToolError, match="no answer"):
        async with mcp("x"):
            pass
    assert remote.closed


def test_what_is_secret_is_known_and_not_shown():
    server = mcp(
        Http(
            "https://example.com/s/0123456789abcdef0123456789/mcp?token=geheim-geheim",
            headers={"Authorization": "Bearer hunter2hunter2"},
        )
    )
    assert "hunter2hunter2" in server.secrets
    assert server.target == "https://example.com/s/[secret]/mcp"
    variables = {"API_KEY": "0123456789", "MODE": "production"}
    program = mcp(Stdio("uvx", ["mcp-server-x", "--key", "0123456789"], env=variables))
    assert program.secrets == ("0123456789",)
    assert program.target == "uvx mcp-server-x --key [secret]"
    several = mcp("docker run -e API_TOKEN=0123456789 --rm x/y --api-key=abcdefghij --password --mode production")
    assert several.target == "docker run -e API_TOKEN=[secret] --rm x/y --api-key=[secret] --password --mode production"
    assert not several.secrets, "a word of an option may be any word: it is not masked everywhere"
    assert "hunter2" not in repr(server)


async def test_importing_a_source_does_not_import_the_sdk():
    import subprocess
    import sys

    code = "import forge.mcp.client.mcp_call, sys; forge.mcp('x'); print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
