"""Cases: a prompt, the files that it begins with, and what is expected of its run.

They are read from Forge's own format or from a dataset of pydantic-evals, with the evaluators that Forge knows.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.yaml import Bounds, Unreadable, bounded_text, bounded_yaml, safe_loader

if TYPE_CHECKING:
    from forge.durable.client import Runs

Check = Mapping[str, Any]
"""One evaluator: its name and its arguments, such as {"name": "Contains", "value": "milk"}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalExpect:
    """Expectations on a run. What is not given is not checked.

    Args:
        calls: calls that must be made, each with the arguments that matter.
        no_calls: calls that must not be made.
        order: calls that must be made in this order; others may come between them.
        result: how the answer must be: `equals`, `contains`, `lacks`, `matches`, `json`.
        files: files after the run: their text, `{contains: …}` and the like, or None for a file that must not exist.
        limits: the most `turns`, `calls`, `tokens`, `cost` and `seconds` that the run may take.
        reason: how the run must end, such as "answer" or "question".
        judge: what another model must find right about the answer.

    Example:
        >>> EvalExpect(calls=[{"file_read": {"path": "a.txt"}}], result={"contains": "milk"}).reason
        ''
    """

    calls: Sequence[Any] = ()
    no_calls: Sequence[Any] = ()
    order: Sequence[Any] = ()
    result: Any = None
    files: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    judge: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCase:
    """One case of an evaluation. `read_cases` reads them from a file.

    Args:
        name: its name in the table; each case has its own.
        prompt: the task.
        files: the files of its workspace, by path.
        workspace: a directory that is copied to its workspace first.
        script: turns of a scripted model, which answers where no other model is given.
        expect: what is expected of the run.
        evaluators: evaluators of pydantic-evals, as data.
        inputs: the inputs as they are in a dataset of pydantic-evals.
        expected_output: the output that the evaluator EqualsExpected compares.
        skipped: the names of evaluators that Forge does not know, and that were left out on request.

    Example:
        >>> EvalCase(name="greeting", prompt="Say hello.", expect=EvalExpect(result={"contains": "hello"})).name
        'greeting'
    """

    name: str
    prompt: str
    files: Mapping[str, str] = field(default_factory=dict)
    workspace: Path | None = None
    script: Sequence[Any] | None = None
    expect: EvalExpect = field(default_factory=EvalExpect)
    evaluators: Sequence[Check] = ()
    inputs: Any = None
    expected_output: Any = None
    skipped: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRun:
    """One run of a case.

    Args:
        case: the name of the case.
        time: the number of the run: 1 is the first.
        setup: the name of the configuration.
        failures: what was not as expected; empty where the case passed.
        reason: how the run ended.
        text: the answer.
        turns: how often the model was asked.
        calls: how many tools were called.
        tokens: input and output tokens.
        cost: the cost; None where the price is not known.
        seconds: the time of the run.

    Example:
        >>> EvalRun(case="greeting", failures=("the run ended in an error",)).passed
        False
    """

    case: str
    time: int = 1
    setup: str = ""
    failures: Sequence[str] = ()
    reason: str = ""
    text: str = ""
    turns: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Returns whether everything was as expected."""
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        """Returns the run as JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {**values, "failures": list(self.failures), "passed": self.passed}


# Reads a file of cases: Forge's own format, or a dataset of pydantic-evals; YAML or JSON.

LARGEST_FILE = 4 * 1024 * 1024  # bytes
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
        message = f"reading the cases of {str(file)!r}{f', line {error.line}' if error.line else ''}: {error.problem}"
        raise ToolError(message, ErrorKind.CONFIG, error.advice) from None


def read_marked(
    runs: Runs,
    *,
    mark: str = "any",
    judged: bool = False,
    workspace: str | os.PathLike[str] | None = None,
    **wanted: Any,
) -> list[EvalCase]:
    """Returns stored runs whose answer a person marked as cases, the newest first.

    A good run expects the tools that it called. A bad run expects another answer.

    Args:
        runs: the stored runs.
        mark: "good", "bad" or "any".
        judged: each case also expects that a judge agrees with the person and the note.
        workspace: a directory that is copied to the workspace of each case.
        wanted: further filters of `Runs.list`, such as `agent` or `since`.

    Example:
        >>> with Runs("sqlite:///runs.db") as runs:
        ...     _ = runs.submit("Say hello.", run_id="r1"), runs.cancel("r1"), runs.mark("r1", "bad", by="ada")
        ...     [case.prompt for case in read_marked(runs)]
        ['Say hello.']
    """
    from forge.project.runs.marked_runs import marked_cases  # stored runs are an extra

    found = marked_cases(runs, mark=mark, judged=judged, **wanted)
    copied = Path(workspace) if workspace is not None else None
    cases = [_case(one, number, Path(), {}, []) for number, one in enumerate(found, 1)]
    return [replace(case, workspace=copied) for case in cases]


