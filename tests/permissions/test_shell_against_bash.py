"""Random lines, run by a real bash: whatever runs `rm` is denied, and literal lines have exactly bash's words."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from forge.permissions.shell.literal_line import split_literal
from tests.permissions.judging import decide

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to compare with")
NO_RM = ["allow execute *", "deny execute rm *"]

NAMES = ["rm", "r''m", "r\\m", '"rm"', "$'\\x72m'", "r\\\nm", "${x:-rm}", "$(echo rm)", "echo", "true", ":", "echo rm"]
WORDS = (
    'a|-n|rm|a=b|{}|\'a b\'|\'; rm x\'|\'$(rm x)\'|"; rm x"|"$x"|"$(rm x)"|"`rm x`"|"${x:-`rm x`}"|$\'\\n\''
    "|$(rm x)|`rm x`|$x|${x#a}|$((1+2))|$@|*|[ab]|{a,b}|~|a\\ b|\\;|a#b|<(rm x)|>f|2>&1|2>&-|&>f|<<< a|{fd}>f"
).split("|")
BEFORE = ["", "", "", "A=1 ", "A='x y' ", "a[0]=1 ", ">f ", "command ", "eval ", "builtin ", "exec ", "time ", "! "]
AROUND = (
    "{}|{}|{}|({})|{{ {}\n}}|if {}\nthen :; fi|if true; then {}\nfi|for i in a; do {}\ndone|case a in a) {}\n;; esac"
    "|g() {{ {}\n}}; g|cat <<E\n$({})\nE|cat <<'E'\n'\nE\n{}|[[ a == b ]] #\n{}|(( 1 )) #\n{}|x=(a) #\n{}"
    '|echo "$({})"|bash <<E\n{}\nE'
    "|eval '{}'|echo $({} # it's\n)|coproc {}|declare x=$({})|cat <<E #\ndon't\nE\n{}"
).split("|")
JOINTS = [" && ", " || ", "; ", " | ", " & ", "\n", ";", "|", " # x\n", " |& "]
NOISE = [*"'\"\\ #$`();&|{}<>=\t!~\n\r", ""]


def random_line(source: random.Random, depth: int = 0) -> str:
    command = source.choice(BEFORE) + source.choice(NAMES)
    while source.random() < 0.5:
        command += " " + source.choice(WORDS)
    line = source.choice(AROUND).format(command)
    while depth < 3 and source.random() < 0.4:
        line += source.choice(JOINTS) + random_line(source, depth + 1)
    if depth == 0 and source.random() < 0.2:
        at = source.randrange(len(line) + 1)
        line = line[:at] + source.choice(NOISE) + line[at:]
    return line


def test_whatever_runs_rm_in_bash_is_denied(tmp_path):
    source = random.Random(20)
    lines = list(dict.fromkeys(random_line(source) for _ in range(350)))
    ran = lines_that_run_rm(lines, tmp_path)
    assert len(ran) > 100
    assert [line for line in ran if decide(NO_RM, "execute", line) != "deny"] == []


def test_a_literal_line_has_the_words_that_bash_sees(tmp_path):
    source = random.Random(21)
    pieces = [
        *"ab -=:,.+@%^/_!~#'\"\\",
        " ",
        " ",
        "'a b'",
        '"c\\|d"',
        '"e\\"f"',
        "'$x'",
        "é",
        "--x=",
        "''",
        "\t",
        "'*;&|'",
    ]
    lines = ("say " + "".join(source.choices(pieces, k=source.randint(1, 12))) for _ in range(4_000))
    literal = [line for line in dict.fromkeys(lines) if len(split_literal(line)) == 1]
    assert len(literal) > 500
    script = "say() { printf '%s\\0' \"$@\" $'\\n'; }\n" + "\n".join(literal)
    output = run(script, tmp_path).decode()
    seen = [tuple(block.split("\0")[:-1]) for block in output.split("\n\0")[:-1]]
    assert seen == [split_literal(line)[0].words[1:] for line in literal]


def lines_that_run_rm(lines, folder) -> list[str]:
    """One bash reads them all, each in a shell of its own, with nothing to run but a harmless `rm`."""
    (folder / "bin").mkdir()
    (folder / "bin" / "rm").write_text(f"#!/bin/sh\necho $NUMBER >> {folder}/ran\n")
    (folder / "bin" / "rm").chmod(0o755)
    (folder / "bin" / "bash").symlink_to(str(shutil.which("bash")))
    (folder / "ran").touch()
    (folder / "lines").write_bytes(b"".join(line.encode() + b"\0" for line in lines))
    script = f"""
        number=0
        while IFS= read -r -d '' line <&7; do
            export NUMBER=$number; number=$((number + 1))
            (ulimit -t 1; eval "$line") >/dev/null 2>&1 </dev/null 7<&-
        done 7< {folder}/lines
    """
    run(script, folder, path=str(folder / "bin"))
    return [lines[number] for number in sorted({*map(int, (folder / "ran").read_text().split())})]


def run(script, folder, path="/usr/bin:/bin") -> bytes:
    (folder / "here").mkdir()
    bash = str(shutil.which("bash"))
    return subprocess.run(
        [bash, "-c", script],
        cwd=folder / "here",
        env={"PATH": path, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        timeout=150,
    ).stdout
