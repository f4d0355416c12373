"""A trial run: the real tree is not touched, its effects are known, and they are applied as a whole or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.process.running.run import run
from forge.process.sandbox import Confinement
from forge.workspace.history.tracking import SessionState, TrackedCall, track_call
from forge.workspace.trial import find_layer, find_places
from tests.process.trials import ENVIRONMENT, in_layer, kinds, layer_over, tier_of, tree, try_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="overlayfs")

LINE = (
    "echo new >new; echo more >>old; rm gone; rm -r folder; mkdir -p deep/er; echo x >deep/er/x; ln -s old link;"
    " chmod 755 script; : >>same; cat same >copy && cat copy >same; rm copy"
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    for name in ("old", "gone", "script", "same", "folder/a", "folder/below/b"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n")
    os.setxattr(root / "old", "user.note", b"kept")
    return root


async def test_the_effects_are_known_and_nothing_is_touched(workspace: Path) -> None:
    before = tree(workspace, times=True)
    layer, effects, _ = await try_line(workspace, LINE)
    assert kinds(effects) == {
        "new": "create",
        "old": "change",
        "gone": "delete",
        "folder": "delete",
        "folder/a": "delete",
        "folder/below": "delete",
        "folder/below/b": "delete",
        "deep": "create",
        "deep/er": "create",
        "deep/er/x": "create",
        "link": "create",
        "script": "mode",
    }
    assert effects.unsure == ()
    assert "+more\n" in effects.diff()
    layer.discard()
    assert tree(workspace, times=True) == before
    assert not layer.folder.exists()


async def test_what_is_applied_equals_a_direct_run(workspace: Path, tmp_path: Path) -> None:
    direct = tmp_path / "direct"
    os.system(f"cp -a {workspace} {direct}")
    await run(["bash", "-c", LINE], cwd=direct, env=ENVIRONMENT)
    layer, effects, _ = await try_line(workspace, LINE)
    assert layer.apply().digest() == effects.digest()
    layer.discard()
    assert tree(workspace) == tree(direct)


async def test_a_line_without_effects_has_none(workspace: Path) -> None:
    layer, effects, done = await try_line(workspace, "cat old; touch x; rm x; true >>old")
    assert (effects.files, effects.unsure, done.output) == ((), (), "old\n")
    assert effects.is_empty
    layer.discard()


async def test_some_effects_can_be_applied_and_the_others_not(workspace: Path) -> None:
    layer, _, _ = await try_line(workspace, LINE)
    layer.apply([workspace / "new", workspace / "folder/a", workspace / "deep/er/x"])
    assert (workspace / "new").read_text() == "new\n"
    assert not (workspace / "folder/a").exists()
    assert (workspace / "folder/below/b").exists()
    assert (workspace / "deep/er/x").exists()
    assert (workspace / "gone").exists()
    assert (workspace / "old").read_text() == "old\n"
    with pytest.raises(ToolError, match="is no effect of this trial"):
        layer.apply([workspace / "same"])
    layer.discard()


@pytest.mark.parametrize("line", ["echo theirs >>old", "rm old", "rm -r folder"])
@pytest.mark.parametrize("edit", ["old", "folder/below/b"])
async def test_what_someone_else_changed_is_refused_and_both_versions_are_kept(
    workspace: Path, line: str, edit: str
) -> None:
    layer, _, _ = await try_line(workspace, f"{line}; echo x >other")
    (workspace / edit).write_text("mine\n")
    if edit.startswith("folder") != ("folder" in line):  # the twin: another path was changed
        layer.apply()
        assert (workspace / "other").exists()
        return
    with pytest.raises(ToolError, match=f'"{edit}" was changed') as caught:
        layer.apply()
    assert caught.value.kind is ErrorKind.VALIDATION
    assert (workspace / edit).read_text() == "mine\n"
    assert not (workspace / "other").exists()
    if "echo" in line:
        kept = str(caught.value).partition("version: ")[2].partition(")")[0]
        assert Path(kept).read_text() == "old\ntheirs\n"
    layer.discard()


async def test_a_file_that_someone_else_deleted_or_made_is_a_conflict(workspace: Path) -> None:
    layer, _, _ = await try_line(workspace, "echo x >>old; echo y >new; mv same moved")
    (workspace / "old").unlink()
    (workspace / "new").write_text("mine\n")
    with pytest.raises(ToolError, match=r'"new" was changed .*"old" was deleted'):
        layer.apply()
    assert (workspace / "new").read_text() == "mine\n"
    (workspace / "new").unlink()
    layer.apply([workspace / "moved", workspace / "same"])  # the twin: a rename within the trial
    assert (workspace / "moved").read_text() == "same\n"


async def test_what_was_applied_can_be_undone(workspace: Path) -> None:
    state = SessionState(workspace)
    before = (workspace / "old").read_bytes(), (workspace / "folder/a").read_bytes()
    layer, _, _ = await try_line(workspace, LINE)
    with track_call(TrackedCall(state, "s", "turn", "call", "bash")):
        layer.apply()
    (entry,) = state.undo.entries("s")
    assert (entry.tool, entry.call_id) == ("bash", "call")
    assert {one.shown for one in entry.files} >= {"old", "gone", "folder/a", "folder/below/b", "new", "link"}
    planned = {change.location.shown: change for change in state.undo.plan("s", call_id="call")}
    assert (planned["old"].after, planned["folder/a"].after) == before
    assert planned["new"].after is None
    layer.discard()


async def test_a_layer_can_wait_for_an_answer(workspace: Path) -> None:
    layer, effects, _ = await try_line(workspace, "echo x >new")
    layer.keep(line="echo x >new")
    again = find_layer(layer.id, find_places([workspace]))
    assert again is not None
    assert again.facts == {"line": "echo x >new"}
    assert again.effects().digest() == effects.digest()
    again.apply()
    assert (workspace / "new").read_text() == "x\n"
    again.discard()
    assert find_layer(layer.id, find_places([workspace])) is None
    assert find_layer("../../etc", find_places([workspace])) is None


async def test_every_writable_root_has_a_layer(workspace: Path, tmp_path: Path) -> None:
    other, inner = tmp_path / "other", workspace / "folder"
    other.mkdir()
    layer = layer_over(workspace, other, inner)
    await in_layer(
        layer,
        f"echo 1 >{other}/a; echo 2 >folder/c",
        Confinement(workspace=workspace, writable=(other, inner)),
    )
    assert kinds(layer.effects()) == {str(other / "a"): "create", "folder/c": "create"}
    assert not (other / "a").exists()
    layer.apply()
    assert (other / "a").read_text() == "1\n"
    assert (inner / "c").read_text() == "2\n"
    layer.discard()


def test_a_layer_never_lies_in_a_root(workspace: Path, tmp_path: Path) -> None:
    home = Path(os.environ["XDG_DATA_HOME"])
    assert all(not place.is_relative_to(home) for place in find_places([workspace, home]))
    assert find_places([workspace])[0].is_relative_to(home)
    assert tier_of(workspace).place is not None or tier_of(workspace).problem


async def test_without_bubblewrap_a_layer_runs_nothing(workspace: Path) -> None:
    layer = layer_over(workspace)
    with pytest.raises(ToolError, match="it needs bubblewrap"):
        await in_layer(layer, "echo x >new", Confinement(workspace=workspace, sandbox="off"))
    assert not (workspace / "new").exists()
    layer.discard()
