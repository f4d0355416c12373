"""`local_file_browser`: reads and lists, inside the workspace alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.tools.local_file_browser import LocalFileBrowser


@pytest.fixture
def browse(tmp_path):
    workspace = tmp_path / "workspace"
    (workspace / "src").mkdir(parents=True)
    (workspace / "src" / "a.py").write_text("print(1)\n")
    (workspace / "secret.txt").write_text("hidden")
    (tmp_path / "outside.txt").write_text("outside")
    (workspace / "link.txt").symlink_to(tmp_path / "outside.txt")

    def call(path: str, operation: str = "", policy: tuple[str, ...] = ()) -> ToolResult:
        executor = standard_executor([LocalFileBrowser()], policy=rules(*policy))
        given: dict[str, Any] = {"path": path, **({"operation": operation} if operation else {})}
        return asyncio.run(executor.execute(ToolCall("local_file_browser", given), Scope(workspace=workspace)))

    return call


def test_a_file_is_read_with_line_numbers(browse):
    assert browse("src/a.py", "read").for_llm == "     1\tprint(1)"
    assert browse("src/a.py").for_llm == browse("src/a.py", "read").for_llm


def test_a_directory_is_listed_whatever_was_asked(browse):
    listed = browse("src", "list")
    assert "a.py" in listed.for_llm
    assert [entry["name"] for entry in listed.data["entries"]] == ["a.py"]
    assert "a.py" in browse("src").for_llm
    assert "src/" in browse(".", "list").for_llm


def test_a_file_can_be_listed_too(browse):
    assert "a.py" in browse("src/a.py", "list").for_llm


@pytest.mark.parametrize("operation", ["read", "list"])
@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd", "link.txt", "src/../../outside.txt"])
def test_nothing_outside_is_reached(browse, path, operation):
    result = browse(path, operation)
    assert result.failure is not None
    assert "outside" not in result.data
    assert browse("src/../secret.txt", operation).success


def test_it_needs_no_more_than_to_read_and_a_denied_path_stays_closed(browse):
    assert browse("secret.txt", policy=("allow read",)).success
    refused = browse("secret.txt", policy=("allow read", "deny read secret.txt"))
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"


def test_a_path_that_looks_like_a_list_is_a_path(browse):
    result = browse('["src/a.py", "secret.txt"]')
    assert result.failure is not None
    assert result.failure.kind == "not_found"


def test_a_missing_file_and_an_unknown_operation_are_explained(browse):
    missing = browse("src/b.py")
    assert missing.failure is not None
    assert missing.failure.kind == "not_found"
    assert "src/a.py" in missing.for_llm
    unknown = browse("src/a.py", "delete")
    assert unknown.failure is not None
    assert unknown.failure.kind == "validation_error"
