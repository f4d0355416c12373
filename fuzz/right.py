"""Calls that are right, several a tool: what the mutations begin with, and what the soak repeats."""

from __future__ import annotations

from typing import Any

Arguments = dict[str, Any]

PATCH = "*** Begin Patch\n*** Add File: added.txt\n+new\n*** End Patch\n"
MESSAGE = {"content": "Hello."}
EDITS = [{"old_text": "one", "new_text": "1"}, {"old_text": "two", "new_text": "2"}]
OPERATIONS: list[Arguments] = [
    {"action": "add", "path": "new/one.txt", "content": "new\n"},
    {"action": "update", "path": "notes.txt", "content": "one\ntwo\n"},
    {"action": "move", "path": "deep/a/b/c/d/e.txt", "new_path": "deep/e.txt"},
    {"action": "delete", "path": "empty"},
]


def right_calls(site: str) -> dict[str, list[Arguments]]:
    """By tool. Every tool of the ground is here, and the tests see to it."""
    return {**TALKING, **READING, **WRITING, **RUNNING, **KNOWING, **_connecting(site)}


TALKING: dict[str, list[Arguments]] = {
    "ask_question": [{"question": "Which colour?"}, {"question": "Which?", "suggestions": ["red", "blue"]}],
    "converse": [{"message": "Hello."}],
    "send_message": [MESSAGE, {**MESSAGE, "channel": "paper"}, {**MESSAGE, "channel": "paper", "chat_id": "1"}],
    "task_completion": [{"result": "Done."}],
    "datetime_now": [{}, {"format": "unix", "timezone": "Europe/Berlin"}],
    "uuid_generate": [{}, {"count": 3, "version": 7}],
    "math_calculate": [{"expression": "2^64 + sqrt(2) * max(1, 2)"}, {"expression": "-7 % 3 / (1 - 0.5)"}],
    "json_parse": [{"data": '{"a": [1, {"b": 2}]}', "query": "a[1].b"}, {"data": "[1, 2]"}],
    "csv_parse": [{"data": "a;b\n1;2", "delimiter": ";"}, {"path": "data/people.csv", "headers": False, "max_rows": 1}],
    "tool_search": [{"query": "read a file"}, {"query": "^file_", "regex": True, "max_results": 3}],
}
READING: dict[str, list[Arguments]] = {
    "directory_list": [{}, {"path": "src", "recursive": True, "include_hidden": True, "max_entries": 10}],
    "directory_tree": [{}, {"path": "deep", "max_depth": 9, "max_entries": 5}],
    "file_read": [
        {"path": "notes.txt"},
        {"path": ["notes.txt", "src/main.py"]},
        {"path": "data/big.txt", "offset": 500, "limit": 20},
    ],
    "glob_search": [{"pattern": "**/*.txt"}, {"pattern": "*.{py,md}", "path": "src", "max_results": 2}],
    "grep_search": [
        {"pattern": "def \\w+"},
        {"pattern": "fox", "path": "data", "include": "*.txt", "context": 1, "max_results": 5},
        {"pattern": "(?<=t)wo", "include": ["*.txt"], "exclude": "src"},
    ],
    "todo_read": [{}],
    "local_file_browser": [{"path": "notes.txt"}, {"path": ".", "operation": "list"}],
    "debug_console": [{}, {"topic": "registry", "limit": 5}, {"topic": "events", "name": "file_read"}],
}
WRITING: dict[str, list[Arguments]] = {
    "file_create": [{"filename": "report.md", "content": "# Done"}],
    "file_edit": [
        {"path": "notes.txt", "old_text": "two", "new_text": "2"},
        {"path": "notes.txt", "old_text": "2", "new_text": "two", "replace_all": True},
        {"path": "notes.txt", "edits": EDITS},
    ],
    "file_patch": [{"operations": OPERATIONS[:1]}, {"operations": OPERATIONS}, {"patch": PATCH}],
    "file_write": [{"path": "written/new.txt", "content": "written\n"}, {"path": "notes.txt", "content": "one\ntwo\n"}],
    "todo_write": [{"items": [{"content": "Read.", "status": "in_progress"}, {"content": "Rest."}]}, {"items": []}],
    "undo": [{}, {"action": "apply"}, {"action": "apply", "call_id": "1"}],
}
RUNNING: dict[str, list[Arguments]] = {
    "bash": [
        {"command": "echo hi"},
        {"command": "cat notes.txt | wc -l", "timeout": 10},
        {"command": "printf '%s\\n' a b > listed.txt && sort listed.txt", "working_dir": "src"},
        {"command": "tr a-z A-Z", "stdin": "hello"},
        {"command": "echo hi", "background": True, "description": "Say hi."},
    ],
    "bash_jobs": [{}],
    "bash_kill": [{"id": "job_1"}],
    "bash_output": [{"id": "job_1"}, {"id": "job_1", "wait": 0.01, "since": 0}],
    "cli_execute": [{"binary": "cat", "args": ["notes.txt"]}, {"binary": "wc", "args": ["-l"], "stdin": "a\nb\n"}],
    "local_shell": [{"command": "ls -la", "timeout": 10}],
    "test_runner": [{"framework": "unittest", "target": "tests", "timeout": 20}],
    "repeat": [{"text": "again", "times": 3}],
    "say__say": [{"text": "hello", "lines": 2}],
}
KNOWING: dict[str, list[Arguments]] = {
    "memory_get": [{"path": "MEMORY.md"}],
    "memory_search": [{"query": "colour"}],
    "memory_write": [{"content": "The person likes blue."}, {"content": "Blue.", "target": "memory"}],
    "read_skill": [{"name": "tidy"}, {"name": "tidy", "file": "more.md"}],
    "schedule_delete": [{"id": "tidy-up"}],
    "schedule_history": [{}, {"schedule_id": "nightly", "limit": 3}],
    "schedule_list": [{}, {"enabled_only": True}],
    "schedule_set": [
        {"cron": "@daily", "task": "Tidy up.", "id": "tidy-up"},
        {"cron": "30 9 * * MON-FRI", "task": "Look.", "id": "look", "timezone": "Europe/Berlin", "enabled": False},
    ],
}


def _connecting(site: str) -> dict[str, list[Arguments]]:
    return {
        "http_request": [
            {"method": "GET", "url": f"{site}/json"},
            {"method": "POST", "url": f"{site}/hook", "json": {"a": 1}, "headers": {"X-A": "b"}, "timeout": 10},
        ],
        "web_fetch": [{"url": f"{site}/html"}, {"url": f"{site}/turn", "format": "text", "max_chars": 100}],
        "web_search": [{"query": "forge"}, {"query": "forge", "max_results": 3, "include_domains": ["example.com"]}],
        "webhook_call": [{"url": f"{site}/hook", "payload": {"text": "Hello."}}],
        "notify": [{"payload": {"text": "Hello."}}],
        "openapi_call": [{"spec": "pets", "operation_id": "getPet", "params": {"id": 1}}],
        "pets__listPets": [{"limit": 3}],
        "pets__createPet": [{"name": "Rex"}],
        "pets__getPet": [{"id": 1}],
        "mcp_call": [{"server": "say", "tool_name": "say", "arguments": {"text": "hi"}}],
        "mcp_resource": [{"server": "say"}],
        "run_code": [{"code": "sum([1, 2])"}, {"code": "await math_calculate('1 + 1')"}],
        "task": [{"description": "count the files", "prompt": "Count the files."}],
    }
