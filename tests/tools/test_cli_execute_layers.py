"""The layers of cli_execute, each attack beside what must still work."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forge.core.context import Root, Scope
from forge.core.errors import ToolError
from forge.permissions.shell.programs import (
    CODE_OPTIONS,
    INTERPRETERS,
    LAUNCHERS,
    LINE_OPTIONS,
    READ_CODE,
    REFUSED_SHELLS,
    TABLE,
)
from forge.tools.cli_execute.binaries import AllowedPrograms, refuse_shells, require_allowed, resolve
from forge.tools.cli_execute.layers import (
    apply_guardrails,
    confine_paths,
    judge,
    read_guardrails,
    refuse_exec_flags,
    refuse_file_protocol,
    validate_arguments,
)
from forge.workspace.paths import PathValidator
from tests.core.calling import at_most


class Ground:
    """A workspace beside a folder of programs on PATH, with something worth protecting around it."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.programs = folder / "programs"
        self.outside = folder / "outside"
        for one in (self.workspace / "sub", self.programs, self.outside):
            one.mkdir(parents=True)
        (self.outside / "secret").write_text("secret")
        (self.workspace / "inside.txt").write_text("inside")
        (self.workspace / "link").symlink_to(self.outside)
        (self.workspace / "good").symlink_to("sub")
        self.scope = Scope(workspace=self.workspace)
        self.paths = PathValidator(self.workspace)

    def program(self, name: str, folder: Path | None = None) -> Path:
        path = (folder or self.programs) / name
        path.write_text("#!/bin/true\n")
        path.chmod(0o755)
        return path

    def binary(self, name: str):
        if not (self.programs / name).exists():
            self.program(name)
        return resolve(name, AllowedPrograms([name]), [self.workspace])

    def judge(self, name: str, *args: str, **rules):
        self.binary(name) if name not in ("bash",) else None
        return judge(name, args, self.scope, AllowedPrograms([name]), **rules)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    return Ground(tmp_path_factory.mktemp("ground"))


@pytest.fixture
def ground(tmp_path, monkeypatch):
    made = Ground(tmp_path)
    monkeypatch.setenv("PATH", f"{made.programs}{os.pathsep}{os.environ['PATH']}")
    return made


def refusal(act, *args, **rules) -> ToolError:
    with pytest.raises(ToolError) as caught:
        act(*args, **rules)
    return caught.value


# 1: no shell


@pytest.mark.parametrize(
    "name",
    "bash sh zsh dash ksh csh tcsh fish busybox ash rbash pwsh bash-5.2 ksh93 BASH".split(),
)
def test_a_shell_is_refused_by_its_name_though_it_is_allowed(name):
    error = refusal(refuse_shells, name, AllowedPrograms([name]))
    assert error.message == f'binary "{name}" is a shell interpreter and cannot be used'
    assert error.kind == "security_error"


@pytest.mark.parametrize("path", ["/bin/bash", "/usr/bin/../bin/sh", "./bash", "/bin/sh/"])
def test_a_shell_is_refused_by_its_path(path):
    assert "is a shell interpreter" in refusal(refuse_shells, path, AllowedPrograms([])).message


@pytest.mark.parametrize(
    "name",
    "env xargs nice nohup timeout setsid sudo watch strace vim ld-linux-x86-64.so.2".split(),
)
def test_what_only_starts_other_programs_is_refused(name):
    error = refusal(refuse_shells, name, AllowedPrograms([name]))
    assert "shell interpreter" in error.message
    assert "cannot be used" in error.message
    assert error.kind == "security_error"


@pytest.mark.parametrize("name", ["git", "shellcheck", "envsubst", "bashful", "timeouts", "fishing", "view3d", "sh2ju"])
def test_a_name_that_only_resembles_one_is_no_shell(name, ground):
    ground.program(name)
    refuse_shells(name, AllowedPrograms([name]))


def shells():
    return [path for path in map(shutil.which, ("bash", "dash")) if path]


@pytest.mark.parametrize("shell", shells())
@pytest.mark.parametrize("how", ["link", "chain", "copy", "same file"])
def test_a_shell_under_another_name_is_refused(ground, shell, how):
    planted = ground.programs / "innocent"
    match how:
        case "link":
            planted.symlink_to(shell)
        case "chain":
            (ground.programs / "step").symlink_to(shell)
            planted.symlink_to("step")
        case "copy":
            shutil.copy(shell, planted)
        case _:
            try:
                os.link(os.path.realpath(shell), planted)
            except OSError:
                pytest.skip("hard links to programs of the system cannot be made here")
    allowed = AllowedPrograms(["innocent"])
    assert allowed.availability().refused == ("innocent",)
    assert "is a shell interpreter" in refusal(refuse_shells, "innocent", allowed).message


