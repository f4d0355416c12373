"""A line that is allowed because it only reads runs where it can do nothing else, so a wrong verdict does no harm."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.core.context import Root, Scope
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.permissions.policy import TrialMode, rules
from forge.pipeline import standard_executor
from forge.process.sandbox import Tier
from forge.tools.bash import Bash, guard
from scores.shell import run_lines
from tests.permissions.shell_lines import EVERYDAY, TRICKY
from tests.process.attacks import TIERS, needs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes exist on Linux only")

MODE = 0o644


@pytest.fixture(params=TIERS)
def tier(request) -> Tier:
    return needs(request.param)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with a file to change, one to hide and a repository."""
    made = tmp_path / "workspace"
    for folder in (made / "secrets", made / "deep/er", tmp_path / "root"):
        folder.mkdir(parents=True)
    for name in ("keep", "secrets/key", "deep/er/token", "open"):
        (made / name).write_text(f"text of {name}\n")
        (made / name).chmod(MODE)
    subprocess.run(["git", "init", "-q", "."], cwd=made, check=True)
    return made


@pytest.fixture
def wrong(monkeypatch):
    """Every line passes for one that only reads."""
    monkeypatch.setattr(guard, "only_reads", lambda *_: [])


def call(
    place: Path,
    tier: Tier | str,
    line: str,
    *policy: str,
    roots: tuple[Root, ...] = (),
    trial: TrialMode = "auto",
    **more: Any,
) -> ToolResult:
    executor = standard_executor([Bash(sandbox=str(tier), **more)], policy=rules(*policy), trial=trial)
    scope = Scope(session_id=f"reading {place}", workspace=place, roots=roots)
    return asyncio.run(executor.execute(ToolCall("bash", {"command": line}), scope))


