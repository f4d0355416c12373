"""The Agent Client Protocol: one long session of an editor, whose every message the published schema judges."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
from acp import image_block

from scores.packages import from_npm
from tests.cli.scripts import call, script
from tests.doors.acp_editor import ALL, Checked, Editor, forge_in

PACKAGE, VERSION = "@agentclientprotocol/sdk", "2.4.0"
LEFT_OUT = {
    "terminal/": "programs run in Forge's sandbox, and their output is part of the call",
    "logout": "Forge has no login of its own",
    "elicitation/complete": "it belongs to questions by URL, which Forge does not ask",
}
UNSENT = {
    "compaction": "the SDK for Python 0.12.1 does not know it; /compact answers in words",
    "notice": "the SDK for Python 0.12.1 does not know it; a note is a text of the agent",
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Judged(NamedTuple):
    """Counts of one session; the rest are failures, with their reasons."""

    messages: int
    wrong: list[str]
    methods: int
    unused: list[str]
    updates: int
    unsent: list[str]


def judge() -> Judged:
    """Runs the session, and judges its messages."""
    folder = from_npm(PACKAGE, VERSION) / "schema" / "v1"
    stable = json.loads((folder / "schema.json").read_text("utf-8"))
    unstable = json.loads((folder / "schema.unstable.json").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as workspace:
        checked = asyncio.run(_talk(Path(workspace).resolve()))
    wrong = list(_find_wrong(checked, stable, unstable))
    methods = {(one["x-side"], one["x-method"]) for one in stable["$defs"].values() if "x-method" in one}
    methods = {one for one in methods if one[0] in ("agent", "client")}
    answered = {method for _, method, message in checked.messages if "error" not in message}
    unused = sorted(_explain(method, LEFT_OUT) for _, method in methods if method not in answered)
    kinds = {one["properties"]["sessionUpdate"]["const"] for one in stable["$defs"]["SessionUpdate"]["oneOf"]}
    sent = {
        message["params"]["update"]["sessionUpdate"]
        for _, method, message in checked.messages
        if method == "session/update"
    }
    return Judged(
        len(checked.messages),
        wrong,
        len(methods),
        unused,
        len(kinds),
        [_explain(one, UNSENT) for one in sorted(kinds - sent)],
    )


def _explain(name: str, reasons: dict[str, str]) -> str:
    return f"{name}: {next((why for start, why in reasons.items() if name.startswith(start)), 'not used')}"


def _find_wrong(checked: Checked, stable: Any, unstable: Any) -> Iterator[str]:
    for _, method, message in checked.messages:
        if "error" in message:
            name, value = "Error", message["error"]
        else:
            part, value = ("Request", message["params"]) if "method" in message else ("Response", message["result"])
            name = _find_shape(unstable, method, part)
        document = stable if name in stable["$defs"] else unstable
        found = jsonschema_rs.validator_for({"$ref": f"#/$defs/{name}", "$defs": document["$defs"]})
        problem = next(iter(found.iter_errors(value)), None)
        if problem is not None:
            yield f"{method} ({name}): {problem.message[:200]}"


def _find_shape(document: Any, method: str, part: str) -> str:
    named: list[str] = [name for name, one in document["$defs"].items() if one.get("x-method") == method]
    return next(name for name in named if name.endswith(part) or (part == "Request" and name.endswith("Notification")))


async def _talk(workspace: Path) -> Checked:
    """An editor that uses everything: questions, modes, models, commands, files, threads, plans, a stop."""
    path = workspace / "a.txt"
    path.write_text("one\n", encoding="utf-8")
    write = call("file_write", path="b.txt", content="two\n")
    turns = [
        call("file_read", path="a.txt"),
        call("file_edit", path="a.txt", old_text="typed", new_text="edited"),
        call("todo_write", items=[{"content": "Write", "status": "in_progress"}]),
        {"text": "Done.", "reasoning": "It is easy."},
        write,
        "Refused.",
        write,
        "Never.",
        "Seen.",
        {"title": "Edit and write"},
    ]
    editor = Editor("allow_once", "reject_with_feedback", "cancelled")
    editor.buffers[str(path)] = "typed\n"
    async with forge_in(editor, workspace, script(workspace, *turns), capabilities=ALL) as checked:
        agent = editor.agent
        await agent.authenticate(method_id="set-up")
        session = (await agent.new_session(cwd=str(workspace))).session_id
        await editor.say(session, "Edit it.")
        await editor.wait_for(lambda: bool(editor.of("session_info_update")))
        await editor.say(session, "Write it.")
        await agent.set_session_mode(session_id=session, mode_id="plan")
        await agent.set_config_option(session_id=session, config_id="mode", value="ask")
        await editor.say(session, "/cost")
        editor.hold.clear()
        editor.question.clear()
        running = asyncio.create_task(editor.say(session, "Write it again."))
        await editor.question.wait()
        await agent.cancel(session_id=session)
        editor.hold.set()
        await running
        await editor.say(session, "And this?", image_block(PIXEL, "image/png"))
        await agent.list_sessions(cwd=str(workspace))
        await agent.load_session(cwd=str(workspace), session_id=session)
        await agent.resume_session(cwd=str(workspace), session_id=session)
        forked = (await agent.fork_session(cwd=str(workspace), session_id=session)).session_id
        await agent.close_session(session_id=forked)
        await editor.delete(forked)
        for wrong in (agent.close_session(session_id=forked), agent.new_session(cwd="nowhere")):
            try:
                await wrong
            except Exception:
                continue
    return checked
