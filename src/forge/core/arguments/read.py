"""Reads the text of a call that is not quite a JSON object, or almost JSON, where it has only one meaning."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from forge.core.arguments.explain import MOST_PARTS, check_amount, make_not_object_error, make_unreadable_error
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief, quote_json
from forge.core.spec import Permission, ToolSpec

DEEPEST = 2  # JSON strings inside each other

_FENCE = re.compile(r"`{3,}[ \t]*[A-Za-z0-9_+-]{0,20}\s*$")  # at the end of the text before the object
_FENCES = ("```json", "```")  # as nearly all are
_FENCE_END = re.compile(r"^\s*`{3,}\s*")
_QUOTED_KEY = re.compile(r"""["'][^"']{0,100}["']\s{0,20}:""")
_NOTES = {
    "quotes": "read Python's spelling as JSON",
    "commas": "removed a comma after the last item",
    "fence": "removed a code fence",
    "encoding": "decoded JSON inside a JSON string",
    "closing": "added the missing closing brace",
    "comments": "ignored the comments in the JSON",
}
_ALLOWED_BY = {"comments": "prose"}  # a kind of repair that has no name of its own


class SentText(NamedTuple):
    """The arguments that a text spells, and notes on the repairs."""

    data: dict[str, Any]
    notes: list[str]


class Respelt(NamedTuple):
    """A text that may be the JSON that was meant, and notes on the repairs. It has not been read yet."""

    json: str
    notes: list[str]


def respell(text: str, spec: ToolSpec) -> Respelt | None:
    """Corrects the commonest slips without reading the text: one slip each of a kind, and no mixed quotes.

    The text must not be JSON. Where the returned text is JSON, it is the only reading. None, or a text that is no
    JSON: `read_sent` decides.
    """
    text = text.strip()
    start, end = text.find("{"), text.rfind("}") + 1
    if start < 0 or text[0] == "[" or len(text) > LONGEST:
        return None
    if text[0] == '"':
        return _decode(text) if "encoding" in spec.allowed_repairs else None
    kinds: list[str] = []
    closing = ""
    if text.count("{") - text.count("}") == 1:
        if not _only_reads(spec):
            return None
        end, inner, closing = len(text), text[start:], "}"
    elif end <= start:
        return None
    else:
        inner = text[start:end]
        body = inner[:-1].rstrip()
        if body[-1:] == ",":
            inner = f"{body[:-1].rstrip()}}}"
            kinds.append("commas")
    if "'" in inner and '"' not in inner and "\\" not in inner:
        inner = _respell_python(inner)
        kinds.append("quotes")
    if closing:
        kinds.append("closing")
    if (kinds and inner in ("{", "{}")) or not spec.allowed_repairs.issuperset(kinds):
        return None
    notes = [_NOTES[kind] for kind in kinds]
    if start or end < len(text):
        around = _read_around(text[:start], text[end:], spec.allowed_repairs)
        if around is None:
            return None
        notes += around
    return Respelt(inner + closing, notes) if notes else None


def _decode(text: str) -> Respelt | None:
    """Returns the text of an object that a JSON string spells."""
    inside = load(text)
    if not isinstance(inside, str) or inside.lstrip()[:1] != "{" or "NaN" in inside or "Infinity" in inside:
        return None
    return Respelt(inside, [_NOTES["encoding"]])


def _respell_python(text: str) -> str:
    """Spells as JSON what stands between single quotes, and Python's words outside of them."""
    if "True" not in text and "False" not in text and "None" not in text:
        return text.replace("'", '"')
    pieces = text.split("'")
    for index in range(0, len(pieces), 2):
        pieces[index] = pieces[index].replace("True", "true").replace("False", "false").replace("None", "null")
    return '"'.join(pieces)