def test_a_launcher_under_another_name_is_refused(ground):
    (ground.programs / "innocent").symlink_to(shutil.which("env"))
    assert "starts other programs" in refusal(refuse_shells, "innocent", AllowedPrograms(["innocent"])).message


def test_a_program_that_is_many_in_one_is_what_its_link_says(ground):
    """As on Alpine: everything there is a link to busybox."""
    ground.program("busybox")
    (ground.programs / "mytool").symlink_to("busybox")
    (ground.programs / "sh").symlink_to("busybox")
    allowed = AllowedPrograms(["mytool", "sh", "busybox"])
    assert allowed.availability().refused == ("sh", "busybox")
    assert resolve("mytool", allowed, []).path == str(ground.programs / "mytool")


# 2: the allow-list


def test_what_is_not_listed_is_refused_and_what_is_listed_is_not(ground):
    ground.program("mytool")
    allowed = AllowedPrograms(["mytool"])
    require_allowed("mytool", allowed)
    error = refusal(require_allowed, "rm", allowed)
    assert error.message == 'binary "rm" is not in the allowed list'
    assert error.kind == "security_error"
    assert "mytool" in error.suggestion


@pytest.mark.parametrize(
    "name", ["", " ", "MYTOOL", "mytool ", "./mytool", "../mytool", "mytool\0", "mytool/../mytool"]
)
def test_another_spelling_of_a_listed_name_is_not_listed(ground, name):
    ground.program("mytool")
    assert refusal(require_allowed, name, AllowedPrograms(["mytool"])).kind == "security_error"


def test_a_whole_line_as_the_binary_is_told_how(ground):
    ground.program("mytool")
    assert (
        'Give "mytool" as the binary'
        in refusal(require_allowed, "mytool log -1", AllowedPrograms(["mytool"])).suggestion
    )


# 3: where it is


def test_a_missing_program_is_the_configurations_fault(ground):
    error = refusal(resolve, "nowhere-to-be-found", AllowedPrograms(["nowhere-to-be-found"]), [])
    assert error.message == 'binary "nowhere-to-be-found" was not found on this system'
    assert error.kind == "config_error"


def test_a_program_planted_in_the_workspace_is_not_taken(ground, monkeypatch):
    real = ground.program("mytool")
    planted = ground.workspace / "bin"
    planted.mkdir()
    ground.program("mytool", planted)
    for entry in (str(planted), str(ground.workspace / "sub" / ".." / "bin"), "bin", ".", ""):
        monkeypatch.setenv("PATH", f"{entry}{os.pathsep}{ground.programs}")
        monkeypatch.chdir(ground.workspace)
        assert resolve("mytool", AllowedPrograms(["mytool"]), [ground.workspace]).path == str(real)


def test_a_program_that_is_only_in_the_workspace_is_not_taken(ground, monkeypatch):
    ground.program("mytool", ground.workspace)
    monkeypatch.setenv("PATH", str(ground.workspace))
    assert (
        "outside the workspace" in refusal(resolve, "mytool", AllowedPrograms(["mytool"]), [ground.workspace]).message
    )
    assert resolve("mytool", AllowedPrograms(["mytool"]), []).path == str(ground.workspace / "mytool")


def test_a_link_that_leads_into_the_workspace_is_not_taken(ground):
    (ground.programs / "mytool").symlink_to(ground.program("planted", ground.workspace))
    assert refusal(resolve, "mytool", AllowedPrograms(["mytool"]), [ground.workspace]).kind == "config_error"


def test_a_folder_on_path_that_is_a_link_into_the_workspace_is_not_searched(ground, monkeypatch, tmp_path):
    ground.program("mytool", ground.workspace / "sub")
    (tmp_path / "alias").symlink_to(ground.workspace / "sub")
    monkeypatch.setenv("PATH", str(tmp_path / "alias"))
    assert refusal(resolve, "mytool", AllowedPrograms(["mytool"]), [ground.workspace]).kind == "config_error"


def test_a_program_in_a_writable_root_is_not_taken_and_in_a_read_only_one_it_is(ground):
    ground.program("mytool")
    for writable in (True, False):
        scope = Scope(workspace=ground.workspace, roots=(Root(ground.programs, writable),))
        if writable:
            assert refusal(judge, "mytool", [], scope, AllowedPrograms(["mytool"])).kind == "config_error"
        else:
            assert judge("mytool", [], scope, AllowedPrograms(["mytool"])).binary.path == str(
                ground.programs / "mytool"
            )


def test_what_appears_on_path_later_is_not_taken(ground):
    allowed = AllowedPrograms(["mytool"])
    ground.program("mytool")
    assert refusal(resolve, "mytool", allowed, []).kind == "config_error"


