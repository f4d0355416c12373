"""Builds answers with calls in the forms that models write, and answers that only quote such calls.

The forms are those of the families' chat templates: Qwen 2.5 and 3, Qwen3-Coder, Hermes 2 Pro and 3, Mistral Nemo and
Small 3.2, Devstral, Llama 3.1 to 3.3, Gemma 2 to 4, DeepSeek V3, R1, V3.1 and V3.2. ReAct's form is that of its paper.
The texts are built here with a fixed seed: no answer of a real model is in the corpus.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from forge.core.spec import ToolSpec
from forge.core.tool import tool

SIZE = 500  # answers

Call = tuple[str, dict[str, Any]]
Write = Callable[[Sequence[Call], Random], str]


@tool
def file_read(path: str, offset: int = 0, limit: int | None = None) -> str:
    """Read a file."""
    return path


@tool
def file_write(path: str, content: str) -> str:
    """Write a file."""
    return path


@tool
def web_search(query: str, count: int = 5, exact: bool = False, sites: list[str] | None = None) -> str:
    """Search the web."""
    return query


@tool
def get_weather(city: str) -> str:
    """Tell the weather."""
    return city


@tool
def list_jobs() -> str:
    """List the jobs."""
    return ""


SPECS: list[ToolSpec] = [one.spec for one in (file_read, file_write, web_search, get_weather, list_jobs)]

CONTENTS = (
    "hello",
    'print("hi")\nfor n in range(3):\n    print(n)\n',
    "# Title\n\nSome *text* with `code`.\n\n```python\nx = {'a': [1, 2]}\n```\n",
    '{"name": "file_read", "arguments": {"path": "inner.txt"}}',
    '<tool>{"tool_name": "file_read", "arguments": {"path": "inner.txt"}}</tool>',
    "C:\\temp\\new, 50 % & more; ünïcödé 漢字 🙂",
    "He said \"stop\" and 'go'.\nAction: nothing\n",
)
QUERIES = ("python json", 'how to quote "this"', "weather in Zürich & Basel", "[TOOL_CALLS] token", "a = b; c <d>")
BEFORE = ("", "", "I'll look at that.\n\n", "Sure! Let me do this now:\n", "First, the facts.\nThen the call.\n\n")
ENDS = ("", "", "\n", "\n\n")


@dataclass(frozen=True)
class Answer:
    """A text of a model, the calls in it that must run, and how many others it quotes."""

    form: str
    model: str
    text: str
    calls: tuple[Call, ...]
    quoted: int = 0
    dialect: str | None = None


def make_call(random: Random) -> Call:
    more: dict[str, Any]
    match random.randrange(5):
        case 0:
            more = random.choice([{}, {"offset": random.randrange(100)}, {"offset": 3, "limit": 20}])
            return "file_read", {"path": random.choice(["a.txt", "src/main.py", "Ordner/über uns.md"]), **more}
        case 1:
            return "file_write", {"path": "out.md", "content": random.choice(CONTENTS)}
        case 2:
            more = random.choice([{}, {"count": 3}, {"exact": True, "sites": ["docs.python.org", "a.b"]}])
            return "web_search", {"query": random.choice(QUERIES), **more}
        case 3:
            return "get_weather", {"city": random.choice(["Paris", "São Paulo", "N'Djamena"])}
        case _:
            return "list_jobs", {}


# --- the twelve forms


def write_tool(calls: Sequence[Call], random: Random) -> str:
    shown = []
    for name, arguments in calls:
        body = json.dumps({"tool_name": name, "arguments": arguments}, ensure_ascii=random.random() < 0.5)
        shown.append(f"<tool>\n{body}\n</tool>" if random.random() < 0.7 else f"<tool>{body}</tool>")
    return "\n".join(shown)


def write_tool_xml(calls: Sequence[Call], random: Random) -> str:
    def element(key: str, value: Any) -> str:
        if isinstance(value, list):
            return "".join(element(key, one) for one in value)
        shown = f"<![CDATA[{value}]]>" if isinstance(value, str) else json.dumps(value)
        return f"<{key}>{shown}</{key}>"

    return "\n".join(
        f"<tool><tool_name>{name}</tool_name><arguments>{''.join(element(*one) for one in arguments.items())}"
        "</arguments></tool>"
        for name, arguments in calls
    )


def write_tool_call(calls: Sequence[Call], random: Random) -> str:
    shown = [
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
        for name, arguments in calls
    ]
    return "\n".join(shown)


def write_function(calls: Sequence[Call], random: Random) -> str:
    if random.random() < 0.5:
        return "\n".join(f"<function={name}>{json.dumps(arguments)}</function>" for name, arguments in calls)
    shown = []
    for name, arguments in calls:
        parts = [
            f"<parameter={key}>\n{one if isinstance(one, str) else json.dumps(one)}\n</parameter>\n"
            for key, one in arguments.items()
        ]
        shown.append(f"<tool_call>\n<function={name}>\n{''.join(parts)}</function>\n</tool_call>")
    return "\n".join(shown)


def write_mistral(calls: Sequence[Call], random: Random) -> str:
    match random.randrange(3):
        case 0:
            listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
            return f"[TOOL_CALLS] {json.dumps(listed, ensure_ascii=False)}"
        case 1:
            return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}" for name, arguments in calls)
        case _:
            return "".join(
                f"[TOOL_CALLS]{name}[CALL_ID]{random.randrange(10**8):09}[ARGS]{json.dumps(arguments)}"
                for name, arguments in calls
            )


def write_python_tag(calls: Sequence[Call], random: Random) -> str:
    end = random.choice(["", "<|eom_id|>", "<|eot_id|>"])
    if random.random() < 0.7:
        shown = "; ".join(json.dumps({"name": name, "parameters": arguments}) for name, arguments in calls)
    else:
        shown = "\n".join(f"{name}.call({_python(arguments)})" for name, arguments in calls)
    return f"<|python_tag|>{shown}{end}"


def write_action(calls: Sequence[Call], random: Random) -> str:
    ((name, arguments), *_) = calls
    thought = random.choice(["", "Thought: I need this.\n"])
    if name == "get_weather" and random.random() < 0.5:
        return f"{thought}Action: {name}\nAction Input: {arguments['city']}"
    return f"{thought}Action: {name}\nAction Input: {json.dumps(arguments, ensure_ascii=False)}"


def write_gemma(calls: Sequence[Call], random: Random) -> str:
    kind = random.randrange(3)
    if kind == 0:
        shown = "\n".join(
            random.choice(["{}", "print({})"]).format(f"{name}({_python(arguments)})") for name, arguments in calls
        )
        return f"```tool_code\n{shown}\n```"
    quote, begin, end = (
        ("<escape>", "<start_function_call>", "<end_function_call>")
        if kind == 1
        else ('<|"|>', "<|tool_call>", "<tool_call|>")
    )

    def value(one: Any) -> str:
        if isinstance(one, str):
            return f"{quote}{one}{quote}"
        return f"[{','.join(map(value, one))}]" if isinstance(one, list) else json.dumps(one)

    return "".join(
        f"{begin}call:{name}{{{','.join(f'{key}:{value(one)}' for key, one in arguments.items())}}}{end}"
        for name, arguments in calls
    )


def write_deepseek(calls: Sequence[Call], random: Random) -> str:
    bar, low = "\uff5c", "\u2581"
    marks = {one: f"<{bar}{one.replace(' ', low)}{bar}>" for one in ("tool calls begin", "tool calls end", "tool sep")}
    marks |= {one: f"<{bar}{one.replace(' ', low)}{bar}>" for one in ("tool call begin", "tool call end")}
    kind = random.randrange(3)
    if kind == 2:
        dsml = f"{bar}DSML{bar}"
        shown = []
        for name, arguments in calls:
            parts = [
                f'<{dsml}parameter name="{key}" string="{json.dumps(isinstance(one, str))}">'
                f"{one if isinstance(one, str) else json.dumps(one)}</{dsml}parameter>\n"
                for key, one in arguments.items()
            ]
            shown.append(f'<{dsml}invoke name="{name}">\n{"".join(parts)}</{dsml}invoke>\n')
        return f"<{dsml}function_calls>\n{''.join(shown)}</{dsml}function_calls>"
    shown = []
    for name, arguments in calls:
        body = json.dumps(arguments, ensure_ascii=False)
        inside = (
            f"function{marks['tool sep']}{name}\n```json\n{body}\n```" if kind else f"{name}{marks['tool sep']}{body}"
        )
        shown.append(f"{marks['tool call begin']}{inside}{marks['tool call end']}")
    return marks["tool calls begin"] + ("\n" if kind else "").join(shown) + marks["tool calls end"]


def write_bare_json(calls: Sequence[Call], random: Random) -> str:
    keys = random.choice([("name", "arguments"), ("name", "parameters"), ("tool_name", "arguments"), ("tool", "args")])
    listed = [{keys[0]: name, keys[1]: arguments} for name, arguments in calls]
    if random.random() < 0.2:
        whole: Any = {"tool_calls": [{"type": "function", "function": one} for one in listed]}
    else:
        whole = listed if len(listed) > 1 else listed[0]
    return json.dumps(whole, ensure_ascii=False, indent=random.choice([None, None, 2]))


def write_fenced_json(calls: Sequence[Call], random: Random) -> str:
    return f"```{random.choice(['json', 'json', ''])}\n{write_bare_json(calls, random)}\n```"


def write_python(calls: Sequence[Call], random: Random) -> str:
    shown = [f"{name}({_python(arguments)})" for name, arguments in calls]
    match random.randrange(3):
        case 0:
            return f"[{', '.join(shown)}]"
        case 1:
            return "```python\n" + "\n".join(shown) + "\n```"
        case _:
            return "\n".join(shown)


def _python(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


FORMS: dict[str, tuple[Write, tuple[str, ...], str | None]] = {  # the writer, models that write so, and the dialect
    "<tool> JSON": (write_tool, ("unknown-7b", "Qwen2.5-7B-Instruct"), None),
    "<tool> XML": (write_tool_xml, ("unknown-7b", "Meta-Llama-3.1-8B-Instruct"), None),
    "<tool_call>": (write_tool_call, ("Qwen2.5-7B-Instruct", "NousResearch/Hermes-3-Llama-3.1-8B", "qwen3:4b"), None),
    "<function=…>": (write_function, ("Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder:30b"), None),
    "[TOOL_CALLS]": (write_mistral, ("Mistral-Nemo-Instruct-2407", "devstral:24b", "mistral-small3.2"), None),
    "<|python_tag|>": (write_python_tag, ("Meta-Llama-3.1-8B-Instruct", "llama3.2:3b"), None),
    "Action": (write_action, ("unknown-7b",), "react"),
    "Gemma": (write_gemma, ("gemma-3-12b-it", "google/gemma-4-31B-it", "functiongemma-270m-it"), None),
    "DeepSeek": (write_deepseek, ("DeepSeek-V3.1", "deepseek-r1:7b", "DeepSeek-R1-Distill-Llama-8B"), None),
    "fenced JSON": (write_fenced_json, ("unknown-7b", "phi-4"), None),
    "bare JSON": (write_bare_json, ("Llama-3.2-3B-Instruct", "unknown-7b"), None),
    "Python": (write_python, ("unknown-7b", "Llama-4-Scout"), None),
}
WHOLE = frozenset({"fenced JSON", "bare JSON", "Python"})  # they count only as the whole answer


def quote(text: str, random: Random) -> str:
    """Quotes a call, so that it must not run: in code, in prose, in thoughts."""
    line = " ".join(text.split("\n"))
    match random.randrange(15):
        case 0:
            return f"A call looks like `{line.replace('`', ' ')}` in this format."
        case 1:
            return f"The manual has this example:\n\n~~~~text\nA call:\n{text}\n~~~~\n\nIt reads a file."
        case 2:
            return f'The log says: "{line}" and nothing else.'
        case 3:
            return "\n".join(f"> {part}" for part in f"They wrote:\n{text}".split("\n")) + "\n\nThat was wrong."
        case 4:
            return f"You would write {line} and then wait for the result."
        case 5:
            return f"<think>Should I write {text} now? No.</think>\nNo call is needed."
        case 6:
            indented = "\n".join(f"    {part}" for part in text.split("\n"))
            return f"The file holds:\n\n{indented}\n\nNothing more."
        case 7:
            return f"<pre><code>\n{text}\n</code></pre>\nThat is all."
        case 8:
            return f"<!-- {text} -->\nNothing to do."
        case 9:
            return f"Here is an example:\n\n{text}\n\nNever do it without need."
        case 10:
            inside = "\n".join(f"     {part}" for part in text.replace("```", "~~~").split("\n"))
            return f"1. First, a call:\n     ```text\n{inside}\n     and more\n     ```\n2. Then wait."
        case 11:
            return f"| form | meaning |\n|---|---|\n| {line} | a call |"
        case 13:
            return f"The program:\n// {line}\nThat is a comment."
        case 12:
            return f"Do not write {line}\nIt is wrong."
        case _:
            return f"The format (such as “{line}”) is documented."


def build_corpus(seed: int = 39) -> list[Answer]:
    random = Random(seed)
    answers: list[Answer] = []
    names = list(FORMS)
    while len(answers) < SIZE:
        form = names[len(answers) % len(names)]
        write, models, dialect = FORMS[form]
        calls = [make_call(random) for _ in range(random.choice([1, 1, 1, 2, 3]) if form != "Action" else 1)]
        text, model = write(calls, random), random.choice(models)
        kind = random.random()
        if kind < 0.65:
            before = "" if form in WHOLE else random.choice(BEFORE)
            answers.append(Answer(form, model, before + text + random.choice(ENDS), tuple(calls), 0, dialect))
        elif kind < 0.8 and form not in WHOLE:
            before = quote(write([make_call(random)], random), random)
            answers.append(Answer(form, model, f"{before}\n\nSo:\n{text}", tuple(calls), 1, dialect))
        else:
            answers.append(Answer(form, model, quote(text, random), (), len(calls), dialect))
    return answers