def states(place: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for folder, _, names in os.walk(place.parent):
        for name in names:
            path = Path(folder, name)
            status = path.lstat()
            found[str(path)] = (status.st_mode, status.st_mtime_ns, path.read_bytes())
    return found


WRITES = (
    "echo x >made",
    "echo x >>keep",
    "rm -f keep",
    "mv keep moved",
    "mkdir -p made/below && touch made/below/file",
    "chmod 777 keep",
    "touch -d 2001-01-01 keep",
    "ln keep second",
    "git config user.name changed",
    "echo x >.git/hooks/pre-commit",
    "echo x >../root/made",
    f'{sys.executable} -c \'import os; os.setxattr("keep", "user.x", b"x")\'',
)


@pytest.mark.parametrize("line", WRITES)
def test_a_line_that_writes_changes_nothing(place: Path, tier: Tier, wrong: None, line: str):
    before, roots = states(place), (Root(place.parent / "root", writable=True),)
    result = call(place, tier, f"{line}; echo ran", roots=roots)
    assert "ran" in result.for_llm  # it was not asked about: the verdict let it through
    assert states(place) == before


@pytest.mark.parametrize("line", [line for line in WRITES if "hooks" not in line and "config" not in line])
def test_the_same_line_writes_where_it_may_be_executed(place: Path, tier: Tier, wrong: None, line: str):
    before, roots = states(place), (Root(place.parent / "root", writable=True),)
    result = call(place, tier, f"{line} && echo ran", "allow execute", roots=roots)
    if "setxattr" in line:
        return  # not every file system has attributes
    assert "ran" in result.for_llm
    assert states(place) != before or "mkdir" in line


def test_what_may_not_be_read_is_not_there(place: Path, wrong: None):
    tier = needs(Tier.BUBBLEWRAP)
    (place / "way").symlink_to("secrets/key")
    denied = ("deny read secrets/key", "deny read token", "deny read /etc/passwd", "deny read not/there")
    line = "cat keep; cat secrets/key; cat way; cat deep/er/token; cat /etc/passwd; cat <deep/er/token; ls deep"
    result = call(place, tier, line, "allow read", *denied)
    assert result.for_llm.splitlines()[0] == "text of keep"
    assert "text of secrets" not in result.for_llm
    assert "text of deep" not in result.for_llm
    assert "root:" not in result.for_llm
    assert result.for_llm.count("Permission denied") == 5
    seen = call(place, tier, line, "allow read")
    assert "text of secrets" in seen.for_llm
    assert "text of deep" in seen.for_llm


def test_a_directory_that_may_not_be_read_is_closed(place: Path, wrong: None):
    tier = needs(Tier.BUBBLEWRAP)
    result = call(place, tier, "cat open; cat secrets/key; ls secrets", "deny read SECRETS/")
    assert "text of open" in result.for_llm
    assert "text of secrets" not in result.for_llm
    assert "key\n" not in result.for_llm


@pytest.mark.parametrize("denied", ["secret*/key", "**/*.pem"])
def test_with_a_pattern_that_denies_only_plain_lines_run_unasked(place: Path, tier: Tier, denied: str):
    policy = ("allow read", f"deny read {denied}")
    assert "needs a person's approval" in call(place, tier, "git status", *policy).for_llm
    assert "needs a person's approval" in call(place, tier, "cat open | sort", *policy, trial="off").for_llm
    assert "text of secrets/key" not in call(place, tier, "cat secrets/key | sort", "deny read secret*/key").for_llm
    assert call(place, tier, "cat open", *policy).for_llm == "text of open"
    assert "On branch" in call(place, tier, "git status", "allow read").for_llm


def test_landlock_hides_nothing_so_a_line_asks_where_anything_is_denied(place: Path):
    tier = needs(Tier.LANDLOCK)
    refused = call(place, tier, "cat open | sort", "allow read", "deny read secrets/key")
    assert "needs a person's approval" in refused.for_llm
    assert call(place, tier, "cat open | sort", "allow read", "deny write secrets/key").for_llm == "text of open"


def test_a_policy_that_is_a_function_cannot_be_hidden_from(place: Path, tier: Tier):
    from forge.permissions.policy import Decision
    from forge.permissions.questions import PermissionRequest

    def policy(request: PermissionRequest) -> Decision:
        return Decision.ALLOW if request.permission == "read" else Decision.ASK

    executor = standard_executor([Bash(sandbox=str(tier))], policy=policy)
    for line, runs in (("cat open", True), ("git status", False)):
        result = asyncio.run(executor.execute(ToolCall("bash", {"command": line}), Scope(workspace=place)))
        assert ("needs a person's approval" not in result.for_llm) is runs


def test_there_is_no_network_even_where_the_tool_has_it(place: Path, tier: Tier, wrong: None):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('REACH' + 'ED')"
        line = f'{sys.executable} -c "{code}"'
        assert "REACHED" not in call(place, tier, line, "allow read", "allow network", network=True).for_llm
        assert "REACHED" in call(place, tier, line, "allow execute", network=True).for_llm


def test_a_socket_in_the_workspace_leads_to_no_program_outside(place: Path, wrong: None):
    tier = needs(Tier.BUBBLEWRAP)  # under Landlock there are no Unix sockets at all
    code = "import socket; socket.socket(socket.AF_UNIX).connect('door'); print('REACH' + 'ED')"
    line = f'{sys.executable} -c "{code}"'
    here = os.open(place, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{here}/door")  # a long path would not fit into an address
        server.listen()
        os.close(here)
        assert "REACHED" not in call(place, tier, line).for_llm
        assert "REACHED" in call(place, tier, line, "allow execute").for_llm


COMMITTED = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("git show HEAD:secrets/key", False),
        ("git --no-pager show", False),
        ("timeout 5 git cat-file -p HEAD:secrets/key", False),
        ("ls; git log -p", False),
        ("git log -u", False),
        ("git grep text HEAD", False),
        ("git diff --cached", False),
        ("git status -sv", False),
        ("git log -p -- '*'", False),
        ("git log -p --follow -- open", False),
        ("git log -p -- open", True),
        ("git diff HEAD -- open", True),
        ("git blame open", True),
        ("git log --oneline --stat -3", True),
        ("git status --short", True),
        ("git ls-files", True),
    ],
)
def test_earlier_versions_of_a_denied_file_are_not_shown_unasked(place: Path, line: str, runs: bool):
    tier = needs(Tier.BUBBLEWRAP)
    (place / "*").write_text("a name that is a pattern\n")
    subprocess.run(["git", "add", "."], cwd=place, check=True)
    subprocess.run(COMMITTED, cwd=place, check=True)
    result = call(place, tier, line, "allow read", "deny read secrets/key")
    assert ("needs a person's approval" not in result.for_llm) is runs, result.for_llm
    assert "text of secrets/key" not in result.for_llm
    assert "needs a person's approval" not in call(place, tier, line, "allow read").for_llm


def test_nothing_in_the_environment_names_a_program(place: Path, tier: Tier, wrong: None, monkeypatch):
    evil = place / "evil.sh"
    evil.write_text("echo EVIL\n")
    passed = {
        "BASH_ENV": str(evil),
        "LD_PRELOAD": "/no/such.so",
        "PYTHONPATH": str(place),
        "GIT_EXTERNAL_DIFF": str(evil),
    }
    for name, value in passed.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{place}:relative:{os.environ['PATH']}")
    line = 'env; echo "path: $PATH"; ls -A "$HOME"; echo "home: $?"'
    said = call(place, tier, line, env_passthrough=list(passed)).for_llm
    names = {one.partition("=")[0] for one in said.splitlines() if "=" in one}
    assert not names & {*passed, "VIRTUAL_ENV", "ENV", "PERL5LIB"}
    assert "EVIL" not in said
    path = next(one for one in said.splitlines() if one.startswith("path: "))
    assert str(place) not in path
    assert "relative" not in path
    assert said.endswith("home: 0")
    assert "EVIL" in call(place, tier, line, "allow execute", env_passthrough=list(passed)).for_llm


