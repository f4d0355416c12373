"""Runs a hook that was written for Claude Code as a hook of Forge: `claude_code.py EVENT MATCHER -c COMMAND`.

Forge describes a call on stdin in its own terms. This script describes it in those of Claude Code to the command, and
gives Forge the command's decision. It is a part of the project and needs nothing but Python. `forge import` wrote it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from typing import Any

FILES = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "grep_search": ("Grep", {}),
    "glob_search": ("Glob", {}),
    "directory_list": ("LS", {}),
    "directory_tree": ("LS", {}),
    "web_fetch": ("WebFetch", {}),
    "web_search": ("WebSearch", {}),
    "todo_write": ("TodoWrite", {}),
    "task": ("Task", {"agent_type": "subagent_type"}),
    "bash": ("Bash", {}),
    "file_read": ("Read", {"path": "file_path"}),
    "file_write": ("Write", {"path": "file_path"}),
    "file_create": ("Write", {"filename": "file_path"}),
    "file_edit": ("Edit", {"path": "file_path", "old_text": "old_string", "new_text": "new_string"}),
}


def main() -> int:
    event, matcher, _, command = sys.argv[1:5]
    said = json.load(sys.stdin)
    if (event == "UserPromptSubmit" and not said.get("prompt")) or (event == "PostToolUse" and said.get("is_error")):
        return 0  # Claude Code does not run these either
    common = {"session_id": said.get("session", ""), "transcript_path": "", "cwd": said["workspace"]}
    common |= {"hook_event_name": event, "permission_mode": "default"}
    if "tool" not in said:
        asked = {"prompt": said["prompt"]} if event == "UserPromptSubmit" else {"stop_hook_active": False}
        return run(event, command, {**common, **asked}, said, None)
    calls = [(name, given) for name, given in translate(said) if fits(matcher, name)]
    for name, given in calls:
        call = {**common, "tool_name": name, "tool_input": given, "tool_use_id": said.get("call", "")}
        if event == "PostToolUse":
            call["tool_response"] = {"content": said.get("result", "")}
        code = run(event, command, call, said, given if len(calls) == 1 else None)
        if code or said.get("decided"):
            return code
    return 0


def fits(matcher: str, name: str) -> bool:
    return matcher in ("", "*") or re.fullmatch(matcher, name) is not None


def translate(said: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Returns the call as Claude Code would have made it; a call about several files as several."""
    tool, given = said["tool"], dict(said["arguments"])
    if tool == "cli_execute":
        return [("Bash", {"command": shlex.join([given["binary"], *given.get("args", [])])})]
    if tool == "file_patch":
        paths = [one.get(key) for one in given.get("operations") or () for key in ("path", "to", "new_path", "move_to")]
        return [edit(said, path) for path in [*filter(None, paths), *FILES.findall(given.get("patch") or "")]]
    if tool == "file_read" and isinstance(given.get("path"), list):
        return [("Read", {"file_path": absolute(said, path)}) for path in given["path"]]
    if tool == "file_edit" and given.get("edits"):
        edits = [
            {"old_string": one.get("old_text", ""), "new_string": one.get("new_text", "")} for one in given["edits"]
        ]
        return [
            ("MultiEdit", {"file_path": absolute(said, given.get("path", "")), "edits": edits}),
            edit(said, given.get("path", "")),
        ]
    if tool in NAMES:
        name, keys = NAMES[tool]
        named: dict[str, Any] = {keys.get(str(key), str(key)): value for key, value in given.items()}
        if isinstance(named.get("file_path"), str):
            named["file_path"] = absolute(said, named["file_path"])
        return [(name, named)]
    return [(f"mcp__{tool}" if "__" in tool else tool, given)]


def edit(said: dict[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    return "Edit", {"file_path": absolute(said, path.strip())}


def absolute(said: dict[str, Any], path: str) -> str:
    return os.path.join(said["workspace"], path)


def run(event: str, command: str, call: dict[str, Any], said: dict[str, Any], given: dict[str, Any] | None) -> int:
    """Runs the command and prints its decision for Forge. Returns the exit code: 2 refuses."""
    environment = {**os.environ, "CLAUDE_PROJECT_DIR": said["workspace"]}
    done = subprocess.run(
        ["/bin/sh", "-c", command], input=json.dumps(call), capture_output=True, text=True, env=environment, check=False
    )
    sys.stderr.write(done.stderr)
    if done.returncode == 2 and event == "PostToolUse":
        return decide(said, {"result": f"{said.get('result', '')}\n\n[A hook says: {done.stderr.strip()}]"})
    if done.returncode:
        return done.returncode  # 2 refuses; Forge refuses after any other failure, too
    text = done.stdout.strip()
    if not text.startswith("{"):
        return decide(said, {"context": text}) if text and event == "UserPromptSubmit" else 0
    return read(event, json.loads(text), said, given)


def read(event: str, answer: dict[str, Any], said: dict[str, Any], given: dict[str, Any] | None) -> int:
    special = answer.get("hookSpecificOutput") or {}
    verdict = special.get("permissionDecision") or answer.get("decision")
    reason = special.get("permissionDecisionReason") or answer.get("reason") or answer.get("stopReason") or ""
    if verdict == "ask":
        return decide(said, {"block": f"The hook wants a person to decide, and a hook of Forge cannot ask. {reason}"})
    if event == "PostToolUse" and verdict in ("block", "deny"):
        return decide(said, {"result": f"{said.get('result', '')}\n\n[A hook says: {reason}]"})
    if verdict in ("block", "deny") or answer.get("continue") is False:
        return decide(said, {"block": str(reason)})
    decision: dict[str, Any] = {}
    if "updatedInput" in special:
        decision["arguments"] = changed(special["updatedInput"], said, given)
    if special.get("additionalContext"):
        decision["context"] = str(special["additionalContext"])
    return decide(said, decision) if decision else 0


def changed(updated: dict[str, Any], said: dict[str, Any], given: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the arguments of Forge's tool for the changed input. An input that cannot be read is a failure."""
    if given is None or (said["tool"] not in NAMES and "__" not in said["tool"]):
        raise SystemExit("the hook changed the input of a call that has no such input in Claude Code")
    names = {theirs: ours for ours, theirs in NAMES.get(said["tool"], ("", {}))[1].items()}
    return {**said["arguments"], **{names.get(key, key): value for key, value in updated.items()}}


def decide(said: dict[str, Any], decision: dict[str, Any]) -> int:
    said["decided"] = True
    sys.stdout.write(json.dumps(decision))
    return 0


if __name__ == "__main__":
    sys.exit(main())
