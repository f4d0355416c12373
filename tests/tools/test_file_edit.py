"""Edits of files, through the tool."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forge.core.context import Scope, ToolContext
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.pipeline.track_files import TrackFiles
from forge.tools.file_edit import FileEdit
from forge.tools.file_read import FileRead
from forge.workspace.text import decode

PYTHON = "def first():\n    return 1\n\n\ndef second():\n    return 2\n"


class Editor:
    """`editor(old_text=…, new_text=…)` edits a file that holds `content`."""

    def __init__(self, folder, *steps):
        self.folder = folder
        self.path = folder / "a.py"
        self.tool = FileEdit()
        self.executor = ToolExecutor(ToolRegistry([self.tool, FileRead()]), steps)
        self.scope = Scope(session_id="editing", workspace=folder)

    def __call__(self, name="file_edit", /, **arguments):
        arguments = {"path": "a.py", **arguments}
        return asyncio.run(self.executor.execute(ToolCall(name, arguments), self.scope))

    def refusal(self, **arguments):
        before = self.path.read_bytes() if self.path.is_file() else None
        result = self(**arguments)
        assert result.failure is not None, result.for_llm
        assert before == (self.path.read_bytes() if self.path.is_file() else None)
        assert len(result.for_llm) < 3_000
        return result.failure

    def holds(self, content):
        self.path.write_bytes(content if isinstance(content, bytes) else content.encode())

    @property
    def content(self):
        return self.path.read_bytes().decode()


@pytest.fixture
def editor(tmp_path):
    return Editor(tmp_path)


def test_a_text_is_replaced_and_said_so(editor):
    editor.holds(PYTHON)
    result = editor(old_text="    return 1\n", new_text="    x = 1\n    return x\n")
    assert result.success, result.for_llm
    assert editor.content == PYTHON.replace("    return 1\n", "    x = 1\n    return x\n")
    assert result.for_llm == "Edited a.py: lines 2-3; matched exactly."
    assert result.for_user == (
        "--- a/a.py\n+++ b/a.py\n@@ -1,5 +1,6 @@\n def first():\n"
        "-    return 1\n+    x = 1\n+    return x\n \n \n def second():\n"
    )
    assert result.data == {
        "path": "a.py",
        "action": "updated",
        "replacements": 1,
        "rung": "exact",
        "lines": [[2, 3]],
        "bytes": len(editor.content),
    }
    assert result.title == "Edited a.py"


@pytest.mark.parametrize("inserted", [r"\1", "$&", r"\g<0>", "%s", "{0}", "\\n", "\\"])
def test_the_new_text_is_inserted_literally(editor, inserted):
    editor.holds("a = OLD\n")
    assert editor(old_text="OLD", new_text=inserted).success
    assert editor.content == f"a = {inserted}\n"


def test_a_looser_match_is_named(editor):
    editor.holds(PYTHON)
    result = editor(old_text="     6\t    return 2", new_text="     6\t    return 3")
    assert editor.content == PYTHON.replace("2", "3")
    assert result.data["rung"] == "line numbers"
    assert result.for_llm == "Edited a.py: line 6; matched without the line numbers in front."


def test_an_empty_new_text_deletes(editor):
    editor.holds(PYTHON)
    assert editor(old_text="def first():\n    return 1\n\n\n", new_text="").data["lines"] == [[1, 1]]
    assert editor.content == "def second():\n    return 2\n"


def test_every_place_is_replaced_when_asked(editor):
    editor.holds("a\nb\na\n")
    failure = editor.refusal(old_text="a", new_text="x")
    assert failure.kind == "user_error"
    assert "2 times: on lines 1, 3" in failure.message
    result = editor(old_text="a", new_text="x", replace_all=True)
    assert editor.content == "x\nb\nx\n"
    assert result.data["replacements"] == 2
    assert result.for_llm == "Edited a.py (2 replacements): lines 1, 3; matched exactly."


def test_edits_are_made_in_order(editor):
    editor.holds(PYTHON)
    result = editor(
        edits=[
            {"old_text": "second", "new_text": "third"},
            {"old_text": "def third():", "new_text": "def third(x):"},
            {"old_text": "def first():\n", "new_text": "# new\ndef first():\n", "replace_all": None},
            {"old_text": "return", "new_text": "yield", "replace_all": True},
        ]
    )
    assert result.success, result.for_llm
    assert editor.content == "# new\ndef first():\n    yield 1\n\n\ndef third(x):\n    yield 2\n"
    assert result.data["replacements"] == 5
    assert result.data["lines"] == [[1, 1], [3, 3], [6, 7]]


def test_of_edits_all_are_made_or_none(editor):
    editor.holds(PYTHON)
    edits = [{"old_text": "first", "new_text": "one"}, {"old_text": "nowhere", "new_text": "x"}]
    failure = editor.refusal(edits=edits)
    assert failure.message.startswith("edits[1]: old_text was not found")
    assert editor(edits=edits[:1]).success


@pytest.mark.parametrize(
    "arguments",
    [
        {"old_string": "first", "new_string": "one"},
        {"file_path": "a.py", "old_str": "first", "new_str": "one"},
        {"edits": [{"old_string": "first", "new_string": "one"}]},
        {"edits": {"search": "first", "replace": "one"}},
        {"edits": '[{"old_text": "first", "new_string": "one"}]'},
        {"old_text": "first", "new_text": "one", "edits": []},
        {"old_text": "first", "new_text": "one", "edits": None, "replace_all": "true"},
    ],
)
def test_other_spellings_are_understood(editor, arguments):
    editor.holds(PYTHON)
    if "file_path" in arguments:
        result = asyncio.run(editor.executor.execute(ToolCall("edit", arguments), editor.scope))
    else:
        result = editor(**arguments)
    assert result.success, result.for_llm
    assert editor.content == PYTHON.replace("first", "one")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "old_text"),
        ({"old_text": "first"}, "new_text"),
        ({"old_text": "first", "new_text": None}, "new_text"),
        ({"new_text": "first"}, "old_text"),
        ({"edits": []}, "old_text"),
        ({"edits": [{"old_text": "first"}]}, "edits[0].new_text"),
        ({"edits": [{"old_text": "first", "new_text": "x", "replace_al": True}]}, "edits[0].replace_al"),
        ({"edits": ["first"]}, "edits[0]"),
        ({"edits": 5}, "edits"),
        (
            {"old_text": "a", "new_text": "b", "edits": [{"old_text": "first", "new_text": "x"}]},
            "edits cannot be combined",
        ),
        ({"old_text": "first", "new_text": "first"}, "the same"),
        ({"edits": [{"old_text": "first", "new_text": "x"}, {"old_text": "x", "new_text": "x"}]}, "edits[1]"),
        ({"old_text": "", "new_text": "x"}, "the file is not"),
    ],
)
def test_what_cannot_be_meant_is_explained(editor, arguments, word):
    editor.holds(PYTHON)
    failure = editor.refusal(**arguments)
    assert failure.kind == "validation_error"
    assert word in failure.message
    assert failure.suggestion


def test_an_empty_old_text_makes_a_new_file(editor):
    result = editor(path="new/deep.py", old_text="", new_text="x = 1\n")
    assert result.success, result.for_llm
    assert (editor.folder / "new/deep.py").read_text() == "x = 1\n"
    assert result.for_llm == "Created new/deep.py (6 bytes): there was no such file."
    assert result.data["action"] == "created"
    assert result.for_user.startswith("--- /dev/null\n+++ b/new/deep.py\n")


def test_an_empty_file_can_be_filled(editor):
    editor.holds("")
    assert editor(old_text="", new_text="x = 1\n").data["action"] == "updated"
    assert editor.content == "x = 1\n"


def test_a_missing_file_is_said_with_similar_names(editor):
    editor.holds(PYTHON)
    failure = editor.refusal(path="a.pyi", old_text="first", new_text="one")
    assert failure.kind == "not_found"
    assert '"a.py"' in failure.suggestion


def test_what_is_not_found_is_explained(editor):
    editor.holds(PYTHON)
    failure = editor.refusal(old_text="\treturn 1 + 1\n", new_text="    return 2\n")
    assert failure.kind == "not_found"
    assert "already there, at line 6" in failure.message
    assert "     2\t····return 1" in failure.message
    assert "old_text: →return 1 + 1" in failure.message
    assert "Read that part of the file again" in failure.suggestion


def test_a_directory_a_binary_file_and_other_encodings_are_refused(editor):
    (editor.folder / "folder").mkdir()
    assert "directory" in editor.refusal(path="folder", old_text="a", new_text="b").message
    for content in (b"a\0b", b"a caf\xe9\n"):
        editor.holds(content)
        assert editor.refusal(old_text="a", new_text="b").kind == "user_error"
    editor.holds("un café\n")
    assert editor(old_text="a", new_text="b").success


@pytest.mark.parametrize("path", ["../a.py", "/etc/hostname", "link.py", "~/a.py", "a\0b"])
def test_a_path_outside_is_refused(editor, path):
    outside = editor.folder.parent / f"{editor.folder.name}-outside.py"
    outside.write_text(PYTHON)
    os.symlink(outside, editor.folder / "link.py")
    assert editor.refusal(path=path, old_text="first", new_text="one").kind == "security_error"
    assert outside.read_text() == PYTHON


def test_a_link_that_stays_inside_is_followed(editor):
    editor.holds(PYTHON)
    os.symlink("a.py", editor.folder / "link.py")
    assert editor(path="link.py", old_text="first", new_text="one").success
    assert "one" in editor.content
    assert (editor.folder / "link.py").is_symlink()


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
def test_encoding_mark_endings_and_mode_survive(editor, codec):
    editor.holds("größe = 1\r\nlast = 2".encode(codec))
    editor.path.chmod(0o750)
    assert editor(old_text="größe = 1\n", new_text="größe = 3\nnew\n").success
    assert editor.path.read_bytes() == "größe = 3\r\nnew\r\nlast = 2".encode(codec)
    assert editor.path.stat().st_mode & 0o777 == 0o750


def test_half_a_character_is_refused(editor):
    editor.holds("abc\n")
    with pytest.raises(UnicodeEncodeError):
        "\ud800".encode()
    failure = editor.refusal(old_text="abc", new_text="\ud800")
    assert failure.kind == "validation_error"


def test_placeholders_are_refused_unless_they_were_there(editor):
    line = "# ... rest of the code unchanged ..."
    editor.holds(PYTHON)
    assert "left out" in editor.refusal(old_text="    return 1\n", new_text=f"    return 3\n{line}\n").message
    editor.holds(PYTHON + line)
    assert editor(old_text="    return 1\n", new_text=f"    return 3\n{line}\n").success


def test_edits_that_cancel_out_are_refused(editor):
    editor.holds(PYTHON)
    edits = [{"old_text": "first", "new_text": "one"}, {"old_text": "one", "new_text": "first"}]
    assert "change nothing" in editor.refusal(edits=edits).message


def test_a_file_must_be_read_first_and_again_when_it_changed(tmp_path):
    editor = Editor(tmp_path, TrackFiles())
    editor.holds("secret = 1\n")
    failure = editor.refusal(old_text="secret = 2", new_text="x")
    assert "read" in failure.message
    assert "secret = 1" not in failure.message
    assert editor("file_read").success
    assert editor(old_text="secret = 1", new_text="public = 1").success
    assert editor(old_text="public = 1", new_text="public = 2").success
    editor.holds("changed = 1\n")
    assert "changed" in editor.refusal(old_text="changed = 1", new_text="x").message
    assert editor("file_read").success
    assert editor(old_text="changed = 1", new_text="x").success


def test_making_a_file_needs_no_read(tmp_path):
    editor = Editor(tmp_path, TrackFiles())
    assert editor(old_text="", new_text="x\n").success
    assert editor(old_text="x", new_text="y").success


def test_a_preview_shows_the_diff_and_writes_nothing(editor):
    editor.holds(PYTHON)
    arguments = editor.tool.parse({"path": "a.py", "old_text": "first", "new_text": "one"})
    ctx = ToolContext(ToolCall("file_edit", arguments), editor.tool, arguments, editor.scope)
    diff = asyncio.run(editor.tool.preview_call(arguments, ctx))
    assert "-def first():\n+def one():\n" in diff
    assert editor.content == PYTHON


def test_edits_at_the_same_time_all_survive(editor):
    editor.holds("".join(f"line {number};\n" for number in range(20)))

    async def all_at_once():
        calls = [
            ToolCall("file_edit", {"path": "a.py", "old_text": f"line {n};", "new_text": f"LINE {n};"})
            for n in range(20)
        ]
        return await asyncio.gather(*(editor.executor.execute(call, editor.scope) for call in calls))

    results = asyncio.run(all_at_once())
    assert [result.for_llm for result in results if result.is_error] == []
    assert editor.content == "".join(f"LINE {number};\n" for number in range(20))


lines = st.lists(
    st.tuples(st.text(st.sampled_from("ab é"), max_size=5), st.sampled_from(["\n", "\r\n", "\r"])), max_size=8
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=30)
@given(
    lines,
    st.integers(0, 7),
    st.text(st.sampled_from("xy \n"), min_size=1, max_size=6),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_bytes_that_are_not_touched_stay(editor, old, at, new, codec):
    numbered = [f"{number}:{text}" + ending for number, (text, ending) in enumerate(old)]
    content = "".join(numbered).encode(codec)
    editor.holds(content)
    if at >= len(numbered):
        return
    assert editor(old_text=f"{at}:", new_text=new + ":").success
    after = decode(editor.path.read_bytes())
    assert after.mark == decode(content).mark
    assert after.text.startswith("".join(numbered[:at]))
    assert after.text.endswith(numbered[at].removeprefix(f"{at}:") + "".join(numbered[at + 1 :]))


def test_an_unindented_copy_of_an_indented_block_never_becomes_invalid_python(editor):
    content = "def main(x):\n    if x:\n        foo()\n    return x\n"
    editor.holds(content)
    failure = editor.refusal(old_text="if x:\nfoo()", new_text="if x:\nfoo()\nbar()")
    assert "not found" in failure.message
    assert "········foo()" in failure.message
    assert editor(old_text="if x:\n    foo()", new_text="if x:\n    foo()\n    bar()").success
    compile(editor.content, "a.py", "exec")
    assert editor.content == content.replace("foo()\n", "foo()\n        bar()\n")
