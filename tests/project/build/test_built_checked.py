"""A directory that differs from its manifest in anything is found out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.project.build.output import read_build, write_files
from forge.project.build.record import FORMAT, MANIFEST, OutputFile, digest, to_bytes

NAMES = st.text("abc.-_é ", min_size=1, max_size=6).filter(lambda name: name not in (".", "..", MANIFEST))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
FILES = st.dictionaries(PATHS, st.builds(OutputFile, st.binary(max_size=20), st.booleans()), min_size=1, max_size=5)


def listing(files: dict[str, OutputFile]) -> dict[str, Any]:
    listed = {path: {"sha256": digest(one.content), "bytes": len(one.content)} for path, one in files.items()}
    return {"manifest_version": FORMAT, "files": listed}


def placed(directory: Path, files: dict[str, OutputFile]) -> str:
    content = to_bytes(listing(files))
    write_files(directory, {**files, MANIFEST: OutputFile(content)})
    return digest(content)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    placed(tmp_path, {"a.txt": OutputFile(b"a"), "in/b.txt": OutputFile(b"bb", True)})
    return tmp_path


def no_clash(files: dict[str, OutputFile]) -> bool:
    return not any(other.startswith(f"{path}/") for path in files for other in files)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(files=FILES.filter(no_clash), data=st.data())
def test_whatever_is_changed_added_or_taken_away_is_found_out(
    files: dict[str, OutputFile], data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("built")
    sha256 = placed(directory, files)
    assert read_build(directory, sha256)[2].keys() == {*files, MANIFEST}
    path = data.draw(st.sampled_from(sorted(files)))
    how = data.draw(st.sampled_from(["change", "grow", "add", "remove"]))
    place, content = directory / path, files[path].content
    if how == "add":
        path = f"{path}+"
        (directory / path).write_bytes(b"")
    elif how == "remove":
        place.unlink()
    elif how == "grow" or not content:
        place.write_bytes(content + b"x")
    else:
        at = data.draw(st.integers(0, len(content) - 1))
        place.write_bytes(content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :])
    with pytest.raises(ToolError) as caught:
        read_build(directory)
    assert path in caught.value.message


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_manifest_of_any_nonsense_is_an_error_and_nothing_else(
    data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = listing({"a": OutputFile(b"a"), "b/c": OutputFile(b"")})
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(FORMAT),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
        max_leaves=4,
    )
    key = data.draw(st.sampled_from(["", "manifest_version", "files", "a", "sha256", "bytes", "name"]))
    said: Any = whole
    if key == "":
        said = data.draw(values)
    elif key in whole:
        whole[key] = data.draw(values.filter(lambda one: one not in (FORMAT, {})))
    elif key == "a":
        whole["files"]["a"] = data.draw(values)
    elif key == "name":
        bad = data.draw(st.sampled_from(["../x", "/etc/passwd", "", "a//b", "./a", "a\0", "a/..", MANIFEST]))
        whole["files"][bad] = whole["files"]["a"]
    else:
        whole["files"]["a"][key] = data.draw(values.filter(lambda one: one != 1 and one != FORMAT))
    directory = tmp_path_factory.mktemp("built")
    (directory / MANIFEST).write_bytes(json.dumps(said).encode())
    with pytest.raises(ToolError) as caught:  # what can be read lists files that are not there
        read_build(directory)
    assert caught.value.suggestion


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"manifest_version": 2, "files": {}}'])
def test_a_manifest_that_cannot_be_read_is_damaged(small: Path, content: bytes) -> None:
    (small / MANIFEST).write_bytes(content)
    with pytest.raises(ToolError, match="damaged"):
        read_build(small)


def test_links_and_special_files_are_not_what_was_built(small: Path, tmp_path: Path) -> None:
    (small / "a.txt").unlink()
    (small / "a.txt").symlink_to("in/b.txt")
    with pytest.raises(ToolError, match=r"a\.txt cannot be read"):
        read_build(small)
    (small / "a.txt").unlink()
    os.mkfifo(small / "a.txt")
    with pytest.raises(ToolError, match=r"a\.txt cannot be read \(it is not a regular file\)"):
        read_build(small)


def test_all_that_differs_is_told_up_to_a_few(small: Path) -> None:
    for number in range(10):
        (small / f"new{number}").write_text("")
    with pytest.raises(ToolError, match="new4 was added and 5 more"):
        read_build(small)


def test_the_manifest_itself_can_be_pinned(tmp_path: Path) -> None:
    sha256 = placed(tmp_path, {"a": OutputFile(b"a")})
    assert read_build(tmp_path, f"sha256:{sha256.upper()}")[0] == sha256
    with pytest.raises(ToolError, match="is not the expected one"):
        read_build(tmp_path, "0" * 64)
    with pytest.raises(ToolError, match="is not a SHA-256"):
        read_build(tmp_path, sha256[:-1])


def test_what_is_no_build_is_said_to_be_none(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ToolError, match="is not a build"):
            read_build(place)


@pytest.mark.parametrize("size", [10**17, 10**25])
def test_a_size_that_no_file_can_have_is_refused_before_it_is_read(small: Path, size: int) -> None:
    said = json.loads((small / MANIFEST).read_bytes())
    next(iter(said["files"].values()))["bytes"] = size
    (small / MANIFEST).write_text(json.dumps(said))
    with pytest.raises(ToolError, match="is invalid"):
        read_build(small)