def _load(file: Path) -> Mapping[str, Any]:
    text = bounded_text(file, LARGEST_FILE)
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
        message = f"Forge cannot evaluate {', '.join(sorted(set(unknown)))}; it knows {', '.join(EVALUATORS)}"
        advice = "Remove it, or leave it out with --skip-unsupported (read_cases(skip_unsupported=True))."
        raise _Wrong(f"case {case.name!r}, evaluators", message, advice)
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


# The evaluators of pydantic-evals that Forge knows: reads them, and applies them to a run.

EVALUATORS = {  # the arguments of each; the first may be given without its name
    "Equals": ("value",),
    "EqualsExpected": (),
    "Contains": ("value", "case_sensitive", "as_strings"),
    "IsInstance": ("type_name",),
    "MaxDuration": ("seconds",),
    "LLMJudge": ("rubric", "model", "include_input", "include_expected_output", "model_settings", "score", "assertion"),
}
_ALSO = "evaluation_name"  # every evaluator may have one


def read_evaluator(value: Any) -> Check:
    """Returns an evaluator as data: `EqualsExpected`, `{Contains: text}` or `{Contains: {value: text}}`.

    Raises ValueError in words. An evaluator that Forge does not know is returned as it is.
    """
    if isinstance(value, str):
        name, given = value, None
    elif isinstance(value, Mapping) and len(value) == 1:
        ((name, given),) = value.items()
    else:
        raise ValueError(f"{brief(value)} is not an evaluator: write NAME or {{NAME: arguments}}")
    known = EVALUATORS.get(str(name))
    if known is None:
        return {"name": name}
    arguments = _name_arguments(str(name), known, value, given)
    missing = [one for one in known[:1] if one not in arguments]
    if missing:
        raise ValueError(f"{name} needs {missing[0]}")
    if name == "MaxDuration" and (isinstance(arguments["seconds"], bool) or not _is_number(arguments["seconds"])):
        raise ValueError(f"MaxDuration needs a number of seconds, got {brief(arguments['seconds'])}")
    if name == "LLMJudge" and arguments.get("assertion") is False:
        raise ValueError("LLMJudge with assertion: false has no verdict, only a score; remove the assertion")
    return {**arguments, "name": name}


def _name_arguments(name: str, known: tuple[str, ...], value: Any, given: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {}
    if isinstance(given, Mapping) and given and all(key in (*known, _ALSO) for key in given):
        return {str(key): one for key, one in given.items() if key != _ALSO}
    if isinstance(given, Mapping) and name != "Equals" and name != "Contains":
        unknown = [key for key in given if key not in (*known, _ALSO)]
        raise ValueError(f"{name} has no argument {brief(unknown[0] if unknown else given)}; it has {', '.join(known)}")
    if not known:
        raise ValueError(f"{name} has no arguments")
    return {known[0]: given}


def apply_evaluator(check: Check, case: EvalCase, output: Any, seconds: float) -> str:
    """Returns what is wrong, or nothing. LLMJudge is applied by `ask_judge`."""
    match check["name"]:
        case "Equals":
            return _compare(output, check["value"])
        case "EqualsExpected":
            return _compare(output, case.expected_output) if case.expected_output is not None else ""
        case "Contains":
            return _find(output, check)
        case "IsInstance":
            names = [one.__name__ for one in type(output).__mro__]
            return "" if check["type_name"] in names else f"the answer is a {names[0]}, expected {check['type_name']}"
        case "MaxDuration":
            most = float(check["seconds"])
            return "" if seconds <= most else f"the run took {seconds:.1f} s, expected at most {most:g} s"
    return ""


def read_json(output: Any) -> Any:
    """Returns the value of an answer that is JSON, also inside a code fence; another answer as it is."""
    if not isinstance(output, str):
        return output
    text = output.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text[text.index("\n") : -3].strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return output


def _compare(output: Any, expected: Any) -> str:
    found = output if isinstance(expected, str) else read_json(output)
    is_same_kind = isinstance(found, bool) == isinstance(expected, bool)
    return "" if is_same_kind and found == expected else f"the answer is {brief(found)}, expected {brief(expected)}"


def _find(output: Any, check: Check) -> str:
    wanted, is_exact = check["value"], check.get("case_sensitive", True)
    message = f"the answer {brief(output)} does not contain {brief(wanted)}"
    if check.get("as_strings") or (isinstance(wanted, str) and isinstance(output, str)):
        text, part = str(output), str(wanted)
        if not is_exact:
            text, part = text.lower(), part.lower()
        return "" if part in text else message
    found = read_json(output)
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return "" if all(key in found and found[key] == value for key, value in wanted.items()) else message
    if isinstance(found, str):
        return "" if str(wanted) in found else message
    try:
        return "" if wanted in found else message
    except TypeError:
        return message


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
