"""Reads calls in the forms that families of models were trained to write, as their chat templates have them.

- `hermes` (Qwen, Hermes, SmolLM, Granite 4): `<tool_call>{"name": …, "arguments": …}</tool_call>`, and the same with
  `<function=name>` and `<parameter=key>` inside.
- `mistral`: `[TOOL_CALLS] [{"name": …}]`, `[TOOL_CALLS]name[ARGS]{…}`.
- `llama`: `<|python_tag|>{"name": …}`, `<|python_tag|>name.call(…)`, `<function=name>{…}</function>`.
- `gemma`: a fence `tool_code` with Python calls, `<start_function_call>call:name{…}<end_function_call>`, and the marks
  of Gemma 4.
- `deepseek`: the marks of V3, R1 and V3.1, and the DSML of V3.2.
- `react`, for any model if it is asked for: `Action: name`, `Action Input: {…}`.

A form is read from its opening on, in a text that is complete. `read_whole` reads an answer that is nothing but JSON or
Python calls; there, every name must be the name of a tool.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from forge.core.spec import ToolSpec
from forge.models.text_calls.xml import Malformed

Tools = Mapping[str, ToolSpec]

LONGEST_CODE = 64 * 1024  # characters of Python calls that are parsed
MOST_NESTED = 50  # values inside each other, in Gemma's own notation

_NAME = r"[A-Za-z_][\w.\-]{0,199}"
_BAR, _GAP = r"[|\uff5c]", r"[\u2581_ ]"  # DeepSeek writes wide bars and low blocks
_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"\s*")


class Written(NamedTuple):
    """A call as a model wrote it: the arguments are JSON text, and `problem` says why it cannot be read."""

    name: str
    arguments: str
    problem: str = ""


class FoundForm(NamedTuple):
    """The calls of one form, and where it ends."""

    calls: list[Written]
    end: int
    is_open: bool = False  # it was cut before its end
    is_last: bool = False  # what follows is the model's own idea of the result


class Form(NamedTuple):
    opening: str  # a pattern
    read: Callable[[str, re.Match[str], Tools], FoundForm | None]  # None: it only looks like the opening of a call
    starts_line: bool = False  # it counts only at the beginning of a line


def dialect_of(model: str) -> str:
    """Returns the dialect of a model's family by its name; "" for families without one."""
    name = model.lower().rpartition("/")[2] if "/" in model else model.lower()
    for dialect, words in _FAMILIES.items():
        if any(word in name for word in words):
            return dialect
    return ""


def read_whole(text: str, tools: Tools, dialect: str) -> list[Written]:
    """Reads an answer that is nothing but calls: JSON or Python calls, also in a fence. [] if it is something else."""
    text = _strip_ends(text)
    fenced = _FENCED.fullmatch(text)
    inside = fenced[2].strip() if fenced else text
    found = _read_bare_json(inside)
    if not found and len(inside) <= LONGEST_CODE:
        found = _read_python(inside, tools, is_code=bool(fenced) and dialect == "gemma")
    if not found and fenced:
        found = _read_only_forms(inside, tools, dialect)
    return found if all(one.name in tools and not one.problem for one in found) else []


def may_be_whole(text: str, names: Sequence[str]) -> bool | None:
    """Returns whether an answer that begins with the text may be nothing but calls; None: more of it is needed."""
    text = text.lstrip()
    if not text:
        return None
    if (fence := _FENCE_LINE.match(text)) is not None:
        info = fence[2].strip().lower()
        inside = text[fence.end() :].lstrip()
        return info in _INFOS and (inside.startswith("<") or _may_begin_calls(inside, names))
    return None if _HALF_FENCE.fullmatch(text) else _may_begin_calls(text, names)


def _may_begin_calls(text: str, names: Sequence[str]) -> bool | None:
    if not text:
        return None
    if text[0] in "[{":
        key = _FIRST_KEY.match(text)
        if key is not None:
            return key[1] in _CALL_KEYS
        return (
            None if len(text) < 200 and _HALF_KEY.fullmatch(text) else text[0] == "[" and _may_be_code(text[1:], names)
        )
    return _may_be_code(text, names)