@pytest.mark.parametrize("how", ["replaced", "written", "relinked"])
def test_a_program_that_was_changed_since_is_refused(ground, how):
    path = ground.program("mytool")
    if how == "relinked":
        path.rename(ground.programs / "first")
        ground.program("second")
        path.symlink_to("first")
    allowed = AllowedPrograms(["mytool"])
    resolve("mytool", allowed, [])
    if how == "replaced":
        other = ground.program("other")
        os.replace(other, path)
    elif how == "written":
        path.write_text("#!/bin/true\nevil\n")
    else:
        path.unlink()
        path.symlink_to("second")
    assert refusal(resolve, "mytool", allowed, []).kind == "security_error"


# 4: arguments


@pytest.mark.parametrize(
    ("bad", "said"),
    [("$(id)", '"$("'), ("a$(", '"$("'), ("`id`", "backtick"), ("a\nb", "newline"), ("a\r", "newline"), ("\0", "NUL")],
)
def test_what_a_shell_would_act_on_is_refused_and_its_place_named(bad, said):
    error = refusal(validate_arguments, ["fine", "fine too", bad])
    assert error.message.startswith("argument 2: contains ")
    assert said in error.message
    assert error.kind == "security_error"


@pytest.mark.parametrize("fine", ["$HOME", "a;b", "a && b", "a|b", "> x", "(x)", "$1", "'\"", "*", "{a,b}", "é👍", ""])
def test_what_means_nothing_without_a_shell_is_accepted(fine):
    validate_arguments([fine])


def test_an_argument_that_no_kernel_takes_is_explained():
    assert refusal(validate_arguments, ["x" * 200_000]).kind == "validation_error"
    assert refusal(validate_arguments, ["\ud800"]).kind == "validation_error"
    assert refusal(validate_arguments, ["x" * 100_000] * 30).kind == "validation_error"
    validate_arguments(["x" * 100_000])


# 5: file://


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "FILE:///etc/passwd", "FiLe://localhost/etc/passwd", "file:/etc/passwd"),
        *("file:\\\\etc\\passwd", "--url=file:///x", "%66ile:///etc/passwd", "file%3A%2F%2F/etc", "%2566ile:///etc"),
        *("jar:file:/x", "{file}:///etc/passwd", "[f-f]ile:///etc/passwd", "f{i}le:///x", "profile://x", "@file:///x"),
    ],
)
def test_a_url_of_a_file_is_refused_however_it_is_written(url):
    error = refusal(refuse_file_protocol, [url])
    assert error.message == "argument 0: file:// is not allowed"
    assert error.kind == "security_error"


@pytest.mark.parametrize(
    "fine",
    [
        *("https://example.com/file:x", "http://[::1]:80/", "file", "file.txt", "--file=a/b", "profile:/x", "50%"),
        *('{"url": "http://x"}', "[http://x]", "-file", "a%20b", "my-file/a"),
    ],
)
def test_what_only_has_the_word_file_in_it_is_accepted(fine):
    refuse_file_protocol([fine])


# 6: paths


OUTSIDE = [
    *("/etc/passwd", "/", "//etc", "..", "../x", "sub/../../x", "~", "~/.ssh/id_rsa", "~root/x", "./../../x"),
    *("--file=/etc/passwd", "--file=../x", "--file=~/x", "key=/etc/passwd", "if=/etc/passwd", "a=b=/etc/passwd"),
    *("-I/etc", "-I../x", "-I~/x", "-xvf/etc/passwd", "-xvfsub/../../x", "-Csub/../..", "-vvvvvvvvvvvvvvvvvvv../x"),
    *("@/etc/passwd", "-d@/etc/passwd", "--data=@/etc/passwd", "file=@/etc/passwd;type=x", "x=</etc/passwd"),
    *("host:/etc/passwd", "host:../x", "a:b:/etc", "src=/etc,dst=x", "x,/etc", "HEAD:../../x", "a:~/x"),
    *("link", "link/secret", "--file=link/secret", "-Ilink", "@link/secret", "key=link/secret,x", "a:link:ro"),
    *("-vvvlink", "x" * 300 + "/../../../etc", "sub/link/../../../x", "http://../../../etc/passwd", "http:///etc"),
    *("--x=foo://etc/passwd", "a:http://x:/etc/passwd", "https://x,/etc/passwd", "/dev/null/../../etc", "good/../../x"),
]


@pytest.mark.parametrize("argument", OUTSIDE, ids=lambda text: text[:30])
def test_a_path_that_leads_outside_is_refused_wherever_it_stands(ground, argument):
    error = refusal(confine_paths, ground.binary("mytool"), ["fine", argument], ground.paths)
    assert re.fullmatch(r'argument 1: "[^"]+" resolves outside the working directory', error.message)
    assert error.kind == "security_error"


