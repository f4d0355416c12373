"""What a program may not change is as it was when the program has ended, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from forge.core.context import Scope
from forge.process.sandbox import Confinement, Tier
from forge.process.sandbox.layout import confinement_of
from forge.process.sandbox.restore_files import restore_protected, take_snapshot, watch_protected_files
from forge.workspace.paths import PathValidator
from tests.process.attacks import needs, run


@pytest.fixture(params=[Tier.BUBBLEWRAP, Tier.LANDLOCK])
def tier(request) -> Tier:
    return needs(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    made.mkdir()
    return made


@pytest.fixture
def repository(workspace: Path) -> Path:
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    return workspace


def sh(line: str, workspace: Path, tier: Tier, **how: object) -> list[str]:
    confinement = Confinement(workspace=workspace, **how)  # type: ignore[arg-type]
    before = take_snapshot(confinement)
    run(["bash", "-c", line], confinement, tier)
    return restore_protected(before)


EVIL = "[core]\n\tfsmonitor = evil\n"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (".git/config", f"printf '{EVIL}' >.git/config"),
        (".git/config", "rm .git/config"),
        (".git/config", "ln -sf ../evil .git/config"),
        (".git/commondir", "echo ../evil >.git/commondir"),
        (".git/hooks/post-checkout", "echo evil >.git/hooks/post-checkout; chmod +x .git/hooks/post-checkout"),
        (".git/hooks/pre-commit", "echo evil >.git/hooks/pre-commit"),
        ("forge.yaml", "echo evil >forge.yaml"),
        ("forge.yml", "echo evil >forge.yml"),
        ("deep/tools.py", "echo evil >deep/tools.py"),
        ("skills/tight/SKILL.md", "echo evil >skills/tight/SKILL.md"),
        ("skills/tight/SKILL.md", "rm -f skills/tight/SKILL.md"),
        ("skills/flat.md", "echo evil >skills/flat.md"),
    ],
)
def test_it_is_as_it_was(name: str, line: str, repository: Path, tier: Tier):
    (repository / ".git/hooks/pre-commit").write_text("exit 0\n")
    (repository / "forge.yml").write_text("mine\n")
    (repository / "deep").mkdir()
    (repository / "deep/tools.py").write_text("mine\n")
    (repository / "skills/tight").mkdir(parents=True)
    (repository / "skills/tight/SKILL.md").write_text("mine\n")
    (repository / "skills/flat.md").write_text("mine\n")
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    said = sh(line, repository, tier, protected=(repository / "deep/tools.py",))
    after = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file() and path.suffix != ".rejected"}
    assert after == before
    assert not os.path.lexists(repository / name) or (repository / name).is_file()
    if tier is Tier.LANDLOCK:
        assert said
        assert all(name in words for words in said)


HOOKS = {
    "change one": "echo evil >.config/hooks/pre-commit",
    "add one": "echo evil >.config/hooks/pre-push",
    "move the folder away": "mv .config/hooks old; mkdir -p .config/hooks; echo evil >.config/hooks/pre-commit",
    "move the folder around it away": "mv .config old; mkdir -p .config/hooks; echo evil >.config/hooks/pre-commit",
}


@pytest.mark.parametrize("line", HOOKS.values(), ids=HOOKS)
def test_hooks_in_a_folder_that_the_settings_name_are_as_they_were(line: str, repository: Path, tier: Tier):
    hooks = repository / ".config/hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("exit 0\n")
    subprocess.run(["git", "config", "core.hooksPath", ".config/hooks"], cwd=repository, check=True)
    watched_sh(f"{line}; echo x >.config/free", repository, tier)
    assert {path.name: path.read_text() for path in hooks.glob("*") if path.suffix != ".rejected"} == {
        "pre-commit": "exit 0\n"
    }


def test_a_folder_that_no_settings_name_is_free(repository: Path, tier: Tier):
    (repository / ".config/hooks").mkdir(parents=True)
    watched_sh("; ".join(HOOKS.values()), repository, tier)
    assert (repository / ".config/hooks/pre-commit").read_text() == "evil\n"


def test_hooks_in_a_named_folder_that_was_not_there_are_set_aside(repository: Path, tier: Tier):
    subprocess.run(["git", "config", "core.hooksPath", ".husky/_"], cwd=repository, check=True)
    line = "mkdir -p .husky/_; echo evil >.husky/_/pre-commit; echo evil >.husky/pre-commit; echo x >free"
    assert len(watched_sh(line, repository, tier)) == 2
    assert not (repository / ".husky/_/pre-commit").exists()
    assert not (repository / ".husky/pre-commit").exists()
    assert (repository / ".husky/pre-commit.rejected").read_text() == "evil\n"
    assert (repository / "free").exists()


def test_a_link_to_hooks_leads_to_no_others_afterwards(repository: Path, tier: Tier):
    (repository / "real").mkdir()
    (repository / "real/pre-commit").write_text("exit 0\n")
    (repository / ".husky").symlink_to("real")
    subprocess.run(["git", "config", "core.hooksPath", ".husky"], cwd=repository, check=True)
    watched_sh("echo evil >.husky/pre-commit; rm .husky; mkdir .husky; echo evil >.husky/pre-push", repository, tier)
    assert (repository / "real/pre-commit").read_text() == "exit 0\n"
    assert not (repository / ".husky/pre-push").exists()


def watched_sh(line: str, workspace: Path, tier: Tier, protected: tuple[Path, ...] = ()) -> list[str]:
    """As programs are really run: what bubblewrap prevents is not looked at again."""
    confinement = Confinement(workspace=workspace, protected=protected)
    settle = watch_protected_files(confinement, str(tier))
    run(["bash", "-c", line], confinement, tier)
    return settle()


@pytest.mark.parametrize("many", [1, 120])
def test_skills_cannot_be_moved_away_and_what_lies_beside_them_is_free(workspace: Path, many: int):
    needs(Tier.BUBBLEWRAP)
    for number in range(many):
        folder = workspace / f"skills/s{number}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("mine\n")
    sh(
        "mv skills elsewhere; mv skills/s0 skills/other; rm -r skills/s0; echo x >skills/s0/new",
        workspace,
        Tier.BUBBLEWRAP,
    )
    assert (workspace / "skills/s0/SKILL.md").read_text() == "mine\n"
    assert (workspace / "skills/s0/new").exists() is (many == 1)


def test_what_was_written_is_set_aside_and_cannot_run(repository: Path):
    needs(Tier.LANDLOCK)
    sh("echo evil >.git/hooks/post-checkout; chmod +x .git/hooks/post-checkout", repository, Tier.LANDLOCK)
    aside = repository / ".git/hooks/post-checkout.rejected"
    assert aside.read_text() == "evil\n"
    assert aside.stat().st_mode & 0o777 == 0o600


def test_nothing_is_said_of_work_that_may_be_done(repository: Path, tier: Tier):
    who = "-c user.name=x -c user.email=x@example.com"
    assert (
        sh(f"echo x >a && git add a && git {who} commit -qm x && mkdir d && echo y >d/forge.yaml", repository, tier)
        == []
    )
    assert (repository / "d/forge.yaml").exists()


def test_a_new_repository_stays(workspace: Path, tier: Tier):
    remote = "git remote add origin https://example.com/x.git"
    assert sh(f"git init -q . && git config user.name x && {remote} && echo x >a && git add a", workspace, tier) == []
    assert (workspace / ".git/index").exists()
    assert "example.com" in (workspace / ".git/config").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "git init -q . && git config core.fsmonitor evil",
        "git init -q . && git config core.hooksPath evil",
        "git init -q . && git config alias.status '!evil'",
        "git init -q . && git config include.path ../evil",
        "git init -q . && git config filter.x.smudge evil",
        "git init -q . && printf '[core]\\n\\teditor = x\\n' >>.git/config",
        "git init -q . && printf '[core] fsmonitor = x\\n' >>.git/config",
        "git init -q . && printf '[user]\\n\\tname = a\\\\\\n\\n[core]\\nfsmonitor=x' >>.git/config",
    ],
)
def test_a_new_repository_loses_settings_that_name_programs(line: str, workspace: Path, tier: Tier):
    assert ".git/config must not be changed" in sh(line, workspace, tier)[0]
    assert not (workspace / ".git/config").exists()
    assert (workspace / ".git/HEAD").exists()


def test_a_new_pointer_to_a_repository_is_set_aside(workspace: Path, tier: Tier):
    sh("mkdir evil && echo 'gitdir: evil' >.git", workspace, tier)
    assert not (workspace / ".git").exists()
    assert (workspace / ".git.rejected").exists()


def test_a_link_that_a_program_laid_is_not_followed(repository: Path, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "hooks").mkdir(parents=True)
    (elsewhere / "config").write_text("of another\n")
    (elsewhere / "hooks/post-checkout").write_text("of another\n")
    before = take_snapshot(Confinement(workspace=repository))
    (repository / ".git").rename(repository / "old")
    (repository / ".git").symlink_to(elsewhere)
    restore_protected(before)
    assert (elsewhere / "config").read_text() == "of another\n"
    assert sorted(os.listdir(elsewhere)) == ["config", "hooks"]
    assert os.listdir(elsewhere / "hooks") == ["post-checkout"]


def test_a_workspace_that_is_read_only_has_nothing_to_put_back(repository: Path):
    before = take_snapshot(Confinement(workspace=repository, readable=(repository,)))
    assert before.files == {}
    assert restore_protected(before) == []


def test_skills_in_a_folder_of_another_name_are_protected_too(tmp_path: Path) -> None:
    (tmp_path / "know/tight").mkdir(parents=True)
    for name in ("know/tight/SKILL.md", "know/flat.md", "know/tight/notes.md", "know/run.py"):
        (tmp_path / name).write_text("mine\n")
    named = Scope(workspace=tmp_path, skills=("skills", "know", "not/there"))
    found = confinement_of(named, PathValidator.of(named)).protected
    assert set(found) == {tmp_path / "know/tight/SKILL.md", tmp_path / "know/flat.md"}
    unnamed = Scope(workspace=tmp_path)
    assert confinement_of(unnamed, PathValidator.of(unnamed)).protected == ()


MOVES = {
    "move": "mv {top} zz; mkdir -p {folder}; echo evil >{path}",
    "remove": "rm -rf {top}; mkdir -p {folder}; echo evil >{path}",
    "link": "mkdir -p other/$(dirname {below}); echo evil >other/{below}; mv {top} zz; ln -s other {top}",
    "write": "echo evil >{path}",
    "a folder in the way": "mkdir {path}.rejected; touch {path}.rejected/x; echo evil >{path}",
}


@pytest.mark.parametrize("line", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("path", ["checks/guard.py", "a/b/guard.py", "tools/hooks/check.py", "skills/x/lib/guard.py"])
def test_a_protected_file_is_as_it_was_when_its_folders_are_moved(line: str, path: str, workspace: Path, tier: Tier):
    file = workspace / path
    file.parent.mkdir(parents=True)
    file.write_text("mine\n")
    (workspace / "skills/x").mkdir(parents=True, exist_ok=True)
    (workspace / "skills/x/SKILL.md").write_text("mine\n")
    top, _, below = path.partition("/")
    line = line.format(top=top, below=below, path=path, folder=os.path.dirname(path))
    free = f"echo x >{os.path.dirname(path)}/free; mkdir -p {top}/new; mv {top}/new {top}/newer"
    watched_sh(f"{free}; {line}; echo evil >skills/x/SKILL.md", workspace, tier, (file,))
    assert file.read_text() == "mine\n"
    assert (workspace / "skills/x/SKILL.md").read_text() == "mine\n"
    if line.startswith("echo"):
        assert (file.parent / "free").exists()
        assert (workspace / top / "newer").exists()


LINKED = {
    "write": "echo evil >real/check.py",
    "write through it": "echo evil >hooks/check.py",
    "replace it": "rm hooks; mkdir hooks; echo evil >hooks/check.py",
    "lead it elsewhere": "mkdir other; echo evil >other/check.py; ln -sfn other hooks",
    "move the target": "mv real zz; mkdir real; echo evil >real/check.py",
    "add a module": "mkdir real/json; echo evil >real/json/__init__.py",
    "change a module": "echo evil >real/pkg/a.py",
}


@pytest.mark.parametrize("line", LINKED.values(), ids=LINKED)
def test_a_link_to_a_protected_folder_and_what_it_leads_to_are_as_they_were(line: str, workspace: Path, tier: Tier):
    (workspace / "real/pkg").mkdir(parents=True)
    (workspace / "real/check.py").write_text("mine\n")
    (workspace / "real/pkg/a.py").write_text("mine\n")
    (workspace / "hooks").symlink_to("real")
    watched_sh(f"{line}; echo x >free", workspace, tier, (workspace / "hooks",))
    assert (workspace / "hooks").readlink() == Path("real")
    found = {str(one.relative_to(workspace)) for one in (workspace / "real").rglob("*.py") if ".rej" not in str(one)}
    assert found == {"real/check.py", "real/pkg/a.py"}
    assert {(workspace / one).read_text() for one in found} == {"mine\n"}
    assert (workspace / "free").exists()


def test_a_link_where_a_protected_file_was_missing_is_set_aside(workspace: Path, tier: Tier):
    line = "mkdir other; echo evil >other/guard.py; ln -s other checks; ln -s other free"
    watched_sh(line, workspace, tier, (workspace / "checks/guard.py",))
    assert not (workspace / "checks/guard.py").exists()
    assert (workspace / "free/guard.py").exists()


def test_a_link_does_not_show_the_state_of_forge(workspace: Path):
    needs(Tier.BUBBLEWRAP)
    (workspace / ".forge").mkdir()
    (workspace / ".forge/secret").write_text("s")
    (workspace / "hooks").symlink_to(".forge")
    watched_sh("cat hooks/secret .forge/secret >seen; echo x >free", workspace, Tier.BUBBLEWRAP, (workspace / "hooks",))
    assert (workspace / "seen").read_text() == ""
    assert (workspace / "free").exists()
