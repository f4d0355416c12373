"""Every file tool, every kind of path: nothing leads out of the workspace, and every honest name works."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forge.core.context import Scope, ToolContext
from forge.core.execution.chain import Next
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.core.tool import Tool
from forge.workspace.paths import open as opening

SECRET = "nobody-may-see-this"


class Way(NamedTuple):
    """One way a tool takes a path."""

    tool: str
    arguments: Callable[[str], dict[str, Any]]
    writes: bool = False
    removes: bool = False  # what is there, be it a link or special


def patch(**operation: str) -> dict[str, Any]:
    return {"operations": [operation]}


FILE_WAYS = {  # a path to a file that is there
    "file_read": Way("file_read", lambda path: {"path": path}),
    "file_read, a list": Way("file_read", lambda path: {"path": [path]}),
    "file_write": Way("file_write", lambda path: {"path": path, "content": "written\n"}, writes=True),
    "file_edit": Way(
        "file_edit", lambda path: {"path": path, "old_text": "public", "new_text": "public."}, writes=True
    ),
    "file_patch, update": Way(
        "file_patch", lambda path: patch(action="update", path=path, content="public\nupdated\n"), writes=True
    ),
    "file_patch, delete": Way("file_patch", lambda path: patch(action="delete", path=path), writes=True, removes=True),
    "file_patch, move from": Way(
        "file_patch", lambda path: patch(action="move", path=path, new_path="moved.txt"), writes=True, removes=True
    ),
    "grep_search": Way("grep_search", lambda path: {"pattern": "public", "path": path}),
    "csv_parse": Way("csv_parse", lambda path: {"path": path}),
    "directory_list": Way("directory_list", lambda path: {"path": path}),
}
NEW_WAYS = {  # a path to a file that is not there yet
    "file_write": FILE_WAYS["file_write"],
    "file_patch, add": Way(
        "file_patch", lambda path: patch(action="add", path=path, content="public\nadded\n"), writes=True
    ),
    "file_patch, move to": Way(
        "file_patch", lambda path: patch(action="move", path="source.txt", new_path=path), writes=True
    ),
    "file_patch, text": Way(
        "file_patch",
        lambda path: {"patch": f"*** Begin Patch\n*** Add File: {path}\n+public\n*** End Patch"},
        writes=True,
    ),
}
FOLDER_WAYS = {  # a path to a directory
    "file_read": FILE_WAYS["file_read"],
    "glob_search": Way("glob_search", lambda path: {"pattern": "**/*.txt", "path": path}),
    "grep_search": Way("grep_search", lambda path: {"pattern": "public", "path": path}),
    "directory_list": Way("directory_list", lambda path: {"path": path, "recursive": True}),
    "directory_tree": Way("directory_tree", lambda path: {"path": path}),
}
NAMES = [
    "..name",
    "...",
    "a..b",
    "-rf",
    "--help",
    "日本",
    "👩‍👧",
    " a  b ",
    'it\'s "quoted"',
    "a\\b",
    "line\nbreak",
    ".hidden",
    "a~",
    "[x]{y}*?",
    "$HOME",
    "n" * 251,
]


@pytest.fixture(params=["as the kernel can", "by walking"])
def way_of_opening(request, monkeypatch):
    """Twice: with openat2 where it exists, and without."""
    if request.param == "by walking":
        monkeypatch.setattr(opening, "_has_openat2", lambda: False)


@pytest.fixture
def root(tmp_path):
    """A workspace, and beside it a directory that holds a secret and whose name begins the same."""
    for folder in ("ws/a/b", "ws-evil/sub"):
        (tmp_path / folder).mkdir(parents=True)
    fill(tmp_path / "ws")
    for name in ("ws-evil/secret.txt", "ws-evil/sub/secret.txt", f"ws-evil/{SECRET}.txt"):
        (tmp_path / name).write_text(f"public {SECRET}\n")
    return tmp_path / "ws"


@pytest.fixture
def call(root):
    def make(way: Way, path: str) -> ToolResult:
        call = ToolCall(way.tool, way.arguments(path))
        return asyncio.run(executor(way.tool).execute(call, Scope(workspace=root)))

    return make


@pytest.fixture
def refused(call, root):
    """The failure of a call that must be refused: nothing outside is seen, nothing anywhere changed."""

    def make(way: Way, path: str) -> Any:
        before = snapshot(root.parent)
        result = call(way, path)
        assert result.failure is not None, f"{result.for_llm[:300]!r}"
        assert result.failure.kind != "system_error", result.for_llm[:300]
        assert SECRET not in json.dumps(result.to_dict())
        assert snapshot(root.parent) == before
        return result.failure

    return make


class OpenGate:
    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        """Everything is permitted: what is refused here is refused by the path alone."""


async def permit(ctx: ToolContext, proceed: Next) -> ToolResult:
    return await proceed(ctx.replace(gate=OpenGate()))


@cache
def executor(tool: str) -> ToolExecutor:
    """For the tool of that name; one that does not exist yet is skipped."""
    module = pytest.importorskip(f"forge.tools.{tool}")
    classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Tool)]
    made = next(one() for one in classes if one.__module__ == module.__name__)
    return ToolExecutor(ToolRegistry([made]), [permit])


def fill(root: Path) -> None:
    """The workspace's files as they were at the beginning."""
    for name in ("top.txt", "source.txt", "a/b/deep.txt"):
        (root / name).write_text("public\n")
    (root / "moved.txt").unlink(missing_ok=True)