def _may_be_code(text: str, names: Sequence[str]) -> bool | None:
    word = _CODE.match(text)
    if word is None:
        return None if not text.strip() else False
    if word.end() == len(text):  # the name may not be complete
        return None if len(text) < 200 else False
    return text[word.end()] == "(" and (word[1].rpartition(".")[2] in names or word[1] == "print")


def _strip_ends(text: str) -> str:
    """Removes the marks of a turn's end, which some servers leave in the text."""
    return _ENDS.sub("", text).strip()


# --- JSON


def _read_bare_json(text: str) -> list[Written]:
    if not text.startswith(("{", "[")):
        return []
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return _read_json_lines(text)
    return _calls_of(value)


def _read_json_lines(text: str) -> list[Written]:
    """Reads several objects one after another, with `;` or nothing between them."""
    found: list[Written] = []
    at = 0
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        calls = _calls_of(value)
        if not calls:
            return []
        found += calls
        at = _skip(text, at, ";,")
    return found


def _calls_of(value: Any) -> list[Written]:
    """Returns the calls of a JSON value; [] if any part of it is no call."""
    if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list) and len(value) == 1:
        value = value["tool_calls"]
    many = value if isinstance(value, list) else [value]
    calls = [_call_of(one) for one in many]
    return [one for one in calls if one is not None] if calls and None not in calls else []


def _call_of(value: Any) -> Written | None:
    if not isinstance(value, Mapping):
        return None
    function = value.get("function")
    if isinstance(function, Mapping) and not value.keys() - {"function", "type", "id"}:
        return _call_of(function)
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), "")
    arguments: Any = next((value[key] for key in _ARGUMENT_KEYS if key in value), None)
    if not name or value.keys() - {*_NAME_KEYS, *_ARGUMENT_KEYS, "id", "type", "server_name"}:
        return None
    if value.get("server_name", "local") != "local":
        return None
    if isinstance(arguments, str):
        return Written(name.strip(), arguments or "{}")
    if arguments is None or isinstance(arguments, Mapping):
        return Written(name.strip(), json.dumps(arguments or {}, ensure_ascii=False))
    return None


def _read_object(text: str, at: int) -> tuple[Any, int] | None:
    """Reads a JSON value at a place; None if it is not valid or not complete."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return value, end


def _read_odd_ending(text: str, at: int) -> tuple[Any, int] | None:
    """Reads `[{…}}`, a list of one whole object that small models close with the wrong brackets."""
    if text[at : at + 1] != "[" or (read := _read_object(text, at + 1)) is None:
        return None
    after = text[read[1] :].strip()
    return ([read[0]], len(text)) if after and not after.strip("]}") else None


# --- Python


def _read_python(text: str, tools: Tools, *, is_code: bool) -> list[Written]:
    """Reads calls in Python: `f(a=1)`, a list of them, several lines of them. [] if anything else is there."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[Written] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Expr | ast.Assign if is_code else ast.Expr):
            return []
        value = statement.value
        many = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        calls = [_python_call(one, tools) for one in many]
        if not calls or None in calls:
            return []
        found += [one for one in calls if one is not None]
    return found


