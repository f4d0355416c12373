"""Reads a file of cases: Forge's own format, or a dataset of pydantic-evals; YAML or JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.yaml.bounded_yaml import Bounds, Unreadable, bounded_text, bounded_yaml, safe_loader
from forge.evaluation.case import Check, EvalCase, EvalExpect
from forge.evaluation.evaluators import EVALUATORS, read_evaluator

LARGEST = 4 * 1024 * 1024  # bytes
BOUNDS = Bounds(levels=50, aliases=100, values=200_000)

_FILE = ("name", "workspace", "cases", "evaluators", "report_evaluators", "$schema")
_FORGE = ("name", "prompt", "files", "workspace", "script", "expect")
_DATASET = ("name", "inputs", "expected_output", "metadata", "evaluators")
_EXPECT = ("calls", "no_calls", "order", "result", "files", "limits", "reason", "judge")
_LIMITS = ("turns", "calls", "tokens", "cost", "seconds")
_TEXT = ("equals", "contains", "lacks", "matches", "json")


class _Wrong(Exception):
    """The place in the file, the problem, and what to write instead."""

    def __init__(self, place: str, problem: str, advice: str) -> None:
        self.words = f"{place}: {problem}" if place else problem
        self.advice = advice


def read_cases(path: str | os.PathLike[str], *, skip_unsupported: bool = False) -> list[EvalCase]:
    """Reads the cases of a file. Raises `ToolError` that names the case and the key.

    Args:
        path: a YAML or JSON file.
        skip_unsupported: leave out evaluators that Forge does not know; `EvalCase.skipped` names them.

    Example:
        >>> _ = Path("cases.yaml").write_text("cases: [{name: hello, prompt: Say hello.}]")
        >>> [case.name for case in read_cases("cases.yaml")]
        ['hello']
    """
    file = Path(path)
    try:
        document = _load(file)
        _check_keys(document, _FILE, "")
        if document.get("report_evaluators"):
            raise _Wrong("report_evaluators", "Forge has no evaluators of whole reports", "Remove the key.")
        cases = document.get("cases")
        if not isinstance(cases, list) or not cases:
            raise _Wrong("cases", "there are none", "Write cases: [{name: …, prompt: …, expect: …}].")
        shared = _evaluators(document.get("evaluators", []), "evaluators")
        found = [_case(one, number, file.parent, document, shared) for number, one in enumerate(cases, 1)]
        _check_names(found)
        return [_check_supported(case, skip=skip_unsupported) for case in found]
    except _Wrong as error:
        raise ToolError(f"reading the cases of {str(file)!r}: {error.words}", ErrorKind.CONFIG, error.advice) from None
    except Unreadable as error:
        words = f"reading the cases of {str(file)!r}{f', line {error.line}' if error.line else ''}: {error.problem}"
        raise ToolError(words, ErrorKind.CONFIG, error.advice) from None


def _load(file: Path) -> Mapping[str, Any]:
    text = bounded_text(file, LARGEST)
    if file.suffix.lower() == ".json":
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _Wrong("", f"not valid JSON: {str(error)[:200]}", "Fix the file.") from None
    else:
        document = bounded_yaml(text, "", lambda yaml, taken: yaml.load(taken, Loader=safe_loader()), BOUNDS)
    if not isinstance(document, Mapping):
        raise _Wrong("", "it is not an object with the key `cases`", "Write cases: [{name: …, prompt: …}].")
    return document


def _case(value: Any, number: int, folder: Path, document: Mapping[str, Any], shared: list[Check]) -> EvalCase:
    place = f"cases[{number}]"
    if not isinstance(value, Mapping):
        raise _Wrong(place, f"{brief(value)} is not a case", "Write {name: …, prompt: …, expect: …}.")
    name = value.get("name") or f"case {number}"
    if not isinstance(name, str):
        raise _Wrong(f"{place}.name", f"{brief(name)} is not a text", "Put it in quotes.")
    place = f"case {name!r}"
    if "inputs" in value:
        _check_keys(value, _DATASET, place)
        inputs = value["inputs"]
        evaluators = [*_evaluators(value.get("evaluators") or [], place), *shared]
        prompt = inputs if isinstance(inputs, str) else json.dumps(inputs, ensure_ascii=False, default=str)
        expected = value.get("expected_output")
        return EvalCase(name=name, prompt=prompt, inputs=inputs, expected_output=expected, evaluators=evaluators)
    _check_keys(value, _FORGE, place)
    task = value.get("prompt")
    if not isinstance(task, str) or not task.strip():
        raise _Wrong(f"{place}, prompt", "it is missing or no text", "Write the task of the agent.")
    script = value.get("script")
    if script is not None and not isinstance(script, list):
        raise _Wrong(f"{place}, script", "it is not a list of turns", "Write [{call: NAME, arguments: {…}}, TEXT].")
    return EvalCase(
        name=name,
        prompt=task,
        files=_files(value.get("files", {}), place),
        workspace=_workspace(value.get("workspace", document.get("workspace")), folder, place),
        script=script,
        expect=_expect(value.get("expect", {}), place),
        evaluators=shared,
    )


def _files(value: Any, place: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _Wrong(f"{place}, files", f"{brief(value)} is not an object", "Write files: {notes.txt: TEXT}.")
    for name, text in value.items():
        _check_inside(name, f"{place}, files")
        if not isinstance(text, str):
            raise _Wrong(f"{place}, files.{name}", f"{brief(text)} is not a text", "Put it in quotes.")
    return dict(value)


def _check_inside(name: Any, place: str) -> None:
    path = PurePosixPath(name) if isinstance(name, str) else PurePosixPath("/")
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise _Wrong(place, f"{brief(name)} is not a path in the workspace", "Write a relative path without '..'.")


def _workspace(value: Any, folder: Path, place: str) -> Path | None:
    if value is None:
        return None
    path = folder / value if isinstance(value, str) else None
    if path is None or not path.is_dir():
        raise _Wrong(f"{place}, workspace", f"{brief(value)} is no directory", "Name one, relative to the file.")
    return path


def _expect(value: Any, place: str) -> EvalExpect:
    place = f"{place}, expect"
    if not isinstance(value, Mapping):
        raise _Wrong(place, f"{brief(value)} is not an object", "Write expect: {result: {contains: …}}.")
    _check_keys(value, _EXPECT, place)
    for key in ("calls", "no_calls", "order"):
        entries = value.get(key, [])
        if not isinstance(entries, list):
            raise _Wrong(f"{place}.{key}", f"{brief(entries)} is not a list", "Write [NAME, {NAME: {key: value}}].")
        for entry in entries:
            _check_call(entry, f"{place}.{key}")
    limits = value.get("limits", {})
    if not isinstance(limits, Mapping):
        raise _Wrong(f"{place}.limits", f"{brief(limits)} is not an object", "Write limits: {turns: 5}.")
    _check_keys(limits, _LIMITS, f"{place}.limits")
    for key, most in limits.items():
        if isinstance(most, bool) or not isinstance(most, int | float) or most < 0:
            raise _Wrong(f"{place}.limits.{key}", f"{brief(most)} is not a number", "Write a number from 0 on.")
    files = value.get("files", {})
    if not isinstance(files, Mapping):
        raise _Wrong(f"{place}.files", f"{brief(files)} is not an object", "Write files: {out.txt: {contains: …}}.")
    for name, expected in files.items():
        _check_inside(name, f"{place}.files")
        _check_text(expected, f"{place}.files.{name}")
    if "result" in value:
        _check_text(value["result"], f"{place}.result")
    for key in ("reason", "judge"):
        if not isinstance(value.get(key, ""), str):
            raise _Wrong(f"{place}.{key}", f"{brief(value[key])} is not a text", "Put it in quotes.")
    return EvalExpect(**value)


def _check_call(entry: Any, place: str) -> None:
    if isinstance(entry, str) and entry:
        return
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((name, arguments),) = entry.items()
        if isinstance(name, str) and isinstance(arguments, Mapping | None):
            return
    raise _Wrong(place, f"{brief(entry)} is not a call", "Write NAME, or {NAME: {argument: value}}.")


def _check_text(expected: Any, place: str) -> None:
    if expected is None or isinstance(expected, str):
        return
    if not isinstance(expected, Mapping) or not expected:
        raise _Wrong(place, f"{brief(expected)} is no expectation", f"Write a text, or one of {', '.join(_TEXT)}.")
    _check_keys(expected, _TEXT, place)
    for key in ("equals", "contains", "lacks", "matches"):
        values = expected.get(key, "")
        several = values if isinstance(values, list) and key in ("contains", "lacks") else [values]
        if not all(isinstance(one, str) for one in several):
            raise _Wrong(f"{place}.{key}", f"{brief(values)} is not a text", "Put it in quotes.")
    if "matches" in expected:
        try:
            re.compile(expected["matches"])
        except re.error as error:
            raise _Wrong(f"{place}.matches", f"not a regular expression: {error}", "Fix the pattern.") from None


def _evaluators(value: Any, place: str) -> list[Check]:
    if not isinstance(value, list):
        raise _Wrong(f"{place}, evaluators", f"{brief(value)} is not a list", "Write [EqualsExpected, {Contains: …}].")
    try:
        return [read_evaluator(one) for one in value]
    except ValueError as error:
        raise _Wrong(f"{place}, evaluators", str(error), "See https://ai.pydantic.dev/evals/.") from None


def _check_supported(case: EvalCase, *, skip: bool) -> EvalCase:
    unknown = [str(one["name"]) for one in case.evaluators if one["name"] not in EVALUATORS]
    if not unknown:
        return case
    if not skip:
        words = f"Forge cannot evaluate {', '.join(sorted(set(unknown)))}; it knows {', '.join(EVALUATORS)}"
        advice = "Remove it, or leave it out with --skip-unsupported (read_cases(skip_unsupported=True))."
        raise _Wrong(f"case {case.name!r}, evaluators", words, advice)
    known = [one for one in case.evaluators if one["name"] in EVALUATORS]
    return replace(case, evaluators=known, skipped=tuple(unknown))


def _check_names(cases: Iterable[EvalCase]) -> None:
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise _Wrong(f"case {case.name!r}", "two cases have this name", "Give each case its own name.")
        seen.add(case.name)


def _check_keys(value: Mapping[Any, Any], known: tuple[str, ...], place: str) -> None:
    for key in value:
        if key not in known:
            _raise_unknown(str(key), known, place)


def _raise_unknown(key: str, known: tuple[str, ...], place: str) -> NoReturn:
    hint = near(key, known, 1)
    advice = f'Did you mean "{hint[0]}"?' if hint else f"Use one of {', '.join(known)}."
    raise _Wrong(place, f"unknown key {brief(key)}", advice)