def snapshot(folder: Path) -> dict[str, str]:
    """Everything there is, by name; the state of a workspace is nobody's file."""
    found = {}
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".forge"]
        for name in [*folders, *files]:
            path = Path(top) / name
            mode = path.lstat().st_mode
            found[str(path)] = path.read_text() if stat.S_ISREG(mode) else str(stat.S_IFMT(mode))
    return found


def everywhere(ways: dict[str, Way]) -> Any:
    return pytest.mark.parametrize("way", ways.values(), ids=ways.keys())


OUTSIDE = [
    "../ws-evil/{}",
    "a/../../ws-evil/{}",
    "a/b/../../../ws-evil/sub/../{}",
    "{root}-evil/{}",
    "{root}/../ws-evil/{}",
    "/proc/self/root{root}-evil/{}",
    "/proc/self/cwd/../../../../../../../../../{root}-evil/{}",
    "missing/../../ws-evil/{}",
]
OUTSIDE_FOLDERS = ["../{}", "{root}/../{}", "a/../../{}/sub", "/proc/self/root{root}/../{}"]


@everywhere({**FILE_WAYS, **NEW_WAYS})
def test_a_file_outside_is_refused_in_the_same_words_whether_or_not_it_is_there(refused, root, way):
    for spelling in OUTSIDE:
        there, absent = (refused(way, spelling.format(name, root=root)) for name in ("secret.txt", "absent.txt"))
        assert there.kind == absent.kind == "security_error"
        assert there.text().replace("secret.txt", "absent.txt") == absent.text()


@everywhere(FOLDER_WAYS)
def test_a_directory_outside_is_refused_in_the_same_words_whether_or_not_it_is_there(refused, root, way):
    for spelling in OUTSIDE_FOLDERS:
        there, absent = (refused(way, spelling.format(name, root=root)) for name in ("ws-evil", "ws-gone"))
        assert there.kind == absent.kind == "security_error"
        assert there.text().replace("ws-evil", "ws-gone") == absent.text()


@everywhere(FILE_WAYS)
def test_the_rest_of_the_machine_is_refused(refused, way):
    for path in ("/etc/passwd", "..", "../..", "/proc/self/environ", "/dev/null", "/dev/stdin"):
        assert refused(way, path).kind == "security_error"


@everywhere(FILE_WAYS)
def test_a_file_inside_works_however_it_is_spelled(call, root, way):
    for path in (
        "a/b/deep.txt",
        "./a//b/./deep.txt",
        "a/../a/b/deep.txt",
        f"{root}/a/b/deep.txt",
        "../ws/a/b/deep.txt",
    ):
        fill(root)
        assert_done(call(way, path))
        assert_changed(way, root / "a/b/deep.txt")


@everywhere(NEW_WAYS)
def test_a_new_file_inside_works_however_it_is_spelled(call, root, way):
    for path in ("new.txt", "./a/new.txt", "a/../new/deep/x.txt", f"{root}/another.txt"):
        fill(root)
        assert_done(call(way, path))
        assert (root / path).resolve().is_file()


@everywhere(FOLDER_WAYS)
def test_a_directory_inside_works_however_it_is_spelled(call, root, way):
    for path in ("a", "./a/", "a/b/..", f"{root}/a", "../ws/a"):
        result = call(way, path)
        assert_done(result)
        assert "b" in result.for_llm


