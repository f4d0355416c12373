"""A small demo session that is always there: it shows how a run reads, before there is a model or a key."""

from __future__ import annotations

from typing import Any

NAME = "demo"
_AT = 1_760_000_000.0  # when it is said to have happened
_PROMPT = "The test of the parser fails. Find out why, and fix it."
_DIFF = """--- parser.py
+++ parser.py
@@ -1,4 +1,4 @@
 def parse(line):
-    name, value = line.split("=")
+    name, value = line.split("=", 1)
     return name.strip(), value.strip()
"""
_ANSWER = "A value may hold `=`, and the line was split at each of them. It is split once now; the test passes."


def info() -> dict[str, Any]:
    return {"name": NAME, "title": _PROMPT, "created": _AT, "updated": _AT + 22.8, "messages": 8, "turns": 4}


def events() -> list[dict[str, Any]]:
    """Returns the events as a log has them."""
    told = _DemoEvents()
    told.tell(0.0, "run_started", prompt=_PROMPT)
    told.say(0.6, "First I look for the test and the code it covers.\n")
    told.call(1.1, "demo-1", "grep_search", {"pattern": "def parse"}, "parser.py:1:def parse(line):", title="1 match")
    told.tell(1.4, "turn_finished", turn=1, usage={"input": 1840, "output": 62, "cached": 0})
    told.start(2.6, "demo-2", "bash", {"command": "python -m pytest -q test_parser.py"})
    told.ask("demo-2", "execute", "python -m pytest -q test_parser.py")
    told.output(6.9, "demo-2", "F\nValueError: too many values to unpack (expected 2)\n1 failed\n")
    told.end(7.2, "demo-2", "1 failed: ValueError: too many values to unpack (expected 2)", 1.9, title="exit code 1")
    told.tell(7.3, "turn_finished", turn=2, usage={"input": 4010, "output": 131, "cached": 1500})
    arguments = {"path": "parser.py", "old_text": 'line.split("=")', "new_text": 'line.split("=", 1)'}
    told.start(9.5, "demo-3", "file_edit", arguments)
    told.ask("demo-3", "write", "parser.py")
    told.end(13.4, "demo-3", "Edited parser.py: 1 replacement.", 0.02, title="Edited parser.py", for_user=_DIFF)
    told.tell(13.5, "turn_finished", turn=3, usage={"input": 6420, "output": 240, "cached": 3600})
    told.start(15.0, "demo-4", "bash", {"command": "python -m pytest -q test_parser.py"})
    told.output(16.6, "demo-4", ".\n1 passed\n")
    told.end(16.8, "demo-4", "1 passed", 1.8, title="exit code 0")
    told.say(21.9, _ANSWER)
    told.tell(22.7, "turn_finished", turn=4, usage={"input": 8910, "output": 330, "cached": 5900})
    total = {"input": 21_180, "output": 763, "cached": 11_000}
    told.tell(22.8, "run_finished", text=_ANSWER, reason="answer", turns=4, usage=total, calls=4, cost=None, error="")
    return told.events


def messages() -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "text": _PROMPT}]
    for event in events():
        if event["event"] == "tool_call_start":
            said.append({"role": "assistant", "text": "", "tool_calls": [event["call"]]})
        elif event["event"] == "tool_call_end":
            said.append({"role": "tool", "text": event["result"]["for_llm"], "call_id": event["call"]["id"]})
    return [*said, {"role": "assistant", "text": _ANSWER}]


class _DemoEvents:
    """Writes events as Forge does."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._at = 0.0

    def tell(self, at: float, event: str, **more: Any) -> None:
        self._at = at
        common = {"event": event, "ts": _AT + at, "seq": len(self.events) + 1, "session": NAME, "agent": "main"}
        self.events.append({**common, **more})

    def say(self, at: float, text: str) -> None:
        self.tell(at, "text_delta", text=text)

    def call(self, at: float, call: str, name: str, arguments: dict[str, Any], text: str, title: str) -> None:
        self.start(at, call, name, arguments)
        self.end(at + 0.1, call, text, 0.1, title=title)

    def start(self, at: float, call: str, name: str, arguments: dict[str, Any]) -> None:
        self._calls[call] = {"id": call, "name": name, "arguments": arguments}
        self.tell(at, "tool_call_start", call=self._calls[call])

    def ask(self, call: str, permission: str, target: str) -> None:
        which = {"call": self._calls[call]}
        self.tell(self._at, "permission_asked", **which, permission=permission, target=target, rule="", others=[])
        self.tell(self._at + 2.4, "permission_answered", **which, answer="once", by="person")

    def output(self, at: float, call: str, text: str) -> None:
        self.tell(at, "tool_output_chunk", call=self._calls[call], text=text)

    def end(self, at: float, call: str, text: str, seconds: float, *, title: str, for_user: str = "") -> None:
        result = {
            "id": call,
            "name": self._calls[call]["name"],
            "success": True,
            "is_error": False,
            "for_llm": text,
            "for_user": for_user or text,
            "silent": False,
            "async": False,
            "title": title,
            "data": {},
            "attachments": [],
            "error": "",
        }
        self.tell(at, "tool_call_end", call=self._calls[call], success=True, result=result, seconds=seconds)
