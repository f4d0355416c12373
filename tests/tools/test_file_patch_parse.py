"""The text of a patch to operations."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.tools.file_patch.parse import ParsedOperation, SignedLine, parse_patch

BODY = "*** Update File: a.py\n@@ def f():\n-    return 1\n+    return 2\n"
PATCH = f"*** Begin Patch\n{BODY}*** End Patch"


def refused(text: str) -> str:
    with pytest.raises(ToolError) as error:
        parse_patch(text)
    assert error.value.kind == "validation_error"
    assert error.value.suggestion
    return error.value.message


def only(text: str) -> ParsedOperation:
    (operation,) = parse_patch(text)
    return operation


def test_every_kind_of_section_is_an_operation():
    text = (
        "*** Begin Patch\n*** Add File: new.txt\n+one\n+\n+two\n*** Delete File: old.txt\n"
        "*** Update File: a.py\n*** Move to: b.py\n"
        "*** Update File: c.py\n*** Move to: d.py\n@@\n-x\n+y\n*** End Patch\n"
    )
    added, deleted, moved, updated = parse_patch(text)
    assert (added.action, added.path, added.content) == ("add", "new.txt", "one\n\ntwo\n")
    assert (deleted.action, deleted.path) == ("delete", "old.txt")
    assert (moved.action, moved.path, moved.new_path) == ("move", "a.py", "b.py")
    assert (updated.action, updated.path, updated.new_path) == ("update", "c.py", "d.py")
    assert updated.where == "line 9 of the patch"


def test_chunks_have_anchors_and_marked_lines():
    text = (
        "*** Begin Patch\n*** Update File: a.py\n first\n-gone\n@@ class A:\n@@     def f(self):\n+new\n\n kept\n"
        "@@\n-last\n*** End of File\n*** End Patch"
    )
    first, second, third = only(text).chunks
    assert first.lines == (SignedLine(" ", "first"), SignedLine("-", "gone"))
    assert first.anchors == ()
    assert second.anchors == ("class A:", "    def f(self):")
    assert second.lines == (SignedLine("+", "new"), SignedLine(" ", ""), SignedLine(" ", "kept"))
    assert (third.line, third.at_end) == (10, True)
    assert not first.at_end


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{PATCH}\n```",
        f"```diff\n{PATCH}\n```\n",
        f"apply_patch <<'EOF'\n{PATCH}\nEOF\n",
        f'<<"PATCH"\n{PATCH}\nPATCH',
        f"```bash\napply_patch <<EOF\n{PATCH}\nEOF\n```",
        f"\n\n{PATCH}\n\n",
        f"  \n{PATCH}\n  \n",
        PATCH.replace("\n", "\r\n"),
        PATCH.replace("*** Begin Patch", "*** Begin Patch  ").replace("a.py", "a.py  "),
        PATCH.replace("*** Update File:", "*** Update file:"),
        PATCH.replace("@@ def f():", "@@ def f(): @@"),
        PATCH.replace("*** End Patch", "\n*** End Patch"),
        PATCH.replace("*** Begin", "  *** Begin").replace("*** Update", "\t*** Update"),
        PATCH.replace("*** End", "  *** End") + " \n",
    ],
)
def test_what_models_put_around_a_patch_does_not_matter(text):
    operation = only(text)
    assert operation.path == "a.py"
    assert operation.chunks[0].anchors == ("def f():",)
    assert operation.chunks[0].lines[:2] == (SignedLine("-", "    return 1"), SignedLine("+", "    return 2"))


def test_an_indented_marker_is_one_wherever_it_cannot_be_a_line_of_the_file():
    text = (
        "*** Begin Patch\n  *** Add File: new.txt\n+one\n  *** Delete File: old.txt\n"
        " *** Update File: a.py \n-x\n+y\n *** Delete File: kept.txt\n *** End Patch\n*** Delete File: b.py\n"
        "  *** End Patch  "
    )
    added, deleted, updated, last = parse_patch(text)
    assert (added.content, deleted.path, last.path) == ("one\n", "old.txt", "b.py")
    kept = (SignedLine(" ", "*** Delete File: kept.txt"), SignedLine(" ", "*** End Patch"))  # lines of a.py that stay
    assert updated.path == "a.py"
    assert updated.chunks[0].lines == (SignedLine("-", "x"), SignedLine("+", "y"), *kept)
    assert "may have been cut off" in refused(f"*** Begin Patch\n{BODY}  *** End Patch\n more")


def test_a_line_left_empty_in_an_added_file_is_an_empty_line_but_not_after_the_last():
    text = "*** Begin Patch\n*** Add File: a\n+one\n\n+two\n\n*** Add File: b\n*** End Patch"
    first, second = parse_patch(text)
    assert first.content == "one\n\ntwo\n"
    assert second.content == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the patch is empty"),
        (" \n\n", "the patch is empty"),
        ("```\n```", "the patch is empty"),
        (f"Here it is:\n{PATCH}", "line 1 of the patch: expected"),
        (BODY, "line 1 of the patch: expected"),
        (f"*** Begin Patch\n{BODY}", "line 5 of the patch: "),
        (f"*** Begin Patch\n{BODY}", "may have been cut off"),
        (f"{PATCH}\n{PATCH}", "line 7 of the patch: there is text after"),
        ("*** Begin Patch\n*** End Patch", "names no file"),
        ("*** Begin Patch\nhello\n*** End Patch", "line 2 of the patch: expected"),
        ("*** Begin Patch\n*** Rename File: a\n*** End Patch", "line 2 of the patch: expected"),
        ("*** Begin Patch\n*** Delete File:  \n*** End Patch", "line 2 of the patch: it names no file"),
        ("*** Begin Patch\n*** Delete File: a\n-x\n*** End Patch", "line 3 of the patch: a deleted file"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "line 3 of the patch: every line of an added file"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "line 2 of the patch: nothing in"),
        ("*** Begin Patch\n*** Update File: a\n x\n y\n*** End Patch", "line 2 of the patch: nothing in"),
        ("*** Begin Patch\n*** Update File: a\n*** Move to:\n*** End Patch", "line 3 of the patch: it names no file"),
        ("*** Begin Patch\n*** Update File: a\n@@ x\n*** End Patch", "line 3 of the patch: no line follows"),
        (
            "*** Begin Patch\n*** Update File: a\n-x\nyy\n*** End Patch",
            "line 4 of the patch: it must begin with a space, - or +",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n@@ -3,2 +3,3 @@\n+x\n*** End Patch",
            "line 3 of the patch: it has line numbers",
        ),
        ("--- a/x\nfoo", "line 1 of the patch: a line"),
        ("diff --git a/x b/x\nGIT binary patch\n", "line 2 of the patch: this cannot be applied"),
        ('--- "a/\\303"\n+++ "b/\\303"\n@@ -1 +1 @@\n-x\n+y', "line 1 of the patch: this cannot be applied"),
        ("--- /dev/null\n+++ /dev/null\n", "it names no file"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "nothing in"),
    ],
)
def test_a_patch_that_cannot_be_read_is_refused_with_the_line(text, words):
    assert words in refused(text)


def test_a_unified_diff_is_read_as_well():
    text = (
        "diff --git a/x.py b/x.py\nindex 1..2 100644\n"
        "--- a/x.py\n+++ b/x.py\n@@ -3,2 +3,2 @@ def f():\n keep\n-old\n+new\n"
        "--- a/old.txt\t2024-01-01\n+++ b/new.txt\t2024-01-01\n@@ -1 +1 @@\n-1\n+2\n"
        "--- /dev/null\n+++ b/added.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
        "diff --git a/p q b/p q\nnew file mode 100644\nindex 0..0\n"
        "diff --git a/from b/to\nsimilarity index 100%\nrename from from\nrename to to\n"
    )
    update, renamed, added, gone, empty, moved = parse_patch(text)
    assert (update.action, update.path, update.new_path) == ("update", "x.py", "")
    assert update.chunks[0].near == 2
    assert update.chunks[0].lines == (SignedLine(" ", "keep"), SignedLine("-", "old"), SignedLine("+", "new"))
    assert (renamed.action, renamed.path, renamed.new_path) == ("update", "old.txt", "new.txt")
    assert (added.action, added.path, added.content) == ("add", "added.txt", "a\nb")
    assert (gone.action, gone.path) == ("delete", "gone.txt")
    assert (empty.action, empty.path, empty.content) == ("add", "p q", "")
    assert (moved.action, moved.path, moved.new_path) == ("move", "from", "to")


def test_a_diff_without_prefixes_keeps_its_names():
    assert only("--- src/a.py\n+++ src/a.py\n@@ -1 +1 @@\n-x\n+y\n").path == "src/a.py"


pieces = st.sampled_from(
    [
        *("*** Begin Patch\n", "*** End Patch\n", "*** Update File: a\n", "*** Add File: b\n", "*** Move to: c\n"),
        *("*** Delete File: d\n", "*** End of File\n", "@@\n", "@@ x\n", "@@ -1,2 +3,4 @@\n", "-x\n", "+y\n", " z\n"),
        *("\n", "--- a/x\n", "+++ b/x\n", "diff --git a/x b/x\n", "\\ No newline\n", "```\n", "junk\n", "\r", "\0"),
    ]
)


@given(st.lists(pieces | st.text(max_size=5), max_size=15), st.booleans())
def test_any_text_is_read_or_explained(parts, framed):
    text = "".join(parts)
    with suppress(ToolError):
        parse_patch(f"*** Begin Patch\n{text}\n*** End Patch" if framed else text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n" * 100_000, marks=pytest.mark.slow),
        "```\n" * 30_000,
        "@@" * 300_000,
        "a " * 100_000 + "<<",
        "*** Update File: a" + " b" * 100_000 + "\n" + " " * 300_000 + "x",
        "*** Update File: " + " " * 300_000 + "x" + " " * 300_000 + "y",
    ],
)
def test_a_lot_of_nothing_is_refused_at_once(text):
    refused(text)
    refused(f"*** Begin Patch\n*** Update File: a\n{text}\n*** End Patch")
    refused(f"--- a/x\n{text}\n")
