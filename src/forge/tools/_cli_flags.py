"""Options with which an allowed program starts others, loads code, or takes or writes files of its own choice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.tools._cli_binaries import Binary
from forge.tools._cli_code import AWKS, SEDS, inline_module, reaching_code
from forge.tools._cli_git import git_flag
from forge.workspace.paths import PathValidator

_TELLING = frozenset("-V -VV -v -h -help --help --version -copyright".split())
_HARMLESS = frozenset({"-", "/dev/null", "/dev/stdout"})  # where what is written does not matter


class Flags(NamedTuple):
    """What is refused of one program. Long options count however far they are abbreviated."""

    short: str = ""  # letters, also inside a cluster such as -xvI
    valued: str = ""  # letters after which the rest of a cluster is a value
    long: str = ""  # names without dashes; one that ends in * stands for all that begin so
    words: str = ""  # exactly so, such as -exec; one that ends in * as above
    writes: str = ""  # letters that name a file to write: harmless with - or /dev/null
    long_writes: str = ""
    first_is_cluster: bool = False  # `tar xf`
    script: bool = False  # an interpreter: without a script it runs what it reads


_ANY = Flags(words="-exec -execdir -ok -okdir", long="exec exec-batch to-command use-compress-program compress-program")
_TAR = Flags(
    "FIPTh",
    "bCfgHKLNVX",
    "absolute-names checkpoint-action dereference files-from info-script new-volume-script rmt-command rsh-command"
    " to-command use-compress-program",
    first_is_cluster=True,
)
_CURL = Flags(
    "JKOT",
    "AbCdEeFHhmPQrtUuwXxYyz",
    "config engine expand-* output-dir proto-default remote-header-name remote-name remote-name-all upload-file"
    " variable",
    writes="Dco",
    long_writes="alt-svc cookie-jar dump-header etag-save hsts libcurl output stderr trace trace-ascii",
)
_SSH = Flags("DEFIoS", "BbceiJLlmOpQRWw")
_PYTHON = Flags("ci", "mWX", words="-", script=True)
_PERL = Flags("EMdemx", "I", words="-", script=True)
_RUBY = Flags("er", "CEI", words="-", script=True)
_NODE = Flags(
    "eipr",
    "C",
    "env-file eval experimental-loader import inspect* interactive loader print require run snapshot-blob",
    "-",
    script=True,
)
_COMPILER = Flags(words="-B* -fplugin* -plugin* -specs* --specs* -wrapper -Xlinker -fuse-ld* -Wl,* -dumpdir")
_GREP = Flags("R", "ABCDdefm", "dereference-recursive")

TABLE: dict[str, Flags] = {
    "7z": Flags(words="@* -si* -spf*"),
    "ack": Flags(long="pager follow"),
    "ag": Flags("f", "ABCGgmp", "follow pager"),
    "cargo": Flags(long="config", words="-Z*"),
    "cp": Flags("L", "St", "dereference"),
    "cpio": Flags("iop", "", "create extract pass-through rsh-command"),
    "curl": _CURL,
    "deno": Flags(words="eval repl -A"),
    "diff3": Flags(long="diff-program"),
    "du": Flags("L", "BdtX", "dereference files0-from"),
    "fd": Flags("XLx", "EScdejot", "exec exec-batch follow"),
    "file": Flags("Lf", "FPem", "dereference files-from"),
    "find": Flags(
        words="-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from -follow -L",
    ),
    "gh": Flags(words="alias extension extensions ext"),
    "go": Flags(words="-exec* --exec* -toolexec* --toolexec* -overlay* --overlay* -vettool* --vettool*"),
    "gpg": Flags(long="exec-path photo-viewer keyserver-options load-extension agent-program dirmngr-program"),
    "helm": Flags(long="post-renderer*", words="plugin"),
    "install": Flags(long="strip-program"),
    "java": Flags(words="-agent* -javaagent* -XX:OnError* -XX:OnOutOfMemoryError*"),
    "kubectl": Flags(long="kubeconfig", words="plugin"),
    "lua": Flags("eil", words="-", script=True),
    "make": Flags(long="eval", words="SHELL=* .SHELLFLAGS=* MAKEFLAGS=*"),
    "node": _NODE,
    "nc": Flags("ce", "IipqsTVwXx", "exec sh-exec lua-exec"),
    "npm": Flags("c", "", "call node-options script-shell", "exec x"),
    "openssl": Flags(words="-engine -provider-path -provider -config"),
    "pandoc": Flags("F", "DHBAVMc", "filter lua-filter pdf-engine pdf-engine-opt"),
    "patch": Flags("e", "BDFgiopRrVxYz", "ed"),
    "pdflatex": Flags(words="-shell-escape --shell-escape -enable-write18 --enable-write18 -output-directory*"),
    "perl": _PERL,
    "php": Flags("BEFRadr", "Sct", "run process-* interactive define", "-", script=True),
    "psql": Flags("f", "FLPRTUcdhopv", "file"),
    "python": _PYTHON,
    "rg": Flags("Lz", "ABCEMTdefgjmrt", "follow hostname-bin pre pre-glob search-zip"),
    "rsync": Flags("Lek", "BTfM", "copy-dirlinks copy-links copy-unsafe-links config daemon files-from rsh rsync-path"),
    "ruby": _RUBY,
    "sdiff": Flags(long="diff-program"),
    "sort": Flags("", "kSt", "compress-program files0-from"),
    "split": Flags(long="filter"),
    "sqlite3": Flags(words="-cmd -init --cmd --init -A* --A*"),
    "ssh": _SSH,
    "ssh-keygen": Flags("D", "CIMNOPRSVYabfilmnrstwz"),
    "tar": _TAR,
    "tcpdump": Flags("z", "BCEFGTVWcijmrswy"),
    "tree": Flags("l", "IPL", "fromfile"),
    "wc": Flags(long="files0-from"),
    "wget": Flags("ei", "ABDGIOPQRTUXalotw", "config execute input-file use-askpass"),
    "zip": Flags("@", "", "unzip-command", "-TT"),
    **dict.fromkeys(("cc", "c++", "clang", "clang++", "g++", "gcc"), _COMPILER),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
    **dict.fromkeys(SEDS, Flags("f", "el", "file")),
    **dict.fromkeys(AWKS, Flags("DEWefil", "Fv", "debug exec file include load source")),
}
_OTHER_NAMES = {
    "bsdtar": "tar", "bun": "node", "fdfind": "fd", "fetch": "curl", "gmake": "make", "gpg2": "gpg", "gsort": "sort",
    "gtar": "tar", "gfind": "find", "bfind": "find", "latex": "pdflatex", "lualatex": "pdflatex", "luajit": "lua",
    "ncat": "nc", "netcat": "nc", "nodejs": "node", "npx": "npm", "pnpm": "npm", "pypy": "python", "ripgrep": "rg",
    "scp": "ssh", "sftp": "ssh", "xelatex": "pdflatex", "yarn": "npm", "zipcloak": "zip",
}  # fmt: skip


def refuse_exec_flags(
    binary: Binary, args: Sequence[str], paths: PathValidator, *, stdin: str = "", allowed: bool = False
) -> str:
    """The second half of layer 6: what starts other programs is refused, or returned where it is allowed."""
    found = exec_flag(binary, args, stdin, paths)
    if found is None:
        return ""
    index, flag = found
    if allowed:
        return flag
    name = binary.names[0]
    where = f"argument {index}: " if index >= 0 else ""
    raise ToolError(
        f'{where}{flag[:200]} is not allowed for "{name}": it can start programs, or reach files that are not named',
        ErrorKind.SECURITY,
        "Do it without. The person can allow it in a sandbox: allow_exec_flags: true in the tool's config.",
    )


def exec_flag(binary: Binary, args: Sequence[str], stdin: str, paths: PathValidator) -> tuple[int, str] | None:
    """The first such option, as its place and its text; the place is -1 where it is what is missing."""
    for name in dict.fromkeys(map(_family, binary.names)):
        if name == "git" and (found := git_flag(args, paths)) is not None:
            return found
        flags = TABLE.get(name, _ANY)
        own, given = _own_arguments(args, flags) if flags.script else (len(args), True)
        for index, argument in enumerate(args[:own]):
            if _is_listed(argument, index, args, flags):
                return index, f'"{argument}"'
        if not given:
            return -1, "a program that it reads"
        if name == "python" and (module := inline_module(args[:own])) is not None:
            return module, f'"{args[module]}"'
    code = reaching_code(binary, args, stdin, paths)
    return None if code is None else (code, "a script that may do more than work on its input")


def _own_arguments(args: Sequence[str], flags: Flags) -> tuple[int, bool]:
    """How many arguments are the interpreter's own, and whether a script is among them: what follows it is its own."""
    is_value = False
    for index, argument in enumerate(args):
        if not argument.startswith("-"):
            if not is_value:
                return index + 1, True
            is_value = False
        elif argument in _TELLING:
            return index + 1, True
        elif re.fullmatch(r"-[A-Za-z]*m.*", argument) and "m" in flags.valued:
            return index + (1 if re.search(r"m.+", argument) else 2), True
        else:
            is_value = "=" not in argument if argument.startswith("--") else argument[-1] in flags.valued
    return len(args), False


