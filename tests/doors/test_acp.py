"""`forge acp`, judged by the SDK's own client: each message of both sides is checked by the schema."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path

import pytest
from acp import RequestError, embedded_text_resource, image_block, resource_block, resource_link_block
from acp.schema import McpServerStdio

from forge.agent.session import SessionStore
from forge.doors import acp
from forge.project.trust import accept
from tests.cli.scripts import call, script
from tests.doors.acp_editor import ALL, TERMINALS, Editor, forge_in

WRITE = call("file_write", path="a.txt", content="one\n")
SERVER = Path(__file__).parents[1] / "conformance" / "say_server.py"
PNG = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()


async def begin(editor: Editor, workspace) -> str:
    opened = await editor.agent.new_session(cwd=str(workspace))
    return opened.session_id


async def test_a_prompt_is_answered(workspace):
    editor = Editor()
    async with forge_in(editor, workspace, script(workspace, "Hello.")):
        opened = await editor.agent.new_session(cwd=str(workspace))
        assert [one.id for one in opened.modes.available_modes] == ["ask", "accept edits", "plan"]
        assert [one.id for one in opened.config_options] == ["mode", "model"]
        answer = await editor.say(opened.session_id, "Hi")
        assert answer.stop_reason == "end_turn"
        assert editor.said == "Hello."
        assert "cost" in [one.name for one in editor.of("available_commands_update")[0].available_commands]


async def test_an_edit_shows_its_diff_and_its_rule_and_is_made_after_a_yes(workspace):
    (workspace / "a.txt").write_text("one\ntwo\n")
    model = script(
        workspace,
        call("file_read", path="a.txt"),
        call("file_edit", path="a.txt", old_text="two", new_text="three"),
        call("file_edit", path="a.txt", old_text="three", new_text="four"),
        "Done.",
    )
    editor = Editor("allow_once", "reject_once")
    async with forge_in(editor, workspace, model):
        assert (await editor.say(await begin(editor, workspace), "Edit it.")).stop_reason == "end_turn"
    assert (workspace / "a.txt").read_text() == "one\nthree\n"
    question, options = editor.asked[0]
    assert [one.kind for one in options] == ["allow_once", "allow_always", "reject_once"]
    assert "write a.txt" in options[1].name
    diff = question.content[1]
    assert (diff.path, diff.old_text, diff.new_text) == (str(workspace / "a.txt"), "one\ntwo\n", "one\nthree\n")
    read, edited, refused = editor.calls().values()
    assert [read[0].kind, edited[0].kind] == ["read", "edit"]
    assert edited[0].locations[0].path == str(workspace / "a.txt")
    assert edited[-1].status == "completed"
    assert edited[-1].content[0].new_text == "one\nthree\n"
    assert refused[-1].status == "failed"


async def test_an_always_is_remembered_and_an_unknown_answer_is_a_no(workspace):
    model = script(workspace, WRITE, "Refused.", WRITE, WRITE, "Twice.")
    editor = Editor("anything", "allow_always")
    async with forge_in(editor, workspace, model):
        session = await begin(editor, workspace)
        await editor.say(session, "Write it.")
        assert not (workspace / "a.txt").exists()
        await editor.say(session, "Write it twice.")
    assert (workspace / "a.txt").read_text() == "one\n"
    assert len(editor.asked) == 2


async def test_a_no_can_say_why(workspace):
    editor = Editor("reject_with_feedback")
    async with forge_in(editor, workspace, script(workspace, WRITE, "I see."), capabilities=ALL):
        session = await begin(editor, workspace)
        await editor.say(session, "Write it.")
    with SessionStore.of(workspace) as store:
        assert "Not like this." in "".join(one.text for one in store.show(session).messages)
    assert editor.forms


async def test_modes_models_and_commands(workspace):
    model = script(workspace, WRITE, "Accepted.", WRITE, "Planned.")
    editor = Editor()
    async with forge_in(editor, workspace, model):
        session = await begin(editor, workspace)
        await editor.agent.set_session_mode(session_id=session, mode_id="accept edits")
        await editor.say(session, "Write it.")
        assert (workspace / "a.txt").exists()
        assert editor.of("current_mode_update")[-1].current_mode_id == "accept edits"
        (workspace / "a.txt").unlink()
        answer = await editor.agent.set_config_option(config_id="mode", session_id=session, value="plan")
        assert answer.config_options[0].current_value == "plan"
        await editor.say(session, "Write it.")
        assert not (workspace / "a.txt").exists()
        assert not editor.asked
        with pytest.raises(RequestError, match="no such mode"):
            await editor.agent.set_session_mode(session_id=session, mode_id="yolo")
        with pytest.raises(RequestError, match="Choose one of"):
            await editor.agent.set_config_option(config_id="model", session_id=session, value="other:model")
        assert (await editor.agent.set_config_option(config_id="model", session_id=session, value=model)).config_options
        assert (await editor.say(session, "/mode ask")).stop_reason == "end_turn"
        assert editor.of("current_mode_update")[-1].current_mode_id == "ask"
        await editor.say(session, "/cots")
        assert "Did you mean /cost" in editor.said


async def test_a_plan_is_shown(workspace):
    items = [{"content": "Read", "status": "completed"}, {"content": "Write", "priority": "high"}]
    editor = Editor()
    async with forge_in(editor, workspace, script(workspace, call("todo_write", items=items), "Planned.")):
        await editor.say(await begin(editor, workspace), "Plan.")
    entries = editor.of("plan")[0].entries
    assert [(one.content, one.status, one.priority) for one in entries] == [
        ("Read", "completed", "medium"),
        ("Write", "pending", "high"),
    ]


async def test_images_and_resources_reach_the_model(workspace):
    (workspace / "a.py").write_text("print(1)\n")
    editor = Editor()
    async with forge_in(editor, workspace, script(workspace, "Seen.", "Never.")):
        session = await begin(editor, workspace)
        text = resource_block(embedded_text_resource(f"file://{workspace}/a.py", "print(2)\n"))
        link = resource_link_block("a.py", f"file://{workspace}/a.py")
        await editor.say(session, "Look at ", link, " and ", text, image_block(PNG, "image/png"))
        with pytest.raises(RequestError, match="image"):
            await editor.say(session, image_block(base64.b64encode(b"no image").decode(), "image/png"))
        with pytest.raises(RequestError, match="base64"):
            await editor.say(session, image_block("!!", "image/png"))
        with pytest.raises(RequestError, match="empty"):
            await editor.say(session, " ")
    with SessionStore.of(workspace) as store:
        said = next(one for one in store.show(session).messages if one.role == "user")
    assert said.text == "Look at @a.py and @a.py"
    assert [one.media_type for one in said.attachments] == ["text/plain", "image/png"]


async def test_the_editors_unsaved_text_is_read_and_changed(workspace):
    path = workspace / "a.txt"
    path.write_text("old\n")
    model = script(
        workspace,
        call("file_read", path="a.txt"),
        call("file_edit", path="a.txt", old_text="typed", new_text="edited"),
        "Done.",
    )
    editor = Editor("allow_once")
    editor.buffers[str(path)] = "typed\n"
    async with forge_in(editor, workspace, model, capabilities=ALL):
        session = await begin(editor, workspace)
        await editor.say(session, "Edit it.")
        read = next(iter(editor.calls().values()))
        assert "typed" in read[-1].content[0].content.text
        assert path.read_text() == "edited\n"
        assert editor.asked[0][0].content[1].old_text == "typed\n"
        assert editor.written[0] == (str(path), "typed\n")
        editor.answers.append("allow_once")
        await editor.say(session, "/undo")
        assert path.read_text() == "typed\n"


async def test_what_the_person_types_meanwhile_is_never_overwritten(workspace):
    path = workspace / "a.txt"
    path.write_text("old\n")
    model = script(
        workspace,
        call("file_read", path="a.txt"),
        call("file_edit", path="a.txt", old_text="typed", new_text="edited"),
        "Done.",
    )
    editor = Editor("allow_once")
    editor.buffers[str(path)] = "typed\n"
    editor.hold.clear()
    async with forge_in(editor, workspace, model, capabilities=ALL):
        saying = asyncio.create_task(editor.say(await begin(editor, workspace), "Edit it."))
        await editor.question.wait()
        editor.buffers[str(path)] = "typed more\n"
        editor.hold.set()
        await saying
    assert path.read_text() == "old\n"
    assert editor.buffers[str(path)] == "typed more\n"
    assert [*editor.calls().values()][1][-1].status == "failed"


async def test_sessions_are_listed_loaded_resumed_forked_and_closed(workspace):
    editor = Editor("allow_once")
    model = script(workspace, WRITE, "Done.", "Again.", "Forked.")
    async with forge_in(editor, workspace, model):
        session = await begin(editor, workspace)
        await editor.say(session, "Write it.")
        listed = (await editor.agent.list_sessions(cwd=str(workspace))).sessions
        assert [(one.session_id, one.title) for one in listed] == [(session, "Write it.")]
        editor.updates.clear()
        await editor.agent.load_session(cwd=str(workspace), session_id=session)
        assert [one.session_update for one in editor.updates] == [
            "user_message_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk",
        ]
        editor.updates.clear()
        await editor.agent.resume_session(cwd=str(workspace), session_id=session)
        await editor.say(session, "And again.")
        forked = await editor.agent.fork_session(cwd=str(workspace), session_id=session)
        assert forked.session_id != session
        await editor.agent.close_session(session_id=session)
        with pytest.raises(RequestError, match="no open session"):
            await editor.say(session, "Hi")
        with pytest.raises(RequestError, match="no session"):
            await editor.agent.load_session(cwd=str(workspace), session_id="other")
    with SessionStore.of(workspace) as store:
        assert {one.name for one in store.list()} == {session, forked.session_id}


async def test_an_untrusted_project_says_forge_trust(workspace):
    (workspace / "forge.yaml").write_text("agent: {prompt: Be brief.}\n")
    editor = Editor()
    async with forge_in(editor, workspace, script(workspace, "Fine.")):
        with pytest.raises(RequestError, match="forge trust"):
            await editor.agent.new_session(cwd=str(workspace))
        with pytest.raises(RequestError, match="absolute"):
            await editor.agent.new_session(cwd="here")
        accept(workspace)
        assert (await editor.say(await begin(editor, workspace), "Hi")).stop_reason == "end_turn"


async def test_a_second_prompt_steers_and_a_cancel_stops(workspace):
    editor = Editor("allow_once", "cancelled")
    editor.hold.clear()
    async with forge_in(editor, workspace, script(workspace, WRITE, "Done.", WRITE, "Never.")):
        session = await begin(editor, workspace)
        first = asyncio.create_task(editor.say(session, "Write it."))
        await editor.question.wait()
        second = asyncio.create_task(editor.say(session, "And be quick."))
        assert (await editor.say(session, "/cost")).stop_reason == "end_turn"
        editor.hold.set()
        assert (await first).stop_reason == (await second).stop_reason == "end_turn"
        editor.hold.clear()
        editor.question.clear()
        running = asyncio.create_task(editor.say(session, "Once more."))
        await editor.question.wait()
        await editor.agent.cancel(session_id=session)
        editor.hold.set()
        assert (await running).stop_reason == "cancelled"
    with SessionStore.of(workspace) as store:
        assert "And be quick." in [one.text for one in store.show(session).messages]


async def test_limits_and_errors_have_their_words(workspace):
    model = script(workspace, call("todo_read"), call("todo_read"), "Never.")
    editor = Editor()
    async with forge_in(editor, workspace, model, turns=1):
        session = await begin(editor, workspace)
        assert (await editor.say(session, "Go on.")).stop_reason == "max_turn_requests"
        assert "max turns" in editor.said
    async with forge_in(editor, workspace, script(workspace, name="empty.json")):
        with pytest.raises(RequestError):
            await editor.say(await begin(editor, workspace), "Hi")
    async with forge_in(editor, workspace, "anthropic:claude"):
        with pytest.raises(RequestError) as refused:
            await editor.agent.new_session(cwd=str(workspace))
        assert refused.value.code == -32000


async def test_the_editors_mcp_servers_pass_the_same_gate(workspace):
    (workspace / "forge.yaml").write_text("sandbox: off\n")
    accept(workspace)
    server = McpServerStdio(name="Say it!", command=sys.executable, args=[str(SERVER), "stdio"], env=[])
    broken = McpServerStdio(name="broken", command=sys.executable, args=["-c", "1/0"], env=[])
    say = {"call": "Say-it__say", "arguments": {"text": "hello"}}
    model = script(workspace, say, "Said.", say, "Refused.")
    editor = Editor("allow_once", "reject_once")
    async with forge_in(editor, workspace, model):
        opened = await editor.agent.new_session(cwd=str(workspace), mcp_servers=[server, broken])
        await editor.say(opened.session_id, "Say it.")
        await editor.say(opened.session_id, "Say it again.")
        await editor.say(opened.session_id, "/mcp")
    assert "No person has approved this tool yet" in editor.asked[0][0].content[0].content.text
    said, refused = editor.calls().values()
    assert (said[-1].status, refused[-1].status) == ("completed", "failed")
    assert "hello" in said[-1].content[0].content.text
    assert "Say-it  open" in editor.said
    assert "broken is left out" in editor.said


async def test_programs_show_their_output_and_a_trial_is_applied_or_discarded(workspace):
    model = script(
        workspace,
        call("bash", command="echo out > made.txt; echo shown"),
        "Made.",
        call("bash", command="rm made.txt"),
        "Kept.",
    )
    editor = Editor("allow_once", "reject_once")
    async with forge_in(editor, workspace, model):
        session = await begin(editor, workspace)
        await editor.say(session, "Make it.")
        await editor.say(session, "Remove it.")
    assert (workspace / "made.txt").read_text() == "out\n"
    first, second = editor.calls().values()
    assert first[0].kind == "execute"
    assert "shown" in first[-1].content[-1].content.text
    assert (first[-1].status, second[-1].status) == ("completed", "failed")
    names = [[one.name for one in options] for _, options in editor.asked]
    assert names[0][0] in ("Apply the changes", "Allow once")


async def test_a_session_that_was_closed_for_others_opens_again(workspace, monkeypatch):
    monkeypatch.setattr(acp, "MOST_SESSIONS", 1)
    editor = Editor()
    async with forge_in(editor, workspace, script(workspace, "One.", "Two.", "Three.")):
        first = await begin(editor, workspace)
        await editor.say(first, "Hi")
        await editor.say(await begin(editor, workspace), "Hi")
        answers = await asyncio.gather(editor.say(first, "Again?"), editor.say(first, "/cost"))
        assert [one.stop_reason for one in answers] == ["end_turn", "end_turn"]
    with SessionStore.of(workspace) as store:
        assert [one.text for one in store.show(first).messages if one.role == "user"] == ["Hi", "Again?"]


async def test_an_editor_with_terminals_gets_output_in_them(workspace):
    model = script(
        workspace,
        call("bash", command="printf 'one\\ntwo\\033[2J\\n'; exit 3"),
        call("bash", command="true"),
        call("bash", command=""),
        "Done.",
    )
    (workspace / "forge.yaml").write_text("permissions: {rules: [allow execute]}")
    accept(workspace)
    editor = Editor()
    async with forge_in(editor, workspace, model, capabilities=TERMINALS):
        await editor.say(await begin(editor, workspace), "Run it.")
    shown, quiet, refused = editor.calls().values()
    info = shown[0].field_meta["terminal_info"]
    assert info == {"terminal_id": shown[0].tool_call_id, "cwd": str(workspace)}
    written = "".join(one.field_meta["terminal_output"]["data"] for one in shown[1:-1])
    assert written.startswith("one\ntwo")
    assert "\033" not in written
    assert {one.field_meta["terminal_output"]["terminal_id"] for one in shown[1:-1]} == {info["terminal_id"]}
    terminal, remark = shown[-1].content
    assert (terminal.type, terminal.terminal_id) == ("terminal", info["terminal_id"])
    assert remark.content.text == "[exit code 3]"
    assert shown[-1].field_meta["terminal_exit"] == {"terminal_id": info["terminal_id"], "exit_code": 3, "signal": None}
    assert quiet[1].field_meta["terminal_output"]["data"] == "(no output)"
    assert [one.type for one in quiet[-1].content] == ["terminal"]
    assert (refused[-1].status, [one.type for one in refused[-1].content]) == ("failed", ["content"])  # no program ran


async def test_a_session_gets_its_title_and_is_deleted(workspace):
    editor = Editor()
    async with forge_in(editor, workspace, script(workspace, {"title": "Small talk"}, "Hi.", "Ho.")):
        kept, gone = await begin(editor, workspace), await begin(editor, workspace)
        await editor.say(kept, "Stay.")
        await editor.wait_for(lambda: [one.title for one in editor.of("session_info_update")] == ["Small talk"])
        await editor.say(gone, "Leave.")
        assert await editor.delete(gone) == {}
        assert await editor.delete(gone) == {}  # the protocol wants no error
        assert await editor.delete("never there") == {}
        listed = await editor.agent.list_sessions(cwd=str(workspace))
        assert [one.session_id for one in listed.sessions] == [kept]
        with pytest.raises(RequestError, match="no open session"):
            await editor.say(gone, "Still there?")
        with pytest.raises(RequestError, match="there is no session"):
            await editor.agent.load_session(cwd=str(workspace), session_id=gone)
        await editor.agent.close_session(session_id=kept)
        await editor.delete(kept)  # not open any more
        assert (await editor.agent.list_sessions(cwd=str(workspace))).sessions == []


async def test_what_an_editor_adds_to_a_request_is_no_argument(workspace):
    editor = Editor()
    async with forge_in(editor, workspace, script(workspace, "Hi.")):
        session = await begin(editor, workspace)
        await editor.say(session, "Hello")
        more = {"cwd": "nowhere", "self": 1, "cursor": {}}
        listed = await editor.agent._conn.send_request("session/list", {"cwd": str(workspace), "_meta": more})
    assert [one["sessionId"] for one in listed["sessions"]] == [session]


async def test_a_session_that_is_deleted_ends_its_run(workspace):
    editor = Editor()
    editor.hold.clear()
    async with forge_in(editor, workspace, script(workspace, call("file_write", path="a.txt", content="x"), "No.")):
        session = await begin(editor, workspace)
        running = asyncio.create_task(editor.say(session, "Write."))
        await asyncio.wait_for(editor.question.wait(), 60)
        await editor.delete(session)
        editor.hold.set()
        assert (await running).stop_reason == "cancelled"
        assert (await editor.agent.list_sessions(cwd=str(workspace))).sessions == []
    assert not (workspace / "a.txt").exists()
