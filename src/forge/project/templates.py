"""Templates of new projects, whose files pass every check, and writing new files: all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import PathValidator


class Template(NamedTuple):
    """The purpose of a template, and its files beside those of every project."""

    about: str
    configuration: str
    files: dict[str, str]
    tests: str  # `forge policy test` runs them


_HEAD = """\
# Configuration of this agent. `forge config schema` prints the schema of every key, for completion in editors.
agent:
  id: "{name}"
  version: 0.1.0
  description: {about}
  prompt: |
    {prompt}
  # model: anthropic:MODEL, openai:MODEL, ollama:MODEL …; default: the first provider whose API key is set
"""

_TOOL = '''\
"""
Tool: word_count
Description: Count the words of a text.

Input:
  text (str): The text.

Output:
  words (int): How many there are.
"""

import json
import sys


def execute(text: str) -> dict[str, int]:
    return {"words": len(text.split())}


if __name__ == "__main__":
    # Arguments arrive as JSON on stdin. The output is the result. stderr is shown while the tool runs.
    print(json.dumps(execute(**json.load(sys.stdin))))
'''

_TOOL_TEST = '''\
"""Tests of tools/word_count.py, and of the agent that uses it. They need no model and no key."""

from pathlib import Path

from forge import Scripted, load_project, scripts
from forge.testing import Bench, assert_called, bench, calls, says

PROJECT = Path(__file__).parents[1]


def tools() -> Bench:
    return bench(scripts("tools", root=PROJECT).load(), workspace=PROJECT)


def test_it_counts_words() -> None:
    result = tools().call("word_count", text="to be or not to be")
    assert result.success, result.for_llm
    assert result.data["result"] == {"words": 6}


def test_it_says_what_is_missing() -> None:
    assert "text" in tools().failure("word_count").message


def test_the_agent_may_use_it() -> None:
    """The agent of this project, with its own rules. Only the model is scripted."""
    model = Scripted(calls("word_count", text="to be"), says("Two words."))
    agent = load_project(PROJECT, config=str(PROJECT / "forge.yaml")).agent(model)
    result = agent.run_sync("How many words are in 'to be'?")
    assert_called(result, "word_count", text="to be")
    assert not [message.text for message in result.messages if message.is_error]
    assert result.text == "Two words."
'''

_IGNORED = """\
.forge/
.forge-output/
__pycache__/
.pytest_cache/
"""

_README = """\
# {name}

{about}

    forge trust                     # after a clone or a change: trust this project's forge.yaml
    forge tool list                 # list the agent's tools
    forge policy test {tests}       # test the permission rules
    forge run "…"                   # run the agent; without a task, chat with it
    pip install pytest              # once, into the environment in which Forge is installed
    python -m pytest                # test the project's tool and its agent
    forge build --prod              # build for deployment, into .forge-output/
"""

_CODING_SKILL = """\
---
name: house-style
description: How code is written in this project. Read it before you change code.
---
Write here what a new colleague needs to know: how code is laid out and named, how to run the tests, what to
avoid. The agent reads it, too.
"""

_API = """\
openapi: 3.1.0
info: {title: Example, version: "1.0"}
servers: [{url: "https://api.example.com"}]
paths:
  /items:
    get:
      operationId: list_items
      summary: List the items.
      parameters:
        - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 100}}
      responses:
        "200":
          description: The items.
          content:
            application/json:
              schema: {type: array, items: {$ref: "#/components/schemas/Item"}}
    post:
      operationId: create_item
      summary: Create an item.
      requestBody:
        required: true
        content:
          application/json:
            schema: {$ref: "#/components/schemas/Item"}
      responses:
        "201": {description: The item was created.}
components:
  schemas:
    Item:
      type: object
      required: [name]
      properties:
        name: {type: string}
"""

TEMPLATES = {
    "minimal": Template(
        "An agent with read-only tools and one custom tool.",
        """\
tools:
  - group: read
  - name: math_calculate
  - name: datetime_now
permissions:
  rules:
    - allow read
    - allow execute tools/word_count.py
sandbox: auto
egress: {mode: deny-all}
""",
        {},
        """\
- {tool: file_read, arguments: {path: README.md}, expect: allow}
- {tool: word_count, arguments: {text: a}, expect: allow}
""",
    ),
    "coding": Template(
        "An agent that works on the code in this directory.",
        """\
tools:
  - group: code-agent
  - name: bash
