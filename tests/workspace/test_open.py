"""Files below a root, and no way out of it."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.workspace.paths import PathValidator
from forge.workspace.paths import open as module
from forge.workspace.paths.open import open_file, read_file
from tests.descriptors import open_below


@pytest.fixture(params=["as the kernel can", "by walking"], autouse=True)
def way(request, monkeypatch):
    """Every test runs twice: with openat2 where it exists, and without."""
    if request.param == "by walking":
        monkeypatch.setattr(module, "_has_openat2", lambda: False)


@pytest.fixture
def root(tmp_path):
    """A workspace with a file, a folder with a file, and a secret beside it."""
    root = tmp_path / "ws"
    (root / "a/b").mkdir(parents=True)
    (root / "top.txt").write_bytes(b"top")
    (root / "a/b/deep.txt").write_bytes(b"deep")
    (tmp_path / "ws-evil").mkdir()
    (tmp_path / "ws-evil/secret.txt").write_bytes(b"secret")
    return root


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("top.txt", b"top"),
        ("./top.txt", b"top"),
        ("a/b/deep.txt", b"deep"),
        ("a//b/./deep.txt", b"deep"),
        ("a/b/../../top.txt", b"top"),
        ("a/../a/b/deep.txt", b"deep"),
    ],
)
def test_a_file_inside_is_read(root, path, content):
    assert read_inside(root, path, 100) == content


def test_an_absolute_path_inside_is_read(root):
    assert read_inside(root, str(root / "a/b/deep.txt"), 100) == b"deep"


@pytest.mark.parametrize(
    "path", ["../ws/top.txt", "a/../../ws/./a/../top.txt", "{root}/../ws/top.txt", "there/../top.txt"]
)
def test_a_path_that_goes_out_and_comes_back_is_inside(root, path):
    os.symlink("../ws/a", root / "there")
    assert read_inside(root, path.format(root=root), 100) == b"top"


def test_a_root_that_is_a_link_is_the_same_root(root, tmp_path):
    os.symlink(root, tmp_path / "other")
    assert read_inside(tmp_path / "other", "top.txt", 100) == b"top"
    assert read_inside(tmp_path / "other", str(root / "top.txt"), 100) == b"top"
    assert read_inside(root, str(tmp_path / "other/top.txt"), 100) == b"top"


@pytest.mark.parametrize(
    "target", ["top.txt", "./a/../top.txt", "{root}/top.txt", "{root}/a/../top.txt", "a/up", "{root}/chain"]
)
def test_a_link_that_stays_inside_is_followed(root, target):
    os.symlink("../top.txt", root / "a/up")
    os.symlink("a/up", root / "chain")
    os.symlink(target.format(root=root), root / "link")
    assert read_inside(root, "link", 100) == b"top"


def test_a_linked_directory_inside_is_followed(root):
    os.symlink("a/b", root / "relative")
    os.symlink(root / "a/b", root / "absolute")
    assert read_inside(root, "relative/deep.txt", 100) == b"deep"
    assert read_inside(root, "absolute/deep.txt", 100) == b"deep"
    assert read_inside(root, "absolute/../../top.txt", 100) == b"top"


@pytest.mark.parametrize("name", ["secret.txt", "missing.txt"])
@pytest.mark.parametrize(
    "spelling", ["../ws-evil/{}", "a/../../ws-evil/{}", "{parent}/ws-evil/{}", "{root}/../ws-evil/{}"]
)
def test_a_path_that_leaves_is_refused_in_the_same_words_whatever_is_there(root, spelling, name):
    path = spelling.format(name, root=root, parent=root.parent)
    error = refused(root, path)
    assert error.kind == "security_error"
    assert error.message == f'"{path}" leads outside the workspace'


@pytest.mark.parametrize("name", ["secret.txt", "missing.txt"])
@pytest.mark.parametrize(
    "target", ["../ws-evil/{}", "{parent}/ws-evil/{}", "a/../../ws-evil/{}", "/proc/self/root{parent}/ws-evil/{}"]
)
def test_a_link_that_leaves_is_refused_in_the_same_words_whatever_is_there(root, target, name):
    os.symlink(target.format(name, parent=root.parent), root / "link")
    error = refused(root, "link")
    assert error.kind == "security_error"
    assert error.message == '"link" leads outside the workspace'


def test_a_chain_of_links_that_leaves_is_refused(root):
    os.symlink("../ws-evil", root / "directory")
    os.symlink("directory/secret.txt", root / "chain")
    for path in ("directory/secret.txt", "chain", "directory/missing/../secret.txt"):
        assert refused(root, path).kind == "security_error"


@pytest.mark.parametrize("path", ["missing.txt", "a/missing/deep.txt", "dangling"])
def test_what_is_not_there_is_not_found(root, path):
    os.symlink("nowhere.txt", root / "dangling")
    error = refused(root, path)
    assert error.kind == "not_found"
    assert "does not exist" in error.message


def test_a_file_is_no_directory(root):
    assert refused(root, "top.txt/deeper").kind == "not_found"


@pytest.mark.parametrize("path", [".", "a", "a/b/", "a/.."])
def test_a_directory_is_no_file(root, path):
    assert "is a directory" in refused(root, path).message


def test_links_in_a_circle_are_refused(root):
    os.symlink("two", root / "one")
    os.symlink("one", root / "two")
    assert "loop of links" in refused(root, "one").message


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a\0b", "NUL"),
        ("~/x", "home"),
        ("~root/x", "home"),
        ("x" * 256, "256 bytes"),
        ("é" * 128, "256 bytes"),
        ("/".join(["dir"] * 5_000), "too long"),
        ("bad\ud800name", "Unicode"),
    ],
)
def test_a_strange_spelling_is_refused(root, path, words):
    assert words in refused(root, path).message


@pytest.mark.parametrize("name", ["./~x", "x~", "x" * 255, "with space ", "日本語", "-rf", "a\nb", "..."])
def test_an_unusual_name_is_fine(root, name):
    (root / name).write_bytes(b"here")
    assert read_inside(root, name, 100) == b"here"


def test_a_fifo_is_refused_without_waiting_for_a_writer(root):
    os.mkfifo(root / "fifo")
    os.symlink("fifo", root / "link")
    for path in ("fifo", "link"):
        error = refused(root, path)
        assert error.kind == "security_error"
        assert "FIFO" in error.message


def test_a_socket_is_refused(root, monkeypatch):
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        assert "socket" in refused(root, "socket").message


def test_a_device_is_refused(root):
    error = refused(type(root)("/dev"), "null")
    assert error.kind == "security_error"
    assert "device" in error.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_someone_else_is_a_permission_error(root):
    (root / "top.txt").chmod(0)
    assert refused(root, "top.txt").kind == "permission_error"


def test_a_missing_root_is_a_matter_of_configuration(tmp_path):
    assert refused(tmp_path / "nowhere", "a").kind == "config_error"


def test_a_file_at_the_limit_is_read_and_one_past_it_is_not(root):
    assert read_inside(root, "top.txt", 3) == b"top"
    with pytest.raises(ToolError, match="has 3 bytes, the limit is 2"):
        read_inside(root, "top.txt", 2)


def test_no_descriptor_is_left_open(root):
    os.symlink("../ws-evil/secret.txt", root / "link")
    os.mkfifo(root / "fifo")
    read_inside(root, "a/b/deep.txt", 100)
    for path in ("link", "fifo", "a", "a/b/missing", "../x", "a/b/../../../x", "top.txt"):
        try:
            read_inside(root, path, 2)
        except ToolError:
            continue
    assert open_below(root.parent) == []


def test_the_descriptor_is_not_inherited(root):
    descriptor = open_inside(root, "top.txt")
    try:
        assert not os.get_inheritable(descriptor)
        assert os.get_blocking(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("attempts", [500, pytest.param(3_000, marks=pytest.mark.slow)])
def test_a_directory_swapped_for_a_link_never_leads_out(root, attempts):
    """Another thread swaps a directory for a link to the outside all the time; the secret must never be read."""
    (root / "swap").mkdir()
    (root / "swap/secret.txt").write_bytes(b"public")
    os.symlink(root.parent / "ws-evil", root / "door")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.rename(root / "swap", root / "aside")
            os.rename(root / "door", root / "swap")
            os.rename(root / "swap", root / "door")
            os.rename(root / "aside", root / "swap")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = {attempt(root, "swap/secret.txt") for _ in range(attempts)}
    finally:
        stop.set()
        swapping.join()
    assert b"public" in seen
    assert b"secret" not in seen


def read_inside(root, path, limit):
    return read_file(Scope(workspace=root), path, limit)


def open_inside(root, path):
    return open_file(PathValidator(root).resolve(path))


def attempt(root, path):
    try:
        return read_inside(root, path, 100)
    except ToolError as error:
        return error.kind


def refused(root, path):
    with pytest.raises(ToolError) as caught:
        os.close(open_inside(root, path))
    return caught.value


@pytest.mark.parametrize("system", ["Linux", "macOS"])
async def test_the_text_that_an_editor_has_not_saved_is_read(tmp_path, monkeypatch, system):
    if system == "macOS":
        monkeypatch.delattr(os, "memfd_create")
    saved = tmp_path / "note.txt"
    saved.write_text("old")
    for unsaved, wanted in ((None, "old"), ({str(saved): b"new"}, "new")):
        location = PathValidator.of(Scope(workspace=tmp_path, unsaved=unsaved)).resolve("note.txt")
        with open(open_file(location), "rb") as file:
            assert file.read().decode() == wanted
