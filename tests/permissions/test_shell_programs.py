"""Whatever starts another program, a deny holds behind it or the line asks; ordinary uses run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forge.permissions.policy import layered, rules
from tests.permissions.judging import decide, request_for
from tests.permissions.starters import STARTS, STILL_RUN, lines_of

NO_RM = ["allow execute *", "deny execute rm *"]


@pytest.mark.parametrize("line", lines_of(STARTS))
def test_no_program_that_starts_others_gets_around_a_deny(line: str) -> None:
    assert decide(NO_RM, "execute", line) in ("deny", "ask")


@pytest.mark.parametrize("line", lines_of(STILL_RUN))
def test_ordinary_uses_of_such_programs_run(line: str) -> None:
    assert decide(NO_RM, "execute", line) == "allow"


def test_code_that_cannot_be_read_asks_where_something_is_denied_and_runs_where_nothing_is() -> None:
    line = "python3 -c 'print(1)'"
    assert decide(NO_RM, "execute", line) == "ask"
    assert decide(["allow execute *"], "execute", line) == "allow"
    assert decide(["deny execute rm *"], "execute", line) == "ask"


def test_a_layer_that_allows_everything_does_not_hide_the_deny_of_a_stricter_one() -> None:
    policy = layered(organisation=["deny execute rm *"], project=["allow execute *"])
    assert decide(policy, "execute", "python3 -c 'print(1)'") == "ask"
    assert decide(policy, "execute", "python3 script.py") == "allow"


def test_a_later_rule_that_allows_the_program_itself_allows_what_it_starts() -> None:
    lines = [*NO_RM, "allow execute python3 *"]
    assert decide(lines, "execute", "python3 -c 'print(1)'") == "allow"
    assert decide(lines, "execute", "perl -e 1") == "ask"
    assert decide(lines, "execute", "rm x") == "deny"


@pytest.mark.parametrize("mark", ["'E'", "E"])
def test_a_here_document_for_cat_is_text(mark: str) -> None:
    assert decide(NO_RM, "execute", f"cat > notes.md <<{mark}\nrm victim\nE") == "allow"
    assert decide(NO_RM, "execute", f"cat <<{mark}\nrm victim\nE\nrm x") == "deny"
    assert decide(NO_RM, "execute", f"cat > x.sh <<{mark}\nrm victim\nE\nsh x.sh") == "deny"
    assert decide(NO_RM, "execute", f"cat > x.py <<{mark}\nprint(1)\nE\npython3 x.py") == "ask"
    assert decide(NO_RM, "execute", f"cat > x.txt <<{mark}\nprint(1)\nE\npython3 x.py x.txt") == "allow"
    assert decide(NO_RM, "execute", f"cat <<{mark} | bash\nrm victim\nE") == "deny"


def test_a_program_counts_by_its_own_name_and_by_the_name_that_its_link_leads_to(tmp_path: Path) -> None:
    for name, target in (("zap", "/bin/rm"), ("show", "/bin/cat"), ("again", "zap"), ("input", "/dev/stdin")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/zip").symlink_to("../zap")
    for line in (
        "./zap victim",
        "./again victim",
        "cd sub && ./zip victim",
        "env ./zap victim",
        "sh -c './zap victim'",
        "cd sub; cd ..; cd sub; ./zip victim",
        "D=sub; cd $D; ./zip victim",
        "env -C sub ./zip victim",
        '"$PWD/zap" victim',
        "~+/zap victim",
    ):
        assert decide(NO_RM, "execute", line, workspace=tmp_path) == "deny", line
    assert decide(NO_RM, "execute", "sh input", workspace=tmp_path) == "ask"
    assert decide(NO_RM, "execute", "./show victim", workspace=tmp_path) == "allow"
    assert decide(NO_RM, "execute", '"$PWD/show" victim', workspace=tmp_path) == "allow"
    assert decide(["ask execute", "allow execute ./zap *"], "execute", "./zap x", workspace=tmp_path) == "allow"


def test_where_a_line_runs_and_what_it_is_given_counts(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/zap").symlink_to("/bin/rm")
    judge = rules(*NO_RM)

    def judge_call(line: str, **arguments: str) -> str:
        request = replace(request_for("execute", line, workspace=tmp_path), arguments={"command": line, **arguments})
        return str(judge(request))

    assert judge_call("./zap victim", working_dir="sub") == "deny"
    assert judge_call("./zap victim") == "allow"  # there is none
    assert judge_call("sqlite3 db", stdin=".shell rm victim") == "ask"
    assert judge_call("sqlite3 db 'select 1'", stdin="x") == "allow"
    assert judge_call("sh", stdin="rm victim") == "ask"
    assert judge_call("cat", stdin="rm victim") == "allow"


def test_a_comment_of_awk_hides_nothing() -> None:
    line = """awk '# "\\\nBEGIN{print "x" | "sh"}'"""
    assert decide(NO_RM, "execute", line) == "ask"
    assert decide(NO_RM, "execute", line.replace("|", ",")) == "allow"
