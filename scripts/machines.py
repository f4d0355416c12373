"""Runs the quick tests on machines that differ from this one, and prints a table: `python -m scripts.machines`.

A machine is this one with another interpreter, user, umask, locale, home directory, PATH or Git configuration, or
another Debian in a directory tree, which needs root and debootstrap. Without names four machines are tried that have
all these differences between them. Where one of them fails, names choose machines with one difference each (`python -m
scripts.machines umask-077 no-home`). What follows `--` goes to pytest instead of the choice of quick tests (`… --
tests/cli`). What pytest said is in `.machines/machine-NAME.log`. Machines that
need root or an interpreter that is not here are reported as not tried.

With `--install` no test runs. The wheel of dist/ is installed where nothing was, and does what a newcomer does first:
`python -m scripts.machines --install debian-13 python-python3.12`.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK = ["-m", "not slow and not browser"]
USER = "nobody"
_FORKS = ["-n0", "-p", "tests.forked_workers", "--forks", "4"] if sys.platform == "linux" else ["-n", "4"]
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|errors?|rerun)")
_GIT_SETTINGS = """[init]
    defaultBranch = trunk
    templateDir = /nowhere
[commit]
    gpgsign = true
[core]
    hooksPath = /nowhere
    autocrlf = true
[safe]
    bareRepository = explicit
[credential]
    helper = /nowhere/helper
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """How it differs from this one."""

    name: str
    python: str = ""
    user: str = ""
    umask: int = 0o022
    environment: dict[str, str | None] = field(default_factory=dict)  # None: the variable is not set
    git_settings: bool = False
    without: tuple[str, ...] = ()  # programs that are hidden
    suite: str = ""  # a Debian of its own, which debootstrap makes below .machines


_UNREADABLE = "{unreadable}:" + os.environ.get("PATH", os.defpath)
TOGETHER = [
    Machine("this one"),
    Machine(
        "debian: ordinary user, umask 077, locale C, no home",
        python="/usr/bin/python3",
        user=USER,
        umask=0o077,
        environment={"LANG": "C", "LC_ALL": "C", "HOME": None},
    ),
    Machine(
        "3.12: root, umask 002, odd Git settings, unreadable PATH",
        python="python3.12",
        umask=0o002,
        environment={"PATH": _UNREADABLE},
        git_settings=True,
    ),
    Machine("3.13: root, no bubblewrap, no home", python="python3.13", environment={"HOME": None}, without=("bwrap",)),
]
MACHINES = [
    *TOGETHER,
    *(Machine(f"python-{one}", python=one) for one in ("/usr/bin/python3", "python3.12", "python3.13", "python3.14")),
    Machine("ordinary-user", python="/usr/bin/python3", user=USER),  # one that every user can read
    Machine("umask-002", umask=0o002),
    Machine("umask-077", umask=0o077),
    Machine("locale-c", environment={"LANG": "C", "LC_ALL": "C"}),
    Machine("no-home", environment={"HOME": None}),
    Machine("unreadable-path", environment={"PATH": _UNREADABLE}),
    Machine("git-settings", git_settings=True),
    Machine("no-bubblewrap", without=("bwrap",)),
    Machine("debian-12", suite="bookworm"),
    Machine("debian-12-user", suite="bookworm", user=USER),
    Machine("debian-13", suite="trixie"),
    Machine("debian-13-user", suite="trixie", user=USER),
    Machine("debian-testing", suite="forky"),
    Machine("debian-testing-user", suite="forky", user=USER),
]


def main(words: list[str]) -> int:
    names, _, tests = _split(words)
    installs, names = "--install" in names, [one for one in names if one != "--install"]
    unknown = set(names) - {machine.name for machine in MACHINES}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}. There are {', '.join(one.name for one in MACHINES)}.")
    print("| machine | Python | result |\n|---|---|---|", flush=True)
    worst = 0
    for machine in MACHINES if names else TOGETHER:
        if names and machine.name not in names:
            continue
        python, said, code = _install_on(machine) if installs else _tried(machine, tests or QUICK)
        worst = max(worst, code)
        print(f"| {machine.name} | {python} | {said} |", flush=True)
    return 1 if worst else 0


def _split(words: list[str]) -> tuple[list[str], str, list[str]]:
    if "--" not in words:
        return words, "", []
    at = words.index("--")
    return words[:at], "--", words[at + 1 :]


