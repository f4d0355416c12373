"""Agents that speak ACP, for tests, written with the official SDK: `python acp_program.py KIND`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, cast

import acp
from acp.schema import PermissionOption, ToolCallUpdate

OPTIONS = [
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="forever", name="Always", kind="allow_always"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class Worker:
    """Does what the prompt says: lines of JSON, each a method of the client and its arguments."""

    conn: Any

    def on_connect(self, conn: Any) -> None:
        self.conn = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **_: Any) -> Any:
        self.capabilities = client_capabilities
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> Any:
        self.cwd = cwd
        return acp.NewSessionResponse(session_id="s1")

    async def cancel(self, session_id: str, **_: Any) -> None:
        return None

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        for line in prompt[0].text.splitlines():
            if line.startswith("["):
                await self._do(session_id, *json.loads(line))
        return acp.PromptResponse(stop_reason="end_turn")

    async def say(self, text: str) -> None:
        await self.conn.session_update(session_id="s1", update=acp.update_agent_message_text(f"{text}\n"))

    async def _do(self, session: str, what: str, *given: Any) -> None:
        try:
            await self.say(f"{what}: {await self._ask(session, what, *given)}")
        except acp.RequestError as error:
            await self.say(f"{what} failed: {error} {error.data}")

    async def _ask(self, session: str, what: str, *given: Any) -> str:
        here = [os.path.join(self.cwd, one) if isinstance(one, str) else one for one in given]
        if what == "read":
            return (await self.conn.read_text_file(session_id=session, path=here[0], **(given[1:] or [{}])[0])).content
        if what == "write":
            await self.conn.write_text_file(session_id=session, path=here[0], content=given[1])
            return "done"
        if what == "run":
            made = await self.conn.create_terminal(session_id=session, command=given[0])
            code = await self.conn.wait_for_terminal_exit(session_id=session, terminal_id=made.terminal_id)
            shown = await self.conn.terminal_output(session_id=session, terminal_id=made.terminal_id)
            await self.conn.release_terminal(session_id=session, terminal_id=made.terminal_id)
            return f"{code.exit_code} {shown.output}"
        if what == "may":
            call = ToolCallUpdate(tool_call_id="t1", kind=given[0], title=given[1], raw_input={"command": given[1]})
            answer = await self.conn.request_permission(session_id=session, tool_call=call, options=OPTIONS)
            return getattr(answer.outcome, "option_id", answer.outcome.outcome)
        if what == "env":
            return ",".join(sorted(os.environ))
        if what == "list":
            try:
                return ",".join(sorted(os.listdir(self.cwd)))
            except OSError as error:
                return f"cannot: {error.strerror}"
        if what == "wait":
            await asyncio.Event().wait()
        return "nothing"


def main(kind: str) -> None:
    if kind == "worker":
        asyncio.run(acp.run_agent(cast(acp.Agent, Worker())))
    elif kind == "silent":
        sys.stdin.read()
    elif kind == "exits":
        sys.stderr.write("no key is set\n")
        sys.exit(3)
    elif kind == "flood":
        while True:
            sys.stdout.write("x" * 65_536)
    elif kind == "noise":
        sys.stdout.write('not JSON\n[1, 2]\n{"jsonrpc": "2.0", "id": 99, "result": null}\n' + "[" * 50_000 + "\n")
        sys.stdout.flush()
        asyncio.run(acp.run_agent(cast(acp.Agent, Worker())))


if __name__ == "__main__":
    main(sys.argv[1])
