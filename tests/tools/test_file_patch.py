"""Several files changed in one call, all of them or none."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forge.core.context import Scope, ToolContext
from forge.core.errors import ToolError
from forge.core.execution.chain import Next
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import Failure, ToolResult
from forge.core.spec import Permission
from forge.pipeline.track_files import TrackFiles
from forge.tools.file_patch import FilePatch
from forge.workspace.history.tracking import SessionState


class OpenGate:
    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        return None


class Desk:
    """A workspace with the tool and a session that remembers what it read."""

    def __init__(self, root: Path, tool: FilePatch | None = None) -> None:
        self.root = root
        self.tool = tool or FilePatch()
        self.state = SessionState()
        self.scope = Scope(session_id="desk", workspace=root)
        self.executor = ToolExecutor(ToolRegistry([self.tool]), [self._guard, TrackFiles(self.state)])

    def file(self, name: str, content: str | bytes = "", *, read: bool = True) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        if read:
            self.read(path)
        return path

    def read(self, path: Path) -> None:
        self.state.seen.note("desk", os.path.realpath(path), path.stat(), path.read_bytes())

    def send(self, arguments: dict[str, Any]) -> ToolResult:
        return asyncio.run(self.executor.execute(ToolCall("file_patch", arguments), self.scope))

    def do(self, *operations: dict[str, Any]) -> ToolResult:
        return self.send({"operations": list(operations)})

    def patch(self, body: str) -> ToolResult:
        return self.send({"patch": f"*** Begin Patch\n{body}\n*** End Patch"})

    def preview_call(self, **arguments: Any) -> str:
        ctx = ToolContext(ToolCall("file_patch", arguments), self.tool, arguments, self.scope)
        return asyncio.run(self.tool.preview_call(arguments, ctx))

    def tree(self) -> dict[str, bytes]:
        """What is there, but for Forge's own."""
        found = (path for path in self.root.rglob("*") if path.is_file() and ".forge" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    async def _guard(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        return await proceed(ctx.replace(gate=OpenGate()))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def done(result: ToolResult) -> ToolResult:
    assert result.success, result.for_llm
    return result


def failed(result: ToolResult, words: str = "") -> Failure:
    assert result.failure is not None, result.for_llm
    assert words in result.failure.message
    assert result.failure.suggestion
    return result.failure


def add(path: str, content: str = "new\n", **more: Any) -> dict[str, Any]:
    return {"action": "add", "path": path, "content": content, **more}


def update(path: str, content: str = "new\n", **more: Any) -> dict[str, Any]:
    return {"action": "update", "path": path, "content": content, **more}


def delete(path: str) -> dict[str, Any]:
    return {"action": "delete", "path": path}


def move(path: str, new_path: str, **more: Any) -> dict[str, Any]:
    return {"action": "move", "path": path, "new_path": new_path, **more}


def test_operations_are_made_together(desk):
    desk.file("b", "old\n")
    desk.file("c", "c\n", read=False)
    desk.file("d", "d\n", read=False)
    result = done(desk.do(add("x/a", "a\n"), update("b", "b\n"), delete("c"), move("d", "x/y/d")))
    assert desk.tree() == {"x/a": b"a\n", "b": b"b\n", "x/y/d": b"d\n"}
    assert result.data == {
        "operations": [
            {"action": "add", "path": "x/a", "status": "added"},
            {"action": "update", "path": "b", "status": "updated"},
            {"action": "delete", "path": "c", "status": "deleted"},
            {"action": "move", "path": "d", "status": "moved", "new_path": "x/y/d"},
        ],
        "total": 4,
    }
    assert result.for_llm == "4 files changed:\nadded x/a\nupdated b\ndeleted c\nmoved d -> x/y/d"
    assert "-old\n+b\n" in result.for_user
    assert "rename to x/y/d" in result.for_user


def test_a_patch_does_the_same(desk):
    desk.file("b", "one\ntwo\n")
    desk.file("e", "x\n")
    desk.file("c", read=False)
    desk.file("d", "d\n", read=False)
    body = (
        "*** Add File: x/a\n+a\n*** Update File: b\n@@ one\n-two\n+2\n*** Delete File: c\n"
        "*** Update File: d\n*** Move to: x/d\n*** Update File: e\n*** Move to: f\n-x\n+y"
    )
    result = done(desk.patch(body))
    assert desk.tree() == {"x/a": b"a\n", "b": b"one\n2\n", "x/d": b"d\n", "f": b"y\n"}
    assert [one["action"] for one in result.data["operations"]] == ["add", "update", "delete", "move", "update"]


def test_a_unified_diff_works_too(desk):
    desk.file("b", "one\ntwo\n")
    done(desk.send({"patch": "--- a/b\n+++ b/b\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"}))
    assert desk.tree() == {"b": b"one\n2\n"}


def test_other_names_of_the_arguments_work(desk):
    done(desk.send({"input": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"}))
    assert desk.tree() == {"a": b"x\n"}


@pytest.mark.parametrize("arguments", [{}, {"operations": []}, {"patch": ""}, {"patch": "x", "operations": [add("a")]}])
def test_one_form_is_needed_and_only_one(desk, arguments):
    assert failed(desk.send(arguments)).kind == "validation_error"


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ({"action": "add", "path": "n"}, "add needs content"),
        ({"action": "update", "path": "b"}, "update needs content"),
        ({"action": "move", "path": "b"}, "move needs new_path"),
        ({"action": "delete", "path": "b", "content": "x"}, "delete takes no content"),
        ({"action": "move", "path": "b", "new_path": "n", "content": "x"}, "move takes no content"),
        ({"action": "delete", "path": "b", "new_path": "n"}, "delete takes no new_path"),
        (add("n", new_path="m"), "add takes no new_path"),
        (add("b"), '"b" exists already'),
        (move("c", "b"), '"b" exists already'),
        (update("n"), '"n" does not exist'),
        (delete("n"), '"n" does not exist'),
        (move("n", "m"), '"n" does not exist'),
        (delete("dir"), '"dir" is a directory'),
        (move("dir", "n"), '"dir" is a directory'),
        (update("dir"), '"dir" is a directory'),
        (add("dir", overwrite=True), '"dir" is a directory'),
        (move("c", "dir", overwrite=True), '"dir" is a directory'),
        (add("b/n"), '"b" is not a directory'),
        (move("c", "c"), '"c" is the same file'),
        (move("c", "c/n"), '"c/n" is the same file, or lies below it'),
        (add("../n"), "leads outside the workspace"),
        (move("c", "../n"), "leads outside the workspace"),
        (delete(""), "the path is blank"),
        (delete("."), "is a directory"),
        (add("a\0b"), "NUL"),
        (update("binary"), "binary"),
    ],
)
def test_a_bad_operation_is_named_and_nothing_is_done(desk, operation, words):
    desk.file("b", "b\n")
    desk.file("c", "c\n")
    desk.file("dir/d", "d\n")
    desk.file("binary", b"\0\1\2")
    before = desk.tree()
    failure = failed(desk.do(add("fine"), operation), words)
    assert failure.message.startswith("operations[1]: ")
    assert desk.tree() == before
    done(desk.do(add("fine"), update("b"), delete("c")))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("*** Add File: b\n+x", "line 4 of the patch: "),
        ("*** Update File: n\n+x", "line 4 of the patch: "),
        ("*** Update File: b\n@@\n-zzz", "line 5 of the patch: "),
        ("*** Update File: b\n@@\n-b\n@@\n-b", "line 7 of the patch: "),
        ("*** Delete File: dir", "line 4 of the patch: "),
        ("*** Update File: b\nb", "line 5 of the patch: "),
    ],
)
def test_the_line_of_a_bad_patch_is_named_and_nothing_is_done(desk, body, words):
    desk.file("b", "b\n")
    desk.file("dir/d", "d\n")
    before = desk.tree()
    assert failed(desk.patch(f"*** Add File: fine\n+x\n{body}")).message.startswith(words)
    assert desk.tree() == before


@pytest.mark.parametrize(
    "operations",
    [
        [add("a"), add("a")],
        [add("a"), add("./x/../a")],
        [add("dir/n"), add("link/n")],
        [update("b"), update("alias")],
        [update("b"), delete("b")],
        [delete("b"), add("b")],
        [move("b", "n"), add("b")],
        [move("b", "n"), update("n")],
        [move("b", "n"), move("c", "n", overwrite=True)],
        [add("n"), add("n/m")],
        [add("n/m"), add("n")],
    ],
)
def test_a_file_is_the_business_of_one_operation(desk, operations):
    for name in "bc":
        desk.file(name)
    desk.file("dir/d")
    (desk.root / "link").symlink_to("dir")
    (desk.root / "alias").symlink_to("b")
    before = desk.tree()
    failure = failed(desk.do(*operations), "operations[0]")
    assert failure.message.startswith("operations[1]: ")
    assert desk.tree() == before
    for operation in operations[:1]:
        done(desk.do(operation))


def test_overwriting_is_said_for_each_operation(desk):
    desk.file("a", "old\n")
    target = desk.file("b", "old\n", read=False)
    desk.file("c", "c\n")
    failed(desk.do(add("a", overwrite=True), move("c", "b", overwrite=True)), "was not read")
    desk.read(target)
    done(desk.do(add("a", overwrite=True), move("c", "b", overwrite=True)))
    assert desk.tree() == {"a": b"new\n", "b": b"c\n"}


def test_what_was_not_read_is_not_changed_but_may_be_moved_and_deleted(desk):
    desk.file("a", "old\n", read=False)
    patch = "*** Update File: a\n-old\n+new"
    for result in (desk.do(update("a")), desk.do(add("a", overwrite=True)), desk.patch(patch)):
        failed(result, "was not read")
    failed(desk.do(update("a", new_path="b")), "was not read")
    done(desk.do(move("a", "b")))
    done(desk.do(delete("b")))
    desk.file("a", "old\n")
    done(desk.patch(patch))
    done(desk.patch(patch.replace("old", "x").replace("new", "old").replace("x", "new")))  # its own write counts


def test_what_changed_since_it_was_read_is_not_changed(desk):
    path = desk.file("a", "old\n")
    path.write_text("changed by someone\n")
    failed(desk.do(update("a")), "changed on disk")
    desk.read(path)
    done(desk.do(update("a")))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\n", b"\xef\xbb\xbfone\r\n2\r\nthree\r\n"),
        ("one\ntwo\n".encode("utf-16"), "one\n2\nthree\n".encode("utf-16")),
        (b"one\ntwo\r\n", b"one\n2\r\nthree\r\n"),
    ],
)
def test_encoding_mark_endings_and_mode_are_kept(desk, before, after):
    for name in "ab":
        desk.file(name, before).chmod(0o755)
    done(desk.patch("*** Update File: a\n one\n-two\n+2\n+three"))
    done(desk.do(update("b", "one\n2\nthree\n")))
    for name in "ab":
        assert (desk.root / name).read_bytes() == after
        assert stat.S_IMODE((desk.root / name).stat().st_mode) == 0o755


