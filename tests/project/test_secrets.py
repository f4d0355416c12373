"""Which values are masked, and when those of secrets are read again."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, Scripted, load_project
from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import find_missing
from forge.core.secrets import Secrets
from forge.core.secrets.live_text import LiveText, SecretSource
from forge.mcp import Http, mcp
from forge.process.sandbox import Tier, problem
from forge.project.assemble.secrets import project_secrets
from forge.project.config import Configuration, read_secret
from tests.mcp.client.test_connection_http import ByHand, answered
from tests.network.serving import Asked, Reply, page, serving


def test_values_of_named_variables_and_known_keys_are_masked():
    secrets = project_secrets(
        Configuration(secrets=("MINE", "UNSET")), {"MINE": "correct horse", "OPENAI_API_KEY": "battery staple"}
    )
    assert secrets.mask("correct horse battery staple") == "[secret] [secret]"


def test_a_secret_too_short_to_be_masked_is_refused_without_being_shown():
    with pytest.raises(ToolError, match=r"secrets\[0\]: the value of MINE has 3 characters") as caught:
        project_secrets(Configuration(secrets=("MINE",)), {"MINE": "xyz"})
    assert "xyz" not in caught.value.message
    assert project_secrets(Configuration(), {"OPENAI_API_KEY": "xyz"}).mask("xyz") == "xyz"


LISTED = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}


class Servers:
    """An MCP server, an API and a webhook at one address, which note each token, and refuse those that they know."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[str]] = {}
        self.refused: set[str] = set()
        self.has_refused = False
        self.accepted: asyncio.Event | None = None  # once a new token came; refusals after the first wait for it
        self.by_hand = ByHand(self.answer_call)

    def __call__(self, asked: Asked) -> Reply:
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        self.tokens.setdefault(asked.path, []).append(token)
        if token in self.refused:
            parts = [self.accepted.wait] if self.accepted is not None and self.has_refused else []
            self.has_refused = True
            return Reply([*parts, b"no longer"], 401)
        if self.accepted is not None and self.refused:
            self.accepted.set()
        return self.by_hand(asked) if asked.path == "/mcp" else page(f"seen: {token}")

    @staticmethod
    def answer_call(asked: Asked, message: dict[str, Any]) -> Reply:
        seen = {"content": [{"type": "text", "text": f"seen: {asked.headers['authorization']}"}]}
        return answered(message, LISTED if message["method"] == "tools/list" else seen)


@asynccontextmanager
async def served(folder: Path, lifetime: float = 0) -> AsyncIterator[tuple[Servers, Agent]]:
    """An agent whose servers get a token that a command prints; each time that it is asked leaves a line."""
    servers = Servers()
    write_token(folder, "the first token")
    async with serving(servers) as web:
        paths = {"/pets": {"get": {"operationId": "list", "responses": {}}}}
        info = {"title": "Pets", "version": "1"}
        (folder / "pets.json").write_text(json.dumps({"openapi": "3.1.0", "info": info, "paths": paths}))
        command = ["sh", "-c", f"echo >> {folder}/asked; cat {folder}/token"]
        header = {"Authorization": "Bearer ${A_TOKEN}"}
        written = {
            "permissions": {"rules": ["allow *"]},
            "egress": {"private": ["127.0.0.1"]},
            "secrets": [{"name": "A_TOKEN", "command": command, **({"lifetime": lifetime} if lifetime else {})}],
            "mcpServers": {"far": {"url": f"{web.url}/mcp", "headers": header}},
            "openapi": {"pets": {"spec": "pets.json", "server": web.url, "auth": {"bearer_env": "A_TOKEN"}}},
            "webhooks": {"tell": {"url": f"{web.url}/tell", "headers": header}},
        }
        (folder / "forge.yaml").write_text(json.dumps(written))
        project = load_project(folder, config=folder / "forge.yaml")
        async with project.agent(with_model=False, approve=lambda request: True) as agent:
            yield servers, agent


def write_token(folder: Path, value: str) -> None:
    (folder / "token").write_text(value)


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("far__look", "/mcp", {}),
    ("pets__list", "/pets", {}),
    ("tell", "/tell", {"payload": {}}),
]


@pytest.mark.parametrize(("tool", "path", "arguments"), CALLS)
async def test_a_server_gets_the_value_that_a_command_prints_now(tmp_path, tool, path, arguments):
    async with served(tmp_path, 0.0001) as (servers, agent):
        for value in ("the second token", "the third token"):
            write_token(tmp_path, value)
            result = await agent.call(tool, arguments)
            assert not result.is_error, result.for_llm
            assert servers.tokens[path][-1] == value
            assert "seen: " in result.for_llm
            assert value not in result.for_llm  # it is masked, although it was not known at the start