INSIDE = [
    *("inside.txt", ".", "sub", "./sub/../inside.txt", "missing", "sub/missing/too", "good", "good/x", "", "-", "--"),
    *("--file=inside.txt", "key=sub/x", "-Isub", "-xvf", "-xvfinside.txt", "@inside.txt", "host:inside.txt", "-d@x"),
    *("HEAD~1", "main..feature", "HEAD^", "a..b/c", "...", "https://example.com/a/b?c=/d&e=f:g", "-xhttps"),
    *(
        "--url=https://example.com:8080/a",
        "git@github.com:owner/name.git",
        "ssh://git@host/x",
        "*/*",
        "s/a/b/",
        "a / b",
    ),
    *("Accept: application/json", '{"a": "b", "c": [1, 2]}', "text with spaces / and more", "/dev/null", "/dev/stdin"),
    *(
        "--output=/dev/null",
        "+%Y/%m/%d",
        "%h %s",
        "x" * 5000,
        "a=" * 5000,
        "é/ü",
        "--x=a,b,c",
        "12:30",
        "-1",
        "~~~"[3:],
    ),
]


@pytest.mark.parametrize("argument", INSIDE, ids=lambda text: text[:30])
def test_a_path_inside_and_what_is_no_path_is_accepted(ground, argument):
    confine_paths(ground.binary("mytool"), [argument], ground.paths)


def test_the_whole_path_of_the_workspace_is_inside_and_its_neighbour_is_not(ground):
    mytool = ground.binary("mytool")
    confine_paths(mytool, [str(ground.workspace), f"--file={ground.workspace}/inside.txt"], ground.paths)
    refusal(confine_paths, mytool, [f"{ground.workspace}-evil"], ground.paths)


def test_a_declared_root_is_inside(ground):
    mytool = ground.binary("mytool")
    secret = str(ground.outside / "secret")
    refusal(confine_paths, mytool, [secret], ground.paths)
    wider = PathValidator(ground.workspace, [Root(ground.outside)])
    assert confine_paths(mytool, [secret, "link/secret"], wider) == [secret, "link/secret"]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        *(
            ("cut", ["-d/", "-f1"]),
            ("cut", ["-d", "/", "-f1"]),
            ("sort", ["-t/", "-k2"]),
            ("awk", ["-F/", "{print $1}"]),
        ),
        *(("awk", ["/x/{print}"]), ("awk", ["-F:", "-v", "a=1", "/x/"]), ("sed", ["/x/d"]), ("sed", ["-n", "/a/p"])),
        *(("sed", ["-i", "-e", "/x/d", "inside.txt"]), ("grep", ["-rn", "/api/v1", "."]), ("rg", ["/api"])),
    ],
)
def test_a_pattern_or_delimiter_is_no_path(ground, name, args):
    confine_paths(ground.binary(name), args, ground.paths)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        *(
            ("cut", ["-f1", "/"]),
            ("tar", ["-C/", "-x"]),
            ("awk", ["{print}", "/etc/passwd"]),
            ("sed", ["p", "/etc/passwd"]),
        ),
        *(
            ("sed", ["-e", "p", "/etc/passwd"]),
            ("sed", ["/etc/passwd", "-e", "p"]),
            ("sed", ["--expression", "p", "/etc"]),
        ),
        *(
            ("grep", ["-e", "x", "/etc/passwd"]),
            ("grep", ["/etc/passwd", "-e", "x"]),
            ("grep", ["-f", "/etc/passwd", "x"]),
        ),
        *(
            ("grep", ["/etc/passwd", "--regexp=x"]),
            ("grep", ["-m", "1", "/etc/passwd"]),
            ("grep", ["x", "/etc/passwd"]),
        ),
        *(("grep", ["-cf/etc/passwd", "x"]), ("rg", ["--files", "/etc"]), ("awk", ["-f", "/etc/passwd"])),
        *(("awk", ["-v", "/x=/etc/passwd", "1"]), ("cat", ["/etc"]), ("grep", ["--exclude-from", "/etc/passwd", "x"])),
    ],
)
def test_a_path_in_the_place_of_a_pattern_is_one(ground, name, args):
    assert "outside the working directory" in refusal(confine_paths, ground.binary(name), args, ground.paths).message


NO_LOCAL_PATHS = [  # what names nothing here, and neither does its parent other than /
    *("/healthz", "/repos/o/r", "/repos/o/r/compare/a...b", "-w=/app", "--workdir=/app", "/apis/apps/v1?watch=1"),
    *("pod:/srv-of-a-pod/x", "key=/nowhere-here/x", "--path=/v1/secrets/a", "-H/nowhere-here", "a,/nowhere-here"),
]
HERE = ["/var/log/app.log", "pod:/tmp/x", "/etc/nothing-of-this-name", "//etc/x", "/etc/", "/"]  # it, or its parent, is


