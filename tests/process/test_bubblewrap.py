"""What bubblewrap adds: nothing else exists, Git's hooks and Forge's files stay as they are, nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from forge.process.running.run import run as run_program
from forge.process.sandbox import Confinement, Tier, bubblewrap, confine_command, layout
from tests.patience import longer
from tests.process.attacks import REACHED, needs, run
from tests.process.planting import until


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    needs(Tier.BUBBLEWRAP)
    made = tmp_path / "workspace"
    made.mkdir()
    return made


@pytest.fixture
def repository(workspace: Path) -> Path:
    for argv in (
        ["git", "init", "-q", "."],
        ["git", "config", "user.name", "x"],
        ["git", "config", "user.email", "x@y"],
    ):
        subprocess.run(argv, cwd=workspace, check=True)
    return workspace


def sh(line: str, workspace: Path, env: dict[str, str] | None = None, **how: object) -> str:
    """What the line says, and REACHED if its last command succeeded."""
    confinement = Confinement(workspace=workspace, **how)  # type: ignore[arg-type]
    told = run(["bash", "-c", f"{line} && echo {REACHED}"], confinement, Tier.BUBBLEWRAP, env)
    return told.stdout + told.stderr


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


ON_GIT = [
    "echo evil >.git/hooks/post-checkout",
    "ln -s /bin/sh .git/hooks/post-checkout",
    "mv .git/hooks .git/old",
    "rm -rf .git/hooks",
    "echo evil >>.git/config",
    "git config core.fsmonitor evil",
    "cp .git/config c && mv c .git/config",
    "ln -sf ../evil .git/config",
    "mv .git away",
    "mv .git away && mkdir -p .git/hooks && echo evil >.git/hooks/post-checkout",
    "chmod +x .git/hooks",
    "mount --bind . .git",
    "umount .git/hooks",
]


@pytest.mark.parametrize("line", ON_GIT)
def test_hooks_and_settings_of_git_stay_as_they_are(line: str, repository: Path):
    before = snapshot(repository / ".git")
    assert REACHED not in sh(line, repository)
    assert snapshot(repository / ".git") == before


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Their settings of Git, outside of what a program sees."""
    home = tmp_path / "home"
    home.mkdir()
    settings = home / ".gitconfig"
    settings.write_text(
        '[user]\n\tname = Jo \\"J\\" Doe\n\temail = jo@example.com\n[credential]\n\thelper = "!secret"\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return settings


def test_commits_are_made_in_the_name_of_the_person(person: Path, workspace: Path):
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    told = sh("git commit -q --allow-empty -m x && git log --format='%an <%ae>'; git config --list", workspace)
    assert 'Jo "J" Doe <jo@example.com>' in told
    assert "secret" not in told


def test_a_repository_may_have_another_name(person: Path, repository: Path):
    assert "\nx <x@y>" in "\n" + sh("git commit -q --allow-empty -m x && git log --format='%an <%ae>'", repository)


def test_without_a_name_git_asks_for_one_and_nothing_is_open_to_the_program(person: Path, workspace: Path):
    person.write_text("")
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    assert "tell me who you are" in sh("git commit -q --allow-empty -m x", workspace)
    assert "descriptors 0 1 2 3" in sh("echo descriptors $(ls /proc/self/fd)", workspace)


def test_what_is_forges_is_in_no_commit(repository: Path):
    state = repository / ".forge"
    (state / "spill").mkdir(parents=True)
    (state / "spill" / "long.txt").write_text("long")
    assert ".forge/spill/long.txt" in sh("git add --all --dry-run", repository)
    (state / ".gitignore").write_text("*\n")
    assert ".forge" not in sh("git add --all --dry-run", repository)


def test_git_works(repository: Path):
    line = "echo x >file && git add file && git commit -qm first && git checkout -qb other && git log --oneline"
    assert REACHED in sh(line, repository)
    log = subprocess.run(["git", "log", "--format=%s"], cwd=repository, capture_output=True, text=True, check=True)
    assert log.stdout == "first\n"


def test_hooks_and_settings_that_are_missing_cannot_be_made(repository: Path):
    (repository / ".git/config").unlink()
    for hook in (repository / ".git/hooks").iterdir():
        hook.unlink()
    (repository / ".git/hooks").rmdir()
    for line in ("echo evil >.git/config", "mkdir -p .git/hooks; echo evil >.git/hooks/post-checkout"):
        assert REACHED not in sh(line, repository)
    assert (repository / ".git/config").read_bytes() == b""
    assert list((repository / ".git/hooks").iterdir()) == []


def test_submodules_and_work_trees_keep_their_settings(repository: Path):
    for name in ("modules/one", "worktrees/two"):
        (repository / ".git" / name).mkdir(parents=True)
    before = snapshot(repository / ".git")
    for name in ("modules/one/config", "worktrees/two/commondir"):
        assert REACHED not in sh(f"echo evil >.git/{name}", repository)
    assert snapshot(repository / ".git") == before


def test_a_work_tree_of_another_repository_cannot_be_pointed_elsewhere(workspace: Path):
    (workspace / ".git").write_text("gitdir: /somewhere\n")
    assert REACHED not in sh("echo gitdir: evil >.git", workspace)
    assert REACHED not in sh("rm .git", workspace)
    assert (workspace / ".git").read_text() == "gitdir: /somewhere\n"


@pytest.mark.parametrize("name", [".git", "forge.yaml", ".forge", ".git/hooks"])
def test_a_link_in_the_place_of_something_protected_brings_nothing_in(name: str, workspace: Path, tmp_path: Path):
    secret = tmp_path / "private"
    secret.mkdir()
    (secret / "HEAD").write_text("planted")
    place = workspace / name
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(secret)
    assert "planted" not in sh(f"cat {name}/HEAD {name}/config", workspace)
    (tmp_path / "private2").write_text("planted")
    place.unlink()
    place.symlink_to(tmp_path / "private2")
    assert "planted" not in sh(f"cat {name}", workspace)


@pytest.mark.parametrize("name", ["forge.yaml", "forge.yml", "deep/tools.yaml"])
def test_configuration_is_read_only(name: str, workspace: Path):
    path = workspace / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine: true\n")
    for line in (f"echo evil >{name}", f"rm {name}", f"mv {name} x", f"echo evil >x; mv x {name}", f"ln -sf x {name}"):
        assert REACHED not in sh(line, workspace, protected=(workspace / "deep/tools.yaml",)), line
    assert path.read_text() == "mine: true\n"
    assert "mine: true" in sh(f"cat {name}", workspace)
    assert REACHED in sh("echo fine >other.yaml", workspace)


def test_the_state_of_forge_is_not_there_but_for_what_it_made_for_the_model(workspace: Path):
    state = workspace / ".forge"
    for name in ("files/report.md", "spill/long.txt", "memory/notes.md", "state.db"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(name)
    assert sh("ls .forge", workspace).split() == ["files", "spill", REACHED]
    for line in (
        "cat .forge/state.db",
        "echo evil >.forge/policy",
        "echo evil >.forge/spill/x",
        "rm -rf .forge",
        "mv .forge x",
    ):
        assert REACHED not in sh(line, workspace), line
    assert REACHED in sh("cat .forge/spill/long.txt; echo x >.forge/files/new.md", workspace)
    assert (state / "state.db").read_text() == "state.db"
    assert (state / "memory/notes.md").exists()


def test_what_forge_itself_runs_from_is_read_only_inside_a_workspace(workspace: Path, monkeypatch):
    library = workspace / ".venv/lib"
    library.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(workspace / ".venv"))
    assert REACHED not in sh("echo evil >.venv/lib/forge.py", workspace)
    assert REACHED not in sh("mv .venv x", workspace)
    assert list(library.iterdir()) == []
    assert REACHED in sh("mkdir venv && echo fine >venv/x", workspace)


def test_this_python_runs_in_the_sandbox(workspace: Path):
    assert "42" in sh(f"'{sys.executable}' -c 'import json, ssl; print(6 * 7)'", workspace)


def test_homes_other_projects_and_data_of_the_system_do_not_exist(workspace: Path, tmp_path: Path):
    (tmp_path / "other-project").mkdir()
    listing = sh(f"ls -A {tmp_path} /home /root /var /run /srv /mnt /boot /media 2>&1; true", workspace)
    assert "other-project" not in listing
    assert "workspace" in listing
    visible = sh(
        "find / -xdev -maxdepth 3 -name '.ssh' -o -name 'shadow' -o -name '*.sock' 2>/dev/null; true", workspace
    )
    assert visible.strip() == REACHED
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / ".netrc").write_text("planted")
    layout._program_folders.cache_clear()
    assert "planted" not in sh(f"cat {home}/.netrc", workspace, {"PATH": f"{home}/bin:{os.environ['PATH']}"})


