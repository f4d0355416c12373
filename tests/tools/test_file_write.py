"""file_write: whole files, in the manner of what they were."""

from __future__ import annotations

import asyncio
import os

import pytest

from forge import Scope, ToolCall, rules, tool_group
from forge.pipeline import standard_executor


@pytest.fixture
def call(tmp_path):
    executor = standard_executor(tool_group("code-agent"), policy=rules("allow read", "allow write"))

    def made(name, **arguments):
        executor.clear_turn()
        return asyncio.run(executor.execute(ToolCall(name, arguments), Scope(workspace=tmp_path)))

    return made


def test_a_new_file_is_written_byte_for_byte_with_its_parents(call, tmp_path):
    content = "a\\n\tb\r\nc\u2028d\n\n"
    result = call("file_write", path="new/deep/a.txt", content=content)
    assert result.success
    assert result.data == {"path": "new/deep/a.txt", "action": "created", "bytes": len(content.encode())}
    assert (tmp_path / "new/deep/a.txt").read_bytes() == content.encode()
    assert result.for_user.startswith("--- /dev/null\n+++ b/new/deep/a.txt\n")


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "a\nc\n", b"a\r\nc\r\n"),
        (b"a\nb\n", "a\r\nc\r\n", b"a\r\nc\r\n"),
        (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffb\n", b"\xef\xbb\xbfb\n"),
        ("\ufeffa\n".encode("utf-16-le"), "é\n", "\ufeffé\n".encode("utf-16-le")),
        (b"a\r\nb\nc\r\n", "a\nb\nx\nc\n", b"a\r\nb\nx\nc\r\n"),
        (b"a", "", b""),
        (b"", "a", b"a"),
    ],
)
def test_an_existing_file_keeps_its_mark_endings_encoding_and_mode(call, tmp_path, before, content, after):
    file = tmp_path / "a.txt"
    file.write_bytes(before)
    file.chmod(0o751)
    assert call("file_read", path="a.txt").success
    result = call("write", file_path="a.txt", contents=content)
    assert result.success, result.for_llm
    assert result.data["action"] == "updated"
    assert file.read_bytes() == after
    assert file.stat().st_mode & 0o777 == 0o751


def test_a_placeholder_is_refused_and_one_that_was_there_is_not(call, tmp_path):
    file = tmp_path / "a.py"
    file.write_text("def a():\n    return 1\n\n\ndef b():\n    return 2\n")
    call("file_read", path="a.py")
    lazy = "def a():\n    return 3\n\n# ... rest of the code unchanged ...\n"
    refused = call("file_write", path="a.py", content=lazy)
    assert refused.is_error
    assert file.read_text().startswith("def a():\n    return 1")
    file.write_text(lazy)
    call("file_read", path="a.py")
    assert call("file_write", path="a.py", content=lazy.replace("3", "4")).success


def test_the_same_content_changes_nothing(call, tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("a\n")
    before = file.stat()
    call("file_read", path="a.txt")
    result = call("file_write", path="a.txt", content="a\n")
    assert result.for_llm == "Nothing to change in a.txt (2 bytes)."
    assert result.for_user == ""
    assert file.stat().st_ino == before.st_ino


def test_half_a_character_is_refused_and_the_whole_one_is_written(call, tmp_path):
    assert call("file_write", path="a.txt", content="\U0001f600").success
    refused = call("file_write", path="b.txt", content="half \ud83d")
    assert refused.is_error
    assert not (tmp_path / "b.txt").exists()


def test_a_file_whose_name_is_no_unicode_is_found_without_harm(call, tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("old\n")
    found = call("grep_search", pattern="old")
    assert found.data["total"] == 1
    assert found.for_llm.encode()


def test_fifty_rounds_of_edits_at_once_lose_nothing(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("".join(f"line {number}\n" for number in range(100)))
    executor = standard_executor(tool_group("code-agent"), policy=rules("allow read", "allow write"))
    scope = Scope(workspace=tmp_path)

    async def rounds() -> None:
        await executor.execute(ToolCall("file_read", {"path": "a.txt"}), scope)
        for number in range(0, 100, 2):
            edits = [
                ToolCall("file_edit", {"path": "a.txt", "old_text": f"line {one}\n", "new_text": f"edited {one}\n"})
                for one in (number, number + 1)
            ]
            results = await executor.execute_all(edits, scope)
            assert all(result.success for result in results), [result.for_llm for result in results]

    asyncio.run(rounds())
    assert file.read_text() == "".join(f"edited {number}\n" for number in range(100))
