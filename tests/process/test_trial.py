"""A trial run: the real tree is not touched, its effects are known, and they are applied as a whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.process.running.limits import Resources
from forge.process.running.run import run
from forge.process.running.trial import explain_unusable, find_other_owner
from forge.process.sandbox import Confinement
from forge.workspace.history.tracking import SessionState, TrackedCall, track_call
from forge.workspace.trial import find_layer, find_places, open_layer
from tests.process.planting import found, mark, until
from tests.process.trials import ENVIRONMENT, in_layer, kinds, layer_over, tier_of, tree, try_line, try_way

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


async def test_an_old_content_of_up_to_the_limit_of_a_session_comes_back(workspace: Path) -> None:
    state = SessionState(workspace)
    (workspace / "large").write_bytes(os.urandom(20 * 1024 * 1024))
    before = (workspace / "large").read_bytes()
    layer, _, _ = await try_line(workspace, "echo new >large")
    with track_call(TrackedCall(state, "s", "t", "call_1", "bash")):
        layer.apply()
    (change,) = state.undo.plan("s", call_id="call_1")
    assert change.after == before
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


UNSURE = {
    "mkfifo pipe": "a FIFO",
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'": "a FIFO, a socket",
    "ln old second": "hard link",
    "echo x >>linked": "several names",
    "chmod 700 .; chmod 711 .": "the mode of",
    'python3 -c \'import os; os.setxattr("folder", "user.x", b"1")\'': "attributes of the folder",
    'python3 -c \'import os; os.setxattr(".", "user.x", b"1")\'': "attributes of",
    'python3 -c \'import os; [(os.mkdir("d"), os.chdir("d")) for _ in [0] * 999]\'': "150 folders in each other",
    "truncate -s 5G new": "too many for a trial",
    "truncate -s 5G old": "too many for a trial",
    "rm -rf folder; echo 'fatal: hardlink different from source' >&2": "hard links",
}


@pytest.mark.parametrize("line", UNSURE)
async def test_what_a_layer_cannot_do_is_recognised_and_nothing_is_touched(workspace: Path, line: str) -> None:
    os.link(workspace / "same", workspace / "linked")
    before = tree(workspace, times=True)
    layer, effects, done = await try_line(workspace, line)
    assert any(UNSURE[line] in reason for reason in effects.unsure), (effects.unsure, done.output)
    assert not effects.is_empty
    if "hardlink different" not in line:  # which only the output tells
        with pytest.raises(ToolError, match="nothing was applied"):
            layer.apply()
    layer.discard()
    assert tree(workspace, times=True) == before
    assert until(lambda: not list(layer.folder.parent.glob(f"*{layer.id}")))


async def test_a_very_large_file_can_be_deleted_and_150_folders_can_be_nested(workspace: Path) -> None:
    os.truncate(workspace / "gone", 5 * 1024**3)
    state = SessionState(workspace)
    nested = "/".join(["d"] * 150)
    layer, effects, _ = await try_line(workspace, f"rm gone; mkdir -p {nested}; echo x >{nested}/x")
    assert effects.unsure == ()
    with track_call(TrackedCall(state, "s", "t", "call", "bash")):
        layer.apply()
    layer.discard()
    assert not (workspace / "gone").exists()
    assert (workspace / nested / "x").read_text() == "x\n"


async def test_only_names_of_forges_own_folder_are_not_looked_at(workspace: Path) -> None:
    for name in (".forge/state", ".forgery", ".forge-old/a", ".forge/files/a"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    layer, effects, _ = await try_line(workspace, "rm -r .forgery .forge-old .forge/files/a")
    deleted = {".forgery", ".forge-old", ".forge-old/a"}
    assert set(kinds(effects)) - {".forge/files/a"} == deleted
    layer.apply([workspace / name for name in deleted])
    assert not (workspace / ".forgery").exists()
    assert (workspace / ".forge/state").exists()
    layer.discard()


async def test_a_change_of_attributes_alone_is_told(workspace: Path) -> None:
    layer, effects, _ = await try_line(
        workspace, 'python3 -c \'import os; os.setxattr("old", "user.note", b"new")\'; echo x >>same'
    )
    told = {one.shown: one.diff() for one in effects.files}
    assert told["old"] == '"old" changes its extended attributes\n'
    assert "attributes" not in told["same"]
    layer.apply()
    assert os.getxattr(workspace / "old", "user.note") == b"new"
    layer.discard()


async def test_a_layer_that_changed_after_it_was_judged_is_not_applied(workspace: Path) -> None:
    layer, effects, _ = await try_line(workspace, "echo x >>old")
    Path(layer.upper(0), "evil").write_text("evil")
    with pytest.raises(ToolError, match="changed after they were judged; nothing was applied"):
        layer.apply(expect=effects)
    assert (workspace / "old").read_text() == "old\n"
    layer.apply(expect=layer.effects())
    assert (workspace / "old").read_text() == "old\nx\n"
    layer.discard()


# A copy has no marks of an overlay: what looks like one is the program's own.


async def test_in_a_copy_the_attributes_of_an_overlay_read_nothing_from_elsewhere(
    workspace: Path, tmp_path: Path
) -> None:
    if why := try_way("copy", workspace):
        pytest.skip(f"NOT TESTED: copy cannot be used here: {why}")
    (secret := tmp_path / "secret").mkdir()
    (secret / "key").write_text("secret")
    way = os.path.join("/", *[".."] * 20, str(secret).lstrip("/"))
    code = f"import os; os.mkdir('new'); os.setxattr('new', 'user.overlay.redirect', {way!r}.encode())"
    code += "; os.setxattr('folder', 'user.overlay.opaque', b'y'); open('new/own', 'w').close()"
    layer, effects, done = await try_line(workspace, f'python3 -c "{code}"', how="copy")
    assert done.exit_code == 0, done.output
    assert kinds(effects) == {"new": "create", "new/own": "create"}
    layer.apply([workspace / "new", workspace / "new/own"])
    assert os.listdir(workspace / "new") == ["own"]
    layer.discard()


async def test_in_a_copy_a_device_is_no_deletion(workspace: Path) -> None:
    if why := try_way("copy", workspace):
        pytest.skip(f"NOT TESTED: copy cannot be used here: {why}")
    layer, effects, done = await try_line(workspace, "rm gone; mknod gone c 0 0", how="copy")
    if done.exit_code:
        assert kinds(effects) == {"gone": "delete"}  # this kernel lets no one make it
    else:
        assert effects.unsure == ('it makes "gone", a FIFO, a socket or a device',)
    layer.discard()


async def test_what_cannot_be_copied_is_no_effect_of_a_copy_and_no_copy_is_tried(workspace: Path) -> None:
    if why := try_way("copy", workspace):
        pytest.skip(f"NOT TESTED: copy cannot be used here: {why}")
    os.mkfifo(workspace / "pipe")
    assert "is a FIFO, a socket or a device" in try_way("copy", workspace)
    place = find_places([workspace])[0]
    layer = open_layer(workspace, [workspace], "copy", place)  # the FIFO came just after the look
    await in_layer(layer, "rm gone")
    assert kinds(layer.effects()) == {"gone": "delete"}
    layer.discard()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("mv: Ungültiger Link über Gerätegrenzen hinweg", "it renames a folder"),
        ("cp: Der Wert ist zu groß für den definierten Datentyp", "it changes files of another owner"),
        ("[Errno 18] Invalid cross-device link", "it renames a folder"),
        ("Der Link ist ungültig", ""),
    ],
)
async def test_errors_are_recognised_in_the_language_of_the_environment(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    if not os.path.exists("/usr/share/locale/de/LC_MESSAGES/libc.mo"):
        pytest.skip("NOT TESTED: the C library's messages are not installed in German")
    layer, effects, _ = await try_line(workspace, "true")
    assert not effects.unsure
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    found = layer.effects(said).unsure
    layer.discard()
    assert [one for one in found if reason and one.startswith(reason)] == list(found)
    assert bool(found) is bool(reason)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root gives a file to another user")
def test_a_file_of_another_owner_is_found_wherever_it_is(tmp_path: Path) -> None:
    mine, mixed = tmp_path / "mine", tmp_path / "mixed"
    for root in (mine, mixed):
        for number in range(1_000):
            (root / f"{number}").mkdir(parents=True)
            (root / f"{number}" / "a").touch()
    os.chown(mixed / "999" / "a", 65533, 65533)
    assert find_other_owner("overlay", [str(mine), str(mixed)]) == str(mixed / "999" / "a")
    assert find_other_owner("overlay of root", [str(mine), str(mixed)]) == ""  # root can change it
    assert find_other_owner("overlay", [str(mine)]) == ""
    assert "has another owner" in explain_unusable("overlay", [str(mixed)], tmp_path)  # from now on, it asks before


async def test_a_renamed_folder_is_applied_by_root_and_recognised_for_others(workspace: Path) -> None:
    line = 'python3 -c \'import os; os.rename("folder", "renamed")\' && echo x >>renamed/a && rm renamed/below/b'
    layer, effects, _ = await try_line(workspace, line)
    if layer.how != "overlay of root":
        assert "renames a folder" in effects.unsure[0]
        return
    assert effects.unsure == ()
    layer.apply()
    assert not (workspace / "folder").exists()
    assert (workspace / "renamed/a").read_text() == "folder/a\nx\n"
    assert (workspace / "renamed/below").is_dir()
    assert not (workspace / "renamed/below/b").exists()
    layer.discard()


async def test_new_names_of_one_new_file_stay_names_of_one_file(workspace: Path) -> None:
    layer, effects, _ = await try_line(workspace, "mkdir out; echo x >out/a; ln out/a out/b; ln out/a c")
    assert effects.unsure == ()
    layer.apply()
    assert (workspace / "out/a").stat().st_ino == (workspace / "out/b").stat().st_ino == (workspace / "c").stat().st_ino
    layer.discard()
    assert (workspace / "c").read_text() == "x\n"


async def test_holes_stay_holes_and_a_large_file_is_told(workspace: Path) -> None:
    (workspace / "large").write_bytes(b"")
    os.truncate(workspace / "large", 80_000_000)
    layer, effects, _ = await try_line(workspace, "printf x >>large; truncate -s 100M sparse; printf y >>sparse")
    assert effects.notes == ('"large" (80,000,000 bytes) was copied for the trial',)
    layer.apply()
    layer.discard()
    assert (workspace / "sparse").stat().st_size == 100 * 1024 * 1024 + 1
    assert (workspace / "sparse").stat().st_blocks < 1000
    assert (workspace / "large").stat().st_size == 80_000_001
    assert "user.overlay.origin" not in os.listxattr(workspace / "large")


async def test_a_name_changes_its_case(workspace: Path) -> None:
    layer, effects, _ = await try_line(workspace, "mv old OLD")
    assert kinds(effects) == {"OLD": "create", "old": "delete"}
    layer.apply()
    assert sorted(name for name in os.listdir(workspace) if name.lower() == "old") == ["OLD"]
    layer.discard()


async def test_a_program_that_daemonises_is_gone_before_its_effects_are_read(workspace: Path) -> None:
    writes = "(setsid bash -c 'while :; do echo x >>old; done' >/dev/null 2>&1 &)"
    line = f"{writes}; while [ $(wc -c <old) -lt 1000 ]; do :; done"
    layer, effects, _ = await try_line(workspace, line)
    assert "old" in kinds(effects)
    assert layer.effects().digest() == effects.digest()
    layer.discard()


@pytest.mark.parametrize("how", ["", "overlay", "copy"])
async def test_the_next_program_is_in_no_namespace_of_a_trial(workspace: Path, how: str) -> None:
    if how and (why := try_way(how, workspace)):
        pytest.skip(f"NOT TESTED: {how} cannot be used here: {why}")
    names = [f"/proc/self/ns/{one}" for one in ("mnt", "user")]
    for _ in range(2):  # the second time, the keeper of a trial is used again
        layer, effects, done = await try_line(workspace, "id -u; echo 1 >>new", how=how)
        layer.discard()
        assert (kinds(effects), done.output) == ({"new": "create"}, f"{os.getuid()}\n")
        after = await run(["readlink", *names], cwd=workspace, env=ENVIRONMENT)
        assert after.output.split() == [os.readlink(one) for one in names]
        assert (await run(["ls"], cwd=workspace, env=ENVIRONMENT)).output.split() == sorted(os.listdir(workspace))


FORGE = """
import asyncio, sys
from pathlib import Path
from forge.process.running.output import OutputPlan
from forge.process.running.run import run
from forge.process.sandbox import Confinement
from tests.process.trials import ENVIRONMENT, layer_over

