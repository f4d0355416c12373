"""Reads a script for the scripted model: YAML or JSON, a list of turns.

    - Just a text.
    - {reasoning: The file may say., text: Let me look., call: file_read, arguments: {path: a.txt}}
    - calls: [{call: file_read, arguments: {path: a.txt}, id: first}, datetime_now]
    - error: {message: overloaded, kind: system_error, suggestion: Wait., passing: true, status: 529}
    - title: The title of the session; this is not a turn.

`arguments` may be a text, which is sent unchanged; use it to send broken JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta
from forge.core.messages import ToolCall
from forge.core.plain_values import brief
from forge.core.provider import ProviderError
from forge.core.yaml.bounded_yaml import Bounds, Unreadable, bounded_text, bounded_yaml, safe_loader

LARGEST = 1024 * 1024  # bytes
BOUNDS = Bounds(levels=50, aliases=0, values=100_000)

ReplyPart = str | ToolCall | BaseException | ReasoningDelta

_TURN = ("reasoning", "text", "call", "arguments", "id", "calls", "error")
_CALL = ("call", "arguments", "id")
_ERROR = ("message", "kind", "suggestion", "passing", "status")
_BOOLEAN = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_FORMS = "A turn is a text, {call: NAME, arguments: {…}}, {text: …, calls: […]} or {error: …}."


class _Wrong(Exception):
    """The location of a problem in the file, the problem, and what to write instead."""

    def __init__(self, location: str, problem: str, advice: str) -> None:
        self.location = location
        self.problem = problem
        self.advice = advice


class _LocatedTurn(NamedTuple):
    location: str
    value: Any


class Script(NamedTuple):
    """The turns of a script, and the title that its model gives a session."""

    turns: list[list[ReplyPart]]
    title: str


def read_script(path: Path) -> Script:
    """Returns the script in a file. Raises `ProviderError` that names the line or the turn."""
    try:
        text = bounded_text(path, LARGEST)
        turns = list(_from_json(text)) if path.suffix.lower() == ".json" else _from_yaml(text)
        titles = [turn for turn in turns if isinstance(turn.value, dict) and turn.value.keys() == {"title"}]
        turns = [turn for turn in turns if turn not in titles]
        if not turns:
            raise _Wrong("", "it has no turns", _FORMS)
        return Script([_parts(turn) for turn in turns], _title(titles))
    except _Wrong as error:
        where = f", {error.location}" if error.location else ""
        raise _script_error(path, where, error) from None
    except Unreadable as error:
        raise _script_error(path, f", line {error.line}" if error.line else "", error) from None


def _title(titles: list[_LocatedTurn]) -> str:
    for location, value in titles:
        if not isinstance(value["title"], str):
            raise _Wrong(location, f"title is {brief(value['title'])}", "Write a text, in quotes.")
    return str(titles[-1].value["title"]) if titles else ""


def _script_error(path: Path, where: str, error: _Wrong | Unreadable) -> ProviderError:
    words = f"reading the script {str(path)[:200]!r}{where}: {error.problem}"
    return ProviderError(words, ErrorKind.CONFIG, error.advice)


def _from_json(text: str) -> Iterator[_LocatedTurn]:
    try:
        turns = json.loads(text)
    except json.JSONDecodeError as error:
        raise _Wrong(f"line {error.lineno}", f"not valid JSON: {error.msg}", "Fix the file.") from None
    except (ValueError, RecursionError) as error:
        raise _Wrong("", f"not valid JSON: {str(error)[:200]}", "Fix the file.") from None
    if not isinstance(turns, list):
        raise _Wrong("", "it is not a list of turns", "Write a list of turns: [ … ].")
    for number, value in enumerate(turns, 1):
        yield _LocatedTurn(f"turn {number}", value)


def _from_yaml(text: str) -> list[_LocatedTurn]:
    try:
        turns: list[_LocatedTurn] = bounded_yaml(text, "", _turns, BOUNDS)
        return turns
    except Unreadable as error:
        if not error.is_syntax:
            raise
        location = f"line {error.line}" if error.line else ""
        raise _Wrong(
            location, error.problem, "Put texts that contain : # * { [ or similar characters in quotes."
        ) from None


def _turns(yaml: Any, text: str) -> list[_LocatedTurn]:
    class Loader(safe_loader()):  # type: ignore[misc]
        """Reads dates, and `yes`, `no`, `on` and `off`, as texts."""

        yaml_implicit_resolvers = {  # noqa: RUF012
            letter: [(tag, pattern) for tag, pattern in known if not tag.endswith((":timestamp", ":bool"))]
            for letter, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))
    node = yaml.compose(text, Loader=Loader)
    if not isinstance(node, yaml.SequenceNode):
        raise _Wrong("", "it is not a list of turns", "Begin every turn with a dash: - text, or - {call: NAME}.")
    return [
        _LocatedTurn(f"line {turn.start_mark.line + 1}, turn {number}", Loader("").construct_document(turn))
        for number, turn in enumerate(node.value, 1)
    ]


def _parts(turn: _LocatedTurn) -> list[ReplyPart]:
    location, value = turn
    if isinstance(value, str):
        return [value]
    if not isinstance(value, dict):
        raise _Wrong(
            location,
            f"{brief(value)} is not a turn",
            f"{_FORMS} Put a text in quotes if YAML would read it as another type.",
        )
    _check_keys(value, _TURN, location)
    parts: list[ReplyPart] = []
    for key in ("reasoning", "text"):
        text = value.get(key, "")
        if not isinstance(text, str):
            advice = "Write a text, in quotes if YAML would read it as another type."
            raise _Wrong(location, f"{key} is {brief(text)}", advice)
        if key in value:
            parts.append(text if key == "text" else ReasoningDelta(text))
    calls = value.get("calls", [])
    if not isinstance(calls, list):
        raise _Wrong(location, f"calls is {brief(calls)}", "Write a list: calls: [{call: NAME, arguments: {…}}].")
    if "call" in value:
        calls = [{key: value[key] for key in _CALL if key in value}, *calls]
    elif "arguments" in value or "id" in value:
        raise _Wrong(location, "arguments or id without a call", "Write {call: NAME, arguments: {…}}.")
    parts += [_call(call, location) for call in calls]
    if "error" in value:
        parts.append(_error(value["error"], location))
    if not parts:
        raise _Wrong(location, "the turn is empty", _FORMS)
    return parts


def _call(value: Any, location: str) -> ToolCall:
    if isinstance(value, str):
        value = {"call": value}
    if not isinstance(value, dict):
        raise _Wrong(location, f"{brief(value)} is not a call", "Write {call: NAME, arguments: {…}}.")
    _check_keys(value, _CALL, location)
    name, arguments, id = value.get("call"), value.get("arguments"), value.get("id")
    if not isinstance(name, str) or not name:
        raise _Wrong(location, f"the call's name is {brief(name)}", "Write call: NAME, the name of a tool.")
    if id is not None and (not isinstance(id, str) or not id):
        raise _Wrong(location, f"the call's id is {brief(id)}", "Write a text in quotes, or remove the id.")
    if not isinstance(arguments, dict | str | None):
        raise _Wrong(location, f"arguments is {brief(arguments)}", "Write an object: arguments: {path: a.txt}.")
    try:
        sent = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _Wrong(
            location, f"arguments cannot be written as JSON: {str(error)[:200]}", "Use plain values."
        ) from None
    return ToolCall(name, sent, id=id) if id else ToolCall(name, sent)


def _error(value: Any, location: str) -> ProviderError:
    value = {"message": value} if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise _Wrong(location, f"error is {brief(value)}", "Write error: TEXT, or error: {message: TEXT, kind: …}.")
    _check_keys(value, _ERROR, location)
    message, suggestion = value.get("message", ""), value.get("suggestion", "")
    if not isinstance(message, str) or not message or not isinstance(suggestion, str):
        raise _Wrong(location, "the error's message or suggestion is not a string", "Write error: {message: TEXT}.")
    kind, status = value.get("kind", ErrorKind.SYSTEM.value), value.get("status", 0)
    if kind not in [known.value for known in ErrorKind]:
        raise _Wrong(location, f"there is no error kind {brief(kind)}", f"Use one of {', '.join(ErrorKind)}.")
    if not isinstance(status, int):
        raise _Wrong(location, f"status is {brief(status)}", "Write an HTTP status, such as 503.")
    return ProviderError(message, kind, suggestion, passing=value.get("passing") is True, status=status)


def _check_keys(value: dict[Any, Any], known: tuple[str, ...], location: str) -> None:
    for key in value:
        if key not in known:
            hint = near(str(key), known, 1)
            advice = f'Did you mean "{hint[0]}"?' if hint else f"Use one of {', '.join(known)}."
            raise _Wrong(location, f"unknown key {brief(key)}", advice)