def read_sent(text: str, spec: ToolSpec) -> SentText:
    """Reads the arguments as plain JSON data. Repairs the text where it has one reading. Raises `ToolError`."""
    import pydantic_core  # heavy: paid when something is wrong, not at import

    if len(text) > MOST_PARTS:
        check_amount(text)
    try:
        data = pydantic_core.from_json(text, allow_inf_nan=False) if text else {}
    except (ValueError, TypeError, RecursionError) as error:
        problem = str(error)[:200]
        found = _Reading(spec).read(text)
        if found is None:
            raise make_unreadable_error(text, problem) from None
        return found
    if isinstance(data, dict):
        return SentText(data, [])
    if isinstance(data, str) and (found := _Reading(spec).read_inside(data)) is not None:
        return found
    raise make_not_object_error(data)


class _Reading:
    """Reads one text of a tool's call. `allowed` are the kinds of repair that may be made."""

    def __init__(self, spec: ToolSpec, depth: int = 0) -> None:
        self._spec = spec
        self._depth = depth
        self._allowed = spec.allowed_repairs

    def read(self, text: str) -> SentText | None:
        """Returns the one object in the text; None where there is none, or where a repair is not allowed."""
        text = text.strip()
        start = text.find("{")
        if start < 0 or len(text) > LONGEST or not self._allowed:
            return None
        if text.startswith('{\\"', start):
            return self._read_escaped(text)
        if (respelt := respell(text, self._spec)) is not None and isinstance(data := load(respelt.json), dict):
            return SentText(data, respelt.notes)
        found = scan(text, start)
        if found is None:
            return None
        kinds = dict.fromkeys(sorted(found.kinds))
        if found.missing:
            kinds["closing"] = None
            self._check_completable(text, found)
        data = load(found.json + found.missing)
        if not isinstance(data, dict):
            return None
        notes = _read_around(text[:start], text[found.end :], self._allowed, data)
        if notes is None or not {_ALLOWED_BY.get(kind, kind) for kind in kinds} <= self._allowed:
            return None
        return SentText(data, [_NOTES[kind] for kind in kinds] + notes)

    def read_inside(self, text: str) -> SentText | None:
        """Reads the object that a JSON string spells."""
        if self._depth >= DEEPEST or "encoding" not in self._allowed or "{" not in text[:LONGEST]:
            return None
        import pydantic_core

        try:
            data = pydantic_core.from_json(text, allow_inf_nan=False)
        except (ValueError, TypeError, RecursionError):
            found = _Reading(self._spec, self._depth + 1).read(text)
        else:
            if isinstance(data, str):
                found = _Reading(self._spec, self._depth + 1).read_inside(data)
            else:
                found = SentText(data, []) if isinstance(data, dict) else None
        return SentText(found.data, [_NOTES["encoding"], *found.notes]) if found is not None else None

    def _read_escaped(self, text: str) -> SentText | None:
        """Reads an object whose quotes are escaped, as inside a JSON string."""
        import pydantic_core

        try:
            inside = pydantic_core.from_json(f'"{text}"')
        except (ValueError, TypeError):
            return None
        return self.read_inside(inside)

    def _check_completable(self, text: str, found: Scanned) -> None:
        """Refuses to complete an object of which more than its last brace is missing, or whose tool changes things."""
        if found.missing != "}" or not found.ends_in_value or "closing" not in self._allowed:
            raise make_cut_error(text, "Send the whole call again.")
        if not _only_reads(self._spec):
            raise make_cut_error(
                text, "Only calls that read are completed; this tool may change something. Send the whole call again."
            )


def _only_reads(spec: ToolSpec) -> bool:
    """Returns whether a call that was cut may be completed: it changes nothing."""
    return not spec.confirm and not (spec.permissions | spec.optional_permissions) - {Permission.READ}