def _family(name: str) -> str:
    plain = re.sub(r"-?\d[\d.]*$", "", name) or name
    for one in (name, plain):
        if one in TABLE or one in _OTHER_NAMES or one == "git":
            return _OTHER_NAMES.get(one, one)
    return plain


def _is_listed(argument: str, index: int, args: Sequence[str], flags: Flags) -> bool:
    following = args[index + 1] if index + 1 < len(args) else ""
    if _matches(argument, flags.words):
        return True
    if argument.startswith("--"):
        name, _, value = argument[2:].partition("=")
        if not name:
            return False
        if name in flags.long_writes.split():
            return (value or following) not in _HARMLESS
        return _abbreviates(name, f"{flags.long} {flags.long_writes}")
    if not argument.startswith("-") and not (flags.first_is_cluster and index == 0):
        return False
    return _in_cluster(argument.removeprefix("-"), following, flags)


def _in_cluster(letters: str, following: str, flags: Flags) -> bool:
    for position, letter in enumerate(letters):
        if letter in flags.short:
            return True
        if letter in flags.writes:
            return (letters[position + 1 :] or following) not in _HARMLESS
        if letter in flags.valued and not flags.first_is_cluster:
            return False
        if letter in flags.valued and position + 1 < len(letters) and not letters[position + 1 :].isalpha():
            return False
    return False


def _matches(argument: str, words: str) -> bool:
    return any(argument.startswith(word[:-1]) if word.endswith("*") else argument == word for word in words.split())


def _abbreviates(name: str, long: str) -> bool:
    return any(
        name.startswith(one[:-1]) or one[:-1].startswith(name) if one.endswith("*") else one.startswith(name)
        for one in long.split()
    )