def _tried(machine: Machine, tests: list[str]) -> tuple[str, str, int]:
    if machine.suite:
        return _try_debian(machine, tests)
    interpreter = shutil.which(machine.python) if machine.python else sys.executable
    if interpreter is None:
        return machine.python, "not tried: it is not here", 0
    if (machine.user or machine.git_settings or machine.without) and os.geteuid() != 0:
        return "", "not tried: it needs root", 0
    with tempfile.TemporaryDirectory(prefix="forge-machine-") as folder:
        tree = Path(folder, "forge")
        shutil.copytree(
            ROOT,
            tree,
            ignore=shutil.ignore_patterns(".venv*", ".cache", ".machines", ".git", "__pycache__", ".*_cache"),
        )
        Path(folder).chmod(0o755)
        python = _environment_for(machine, interpreter, Path(folder))
        if machine.user:
            for path in (Path(folder), *Path(folder).rglob("*")):
                shutil.chown(path, machine.user)
        ended = subprocess.run(
            [*_outside(machine, Path(folder)), str(python), "-m", "pytest", *_FORKS, "-q", *tests],
            cwd=tree,
            env=_variables(machine, Path(folder)),
            umask=machine.umask,
            capture_output=True,
            text=True,
            check=False,
        )
    version = subprocess.run([interpreter, "--version"], capture_output=True, text=True, check=False).stdout.split()[-1]
    return version, _summarise(machine, ended), ended.returncode


def _summarise(machine: Machine, ended: subprocess.CompletedProcess[str]) -> str:
    """Keep what pytest said in a file, and return the counts and the failed tests."""
    lines = ended.stdout.strip().splitlines() or [ended.stderr.strip()[-300:]]
    (ROOT / ".machines").mkdir(exist_ok=True)
    name = re.sub(r"[^\w.-]+", "-", machine.name)
    log = ROOT / ".machines" / f"machine-{name}.log"
    log.write_text(ended.stdout, encoding="utf-8")
    failed = [line.removeprefix("FAILED ")[:150] for line in lines if line.startswith(("FAILED", "ERROR"))]
    counts = ", ".join(f"{number} {what}" for number, what in _COUNTS.findall(lines[-1])) or lines[-1][:200]
    return "<br>".join([counts, *failed[:20]])


# The tree becomes the root by pivot_root: in a plain chroot the kernel refuses user namespaces, which bubblewrap needs.
_ENTER = """
set -e
tree=$1; work=$2; shift 2
mount --bind "$tree" "$tree"; cd "$tree"; mkdir -p old "./$work"
mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc; mount -t tmpfs tmpfs run
mount --bind "$work" "./$work"
cp -L /etc/resolv.conf /etc/hosts etc/; cp -L /etc/pip.conf etc/ 2>/dev/null || true
cp -L /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
pivot_root . old; cd /; umount -l /old
exec "$@"
"""
_PACKAGES = "python3,python3-venv,python3-dev,make,git,bubblewrap,ca-certificates,gcc,libc6-dev,iproute2,procps,ripgrep"
_SCRIPTS = {"forky": ["sid"]}  # an older debootstrap does not know this suite


def _try_debian(machine: Machine, tests: list[str]) -> tuple[str, str, int]:
    """Make a tree of that Debian, once, and run a fresh environment and the tests in it."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return "", "not tried: it needs root and debootstrap", 0
    tree = _debian_tree(machine)
    with tempfile.TemporaryDirectory(prefix="forge-machine-") as folder:
        copy = Path(folder, "forge")
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".venv*", ".cache", ".machines", "__pycache__", ".*_cache")
        )
        pytest = " ".join(map(shlex.quote, [*_FORKS, "-q", *tests]))
        inside = f"cd {copy} && make setup >&2 && .venv/bin/python --version && .venv/bin/python -m pytest {pytest}"
        ended = _run_in_debian(machine, tree, folder, inside)
    return _python_of(ended), _summarise(machine, ended), ended.returncode


def _python_of(ended: subprocess.CompletedProcess[str]) -> str:
    return next((line.split()[1] for line in ended.stdout.splitlines() if line.startswith("Python ")), "")


def _debian_tree(machine: Machine) -> Path:
    """Returns the tree of that Debian, which is made once."""
    tree = ROOT / ".machines" / "debian" / machine.suite
    if not (tree / "usr/bin/python3").exists():
        shutil.rmtree(tree, ignore_errors=True)
        make = [
            "debootstrap",
            "--variant=minbase",
            f"--include={_PACKAGES}",
            machine.suite,
            str(tree),
            *_archive(machine),
        ]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return tree


def _run_in_debian(machine: Machine, tree: Path, folder: str, inside: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell line in that Debian, which sees this folder and has its home there."""
    home = Path(folder, "home")
    home.mkdir()
    Path(folder).chmod(0o755)
    user = []
    if machine.user:
        user = ["setpriv", "--reuid", machine.user, "--regid", "nogroup", "--clear-groups"]
        for path in (Path(folder), *Path(folder).rglob("*")):
            os.chown(path, pwd.getpwnam(machine.user).pw_uid, -1, follow_symlinks=False)
    certificates = "/etc/ssl/certs/ca-certificates.crt"
    variables = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "SSL_CERT_FILE": certificates}
    return subprocess.run(
        ["/usr/bin/unshare", "--mount", "--propagation", "private", "bash", "-c", _ENTER, "bash", str(tree), folder,
         *user, "bash", "-c", inside],
        env={**variables, "PIP_CERT": certificates}, capture_output=True, text=True, check=False,
    )  # fmt: skip


