"""The README's code and commands work as they are shown, its table is measured, and its pictures exist."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from scripts.readme import pypi_page, read_cells, write_table
from tests.models.serving import refusal, serving, sse, stream

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=150, cwd=ROOT, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_first_lines_of_code_refund_one_order_and_deny_the_other(tmp_path):
    calls = [
        {"index": number, "id": f"c{number}", "type": "function",
         "function": {"name": "refund", "arguments": json.dumps({"number": order})}}
        for number, order in enumerate((7, 8))
    ]  # fmt: skip
    asks = {"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    says = {"choices": [{"delta": {"content": "Order 7 is refunded."}, "finish_reason": "stop"}]}
    (tmp_path / "first.py").write_text(blocks("python")[0], encoding="utf-8")
    no_llama = refusal(404)  # a server that is not OpenAI's is first asked whether it is llama.cpp
    async with serving(no_llama, stream(sse(asks)), stream(sse(says))) as server:
        output = await asyncio.to_thread(run, str(tmp_path / "first.py"), OPENAI_BASE_URL=server.url)
    assert output == "Order 7 is refunded.\n"
    results = [message["content"] for message in server.asked[2].body["messages"] if message["role"] == "tool"]
    assert results[0] == "Order 7 is refunded."
    assert "denied by the rule `deny execute *`" in results[1]
    assert len(results) == 2


def test_without_a_key_the_first_lines_of_code_say_what_to_do(tmp_path):
    (tmp_path / "first.py").write_text(blocks("python")[0], encoding="utf-8")
    assert run(str(tmp_path / "first.py"), OPENAI_API_KEY="", OPENAI_BASE_URL="").splitlines() == [
        "choosing the model 'openai:gpt-5': OPENAI_API_KEY is not set",
        "Set OPENAI_API_KEY to your API key, or choose another model.",
    ]


def test_the_longer_code_runs(tmp_path):
    _first, longer = blocks("python")
    (tmp_path / "longer.py").write_text(longer, encoding="utf-8")
    output = run(str(tmp_path / "longer.py"))
    for words in (
        "web is live in eu",
        "denied by the rule",
        "Example: word_count",
        "Deployed everything I may deploy.",
        "(answer after 3 turns)",
    ):
        assert words in output


def test_the_commands_of_the_quick_start_work_in_this_order(tmp_path):
    """`cd` is done here; everything else by the installed `forge`."""
    block = next(block for block in blocks("sh") if "forge init" in block)
    home = tmp_path / "home"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.endswith(("_API_KEY", "_BASE_URL"))}
    environment |= {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "NO_COLOR": "1"}
    folder, outputs = tmp_path, []
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "cd":
            folder /= words[1]
            continue
        assert words[0] == "forge"
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=150
        )
        outputs.append(done.stdout)
        assert done.returncode == 0 or words[1] == "doctor", f"{line}: {done.stdout}{done.stderr}"
    text = "\n".join(outputs)
    assert "file_edit" in text
    assert '{\\"words\\": 6}' in text
    assert "deny  execute git push: the rule `deny execute git push *`" in text


def test_the_table_of_other_frameworks_is_the_measured_one():
    assert write_table(TEXT) == TEXT, "run `make readme`"


def test_the_page_on_pypi_has_no_link_that_only_the_repository_knows():
    page = pypi_page(TEXT)  # `make dist` writes it to PYPI.md
    relative = re.compile(r"\]\((?![a-z]+:|#)")
    assert relative.search(TEXT)
    assert not relative.search(page)
    assert "pip install forge-tools " in page
    assert "pip install ." not in page
    linked = re.findall(r"\(https://github\.com/[\w-]+/[\w-]+/(?:blob|tree)/main/([^)#]+)", page)
    linked += re.findall(r"\(https://raw\.githubusercontent\.com/[\w-]+/[\w-]+/main/([^)]+)\)", page)
    assert len(linked) > 20
    assert [path for path in linked if not (ROOT / path).exists()] == []
    cells = read_cells((ROOT / "benchmarks/RESULTS.md").read_text(encoding="utf-8"))
    assert cells["twelve identical calls"]["forge"] in TEXT


def test_every_picture_is_there():
    pictures = re.findall(r"!\[[^]]+\]\((docs/[^)]+)\)", TEXT)
    assert len(pictures) == 3
    for picture in pictures:
        assert (ROOT / picture).stat().st_size > 1_000