def test_a_moved_file_keeps_its_mode_and_its_bytes(desk):
    desk.file("a", b"\0\xff").chmod(0o750)
    desk.file("b", "x\n").chmod(0o700)
    done(desk.do(move("a", "n/a"), update("b", "y\n", new_path="n/b")))
    assert desk.tree() == {"n/a": b"\0\xff", "n/b": b"y\n"}
    assert stat.S_IMODE((desk.root / "n/a").stat().st_mode) == 0o750
    assert stat.S_IMODE((desk.root / "n/b").stat().st_mode) == 0o700


def test_null_and_empty_stand_for_what_is_left_out(desk):
    desk.file("a")
    desk.file("b", "x\n")
    done(
        desk.do(
            {"action": "delete", "path": "a", "content": None, "new_path": None, "overwrite": None},
            {"action": "update", "path": "b", "content": "", "new_path": ""},
        )
    )
    assert desk.tree() == {"b": b""}


def test_links_inside_are_followed_by_an_update(desk):
    real = desk.file("dir/real", "old\n")
    (desk.root / "link").symlink_to(real)
    done(desk.patch("*** Update File: link\n-old\n+new"))
    assert real.read_text() == "new\n"
    assert (desk.root / "link").is_symlink()


def test_a_link_is_deleted_and_moved_itself(desk):
    real = desk.file("real", "x\n")
    (desk.root / "one").symlink_to("real")
    (desk.root / "two").symlink_to("real")
    done(desk.do(delete("one"), move("two", "three")))
    assert not (desk.root / "one").is_symlink()
    assert not (desk.root / "two").is_symlink()
    assert (desk.root / "three").read_text() == real.read_text() == "x\n"