# What a newcomer does first, each line of it: `forge doctor` says which sandbox there is.
_FIRST_STEPS = """
set -ex
{python} --version
{python} -m venv venv
venv/bin/pip install -q --disable-pip-version-check ./*.whl
PATH="$PWD/venv/bin:$PATH"
forge --version
forge demo
forge init project
cd project
forge trust --yes
forge tool call math_calculate expression=6*7
echo '- It works.' > model.yaml
forge run Hello --model scripted:model.yaml --quiet
forge doctor || true
"""


def _find_interpreter(machine: Machine) -> str:
    """Returns the program itself, not a version manager's shim, which needs this user's home; "" if it does not run."""
    found = shutil.which(machine.python or sys.executable)
    if found is None:
        return ""
    asked = [found, "-c", "import sys; print(sys._base_executable)"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _install_on(machine: Machine) -> tuple[str, str, int]:
    """Installs the wheel of dist/ where nothing was, and takes the first steps with it."""
    wheels = list((ROOT / "dist").glob("*.whl"))
    if len(wheels) != 1:
        return "", "not tried: dist/ has no wheel; make dist", 1
    is_debian = bool(machine.suite)
    if is_debian and (os.geteuid() != 0 or shutil.which("debootstrap") is None):
        return "", "not tried: it needs root and debootstrap", 0
    interpreter = "python3" if is_debian else _find_interpreter(machine)
    if not interpreter:
        return machine.python, "not tried: it is not here", 0
    with tempfile.TemporaryDirectory(prefix="forge-machine-") as folder:
        place = Path(folder, "place")
        place.mkdir()
        shutil.copy(wheels[0], place)
        inside = f"cd {place}\n" + _FIRST_STEPS.replace("{python}", interpreter)
        if is_debian:
            ended = _run_in_debian(machine, _debian_tree(machine), folder, inside)
        else:
            variables = {"PATH": os.environ["PATH"], "HOME": str(place)}
            ended = subprocess.run(
                ["/bin/bash", "-c", inside], env=variables, capture_output=True, text=True, check=False
            )
    ended.stdout += ended.stderr
    _summarise(machine, ended)  # keeps the log
    steps = [line[2:] for line in ended.stderr.splitlines() if line.startswith("+ ")]
    said = "installed; the first steps work" if ended.returncode == 0 else f"FAILED at: {steps[-1] if steps else ''}"
    return _python_of(ended), said, ended.returncode


def _archive(machine: Machine) -> list[str]:
    """Return the archive of this machine's own packages, and the script for a suite that debootstrap may not know.

    Where the archive is not known, debootstrap uses its own.
    """
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in sources if file.is_file())
    found = re.search(r"^(?:URIs:|deb)\s+(?:\[[^]]*\]\s+)?(\S+/debian/?)(?:\s|$)", text, re.MULTILINE)
    return [found[1], *_SCRIPTS.get(machine.suite, [])] if found else []


def _environment_for(machine: Machine, interpreter: str, folder: Path) -> Path:
    """This environment, or one of its own where the interpreter or the user is another."""
    if not machine.python and not machine.user:
        return Path(sys.executable)
    place = folder / "venv"
    python = place / "bin" / "python"
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv:
        subprocess.run([uv, "venv", "--quiet", "--python", interpreter, str(place)], check=True)
        install = [uv, "pip", "install", "-q", "--compile-bytecode", "--link-mode", "copy", "--python", str(python)]
    else:
        subprocess.run([interpreter, "-m", "venv", str(place)], check=True, capture_output=True)
        install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*install, "-e", f"{folder / 'forge'}[dev]", "-c", str(ROOT / "constraints.txt")], check=True)
    return python


def _outside(machine: Machine, folder: Path) -> list[str]:
    """What the tests are started by: another user, or a mount namespace with other files in /etc and /usr."""
    words: list[str] = []
    mounts = []
    if machine.git_settings:
        settings = folder / "gitconfig"
        settings.write_text(_GIT_SETTINGS, encoding="utf-8")
        mounts.append(f"touch /etc/gitconfig; mount --bind {settings} /etc/gitconfig")
    for name in machine.without:
        if found := shutil.which(name):
            mounts.append(f"mount --bind /dev/null {found}")
    if mounts:
        words += ["unshare", "--mount", "sh", "-c", f'{"; ".join(mounts)}; exec "$@"', "sh"]
    if machine.user:
        words += ["setpriv", "--reuid", machine.user, "--regid", "nogroup", "--clear-groups"]
    return words


def _variables(machine: Machine, folder: Path) -> dict[str, str]:
    home, unreadable = folder / "home", folder / "unreadable"
    home.mkdir()
    unreadable.mkdir(mode=0o000)
    if machine.user:
        shutil.chown(home, machine.user)
    found: dict[str, str | None] = {**os.environ, "HOME": str(home), **machine.environment}
    if machine.user:
        found["TMPDIR"] = None  # where this user puts things is closed to others
    return dict(_set(found, str(unreadable)))


def _set(found: dict[str, str | None], unreadable: str) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if value is not None and name != "PYTHONDONTWRITEBYTECODE":
            yield name, value.replace("{unreadable}", unreadable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
