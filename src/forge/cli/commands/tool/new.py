"""`forge tool new`: writes a script tool and a test that passes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals
from forge.core.registry import ToolRegistry
from forge.core.spec import is_name
from forge.project.assemble.access import project_policy, project_scope
from forge.project.config import load_configuration
from forge.project.preview_call import preview_call
from forge.project.templates import write_new
from forge.scripts.folder import scripts
from forge.tools import built_ins

if TYPE_CHECKING:  # showing the help does without
    from forge.core.context import Scope
    from forge.project.config.declaration import Configuration

_HEADER = """\
Tool: {name}
Description: Say in a sentence what it does, and when to use it.

Input:
  text (str): What to repeat.
  times (int) = 1: How often.

Output:
  result (str): The text, that often."""

_PYTHON = '''\
"""
{header}
"""

import json
import sys


def execute(text: str, times: int) -> dict[str, str]:
    return {{"result": " ".join([text] * times)}}


if __name__ == "__main__":
    # The arguments are JSON on stdin; what is printed is the result; stderr is shown while it runs.
    print(json.dumps(execute(**json.load(sys.stdin))))
'''

_TYPESCRIPT = """\
/**
{header}
 */

import {{ readFileSync }} from "node:fs";

type Input = {{ text: string; times: number }};

export function execute({{ text, times }}: Input): {{ result: string }} {{
  return {{ result: Array(times).fill(text).join(" ") }};
}}

// The arguments are JSON on stdin; what is printed is the result; stderr is shown while it runs.
console.log(JSON.stringify(execute(JSON.parse(readFileSync(0, "utf8")))));
"""

_TEST = '''\
"""Tests of {path}, called as an agent calls it."""

from pathlib import Path

import pytest

from forge import ToolResult, scripts
from forge.testing import bench

PROJECT = Path(__file__).parents[1]


def call(**arguments: object) -> ToolResult:
    result = bench(scripts("tools", root=PROJECT).load(), workspace=PROJECT).call("{name}", arguments)
    if result.failure is not None and result.failure.kind == "config_error":
        pytest.skip(result.for_llm)  # no program on this machine can run it
    return result


def test_it_repeats_the_text() -> None:
    result = call(text="hello", times=2)
    assert result.success, result.for_llm
    assert result.data["result"] == {{"result": "hello hello"}}


def test_it_says_what_is_missing() -> None:
    assert "text" in call().for_llm
'''


@click.command("new")
@click.argument("name")
@click.option(
    "--lang", type=click.Choice(["py", "ts"]), default="py", show_default=True, help="The language of the script."
)
@with_options("policy")
def command(options: Options, name: str, lang: str) -> int:
    """Create a tool: a script in tools/ with a header that describes its input, and a test.

    \b
    forge tool new weather --lang py

    The command prints the rule that allows the tool, if the rules of the project do not allow it yet. With --json:
    {script, test, call, decision, rule}.

    \b
    Exit codes: 0 both files are written     2 the name cannot be used, or a file exists already
    """

    with refusals():
        configuration = load_configuration(options.config)
        scope = project_scope(options.workspace, configuration, options.session)
        _check(name, scope.workspace)
        files = _files(name, lang)
        write_new(scope.workspace, files)
        decision = _decide(configuration, options.policy, name, scope)
    script, test = files
    call, rule = f"forge tool call {name} text=hello", f"allow execute {script}"
    if options.json:
        click.echo(json.dumps({"script": script, "test": test, "call": call, "decision": decision, "rule": rule}))
        return 0
    click.echo(f"Wrote {script} and {test}.")
    click.echo(f"Now write its code, and describe it in its header. Try it:\n  {call}\n  python -m pytest {test}")
    if decision != "allow":
        _print_rule(decision, rule, has_file=(scope.workspace / "forge.yaml").exists())
    return 0


def _decide(configuration: Configuration, policy: str | None, name: str, scope: Scope) -> str:
    """Returns what the project's rules decide about a call of the new tool: allow, ask or deny."""

    (made,) = [one for one in scripts(root=scope.workspace).load() if one.spec.name == name]
    rules = project_policy(configuration, policy)
    return str(preview_call(configuration, rules, made, {"text": "hello", "times": 1}, scope).decision)


def _print_rule(decision: str, rule: str, *, has_file: bool) -> None:
    """Prints the line for forge.yaml that allows the tool."""
    before = "Forge asks you before each call of the tool." if decision == "ask" else "A rule denies the tool."
    if has_file:
        how, lines = "add this line at the end of permissions.rules in forge.yaml", f"    - {rule}"
    else:
        how, lines = "write this into forge.yaml", f"  permissions:\n    rules:\n      - {rule}"
    click.echo(f"{before} To allow every call, {how}, then run `forge trust`:\n{lines}")


def _check(name: str, root: Path) -> None:
    if not is_name(name) or "__" in name:
        raise Refusal(
            f"{name[:80]!r} cannot be the name of a tool\nWrite a letter, then letters, digits, - or single _."
        )

    for tool in built_ins(ToolRegistry()):
        if name in (tool.spec.name, *tool.spec.aliases):
            raise Refusal(f"{name!r} is a built-in tool ({tool.spec.name})\nChoose another name.")
    for script in scripts(root=root).load():
        if script.spec.name == name:
            raise Refusal(f"{script.script.path} is a tool of that name already\nChoose another name.")


def _files(name: str, lang: str) -> dict[str, str]:
    """Returns the texts to write by path: first the script, then its test."""
    header = _HEADER.format(name=name)
    if lang == "py":
        # Python looks beside a script first: as json.py it would hide the module from all of them
        beginning = "tool_" if name in sys.stdlib_module_names else ""
        script, content = f"tools/{beginning}{name}.py", _PYTHON.format(header=header)
    else:
        starred = "\n".join(f" * {line}".rstrip() for line in header.splitlines())
        script, content = f"tools/tool_{name}.ts", _TYPESCRIPT.format(header=starred)
    return {script: content, f"tests/test_{name.replace('-', '_')}.py": _TEST.format(path=script, name=name)}
