"""Refuses text that stands for omitted text: "... rest of the code unchanged ...". Loaded only where a file changes."""

from __future__ import annotations

import re

from forge.core.errors import ErrorKind, ToolError

_SIGNS = ("rest", "remain", "existing", "unchanged", "same", "omitted", "previous", "before", "other", "brevity")
_WRAPPING = re.compile(
    r"""\s*
    (?P<open>(?:\#+|//+|/\*+|\*+|<!--|--|;+|%+|\{/\*|["']{3}|[(\[<{])*)\s*
    (?P<lead>\.{2,}|…)?\s*
    (?P<said>.*?)\s*
    (?P<trail>\.{2,}|…)?\s*
    (?P<close>(?:\*+/\}?|-->|["']{3}|[)\]>}])*)\s*
    """,
    re.VERBOSE,
)
_THING = (
    r"(?:code|file|function|class|method|module|content|contents|document|text|implementation|script|page|section|"
    r"body|component|template|config|configuration|imports|functions|methods|classes|tests|cases|lines|fields|logic)"
)
_OF_WHAT = rf"(?:(?:the|your|this|that|my) )?(?:(?:original|existing|previous|current|other|same) )?{_THING}s?"
_REST = rf"(?:the )?(?:rest|remainder) of {_OF_WHAT}|(?:the )?(?:remaining|existing|previous|other|original) {_THING}s?"
_STAYS = (
    r"(?:(?:is|are|stays?|remains?|continues?|goes|kept|left)(?: exactly)? )?"
    r"(?:unchanged|the same|same|as (?:it )?(?:is|was|before)|as-is|untouched|omitted|here|above|below|not shown)"
    r"(?: as (?:before|above|it was))?(?: (?:for )?(?:brevity|clarity|here))?"
)
# without dots around it, only words that leave no doubt; with them, fewer words will do
_PLAIN = re.compile(
    rf"(?:(?:{_REST})(?: below| above)? \(?{_STAYS}\)?|(?:keep|leave) (?:{_REST})(?: {_STAYS})?|"
    rf"(?:{_OF_WHAT}) (?:unchanged|omitted)(?: for (?:brevity|clarity))?)[.!]?",
    re.IGNORECASE,
)
_DOTTED = re.compile(
    rf"\(?(?:(?:{_REST})(?: \(?{_STAYS}\)?)?|(?:{_OF_WHAT} )?(?:unchanged|omitted|same as (?:before|above|original))"
    rf"(?: for (?:brevity|clarity))?|(?:keep|leave) (?:{_REST})(?: {_STAYS})?|(?:and )?so on as before)\)?",
    re.IGNORECASE,
)


def refuse_placeholders(new: str, old: str) -> None:
    """Raise `ToolError` where a line of `new` stands for text left out, unless `old` has that line as well."""
    lowered = new.lower()
    if not any(sign in lowered for sign in _SIGNS):
        return
    for number, line in enumerate(new.split("\n"), 1):
        if len(line) <= 200 and is_placeholder(line) and line.strip() not in old:
            raise ToolError(
                f"line {number} of the new text stands for text that was left out: {line.strip()}",
                ErrorKind.VALIDATION,
                "Nothing is filled in: write everything out, or edit only the lines that change.",
            )


def is_placeholder(line: str) -> bool:
    """Returns whether a line stands for omitted text, in a comment, in brackets or between dots."""
    lowered = line.lower()
    if not any(sign in lowered for sign in _SIGNS):
        return False
    parts = _WRAPPING.fullmatch(line)
    if parts is None:
        return False
    said = " ".join(parts["said"].split())
    if parts["lead"] or parts["trail"]:
        return _DOTTED.fullmatch(said) is not None and (parts["lead"] is not None or bool(parts["open"]))
    if parts["open"]:
        return _PLAIN.fullmatch(said) is not None
    return said[:4].lower() == "rest" and said[-1:] not in ".!" and _PLAIN.fullmatch(said) is not None
