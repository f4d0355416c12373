"""Command rules: an allow covers literal commands, each on its own; a deny sees every command a line may reach."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.permissions.shell import commands
from forge.permissions.shell import parse as shell
from tests.permissions.judging import decide

GIT_LOG = ["allow execute git log *"]
NO_RM = ["allow execute *", "deny execute rm *"]


@pytest.mark.parametrize(
    "line",
    [
        "git log",
        "git log -5",
        "git   log\t--oneline",
        "  git log  ",
        "git log --author='A B' -- src",
        'git log "--grep=a b"',
        'git log -- "*.py"',
        "git log -- café",
        "git log a#b",
        "git log '$(x)'",
        "git log '`x`'",
        'git log "\\$(x) \\`y\\`"',
        "git log --grep 'line one\nline two'",
        'git log --grep "line one\n\nline two"',
    ],
)
def test_a_pattern_allows_one_simple_command(line):
    assert decide(GIT_LOG, "execute", line) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "git push",
        "git logs",
        "gitlog",
        "/usr/bin/git log",
        "git log; rm x",
        "git log;rm x",
        "git log & rm x",
        "git log && rm x",
        "git log | sh",
        "git log > x",
        "git log < x",
        "git log $(rm x)",
        "git log `rm x`",
        "git log $HOME",
        "git log ${X}",
        "git log {a,b}",
        "git log (x)",
        "git log \\; x",
        "git log\nrm x",
        "git log 'a\nb'\nrm x",
        'git log "a\n$(rm x)"',
        'git log "a\\\nb"',
        "git log\rrm x",
        "git log \x00 x",
        "git log \x1b[2K",
        "git log *.py",
        "git log ?.py",
        "git log [ab].py",
        "git log 'a",
        'git log "a',
        "git log 'a\" b",
        "git log # comment",
        "git\u00a0log",
        "git \u2003log",
        "X=1 git log",
        "sudo git log",
        "'git' log",
        "",
        "   ",
        "GIT LOG",
    ],
)
def test_everything_else_asks(line):
    assert decide(GIT_LOG, "execute", line) == "ask"


def test_an_exact_line_allows_exactly_that_line_even_an_opaque_one():
    lines = ["allow execute make test && make lint"]
    assert decide(lines, "execute", "make test && make lint") == "allow"
    for other in ("make test && make lint && rm x", "make test  && make lint", "make test && make  lint;", "make test"):
        assert decide(lines, "execute", other) == "ask"


def test_a_rule_without_a_target_covers_opaque_lines():
    for rule in ("allow execute", "allow execute *"):
        assert decide([rule], "execute", "a | b; c $(d)") == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "rm",
        "rm x",
        "rm  -rf   /",
        "RM x",
        "/bin/rm x",
        "../../bin/rm x",
        "~/bin/rm x",
        '"rm" x',
        "'rm' x",
        "r''m x",
        'r"m" x',
        "\\rm x",
        "r\\m x",
        "r\\\nm x",
        "/bin/r? x",
        "/bin/[r]m x",
        "/???/rm x",
        "ls; rm x",
        "ls;rm x",
        "ls && rm x",
        "ls || rm x",
        "ls | rm x",
        "ls & rm x",
        "ls\nrm x",
        "(rm x)",
        "{ rm x; }",
        "! rm x",
        "$(rm x)",
        "echo $(rm x)",
        'echo "$(rm x)"',
        "echo `rm x`",
        'echo "`rm x`"',
        "cat <(rm x)",
        "echo a > b; rm x",
        "rm>x",
        "x=1 rm y",
        "x=rm; $x y",
        "rm${IFS}x",
        "rm$IFS-rf$IFS/",
        "r$()m x",
        "r${x}m y",
        "r``m x",
        "$'rm' x",
        "{rm,-rf,x}",
        "if true; then rm x; fi",
        "if rm x; then true; fi",
        "while rm x; do true; done",
        "for i in a; do rm $i; done",
        "case a in a) rm x;; esac",
        "f() { rm x; }; f",
        "env rm x",
        "env -i A=1 rm x",
        "env -u A rm x",
        "env -S 'rm x'",
        "env -S'rm x'",
        "env --split-string='rm x'",
        "sudo rm x",
        "sudo -u bob rm x",
        "sudo -u bob -- rm x",
        "/usr/bin/sudo /bin/rm x",
        "doas rm x",
        "nice -n 10 rm x",
        "ionice -c 2 -n 7 rm x",
        "nohup rm x",
        "nohup rm x &",
        "time rm x",
        "time -p rm x",
        "timeout 5 rm x",
        "timeout -s KILL 5s rm x",
        "stdbuf -oL rm x",
        "setsid rm x",
        "ls | xargs rm",
        "ls | xargs -n 1 -P 4 rm",
        "ls | xargs -I {} rm {}",
        "command rm x",
        "builtin rm x",
        "exec rm x",
        "exec -a ls rm x",
        "watch rm x",
        "watch -n 2 'rm x'",
        "flock /tmp/l rm x",
        "flock /tmp/l -c 'rm x'",
        "busybox rm x",
        "sh -c 'rm x'",
        'bash -c "rm x"',
        "bash -lc 'ls; rm x'",
        "bash -x -e -c 'ls && rm x' name",
        "bash -c rm",
        "dash -c 'rm x'",
        "zsh -c 'rm x'",
        "ksh -c 'rm x'",
        "/bin/sh -c 'rm x'",
        "bash -c \"bash -c 'rm x'\"",
        "sudo env nice timeout 5 bash -c 'rm x'",
        "bash <<EOF\nrm x\nEOF",
        "bash <<< 'rm x'",
        "eval 'rm x'",
        "eval rm x",
        "trap 'rm x' EXIT",
        "su bob -c 'rm x'",
        ">/dev/null rm x",
        "> /dev/null rm x",
        "2>/dev/null rm x",
        "<f rm x",
        "&>/dev/null rm x",
        "&>>f rm x",
        "2>&1 rm x",
        ">>f rm x",
        ">|f rm x",
        "<>f rm x",
        "{fd}>f rm x",
        "<<<f rm x",
        ">'a b' rm x",
        '>"a b" rm x',
        ">a\\ b rm x",
        ">$x rm y",
        ">$(ls) rm x",
        ">a 2>b rm x",
        "ls; >f rm x",
        "sudo >f rm x",
        "bash -c '>f rm x'",
        "x=1 >f rm y",
        "if >f rm x; then ls; fi",
        "cat <<E\ndon't\nE\n>f rm x; echo don't",
        "''&>f rm x",
        "ls \\\r\n>f rm x",
        "$'\\x72m' x",
        "$'r\\155' x",
        'r$"m" x',
        "r$@m x",
        "r$*m x",
        "r$1m x",
        "r${1}m x",
        "r${x:-${y}}m x",
        "r$[1]m x",
        "r$x x",
        "$x$y z",
        '"$x" y',
        '"$x$y" z',
        '"r$x" y',
        "x='rm '; $x/tmp/y",
        '"$@"',
        '"${x[@]}"',
        "$HOME/bin/rm x",
        "$HOME/bin/$x y",
        "$(echo rm) x",
        "`echo rm` x",
        "r[l-n] x",
        "{r,r}m x",
        "{rm,{a,b}}",
        "$'\\'; rm x; #'",
        "eval '' rm x",
        "env -Srm x",
        "alias z=rm; z x",
        "setpriv --reuid=1 rm x",
        "setpriv --reuid 1 rm x",
        "runuser -u bob -- rm x",
        "runuser bob -c 'rm x'",
        "script -c 'rm x' log",
        "script -qc'rm x' log",
        "script --command='rm x' log",
        "systemd-run --user rm x",
        "taskset 1 rm x",
        "taskset -c 0 rm x",
        "chrt 10 rm x",
        "chrt -f 10 rm x",
        "prlimit --nofile=10 rm x",
        "setarch x86_64 rm x",
        "setarch rm x",
        "linux32 rm x",
        "linux64 rm x",
        "fakeroot -- rm x",
        "unbuffer -p rm x",
        "firejail --net=none rm x",
        "proot -r / rm x",
        "unshare -r rm x",
        "nsenter -t 1 -m rm x",
        "chroot / rm x",
        "chroot --userspec=a:b / rm x",
        "su -c 'rm x'",
        "su - bob -c 'rm x'",
        "ssh host rm x",
        "ssh -p 22 bob@host 'rm x'",
        "parallel rm ::: x",
        "parallel -j 4 'rm {}' ::: x",
        "strace -f -o log rm x",
        "ltrace rm x",
        "gdb --args rm x",
        "gdb -ex run --args rm x",
        "busybox sh -c 'rm x'",
        "uv run rm x",
        "pkexec rm x",
        "find . -exec rm {} +",
        "find . -name a -execdir /bin/rm {} \\;",
        "ls # '\nrm x # '",
        "echo 'a\nb'; rm x",
        'echo "a\'"; rm x',
        "echo 'a\"'; rm x #'",
        "sudo " * 20 + "rm x",
        "true; " * 20_000 + "rm x",
        "echo " + "a" * 60_000 + "; rm x",
    ],
)
def test_no_way_of_writing_it_gets_around_a_deny(line):
    assert decide(NO_RM, "execute", line) == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "rmdir x",
        "echo rm",
        "echo rm x",
        "echo 'rm -rf /'",
        'echo "a; rm x"',
        "echo 'a && rm x' | cat",
        "git rm x",
        "grep rm file",
        "cat rm",
        "sudo echo rm",
        "env X=1 echo rm x",
        "timeout 5 echo rm",
        "bash -c 'echo rm'",
        "bash rm.sh",
        "find . -name rm",
        "ls rm; cat x",
        "x=rmdir; ls",
        "",
        ">f echo rm",
        "2>&1 ls rm",
        "&>f ls rm",
        "ls >f rm",
        "echo a > rm",
        "cat < rm",
        "<f cat",
        "echo r$1m",
        "echo $'\\x72m' x",
        "mr$1 x",
        "$HOME/bin/tool rm",
        '"$X/bin/$Y-tool" rm',
        '"$(pwd)/tool" rm',
        "taskset 1 echo rm",
        "setpriv --reuid=1 echo rm",
        "script -c 'echo rm' log",
        "su bob -c 'echo rm'",
        "ssh host echo rm",
        "chroot / echo rm",
        "strace echo rm",
        "gdb --args echo rm",
        'sudo -n echo "it\'s rm"',
        "cd src && python -m pytest -q 2>&1 | tail -5",
        "VERSION=$(git describe) make build",
        'for f in *.py; do wc -l "$f"; done',
        "cat > notes.txt <<'EOF'\nI don't know\nEOF",
        "grep -rn 'rm -rf' src | head",
        'git commit -m "remove rm; don\'t"',
        "awk '{print $1}' f",
        "[ -f x ] && echo y || echo z",
        'if [ "$x" = rm ]; then echo a; fi',
        'export PATH="$HOME/bin:$PATH"',
        "ls *.txt",
        "echo $((1 + 2))",
        "while read line; do echo $line; done < file",
        "diff <(sort a) <(sort b)",
        "timeout 60 make -j$(nproc)",
        "docker run --rm -it image ls",
    ],
)
def test_a_line_that_does_not_run_it_is_not_denied(line):
    assert decide(NO_RM, "execute", line) == "allow"


def test_each_command_of_a_line_is_judged_on_its_own():
    lines = ["allow execute *", "deny execute rm *", "ask execute rm tmp/*"]
    assert decide(lines, "execute", "rm tmp/a") == "ask"
    assert decide(lines, "execute", "rm -rf /; rm tmp/a") == "deny"
    assert decide(lines, "execute", "ls; rm tmp/a") == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "git push",
        "git -C . push",
        "git --no-pager push",
        "git -C . --no-pager push",
        "git --no-pager -C . push origin",
        "git -c a.b=c -C .. --git-dir x push",
        "git >log push",
        "git $x push",
        "git $1 push",
        "git pu$1sh",
        "git -C$x push",
        "git $x",
        "sudo git -C . push",
        "/usr/bin/git -C . push",
        "bash -c 'git -C . push'",
        'bash -c "$x"',
        'bash -c "git $x"',
        'bash -c "ls;$x"',
        'eval "$x"',
        'ssh host "$x"',
    ],
)
def test_options_between_the_words_do_not_hide_a_command(line):
    assert decide(["allow execute git *", "deny execute git push *"], "execute", line) == "deny"
    assert decide(["allow execute", "ask execute git push *"], "execute", line) == "ask"


@pytest.mark.parametrize(
    "line", ["git log push", "git -C . log", "git --git-dir=x log -- push", "git stash push", "git -C . status --push"]
)
def test_other_commands_with_options_are_allowed(line):
    assert decide(["allow execute git *", "deny execute git push *"], "execute", line) == "allow"


def test_options_at_the_end_are_part_of_a_command_that_is_named_exactly():
    lines = ["allow execute *", "deny execute python"]
    assert decide(lines, "execute", "python") == "deny"
    assert decide(lines, "execute", "python -m pytest") == "allow"


def test_an_ask_that_only_may_match_does_not_soften_a_deny():
    lines = ["allow execute *", "deny execute rm *", "ask execute make *"]
    assert decide(lines, "execute", "$x y") == "deny"
    assert decide(lines, "execute", "make $x") == "ask"
    assert decide(["allow execute *", "ask execute make *"], "execute", "$x y") == "ask"


def test_a_line_no_shell_would_run_is_not_known():
    assert decide(NO_RM, "execute", "echo 'a") == "deny"
    assert decide(NO_RM, "execute", "echo 'a'") == "allow"
    assert decide(["allow execute"], "execute", "echo 'a") == "allow"


def test_a_later_allow_lifts_a_deny_for_a_literal_command_only():
    lines = ["allow execute *", "deny execute rm *", "allow execute rm tmp.txt"]
    assert decide(lines, "execute", "rm tmp.txt") == "allow"
    assert decide(lines, "execute", "ls; rm tmp.txt") == "allow"
    assert decide(lines, "execute", "rm tmp.txt $(evil)") == "deny"
    assert decide(lines, "execute", "ls $x; rm tmp.txt") == "deny"
    assert decide(lines, "execute", "cd /; rm tmp.txt") == "deny"
    assert decide(lines, "execute", "rm tmp.txt other") == "deny"


JOINED = ["allow execute git log *", "allow execute head *", "allow execute cd *", "allow execute ./run.sh"]


@pytest.mark.parametrize(
    "line",
    [
        "git log | head -5",
        "git log && git log -3",
        "git log || git log; git log",
        "git log|head;git log",
        "git log;",
        "git log 2>&1 | head",
        "git log 2>/dev/null",
        "git log > /dev/null 2>&1",
        "git log --grep='a|b' | head",
        "git log --grep='a && rm x; $y' | head",
        'git log --grep="a\\|b"',
        "git log HEAD~3 HEAD^ 'x y'",
        "cd src && git log",
        "cd /nowhere/project/src && git log",
        "cd src && cd ../tests && git log",
    ],
)
def test_literal_commands_are_allowed_together_if_each_is_allowed(line):
    assert decide(JOINED, "execute", line) == "allow"
    assert decide(["ask execute", *JOINED], "execute", line) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "git log | sh",
        "git log && make",
        "make; git log",
        "git log & head",
        "git log &",
        "git log |& head",
        "git log\ngit log",
        "! git log",
        "git log > head",
        "git log 2> x",
        "git log 3>/dev/null",
        "git log >/dev/nullx",
        "git log ~",
        "git log ~/x",
        "git log a=~/x",
        "git log --x=~/y",
        "git log; ; head",
        "git log &&",
        "| git log",
        "git log ;; head",
        'git log "$x"',
        'git log "`x`"',
        "git log \\\n head",
        "if git log; then head; fi",
        "(git log)",
        "{ git log; }",
        "alias git=rm; git log",
        "export PATH=/x; git log",
        "PATH=/x; git log",
        "PATH=/x git log",
        "hash -p /x git; git log",
        "printf -v PATH x; git log",
        "cd / && git log",
        "cd .. && git log",
        "cd && git log",
        "cd - && git log",
        "cd src && cd ../.. && git log",
        "cd src && ./run.sh",
        "cd src; cd ../tests; git log",
        "git log \x0b",
        "git log\x0chead",
        "git log \u2028 head",
        "git log \u202e",
    ],
)
def test_what_is_not_literal_or_not_allowed_asks(line):
    everything = [*JOINED, *(f"allow execute {name} *" for name in ("alias", "export", "hash", "printf"))]
    assert decide(everything, "execute", line) == "ask"


def test_a_relative_program_is_another_one_behind_a_cd():
    assert decide(JOINED, "execute", "git log && ./run.sh") == "allow"
    assert decide(JOINED, "execute", "cd src && ./run.sh") == "ask"


def test_a_deny_of_one_command_is_a_deny_of_the_line():
    lines = ["allow execute git *", "allow execute head *", "deny execute git push *"]
    assert decide(lines, "execute", "git log | head") == "allow"
    assert decide(lines, "execute", "git log; git push | head") == "deny"
    assert decide(["allow execute *", "deny execute * | head *"], "execute", "git log | head -1") == "deny"
    assert decide(["allow execute *", "deny execute * | head *"], "execute", "git log; head -1") == "allow"


def test_a_wrapper_can_be_allowed_by_name():
    assert decide(["allow execute timeout 5 git log *"], "execute", "timeout 5 git log -3") == "allow"
    assert decide(["allow execute /usr/bin/git log *"], "execute", "/usr/bin/git log -3") == "allow"
    assert decide(["allow execute /usr/bin/git log *"], "execute", "git log -3") == "ask"


def test_longer_patterns_are_denied_behind_wrappers_too():
    lines = ["allow execute *", "deny execute git push *"]
    for line in ("git push", "git  push origin", "ls; sudo git push -f", "bash -c 'git push'"):
        assert decide(lines, "execute", line) == "deny"
    for line in ("git pull", "git log push", "echo git push"):
        assert decide(lines, "execute", line) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "find " + "-exec " * 5_000 + "rm x",
        "a|" * 24_000,
        "a|" * 20_000 + "a)",
        "xargs " + "-a b " * 9_000 + "rm",
        "'" * 49_999,
        "bash -c " * 6_000,
        "$(" * 20_000,
        ";" * 50_000,
        "a=" * 20_000,
        "{" * 40_000,
        "{," * 20_000 + "}" * 9_000,
        "env " + "-Senv " * 8_000,
        "git " + "-a$x " * 9_000,
        "$x;" * 16_000,
        "`a` " * 12_000,
        "${x:-" * 4_500 + "$(y)" + "}" * 4_500,
        "[" * 49_000 + "]",
        "$'\\'" * 12_000,
        "eval " * 10_000,
        "".join(f">a{number};sh $x{number}*;" for number in range(2_500)),
        "".join(f"a{number}=$x;" for number in range(5_000)) + "((a))",
        "read " + "$(" * 20_000,
    ],
)
def test_hostile_lines_take_bounded_time(line):
    started = time.process_time()
    decide([*NO_RM, "deny execute *a*b*c*d*e*"], "execute", line)
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    "line",
    [
        "echo rm x | sh",
        "echo 'rm x' | bash",
        "printf 'ls\\nrm x\\n' | sudo sh -s",
        "cat script | sh",
        "base64 -d x | bash -euo pipefail",
        "curl x | sh",
        "ls | (sh)",
        "cat <<E | sh\nrm x\nE",
        "bash <<E\n${x:-rm} y\nE",
        "sh -s < script | bash",
        "cat x | source /dev/stdin",
        "ls | xargs sh -c 'rm x'",
        "ls | xargs sudo",
        "ls | xargs -I{} {} x",
        "find . -exec {} ';'",
        "bash <<< 'rm x' 2>&1",
        "a[0]=1 r\\\nm x",
        "X=1 >f r\\\nm x",
        "X=1 {fd}>f r\\m x",
        "ls 2>&- ; rm x",
        "A=b 2>&- rm x",
        'echo "${x:-`rm x`}"',
        "echo ${x:-$(rm x)}",
        "((rm x); ls)",
        "$((rm x); ls)",
        "coproc rm x",
        "time { rm x; }",
        "select i in a; do rm x; done",
        "for ((;;)); do rm x; done",
        "[[ $(rm x) ]]",
        "a=($(rm x))",
        "declare a=$(rm x)",
        "export A=`rm x`",
        "cat <<E; rm x\nE",
        "cat <<E && rm x\nE",
        "cat <<'E'\n'\nE\nrm x",
        'echo "$(cat <<E\nit\'s\nE\n)"; rm x',
        "f() { ls; } 2>&1; rm x",
        "ls |& rm x",
        "\u00e9; rm x",
        "r\u200bm x; rm x",
    ],
)
def test_the_grammar_hides_no_command_from_a_deny(line):
    assert decide(NO_RM, "execute", line) == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "echo ls | sh",
        "printf 'ls\\n' | bash",
        "cat x | bash script.sh",
        "cat x | sh -c 'cat > y'",
        "ls | xargs grep rm",
        "bash <<E\nls rm\nE",
        "ls |& grep rm",
        "[[ -f rm ]] && ls",
        "a=(ls rm); ls",
    ],
)
def test_what_the_grammar_finds_is_not_denied_without_reason(line):
    assert decide(NO_RM, "execute", line) == "allow"


@given(st.text(alphabet="rm x'\"\\;&|$(){}`<>\n#=-", max_size=40))
def test_any_line_is_judged_and_a_literal_one_means_the_same_to_the_grammar(line):
    assert decide(NO_RM, "execute", line) in ("allow", "ask", "deny")
    found = shell.read(line)
    if (literal := commands.split_literal(line)) and not found.is_broken:  # the grammar does not know `a#`
        assert [part.words for part in literal] == [command.words for command in found.commands]


@pytest.mark.parametrize("base", ["ask execute", "deny execute"])
def test_what_is_said_of_every_command_gives_way_to_a_program_named_with_its_path(base):
    rules = [base, "allow execute tools/count.py *"]
    assert decide(rules, "execute", "tools/count.py -v") == "allow"
    assert decide(rules, "execute", "tools/other.py -v") == base.split()[0]
    assert decide([*rules, "deny execute count.py *"], "execute", "tools/count.py -v") == "deny"
    assert decide(["deny execute rm *", "allow execute"], "execute", "/bin/rm x") == "allow"  # the last match wins
    assert decide(["deny execute rm *", "ask execute"], "execute", "/bin/rm x") == "ask"
    assert decide([base, "allow execute /bin/env *"], "execute", "/bin/env rm x") == base.split()[0]
