"""The evaluators of pydantic-evals that Forge knows: reads them, and applies them to a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from forge.core.plain_values import brief
from forge.evaluation.case import Check, EvalCase

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
    words = f"the answer {brief(output)} does not contain {brief(wanted)}"
    if check.get("as_strings") or (isinstance(wanted, str) and isinstance(output, str)):
        text, part = str(output), str(wanted)
        if not is_exact:
            text, part = text.lower(), part.lower()
        return "" if part in text else words
    found = read_json(output)
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return "" if all(key in found and found[key] == value for key, value in wanted.items()) else words
    if isinstance(found, str):
        return "" if str(wanted) in found else words
    try:
        return "" if wanted in found else words
    except TypeError:
        return words


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
