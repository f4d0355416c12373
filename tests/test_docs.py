"""The documentation is true: its code runs, its commands exist, its configurations load, its reference is current."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from forge.cli import forge, perform
from forge.evaluation.cases import read_cases
from forge.models.scripted import scripted_file
from forge.permissions.policy import load_rules
from forge.project.config import load_configuration
from forge.project.policy_examples import read_examples
from tests.cli.screens import ENDED, Terminal

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
ELSEWHERE = ("testing.md", "conversation-in-postgres.md")  # pages with tests of their own
TOLD = [name for name in PAGES if not name.startswith("reference/") and name not in ELSEWHERE]
AT_TERMINAL = ("tutorial.md",)  # pages that show what a person at a terminal sees
NOT_RUN = "# not run in the tests: "
MOST_NOT_RUN = 1
FENCE = re.compile(
    r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
VARIABLES = (
    "DOCS_TOKEN KEY API_USER API_PASSWORD PETS_TOKEN TEAM_WEBHOOK TELEGRAM_TOKEN GITHUB_TOKEN GIT_TOKEN"
).split()
SAFE = (
    "audit build completion doctor init undo config:show config:schema memory:search memory:show memory:stats "
    "memory:reindex policy:explain policy:test schedule:add schedule:list schedule:history session:list "
    "skill:check skill:list skill:new skill:show tool:describe tool:list tool:new trust"
).split()  # commands that ask nobody, start nothing and end by themselves


class Block(NamedTuple):
    """What stands between two fences, where it is, and the output that is shown below it."""

    line: int
    language: str
    title: str
    text: str
    output: str | None


def blocks(page: str | Path) -> list[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, found.start()) + 1, found[1], found[2] or "", found[3], found[4])
        for found in FENCE.finditer(text)
    ]


def told(page: str) -> Any:
    """A page that starts programs, or runs tests of its own, takes seconds."""
    starts = page == "test-an-agent.md" or any(block.language == "sh" for block in blocks(page))
    return pytest.param(page, marks=[pytest.mark.slow, pytest.mark.timeout(400)]) if starts else page


@pytest.mark.parametrize("page", [told(page) for page in TOLD])
def test_what_a_page_tells_can_be_done(page, tmp_path, monkeypatch, capfd):
    """From top to bottom, in one directory: files are written, code and commands are run, output is compared."""
    telling = Telling(tmp_path, monkeypatch, capfd, at_terminal=page in AT_TERMINAL)
    if telling.at_terminal and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    for block in blocks(page):
        try:
            telling.tell(block)
        except BaseException as error:
            error.add_note(f"docs/{page}, line {block.line}")
            raise


class Telling:
    """Does what a page says, in a directory and with a home of its own."""

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        *,
        at_terminal: bool = False,
    ) -> None:
        self.directory, self.at_terminal = directory, at_terminal
        home, programs = directory / "home", directory / "programs"
        self.here, self.ended = directory / "here", directory / "ended-in"
        self.patch, self.capture = monkeypatch, capfd
        for made in (home, programs, self.here):
            made.mkdir()
        (programs / "forge").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m forge "$@"\n')
        (programs / "forge").chmod(0o755)
        for name in [name for name in os.environ if name.endswith(("_API_KEY", "_TOKEN")) or name.startswith("FORGE_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("PATH", f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}")
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            monkeypatch.delenv(name, raising=False)

    def tell(self, block: Block) -> None:
        if block.title:
            file = self.here / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        if block.language == "python" and not block.title and NOT_RUN not in block.text:
            self._compare(block, self._run_python(block.text))
        elif block.language == "sh" and (block.output is not None or is_safe(block.text)):
            self._compare(block, self._run_shell(block.text))

    def _run_python(self, text: str) -> str:
        file = self.here / "block.py"
        file.write_text(text, encoding="utf-8")
        self.patch.chdir(self.here)
        self.patch.syspath_prepend(str(self.here))
        self.capture.readouterr()
        try:
            runpy.run_path(str(file), run_name="__main__")
        finally:
            file.unlink()
        return self.capture.readouterr().out

    def _run_shell(self, text: str) -> str:
        """As a person would type it; a `cd` holds for the blocks that follow."""
        script = f"trap 'pwd > {shlex.quote(str(self.ended))}' EXIT\nset -o pipefail\n{text}"
        expected = re.search(r"# exit code (\d+)", text)
        if self.at_terminal:
            code, shown = self._run_at_terminal(script, re.findall(r"# press (\w)", text))
            assert code == (int(expected[1]) if expected else 0), shown
            self.here = Path(self.ended.read_text().strip())
            return shown
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
        )
        assert done.returncode == (int(expected[1]) if expected else 0), done.stdout
        self.here = Path(self.ended.read_text().strip())
        return done.stdout

    def _run_at_terminal(self, script: str, keys: list[str]) -> tuple[int, str]:
        """Returns the exit code, and what the window of a person shows who presses these keys at the questions."""
        file = self.directory / "typed.sh"
        file.write_text(f"echo\ncd {shlex.quote(str(self.here))}\n{script}", encoding="utf-8")
        with Terminal(self.directory, str(file), program=("bash",), columns=120, rows=50) as terminal:
            for key in keys:
                terminal.wait("[e]dit?")
                terminal.press(key)
            return terminal.wait_for_end(), terminal.everything().partition(ENDED)[0]

    def _compare(self, block: Block, output: str) -> None:
        """`…` in what is shown stands for whatever it is."""
        if block.output is None:
            return
        shown = re.escape(block.output.strip()).replace("…", ".*?")
        lines = "\n".join(line.rstrip() for line in output.strip().splitlines())
        assert re.fullmatch(shown, lines, re.DOTALL), f"shown:\n{block.output}\nis:\n{output}"


def is_safe(text: str) -> bool:
    """Whether all that a block does is to look at things, or to write them into its own directory."""
    found = [command for line in text.splitlines() for command in forge_commands(line)]
    typed = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return len(found) == len(typed) and all(
        words and (words[0] in SAFE or ":".join(words[:2]) in SAFE) for words in found
    )


def forge_commands(line: str) -> list[list[str]]:
    """The arguments of every `forge` on a line."""
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    reader.whitespace_split = True
    found: list[list[str]] = []
    words: list[str] | None = None
    target = False  # of a redirection
    for word in reader:
        if word in ("|", "&&", ";"):
            words = None
        elif words is None and "=" not in word:
            words = []
            if word == "forge":
                found.append(words)
        elif word == ">" or target:
            target = not target
        elif words is not None:
            words.append(word)
    return found


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_every_command_on_a_page_is_one(page):
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines() if block.language == "sh" else ():
            for words in forge_commands(line):
                try:
                    parse(words)
                except click.ClickException as error:
                    pytest.fail(f"docs/{page}, line {block.line}: forge {shlex.join(words)}: {error.format_message()}")


def parse(words: list[str]) -> None:
    """Read a command line as `forge` would, and do nothing. Raises `ClickException`."""
    command: click.Command = forge
    parent = None
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(click.Context(command), name)
        if found is None:
            raise click.UsageError(f"there is no command {name!r}")
        parent, command = click.Context(command, parent=parent), found
    if "--help" not in words and "--version" not in words:
        command.make_context("forge", words, parent=parent)


@pytest.mark.parametrize("page", PAGES)
def test_every_yaml_on_a_page_can_be_read(page, tmp_path):
    for block in blocks(page):
        if block.language != "yaml":
            continue
        file = tmp_path / Path(block.title or "forge.yaml").name
        file.write_text(block.text, encoding="utf-8")
        try:
            read_yaml(file)
        except BaseException as error:
            error.add_note(f"docs/{page}, line {block.line}")
            raise


def read_yaml(file: Path) -> None:
    name = file.stem
    if name.startswith("model"):
        scripted_file(file)
    elif name.startswith("policy-tests"):
        assert read_examples(str(file))
        if name == "policy-tests-labels":  # the others are about a project's own rules
            assert perform(["policy", "test", str(file), "--workspace", str(file.parent)]) == 0
    elif name.startswith("cases"):
        assert read_cases(file)
    elif name.startswith("rules"):
        load_rules(file)
    elif name != "petstore":
        environment = {"HOME": str(file.parent), **dict.fromkeys(VARIABLES, "https://example.com/a-value")}
        load_configuration(str(file), environment=environment, organisation=str(file.parent / "none"))


def test_few_blocks_are_not_run_and_each_says_why():
    left_out = [
        re.search(rf"{NOT_RUN}(.*)", block.text)
        for page in TOLD
        for block in blocks(page)
        if block.language == "python" and NOT_RUN in block.text
    ]
    assert len(left_out) <= MOST_NOT_RUN
    assert all(reason and len(reason[1]) > 5 for reason in left_out)


def test_every_fence_is_seen():
    """A block that the pattern above misses would never be tried."""
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        fences = re.findall(r"^```\w+", text, re.MULTILINE)
        shown = sum(block.output is not None for block in blocks(page))
        assert len(fences) == len(blocks(page)) + shown, page


@cache
def reference() -> dict[str, str]:
    from scripts.reference.__main__ import pages  # loads nearly everything there is

    return pages()


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("reference/")])
def test_the_reference_is_current(page):
    written = (DOCS / page).read_text(encoding="utf-8")
    assert written == reference()[Path(page).name], "the code says something else: make reference"


def test_the_reference_is_complete():
    assert sorted(f"reference/{name}" for name in reference()) == [one for one in PAGES if one.startswith("reference/")]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    text = re.sub(FENCE, "", (DOCS / page).read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (DOCS / page).parent / path if path else DOCS / page
        assert file.exists(), f"docs/{page}: {target}"
        if anchor:
            assert anchor in anchors(file), f"docs/{page}: {target}"


def anchors(file: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", re.sub(FENCE, "", file.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}


def test_every_page_is_in_the_navigation():
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    assert sorted(named(settings["project"]["nav"])) == PAGES


def test_the_link_to_the_repository_asks_no_server():
    """The theme's own one has a component that queries GitHub's API at each visit."""
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    source = ROOT / settings["project"]["theme"]["custom_dir"] / "partials/source.html"
    link = source.read_text(encoding="utf-8").partition("-#}")[2]
    assert "config.repo_url" in link
    assert "data-md-component" not in link


def named(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
    return [page for one in inner for page in named(one)]
