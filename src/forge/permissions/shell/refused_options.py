"""What `cli_execute` refuses of programs: names, and options beside those of `programs` that start other programs.

Here are options that load code, or take or write files of their own choice, and how each program spells its options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forge.permissions.shell import programs

AWKS = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk", "bwk"})
SEDS = frozenset({"sed", "gsed"})
SHELLS = programs.SHELLS | frozenset("busybox toybox powershell pwsh scsh".split())
_WITH_OTHER_USES = frozenset(
    "asdf autossh bundle bunx cabal ccache clush concurrently conda csvtool debconf direnv distcc dpkg-architecture dsh"
    " foreman gdbserver gtester guix hatch hyperfine lxc-attach lxc-execute lxc-start machinectl mamba micromamba mise"
    " mosh mosh-server msgfilter nix npx opam pdm pdsh pipenv pipx pixi poetry pssh pyenv rbenv rustup rye socket ssh"
    " sshpass stack systemd-nspawn toolbox uv uvx".split()
)
LAUNCHERS = (programs.WRAPPERS - _WITH_OTHER_USES - SHELLS) | frozenset(
    "at batch coreutils crontab ed emacs ex expect lldb nvim run-parts rvim tclsh vi view vim vimdiff".split()
)
"""They do little but start the program that their arguments name."""


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


ANY = Flags(words="-exec -execdir -ok -okdir", long="exec exec-batch to-command use-compress-program compress-program")
_TAR = Flags(
    "FIPTh",
    "bCfgHKLNVX",
    "absolute-names dereference files-from",
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
    "ack": Flags(long="follow"),
    "ag": Flags("f", "ABCGgmp", "follow"),
    "cargo": Flags(words="-Z*"),
    "cp": Flags("L", "St", "dereference"),
    "cpio": Flags("iop", "", "create extract pass-through"),
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
    "gpg": Flags(long="exec-path keyserver-options load-extension"),
    "helm": Flags(long="post-renderer*", words="plugin"),
    "install": Flags(long="strip-program"),
    "java": Flags(words="-agent* -javaagent* -XX:OnError* -XX:OnOutOfMemoryError*"),
    "kubectl": Flags(long="kubeconfig", words="plugin"),
    "lua": Flags("eil", words="-", script=True),
    "make": Flags(long="eval", words="SHELL=* .SHELLFLAGS=* MAKEFLAGS=*"),
    "node": _NODE,
    "nc": Flags("ce", "IipqsTVwXx"),
    "npm": Flags("c", words="exec x"),
    "openssl": Flags(words="-engine -provider-path -provider -config"),
    "pandoc": Flags("F", "DHBAVMc", "lua-filter pdf-engine-opt"),
    "patch": Flags("e", "BDFgiopRrVxYz", "ed"),
    "pdflatex": Flags(words="-shell-escape --shell-escape -enable-write18 --enable-write18 -output-directory*"),
    "perl": _PERL,
    "php": Flags("BEFRadr", "Sct", "run process-* interactive define", "-", script=True),
    "psql": Flags("f", "FLPRTUcdhopv", "file"),
    "python": _PYTHON,
    "rg": Flags("Lz", "ABCEMTdefgjmrt", "follow pre-glob search-zip"),
    "rsync": Flags("Lek", "BTfM", "copy-dirlinks copy-links copy-unsafe-links config daemon files-from"),
    "ruby": _RUBY,
    "sdiff": Flags(long="diff-program"),
    "sort": Flags("", "kSt", "files0-from"),
    "split": Flags(),
    "sqlite3": Flags(words="-cmd -init --cmd --init -A* --A*"),
    "ssh": _SSH,
    "ssh-keygen": Flags("D", "CIMNOPRSVYabfilmnrstwz"),
    "tar": _TAR,
    "tcpdump": Flags("z", "BCEFGTVWcijmrswy"),
    "tree": Flags("l", "IPL", "fromfile"),
    "wc": Flags(long="files0-from"),
    "wget": Flags("ei", "ABDGIOPQRTUXalotw", "config input-file"),
    "zip": Flags("@"),
    **dict.fromkeys(("cc", "c++", "clang", "clang++", "g++", "gcc"), _COMPILER),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
    **dict.fromkeys(SEDS, Flags("f", "el", "file")),
    **dict.fromkeys(AWKS, Flags("DEWefil", "Fv", "debug exec file include load source")),
}
OTHER_NAMES = {
    "bsdtar": "tar", "bun": "node", "fdfind": "fd", "fetch": "curl", "gmake": "make", "gpg2": "gpg", "gsort": "sort",
    "gtar": "tar", "gfind": "find", "bfind": "find", "latex": "pdflatex", "lualatex": "pdflatex", "luajit": "lua",
    "ncat": "nc", "netcat": "nc", "nodejs": "node", "npx": "npm", "pnpm": "npm", "pypy": "python", "ripgrep": "rg",
    "scp": "ssh", "sftp": "ssh", "xelatex": "pdflatex", "yarn": "npm", "zipcloak": "zip",
}  # fmt: skip


def starting_options(names: tuple[str, ...]) -> Iterator[str]:
    """The options of a program by which it starts another one. git has rules of its own: they differ by subcommand."""
    for name in names:
        if name != "git":
            yield from programs.LINE_OPTIONS.get(name, ())