def _read_around(
    before: str, after: str, allowed: frozenset[str], data: dict[str, Any] | None = None
) -> list[str] | None:
    """Returns notes about the text around the object; None where it may be a part of the call.

    Without the `data` of the object, another object behind it is not looked at.
    """
    before, after, notes = before.strip(), after.strip(), list[str]()
    if before in _FENCES and after == "```":
        before = after = ""
        if "fence" not in allowed:
            return None
        notes.append(_NOTES["fence"])
    elif before and (fence := _FENCE.search(before)):
        before, after = before[: fence.start()].strip(), _FENCE_END.sub("", after, count=1).strip()
        if "fence" not in allowed:
            return None
        notes.append(_NOTES["fence"])
    if after and not after.strip("}]"):
        if "closing" not in allowed:
            return None
        notes.append("removed brackets behind the object")
        after = ""
    if not before and not after:
        return notes
    if "prose" not in allowed:
        return None
    if before and (set(before) & set("[]}(") or _QUOTED_KEY.search(before)):
        return None
    if "{" in after:
        return _compare_second(after, data, notes) if data is not None else None
    if "}" in after or after[:1] in (",", ":", "]") or _QUOTED_KEY.search(after):
        return None
    return [*notes, f"ignored the text around the JSON: {brief(before or after)}"]


def _compare_second(after: str, data: dict[str, Any], notes: list[str]) -> list[str] | None:
    """Reads the next object behind the first. The same object again changes nothing."""
    start = after.index("{")
    second = scan(after, start)
    other = load(second.json) if second is not None and not second.missing else None
    if second is None or not isinstance(other, dict):
        return None
    if other != data:
        message = f"the arguments have two readings: {brief(data)} or {brief(other)}"
        raise ToolError(message, ErrorKind.VALIDATION, "Send one JSON object; make two calls if you meant both.")
    if "{" in after[second.end :]:
        return _compare_second(after[second.end :], data, notes)
    return [*notes, "ignored a repetition of the object"]


def make_cut_error(text: str, suggestion: str) -> ToolError:
    line = text.count("\n") + 1
    column = len(text) - (text.rfind("\n") + 1)
    message = "the call was cut: the arguments are not valid JSON, because the object is not closed"
    return ToolError(
        f"{message} at line {line} column {column}, near {quote_json(text[-30:])}", ErrorKind.VALIDATION, suggestion
    )


# Reads lists and objects that are almost JSON: Python's or JavaScript's spelling, comments, a comma too many.


LONGEST = 100_000  # characters of almost-JSON; correct JSON of any length is read