@pytest.mark.parametrize("argument", NO_LOCAL_PATHS)
def test_an_argument_that_is_no_path_of_this_machine_is_accepted(ground, argument):
    assert not confine_paths(ground.binary("kubectl"), [argument], ground.paths, sandboxed=lambda: True)
    assert not confine_paths(ground.binary("kubectl"), [argument], ground.paths)


@pytest.mark.parametrize("argument", HERE)
def test_a_path_of_this_machine_is_refused_only_without_a_sandbox(ground, argument):
    assert "outside" in refusal(confine_paths, ground.binary("kubectl"), [argument], ground.paths).message
    confine_paths(ground.binary("kubectl"), [argument], ground.paths, sandboxed=lambda: True)


def test_a_path_into_the_home_directory_or_up_from_the_workspace_is_refused_in_a_sandbox_too(ground, monkeypatch):
    home = ground.outside / "home"
    home.mkdir()
    (ground.outside / "to-home").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    wrong = [
        home,
        home / "x",
        f"--file={home}/.ssh/id",
        f"@/{home}/x",
        ground.outside / "to-home" / "x",
        "~/x",
        "~root/x",
    ]
    wrong += ["../x", "--file=../x", "link/secret", f"{ground.workspace}/../x", f"{ground.workspace}/../outside/secret"]
    for argument in map(str, wrong):
        error = refusal(confine_paths, ground.binary("mytool"), [argument], ground.paths, sandboxed=lambda: True)
        assert "outside the working directory" in error.message, argument
    fine = [f"{home}-of-another", "/srv/x", "sub/../inside.txt", f"{ground.workspace}/inside.txt", "pod:/tmp/x"]
    confine_paths(ground.binary("mytool"), fine, ground.paths, sandboxed=lambda: True)


def test_whether_there_is_a_sandbox_is_asked_only_for_what_needs_it(ground):
    def asked() -> bool:
        raise AssertionError("a sandbox was tried")

    confine_paths(
        ground.binary("mytool"), ["inside.txt", "--x=sub", str(ground.workspace)], ground.paths, sandboxed=asked
    )


def test_an_argument_of_countless_paths_ends_soon(ground):
    mytool = ground.binary("mytool")
    refusal(confine_paths, mytool, ["sub/..=" * 10_000], ground.paths)
    confine_paths(mytool, ["sub/..=" * 20], ground.paths)


PIECES = st.lists(
    st.sampled_from(
        ("/ .. ~ etc link sub good inside.txt = : @ , ; -f --flag= -xvf - . // a secret x= -I < ../ /etc").split()
    ),
    min_size=1,
    max_size=8,
).map("".join)


EXISTING = {"etc", "tmp", "usr", "var"}  # parents that are on every machine


@given(PIECES)
@example("-xvfa=../link")
@example("a,link;x")
def test_no_reading_of_an_argument_gets_a_path_outside_past_the_layer(shared, argument):
    """An independent judge reads the argument as programs do; if any reading leads outside, it must be refused."""
    binary = resolve("true", AllowedPrograms(["true"]), [])
    outside = any(leads_out(reading, shared.workspace) for reading in readings(argument))
    try:
        confine_paths(binary, [argument], shared.paths)
    except ToolError:
        return  # to refuse more is a matter of comfort, and of the tests above
    assert not outside


def readings(argument: str):
    """As getopt, dd, curl, scp, mount and path lists read it."""
    yield argument
    if argument.startswith("-"):
        yield argument[2:]
        yield argument.lstrip("-")
        yield argument[4:] if argument.startswith("-xvf") else argument[2:]
    for mark in "=:@,;<":
        if mark in argument:
            yield argument.partition(mark)[2]
            yield argument.rpartition(mark)[2]
            yield from argument.split(mark)
    for item in argument.split(","):
        yield item.partition("=")[2]


def leads_out(reading: str, workspace: Path) -> bool:
    if not reading or len(reading) > 4_000:
        return False
    if reading.startswith("~"):
        return True
    root = os.path.realpath(workspace)
    for path in (os.path.join(root, reading), os.path.normpath(os.path.join(root, reading))):
        real = os.path.realpath(path)
        is_here = not reading.startswith("/") or os.path.lexists(real) or os.path.dirname(real).strip("/") in EXISTING
        if real != root and not real.startswith(f"{root}/") and is_here:
            return True
    return False


# 6, second half: options that start programs


def commands(text: str) -> list[str]:
    """One a line, or several with more than a space between them."""
    return re.split(r"\s{2,}", text.strip())


