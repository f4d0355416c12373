"""Reading files: pages, several at once, images, directories, and what cannot be shown."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.pipeline.limit_output import MAX_BYTES, MAX_LINES, LimitOutput
from forge.tools.file_read import FileRead
from forge.workspace.history.tracking import SessionState, TrackedCall, track_call

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0"


@pytest.fixture
def reader(tmp_path):
    """A function that calls file_read, made with these settings and behind these steps."""

    def make(*steps, name="file_read", **settings):
        executor = ToolExecutor(ToolRegistry([FileRead(**settings)]), steps)
        scope = Scope(workspace=tmp_path)
        return lambda path=None, **arguments: asyncio.run(
            executor.execute(ToolCall(name, {"path": path, **arguments} if path is not None else arguments), scope)
        )

    return make


@pytest.fixture
def read(reader):
    return reader()


@pytest.fixture
def limited(reader):
    """The same with the pipeline's output budget."""
    return reader(LimitOutput())


def test_a_file_is_shown_with_line_numbers(read, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    result = read("a.txt")
    assert result.for_llm == "     1\tone\n     2\ttwo"
    assert result.data == {
        "path": "a.txt",
        "content": result.for_llm,
        "files_read": 1,
        "lines": 2,
        "total_lines": 2,
        "bytes": 8,
        "tokens": 6,
        "truncated": False,
        "next_offset": None,
    }
    assert result.title == "Read a.txt (2 lines)"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"a\r\nb\rc\n", ["a", "b", "c"]),
        ("é\x0cx\u2028y\n".encode(), ["é\x0cx\u2028y"]),
        (b"\xef\xbb\xbfmarked\n", ["marked"]),
        (b"\xff\xfe" + "日本\r\n\r\n".encode("utf-16-le"), ["日本", ""]),
        (b"\0\0\xfe\xff" + "日本".encode("utf-32-be"), ["日本"]),
        (b"\n\n", ["", ""]),
        (b"\x1b[31mred\x1b[0m\n", ["\x1b[31mred\x1b[0m"]),
    ],
)
def test_the_model_is_shown_the_text_as_it_is(read, tmp_path, content, shown):
    (tmp_path / "a.txt").write_bytes(content)
    assert read("a.txt").for_llm == "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(shown, 1))


def test_a_page_says_what_it_shows_and_where_to_go_on(read, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 14303)))
    result = read("a.txt")
    assert result.for_llm.endswith("\n  2000\tline 2000\n[lines 1-2000 of 14302; continue with offset=2001]")
    assert result.data["next_offset"] == 2001
    assert result.data["truncated"] is True
    assert (result.data["lines"], result.data["total_lines"]) == (2000, 14302)
    result = read("a.txt", offset=14301)
    assert result.for_llm == " 14301\tline 14301\n 14302\tline 14302\n[lines 14301-14302 of 14302]"
    assert result.data["truncated"] is False
    assert read("a.txt", offset=5, limit=1).for_llm == "     5\tline 5\n[lines 5-5 of 14302; continue with offset=6]"


def test_a_page_just_as_long_as_the_file_is_not_cut(read, tmp_path):
    (tmp_path / "a.txt").write_text("x\n" * 2000)
    assert read("a.txt").for_llm.endswith("\n  2000\tx")
    assert read("a.txt", limit=2000).data["truncated"] is False


