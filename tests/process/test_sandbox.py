"""Whatever a program tries in a sandbox stays in the workspace, and what it may do works."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.process import sandbox
from forge.process.running.run import FinishedProgram
from forge.process.running.run import run as run_program
from forge.process.sandbox import (
    Confinement,
    Tier,
    bubblewrap,
    choose_tier,
    confine_command,
    landlock,
    problem,
    report_tiers,
)
from forge.process.sandbox.layout import CommandLine
from tests.process.attacks import (
    ATTACKS,
    REACHED,
    TIERS,
    VECTORS,
    World,
    describe_others,
    needs,
    prepare_vectors,
    python,
    run,
    vector_line,
    world,
)

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


@pytest.fixture
def here(tmp_path):
    with world(tmp_path) as made:
        yield made


@pytest.fixture(params=TIERS)
def tier(request) -> Tier:
    return needs(request.param)


@pytest.fixture(params=["bubblewrap", "landlock", "landlock without processes", "landlock without mounts"])
def manner(request, monkeypatch) -> Tier:
    """Each tier, and what is left of Landlock where namespaces cannot be had, as in many containers."""
    name, _, missing = request.param.partition(" without ")
    if missing:
        monkeypatch.setattr(landlock, "_can_mount" if missing == "mounts" else "_can_separate", lambda: False)
    return needs(Tier(name))


def test_no_attack_reaches_anything_outside(here: World, manner: Tier):
    tier, before = manner, _outside(here)
    said = here.each({attack.name: attack.line for attack in ATTACKS if tier in attack.tiers}, tier)
    assert {name: words for name, words in said.items() if REACHED in words} == {}
    assert _outside(here) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_no_line_changes_how_all_processes_of_the_user_run(here: World, manner: Tier, read_only: bool):
    """These succeed for what the program itself started, in a namespace of its own."""
    before = _outside(here)
    code = (
        "import os\nnice = lambda who: os.setpriority(os.PRIO_USER, who, 9)\n"
        "for call in (lambda: nice(0), lambda: nice(os.getuid()), lambda: os.kill(-1, 18)):\n"
        "  try: call()\n  except OSError: pass\n"
        "print('ran')"
    )
    assert here.run([sys.executable, "-I", "-S", "-c", code], manner, read_only=read_only).stdout == "ran\n"
    assert _outside(here) == before


def test_processes_share_memory_and_queues_with_each_other(here: World, tier: Tier):
    if tier is Tier.LANDLOCK and not (landlock._can_mount() and landlock._can_separate()):
        pytest.skip("NOT TESTED: no namespace of its own can be had here")
    code = (
        "import ctypes, os; libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_ssize_t\n"
        "at = libc.shmat(libc.shmget(7, 4096, 0o1600), None, 0)\n"
        "ctypes.memset(at, 65, 3)\n"
        "if not (child := os.fork()):\n"
        "    seen = libc.shmat(libc.shmget(7, 4096, 0), None, 0)\n"
        "    os._exit(ctypes.string_at(seen, 3) != b'AAA')\n"
        "print(os.waitpid(child, 0)[1], libc.msgget(7, 0o1600) >= 0)\n"
    )
    assert here.run([sys.executable, "-I", "-S", "-c", code], tier).stdout == "0 True\n"


PROGRAMS = {
    "node": 'node -e \'new (require("worker_threads").Worker)("console.log(6*7)", {eval: true})\'',
    "java": "echo 'class A { public static void main(String[] a) throws Exception { Thread t = new Thread(() ->"
    " System.out.println(6*7)); t.start(); t.join(); } }' >A.java; java A.java",
    "gcc": "printf '#include <stdio.h>\\nint main(void) { printf(\"42\\\\n\"); }' >a.c; gcc -O1 a.c -o a && ./a",
    "git": "git init -q r && cd r && echo 42 >f && git add f && git -c user.name=n -c user.email=e commit -qm m"
    " && git gc -q && git show HEAD:f",
    "cargo": "cargo init --quiet --vcs none --name a p && cd p && echo 'fn main() { println!(\"{}\", 6 * 7) }'"
    " >src/main.rs && cargo run --quiet --offline",
    sys.executable: python(
        'import subprocess, sys, threading; words = [sys.executable, "-c", "print(42)"]; '
        "t = threading.Thread(target=subprocess.run, args=(words,)); t.start(); t.join()"
    ),
    "yes": "yes 42 | head -n1 2>&1",  # ends by SIGPIPE
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_every_day_work(here: World, manner: Tier, name: str):
    if shutil.which(name) is None:
        pytest.skip(f"NOT TESTED: {name} is not installed")
    rust = Path(os.environ.get("RUSTUP_HOME", Path.home() / ".rustup"))
    more = {"readable": (rust,)} if name == "cargo" and rust.is_dir() else {}
    if name == "cargo" and subprocess.run(["cargo", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: cargo is installed, but has no toolchain for this user")
    told = here.run(["bash", "-c", here.words(PROGRAMS[name])], manner, {"RUSTUP_HOME": str(rust)}, **more)
    assert told.stdout.strip() == "42", told


def test_programs_see_their_own_processes_and_share_semaphores(here: World, tier: Tier):
    if tier is Tier.LANDLOCK and not (landlock._can_mount() and landlock._can_separate()):
        pytest.skip("NOT TESTED: no namespace of its own can be had here")
    code = (
        "import os, subprocess; child = subprocess.Popen(['sleep', '30']); "
        "print(len([name for name in os.listdir('/proc') if name.isdigit()]), "
        "str(os.getpid()) in open(f'/proc/{child.pid}/status').read()); child.kill()"
    )
    count, seen = here.run([sys.executable, "-c", code], tier).stdout.split()
    assert (int(count) <= 4, seen) == (True, "True")
    if tier is Tier.BUBBLEWRAP:  # Landlock has no /dev/shm
        code = "import multiprocessing as m; print(m.Pool(2).map(abs, [-42]))"
        assert here.run([sys.executable, "-c", code], tier).stdout == "[42]\n"


def test_every_twin_of_an_attack_works(here: World, manner: Tier):
    tier = manner
    said = here.each({attack.name: attack.twin for attack in ATTACKS if tier in attack.tiers}, tier)
    assert {name: words for name, words in said.items() if REACHED not in words} == {}


def _outside(here: World) -> list[object]:
    assert here.victim
    os.kill(here.victim, 0)
    system: list[object] = [Path(folder, "forge-was-here").exists() for folder in ("/usr", "/etc")]
    system += [(found.st_mode, found.st_uid) for found in map(os.stat, DEVICES)]
    system += describe_others(here)
    return [*system, (here.outside / "secret").read_text(), sorted(os.listdir(here.outside))]


def test_devices_keep_their_modes_and_work(here: World, tier: Tier):
    """Root owns the devices of the machine, and may change modes without a capability."""
    before = _outside(here)
    try:
        for more in ({}, {"read_only": True}):
            here.bash(
                f"for one in {' '.join(DEVICES)}; do chmod 600 $one; touch -d 2001-01-01 $one; done", tier, **more
            )
            assert _outside(here) == before
            told = here.bash("echo x >/dev/null && head -c2 /dev/zero | wc -c; echo x >/dev/full", tier, **more)
            assert told.stdout == "2\n"
            assert "No space left" in told.stderr
    finally:
        if _outside(here) != before:
            for one in DEVICES:
                os.chmod(one, 0o666)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can do that without a sandbox")
def test_a_setting_of_the_kernel_can_be_opened_without_a_sandbox(here: World):
    wanted = {attack.name: attack.line for attack in ATTACKS if attack.name == "choose what runs after a crash"}
    assert [REACHED in words for words in here.each(wanted, Tier.NONE).values()] == [True]


def test_a_sandbox_in_which_a_setting_of_the_kernel_can_be_written_does_not_count(monkeypatch):
    """As bubblewrap is without its mounts, for root."""
    needs(Tier.BUBBLEWRAP)
    real = sandbox._COMMANDS[Tier.BUBBLEWRAP]

    def uncovered(*given: object, **more: object) -> CommandLine:
        command = real(*given, **more)
        place = command.argv.index("--remount-ro")
        assert command.argv[place + 1] == "/proc"
        return replace(command, argv=[*command.argv[:place], *command.argv[place + 2 :]])

    assert sandbox._try_tier(Tier.BUBBLEWRAP) == ""
    monkeypatch.setitem(sandbox._COMMANDS, Tier.BUBBLEWRAP, uncovered)
    said = sandbox._try_tier(Tier.BUBBLEWRAP)
    assert ("programs could write /proc/sys/kernel/core_pattern" in said) is (os.geteuid() == 0), said


def test_programs_that_run_programs_reach_nothing_outside_and_their_twins_work(tier: Tier, tmp_path: Path):
    template, inside, outside = (tmp_path / name for name in ("template", "inside", "outside"))
    for folder in (template, inside, outside):
        folder.mkdir()
    prepare_vectors(template)
    lines, twins = [], {}
    for number, (name, words) in enumerate(VECTORS.items()):
        if shutil.which(words[0]) is None:
            print(f"NOT TESTED: {name}: {words[0]} is not installed")
            continue
        for kind, place in (("attack", outside), ("twin", inside)):
            folder = inside / f"{kind}-{number}"
            shutil.copytree(template, folder)
            lines.append(vector_line(words, folder, place / f"{kind}-{number}.reached"))
        twins[name] = inside / f"twin-{number}.reached"
    (inside / "lines").write_text("\n".join(lines))
    run(["sh", "./lines"], Confinement(workspace=inside), tier)
    assert os.listdir(outside) == []
    assert [name for name, reached in twins.items() if not reached.exists()] == []


def test_the_same_attacks_succeed_without_a_sandbox(here: World):
    """Otherwise the tests above would prove nothing."""
    harmless = {
        "write a file",
        "append to one",
        "write through a link",
        "read a file",
        "read through the root of another",
        "read the environment of another",
        "see how another was started",
        "signal another",
        "slow another down",
        "move another to a processor",
        "reschedule another",
        "limit what another opens",
        "read shared memory",
        "attach shared memory",
        "read from a queue",
        "open a named queue",
        "connect by TCP",
        "connect to an abstract socket",
        "connect to a socket of a service",
        "turn a pair of sockets to a service",
    }
    said = here.each({attack.name: attack.line for attack in ATTACKS if attack.name in harmless}, Tier.NONE)
    assert set(said) == harmless
    assert {name: words for name, words in said.items() if REACHED not in words} == {}


def test_a_datagram_does_not_arrive(here: World, tier: Tier):
    assert here.udp is not None
    port = here.udp.getsockname()[1]
    code = f'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {port}))'
    here.run([sys.executable, "-c", code], tier)
    with pytest.raises(BlockingIOError):
        here.udp.recv(1)
    here.run([sys.executable, "-c", code], tier, network=True)
    assert here.udp.recv(1) == b"x"


def test_the_network_is_there_when_it_is_permitted(here: World, tier: Tier):
    code = f'import socket; socket.create_connection(("127.0.0.1", {here.tcp}), 5); print("REACHED")'
    assert here.run([sys.executable, "-c", code], tier).returncode != 0
    assert REACHED in here.run([sys.executable, "-c", code], tier, network=True).stdout


def test_capabilities_are_gone_and_cannot_come_back(here: World, tier: Tier):
    line = "while read -r name value; do echo $name $value; done </proc/$$/status"
    told = dict(each.split(" ", 1) for each in here.bash(line, tier).stdout.splitlines() if " " in each)
    assert [int(told[f"{name}:"], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5 or (
        os.geteuid() != 0 and int(told["CapEff:"], 16) == 0
    )
    assert told["NoNewPrivs:"] == "1"
    assert told["Seccomp:"] == "2"


def test_typing_into_a_terminal_is_refused_before_the_terminal_is_asked(here: World, tier: Tier):
    code = (
        "import fcntl\nfor call in (0x5412, 0x541C, 0x5413):\n"
        " try: fcntl.ioctl(0, call, b'x' * 8)\n except OSError as error: print(error.errno)"
    )
    refused, not_a_terminal = "1", "25"
    assert here.run([sys.executable, "-c", code], tier).stdout.split() == [refused, refused, not_a_terminal]


def test_home_is_private_and_empty(here: World, tier: Tier):
    (here.inside / ".gitconfig").write_text("[user]\n\tname = planted\n")
    line = 'ls -A "$HOME"; echo x >~/noted && ls -A ~; echo x >"$TMPDIR/x" && mktemp >/dev/null && echo "$HOME"'
    *seen, home = here.bash(line, tier).stdout.splitlines()
    assert seen == ["noted"]
    assert not (here.inside / "noted").exists()
    assert not Path(home).is_relative_to(here.inside)
    assert here.bash(line, tier).stdout.splitlines()[:-1] == ["noted"]  # the next run has one of its own
    chosen = here.bash('echo "$HOME"', tier, home=Path("/elsewhere"))
    assert chosen.stdout == "/elsewhere\n"


def test_home_is_private_where_the_workspace_is_the_folder_for_temporary_files():
    needs(Tier.BUBBLEWRAP)  # under Landlock nothing is mounted there
    usual = Path("/tmp")
    words = ["bash", "-c", 'ls -A "$HOME" && echo x >~/noted && ls -A ~']
    env = {"PATH": os.environ["PATH"]}
    argv = confine_command(words, Confinement(workspace=usual, readable=(usual,)), Tier.BUBBLEWRAP, env)
    told = subprocess.run(argv, env=env, cwd=usual, capture_output=True, text=True, check=False)
    assert told.stdout == "noted\n", told


def test_devices_are_made_again_where_their_folder_was_tidied_up(here: World):
    needs(Tier.BUBBLEWRAP)
    line = "echo x >/dev/null && echo worked"
    assert here.bash(line, Tier.BUBBLEWRAP).stdout == "worked\n"
    shutil.rmtree(bubblewrap._device_folder(os.getpid()) or tempfile.mkdtemp())  # an ordinary user has none
    assert here.bash(line, Tier.BUBBLEWRAP).stdout == "worked\n"


def test_settings_of_the_workspace_are_not_those_of_the_person(here: World, tier: Tier):
    """A clone could name programs in its `.gitconfig` that `git status` starts."""
    (here.inside / ".gitconfig").write_text('[core]\n\tfsmonitor = "touch PWNED; false"\n')
    subprocess.run(["git", "init", "-q", "."], cwd=here.inside, check=True)
    told = here.bash("git status --short && echo worked", tier)
    assert told.stdout.endswith("worked\n"), told
    assert not (here.inside / "PWNED").exists()
    here.bash("git status", tier, home=here.inside)
    assert (here.inside / "PWNED").exists()  # otherwise the test proves nothing


def test_git_works_whatever_the_settings_of_the_system_say(tier: Tier, tmp_path: Path):
    """They are made in a mount namespace, so that every machine has some."""
    planted, workspace = tmp_path / "etc/gitconfig", tmp_path / "workspace"
    planted.parent.mkdir()
    workspace.mkdir()
    planted.write_text('[core]\n\tfsmonitor = "touch PWNED; false"\n')
    planted.chmod(0o600)
    source = Path(sandbox.__file__).parents[3]
    code = (
        "import subprocess, os; from pathlib import Path; from forge.process.sandbox import *; "
        f"there = Confinement(workspace=Path({str(workspace)!r})); env = {{'PATH': os.environ['PATH']}}; "
        f"box = SandboxedCommand(['sh', '-c', 'git init -q . && git status'], there, Tier({str(tier)!r}), env); "
        "words = box.command.in_shell(); "
        "done = subprocess.run(words, env=env, cwd=there.workspace, capture_output=True, text=True); box.close(); "
        "print(done.returncode, done.stdout, done.stderr)"
    )
    own = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    mounted = f'[ -e /etc/gitconfig ] || exit 77; mount --bind {planted} /etc/gitconfig || exit 77; exec "$@"'
    if not os.path.exists("/etc/gitconfig"):  # a layer over /etc adds the file
        work = tmp_path / "work"
        work.mkdir()
        layers = f"lowerdir=/etc,upperdir={planted.parent},workdir={work}"
        mounted = f'mount -t overlay none -o {layers} /etc || exit 77; exec "$@"'
    told = subprocess.run(
        [*own, "sh", "-c", mounted, "sh", sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode == 77 or "unshare failed" in told.stderr or "is not available" in told.stderr:
        pytest.skip(f"NOT TESTED: no mount namespace can be had here: {told.stderr}")
    assert told.stdout.startswith("0 "), told
    assert "No commits yet" in told.stdout
    assert not (workspace / "PWNED").exists()


def test_what_the_sandbox_says_of_itself_is_no_result_of_the_program(here: World, tier: Tier, monkeypatch):
    broken = ["--ro-bind", "/no/such/source", "/x"] if tier is Tier.BUBBLEWRAP else ["status", "/no/such/file"]
    option = "--unshare-all" if tier is Tier.BUBBLEWRAP else "=HOME"
    real = sandbox._COMMANDS[tier]

    def breaking(*given: object, **more: object) -> CommandLine:
        command = real(*given, **more)
        place = command.argv.index(option)
        return replace(command, argv=[*command.argv[:place], *broken, *command.argv[place:]])

    async def finish(*argv: str) -> FinishedProgram:
        env = {"PATH": os.environ["PATH"]}
        there = Confinement(workspace=here.inside)
        return await run_program(argv, cwd=here.inside, env=env, confinement=replace(there, sandbox=str(tier)))

    assert asyncio.run(finish("sh", "-c", "exit 3")).exit_code == 3
    with pytest.raises(ToolError, match='"/no/such/program" cannot be started') as caught:
        asyncio.run(finish("/no/such/program"))
    assert caught.value.kind is ErrorKind.NOT_FOUND
    monkeypatch.setitem(sandbox._COMMANDS, tier, breaking)
    with pytest.raises(ToolError, match="could not be set up, so nothing was run") as caught:
        asyncio.run(finish("sh", "-c", "exit 3"))
    assert caught.value.kind is ErrorKind.SYSTEM


def test_more_arguments_than_the_sandbox_takes_are_an_error_of_ours(here: World, tier: Tier):
    async def count(number: int) -> str:
        argv = ["sh", "-c", "echo $#", "sh", *["x"] * number]
        there = Confinement(workspace=here.inside)
        env = {"PATH": os.environ["PATH"]}
        return (await run_program(argv, cwd=here.inside, env=env, confinement=replace(there, sandbox=str(tier)))).output

    assert asyncio.run(count(8_000)) == "8000\n"
    if tier is Tier.LANDLOCK:
        assert asyncio.run(count(20_000)) == "20000\n"
        return
    with pytest.raises(ToolError, match="20,004 arguments; the limit of bubblewrap is") as caught:
        asyncio.run(count(20_000))
    assert caught.value.kind is ErrorKind.VALIDATION


def test_a_folder_on_the_path_that_may_not_be_read_hides_nothing(here: World, tier: Tier, monkeypatch):
    unread = here.outside / "programs"
    unread.mkdir()
    for name in ("ls", "only-there"):
        (unread / name).write_text("#!/bin/sh\necho wrong\n")
        (unread / name).chmod(0o755)
    monkeypatch.setenv("HOME", str(unread))  # a home directory is never shown
    path = f"{unread}:{os.defpath}"
    assert here.run(["ls"], tier, {"PATH": path}).stdout == "mine\n"
    assert here.run(["bash", "-c", "ls"], tier, {"PATH": path}).stdout == "mine\n"
    assert here.run(["only-there"], tier, {"PATH": path}).returncode == 127
    assert here.run(["bash", "-c", "only-there"], tier, {"PATH": path}).returncode == 127


def test_values_of_the_environment_are_not_on_the_command_line(here: World, tier: Tier):
    env = {"PATH": os.defpath, "TOKEN": "s3cret-value"}
    assert not any(
        "s3cret-value" in word for word in confine_command(["true"], Confinement(workspace=here.inside), tier, env)
    )
    assert here.run(["bash", "-c", 'echo "$TOKEN"'], tier, {"TOKEN": "s3cret-value"}).stdout == "s3cret-value\n"


def test_further_roots_are_there_as_they_were_declared(here: World, tier: Tier, tmp_path: Path):
    library, shared = tmp_path / "library", tmp_path / "shared"
    for folder in (library, shared):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    line = f"cat {library}/file {shared}/file; echo x >{library}/new; echo x >{shared}/new"
    told = here.bash(line, tier, readable=(library,), writable=(shared,))
    assert told.stdout == "libraryshared"
    assert not (library / "new").exists()
    assert (shared / "new").exists()
    assert here.bash(line, tier).stdout == ""


def test_a_workspace_that_may_not_be_written_is_read_only(here: World, tier: Tier):
    told = here.bash("cat mine; echo x >new", tier, readable=(here.inside,))
    assert told.stdout == "mine\n"
    assert not (here.inside / "new").exists()
    here.bash("echo x >new", tier)
    assert (here.inside / "new").exists()


@pytest.mark.parametrize("name", ["with space", "quote'\"", "new\nline", "$HOME", "-dash", "ünï€", "a=b", "per%cent\\"])
def test_a_workspace_may_have_any_name(name: str, tier: Tier, tmp_path: Path):
    workspace = tmp_path / name
    workspace.mkdir()
    told = run(
        ["sh", "-c", 'echo x >new && pwd -P && [ "$HOME" = "$(pwd -P)" ] && echo same'],
        Confinement(workspace=workspace, home=workspace),
        tier,
    )
    assert told.stdout == f"{workspace}\nsame\n"
    assert (workspace / "new").exists()


def test_a_workspace_may_be_a_link(tier: Tier, tmp_path: Path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    told = run(["sh", "-c", f"echo x >'{link}/new' && echo done"], Confinement(workspace=link), tier)
    assert told.stdout == "done\n"
    assert (real / "new").exists()


PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/home", "/root", "/opt", "/srv", "/mnt", "/run", "/var/lib", "/usr/local")


@pytest.mark.parametrize("name", ["plain", "with space ünï\nline"])
@pytest.mark.parametrize("place", PLACES)
def test_a_workspace_and_its_programs_may_be_anywhere(place: str, name: str, tier: Tier, tmp_path: Path):
    if not os.access(place, os.W_OK):
        pytest.skip(f"{place} is not writable here")
    link = tmp_path / "link"
    beside = place if place != "/dev/shm" else "/tmp"  # devices hold no programs
    with tempfile.TemporaryDirectory(dir=place) as base, tempfile.TemporaryDirectory(dir=beside) as other:
        workspace, folder = Path(base, name), Path(other, "bin")
        for made in (workspace, folder):
            made.mkdir()
        program = folder / "greet"
        program.write_text("#!/bin/sh\necho hello\n")
        program.chmod(0o755)
        link.symlink_to(workspace)
        env = {"PATH": f"{folder}:{os.environ['PATH']}"}
        line = 'pwd -P; greet; f=$(mktemp) && echo x >"$f" && echo x >new && echo done'
        for spelled in (workspace, link):
            told = run(["sh", "-c", line], Confinement(workspace=spelled), tier, env)
            assert told.stdout == f"{workspace}\nhello\ndone\n", told.stderr
            assert (workspace / "new").read_text() == "x\n"
            (workspace / "new").unlink()
        told = run(
            ["sh", "-c", f"echo x >{folder}/greet; echo x >{other}/made"], Confinement(workspace=workspace), tier
        )
        assert program.read_text() == "#!/bin/sh\necho hello\n"
        assert not Path(other, "made").exists()


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
def test_a_link_to_a_workspace_may_be_among_temporary_files(place: str, tier: Tier, tmp_path: Path):
    with tempfile.TemporaryDirectory(dir=place) as folder:
        link = Path(folder, "link")
        link.symlink_to(tmp_path)
        told = run(["sh", "-c", f"echo x >'{link}/new' && echo done"], Confinement(workspace=link), tier)
        assert told.stdout == "done\n", told.stderr
    assert (tmp_path / "new").exists()


def test_a_directory_below_the_workspace_may_be_where_it_starts(here: World, tier: Tier):
    below = here.inside / "below"
    below.mkdir()
    told = run(["sh", "-c", "pwd; echo x >new"], Confinement(workspace=here.inside), tier, cwd=below)
    assert told.stdout == f"{below}\n"
    assert (below / "new").exists()


def test_a_program_that_is_not_there_ends_with_127(here: World, tier: Tier, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # in a folder that cannot be read, it might be there: then 126
    told = here.run(["no-such-program"], tier)
    assert told.returncode == 127
    assert "no-such-program" in told.stderr
    assert here.run(["true"], tier).returncode == 0


def test_exit_codes_pass_through(here: World, tier: Tier):
    assert here.bash("exit 7", tier).returncode == 7


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/proc/self", "/bin", "/lib", "/dev"])
def test_the_system_itself_is_no_workspace(folder: str, tier: Tier):
    with pytest.raises(ToolError, match="cannot be confined") as caught:
        confine_command(["true"], Confinement(workspace=Path(folder)), tier, {})
    assert caught.value.kind is ErrorKind.CONFIG


def test_none_changes_nothing(tmp_path: Path):
    assert confine_command(["ls", "-l"], Confinement(workspace=tmp_path), Tier.NONE, {}) == ["ls", "-l"]


@pytest.fixture
def unusable(monkeypatch):
    """What is said of each tier, instead of trying it."""

    def declare(**words: str) -> None:
        monkeypatch.setattr(sandbox, "_problem", lambda tier: words.get(str(tier), ""))

    return declare


def test_auto_takes_the_best_there_is(unusable):
    unusable()
    assert choose_tier("auto") is Tier.BUBBLEWRAP
    unusable(bubblewrap="absent")
    assert choose_tier("auto") is Tier.LANDLOCK
    unusable(bubblewrap="absent", landlock="absent")
    assert choose_tier("auto") is Tier.NONE


def test_what_is_asked_for_by_name_is_there_or_fails(unusable):
    unusable()
    assert choose_tier("landlock") is Tier.LANDLOCK
    assert choose_tier("bubblewrap") is Tier.BUBBLEWRAP
    assert choose_tier("required") is Tier.BUBBLEWRAP
    unusable(bubblewrap="it is absent", landlock="it is switched off")
    for setting in ("bubblewrap", "landlock", "required", True):
        with pytest.raises(ToolError, match=r"absent|switched off") as caught:
            choose_tier(setting)
        assert caught.value.kind is ErrorKind.CONFIG
        assert caught.value.suggestion
    with pytest.raises(ToolError, match="it is absent; landlock") as caught:
        choose_tier("required")
    assert "apt-get install bubblewrap" in caught.value.suggestion


@pytest.mark.parametrize("setting", ["off", False])
def test_off_is_none_and_tries_nothing(setting: str | bool, monkeypatch):
    monkeypatch.setattr(sandbox, "_problem", None)
    assert choose_tier(setting) is Tier.NONE


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(ToolError, match="bwrap") as caught:
        choose_tier("bwrap")
    assert "auto, required, bubblewrap, landlock, off" in caught.value.suggestion


def test_each_tier_is_tried_once_a_process(monkeypatch):
    tried: list[Tier] = []

    def note(tier: Tier) -> str:
        tried.append(tier)
        return ""

    monkeypatch.setattr(sandbox, "_try_tier", note)
    sandbox._problem.cache_clear()
    try:
        assert [choose_tier("auto"), choose_tier("required"), choose_tier("landlock")] == [
            *[Tier.BUBBLEWRAP] * 2,
            Tier.LANDLOCK,
        ]
        assert tried == [Tier.BUBBLEWRAP, Tier.LANDLOCK]
    finally:
        sandbox._problem.cache_clear()


def test_a_sandbox_that_does_not_hold_does_not_count(monkeypatch):
    monkeypatch.setattr(
        sandbox, "_COMMANDS", {Tier.BUBBLEWRAP: lambda argv, confinement, env, **_: CommandLine(list(argv))}
    )
    assert "does not work here" in sandbox._try_tier(Tier.BUBBLEWRAP)
    broken = ["/bin/sh", "-c", "echo bwrap: No permissions to create new namespace >&2; exit 1"]
    monkeypatch.setattr(
        sandbox, "_COMMANDS", {Tier.BUBBLEWRAP: lambda argv, confinement, env, **_: CommandLine(broken)}
    )
    assert "user namespaces are forbidden" in sandbox._try_tier(Tier.BUBBLEWRAP)


def test_the_report_says_of_each_tier_whether_it_works_and_how_to_get_it(unusable):
    unusable(bubblewrap="it is absent")
    first, second = report_tiers()
    assert (first["tier"], first["usable"]) == ("bubblewrap", False)
    assert "it is absent" in first["detail"]
    assert "apt-get install bubblewrap" in first["how"]
    assert (second["tier"], second["usable"], second["how"]) == ("landlock", True, "")


def test_what_is_usable_here_is_said_loudly():
    missing = {str(tier): why for tier in TIERS if (why := problem(tier))}
    if missing:
        pytest.skip(f"NOT TESTED on this machine: {missing}")


def test_the_probe_leaves_nothing_behind(tmp_path: Path, monkeypatch):
    bubblewrap._make_devices()  # they stay as long as the process
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for tier in TIERS:
        if not problem(tier):
            sandbox._try_tier(tier)
    assert os.listdir(tmp_path) == []


def test_inside_a_sandbox_the_next_best_is_found_by_trying(tier: Tier, tmp_path: Path):
    """As in a container that forbids namespaces."""
    needs(Tier.LANDLOCK)
    source = Path(sandbox.__file__).parents[3]
    code = (
        "from forge.process.sandbox import choose_tier, report_tiers; "
        "print(choose_tier(), [row['usable'] for row in report_tiers()])"
    )
    env = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    confinement = Confinement(workspace=tmp_path, readable=(source,))
    told = run([sys.executable, "-c", code], confinement, tier, env)
    assert told.stdout == "landlock [False, True]\n", told


def test_forge_may_run_from_an_environment_inside_the_workspace(tier: Tier, tmp_path: Path):
    made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", "env"], cwd=tmp_path, check=False)
    assert made.returncode == 0
    source = Path(sandbox.__file__).parents[3]
    code = (
        "import subprocess, sys; from pathlib import Path; from forge.process.sandbox import *; "
        "there = Confinement(workspace=Path.cwd()); env = {'PATH': str(Path(sys.prefix, 'bin'))}; "
        f"words = confine_command([sys.executable, '-c', 'print(6 * 7)'], there, Tier({str(tier)!r}), env); "
        "print(subprocess.run(words, env=env, capture_output=True, text=True).stdout)"
    )
    beside = tmp_path.parent / f"{tmp_path.name}-tmp"
    beside.mkdir()
    env = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(beside), "PATH": os.environ["PATH"]}
    told = subprocess.run(
        ["env/bin/python", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "42"


def test_a_user_without_privileges_is_confined_too(tmp_path: Path):
    """The other tests may be run by root."""
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    source = Path(sandbox.__file__).parents[3]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    usable = [
        *become,
        "/usr/bin/python3",
        "-c",
        "import sys, forge.process.sandbox; assert sys.version_info >= (3, 11)",
    ]
    if os.geteuid() != 0 or shutil.which("setpriv") is None or subprocess.run(usable, env=env, cwd="/").returncode:
        pytest.skip("NOT TESTED: only root can become another user, who must be able to read this project")
    asking = [
        *become,
        "/usr/bin/python3",
        "-c",
        "from forge.process.sandbox import *; print(*map(problem, map(Tier, TIERS)))",
    ]
    asking[-1] = (
        asking[-1]
        .replace("TIERS", repr([str(tier) for tier in TIERS]))
        .replace("*;", "*; from forge.process.sandbox import problem;")
    )
    told = subprocess.run(asking, env=env, cwd="/", capture_output=True, text=True, check=True).stdout
    unusable = [tier for tier in TIERS if problem(tier)]
    assert told.strip() == "" or unusable, told