@pytest.mark.parametrize("line", ["git status", "git diff", "git log"])
def test_programs_that_a_clone_names_do_not_run(place: Path, tier: Tier, wrong: None, line: str):
    for file in (".git/config", ".gitconfig"):
        with open(place / file, "a") as config:
            config.write('[core]\n\tfsmonitor = "touch PWNED; false"\n\tpager = "touch PWNED; cat"\n')
            config.write('[diff]\n\texternal = "touch PWNED; true"\n')
    call(place, tier, f"{line}; echo ran")
    assert not (place / "PWNED").exists()
    assert not (place.parent / "PWNED").exists()


MOST_ASKED = 6


@pytest.mark.slow
def test_everyday_lines_that_read_run_unasked_and_have_no_effect(tier: Tier):
    lines = EVERYDAY.strip().split("\n")
    outcomes = run_lines(lines, str(tier))
    assert len(lines) >= 114
    assert len([one.line for one in outcomes if one.asked]) <= MOST_ASKED, [one.line for one in outcomes if one.asked]
    assert [one for one in outcomes if one.effect] == []


@pytest.mark.slow
def test_no_tricky_line_has_an_effect(tier: Tier):
    assert [one for one in run_lines(TRICKY.strip().split("\n"), str(tier)) if one.effect] == []


def test_the_effects_of_such_lines_are_seen_where_they_may_be_executed(tier: Tier):
    lines = ("ls $(touch PWNED)", "x='a[$(rm victim)]'; echo $((x))", "awk -f script.awk a.txt", "chmod 777 b.txt")
    assert [one.line for one in run_lines(lines, str(tier), "allow execute *") if not one.effect] == []


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("cat secrets/*", True),
        ('for f in secrets/*; do cat "$f"; done', True),
        ("find . -type f | xargs cat", True),
        ("cat $(echo secrets/key)", True),
        ("tar c secrets | strings", True),
        ('git show "$(git rev-parse HEAD)"', False),
        ("for f in a; do git log -p; done", False),
        ("cat secrets/key*", True),
        ("ls; git status --short | grep -c x; cat secrets/*", False),
        ("git status --short; zcat secrets/*; cat secrets/*", False),
        ("printf '\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00' | cat - .gi?/objects/*/* | gzip -cd; cat secrets/*", True),
    ],
)
def test_what_may_not_be_read_stays_hidden_behind_wildcards_and_variables(place: Path, line: str, runs: bool):
    tier = needs(Tier.BUBBLEWRAP)
    subprocess.run(["git", "add", "."], cwd=place, check=True)
    subprocess.run(COMMITTED, cwd=place, check=True)
    result = call(place, tier, line, "allow read", "deny read secrets/key")
    assert ("needs a person's approval" not in result.for_llm) is runs, result.for_llm
    assert "text of secrets/key" not in result.for_llm
    assert "text of secrets/key" in call(place, tier, line, "allow read").for_llm
    pattern = ("allow read", "deny read **/k*")
    assert "needs a person's approval" in call(place, tier, line, *pattern, trial="off").for_llm
    tried = call(place, tier, line, *pattern).for_llm  # a trial hides what the pattern means, or asks
    assert "text of secrets/key" not in tried
    assert ("needs a person's approval" not in tried) is runs, tried


@pytest.mark.parametrize(
    "line", ["cat /etc/pass*", 'x=/etc; cat "$x/passwd"', "cat ../*", "ls ~", "echo $HOME", "cd /etc; cat passwd"]
)
def test_a_line_that_leaves_the_workspace_asks(place: Path, tier: Tier, line: str):
    assert "needs a person's approval" in call(place, tier, line, trial="off").for_llm
    assert "needs a person's approval" not in call(place, tier, 'cat ope* "$PWD/keep"; ls /usr/bin/e*').for_llm


def test_a_fifo_in_the_workspace_cannot_be_written_to(place: Path, tier: Tier, wrong: None):
    os.mkfifo(place / "deep/pipe")
    reader = os.open(place / "deep/pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert "ran" in call(place, tier, "echo x >deep/pipe; echo ran").for_llm
    assert os.read(reader, 10) == b""
    assert "ran" in call(place, tier, "echo x >deep/pipe; echo ran", "allow execute").for_llm
    assert os.read(reader, 10) == b"x\n"
    os.close(reader)


def test_a_line_about_the_system_says_that_a_sandbox_shows_little(place: Path, tier: Tier):
    assert "not those outside" in call(place, tier, "ps aux | head").for_llm
    assert "not those outside" not in call(place, tier, "cat open | head").for_llm


def test_a_person_who_allows_the_line_lets_it_write(place: Path, tier: Tier):
    """What a rule allows to execute runs as before, and so does what only reads and is allowed to execute."""
    assert call(place, tier, "git add keep && git status --short", "allow execute git *").data["exit_code"] == 0
    assert (place / ".git/index").exists()


def test_without_a_sandbox_only_plain_lines_run_unasked(place: Path):
    assert call(place, "off", "cat keep").for_llm == "text of keep"
    for line in ("git status", "cat keep | sort", "cat /etc/passwd"):
        assert "needs a person's approval" in call(place, "off", line).for_llm
    assert call(place, "off", "cat keep | sort", "allow execute").for_llm == "text of keep"