@pytest.mark.parametrize(("tool", "path", "arguments"), CALLS)
async def test_without_a_lifetime_a_value_is_used_for_five_minutes(tmp_path, tool, path, arguments):
    async with served(tmp_path) as (servers, agent):
        write_token(tmp_path, "the second token")
        for _ in range(2):
            assert not (await agent.call(tool, arguments)).is_error
        assert servers.tokens[path][-2:] == ["the first token"] * 2
        assert (tmp_path / "asked").read_text() == "\n"  # once, for all that use it


@pytest.mark.parametrize(("tool", "path", "arguments"), CALLS[:2])
async def test_a_value_that_a_server_does_not_accept_is_read_once_more(tmp_path, tool, path, arguments):
    async with served(tmp_path) as (servers, agent):
        write_token(tmp_path, "the second token")
        servers.refused = {"the first token"}
        assert not (await agent.call(tool, arguments)).is_error
        assert servers.tokens[path][-2:] == ["the first token", "the second token"]
        servers.refused.add("the second token")
        assert (await agent.call(tool, arguments)).is_error == (tool == "far__look")  # an API's answer is a result
        assert servers.tokens[path][-1] == "the second token"
        assert (tmp_path / "asked").read_text() == "\n" * 3


@pytest.mark.parametrize(("tool", "path", "arguments"), CALLS[:2])
async def test_a_value_that_several_requests_were_refused_with_is_read_once_more_for_all(
    tmp_path, tool, path, arguments
):
    async with served(tmp_path) as (servers, agent):
        write_token(tmp_path, "the second token")
        servers.refused, servers.accepted = {"the first token"}, asyncio.Event()
        results = await asyncio.gather(*(agent.call(tool, arguments) for _ in range(5)))
        assert not any(result.is_error for result in results)
        assert servers.tokens[path][-1] == "the second token"
        assert (tmp_path / "asked").read_text() == "\n" * 2


def test_a_command_that_gives_no_secret_is_explained_without_what_it_printed(monkeypatch):
    monkeypatch.setattr(read_secret, "COMMAND_SECONDS", 1.0)
    for line, why in (
        ("true", "is empty"),
        ("echo a-secret-value; exit 3", "it ended with exit code 3"),
        ("printf 'a-secret-\\377value'", "is not text in UTF-8"),
        ("yes a-secret-value", "printed more than 64 KiB"),
        ("echo a-secret-value; sleep 100", "it did not end within 1 seconds"),
        ("(sleep 100 &) ; exec >&-; sleep 100", "it did not end within 1 seconds"),
    ):
        with pytest.raises(ValueError, match=why) as caught:
            read_secret.read_secret(None, ["sh", "-c", line])
        assert "a-secret" not in str(caught.value)
    with pytest.raises(ValueError, match="No such file"):
        read_secret.read_secret(None, ["no-such-program-at-all"])
    assert (
        read_secret.read_secret(None, ["sh", "-c", "echo '  a-secret-välue '; (sleep 100 >&- &)"]) == "a-secret-välue"
    )
    assert read_secret.read_secret(None, ["sh", "-c", "cat; echo no input"]) == "no input"


def test_a_secret_in_an_empty_or_binary_file_is_refused_and_not_taken_from_a_variable(tmp_path):
    for content, why in ((b"\n", "is empty"), (b"a-secret-\xff", "is not text in UTF-8")):
        (tmp_path / "token").write_bytes(content)
        (tmp_path / "token").chmod(0o600)
        with pytest.raises(ValueError, match=why):
            read_secret.read_secret(tmp_path / "token")
    (tmp_path / "token").write_bytes(b"a-secret-value\n")
    assert read_secret.read_secret(tmp_path / "token") == "a-secret-value"


def test_a_source_that_failed_is_not_asked_again_at_once():
    """Else all who wait for a command that hangs would wait for it one after the other."""
    asked = []

    def read() -> str:
        asked.append(1)
        if len(asked) < 2:
            raise ToolError("it hangs", ErrorKind.CONFIG, "mend it")
        return "a value"

    source = SecretSource(read, 300)
    for _ in range(3):
        with pytest.raises(ToolError, match="it hangs"):
            source.read()
    assert asked == [1]
    source.expire()
    assert source.read() == "a value"
    assert source.read() == "a value"
    assert asked == [1, 1]


def test_values_that_were_replaced_long_ago_do_not_slow_down_what_masks_the_last_ones():
    values = iter(f"value number {number} of a token" for number in range(1_000))
    source, masks = SecretSource(lambda: next(values), 0.0), Secrets(["a lasting value"])
    source.mask_in(masks)
    others = SecretSource(lambda: "of another source", 300)
    others.mask_in(masks)
    others.read()
    for _ in range(1_000):
        last = source.read()
    before = "value number 990 of a token"
    assert masks.mask(f"{last}, {before}, a lasting value, of another source") == ", ".join(["[secret]"] * 4)
    assert masks.mask("value number 5 of a token") == "value number 5 of a token"
    assert masks.pattern is not None
    assert masks.pattern.pattern.count("|") < 50


