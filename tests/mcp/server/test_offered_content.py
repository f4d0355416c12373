"""Resources, prompts and completion as MCP clients see them, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import base64
import os
from contextlib import asynccontextmanager

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from forge import Attachment, DefinitionError, Message, ToolContext, ToolRegistry, rules
from forge.core.context import Scope
from forge.mcp import prompt, resource
from forge.mcp.resources import LARGEST_RESOURCE
from forge.mcp.server import ElicitingApprover, workspace_files
from forge.mcp.server import offer as offer_module
from forge.mcp.server import offered_content as offered_content_module
from forge.mcp.server.offer import Offer
from forge.pipeline import standard_executor
from forge.skills import ActiveSkills, Catalog, ReadSkill
from tests.mcp.server.test_offer import ERAS, add, connected, person


@pytest.fixture(params=ERAS)
def era(request):
    return request.param


@resource("notes://today", media_type="text/markdown")
def today() -> str:
    """The notes of today."""
    return "# Nothing\nhunter2hunter2"


@resource("notes://raw/{number}", complete={"number": lambda start: [f"{start}0", f"{start}1", "x"]})
def raw(number: int) -> bytes:
    """Raw notes."""
    return bytes([number])


@prompt(complete={"tone": ["kind", "keen", "stern"]})
def review(file: str, tone: str = "kind") -> list:
    """Review a file."""
    return [
        Attachment("text/plain", b"print(1)", "file:///main.py"),
        Message("assistant", "Which file?"),
        f"Review {file}, be {tone}.",
    ]


@asynccontextmanager
async def serving(*tools, workspace=None, policy=None, **options):
    executor = standard_executor(tools, policy=policy, approve=ElicitingApprover(), secrets=["hunter2hunter2"])
    scope = Scope(workspace=workspace) if workspace is not None else Scope()
    offer = Offer(executor, scope, **options)
    async with offer.open():
        yield offer


async def test_a_programs_resources_are_listed_and_read(era):
    async with serving(resources=[today, raw]) as offer, connected(offer, era) as client:
        [listed] = (await client.list_resources()).resources
        assert (listed.uri, listed.name, listed.mime_type) == ("notes://today", "today", "text/markdown")
        [template] = (await client.list_resource_templates()).resource_templates
        assert (template.uri_template, template.description) == ("notes://raw/{number}", "Raw notes.")
        [content] = (await client.read_resource("notes://today")).contents
        assert content.text.startswith("# Nothing")
        assert "hunter2" not in content.text
        [content] = (await client.read_resource("notes://raw/7")).contents
        assert base64.b64decode(content.blob) == b"\x07"


@pytest.mark.parametrize("uri", ["notes://tomorrow", "notes://raw/many", "notes://raw/", f"notes://{'x' * 9000}"])
async def test_a_resource_that_does_not_exist_is_an_error(era, uri):
    async with serving(resources=[today, raw]) as offer, connected(offer, era) as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)
        assert refused.value.error.code in (-32002, -32602)
        assert refused.value.error.data["uri"]


async def test_a_resource_needs_the_permissions_that_it_declares(era):
    @resource("db://{table}", permissions={"read"}, target="table")
    def table(table: str) -> str:
        """A table."""
        return f"rows of {table}"

    policy = rules("allow read", "deny read secrets")
    async with serving(resources=[table], policy=policy) as offer, connected(offer, era) as client:
        assert (await client.read_resource("db://users")).contents[0].text == "rows of users"
        with pytest.raises(MCPError, match="denied"):
            await client.read_resource("db://secrets")


async def test_a_resource_that_is_too_large_is_refused(era):
    @resource("big://{size}")
    def big(size: int) -> bytes:
        """Many bytes."""
        return bytes(size)

    async with serving(resources=[big]) as offer, connected(offer, era) as client:
        assert (await client.read_resource("big://3")).contents[0].blob == "AAAA"
        with pytest.raises(MCPError, match="the limit is"):
            await client.read_resource(f"big://{LARGEST_RESOURCE + 1}")


def test_a_uri_must_have_a_scheme_and_the_parameters():
    with pytest.raises(DefinitionError, match="scheme"):
        resource("notes")(lambda: "")
    with pytest.raises(DefinitionError, match=r"no \{day\}"):

        @resource("notes://x")
        def notes(day: str) -> str:
            """Notes."""
            return day


async def test_a_server_without_resources_says_so(era):
    async with serving(add) as offer, connected(offer, era) as client:
        assert client.server_capabilities.resources is None
        assert client.server_capabilities.prompts is None
        with pytest.raises(MCPError, match="Method not found"):
            await client.list_resources()


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_subscribed_clients_hear_of_a_change(monkeypatch):
    monkeypatch.setattr(offer_module, "EVERY", 0.01)
    heard: asyncio.Queue = asyncio.Queue()

    async def hear(message):
        if getattr(message, "method", "") == "notifications/resources/updated":
            heard.put_nowait(str(message.params.uri))

    async with serving(resources=[today, raw]) as offer:
        async with connected(offer, "legacy", message_handler=hear) as client:
            await client.subscribe_resource("notes://today")
            today.changed()
            async with asyncio.timeout(60):
                assert await heard.get() == "notes://today"
            with pytest.raises(MCPError, match="no such resource"):
                await client.subscribe_resource("notes://tomorrow")
            await client.unsubscribe_resource("notes://today")
            await client.subscribe_resource("notes://raw/1")
            today.changed()
            raw.changed()
            async with asyncio.timeout(60):
                assert await heard.get() == "notes://raw/1"  # and nothing of the other one before
        async with connected(offer, ERAS[1]) as client, client.listen(resource_subscriptions=["notes://today"]) as news:
            today.changed()
            async with asyncio.timeout(60):
                assert (await anext(aiter(news))).uri == "notes://today"


async def test_clients_hear_that_the_lists_changed(monkeypatch):
    monkeypatch.setattr(offer_module, "EVERY", 0.01)
    heard: asyncio.Queue = asyncio.Queue()

    async def hear(message):
        if "list_changed" in getattr(message, "method", ""):
            heard.put_nowait(message.method)

    resources, prompts = ToolRegistry([today]), ToolRegistry([review])
    async with (
        serving(resources=resources, prompts=prompts) as offer,
        connected(offer, "legacy", message_handler=hear) as client,
    ):
        await client.list_resources()
        await client.list_prompts()
        resources.add(raw)
        async with asyncio.timeout(60):
            assert await heard.get() == "notifications/resources/list_changed"
        prompts.remove("review")
        async with asyncio.timeout(60):
            assert await heard.get() == "notifications/prompts/list_changed"


# files


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print('hunter2hunter2')\n")
    (tmp_path / "read me.md").write_text("# Hi\n")
    (tmp_path / "pixel.bin").write_bytes(b"\x00\x01")
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / ".gitignore").write_text("ignored.txt\n")
    (tmp_path / "ignored.txt").write_text("x")
    (tmp_path / ".forge" / "files").mkdir(parents=True)
    (tmp_path / ".forge" / "files" / "report.txt").write_text("a report")
    return tmp_path


async def test_the_files_of_the_workspace_are_resources(era, workspace):
    async with serving(files=True, workspace=workspace) as offer, connected(offer, era) as client:
        listed = {one.name: one.uri for one in (await client.list_resources()).resources}
        assert list(listed) == [".forge/files/report.txt", "pixel.bin", "read me.md", "src/main.py"]
        assert listed["read me.md"] == f"file://{workspace}/read%20me.md"
        [content] = (await client.read_resource(listed["read me.md"])).contents
        assert (content.text, content.uri) == ("# Hi\n", listed["read me.md"])
        assert "hunter2" not in (await client.read_resource(listed["src/main.py"])).contents[0].text
        assert (await client.read_resource(listed["pixel.bin"])).contents[0].blob == "AAE="
        assert (await client.read_resource(listed[".forge/files/report.txt"])).contents[0].text == "a report"


async def test_what_the_rules_do_not_allow_is_neither_listed_nor_completed_nor_watched_nor_read(era, workspace):
    policy = rules("allow read", "deny read src/**", "ask read *.md")
    async with serving(files=True, workspace=workspace, policy=policy) as offer, connected(offer, era) as client:
        assert [one.name for one in (await client.list_resources()).resources] == [
            ".forge/files/report.txt",
            "pixel.bin",
        ]
        [template] = (await client.list_resource_templates()).resource_templates
        reference = ResourceTemplateReference(uri=template.uri_template)
        assert (await client.complete(reference, {"name": "path", "value": "src"})).completion.values == []
        assert (await client.complete(reference, {"name": "path", "value": "pix"})).completion.values == ["pixel.bin"]
        for name in ("src/main.py", "read%20me.md"):
            with pytest.raises(MCPError):
                await client.read_resource(f"file://{workspace}/{name}")
            assert offer.resources.revision(f"file://{workspace}/{name}") is None
        assert offer.resources.revision(f"file://{workspace}/pixel.bin") is not None


async def test_a_file_that_asks_is_read_after_a_yes(era, workspace):
    policy = rules("allow read", "ask read *.md")
    answers = person({"decision": "once"})
    async with (
        serving(files=True, workspace=workspace, policy=policy) as offer,
        connected(offer, era, elicitation_callback=answers) as client,
    ):
        assert (await client.read_resource(f"file://{workspace}/read%20me.md")).contents[0].text == "# Hi\n"


@pytest.mark.parametrize("path", ["../outside.txt", "%2e%2e/outside.txt", "link", "src", "missing", "a%00b"])
async def test_nothing_outside_the_workspace_is_read(era, workspace, path):
    outside = workspace.parent / "outside.txt"
    outside.write_text("secret")
    (workspace / "link").symlink_to(outside)
    async with serving(files=True, workspace=workspace) as offer, connected(offer, era) as client:
        with pytest.raises(MCPError):
            await client.read_resource(f"file://{workspace}/{path}")


async def test_a_long_list_of_files_has_pages_and_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(workspace_files, "MOST_LISTED", 7)
    monkeypatch.setattr(offered_content_module, "PAGE", 5)
    for number in range(10):
        (tmp_path / f"{number}.txt").touch()
    async with serving(files=True, workspace=tmp_path) as offer, connected(offer, ERAS[1]) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        assert [len(first.resources), len(second.resources), second.next_cursor] == [5, 2, None]
        for cursor in ("x", "-1", "99", "9" * 20):
            with pytest.raises(MCPError, match="cursor"):
                await client.list_resources(cursor=cursor)


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a_changed_file_is_announced(workspace, monkeypatch):
    monkeypatch.setattr(offer_module, "EVERY", 0.01)
    heard = asyncio.Event()

    async def hear(message):
        if getattr(message, "method", "") == "notifications/resources/updated":
            heard.set()

    async with (
        serving(files=True, workspace=workspace) as offer,
        connected(offer, "legacy", message_handler=hear) as client,
    ):
        await client.subscribe_resource(f"file://{workspace}/pixel.bin")
        os.truncate(workspace / "pixel.bin", 1)
        async with asyncio.timeout(60):
            await heard.wait()


# prompts


async def test_prompts_have_arguments_messages_and_resources(era):
    async with serving(prompts=[review]) as offer, connected(offer, era) as client:
        [listed] = (await client.list_prompts()).prompts
        assert (listed.name, listed.description) == ("review", "Review a file.")
        assert [(one.name, one.required) for one in listed.arguments] == [("file", True), ("tone", False)]
        answer = await client.get_prompt("review", {"file": "main.py"})
        assert [one.role for one in answer.messages] == ["user", "assistant", "user"]
        assert answer.messages[0].content.resource.uri == "file:///main.py"
        assert answer.messages[2].content.text == "Review main.py, be kind."
        for name, arguments in (("review", {}), ("nothing", {}), ("review", {"file": "a", "other": "b"})):
            with pytest.raises(MCPError) as refused:
                await client.get_prompt(name, arguments)
            assert refused.value.error.code == -32602


async def test_a_prompt_can_ask_the_person(era):
    @prompt
    async def plan(ctx: ToolContext) -> str:
        """Plan something."""
        answer = await ctx.ask("What?")
        return f"Plan {answer['answer'] if answer else 'nothing'}."

    answers = person({"answer": "a journey"})
    async with serving(prompts=[plan]) as offer, connected(offer, era, elicitation_callback=answers) as client:
        assert (await client.get_prompt("plan")).messages[0].content.text == "Plan a journey."


async def test_arguments_are_completed(era):
    async with serving(prompts=[review], resources=[raw]) as offer, connected(offer, era) as client:
        reference = PromptReference(name="review")
        found = (await client.complete(reference, {"name": "tone", "value": "ke"})).completion
        assert (found.values, found.total, found.has_more) == (["keen"], 1, False)
        assert (await client.complete(reference, {"name": "file", "value": ""})).completion.values == []
        template = ResourceTemplateReference(uri="notes://raw/{number}")
        assert (await client.complete(template, {"name": "number", "value": "1"})).completion.values == ["10", "11"]
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.complete(PromptReference(name="nothing"), {"name": "a", "value": ""})


async def test_skills_are_prompts_and_their_rules_hold(era, tmp_path):
    folder = tmp_path / "skills" / "tidy-up"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: tidy-up\ndescription: Tidy a folder up.\n---\nFirst look, then move.\n"
    )
    scope = Scope(workspace=tmp_path)
    active = ActiveSkills(Catalog(scope=scope, built_in=False), ["tidy-up"])
    for policy, allowed in ((None, True), (rules("deny read skills/**"), False)):
        options = {"skills": lambda: active, "workspace": tmp_path, "policy": policy}
        async with serving(ReadSkill(active), **options) as offer, connected(offer, era) as client:
            [listed] = (await client.list_prompts()).prompts
            assert (listed.name, listed.description) == ("tidy-up", "Tidy a folder up.")
            if allowed:
                answer = await client.get_prompt("tidy-up", {"request": "Tidy ~/x."})
                assert answer.messages[0].content.text.startswith("First look, then move.")
                assert answer.messages[0].content.text.endswith("Tidy ~/x.")
            else:
                with pytest.raises(MCPError, match="denied"):
                    await client.get_prompt("tidy-up")