permissions:
  rules:
    - allow read
    - ask write
    - allow effects write .pytest_cache/**
    - allow execute git status *
    - allow execute git diff *
    - allow execute pytest *
    - allow execute tools/word_count.py
    - deny execute git push *
skills: {paths: [skills], active: [code-agent]}
sandbox: auto
egress: {mode: deny-all}
""",
        {"skills/house-style/SKILL.md": _CODING_SKILL},
        """\
- {tool: file_read, arguments: {path: README.md}, expect: allow}
- {tool: file_write, arguments: {path: a.py, content: ""}, expect: ask}
- {tool: bash, arguments: {command: git push origin main}, expect: deny}
- {tool: bash, arguments: {command: pytest -q}, expect: allow}
- {tool: bash, arguments: {command: make test}, effects: [create .pytest_cache/v], expect: allow}
- {tool: bash, arguments: {command: make test}, effects: [write setup.py], expect: ask}
- {tool: word_count, arguments: {text: a}, expect: allow}
""",
    ),
    "ops": Template(
        "An operations agent that may run a few listed programs.",
        """\
tools:
  - group: read
  - name: cli_execute
    config: {allowed_binaries: [git, jq], env_passthrough: [], timeout: 120, max_output_bytes: 1048576}
  - name: json_parse
  - name: datetime_now
  - name: schedule_list
  - name: schedule_history
permissions:
  rules:
    - allow read
    - allow execute git *
    - allow execute jq *
    - allow execute tools/word_count.py
    - deny execute git push *
channels:
  log: {type: file, path: reports.md}
schedules:
  - {id: daily-report, cron: "0 7 * * *", task: "Say what changed in this repository since yesterday.", channel: log}
sandbox: auto
egress: {mode: deny-all}
""",
        {},
        """\
- {tool: cli_execute, arguments: {binary: git, args: [status]}, expect: allow}
- {tool: cli_execute, arguments: {binary: git, args: [push]}, expect: deny}
- {tool: word_count, arguments: {text: a}, expect: allow}
""",
    ),
    "api": Template(
        "An agent that uses an API through its OpenAPI document.",
        """\
tools:
  - group: read
  - name: json_parse
  - name: "example__*"
    config: {timeout: 30}
openapi:
  example: {spec: ./api.yaml, server: "https://api.example.com"}   # auth: {bearer_env: EXAMPLE_TOKEN}
permissions:
  rules:
    - allow read
    - ask tool:example__*
    - allow tool:example__list_*
    - allow execute tools/word_count.py
sandbox: auto
egress: {mode: allowlist, domains: [api.example.com]}
""",
        {"api.yaml": _API},
        """\
- {tool: example__list_items, arguments: {limit: 5}, expect: allow}
- {tool: example__create_item, arguments: {name: a}, expect: ask}
- {tool: word_count, arguments: {text: a}, expect: allow}
""",
    ),
}

_PROMPT = "Say what you are sure of, and why."
POLICY_TESTS = "policy-tests.yaml"
OFTEN_THERE = (".gitignore", "README.md")  # files that a directory with code often has; the project does not need them


def files_of(template: str, name: str) -> dict[str, str]:
    """Returns the texts to write by path."""
    chosen = TEMPLATES[template]
    head = _HEAD.format(name=name, about=chosen.about, prompt=_PROMPT)
    return {
        "forge.yaml": head + chosen.configuration,
        "tools/word_count.py": _TOOL,
        "tests/test_word_count.py": _TOOL_TEST,
        POLICY_TESTS: chosen.tests,
        "README.md": _README.format(name=name, about=chosen.about, tests=POLICY_TESTS),
        ".gitignore": _IGNORED,
        **chosen.files,
    }


# Writes new files: all of them or none, and never over existing ones.


def write_new(root: Path, files: Mapping[str, str]) -> None:
    """Writes files by their paths below the root. Raises `ToolError`; a link that leads out of the root is refused,
    too.
    """
    targets = {path: PathValidator(root).resolve_for_writing(path).path for path in files}
    there = [path for path, target in targets.items() if target.exists() or (root / path).is_symlink()]
    if there:
        verb = "is" if len(there) == 1 else "are"
        raise ToolError(
            f"{', '.join(there)} {verb} there already, and {verb} not overwritten",
            ErrorKind.CONFIG,
            "Choose another name or directory, or move the existing files away.",
        )
    written: list[Path] = []
    for path, target in targets.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:
                written.append(target)
                file.write(files[path])
        except OSError as error:
            for one in written:
                one.unlink(missing_ok=True)
            raise ToolError(
                f"{path} cannot be written: {error.strerror}",
                ErrorKind.CONFIG,
                "Nothing was written; choose another directory.",
            ) from None