async def test_a_loop_does_not_wait_for_the_secret_of_a_server(caplog):
    """Its command may take half a minute."""
    readers: list[threading.Thread] = []

    def read() -> str:
        readers.append(threading.current_thread())
        return f"the token {len(readers)} of this test"

    source, servers = SecretSource(read, 0.0001), Servers()
    source.read()
    del readers[:]
    async with serving(servers) as web:
        far = mcp(Http(f"{web.url}/mcp", headers={"Authorization": LiveText(["Bearer ", source])}), name="far")
        async with Agent(Scripted(""), tools=[far], approve=lambda request: True) as agent:
            assert not (await agent.call("far__look", {})).is_error
            listener = far._listener
            assert listener is not None
            with caplog.at_level(logging.INFO):
                listener.log("info", "", f"I got {servers.tokens['/mcp'][-1]}")
    assert readers
    assert threading.current_thread() not in readers
    assert "far says: I got [secret]" in caplog.text  # although the value is newer than the connection


def test_values_are_registered_as_long_as_someone_masks():
    values = iter(f"the value {number} of this test" for number in range(9))
    source = SecretSource(lambda: next(values), 0.0001)
    masks, gone = Secrets(), Secrets()
    for one in (masks, gone):
        source.mask_in(one)
    seen = weakref.ref(gone)
    del gone, one
    gc.collect()
    assert seen() is None
    assert masks.mask(source.read()) == masks.mask(source.read()) == "[secret]"


@asynccontextmanager
async def with_files(folder: Path, **settings: Any) -> AsyncIterator[Agent]:
    """An agent whose workspace has the file of a secret for a host, and one that is only masked."""
    for name in ("deep/token", "masked"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"the value of {name}\n")
        (folder / name).chmod(0o600)
    secrets = [{"name": "A_TOKEN", "file": "deep/token", "for": ["api.example.com"]}, {"file": "masked"}]
    written = {"permissions": {"rules": ["allow *"]}, "secrets": secrets, **settings}
    (folder / "forge.yaml").write_text(json.dumps(written))
    async with load_project(folder, config=folder / "forge.yaml").agent(with_model=False) as agent:
        yield agent


in_bubblewrap = pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="only bubblewrap hides single files")


@in_bubblewrap
@pytest.mark.skipif(bool(find_missing("secrets")), reason="needs the extra secrets")
async def test_no_program_reads_the_file_of_a_secret_that_stays_outside(tmp_path):
    async with with_files(tmp_path) as agent:
        for line in ("wc -c < deep/token", "cp deep/token x && wc -c x", "ln deep/token x", "mv deep elsewhere"):
            done = await agent.call("bash", {"command": line})
            assert done.is_error or done.data["exit_code"] != 0, line
        assert (tmp_path / "deep/token").read_text() == "the value of deep/token\n"
        assert "20" in (await agent.call("bash", {"command": "wc -c < masked"})).for_llm  # programs may need it
        assert (await agent.call("bash", {"command": "echo more > deep/other"})).data["exit_code"] == 0


@in_bubblewrap
@pytest.mark.skipif(bool(find_missing("secrets")), reason="needs the extra secrets")
async def test_a_trial_does_not_read_it_either(tmp_path):
    async with with_files(tmp_path, permissions={"rules": ["allow read", "allow write"]}) as agent:
        result = await agent.call("bash", {"command": "wc -c < deep/token; wc -c < masked; echo new > made"})
        assert "trial" in result.data["sandbox"]
        assert (tmp_path / "made").exists()
        assert "20" in result.data["output"]
        assert "24" not in result.data["output"]


async def test_tools_read_and_write_it_only_where_a_rule_names_it(tmp_path):
    for rules, fails in ((["allow *"], True), (["allow *", "allow read deep/token", "allow write deep/token"], False)):
        (tmp_path / "forge.yaml").unlink(missing_ok=True)
        async with with_files(tmp_path, permissions={"rules": rules}) as agent:
            read = await agent.call("file_read", {"path": "deep/token"})
            assert read.is_error == fails
            assert ("never hold" in read.for_llm) == fails
            written = await agent.call("file_write", {"path": "deep/token", "content": "another value of it"})
            assert ("never hold" in written.for_llm) == fails
            assert not (await agent.call("file_read", {"path": "masked"})).is_error


async def test_a_search_does_not_look_into_it_either(tmp_path):
    """Its value would be masked, but whether a pattern is found says what it is."""
    for rules, finds in ((["allow *"], False), (["allow *", "allow read deep/token"], True)):
        (tmp_path / "forge.yaml").unlink(missing_ok=True)
        async with with_files(tmp_path, permissions={"rules": rules}) as agent:
            found = await agent.call("grep_search", {"pattern": "the va[l]ue"})
            assert "masked" in found.for_llm
            assert ("deep/token" in found.for_llm) == finds
            assert ("1 file left out" in found.for_llm) != finds
