"""Built-in tools find out whether a call of a lost worker took effect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forge import Reconciled, Scope, Tool, ToolCall, ToolContext
from forge.core.plain_values import plain
from forge.tools.file_edit import FileEdit
from forge.tools.file_patch import FilePatch
from forge.tools.file_write import FileWrite
from forge.tools.http_request import HttpRequest
from forge.tools.webhook_call import WebhookCall

CHANGES: dict[str, tuple[Tool, dict[str, Any]]] = {
    "write": (FileWrite(), {"path": "a.txt", "content": "new\n"}),
    "create": (FileWrite(), {"path": "b.txt", "content": "new\n"}),
    "edit": (FileEdit(), {"path": "a.txt", "old_text": "old", "new_text": "new"}),
    "patch": (
        FilePatch(),
        {
            "operations": [
                {"action": "update", "path": "a.txt", "content": "new\n"},
                {"action": "add", "path": "c/d.txt", "content": "d\n"},
                {"action": "delete", "path": "gone.txt"},
            ]
        },
    ),
    "move": (FilePatch(), {"operations": [{"action": "move", "path": "a.txt", "new_path": "moved.txt"}]}),
}


class Granted:
    async def require(self, ctx: ToolContext, permission: Any, target: str) -> None:
        return None


def context(tool: Tool, arguments: Mapping[str, Any], place: Path) -> ToolContext:
    ctx = ToolContext(
        ToolCall(tool.spec.name, dict(arguments), "c"), tool, tool.parse(dict(arguments)), Scope(workspace=place)
    )
    ctx.gate = Granted()
    return ctx


async def ask(ctx: ToolContext, noted: Mapping[str, Any]) -> Reconciled:
    tool: Any = ctx.tool
    ctx.noted = plain(dict(noted))
    answer: Reconciled = await tool.reconcile(ctx.key, ctx.arguments, ctx)
    return answer


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_of_files_is_known_by_the_content(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    (tmp_path / "gone.txt").write_text("gone\n")
    tool, arguments = CHANGES[name]
    ctx = context(tool, arguments, tmp_path)
    noted = tool.note_intent(ctx.arguments, ctx)
    assert tool.reconciles
    assert (await ask(ctx, noted)).state == "not_done"
    assert not (tmp_path / "moved.txt").exists(), "nothing is changed by being asked"
    result = await tool.invoke(ctx.arguments, ctx)
    assert result.success, result.for_llm
    answer = await ask(ctx, noted)
    assert answer.state == "done"
    assert answer.result.success
    for file in tmp_path.rglob("*.txt"):
        file.write_text("somebody else\n")
    assert (await ask(ctx, noted)).state == "unknown"
    assert (await ask(ctx, {})).state == "unknown"


async def test_a_patch_of_which_a_half_is_there_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    (tmp_path / "gone.txt").write_text("gone\n")
    tool, arguments = CHANGES["patch"]
    ctx = context(tool, arguments, tmp_path)
    noted = tool.note_intent(ctx.arguments, ctx)
    (tmp_path / "a.txt").write_text("new\n")
    assert (await ask(ctx, noted)).state == "unknown"


async def test_a_file_that_was_noted_elsewhere_is_unknown(tmp_path: Path) -> None:
    tool, arguments = CHANGES["write"]
    ctx = context(tool, arguments, tmp_path)
    with pytest.raises(Exception, match=r"outside|not"):
        await ask(ctx, {"files": {"/etc/passwd": ["", "x"]}})


@pytest.mark.parametrize(
    ("tool", "arguments", "state"),
    [
        (HttpRequest(), {"method": "GET", "url": "https://a.test/"}, "not_done"),
        (HttpRequest(), {"method": "HEAD", "url": "https://a.test/"}, "not_done"),
        (HttpRequest(), {"method": "POST", "url": "https://a.test/"}, "unknown"),
        (HttpRequest(), {"method": "DELETE", "url": "https://a.test/"}, "unknown"),
        (HttpRequest(idempotency_header="Idempotency-Key"), {"method": "POST", "url": "https://a.test/"}, "not_done"),
        (
            HttpRequest(idempotency_header="Idempotency-Key"),
            {"method": "POST", "url": "https://a.test/", "headers": {"idempotency-key": "of the model"}},
            "unknown",
        ),
        (WebhookCall(), {"url": "https://a.test/", "payload": {}}, "unknown"),
        (WebhookCall(idempotency_header="Key"), {"url": "https://a.test/", "payload": {}}, "not_done"),
    ],
)
async def test_a_request_is_repeated_only_if_that_changes_nothing_more(
    tool: Tool, arguments: dict[str, Any], state: str, tmp_path: Path
) -> None:
    answer = await ask(context(tool, arguments, tmp_path), {})
    assert answer.state == state
    assert answer.final == (state == "not_done"), "wherever the earlier worker is"