@everywhere(FILE_WAYS)
def test_a_link_that_stays_inside_is_followed(call, root, way):
    links = {"relative": "top.txt", "absolute": root / "top.txt", "chained": "absolute"}
    folders = {"by": "a/b", "whole": root / "a/b", "a/up": ".."}
    for path in (*links, "by/deep.txt", "whole/deep.txt", "a/up/top.txt", "by/../b/deep.txt"):
        fill(root)
        for name, target in {**links, **folders}.items():
            (root / name).unlink(missing_ok=True)
            os.symlink(target, root / name)
        assert_done(call(way, path))
        if way.removes:
            assert not os.path.lexists(root / path)
            assert (root / "top.txt").exists() or path == "a/up/top.txt"
        else:
            assert_changed(way, root / ("a/b/deep.txt" if "deep" in path else "top.txt"))
            assert os.path.islink(root / path) == (path in links)


@everywhere({**FILE_WAYS, **NEW_WAYS})
def test_a_link_that_leads_out_is_not_followed(call, refused, root, way):
    os.symlink("../ws-evil", root / "door")
    os.symlink("door/secret.txt", root / "chain")
    before = snapshot(root.parent / "ws-evil")
    for target in (
        "../ws-evil/secret.txt",
        "../ws-evil/absent.txt",
        f"{root}-evil/secret.txt",
        "a/../../ws-evil/secret.txt",
        f"/proc/self/root{root}-evil/secret.txt",
        "chain",
        "door/secret.txt",
    ):
        (root / "link").unlink(missing_ok=True)
        (root / "moved.txt").unlink(missing_ok=True)
        os.symlink(target, root / "link")
        if way.removes:  # the link itself
            assert SECRET not in json.dumps(call(way, "link").to_dict())
            assert snapshot(root.parent / "ws-evil") == before
            continue
        failure = refused(way, "link")
        assert failure.kind == "security_error"
        assert "ws-evil" not in failure.text()


@everywhere({**FILE_WAYS, **NEW_WAYS, **{f"{name} of a directory": way for name, way in FOLDER_WAYS.items()}})
def test_a_linked_directory_that_leads_out_is_not_entered(refused, root, way):
    os.symlink("../ws-evil", root / "door")
    os.symlink(root.parent / "ws-evil", root / "far")
    for path in ("door/secret.txt", "door/absent.txt", "door/sub", "far/sub", "door/sub/../secret.txt"):
        assert refused(way, path).kind == "security_error"


@everywhere(FOLDER_WAYS)
def test_a_search_does_not_follow_links_out(call, root, way):
    os.symlink("../ws-evil", root / "a/door")
    os.symlink("../../ws-evil/secret.txt", root / "a/secret-link.txt")
    result = call(way, ".")
    assert_done(result)
    assert SECRET not in json.dumps(result.to_dict())
    assert "sub/secret.txt" not in result.for_llm


@everywhere(FILE_WAYS)
def test_a_dangling_link_inside_is_told(call, root, way):
    os.symlink("nowhere.txt", root / "dangling")
    result = call(way, "dangling")
    if result.failure is not None:
        assert result.failure.kind in ("not_found", "user_error", "validation_error")
    else:
        assert way.writes
        assert (root / "nowhere.txt").exists() or way.removes


@everywhere(FILE_WAYS)
def test_links_in_a_circle_are_told(call, root, way):
    os.symlink("two", root / "one")
    os.symlink("one", root / "two")
    result = call(way, "one")
    if result.failure is None:
        assert way.removes or way.tool == "directory_list"
    else:
        assert result.failure.kind != "system_error"


@everywhere({**FILE_WAYS, **{f"{name} of a directory": way for name, way in FOLDER_WAYS.items()}})
@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "link to a fifo"])
def test_what_is_no_file_is_refused_without_waiting(call, root, way, kind, monkeypatch):
    monkeypatch.chdir(root)  # the path of a socket must be short
    make_special(kind)
    before = os.lstat("special")
    result = call(way, "special")
    if result.failure is None:
        assert way.removes or way.tool == "directory_list"
        return
    assert result.failure.kind in ("security_error", "user_error", "not_found", "validation_error"), result.for_llm
    assert os.lstat("special").st_ino == before.st_ino


@everywhere({**FILE_WAYS, **NEW_WAYS, **{f"{name} of a directory": way for name, way in FOLDER_WAYS.items()}})
def test_a_path_that_cannot_be_is_refused(refused, way):
    for path in ("a\0b", "top.txt\0", "~", "~/x", "~root/x"):
        assert refused(way, path).kind in ("security_error", "validation_error")
    for path in ("n" * 300, "é" * 150, f"a/{'n' * 300}/x", "d/" * 2_500, "a/../" * 1_000 + "top.txt", "half\ud800"):
        failure = refused(way, path)
        assert failure.kind == "validation_error"
        assert len(failure.text()) < 2_000


@everywhere({**FILE_WAYS, **NEW_WAYS})
def test_a_blank_path_to_a_file_is_refused(refused, way):
    if way.tool not in ("directory_list", "grep_search", "csv_parse"):  # there it is the workspace, or left out
        refused(way, "")
        refused(way, "  ")


