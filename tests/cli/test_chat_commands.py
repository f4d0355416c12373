"""Commands of a conversation, its modes, and the commands of a project."""

from __future__ import annotations

import json

import pytest

from forge import Agent, Scripted, rules
from forge.agent.session import SessionStore
from forge.core.registry import ToolRegistry
from forge.doors.session_commands import ACCEPT_EDITS, PLAN, add_mode, fill_in, find_own_commands
from forge.permissions.policy import layered
from forge.project.trust import accept
from forge.tools import built_ins
from forge.workspace.state import state_directory
from tests.cli.scripts import call, script
from tests.cli.test_terminal import talk

PROMPT = b"> "
TOOLS = {tool.spec.name: tool for tool in built_ins(ToolRegistry())}


async def judge(policy, tool: str, **arguments) -> bool:
    """Whether a call runs where nobody can be asked."""
    agent = Agent(Scripted("x"), tools=[TOOLS[tool]], policy=policy)
    return not (await agent.call(tool, arguments)).is_error


@pytest.mark.parametrize("policy", [rules(), rules("ask write", "ask execute"), layered(project=["ask *"])])
async def test_accepted_edits_need_no_yes(policy, workspace):
    assert not await judge(policy, "file_write", path="a.txt", content="a")
    accepted = add_mode(policy, ACCEPT_EDITS)
    assert await judge(accepted, "file_write", path="a.txt", content="a")
    assert not await judge(accepted, "bash", command="touch b.txt")
    assert not await judge(accepted, "file_write", path="../outside.txt", content="a")
    assert not await judge(accepted, "file_write", path="forge.yaml", content="a")


@pytest.mark.parametrize(
    "policy",
    [
        rules("ask write secret/**"),
        rules("ask tool:file_write"),
        rules("deny write"),
        layered(organisation=["ask write secret/**"], project=["ask write"]),
    ],
)
async def test_rules_that_say_more_still_decide(policy, workspace):
    (workspace / "secret").mkdir()
    assert not await judge(add_mode(policy, ACCEPT_EDITS), "file_write", path="secret/a.txt", content="a")


async def test_plan_mode_denies_what_a_rule_allows(workspace):
    policy = rules("allow write", "allow execute")
    assert await judge(policy, "file_write", path="a.txt", content="a")
    planning = add_mode(policy, PLAN)
    assert not await judge(planning, "file_write", path="b.txt", content="a")
    assert not await judge(planning, "bash", command="touch b.txt")
    assert await judge(planning, "file_read", path="a.txt")
    assert await judge(add_mode(rules(), PLAN), "bash", command="ls")
    assert not await judge(add_mode(rules(), PLAN, can_ask=False), "bash", command="touch b.txt")


def test_a_projects_own_commands_need_trust(workspace):
    folder = state_directory(workspace) / "commands"
    folder.mkdir()
    (folder / "review.md").write_text("# Review a file\n\nReview $1 for $ARGUMENTS. $2!\n")
    (folder / "Bad name.md").write_text("x")
    assert find_own_commands(workspace) == {}
    says = ((PROMPT, b"/review a.py\n"), (b"not trusted", b""), (PROMPT, b"/quit\n"))
    assert talk(workspace, "run", "--model", script(workspace, "x"), says=says, TERM="dumb")[0] == 0
    accept(workspace)
    assert [*find_own_commands(workspace)] == ["/review"]
    typed = (
        (PROMPT, b"/help\n"),
        (b"Review a file", b""),
        (PROMPT, b"/review a.py\n"),
        (b"Fine.", b""),
        (PROMPT, b"\x04"),
    )
    model = script(workspace, "Fine.")
    assert talk(workspace, "run", "--session", "s", "--model", model, says=typed, TERM="dumb")[0] == 0
    with SessionStore.of(workspace) as store:
        assert store.show("s").messages[1].text == "# Review a file\n\nReview a.py for a.py. !"


def test_arguments_are_filled_in_once():
    assert fill_in("Fix $1 and $2: $ARGUMENTS", "a 'b c'") == "Fix a and b c: a 'b c'"
    assert fill_in("Say $1", "$ARGUMENTS") == "Say $ARGUMENTS"
    assert fill_in("Say it.", "loudly") == "Say it.\n\nloudly"
    assert fill_in("Cost: $10", "") == "Cost: $10"


def test_commands_tell_about_the_conversation(workspace):
    write = call("file_write", path="a.txt", content="one\n\ntwo\n")
    says = (
        (PROMPT, b"hi\n"),
        (b"Hello.", b""),
        (PROMPT, b"/cost\n"),
        (b"tokens out", b""),
        (PROMPT, b"/context\n"),
        (b"Tokens, estimated", b""),
        (PROMPT, b"/diff\n"),
        (b"+two", b""),
        (PROMPT, b"/permissions\n"),
        (b"everything else asks", b""),
        (PROMPT, b"/mcp\n"),
        (b"no MCP servers", b""),
        (PROMPT, b"/export talk.md\n"),
        (b"are in talk.md", b""),
        (PROMPT, b"/export talk.md\n"),
        (b"File exists", b""),
        (PROMPT, b"/export talk.json\n"),
        (b"are in talk.json", b""),
        (PROMPT, b"/session\n"),
        (PROMPT, b"/clear\n"),
        (b"knows nothing", b""),
        (PROMPT, b"/quit\n"),
    )
    code, shown = talk(workspace, "run", "--yes", "--model", script(workspace, write, "Hello."), says=says, TERM="dumb")
    assert code == 0, shown
    assert "+one\n+\n+two" in shown.replace("\r", "")
    assert (workspace / "talk.md").read_text().startswith("## You\n\nhi\n")
    assert (workspace / "talk.md").stat().st_mode & 0o077 == 0
    assert json.loads((workspace / "talk.json").read_text())[1]["role"] == "user"