async def main(workspace, word):
    show = OutputPlan(on_output=lambda text: print(text, end="", flush=True))
    for line in ("true", f"(setsid sleep {word} &); echo ready; sleep {word}"):
        confinement = Confinement(workspace=workspace, layers=layer_over(workspace).mounts)
        await run(["bash", "-c", line], cwd=workspace, env=ENVIRONMENT, output=show, confinement=confinement)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def test_no_program_of_a_trial_outlives_forge(workspace: Path) -> None:
    layer_over(workspace).discard()
    word, env = mark(), {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", FORGE, str(workspace), word], stdout=subprocess.PIPE, env=env
    ) as forge:
        assert forge.stdout is not None
        assert forge.stdout.readline() == b"ready\n"
        assert len([pid for pid in found(word) if pid != forge.pid]) >= 2
        forge.kill()
    assert until(lambda: not found(word))
    assert until(lambda: not found(f"forge-supervisor-of-{forge.pid}"))


async def test_mount_points_of_the_sandbox_are_no_effects(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git/HEAD").write_text("ref: refs/heads/main\n")
    layer, effects, _ = await try_line(workspace, "echo x >.git/description; echo x >.git/config; mkdir .git/hooks/x")
    assert kinds(effects) == {".git/description": "create"}
    layer.apply()
    assert sorted(os.listdir(workspace / ".git")) == ["HEAD", "description"]
    layer.discard()


async def test_hidden_paths_are_hidden_and_protected_ones_stay(workspace: Path) -> None:
    confinement = Confinement(
        workspace=workspace, hidden=(workspace / "old", workspace / "folder"), protected=(workspace / "same",)
    )
    layer = layer_over(workspace)
    done = await in_layer(layer, "cat old; ls folder; echo x >>same; echo seen; cat script >new", confinement)
    assert "old\n" not in done.output.replace("cat: old", "")
    assert "below" not in done.output
    assert kinds(layer.effects(done.output)) == {"new": "create"}
    layer.discard()


async def test_a_failed_application_changes_nothing_and_can_be_repeated(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(workspace)
    layer, _, _ = await try_line(workspace, LINE)

    def full(*given: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("forge.workspace.changes.commit.Folders.sync", full)  # all files are in place already
    with pytest.raises(ToolError, match="the disk is full; nothing was changed"):
        layer.apply()
    assert tree(workspace) == before
    monkeypatch.undo()
    layer.apply()
    assert (workspace / "new").exists()
    layer.discard()


FULL_DISK = """
import asyncio, json, os, sys
from pathlib import Path
from forge.core.errors import ToolError
from tests.process.trials import tier_of, tree, try_line

async def main(workspace):
    for name in ("old", "gone"):
        (workspace / name).write_text(name)
    if not (tier := tier_of(workspace)).how:
        return {"problem": tier.problem}
    before = tree(workspace)
    line = "rm gone; echo new >old; for one in 1 2 3 4; do head -c 200000 /dev/urandom >new$one; done"
    layer, effects, done = await try_line(workspace, line)
    told = {"how": tier.how, "effects": len(effects.files), "problem": "", "said": ""}
    filler = workspace.parent / "filler"
    room = os.statvfs(workspace)
    filler.write_bytes(b"x" * (room.f_bavail * room.f_frsize - 500_000))
    try:
        layer.apply()
    except ToolError as error:
        told["said"] = error.message
    told["unchanged"] = tree(workspace) == before
    filler.unlink()
    layer.apply()
    told["applied"] = sorted(one for one in os.listdir(workspace) if one != ".forge")
    layer.discard()
    return told

print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
"""


def test_a_real_disk_that_is_full_changes_nothing_and_with_room_again_it_is_applied(tmp_path: Path) -> None:
    """The workspace is on a small disk of its own, the layer on another one."""
    (mounted := tmp_path / "small").mkdir()
    small = 'mount -t tmpfs -o size=4m none "$1" && mkdir "$1/workspace" && shift && exec "$@"'
    spaces = ("--mount",) if os.geteuid() == 0 else ("--user", "--map-current-user", "--keep-caps", "--mount")
    inside = ["unshare", *spaces, "sh", "-c", small, "sh", str(mounted)]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("NOT TESTED: no disk can be mounted here, in a namespace of its own")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*inside, sys.executable, "-c", FULL_DISK, str(mounted / "workspace")]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-2_000:]
    told = json.loads(done.stdout)
    if told["problem"]:
        pytest.skip(f"NOT TESTED: no trial is possible on a mounted disk: {told['problem']}")
    assert told["effects"] == 6
    assert "the disk is full; nothing was changed" in told["said"]
    assert told["unchanged"]
    assert told["applied"] == ["new1", "new2", "new3", "new4", "old"]


async def test_a_limit_of_file_sizes_that_stops_a_copy_is_recognised(workspace: Path) -> None:
    (workspace / "large").write_bytes(b"x" * 3_000_000)
    layer = layer_over(workspace)
    done = await run(
        ["bash", "-c", "printf y >>large"],
        cwd=workspace,
        env=ENVIRONMENT,
        limits=Resources(file_size=1_000_000),
        confinement=Confinement(workspace=workspace, layers=layer.mounts),
    )
    said = f"{done.output} {done.errors} {done.signal}"
    assert any("limit of file sizes" in reason for reason in layer.effects(said).unsure), said
    layer.discard()


def test_layers_of_killed_processes_are_removed_and_those_that_wait_stay(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    place = find_places([workspace])[0]
    code = (
        "import sys; from pathlib import Path; from forge.workspace.trial import open_layer\n"
        "place, root = map(Path, sys.argv[1:])\n"
        "open_layer(root, [root], 'overlay', place); open_layer(root, [root], 'overlay', place).keep()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(place), str(workspace)], check=True)
    assert len(os.listdir(place)) == 2
    ours = open_layer(workspace, [workspace], "copy", place)
    left = [name for name in os.listdir(place) if not name.startswith("gone-")]
    assert len(left) == 2
    assert ours.id in left
    ours.discard()


def test_a_layer_over_a_folder_with_another_mount_or_owner_is_refused(workspace: Path) -> None:
    found = tier_of(workspace)
    assert found.problem if found.how != "overlay of root" else not found.problem  # the others are not the best
    assert "is mounted at" in tier_of(Path("/dev")).problem or "cannot be confined" in tier_of(Path("/dev")).problem


ELSEWHERE = """
import asyncio, json, sys
from pathlib import Path
from tests.process.trials import kinds, tier_of, try_line

async def main(workspace):
    tier = tier_of(workspace)
    if not tier.how:
        return {"how": "", "problem": tier.problem}
    layer, effects, done = await try_line(workspace, "id -u; echo new >new; rm old")
    untouched = (workspace / "old").exists() and not (workspace / "new").exists()
    layer.apply()
    layer.discard()
    mixed = workspace.parent / "mixed"
    told = {"mixed": tier_of(mixed).how if mixed.exists() else ""}  # a file in it belongs to another user
    return {**told, "how": tier.how, "kinds": kinds(effects), "said": done.output, "untouched": untouched}

print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
"""
ANOTHER_USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
CONTAINER = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc")


@pytest.mark.parametrize(
    "become",
    [ANOTHER_USER, *(pytest.param(one, marks=pytest.mark.slow) for one in (CONTAINER, ANOTHER_USER + CONTAINER))],
)
def test_another_user_and_a_container_have_a_layer_or_say_why_not(tmp_path: Path, become: tuple[str, ...]) -> None:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"HOME": str(folder / "home"), "LANG": "C.UTF-8"}
    python = sys.executable if become == CONTAINER else "/usr/bin/python3"
    workspace = folder / "workspace"
    try:
        workspace.mkdir()
        (workspace / "old").write_text("old")
        (folder / "home").mkdir()
        if become != CONTAINER and os.geteuid() == 0:
            (folder / "mixed").mkdir()
            (folder / "mixed/theirs").touch()
            os.chown(folder / "mixed", 65534, 65534)
            for path in (folder, workspace, workspace / "old", folder / "home"):
                os.chown(path, 65534, 65534)
        able = [*become, python, "-c", "import sys, forge, tests.process.trials; assert sys.version_info >= (3, 11)"]
        if shutil.which(become[0]) is None or subprocess.run(able, env=env, cwd="/", capture_output=True).returncode:
            pytest.skip(f"NOT TESTED: {' '.join(become)} cannot run these tests here")
        done = subprocess.run(
            [*become, python, "-c", ELSEWHERE, str(workspace)], env=env, cwd="/", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        told = json.loads(done.stdout)
        if not told["how"]:
            assert told["problem"]
            return
        assert told["how"] in ("overlay", "fuse-overlayfs", "copy")
        assert told["untouched"]
        assert told["mixed"] == ""  # it asks: no layer of this user can hold the file
        assert told["kinds"] == {"new": "create", "old": "delete"}
        assert told["said"] == ("0\n" if CONTAINER[0] in become else "65534\n")
        assert sorted(os.listdir(workspace)) == [".forge", "new"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_a_gigabyte_is_copied_once(workspace: Path) -> None:
    subprocess.run(["dd", "if=/dev/zero", f"of={workspace}/huge", "bs=1M", "count=1024", "status=none"], check=True)
    layer, effects, done = await try_line(workspace, "for one in 1 2 3; do printf $one >>huge; done")
    assert done.exit_code == 0
    assert effects.notes == ('"huge" (1,073,741,824 bytes) was copied for the trial',)
    layer.apply()
    assert (workspace / "huge").stat().st_size == 1024 * 1024 * 1024 + 3
    layer.discard()