def test_links_that_lead_outside_are_not_followed(desk, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "secret"
    outside.write_text("x\n")
    (desk.root / "link").symlink_to(outside)
    for operation in (update("link"), add("link", overwrite=True), move("link", "n")):
        assert failed(desk.do(operation)).kind == "security_error"
    desk.file("a")
    assert failed(desk.do(move("a", "link", overwrite=True))).kind == "security_error"
    assert outside.read_text() == "x\n"


def test_a_fifo_is_deleted_and_nothing_else(desk):
    os.mkfifo(desk.root / "pipe")
    for operation in (update("pipe"), move("pipe", "n"), add("pipe", overwrite=True)):
        failed(desk.do(operation))
    done(desk.do(delete("pipe")))
    assert not (desk.root / "pipe").exists()


def test_targets_are_every_path_of_either_form():
    tool = FilePatch()
    operations = [add("a"), move("b", "c"), update("d", new_path="e"), delete("f")]
    assert tool.targets({"operations": operations, "patch": ""}) == ["a", "b", "c", "d", "e", "f"]
    patch = "*** Begin Patch\n*** Add File: a\n*** Update File: b\n*** Move to: c\n*** End Patch"
    assert tool.targets({"operations": (), "patch": patch}) == ["a", "b", "c"]
    with pytest.raises(ToolError, match="line 1 of the patch"):
        tool.targets({"operations": (), "patch": "nonsense"})


def test_a_preview_shows_each_file_and_changes_nothing(desk):
    desk.file("a", "old\n")
    desk.file("b", "b\n")
    before = desk.tree()
    diff = desk.preview_call(operations=[update("a"), delete("b"), add("c", "c\n")])
    assert diff.count("+++ ") == 3
    assert "-old\n+new\n" in diff
    assert desk.tree() == before
    with pytest.raises(ToolError, match="does not exist"):
        desk.preview_call(operations=[update("nothing")])


def test_limits_are_settings(tmp_path):
    desk = Desk(tmp_path, FilePatch(max_operations=1, max_patch=60))
    failed(desk.do(add("a"), add("b")), "the limit is 1")
    failed(desk.patch("*** Add File: a\n+" + "x" * 60), "the limit is 60")
    done(desk.do(add("a")))
    done(desk.patch("*** Add File: b\n+x"))


names = st.sampled_from(["a", "b", "d/c", "d/e", "n", "d"])
contents = st.sampled_from(["", "x\n", "y\nz\n"])
operations = st.one_of(
    st.builds(add, names, contents),
    st.builds(add, names, contents, overwrite=st.just(True)),
    st.builds(update, names, contents),
    st.builds(delete, names),
    st.builds(move, names, names),
)
START = {"a": b"1\n", "b": b"2\n", "d/c": b"3\n"}


def modelled(steps: list[dict[str, Any]]) -> dict[str, bytes] | None:
    """The simple model: what is there afterwards, or None if something is wrong with any step."""
    files: dict[str, bytes] = dict(START)
    touched: list[str] = []
    for step in steps:
        mine = [step["path"], *([step["new_path"]] if "new_path" in step else [])]
        for name in mine:
            if any(name == other or other.startswith(f"{name}/") or name.startswith(f"{other}/") for other in touched):
                return None
            touched.append(name)
        if "d" in mine or (step["action"] != "add" and step["path"] not in files):
            return None
        if step["action"] == "add" and step["path"] in files and not step.get("overwrite"):
            return None
        if step["action"] == "move" and step["new_path"] in files:
            return None
        old = files.pop(step["path"], b"")
        if step["action"] != "delete":
            files[mine[-1]] = old if step["action"] == "move" else step["content"].encode()
    return files


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(operations, min_size=1, max_size=4))
def test_any_operations_do_what_a_simple_model_says_or_nothing(tmp_path_factory, steps):
    desk = Desk(tmp_path_factory.mktemp("model"))
    for name, content in START.items():
        desk.file(name, content)
    expected = modelled(steps)
    result = desk.do(*steps)
    assert result.success == (expected is not None), result.for_llm
    assert desk.tree() == (expected if expected is not None else START)