def test_programs_on_the_path_are_there_and_read_only(workspace: Path, tmp_path: Path):
    folder = tmp_path / "tools/bin"
    (tmp_path / "tools/lib").mkdir(parents=True)
    folder.mkdir()
    (tmp_path / "tools/lib/text").write_text("from the library\n")
    (tmp_path / "tools/secret").write_text("planted")
    (folder / "own-program").write_text('#!/bin/sh\ncat "$(dirname "$0")/../lib/text"\n')
    (folder / "own-program").chmod(0o755)
    env = {"PATH": f"{folder}:{os.defpath}"}
    assert "from the library" in sh("own-program", workspace, env)
    assert REACHED not in sh(f"echo evil >{folder}/own-program", workspace, env)
    assert "planted" not in sh(f"cat {tmp_path}/tools/secret", workspace, env)


def test_what_lies_beside_a_folder_of_programs_at_home_stays_hidden(workspace: Path, tmp_path: Path, monkeypatch):
    home = tmp_path / "home"
    for name in ("bin", "lib", ".local/bin", ".local/lib", ".local/share"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text(f"in {name}\n")
    monkeypatch.setenv("HOME", str(home))
    layout._program_folders.cache_clear()
    env = {"PATH": f"{home}/bin:{home}/.local/bin:{home}:{os.defpath}"}
    said = sh(f"cat {home}/*/file {home}/.local/*/file", workspace, env)
    layout._program_folders.cache_clear()
    assert said.splitlines() == ["in bin", "in .local/bin", "in .local/lib", REACHED]


def test_tmp_is_its_own_and_does_not_hide_a_workspace_inside_it(tmp_path: Path):
    needs(Tier.BUBBLEWRAP)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, tempfile.NamedTemporaryFile(dir="/tmp") as other:
        said = sh(f"echo x >/tmp/left && echo x >{folder}/new && ls /tmp /var/tmp", Path(folder))
        assert REACHED in said
        assert Path(other.name).name not in said
        assert not Path("/tmp/left").exists()
        assert Path(folder, "new").exists()


def test_only_its_own_processes_exist(workspace: Path):
    assert int(sh("ls -d /proc/[0-9]* | wc -l", workspace).split()[0]) < 8


def test_nothing_outlives_the_command(workspace: Path):
    mark = f"forge-left-{os.getpid()}"
    sh(f"(setsid bash -c 'exec -a {mark} sleep 50' >/dev/null 2>&1 &)", workspace)
    assert until(lambda: not running(mark))  # the kernel ends them in the moment in which the command ends


def test_it_dies_with_its_parent(workspace: Path):
    mark = f"forge-orphan-{os.getpid()}"
    env = {"PATH": os.defpath}
    argv = confine_command(
        ["bash", "-c", f"echo up; exec -a {mark} sleep 50"], Confinement(workspace=workspace), Tier.BUBBLEWRAP, env
    )
    code = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); p.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *argv], env=env, cwd=workspace, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        parent.kill()
        assert parent.stdout.read() == b""  # the last of its tree is gone
    assert not running(mark)