@everywhere({name: way for name, way in FOLDER_WAYS.items() if name != "file_read"})
def test_a_blank_path_to_a_directory_is_the_workspace(call, way):
    for path in ("", ".", "  ", "./"):
        result = call(way, path)
        assert_done(result)
        assert "top.txt" in result.for_llm


@everywhere(FILE_WAYS)
def test_a_file_of_an_unusual_name_works(call, root, way):
    for name in NAMES:
        fill(root)
        path = root / f"{name}.txt"
        path.write_text("public\n")
        assert_done(call(way, path.name))
        assert_changed(way, path)


@everywhere({name: way for name, way in NEW_WAYS.items() if name != "file_patch, text"})
def test_a_new_file_of_an_unusual_name_works(call, root, way):
    for name in NAMES:
        fill(root)
        assert_done(call(way, f"new/{name}"))
        assert (root / "new" / name).is_file()


@everywhere(FOLDER_WAYS)
def test_a_directory_of_an_unusual_name_works(call, root, way):
    for name in NAMES:
        (root / name).mkdir()
        (root / name / "inside.txt").write_text("public\n")
        result = call(way, name)
        assert_done(result)
        assert "inside.txt" in result.for_llm


def test_one_path_outside_of_several_is_told_beside_the_others(call, root):
    way = Way("file_read", lambda path: {"path": ["top.txt", path]})
    result = call(way, "../ws-evil/secret.txt")
    assert "public" in result.for_llm
    assert "outside the workspace" in result.for_llm
    assert SECRET not in json.dumps(result.to_dict())


SWAP = """
import ctypes, os, sys
os.chdir(sys.argv[1])
exchange = getattr(ctypes.CDLL(None), "renameat2", None)
print(flush=True)
while True:
    if exchange and exchange(-100, b"swap", -100, b"door", 2) == 0:
        continue
    for one, other in ("swap", "aside"), ("door", "swap"), ("swap", "door"), ("aside", "swap"):
        os.rename(one, other)
"""


@everywhere(
    {
        **{f"{name} in it": way for name, way in {**FILE_WAYS, **NEW_WAYS}.items()},
        **{f"{name} of it": way for name, way in FOLDER_WAYS.items()},
    }
)
@pytest.mark.slow
def test_a_directory_swapped_for_a_link_never_leads_out(call, root, way, way_of_opening, request):
    """Another process swaps a directory for a link to the outside, all the time."""
    (root / "swap").mkdir()
    os.symlink("../ws-evil", root / "door")
    put_back(root, new=False)
    path = "swap" if way in FOLDER_WAYS.values() and " of it" in request.node.name else "swap/secret.txt"
    before = snapshot(root.parent / "ws-evil")
    with subprocess.Popen([sys.executable, "-Ic", SWAP, root], stdout=subprocess.PIPE) as swapping:
        assert swapping.stdout
        swapping.stdout.readline()
        try:
            for _ in range(15 if way.writes else 40):
                result = call(way, path)
                assert SECRET not in json.dumps(result.to_dict())
                if result.failure is not None:
                    assert result.failure.kind != "system_error", result.for_llm
        finally:
            swapping.kill()
    assert snapshot(root.parent / "ws-evil") == before
    put_back(root, new=way in NEW_WAYS.values())
    assert_done(call(way, path))


def put_back(root: Path, *, new: bool) -> None:
    """The directory at its name again, as at the beginning; what was moved away is there again."""
    if (root / "swap").is_symlink():
        (root / "swap").unlink()
        (root / ("aside" if (root / "aside").exists() else "door")).rename(root / "swap")
    fill(root)
    for one in (root / "swap").iterdir():
        one.unlink()
    if not new:
        (root / "swap/secret.txt").write_text("public\n")


def make_special(kind: str) -> None:
    """At the name `special` in the current directory."""
    if kind == "fifo":
        os.mkfifo("special")
    elif kind == "link to a fifo":
        os.mkfifo("fifo")
        os.symlink("fifo", "special")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("special")
    else:
        try:
            os.mknod("special", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root may make devices")


def assert_done(result: ToolResult) -> None:
    assert result.failure is None, result.for_llm[:500]
    assert SECRET not in json.dumps(result.to_dict())


def assert_changed(way: Way, path: Path) -> None:
    """A way that writes did so, there; any other left the file as it was."""
    if way.removes:
        assert not path.exists()
    elif way.writes:
        assert path.read_text() != "public\n"
    else:
        assert path.read_text() == "public\n"