EXEC = commands(
    r"""
    find . -exec id ;   find . -execdir id ;   find . -ok id ;   find . -delete   find . -fprintf x y
    find -L . -name x   fd -x id   fd . --exec-batch id   git -c alias.x=!id x   git -ccore.pager=x log
    git --exec-path=sub status   git --config-env=a=b log   git --git-dir=sub log   git clone --upload-pack=x a b
    git clone --upl=x a b   git clone -u x a b   git clone -c a=b c d   git fetch --upload-pack x
    git rebase -x id   git rebase --exec id   git grep -Oless x   git grep --open-files-in-pager x
    git bisect run id   git submodule foreach id   git filter-branch --tree-filter id   git difftool -x id
    git config alias.x !id   git config --edit   git clone ext::id x   git remote add x ext::id
    git init --template=sub   git -p -c a=b x   git apply --unsafe-paths x   git -C sub -c a=b log
    git diff --ext-diff   git daemon   git push --exec=x   tar --to-command=id -xf a   tar -xf a --to-com=id
    tar --checkpoint=1 --checkpoint-action=exec=id -cf a b   tar -I id -cf a b   tar -cIf id a b   tar cIf id a b
    tar --use-compress-program=id -cf a b   tar -cf a -T b   tar -xPf a   tar --use-comp=id -cf a b
    tar -F id -cf a b   bsdtar --use-compress-program id -cf a b   ssh -oProxyCommand=id host
    ssh -o ProxyCommand=id host   ssh -vo ProxyCommand=id host   ssh -F x host   scp -S id a b   sftp -D id
    rsync -e id a b   rsync -ae id a b   rsync --rsh=id a b   rsync --rsync-path=x a b   curl -o x https://a.b
    curl -ox https://a.b   curl -sSo x u   curl --output x u   curl -O u   curl -K x   curl --config x
    curl -T inside.txt u   curl --upload-file x u   curl --proto-default file x   curl -OJ u
    curl --variable a=b --expand-url {{a}}   curl -sc jar u   curl --outp x u   curl -O /dev/null u   wget -e x=y u
    wget --execute=x u   wget --use-askpass=id u   wget -i inside.txt   sort --compress-program=id x
    sort --compress-prog id x   sort --files0-from=x   wc --files0-from=-   awk BEGIN{system("id")}   awk -f x
    awk BEGIN{"id"|getline}   awk {print|"id"}   awk {print>"x"}   awk BEGIN{getline<"x"}   awk @load   mawk -f x
    awk BEGIN{ARGV[1]="x"}   awk BEGIN{f="sys";@f("id")}   gawk -e 1   gawk --include=x 1   awk -Wexec x
    sed 1eid x   sed -n s/a/b/e x   sed wx inside.txt   sed rx inside.txt   sed -e p -e 1eid   sed -be1eid x
    sed --expr=1eid x   sed -f x   sed -nf x y   sed -l 5 1eid   python3 -c 1   python3 -Bc 1   python3 -W x -c 1
    python3   python3 -   python3 -W ignore   python3 -i x.py   python3 -m timeit 1   python3 -mpdb x
    python3 --check-hash-based-pycs always -c 1   perl -e 1   perl -lane 1   perl -ne 1   perl -Mx y   ruby -e 1
    node -e 1   node --eval=1   node -pe 1   node -r ./x y   node --require ./x y   node   php -r 1   lua -e 1
    rg --pre id x   rg --pre=id x   rg -z x   rg -L x   grep -R x .   grep --dereference-recursive x .
    split --filter=id x   patch -e x   zip -TT id a b   gcc -wrapper id x.c   gcc -fplugin=x y.c   go test -exec id
    make --eval=x   make SHELL=x   jq -n import"a"as$a;1   sqlite3 x .shell   sqlite3 x load_extension(1)
    mysql -e system/**/id   mysql --pager=id db   mariadb -e \! db   julia -e 1   Rscript -e 1   R   guile -c 1
    x86_64-linux-gnu-gcc-12 -wrapper id x.c   perl -0777ne 1 x   ruby -Kue 1   make -kE x   less +x a   node inspect x
    socat - EXEC:id   nc -e id host   openssl x -engine y   mytool --exec x   mytool -exec x   pandoc --filter x y
    """
)


@pytest.mark.parametrize("line", EXEC)
def test_an_option_that_starts_programs_is_refused(ground, line):
    name, *args = line.split(" ")
    error = refusal(refuse_exec_flags, ground.binary(name), args, ground.paths)
    assert f'is not allowed for "{name}"' in error.message
    assert error.kind == "security_error"
    assert refuse_exec_flags(ground.binary(name), args, ground.paths, allowed=True)


