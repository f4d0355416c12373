"""The table of programs that start another program given in their arguments, and how.

Rules that deny look through all of it (`shell_wrappers`); where a program takes code or commands that cannot be read
(`hidden`), the line asks. Programs that only run files by name, such as `make` or `python script.py`, are not
meant: what a file says is no part of a line. Compared with the programs of Debian and the list of GTFOBins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

SHELLS = frozenset(
    "sh bash dash zsh ksh ksh93 mksh lksh ash rbash rzsh fish csh tcsh bsd-csh yash posh sash rc es elvish xonsh nu osh"
    " static-sh hush ion jsh nushell oil oils pdksh rksh ysh".split()
)

# Words between a program and the command behind it, options aside.
POSITIONALS: Mapping[str, int] = {
    **dict.fromkeys("chroot chrt flock runcon runuser script setarch setuidgid sg ssh su taskset timeout".split(), 1),
    **dict.fromkeys("gosu mosh mosh-server perf screen su-exec tmux tmate s6-setuidgid setlock logsave".split(), 1),
    **dict.fromkeys("bundle conda hatch mise pdm pipenv pipx poetry rye uv micromamba mamba pixi".split(), 1),
    **dict.fromkeys("rbenv pyenv asdf opam cabal stack nix guix gdbserver faketime foreman".split(), 1),
    **dict.fromkeys("coproc direnv rustup tcpserver".split(), 2),
    **dict.fromkeys("autossh clush pdsh pssh dsh xinit startx debconf".split(), 1),
    **dict.fromkeys("bwrap concurrently".split(), 40),  # options with two values; every word a line
    **dict.fromkeys("sshpass lxc-attach lxc-execute lxc-start machinectl systemd-nspawn csvtool socket".split(), 1),
}
WRAPPERS = frozenset(POSITIONALS) | frozenset(
    "aa-exec agetty aoss arch-chroot arch-nspawn builtin bunx busybox bwrap capsh catatonit catchsegv ccache"
    " cgexec choom chpst chronic command coproc cpulimit daemonize dbus-launch dbus-run-session distcc doas dtach"
    " dumb-init eatmydata entr env eval exec fakechroot fakeroot firejail gdb genie getty gnome-terminal"
    " grc gtester hyperfine ionice konsole ksu linux32 linux64 ltrace minijail0 msgfilter multitime newgrp nice nohup"
    " npx nq nsenter numactl openvt parallel pexec pkexec prlimit proot proxychains proxychains4 rlwrap rr run0"
    " runscript rxvt schroot sem setpriv setsid softlimit ssh-agent start-stop-daemon stdbuf strace sudo sudoedit"
    " systemd-inhibit systemd-run time tini toolbox torify torsocks toybox trap tsocks uclampset unbuffer unshare urxvt"
    " uutils uvx"
    " dpkg-architecture i386 i486 i586 i686 x86_64 athlon uname26 ppc ppc32 ppc64 ppc64le s390 s390x sparc sparc64 mips"
    " mips64 arm armh aarch64"  # names of setarch
    " valgrind watch watchexec x-terminal-emulator xargs xfce4-terminal xterm xvfb-run zargs".split()
)
LOADER = re.compile(
    r"ld(?:-linux[^/]*|-musl[^/]*|64|-[\d.]+)?\.so[^/]*|qemu-(?!img\Z|nbd\Z|system-)[\w-]+"
)  # runs the program it is given
TAKES_LINES = SHELLS | frozenset(
    "env eval flock parallel runuser script sg ssh su trap watch sem hyperfine newgrp xterm rxvt urxvt screen tmux"
    " gnome-terminal konsole xfce4-terminal mosh vagrant entr watchexec grc sshpass genie nix nix-shell"
    " concurrently".split()
)
APPENDS = frozenset({"xargs", "parallel", "sem"})
RUNS_NEXT = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
READS_LINES = frozenset({"at", "batch"})  # they run what they read, later
# Without a command they start a shell, which runs what it reads.
SHELL_WITHOUT_COMMAND = frozenset(
    "chroot doas fakechroot fakeroot firejail lxc-attach newgrp nix-shell nsenter pkexec proot runscript runuser"
    " schroot screen script sg su sudo systemd-nspawn toolbox unshare".split()
)
# They read commands of their own, among them one that starts a program.
READS_COMMANDS = frozenset(
    "vi vim nvim view ex rvim rview gvim vim.basic vim.tiny gdb lldb crash debugfs sqlite3 sqlite mysql mariadb psql"
    " ftp lftp ncftp smbclient tnftp gnuplot ghci erl bconsole virsh".split()
)

# They print what a server sends. Of the others, only these commands do.
FETCHERS = frozenset(
    "aria2c axel curl curlie elinks fetch ftp http https httpie links lynx nc ncat netcat scp sftp socat telnet w3m"
    " wget wget2 xh".split()
)
FETCHING_COMMANDS = (
    *("autossh", "gh", "glab", "hub", "mosh", "rclone", "rsync", "ssh", "svn"),
    *("git clone", "git fetch", "git ls-remote", "git pull", "git submodule update", "hg clone", "hg pull"),
)
SOMETIMES_FETCHERS = frozenset(command.split()[0] for command in FETCHING_COMMANDS)
NETWORK_COMMANDS = (  # of programs that are known by their first words
    *FETCHING_COMMANDS,
    *("git push", "hg push", "dig", "host", "nslookup", "ping", "traceroute", "whois", "sendmail", "mail"),
    *("pip install", "pip download", "pip3 install", "pipx install", "uv sync", "uv add", "uv pip", "poetry install"),
    *("npm install", "npm ci", "npm publish", "npx", "pnpm install", "yarn add", "yarn install", "cargo publish"),
    *("docker pull", "docker push", "apt install", "apt-get install", "apt update", "apt-get update", "go get"),
)

# Subcommands behind which any word may be the program: where it stands depends on options of each version.
ANYWHERE: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "docker": "run exec create compose",
        "podman": "run exec create compose",
        "nerdctl": "run exec create compose",
        "docker-compose": "run exec",
        "ctr": "run exec",
        "runc": "run exec",
        "crictl": "exec",
        "kubectl": "exec run debug",
        "oc": "exec run debug rsh",
        "lxc": "exec",
        "incus": "exec",
        "flatpak": "run",
        "snap": "run",
        "npm": "exec x",
        "pnpm": "exec dlx x",
        "yarn": "exec dlx",
        "bun": "x",
        "composer": "exec",
        "ip": "exec",
        "cmake": "-E",
        "vagrant": "ssh",
        "aws-vault": "exec",
        "chamber": "exec",
        "doppler": "run",
        "sops": "exec-env exec-file",
        "op": "run",
        "git": "foreach run",
        "jobs": "-x",
        "fd": "-x -X --exec --exec-batch",
        "fdfind": "-x -X --exec --exec-batch",
        "watchman-make": "--run",
        "go": "tool",
        "codex": "sandbox",
        "pidstat": "-e",
        "machinectl": "shell",
        "adb": "shell",
        "heroku": "run",
        "lerna": "exec",
        "tailscale": "ssh",
        "salt-call": "cmd.run",
    }.items()
}

# Options whose value is a program, a line for a shell, or `key=line`.
LINE_OPTIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for names, words in {
        "tar": "-I -F --use-compress-program --to-command --checkpoint-action --rsh-command --rmt-command --info-script"
        " --new-volume-script",
        "cpio": "--rsh-command",
        "bsdtar": "--use-compress-program",
        "zip": "-TT --unzip-command",
        "ssh scp sftp sshfs": "-o -S -D --ssh_command",
        "rsync": "-e --rsh --rsync-path",
        "mosh": "--ssh --server --client",
        "sshuttle": "-e --ssh-cmd -r --remote",
        "check_by_ssh": "-o --ssh-option",
        "man": "-P --pager -H --html --preprocessor",
        "bat batcat delta ag ack": "--pager",
        "sort": "--compress-program",
        "rg": "--pre --hostname-bin",
        "split": "--filter",
        "tcpdump": "-z",
        "nc ncat netcat nc.traditional nc.openbsd": "-e -c --exec --sh-exec --lua-exec",
        "socat": "EXEC SYSTEM SHELL",
        "wget": "--use-askpass -e --execute",
        "aria2c": "--on-download-complete --on-download-start --on-download-error --on-download-stop"
        " --on-download-pause --on-bt-download-complete",
        "yt-dlp youtube-dl": "--exec --exec-before-download --netrc-cmd --downloader --external-downloader",
        "apt apt-get apt-cache aptitude apt-mark": "-o --option",
        "dpkg": "--pre-invoke --post-invoke --status-logger",
        "dpkg-buildpackage debuild": "-r --root-command --hook --check-command --sign-command -p",
        "rpm rpmquery rpmdb rpmverify": "--pipe",
        "gcc g++ cc c++ clang clang++ gfortran cpp c99 c89 c99-gcc c89-gcc": "-wrapper",
        "cargo": "--config",
        "rustc": "-C --codegen",
        "go": "-exec -toolexec -vettool",
        "git": "--upload-pack --receive-pack --exec -x --extcmd -O --open-files-in-pager -u --tree-filter"
        " --index-filter --msg-filter --env-filter --commit-filter --parent-filter --tag-name-filter --setup"
        " --sendmail-cmd --smtp-server --to-cmd --cc-cmd --header-cmd --access-hook --httpd --browser --tool",
        "hg": "--config --ssh --remotecmd -e",
        "svn": "--diff-cmd --diff3-cmd --editor-cmd --config-option",
        "cvs": "-e -z",
        "fzf": "--preview --bind --with-shell",
        "certbot": "--pre-hook --post-hook --deploy-hook --renew-hook --manual-auth-hook --manual-cleanup-hook",
        "restic": "--password-command -o --option",
        "borg": "--rsh --remote-path",
        "rclone": "--password-command --sftp-ssh --metadata-mapper",
        "duplicity": "--ssh-options --rsync-options --gpg-binary",
        "openvpn": "--up --down --ipchange --route-up --route-pre-down --tls-verify --auth-user-pass-verify"
        " --client-connect --client-disconnect --learn-address",
        "dnsmasq": "--dhcp-script",
        "dhclient": "-sf",
        "pandoc": "-F --filter --pdf-engine",
        "nano": "-s --speller",
        "joe": "-exec",
        "ispell aspell": "-S",
        "scrot": "-e --exec",
        "compgen complete": "-C -W",
        "mapfile readarray": "-C",
        "hash": "-p",
        "bind": "-x",
        "logrotate": "-m --mail",
        "gem": "-e --editor",
        "pip": "--editor --python",
        "npm pnpm yarn": "--script-shell --shell --node-options -c --call",
        "nix nix-shell": "--run --command -c",
        "vagrant": "-c --command",
        "busctl": "--address",
        "strace ltrace": "-o --output",
        "zic": "-y",
        "ranger": "--cmd",
        "task": "exec",
        "xdotool": "exec",
        "run-mailcap": "--action",
        "sqlmap": "--eval",
        "puppet": "-e --execute",
        "ansible": "-a --args",
        "minicom": "-S --script",
        "capsh": "--shell",
        "agetty getty": "-l --login-program",
        "sysctl": "-w --write",
        "ssh-keygen ssh-add": "-D -s",
        "perf": "-c --cmd",
        "enscript": "-I --filter",
        "perlbug bashbug": "-e",
        "plymouth": "--command",
        "gpg gpg2": "--photo-viewer --agent-program --dirmngr-program --keyboxd-program",
        "prove": "-e --exec",
        "nodemon": "-x --exec",
        "fc": "-e",
        "bazel": "--run_under --workspace_status_command",
        "helm": "--post-renderer",
        "gcloud fly flyctl watchmedo flatpak": "-C -c --command",
        "check_ssl_cert": "--curl-bin --openssl --grep-bin --nmap-bin",
    }.items()
    for name in names.split()
}

# Options that hold code or commands of a language of its own. Of interpreters only those before the script count.
INTERPRETERS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {  # code, and options that take another value
    name: (frozenset(code.split()), frozenset(valued.split()))
    for names, code, valued in [
        ("python pypy micropython ipython pdb", "-c -i", "-W -X -Q --check-hash-based-pycs"),
        ("perl", "-e -E -M -m -d", "-I"),  # behind the number of -0777 and the like, options go on
        ("ruby jruby", "-e -r", "-I -C -E"),
        (
            "node nodejs",
            "-e -p -i --eval --print --interactive -pe inspect debug",
            "-r --require --import --loader -C --conditions",
        ),
        ("php php-cgi", "-r -a -B -R -E --run --process-begin --process-code --process-end", "-c -d -z"),
        ("lua luajit texlua", "-e -l -i", ""),
        ("tclsh wish jimsh", "", ""),
        ("expect", "-c", "-b"),
        ("Rscript", "-e", ""),
        ("R", "-e", "-f --file"),
        ("julia", "-e -E -L --eval --print --load", "-p -t"),
        ("octave octave-cli", "--eval --persist", ""),
        ("guile", "-c -e -l", "-L -C"),
        ("groovy scala", "-e", "-cp"),
        ("elixir iex", "-e --eval --rpc-eval -r", ""),
        ("osascript", "-e", ""),
        ("pwsh powershell", "-c -Command -e -EncodedCommand", ""),
        ("deno", "eval repl", ""),
        ("bun", "-e --eval -p --print", ""),
        ("jrunscript jjs", "-e", "-l -f"),
        ("clisp sbcl ecl", "-x --eval --load -i", ""),
        ("slsh", "-e", ""),
        ("stap bpftrace", "-e -c", ""),
        ("swipl", "-g -t", "-f -s"),
    ]
    for name in names.split()
}
# Options of programs that are no interpreters but take commands of their own, among them one that starts a program.
CODE_OPTIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for names, words in {
        "vi vim nvim view ex rvim rview vimdiff gvim vim.basic vim.tiny": "-c --cmd -S -s -u -U -es +",
        "emacs xemacs": "--eval --execute -e --batch --script -f --funcall -l --load --insert",
        "less zless more zmore most pg": "+ -k --lesskey-src --lesskey-content",
        "gdb lldb": "-ex -iex -eval-command --eval-command -x --command -ix -o -O -s -S -k -P --python",
        "crash scanmem debugfs": "-i -c -R -f",
        "sqlite3 sqlite": "-cmd -init .shell .system .import .once .output .read .load",
        "mysql mariadb": "-e --execute --pager --init-command --plugin-dir --default-auth",
        "psql": "-c --command -f --file -v",
        "ftp lftp ncftp smbclient tnftp": "-c -e -f !",
        "mail mailx s-nail mutt neomutt": "-E -e -S !",
        "sendmail exim exim4": "-be -bt -D -C -oM",
        "nmap": "--script --interactive --script-args --datadir",
        "tshark wireshark": "-X",
        "nroff groff troff pic": "-U",
        "latex pdflatex xelatex lualatex luatex tex pdftex etex latexmk luahbtex": "-shell-escape --shell-escape -e"
        " -enable-write18 --enable-write18 -pdflatex -latex",
        "exiftool": "-if -config -p -execute -@",
        "gimp": "-b --batch --batch-interpreter",
        "make gmake": "--eval -E SHELL=",
        "rake": "-e -p -E --execute --execute-print --execute-continue",
        "cpan": "!",
        "hping3 msfconsole knife": "-x -E --tcl",
        "gnuplot": "-e",
        "ghc ghci": "-e -F -pgmF -pgmL",
        "erl": "-eval -s -run",
        "rpm rpmquery rpmdb rpmverify rpmbuild": "--eval -E --define -D --lua",
        "m4": "-",
        "gawk mawk nawk awk": "-l --load -i --include",
        "openssl": "-engine -provider -provider-path",
        "ffmpeg": "-init_hw_device",
        "enable": "-f",
        "gcc g++ cc c++ clang clang++": "-specs -fplugin -B -Xclang",
        "rtorrent": "-o",
        "nginx rsyslogd": "-g -M",
        "bconsole virsh": "-c",
        "bundle": "console open",
        "rails": "runner r",
        "gem": "open",
        "dotnet": "fsi",
        "curl": "--engine",
        "json_pp": "eval",
    }.items()
    for name in names.split()
}
# Their words are mostly data: one that is known only later does not count as an option of theirs.
TAKES_DATA = frozenset({"curl", "make", "gmake", "less", "more"})
# What they run is in files or in their input, and cannot be read in the line at all.
UNSEEN = frozenset(
    "ansible-test asterisk byebug cdist crontab dc ed facter fail2ban-client ginsh irb jshell jtag procmail pry"
    " red run-parts service tasksh tdbtool wg-quick xdg-user-dir".split()
)
EVALUATING = frozenset(
    "let declare typeset local export readonly test [ [[ printf read unset wait getopts (( make gmake".split()
)
"""They evaluate what stands in brackets or hand variables on: `test -v 'a[$(rm x)]'`, `make CC='rm x'`."""

# Variables that hold a program or a line for a shell. Their value is read; one that is not known may be anything.
PROGRAM_VARIABLE = re.compile(
    r"(?:\w*_)?(?:PAGER|EDITOR|BROWSER|ASKPASS|SHELL|RSH|SSH|COMMAND|CMD|PROGRAM|WRAPPER|HOOK|PROXY_COMMAND)"
    r"|VISUAL|GIT_EXTERNAL_DIFF|LESSOPEN|LESSCLOSE|LESSEDIT|HGEDITOR|HGMERGE|MAKE|CC|CXX|CPP|LD|AR|AS|FC|RUSTC|RUSTDOC"
    r"|PS[0-4]|DIFFPROG|MANPREPROC|MERGE|TERMINAL|FCEDIT|WINEDITOR|MANPAGER"
)
# Variables that make programs load code or settings, or read their input as code.
CODE_VARIABLE = re.compile(
    r"LD_\w+|APT_CONFIG|BASH_ALIASES|BASH_CMDS|ZIPOPT|DYLD_\w+|GCONV_PATH|BASH_ENV|ENV|BASH_FUNC_\w+|SHELLOPTS|BASHOPTS|ZDOTDIR|INPUTRC|PERL5(?:OPT|DB|LIB)"
    r"|RUBYOPT|RUBYLIB|NODE_OPTIONS|NODE_PATH|PYTHON(?:STARTUP|PATH|HOME|INSPECT|BREAKPOINT|USERBASE|PLATLIBDIR)"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|GIT_EXEC_PATH|GIT_CONFIG(?:_\w+)?|GIT_TEMPLATE_DIR|MAKEFLAGS"
    r"|MAKEFILES|GNUMAKEFLAGS|MFLAGS|TAR_OPTIONS|RIPGREP_CONFIG_PATH|LESSKEY\w*|LUA_INIT\w*|LUA_C?PATH\w*|VIMINIT|EXINIT"
    r"|GVIMINIT|VIMRUNTIME|VIM|EMACSLOADPATH|AWKPATH|AWKLIBPATH|OPENSSL_(?:CONF|MODULES|ENGINES)|PSQLRC|WGETRC|CURL_HOME"
    r"|MAILRC|MAILCAPS|SCREENRC|FZF_DEFAULT_OPTS|CARGO_(?:BUILD|TARGET|ALIAS)_\w+|GOFLAGS|TCLLIBPATH|XDG_CONFIG_HOME"
    r"|(?i:npm_config_(?:script_shell|node_options|init_module|userconfig|globalconfig))|MAVEN_OPTS|TEXMFCNF|ANT_OPTS"
)
# Options that name a file with a program, a makefile, a script or settings that start programs.
FILE_OPTIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for names, words in {
        "awk gawk mawk nawk original-awk": "-f --file -E --exec -i --include -l --load",
        "sed gsed": "-f --file",
        "make gmake bmake": "-f --file --makefile",
        "ninja samu just scons": "-f --file --justfile",
        "cmake": "-P -C",
        "rake": "-f --rakefile",
        "ant": "-f -file -buildfile",
        "tar bsdtar": "-T --files-from",  # a line of it may be an option
        "ssh scp sftp sshfs rsync": "-F",
        "gdb lldb": "-x -s --command --source -ix",
        "emacs": "-l --load --script",
        "tmux screen": "-f -c",
        "php": "-f --file",
        "R octave": "-f --file",
        "docker-compose podman-compose": "-f --file",
        "pandoc": "-L --lua-filter --filter",
        "nginx supervisord": "-c",
        "openvpn": "--config",
        "wget": "--config",
        "mpv vlc": "--script",
    }.items()
    for name in names.split()
}
RUNS_OPERANDS = frozenset("ansible-playbook expect gnuplot logrotate m4 run-parts tclsh wish zsh-static".split())
"""They run the files that their operands name."""
# Modules of Python's library that do not run what they read. The others, such as `asyncio`, may.
DATA_MODULES = frozenset(
    "ast base64 calendar compileall difflib dis doctest encodings ensurepip fileinput filecmp gzip http.server inspect"
    " json json.tool locale mimetypes pip platform py_compile pyclbr pydoc quopri random shlex site stat"
    " symtable sysconfig tabnanny tarfile textwrap this tokenize unittest uuid venv zipapp zipfile".split()
)
READING_MODULES = frozenset("IPython ptpython bpython ptipython konch xonsh jupyter jupyter_console".split())

_MACHINE = re.compile(r"^(?:\w+-)+linux-gnu\w*-|-\w+-linux-gnu\w*$")
_VERSION = re.compile(r"[-.]?\d[\d.]*$")


def base_name(name: str) -> str:
    """Returns the name without its version: `python3.11`, `gcc-12`, `lua5.4`."""
    if name in SHELLS or name in WRAPPERS or name in LINE_OPTIONS or name in CODE_OPTIONS or name in INTERPRETERS:
        return name
    name = _MACHINE.sub("", name)
    return _VERSION.sub("", name) or name


# Lists what a program does by options of its own, besides starting another program: it loads code, or takes or writes
# files of its own choice. And how each program spells its options. Used where no shell reads the line.


AWKS = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk", "bwk"})
SEDS = frozenset({"sed", "gsed"})
REFUSED_SHELLS = SHELLS | frozenset("busybox toybox powershell pwsh scsh".split())
_WITH_OTHER_USES = frozenset(
    "asdf autossh bundle bunx cabal ccache clush concurrently conda csvtool debconf direnv distcc dpkg-architecture dsh"
    " foreman gdbserver gtester guix hatch hyperfine lxc-attach lxc-execute lxc-start machinectl mamba micromamba mise"
    " mosh mosh-server msgfilter nix npx opam pdm pdsh pipenv pipx pixi poetry pssh pyenv rbenv rustup rye socket ssh"
    " sshpass stack systemd-nspawn toolbox uv uvx".split()
)
LAUNCHERS = (WRAPPERS - _WITH_OTHER_USES - REFUSED_SHELLS) | frozenset(
    "at batch coreutils crontab ed emacs ex expect lldb nvim run-parts rvim tclsh vi view vim vimdiff".split()
)
"""They do little but start the program that their arguments name."""


class ExecFlags(NamedTuple):
    """The options of one program that do more than its work. Long options count however far they are abbreviated."""

    short: str = ""  # letters, also inside a cluster such as -xvI
    valued: str = ""  # letters after which the rest of a cluster is a value
    long: str = ""  # names without dashes; one that ends in * stands for all that begin so
    words: str = ""  # exactly so, such as -exec, or with =value; one that ends in * as above
    writes: str = ""  # letters that name a file to write: harmless with - or /dev/null
    long_writes: str = ""
    first_is_cluster: bool = False  # `tar xf`
    script: bool = False  # an interpreter: without a script it runs what it reads


_ANY = ExecFlags(
    words="-exec -execdir -ok -okdir", long="exec exec-batch to-command use-compress-program compress-program"
)
_CURL = ExecFlags(
    "JKOT",
    "AbCdEeFHhmPQrtUuwXxYyz",
    "config expand-* output-dir proto-default remote-header-name remote-name remote-name-all upload-file variable",
    writes="Dco",
    long_writes="alt-svc cookie-jar dump-header etag-save hsts libcurl output stderr trace trace-ascii",
)
_NODE = ExecFlags(
    "r", "C", "env-file experimental-loader import inspect* loader require run snapshot-blob", "-", script=True
)
_COMPILER = ExecFlags(words="-B* -plugin* --specs* -Xlinker -fuse-ld* -Wl,* -dumpdir")
_GREP = ExecFlags("R", "ABCDdefm", "dereference-recursive")

TABLE: dict[str, ExecFlags] = {
    "7z": ExecFlags(words="@* -si* -spf*"),
    "ack": ExecFlags(long="follow"),
    "ag": ExecFlags("f", "ABCGgmp", "follow"),
    "cargo": ExecFlags(words="-Z*"),
    "cp": ExecFlags("L", "St", "dereference"),
    "cpio": ExecFlags("iop", "", "create extract pass-through"),
    "curl": _CURL,
    "deno": ExecFlags(words="-A"),
    "diff3": ExecFlags(long="diff-program"),
    "du": ExecFlags("L", "BdtX", "dereference files0-from"),
    "fd": ExecFlags("XLx", "EScdejot", "exec exec-batch follow"),
    "file": ExecFlags("Lf", "FPem", "dereference files-from"),
    "find": ExecFlags(
        words="-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from -follow -L",
    ),
    "gh": ExecFlags(words="alias extension extensions ext"),
    "go": ExecFlags(words="--exec --toolexec -overlay --overlay --vettool"),
    "gpg": ExecFlags(long="exec-path keyserver-options load-extension"),
    "helm": ExecFlags(words="plugin"),
    "install": ExecFlags(long="strip-program"),
    "java": ExecFlags(words="-agent* -javaagent* -XX:OnError* -XX:OnOutOfMemoryError*"),
    "kubectl": ExecFlags(long="kubeconfig", words="plugin"),
    "lua": ExecFlags(words="-", script=True),
    "make": ExecFlags("", "CIWfjlo", words=".SHELLFLAGS=* MAKEFLAGS=*"),
    "node": _NODE,
    "nc": ExecFlags("", "IipqsTVwXx"),
    "npm": ExecFlags("", "C", words="exec x"),
    "openssl": ExecFlags(words="-config"),
    "pandoc": ExecFlags("", "DHBAVMc", "lua-filter pdf-engine-opt"),
    "patch": ExecFlags("e", "BDFgiopRrVxYz", "ed"),
    "pdflatex": ExecFlags(words="-output-directory"),
    "perl": ExecFlags("x", "I", words="-", script=True),
    "php": ExecFlags("Fd", "Sct", "interactive define", "-", script=True),
    "psql": ExecFlags("", "FLPRTUcdhopv"),
    "python": ExecFlags("", "mWXQ", words="-", script=True),
    "rg": ExecFlags("Lz", "ABCEMTdefgjmrt", "follow pre-glob search-zip"),
    "rsync": ExecFlags("Lk", "BTfM", "copy-dirlinks copy-links copy-unsafe-links config daemon files-from"),
    "ruby": ExecFlags("", "CEI", words="-", script=True),
    "sdiff": ExecFlags(long="diff-program"),
    "sort": ExecFlags("", "kSt", "files0-from"),
    "sqlite3": ExecFlags(words="--cmd --init -A* --A*"),
    "ssh": ExecFlags("EFI", "BbceiJLlmOpQRWw"),
    "ssh-keygen": ExecFlags("", "CIMNOPRVYabfilmnrtwz"),
    "tar": ExecFlags("PTh", "bCfgHKLNVX", "absolute-names dereference files-from", first_is_cluster=True),
    "tcpdump": ExecFlags("", "BCEFGTVWcijmrswy"),
    "tree": ExecFlags("l", "IPL", "fromfile"),
    "wc": ExecFlags(long="files0-from"),
    "wget": ExecFlags("i", "ABDGIOPQRTUXalotw", "config input-file"),
    "zip": ExecFlags("@", words="-TT*"),
    **dict.fromkeys(("cc", "c++", "clang", "clang++", "g++", "gcc"), _COMPILER),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
    **dict.fromkeys(SEDS, ExecFlags("f", "el", "file")),
    **dict.fromkeys(AWKS, ExecFlags("DEWefil", "Fv", "debug exec file include load source")),
}
_OTHER_NAMES = {
    "bsdtar": "tar", "bun": "node", "fdfind": "fd", "fetch": "curl", "gmake": "make", "gpg2": "gpg", "gsort": "sort",
    "gtar": "tar", "gfind": "find", "bfind": "find", "latex": "pdflatex", "lualatex": "pdflatex", "luajit": "lua",
    "ncat": "nc", "netcat": "nc", "nodejs": "node", "npx": "npm", "pnpm": "npm", "pypy": "python", "ripgrep": "rg",
    "scp": "ssh", "sftp": "ssh", "xelatex": "pdflatex", "yarn": "npm", "zipcloak": "zip",
}  # fmt: skip
READ_CODE: Mapping[str, frozenset[str]] = {
    "psql": frozenset({"-c", "--command", "-v"}),
    **dict.fromkeys(("mysql", "mariadb"), frozenset({"-e", "--execute"})),
}
"""Options whose code is read, so that they are no reason to refuse a command."""


def family_of(name: str) -> str:
    """Returns the name under which `TABLE` has a program."""
    for one in (name, base_name(name)):
        if one in TABLE or one in _OTHER_NAMES:
            return _OTHER_NAMES.get(one, one)
    return base_name(name)


@lru_cache(maxsize=128)
def exec_flags(name: str) -> ExecFlags:
    """Returns all options of a program that do more than its work. git's differ by subcommand and have own rules."""
    family = family_of(name)
    if family == "git":
        return _ANY
    options: set[str] = set()
    for one in {name, base_name(name), family}:
        code = INTERPRETERS[one][0] if one in INTERPRETERS else frozenset()
        options |= LINE_OPTIONS.get(one, frozenset()) | CODE_OPTIONS.get(one, frozenset()) | code
    return _add_options(TABLE.get(family, _ANY), options - READ_CODE.get(family, frozenset()))


def _add_options(listed: ExecFlags, options: set[str]) -> ExecFlags:
    letters = sorted(option for option in options if len(option) == 2 and option[0] == "-")
    long = sorted(option[2:] for option in options if option.startswith("--"))
    words = sorted(option for option in options if not option.startswith("--") and option not in letters)
    words = [word if word[-1].isalnum() or word == "-" else f"{word}*" for word in words]  # SHELL=x, +x
    short = ""
    if listed.short or listed.valued or listed.script:
        short = "".join(letter[1] for letter in letters if letter[1] not in listed.short)
    elif any(word.startswith("-") and len(word) > 2 for word in words):  # it has words such as -eval for options
        words += letters
    else:
        words += [f"{letter}*" for letter in letters]
    return listed._replace(
        short=listed.short + short,
        long=" ".join((listed.long, *long)),
        words=" ".join((listed.words, *words)),
    )