# every token is read from where the last one ended, so the time is linear; there is nothing to go back to
_TOKEN = re.compile(
    r"""
    \s*(?:
    (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"
        |\u201c[^\u201c\u201d"\\]*\u201d|\u2018[^\u2018\u2019'\\]*\u2019)  # typographic quotes
    |(?P<word>true|false|null|True|False|None)(?![0-9A-Za-z_$'"])
    |(?P<number>[+-]?(?:[0-9][0-9._]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![0-9A-Za-z_$'"])
    |(?P<mark>[\[\]{}:,])
    |(?P<key>[A-Za-z_$][0-9A-Za-z_$]{0,99})(?=\s{0,20}:)
    |(?P<comment>(?://|\#)[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)
    |(?P<end>\Z)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# Python's, and no number that JSON spells in the same way: 1_000, +1, .5, 5.
_PYTHON_NUMBER = re.compile(r"([+-]?)((?:0|[1-9][0-9]*(?:_[0-9]+)*)?)(?:(\.)([0-9]*))?((?:[eE][+-]?[0-9]+)?)")
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_CLOSERS = {"{": "}", "[": "]"}


class Scanned(NamedTuple):
    """One list or object that a text spells, from its first bracket to its last."""

    json: str  # in JSON's spelling, without the missing brackets
    end: int  # the index behind it
    missing: str  # the brackets that would close it; "" where it is closed
    ends_in_value: bool  # the last token before the end completes a value
    kinds: frozenset[str]  # of repairs: "quotes", "commas", "comments"


def scan(text: str, start: int = 0) -> Scanned | None:
    """Reads tokens from a bracket to the one that closes it. None: the text is no such thing."""
    parts: list[str] = []
    closers: list[str] = []
    kinds: set[str] = set()
    at = start
    while (token := _TOKEN.match(text, at)) is not None:
        if at - start > LONGEST:
            return None
        at, kind = token.end(), token.lastgroup
        if kind == "end":
            break
        if kind == "comment":
            kinds.add("comments")
            continue
        shown = token[kind or 0]
        if kind == "mark":
            if shown in _CLOSERS:
                closers.append(_CLOSERS[shown])
            elif shown in "]}":
                if not closers or closers.pop() != shown:
                    return None
                if parts[-1] == "," and len(parts) > 1 and parts[-2] not in "[{,":
                    parts.pop()
                    kinds.add("commas")
            parts.append(shown)
            if not closers:
                return Scanned(" ".join(parts), at, "", True, frozenset(kinds))
            continue
        json_text = _to_json(kind, shown, kinds)
        if json_text is None:
            return None
        parts.append(json_text)
    if at != len(text):
        return None
    return Scanned(" ".join(parts), at, "".join(reversed(closers)), _ends_in_value(parts), frozenset(kinds))


def is_written(text: str) -> bool:
    """Returns whether the text can only be meant as a list or an object."""
    return text.lstrip()[:1] in ("[", "{")


def read_written(text: str) -> Any:
    """Reads the list or object that the text spells, or None. Nothing is evaluated, and nothing is guessed."""
    import pydantic_core  # heavy: paid when something is wrong, not at import

    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError, RecursionError):
        pass
    text = text.strip()
    found = scan(text)
    return load(found.json) if found is not None and found.end == len(text) and not found.missing else None


def load(json_text: str) -> Any:
    """Returns the value of a text that was respelt as JSON; None where it is none."""
    import pydantic_core

    try:
        return pydantic_core.from_json(json_text, allow_inf_nan=False)
    except (ValueError, TypeError, RecursionError):
        return None


def _to_json(kind: str | None, shown: str, kinds: set[str]) -> str | None:
    """Spells one token as JSON does. Notes the kind of repair; None: the token has no JSON form."""
    if kind == "number":
        return shown if _NUMBER.fullmatch(shown) else _respell_number(shown, kinds)
    if kind == "word":
        if shown in _PYTHON:
            kinds.add("quotes")
        return _PYTHON.get(shown, shown)
    if kind == "key":
        kinds.add("quotes")
        return f'"{shown}"'
    if shown[0] == '"' and (("\\" not in shown and shown.isprintable()) or _is_json(shown)):
        return shown
    kinds.add("quotes")
    if "\\" not in shown and '"' not in shown and shown.isprintable():
        return f'"{shown[1:-1]}"'
    if shown[0] in "\u201c\u2018":
        return json.dumps(shown[1:-1])
    if shown[0] == "'" and '"' not in shown and shown.count("\\'") > 1:
        return None  # two readings: quotes of either kind may have been meant inside
    try:
        return json.dumps(_ESCAPE.sub(_unescape, shown[1:-1]))
    except ValueError:
        return None


def _respell_number(shown: str, kinds: set[str]) -> str | None:
    """Spells Python's 1_000, +1, .5 and 5. as JSON does."""
    found = _PYTHON_NUMBER.fullmatch(shown)
    if found is None:
        return None
    sign, whole, point, fraction, exponent = found.groups()
    if not whole and not fraction:
        return None
    kinds.add("quotes")
    point = f".{fraction or '0'}" if point else ""
    return f"{sign.removeprefix('+')}{whole.replace('_', '') or '0'}{point}{exponent}"


def _is_json(shown: str) -> bool:
    try:
        json.loads(shown)
    except ValueError:
        return False
    return True


def _ends_in_value(parts: list[str]) -> bool:
    return len(parts) > 1 and parts[-1] not in ("{", "[", ":", ",") and (parts[-2] in (":", "[") or parts[-1] in "]}")


def _unescape(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code:
        return chr(int(code, 16))  # raises ValueError above the last character
    try:
        return _ESCAPED[escape[4]]
    except KeyError:
        raise ValueError(f"unknown escape \\{escape[4]}") from None