HARMLESS = commands(
    r"""
    find . -name x -type f   find . -newer inside.txt -print0   fd -e py x   git log -1 --oneline   git status
    git -C sub log -p   git --no-pager diff --cached   git switch -c branch   git commit -c HEAD   git push -u o b
    git commit --edit -m exec   git config user.name Ada   git config --get alias.x   git config --list
    git config x   git clone https://a.b/c   git fetch --all --prune   git bisect start
    git submodule update --init   git grep x   git rebase --continue   git diff --text   git log --no-merges
    git --version   git show HEAD:inside.txt   tar -czf a.tgz sub   tar xzf a.tgz   tar -xf a -C sub
    tar --list -f a   tar tvf a   ssh -p 22 host uptime   rsync -av a b   rsync --delete a b
    curl -sSL https://a.b   curl -o /dev/null -w x u   curl -o- u   curl --output - u   curl -X POST -d @x u
    curl --connect-timeout 5 u   curl -H Key:OT u   wget -q u   wget -O x u   sort -k2 -n x   sort -t, x   wc -l x
    awk {print$1} x   awk -F: -v a=1 {print} x   awk $1>5{n++}END{print/**/n||0}   awk --version   sed s/a/b/g x
    sed -n 1,5p x   sed -i s/a/b/ x   sed --help   python3 x.py -c config   python3 -m pytest -c x
    python3 -W ignore x.py   python3 -V   perl x.pl -e 1   perl -Ilib x.pl   ruby x.rb   node x.js -e
    node --trace-warnings=1 x.js   php x.php   node --version   rg -n x   rg --pretty x   grep -rn x .
    grep -e R x   grep -A3 x y   split -l 5 x   patch -p1   zip -r a b   gcc -O2 -Isub x.c   go test ./...
    mysql -e select(1) db   psql -c select(1)   mail -s subject you   julia x.jl   Rscript x.R   gcc -DBUILD=1 x.c
    sed -b --expr=s/a/b/ x   qemu-img info x   less -R a   make -CE all   jq -r .a
    sqlite3 x select(1)   mytool --execute   jq ..|.a?
    """
)


@pytest.mark.parametrize("line", HARMLESS)
def test_an_option_that_starts_nothing_is_accepted(ground, line):
    name, *args = line.split(" ")
    assert refuse_exec_flags(ground.binary(name), args, ground.paths) == ""


def test_a_program_is_judged_by_its_real_name_as_well(ground):
    ground.program("find")
    (ground.programs / "seek").symlink_to("find")
    seek = ground.binary("seek")
    refusal(refuse_exec_flags, seek, [".", "-exec", "id", ";"], ground.paths)
    assert refuse_exec_flags(seek, [".", "-name", "x"], ground.paths) == ""


def test_a_directory_that_passes_for_a_repository_is_refused(ground):
    git = ground.binary("git")
    assert refuse_exec_flags(git, ["-C", "sub", "status"], ground.paths) == ""
    (ground.workspace / "sub" / "HEAD").write_text("ref: refs/heads/main")
    (ground.workspace / "sub" / "refs").mkdir()
    for words in (["-C", "sub"], ["-C", "sub/refs"], ["-C", ".", "-C", "sub"]):
        refusal(refuse_exec_flags, git, [*words, "status"], ground.paths)
    (ground.workspace / "sub" / ".git").mkdir()
    assert refuse_exec_flags(git, ["-C", "sub", "status"], ground.paths) == ""


def test_commands_that_a_program_reads_are_judged_too(ground):
    sqlite = ground.binary("sqlite3")
    assert refuse_exec_flags(sqlite, ["x.db"], ground.paths, stdin="select 1;\n") == ""
    refusal(refuse_exec_flags, sqlite, ["x.db"], ground.paths, stdin="select 1;\n.shell id\n")


@pytest.mark.parametrize("name", sorted(LINE_OPTIONS.keys() - LAUNCHERS - {"git"}))
def test_what_rules_know_to_start_a_program_is_refused_here_too(ground, name):
    binary = ground.binary(name)
    for option in LINE_OPTIONS[name] - {"EXEC", "SYSTEM", "SHELL"}:
        given = [[option, "x"]] + [[f"{option}=x"]] * option.startswith("--") + [[f"{option}x"]] * (len(option) == 2)
        for args in given:
            refusal(refuse_exec_flags, binary, args, ground.paths)
        assert refuse_exec_flags(binary, args, ground.paths, allowed=True)
    assert refuse_exec_flags(binary, ["input.txt"], ground.paths) == ""


CODE = {name: CODE_OPTIONS.get(name, frozenset()) for name in CODE_OPTIONS} | {
    name: code for name, (code, _) in INTERPRETERS.items()
}