def _python_call(node: ast.expr, tools: Tools) -> Written | None:
    if not isinstance(node, ast.Call):
        return None
    name = _dotted(node.func)
    if name == "print" and len(node.args) == 1 and not node.keywords and name not in tools:
        return _python_call(node.args[0], tools)
    if name not in tools:
        name = name.removesuffix(".call").rpartition(".")[2]
    spec = tools.get(name)
    if spec is None:
        return None
    places = list(spec.parameters.get("properties") or ())
    if len(node.args) > len(places) or any(one.arg is None for one in node.keywords):
        return None
    arguments: dict[str, Any] = {}
    try:
        for key, value in [
            *zip(places, node.args, strict=False),
            *((str(one.arg), one.value) for one in node.keywords),
        ]:
            if key in arguments:
                return None
            arguments[key] = ast.literal_eval(value)
        return Written(name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


# --- the forms of the families


def _read_tool_call(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """`<tool_call>{…}</tool_call>`, or with `<function=name>` inside."""
    at = _skip(text, opening.end())
    if (function := _FUNCTION.match(text, at)) is not None:
        found = _read_function(text, function, tools)
        if found is None:
            return None
        close = re.compile(r"\s*</tool_call>").match(text, found.end)
        return found._replace(end=close.end() if close else found.end)
    if text[at : at + 1] not in ("{", "["):
        return None
    return _read_json_until(text, at, "</tool_call>")


def _read_json_until(text: str, at: int, closing: str) -> FoundForm:
    """Reads JSON calls up to a closing mark. The mark may be missing where the answer ends."""
    start, calls = at, list[Written]()
    while (read := _read_object(text, at)) is not None:
        found = _calls_of(read[0])
        if not found:
            break
        calls += found
        at = _skip(text, read[1], ",;")
        if text.startswith(closing, at):
            return FoundForm(calls, at + len(closing))
        if at == len(text):
            return FoundForm(calls, at)
    end = text.rfind(
        closing, at
    )  # the mark may stand in a text of JSON that is broken: up to the last one, nothing runs
    if end < 0:
        return FoundForm([*calls, Written("", text[at:], CUT)], len(text), is_open=True)
    return FoundForm([Written("", text[start:end], "it is not valid JSON")], end + len(closing))


def _read_function(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """`<function=name>{…}</function>`, or `<parameter=key>value</parameter>` inside."""
    name, at = opening[1], _skip(text, opening.end())
    if text.startswith("{", at):
        read = _read_object(text, at)
        if read is not None and isinstance(read[0], Mapping):
            end = _skip(text, read[1])
            is_closed = text.startswith("</function>", end)
            if is_closed or end == len(text):
                return FoundForm([Written(name, text[at : read[1]])], end + len("</function>") * is_closed)
        end = text.rfind("</function>", at)
        if end < 0:
            return FoundForm([Written(name, text[at:], CUT)], len(text), is_open=True)
        return FoundForm([Written(name, text[at:end], "its arguments are not valid JSON")], end + len("</function>"))
    arguments: dict[str, Any] = {}
    properties = tools[name].parameters.get("properties") or {} if name in tools else {}
    while (parameter := _PARAMETER.match(text, at)) is not None:
        end = text.find("</parameter>", parameter.end())
        if end < 0:
            return FoundForm([Written(name, text[opening.start() :], CUT)], len(text), is_open=True)
        value = text[parameter.end() : end].removeprefix("\n").removesuffix("\n")
        arguments[parameter[1]] = _typed(value, properties.get(parameter[1]))
        at = _skip(text, end + len("</parameter>"))
    if text.startswith("</function>", at):
        return FoundForm([Written(name, json.dumps(arguments, ensure_ascii=False))], at + len("</function>"))
    if at == len(text) and arguments:
        return FoundForm([Written(name, json.dumps(arguments, ensure_ascii=False))], at)
    if at == len(text):
        return FoundForm([Written(name, "", CUT)], len(text), is_open=True)
    return None


def _typed(value: str, schema: Any) -> Any:
    """Reads a parameter's text as JSON, unless the schema wants text."""
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    branches = schema.get("anyOf", ()) if isinstance(schema, Mapping) else ()
    known = {kinds} if isinstance(kinds, str) else {*(kinds or ()), *(one.get("type") for one in branches)}
    if not known or "string" in known:
        return value
    try:
        return json.loads(value.strip().lower() if value.strip() in ("True", "False", "None") else value)
    except (ValueError, RecursionError):
        return value


def _read_mistral(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """`[TOOL_CALLS] [{…}, {…}]`, or `[TOOL_CALLS]name[ARGS]{…}`, also several of them."""
    at, calls = _skip(text, opening.end()), list[Written]()
    if text[at : at + 1] in ("[", "{"):
        read = _read_object(text, at) or _read_odd_ending(text, at)
        found = _calls_of(read[0]) if read is not None else []
        if read is None:
            return FoundForm([Written("", text[at:], CUT)], len(text), is_open=True)
        return FoundForm(found, read[1]) if found else None
    while (named := _MISTRAL_NAME.match(text, at)) is not None:
        start = named.end()
        read = _read_object(text, start)
        if read is None or not isinstance(read[0], Mapping):
            return FoundForm([*calls, Written(named[1], text[start:], CUT)], len(text), is_open=True)
        calls.append(Written(named[1], text[start : read[1]]))
        at = read[1]
        again = re.compile(r"\s*\[TOOL_CALLS\]\s*").match(text, at)
        at = again.end() if again else _skip(text, at)
        if again is None and _MISTRAL_NAME.match(text, at) is None:
            return FoundForm(calls, read[1])
    return FoundForm(calls, at) if calls else None


def _read_python_tag(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """`<|python_tag|>{"name": …, "parameters": …}`, several with `;`; or Python calls up to the end of the message."""
    at, calls = _skip(text, opening.end()), list[Written]()
    mark = _MESSAGE_END.search(text, at)
    end = mark.start() if mark else len(text)
    if text[at : at + 1] in ("{", "["):
        while text[at : at + 1] in ("{", "[") and (read := _read_object(text, at)) is not None:
            found = _calls_of(read[0])
            if not found:
                return None
            calls += found
            after = _skip(text, read[1], ";,")
            at = after if text[after : after + 1] in ("{", "[") else read[1]
        if calls:
            close = re.compile(r"\s*<\|(?:eom_id|eot_id|end_of_text)\|>").match(text, at)
            return FoundForm(calls, close.end() if close else at)
        return FoundForm(
            [Written("", text[at:end], "it is not valid JSON" if mark else CUT)], end, is_open=mark is None
        )
    inside = text[at:end].strip()
    calls = _read_python(inside, tools, is_code=True) if len(inside) <= LONGEST_CODE else []
    return FoundForm(calls, mark.end() if mark else end) if calls else None


def _read_tool_code(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """A fence with the word `tool_code` and Python calls in it."""
    end = _CODE_END.search(text, opening.end())
    inside = text[opening.end() : end.start() if end else len(text)].strip()
    calls = _read_python(inside, tools, is_code=True) if len(inside) <= LONGEST_CODE else []
    return FoundForm(calls, end.end() if end else len(text)) if calls else None


def _read_gemma(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """`call:name{key:<escape>text<escape>,number:1}`, between Gemma's marks."""
    begin = _GEMMA_CALL.match(text, opening.end())
    if begin is None:
        return None
    quote = '<|"|>' if opening[0].startswith("<|") else "<escape>"
    try:
        value, end = _read_gemma_value(text, begin.end() - 1, quote, 0)
    except (Malformed, RecursionError):
        marks = list(re.compile(r"<end_function_call>|<tool_call\|>").finditer(text, begin.end()))
        if not marks:
            return FoundForm([Written(begin[1], text[opening.end() :], CUT)], len(text), is_open=True)
        problem = "its arguments cannot be read"
        return FoundForm([Written(begin[1], text[opening.end() : marks[-1].start()], problem)], marks[-1].end())
    close = re.compile(r"\s*(?:<end_function_call>|<tool_call\|>)").match(text, end)
    return FoundForm([Written(begin[1], json.dumps(value, ensure_ascii=False))], close.end() if close else end)


def _read_gemma_value(text: str, at: int, quote: str, depth: int) -> tuple[Any, int]:
    at = _skip(text, at)
    if depth > MOST_NESTED:
        raise Malformed("the arguments are nested too deeply", "")
    for mark in (quote, '"'):
        if text.startswith(mark, at):
            end = text.find(mark, at + len(mark))
            if end < 0:
                raise Malformed("a text is not closed", "")
            return text[at + len(mark) : end], end + len(mark)
    if text.startswith("{", at):
        members: dict[str, Any] = {}
        at = _skip(text, at + 1)
        while not text.startswith("}", at):
            key = _GEMMA_KEY.match(text, at)
            if key is None:
                raise Malformed("a name is missing", "")
            members[key[1] or key[2]], at = _read_gemma_value(text, key.end(), quote, depth + 1)
            at = _skip(text, at, ",")
        return members, at + 1
    if text.startswith("[", at):
        items: list[Any] = []
        at = _skip(text, at + 1)
        while not text.startswith("]", at):
            item, at = _read_gemma_value(text, at, quote, depth + 1)
            items.append(item)
            at = _skip(text, at, ",")
        return items, at + 1
    plain = _GEMMA_PLAIN.match(text, at)
    if plain is None:
        raise Malformed("a value is missing", "")
    try:
        return json.loads(plain[0].strip().lower()), plain.end()
    except ValueError:
        return plain[0].strip(), plain.end()


def _read_deepseek(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """The name, a mark and JSON; or `function`, a mark, the name and a fence of JSON. Each call has its own marks."""
    calls: list[Written] = []
    at = opening.start() if _DEEPSEEK_ONE.fullmatch(opening[0]) else opening.end()
    while (begin := _DEEPSEEK_CALL.match(text, at)) is not None:
        name = (begin[2] or begin[1]).strip()
        start = begin.end()
        read = _read_object(text, start)
        if read is None or not isinstance(read[0], Mapping):
            return FoundForm([*calls, Written(name, text[start:], CUT)], len(text), is_open=True)
        calls.append(Written(name, text[start : read[1]]))
        end = _DEEPSEEK_END.match(text, read[1])
        at = end.end() if end else read[1]
    if not calls:
        return None
    close = _DEEPSEEK_CLOSE.match(text, at)
    return FoundForm(calls, close.end() if close else at)


def _read_dsml(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """DSML: `invoke name="…"`, with a `parameter` for each argument."""
    close = _DSML_CLOSE.search(text, opening.end())
    inside = text[opening.end() : close.start() if close else len(text)]
    calls = []
    for invoke in _DSML_INVOKE.finditer(inside):
        arguments: dict[str, Any] = {}
        for one in _DSML_PARAMETER.finditer(invoke[2]):
            read = None if one[2] == "true" else _read_object(one[3], _skip(one[3], 0))
            arguments[one[1]] = read[0] if read is not None else one[3]
        calls.append(Written(invoke[1], json.dumps(arguments, ensure_ascii=False)))
    if close is None:
        return FoundForm([*calls, Written("", inside, CUT)], len(text), is_open=True)
    return FoundForm(calls, close.end()) if calls else None


def _read_action(text: str, opening: re.Match[str], tools: Tools) -> FoundForm | None:
    """`Action: name`, then `Action Input: {…}`. An observation that the model wrote itself ends the calls."""
    name = opening[1].strip("`*\"' ")
    given = _ACTION_INPUT.match(text, opening.end())
    if given is None:
        return None
    at = given.end()
    fence = re.compile(r"```(?:json)?\s*").match(text, at)
    start = fence.end() if fence else at
    end_line = _OBSERVATION.search(text, at)
    stop = end_line.start() if end_line else len(text)
    if text.startswith("{", start):
        read = _read_object(text, start)
        if read is None or not isinstance(read[0], Mapping):
            return FoundForm([Written(name, text[start:stop], CUT)], stop, is_open=end_line is None)
        end = read[1]
        if fence and (closed := re.compile(r"\s*```").match(text, end)):
            end = closed.end()
        return FoundForm([Written(name, text[start : read[1]])], end, is_last=_is_observed(text, end))
    line = text[at:stop].partition("\n\n")[0].strip().strip("`").strip()
    end = at + len(text[at:stop].partition("\n\n")[0])
    if not line or line.lower() in ("none", "null", "n/a"):
        return FoundForm([Written(name, "{}")], end, is_last=_is_observed(text, end))
    places = list(tools[name].parameters.get("properties") or ()) if name in tools else []
    required = list(tools[name].parameters.get("required") or ()) if name in tools else []
    only = places if len(places) == 1 else required if len(required) == 1 else []
    if not only:
        return FoundForm([Written(name, line, "its Action Input is not a JSON object")], end)
    text_value = line[1:-1] if len(line) > 1 and line[0] == line[-1] and line[0] in "\"'" else line
    call = Written(name, json.dumps({only[0]: text_value}, ensure_ascii=False))
    return FoundForm([call], end, is_last=_is_observed(text, end))


def _is_observed(text: str, at: int) -> bool:
    return re.compile(r"\s*Observation\s*:", re.IGNORECASE).match(text, at) is not None


def _read_only_forms(text: str, tools: Tools, dialect: str) -> list[Written]:
    """Reads a text of nothing but calls of the dialect."""
    calls: list[Written] = []
    at = _skip(text, 0)
    while at < len(text):
        for form in forms_of(dialect):
            opening = re.compile(form.opening).match(text, at)
            found = form.read(text, opening, tools) if opening else None
            if found is not None and not found.is_open:
                calls += found.calls
                at = _skip(text, found.end)
                break
        else:
            return []
    return calls


def forms_of(dialect: str) -> tuple[Form, ...]:
    """Returns the forms of a dialect, which run."""
    return _FORMS.get(dialect, ())


def other_forms(dialect: str) -> tuple[Form, ...]:
    """Returns the forms of the other dialects. They do not run, and nothing in them does."""
    own = forms_of(dialect)
    return tuple(
        dict.fromkeys(one for forms in _FORMS.values() for one in forms if one not in own and not one.starts_line)
    )


def _skip(text: str, at: int, also: str = "") -> int:
    """Skips space, and one of these characters with the space behind it."""
    found = _SPACE.match(text, at)
    at = found.end() if found else at
    if also and text[at : at + 1] and text[at] in also:
        found = _SPACE.match(text, at + 1)
        at = found.end() if found else at + 1
    return at


CUT = "the call was cut before its end, and was not run"

_FAMILIES = {  # the first that fits: a distilled model has the template of its teacher
    "deepseek": ("deepseek",),
    "hermes": ("hermes", "qwen", "qwq", "smollm", "granite-4", "granite4"),
    "mistral": ("mistral", "mixtral", "ministral", "magistral", "codestral", "devstral", "pixtral"),
    "gemma": ("gemma",),
    "llama": ("llama",),
}
DIALECTS = {  # the names that a person may give -> ours
    **{name: name for name in ("hermes", "mistral", "llama", "gemma", "deepseek", "react")},
    "qwen": "hermes",
    "tool": "",
}
_NAME_KEYS = ("name", "tool_name", "tool", "function", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input")
_CALL_KEYS = frozenset({*_NAME_KEYS, *_ARGUMENT_KEYS, "tool_calls", "type", "id", "server_name"})
_INFOS = frozenset({"", "json", "python", "py", "tool_code", "tool_call", "tool", "xml", "javascript", "js"})
_FENCE_LINE = re.compile(r"(```|~~~)([^\n`]*)\n")
_HALF_FENCE = re.compile(r"(?:`{1,3}|~{1,3})[^\n`]{0,60}")
_FENCED = re.compile(r"(?:```|~~~)([^\n`]*)\n([\s\S]*?)\n?[ \t]*(?:```|~~~)")
_FIRST_KEY = re.compile(r'[\[{\s]*"([^"\\\n]{0,60})"')
_HALF_KEY = re.compile(r'[\[{\s]*(?:"[^"\\\n]{0,60})?')
_CODE = re.compile(r"\s*([A-Za-z_][\w.]{0,199})")
_ENDS = re.compile(
    r"(?:<\|(?:eom_id|eot_id|im_end|end|endoftext)\|>|</s>|<end_of_turn>|<\uff5cend\u2581of\u2581sentence\uff5c>|\s)+\Z"
)
_FUNCTION = re.compile(rf"<function=({_NAME})>")
_PARAMETER = re.compile(rf"<parameter=({_NAME})>")
_MISTRAL_NAME = re.compile(rf"({_NAME})(?:\[CALL_ID\][\w-]{{1,64}})?(?:\[ARGS\])?\s*(?=\{{)")
_MESSAGE_END = re.compile(r"<\|(?:eom_id|eot_id|end_of_text)\|>")
_CODE_END = re.compile(r"\n[ \t]*```[ \t]*(?=\n|\Z)")
_GEMMA_CALL = re.compile(rf"\s*call:\s*({_NAME})\s*\{{")
_GEMMA_KEY = re.compile(r'(?:([A-Za-z_][\w.\-]{0,199})|"([^"\n]{1,200})")\s*:')
_GEMMA_PLAIN = re.compile(r"[^,\]}<]{1,400}")
_DEEPSEEK_ONE = re.compile(f"<{_BAR}tool{_GAP}call{_GAP}begin{_BAR}>")
_DEEPSEEK_CALL = re.compile(
    rf"\s*<{_BAR}tool{_GAP}call{_GAP}begin{_BAR}>\s*(?:({_NAME})\s*<{_BAR}tool{_GAP}sep{_BAR}>\s*(?:({_NAME})\s*```(?:json)?\s*)?)"
)
_DEEPSEEK_END = re.compile(rf"\s*(?:```)?\s*<{_BAR}tool{_GAP}call{_GAP}end{_BAR}>")
_DEEPSEEK_CLOSE = re.compile(rf"\s*<{_BAR}tool{_GAP}calls{_GAP}end{_BAR}>")
_DSML_CLOSE = re.compile(rf"</{_BAR}DSML{_BAR}function_calls>")
_DSML_INVOKE = re.compile(rf'<{_BAR}DSML{_BAR}invoke name="({_NAME})">([\s\S]*?)</{_BAR}DSML{_BAR}invoke>')
_DSML_PARAMETER = re.compile(
    rf'<{_BAR}DSML{_BAR}parameter name="([^"]{{1,200}})"(?: string="(true|false)")?>'
    rf"([\s\S]*?)</{_BAR}DSML{_BAR}parameter>"
)
_ACTION_INPUT = re.compile(r"[ \t]*\n[ \t]*(?:\*\*)?Action[ _]Input(?:\*\*)?:(?:\*\*)?[ \t]*\n?[ \t]*", re.IGNORECASE)
_OBSERVATION = re.compile(r"\n[ \t]*(?:Observation|Thought|Final Answer)\s*:", re.IGNORECASE)

_TOOL_CALL = Form("<tool_call>", _read_tool_call)
_FUNCTION_FORM = Form(rf"<function=({_NAME})>", _read_function)
_FORMS: dict[str, tuple[Form, ...]] = {
    "hermes": (_TOOL_CALL, _FUNCTION_FORM),
    "mistral": (Form(r"\[TOOL_CALLS\]", _read_mistral),),
    "llama": (Form(r"<\|python_tag\|>", _read_python_tag), _FUNCTION_FORM),
    "gemma": (
        Form(r"```tool_code[ \t]*\n", _read_tool_code, starts_line=True),
        Form(r"<start_function_call>|<\|tool_call>", _read_gemma),
    ),
    "deepseek": (
        Form(f"<{_BAR}tool{_GAP}calls?{_GAP}begin{_BAR}>", _read_deepseek),
        Form(rf"<{_BAR}DSML{_BAR}function_calls>", _read_dsml),
    ),
    "react": (
        Form(
            rf"(?:\*\*)?Action(?:\*\*)?:(?:\*\*)?[ \t]*([`*\"' ]*{_NAME}[`*\"' ]*)(?=[ \t]*\n)",
            _read_action,
            starts_line=True,
        ),
    ),
}
