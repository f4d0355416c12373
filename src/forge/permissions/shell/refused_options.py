"""Lists names and options that `cli_execute` refuses, besides those of `programs` that start other programs.

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


class RefusedFlags(NamedTuple):
    """The refused options of one program. Long options count however far they are abbreviated."""

    short: str = ""  # letters, also inside a cluster such as -xvI
    valued: str = ""  # letters after which the rest of a cluster is a value
    long: str = ""  # names without dashes; one that ends in * stands for all that begin so
    words: str = ""  # exactly so, such as -exec; one that ends in * as above
    writes: str = ""  # letters that name a file to write: harmless with - or /dev/null
    long_writes: str = ""
    first_is_cluster: bool = False  # `tar xf`
    script: bool = False  # an interpreter: without a script it runs what it reads


ANY = RefusedFlags(
    words="-exec -execdir -ok -okdir", long="exec exec-batch to-command use-compress-program compress-program"
)
_TAR = RefusedFlags(
    "FIPTh",
    "bCfgHKLNVX",
    "absolute-names dereference files-from",
    first_is_cluster=True,
)
_CURL = RefusedFlags(
    "JKOT",
    "AbCdEeFHhmPQrtUuwXxYyz",
    "config engine expand-* output-dir proto-default remote-header-name remote-name remote-name-all upload-file"
    " variable",
    writes="Dco",
    long_writes="alt-svc cookie-jar dump-header etag-save hsts libcurl output stderr trace trace-ascii",
)
_SSH = RefusedFlags("DEFIoS", "BbceiJLlmOpQRWw")
_PYTHON = RefusedFlags("ci", "mWX", words="-", script=True)
_PERL = RefusedFlags("EMdemx", "I", words="-", script=True)
_RUBY = RefusedFlags("er", "CEI", words="-", script=True)
_NODE = RefusedFlags(
    "eipr",
    "C",
    "env-file eval experimental-loader import inspect* interactive loader print require run snapshot-blob",
    "-",
    script=True,
)
_COMPILER = RefusedFlags(words="-B* -fplugin* -plugin* -specs* --specs* -wrapper -Xlinker -fuse-ld* -Wl,* -dumpdir")
_GREP = RefusedFlags("R", "ABCDdefm", "dereference-recursive")

TABLE: dict[str, RefusedFlags] = {
    "7z": RefusedFlags(words="@* -si* -spf*"),
    "ack": RefusedFlags(long="follow"),
    "ag": RefusedFlags("f", "ABCGgmp", "follow"),
    "cargo": RefusedFlags(words="-Z*"),
    "cp": RefusedFlags("L", "St", "dereference"),
    "cpio": RefusedFlags("iop", "", "create extract pass-through"),
    "curl": _CURL,
    "deno": RefusedFlags(words="eval repl -A"),
    "diff3": RefusedFlags(long="diff-program"),
    "du": RefusedFlags("L", "BdtX", "dereference files0-from"),
    "fd": RefusedFlags("XLx", "EScdejot", "exec exec-batch follow"),
    "file": RefusedFlags("Lf", "FPem", "dereference files-from"),
    "find": RefusedFlags(
        words="-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from -follow -L",
    ),
    "gh": RefusedFlags(words="alias extension extensions ext"),
    "go": RefusedFlags(words="-exec* --exec* -toolexec* --toolexec* -overlay* --overlay* -vettool* --vettool*"),
    "gpg": RefusedFlags(long="exec-path keyserver-options load-extension"),
    "helm": RefusedFlags(long="post-renderer*", words="plugin"),
    "install": RefusedFlags(long="strip-program"),
    "java": RefusedFlags(words="-agent* -javaagent* -XX:OnError* -XX:OnOutOfMemoryError*"),
    "kubectl": RefusedFlags(long="kubeconfig", words="plugin"),
    "lua": RefusedFlags("eil", words="-", script=True),
    "make": RefusedFlags(long="eval", words="SHELL=* .SHELLFLAGS=* MAKEFLAGS=*"),
    "node": _NODE,
    "nc": RefusedFlags("ce", "IipqsTVwXx"),
    "npm": RefusedFlags("c", words="exec x"),
    "openssl": RefusedFlags(words="-engine -provider-path -provider -config"),
    "pandoc": RefusedFlags("F", "DHBAVMc", "lua-filter pdf-engine-opt"),
    "patch": RefusedFlags("e", "BDFgiopRrVxYz", "ed"),
    "pdflatex": RefusedFlags(words="-shell-escape --shell-escape -enable-write18 --enable-write18 -output-directory*"),
    "perl": _PERL,
    "php": RefusedFlags("BEFRadr", "Sct", "run process-* interactive define", "-", script=True),
    "psql": RefusedFlags("f", "FLPRTUcdhopv", "file"),
    "python": _PYTHON,
    "rg": RefusedFlags("Lz", "ABCEMTdefgjmrt", "follow pre-glob search-zip"),
    "rsync": RefusedFlags("Lek", "BTfM", "copy-dirlinks copy-links copy-unsafe-links config daemon files-from"),
    "ruby": _RUBY,
    "sdiff": RefusedFlags(long="diff-program"),
    "sort": RefusedFlags("", "kSt", "files0-from"),
    "split": RefusedFlags(),
    "sqlite3": RefusedFlags(words="-cmd -init --cmd --init -A* --A*"),
    "ssh": _SSH,
    "ssh-keygen": RefusedFlags("D", "CIMNOPRSVYabfilmnrstwz"),
    "tar": _TAR,
    "tcpdump": RefusedFlags("z", "BCEFGTVWcijmrswy"),
    "tree": RefusedFlags("l", "IPL", "fromfile"),
    "wc": RefusedFlags(long="files0-from"),
    "wget": RefusedFlags("ei", "ABDGIOPQRTUXalotw", "config input-file"),
    "zip": RefusedFlags("@"),
    **dict.fromkeys(("cc", "c++", "clang", "clang++", "g++", "gcc"), _COMPILER),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
    **dict.fromkeys(SEDS, RefusedFlags("f", "el", "file")),
    **dict.fromkeys(AWKS, RefusedFlags("DEWefil", "Fv", "debug exec file include load source")),
}
OTHER_NAMES = {
    "bsdtar": "tar", "bun": "node", "fdfind": "fd", "fetch": "curl", "gmake": "make", "gpg2": "gpg", "gsort": "sort",
    "gtar": "tar", "gfind": "find", "bfind": "find", "latex": "pdflatex", "lualatex": "pdflatex", "luajit": "lua",
    "ncat": "nc", "netcat": "nc", "nodejs": "node", "npx": "npm", "pnpm": "npm", "pypy": "python", "ripgrep": "rg",
    "scp": "ssh", "sftp": "ssh", "xelatex": "pdflatex", "yarn": "npm", "zipcloak": "zip",
}  # fmt: skip


def starting_options(names: tuple[str, ...]) -> Iterator[str]:
    """Returns the options by which a program starts another one. git's differ by subcommand and have own rules."""
    for name in names:
        if name != "git":
            yield from programs.LINE_OPTIONS.get(name, ())