@pytest.mark.parametrize("name", sorted(CODE.keys() - LAUNCHERS - REFUSED_SHELLS))
def test_what_rules_know_to_take_code_is_refused_here_too(ground, name):
    binary = ground.binary(name)
    for option in CODE[name] - READ_CODE.get(name, frozenset()):
        refusal(refuse_exec_flags, binary, [option, "x"], ground.paths)
    assert refuse_exec_flags(binary, ["input.txt"], ground.paths) == ""


def test_a_value_that_looks_like_an_option_of_another_program_is_accepted(ground):
    assert refuse_exec_flags(ground.binary("restic"), ["backup", "--tag", "password-command"], ground.paths) == ""
    assert refuse_exec_flags(ground.binary("jq"), ["--password-command"], ground.paths) == ""
    refusal(refuse_exec_flags, ground.binary("restic"), ["backup", "--password-comm", "id"], ground.paths)


@pytest.mark.parametrize("name", ["chronic", "eatmydata", "runcon", "i386", "proxychains4", "nq", "hush"])
def test_programs_that_rules_look_through_are_not_started(name):
    with pytest.raises(ToolError, match=r"shell|starts"):
        refuse_shells(name, AllowedPrograms((name,)))


@pytest.mark.parametrize("name", ["uv", "ssh", "npx", "poetry", "hyperfine"])
def test_programs_with_other_uses_may_be_allowed(name):
    refuse_shells(name, AllowedPrograms((name,)))


def test_the_table_names_no_option_twice():
    for name, flags in TABLE.items():
        refused = flags.short + flags.writes
        assert len(set(refused)) == len(refused), name
        assert not set(refused) & set(flags.valued), name


# 12: guardrails


def test_a_guardrail_refuses_what_it_matches_and_nothing_else():
    rails = read_guardrails([{"pattern": r"^git push .*--force", "message": "history stays"}])
    error = refusal(apply_guardrails, "git", ["push", "origin", "--force"], rails)
    assert error.message == "skill guardrail: history stays"
    assert error.kind == "security_error"
    apply_guardrails("git", ["push", "origin"], rails)


def test_a_guardrail_without_a_message_does_not_tell_its_pattern():
    error = refusal(apply_guardrails, "git", ["push"], read_guardrails([{"pattern": "pu[s]h"}]))
    assert error.message == "skill guardrail: rule deny_commands[0] forbids it"


def test_quotes_do_not_hide_a_command_from_a_guardrail():
    rails = read_guardrails([{"pattern": "delete everything"}])
    refusal(apply_guardrails, "mytool", ["delete everything"], rails)
    refusal(apply_guardrails, "mytool", ["delete", "everything"], rails)


def test_no_pattern_of_a_guardrail_takes_exponential_time():
    rails = read_guardrails([{"pattern": "(a+)+$", "message": "no"}])
    with at_most(1.0):
        apply_guardrails("mytool", ["a" * 50_000 + "!"], rails)
        refusal(apply_guardrails, "mytool", ["a" * 50_000], rails)


def test_bytes_that_are_no_text_hide_nothing_from_a_guardrail():
    rails = read_guardrails([{"pattern": "secret"}])
    refusal(apply_guardrails, "mytool", ["\udcff secret"], rails)
    apply_guardrails("mytool", ["\udcff"], rails)


def test_an_invalid_guardrail_is_said_when_it_is_read():
    for entry in ({"pattern": "("}, {"message": "x"}, {"pattern": 5}, {"pattern": "a(?=b)"}, {"pattern": ""}):
        assert refusal(read_guardrails, [entry]).kind == "config_error"
    assert read_guardrails([{"pattern": "x"}])[0].message


# the order


def test_the_layers_speak_in_their_order(ground):
    """Of a command with everything wrong the first layer speaks; mended, the next."""
    every = ("$(x)", "file:///x", "/etc/passwd", "-exec")
    rails = read_guardrails([{"pattern": "fine", "message": "twelve"}])
    ground.program("find")
    allowed = AllowedPrograms(["find", "gone"])

    def speaks(name: str, *args: str) -> str:
        return refusal(judge, name, args, ground.scope, allowed, guardrails=rails).message

    assert "shell interpreter" in speaks("bash", *every)
    assert "not in the allowed list" in speaks("rm", *every)
    assert "not found" in speaks("gone", *every)
    assert "$(" in speaks("find", *every)
    assert "file://" in speaks("find", *every[1:])
    assert "outside" in speaks("find", *every[2:])
    assert "-exec" in speaks("find", *every[3:], "fine")
    assert speaks("find", "fine") == "skill guardrail: twelve"
    assert judge("find", ["."], ground.scope, allowed, guardrails=rails).binary.path == str(ground.programs / "find")