@pytest.mark.parametrize("limit", [0, 2_000, 10**12])
def test_a_page_of_long_lines_keeps_to_the_output_budget_and_the_next_one_goes_on(limited, tmp_path, limit):
    lines = [f"{number} {'é' * 100}" for number in range(1_500)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    shown: list[str] = []
    while True:
        result = limited("a.txt", offset=len(shown) + 1, limit=limit)
        assert len(result.for_llm.encode()) <= MAX_BYTES
        assert "[cut:" not in result.for_llm
        shown += [line.partition("\t")[2] for line in result.for_llm.split("\n") if "\t" in line]
        if "continue with" not in result.for_llm:
            break
        assert f"continue with offset={len(shown) + 1}]" in result.for_llm
        assert len(result.for_llm.encode()) > MAX_BYTES - 500
    assert shown == lines


def test_a_page_of_short_lines_passes_the_output_budget_as_it_is(limited, tmp_path):
    (tmp_path / "a.txt").write_text("x\n" * (MAX_LINES + 1))
    assert limited("a.txt").for_llm.endswith(f"[lines 1-2000 of {MAX_LINES + 1}; continue with offset=2001]")
    (tmp_path / "a.txt").write_text("x" * 2_500)
    assert limited("a.txt").for_llm.endswith("x[… 500 more characters]")


def test_a_long_line_is_clipped_and_marked(read, tmp_path):
    (tmp_path / "a.txt").write_text("é" * 2_000 + "\n" + "é" * 2_007 + "\nend\n")
    first, second, third = read("a.txt").for_llm.split("\n")
    assert first == "     1\t" + "é" * 2_000
    assert second == "     2\t" + "é" * 2_000 + "[… 7 more characters]"
    assert third == "     3\tend"
    assert read("a.txt").data["truncated"] is True


@pytest.mark.parametrize("offset", [4, 2**63, 10**400])
def test_an_offset_past_the_end_names_the_number_of_lines(read, tmp_path, offset):
    (tmp_path / "a.txt").write_text("1\n2\n3")
    result = read("a.txt", offset=offset)
    assert result.failure.kind == "user_error"
    assert "is past the end: a.txt has 3 lines" in result.failure.message
    assert result.failure.suggestion == "Use an offset from 1 to 3."
    assert read("a.txt", offset=3).for_llm == "     3\t3\n[lines 3-3 of 3]"


def test_an_offset_of_nought_is_the_beginning_and_below_it_is_an_error(read, tmp_path):
    (tmp_path / "a.txt").write_text("1\n")
    assert read("a.txt", offset=0).for_llm == "     1\t1"
    assert read("a.txt", offset=-1).failure.kind == "validation_error"
    assert read("a.txt", limit=-1).failure.kind == "validation_error"


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_an_empty_file_says_so(read, tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    assert read("a.txt").for_llm == "[empty file]"
    assert read("a.txt", offset=7).for_llm == "[empty file]"


def test_a_missing_file_names_similar_ones(read, tmp_path):
    for name in ("report.md", "report.text", "reprot.txt", "rapport.txt", "unlike"):
        (tmp_path / name).write_text("x")
    result = read("report.txt")
    assert result.failure.kind == "not_found"
    assert result.for_llm.startswith('file_read(path="report.txt"): no such file\nDid you mean ')
    assert re.findall('"(.*?)"', result.failure.suggestion) == ["report.md", "report.text", "reprot.txt"]
    assert "glob_search" in read("zzz/qqq.bin").failure.suggestion


def test_a_dangling_link_says_where_it_leads(read, tmp_path):
    os.symlink("gone.txt", tmp_path / "link")
    assert read("link").failure.message == 'no such file: it is a link to "gone.txt", which is missing'


def test_several_files_have_a_block_each(read, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\nthree\n")
    result = read(["a.txt", "missing.txt", "b.txt"], limit=1)
    assert result.for_llm == (
        "=== a.txt ===\n     1\tone\n\n"
        "=== missing.txt ===\n[no such file. Look for it with glob_search or directory_list.]\n\n"
        "=== b.txt ===\n     1\ttwo\n[lines 1-1 of 2; continue with offset=2]"
    )
    assert result.success
    assert result.data["path"] == ["a.txt", "missing.txt", "b.txt"]
    assert (result.data["files_read"], result.data["lines"], result.data["total_lines"]) == (2, 2, 3)
    assert result.data["files"][1]["error_type"] == "not_found"
    assert result.title == "Read 2 of 3 files"


def test_a_list_sent_as_text_is_a_list(read, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "[x]").write_text("two\n")
    tool = FileRead()
    assert tool.targets({"path": '["a.txt", "[x]"]'}) == ["a.txt", "[x]"]
    assert read('["a.txt", "[x]"]').data["files_read"] == 2
    assert read("[x]").for_llm == "     1\ttwo"


def test_other_names_of_the_tool_and_its_parameters_work(reader, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    assert reader(name="read")(file_paths=["a.txt"], limit=50).for_llm == "     1\tone"
    assert reader(name="read_file")(file_path="a.txt").for_llm == "     1\tone"


def test_several_files_none_of_which_is_there_are_a_failure(read):
    result = read(["a.txt", "b.txt"])
    assert result.failure.kind == "not_found"
    assert result.failure.message == '"a.txt": no such file; "b.txt": no such file'


def test_no_path_and_too_many_are_errors(read):
    assert read([]).failure.message == "no path is given"
    assert read([f"{number}" for number in range(51)]).failure.message == "51 paths at once, the limit is 50"


def test_several_large_files_share_the_output(limited, tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(f"{name * 90}\n" * 1_000)
    (tmp_path / "small").write_text("small\n")
    result = limited(["a", "small", "b", "c"])
    assert len(result.for_llm.encode()) <= MAX_BYTES
    assert "[cut:" not in result.for_llm
    assert result.for_llm.count("continue with offset=") == 3
    assert all(one["lines"] > 100 for one in result.data["files"] if one["path"] != "small")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\0b", "is a binary file (of unknown type, 3 bytes)"),
        (b"\x01\x02\x03\x04" * 10, "is a binary file (of unknown type, 40 bytes)"),
        (b"\x7fELF" + b"\0" * 12_341, "is a binary file (ELF program or library, 12,345 bytes)"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "is a binary file (PDF document, 15 bytes)"),
    ],
)
def test_a_binary_file_is_refused_with_its_kind_and_size(read, tmp_path, content, words):
    (tmp_path / "a.bin").write_bytes(content)
    result = read("a.bin")
    assert result.failure.kind == "user_error"
    assert words in result.failure.message
    assert result.data == {}


def test_text_that_cannot_be_decoded_is_refused_and_never_repaired(read, tmp_path):
    (tmp_path / "latin.txt").write_bytes("fine\ncafé\n".encode("latin-1"))
    result = read("latin.txt")
    assert "line 2 cannot be decoded" in result.failure.message
    assert "\ufffd" not in result.for_llm
    assert read("latin.txt", limit=1).success


@pytest.mark.parametrize("content", [b"GIF89a is a format\n", b"PK\n", b"MZ\n", b"BM\n"])
def test_text_that_begins_like_a_binary_is_text(read, tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert read("a").for_llm == f"     1\t{content.decode().rstrip()}"


def test_an_image_is_attached_whatever_its_name(read, tmp_path):
    (tmp_path / "logo.txt").write_bytes(PNG)
    result = read("logo.txt")
    assert result.for_llm == f"[PNG image, {len(PNG)} bytes, attached]"
    assert [(one.media_type, one.data, one.name) for one in result.attachments] == [("image/png", PNG, "logo.txt")]
    assert result.data["bytes"] == len(PNG)


def test_an_image_over_the_limit_is_refused(reader, tmp_path):
    read = reader(max_image_bytes=100)
    (tmp_path / "small.png").write_bytes(PNG)
    (tmp_path / "large.png").write_bytes(PNG + b"\0" * 100)
    assert read("small.png").attachments
    assert read("large.png").failure.message == (
        '"large.png" is too large (PNG image, 129 bytes): the limit for images is 100 bytes'
    )


def test_images_of_one_call_have_a_limit_together(reader, tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.png").write_bytes(PNG)
    result = reader(max_image_bytes=len(PNG))([f"{number}.png" for number in range(6)])
    assert [one.name for one in result.attachments] == ["0.png", "1.png", "2.png", "3.png"]
    assert result.for_llm.count("too large") == 2


def test_what_may_not_be_read_is_not_named_either(tmp_path):
    (tmp_path / "secrets.txt").write_text("x")
    (tmp_path / "secret.md").write_text("x")
    call = ToolCall("file_read", {"path": "secret.txt"})
    executor = standard_executor([FileRead()], policy=rules("allow read", "deny read secrets.txt"))
    result = asyncio.run(executor.execute(call, Scope(workspace=tmp_path)))
    assert result.failure is not None
    assert result.failure.suggestion == 'Did you mean "secret.md"?'


def test_what_a_person_is_shown_cannot_steer_a_terminal(read, tmp_path):
    name = "a\x1b[2J\nb.txt"
    (tmp_path / name).write_bytes(b"\x1b]0;title\x07\x1b[31mtext\n")
    for result in (read(name), read([name, "missing"])):
        assert "\x1b[31mtext" in result.for_llm
        assert result.title.isprintable()
        assert result.for_user == ""


def test_settings_are_kept(reader, tmp_path):
    (tmp_path / "a.txt").write_text("abcdefgh\n" * 10)
    assert reader(max_lines=3, max_line=4)("a.txt", limit=9).for_llm.split("\n")[2:] == [
        "     3\tabcd[… 4 more characters]",
        "[lines 1-3 of 10; continue with offset=4]",
    ]


def test_a_directory_gives_its_listing(read, tmp_path):
    (tmp_path / "sub/deep").mkdir(parents=True)
    (tmp_path / "sub/a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    result = read("sub")
    assert result.for_llm.split("\n") == ["deep/", "a.txt  4 B"]
    assert [entry["name"] for entry in result.data["entries"]] == ["deep", "a.txt"]
    assert read(["sub", "b.txt"]).for_llm == "=== sub ===\ndeep/\na.txt  4 B\n\n=== b.txt ===\n     1\ttwo"
    assert "sub/" in read(".").for_llm


def test_beyond_the_bound_the_number_of_lines_is_a_lower_one(read, tmp_path):
    with (tmp_path / "large.log").open("wb") as file:
        file.write(b"0123456789abcdef\n" * (1024 * 1024 + 10))  # 17 MiB
    match = re.search(r"\[lines 1-2000 of at least (\d+); continue with offset=2001\]", read("large.log").for_llm)
    assert match
    assert 900_000 < int(match[1]) <= 1024 * 1024 + 10
    assert read("large.log", offset=1024 * 1024 + 9).for_llm.endswith("[lines 1048585-1048586 of 1048586]")


def test_what_was_read_is_remembered(read, tmp_path):
    state = SessionState()
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    with track_call(TrackedCall(state, "s", checked=True)):
        read(["a.txt", "missing"])
    a, b = (str(tmp_path / name) for name in ("a.txt", "b.txt"))
    state.seen.check("s", a, os.stat(a), "a.txt", b"one\n")
    with pytest.raises(ToolError, match="was not read"):
        state.seen.check("s", b, os.stat(b), "b.txt")