def test_a_request_to_end_reaches_the_program_which_may_tidy_up(workspace: Path):
    env = {"PATH": os.defpath}
    line = "trap 'echo tidied; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    argv = confine_command(["bash", "-c", line], Confinement(workspace=workspace), Tier.BUBBLEWRAP, env)
    with subprocess.Popen(argv, env=env, cwd=workspace, stdout=subprocess.PIPE, start_new_session=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"up\n"
        os.killpg(started.pid, signal.SIGTERM)
        assert started.stdout.read() == b"tidied\n"
    assert started.returncode == 3


def test_a_program_that_does_not_tidy_up_ends_at_the_request(workspace: Path):
    env = {"PATH": os.defpath}
    argv = confine_command(
        ["bash", "-c", "echo up; exec sleep 50"], Confinement(workspace=workspace), Tier.BUBBLEWRAP, env
    )
    with subprocess.Popen(argv, env=env, cwd=workspace, stdout=subprocess.PIPE, start_new_session=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"up\n"
        os.killpg(started.pid, signal.SIGTERM)
    assert started.returncode == 128 + signal.SIGTERM


def test_it_needs_no_newer_env_than_there_is(workspace: Path, monkeypatch):
    monkeypatch.setattr(bubblewrap, "_can_reset_signals", lambda: False)
    assert REACHED in sh("true", workspace)


def test_a_machine_whose_system_calls_are_not_known_has_no_filter(workspace: Path, monkeypatch):
    monkeypatch.setattr(bubblewrap, "_filter", lambda **_: b"")
    words = confine_command(["true"], Confinement(workspace=workspace), Tier.BUBBLEWRAP, {})
    assert "--seccomp" not in words
    assert REACHED in sh("true", workspace)


def test_bubblewrap_is_never_one_that_a_program_could_have_written(workspace: Path, monkeypatch):
    fake = workspace / "bwrap"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace}{os.pathsep}{os.environ['PATH']}")
    words = confine_command(["true"], Confinement(workspace=workspace), Tier.BUBBLEWRAP, {})
    assert str(fake) not in words


def running(mark: str) -> bool:
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")[0]:
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("line", ["trap 'echo tidied; exit 3' TERM; echo up; while :; do sleep 0.05; done", "sleep 50"])
async def test_a_program_hears_the_request_to_end_before_it_is_killed(workspace: Path, line: str):
    env = {"PATH": os.defpath}
    confinement = Confinement(workspace=workspace)
    argv = ["bash", "-c", line]
    for seconds in longer(0.5):
        finished = await run_program(
            argv, cwd=workspace, env=env, timeout=seconds, confinement=replace(confinement, sandbox="bubblewrap")
        )
        if finished.exit_code in (3, 143):
            break
    assert finished.timed_out
    # killed, it would have another exit code
    assert (finished.output, finished.exit_code) == (("up\ntidied\n", 3) if "trap" in line else ("", 143))


async def test_a_program_finds_nothing_open_but_its_three_streams(workspace: Path):
    env = {"PATH": os.defpath}
    line = "for one in /proc/self/fd/*; do echo ${one##*/}; done"
    confinement = Confinement(workspace=workspace)
    finished = await run_program(
        ["bash", "-c", line], cwd=workspace, env=env, confinement=replace(confinement, sandbox="bubblewrap")
    )
    assert finished.output.split()[:3] == ["0", "1", "2"]
    assert not set("6789") & set(finished.output.split())


async def test_what_is_orphaned_and_ends_is_buried_at_once(workspace: Path):
    line = "(true & true & true &); sleep 0.5; grep -l 'State:.Z' /proc/[0-9]*/status; echo no more"
    finished = await run_program(
        ["bash", "-c", line],
        cwd=workspace,
        env={"PATH": os.defpath},
        confinement=Confinement(workspace=workspace, sandbox="bubblewrap"),
    )
    assert finished.output == "no more\n"
