"""Guardrails: rules that deny commands, output, prompts and answers.

Patterns are matched against a text and against every reading of it without disguises: quotes, escapes, odd spaces and
look-alike letters do not hide anything. Patterns are case-sensitive unless they begin with (?i).
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.safe_regex import Pattern, PatternError, SearchClock, TooLong
from forge.core.spec import Permission, ToolSpec

MARK = "[BLOCKED BY POLICY]"
MOST_RULES = 200  # of one list
DEEPEST_ARGUMENTS = 100  # levels of nested arguments that are checked
LONGEST_LINE = 50_000  # characters of a command line that is parsed

_LISTS = {
    "deny_commands": "commands",
    "deny_output": "output",
    "deny_prompts": "prompts",
    "deny_responses": "responses",
}
_LINES = {"bash": "command", "local_shell": "command"}
_ASSIGNMENT = re.compile(r"(?<![\w$])(\w+)=(\"[^\"]*\"|'[^']*'|[^\s;&|<>()`]*)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_HOW = '{pattern: "regular expression", message: "why"}'


class GuardrailRule(NamedTuple):
    pattern: Pattern
    message: str
    action: str = "block"

    def is_in(self, text: str, clock: SearchClock) -> bool:
        """Returns whether the pattern matches one of the text's spellings; a search that takes too long matches."""
        return self.is_among(spellings(text), clock)

    def is_among(self, spelled: Iterable[str], clock: SearchClock) -> bool:
        try:
            return any(self.pattern.is_in(spelling, clock) for spelling in spelled)
        except TooLong:
            return True


@dataclass(frozen=True, slots=True)
class Guardrails:
    """Patterns that a project or a skill denies, beside the rules. `Guardrails.of` reads them from data.

    Args:
        commands: denied commands.
        output: patterns of results that are blocked or masked.
        prompts: denied prompts.
        responses: denied answers.
        tools: denied tools, each with the source that denies it.

    Example:
        >>> rails = Guardrails.of({"deny_commands": [{"pattern": "rm -rf", "message": "Never."}]})
        >>> len(rails.commands)
        1
    """

    commands: tuple[GuardrailRule, ...] = ()
    output: tuple[GuardrailRule, ...] = ()
    prompts: tuple[GuardrailRule, ...] = ()
    responses: tuple[GuardrailRule, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Any, where: str = "guardrails") -> Guardrails:
        """Parses `{deny_commands: [{pattern, message}], …}`. Raises `ToolError` of kind `config_error` with the key."""
        if rules is None:
            return cls()
        if not isinstance(rules, Mapping):
            raise _config_error(where, "expected a mapping", f"Write deny_commands: [{_HOW}].")
        found: dict[str, Any] = {}
        for key, entries in rules.items():
            if key not in _LISTS:
                hint = near(str(key), _LISTS, 1)
                raise _config_error(
                    f"{where}.{key}",
                    "there is no such list",
                    f"Did you mean {hint[0]!r}?" if hint else f"There are {', '.join(_LISTS)}.",
                )
            found[_LISTS[key]] = tuple(_read_rules(entries, f"{where}.{key}", is_output=key == "deny_output"))
        return cls(**found)

    def joined(self, *others: Guardrails) -> Guardrails:
        """Returns guardrails that deny what any of them denies."""
        every = (self, *others)
        return Guardrails(
            tuple(rule for one in every for rule in one.commands),
            tuple(rule for one in every for rule in one.output),
            tuple(rule for one in every for rule in one.prompts),
            tuple(rule for one in every for rule in one.responses),
            {name: who for one in every for name, who in one.tools.items()},
        )

    def __bool__(self) -> bool:
        return bool(self.commands or self.output or self.prompts or self.responses or self.tools)

    @property
    def streams(self) -> str:
        """The output that may be shown while a tool runs: `all`, `lines` (each masked first), or `nothing`.

        A rule that blocks removes the whole output, so none may be shown before all of it was checked.
        """
        if not self.output:
            return "all"
        if any(rule.action == "block" or rule.pattern.crosses_lines for rule in self.output):
            return "nothing"
        return "lines"

    def check_call(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        """Raises `ToolError` if the tool or one of its arguments is denied."""
        for name in (spec.name, *spec.aliases) if self.tools else ():
            if who := _find_denier(name, self.tools):
                raise ToolError(f"{spec.name} is denied by {who}", ErrorKind.PERMISSION, "Use another tool.")
        if not self.commands or spec.ends_turn:  # a message to a person is no command
            return
        clock = SearchClock()
        for text, is_line in _texts_of(spec, arguments):
            _refuse_commands(self.commands, text, clock, command=is_line)

    def find_block(self, text: str) -> GuardrailRule | None:
        """Returns the rule that blocks this output; None if there is none. Call it before `redact`."""
        rules = [rule for rule in self.output if rule.action == "block"]
        if not rules:
            return None
        clock, spelled = SearchClock(), list(spellings(text))
        return next((rule for rule in rules if rule.is_among(spelled, clock)), None)

    def redact(self, text: str) -> str:
        """Returns the output with all matches of redacting rules replaced."""
        rules = [rule for rule in self.output if rule.action == "redact"]
        if not rules:
            return text
        clock, spelled = SearchClock(), list(spellings(text))
        redacted = spelled[0]
        for rule in rules:
            if rule.is_among(spelled, clock):
                redacted = _redact(redacted, rule, clock)
        return redacted if redacted != spelled[0] else text

    def check_prompt(self, text: str) -> None:
        """Raises `ToolError` for a denied prompt."""
        _check_text(self.prompts, text, "the prompt is denied")

    def check_response(self, text: str) -> None:
        """Raises `ToolError` for a denied answer."""
        _check_text(self.responses, text, "the answer is withheld")


def _read_rules(entries: Any, where: str, *, is_output: bool) -> Iterator[GuardrailRule]:
    if not isinstance(entries, list | tuple):
        raise _config_error(where, "expected a list", f"Write [{_HOW}].")
    if len(entries) > MOST_RULES:
        raise _config_error(
            where, f"{len(entries):,} rules are too many; the maximum is {MOST_RULES}", "Combine some of them."
        )
    for number, entry in enumerate(entries):
        key_path = f"{where}[{number}]"
        said = {"pattern": entry} if isinstance(entry, str) else entry
        known = ("pattern", "message", "action") if is_output else ("pattern", "message")
        if not isinstance(said, Mapping) or not isinstance(said.get("pattern"), str) or set(said) - set(known):
            raise _config_error(key_path, f"expected {', '.join(known)}", f"Write {_HOW}.")
        action = said.get("action", "block")
        if action not in ("block", "redact"):
            raise _config_error(f"{key_path}.action", f"expected block or redact, got {action!r:.40}", "Fix it.")
        source = said["pattern"]
        try:
            pattern = Pattern(source)
        except PatternError as error:
            hint = "Use RE2 syntax, without look-around and back-references."
            raise _config_error(f"{key_path}.pattern", f"{source[:80]!r} is not a pattern: {error}", hint) from None
        message = said.get("message")
        # the pattern is not revealed: a model would learn how to evade it
        yield GuardrailRule(
            pattern, str(message) if message else f"rule {key_path.rpartition('.')[2]} forbids it", action
        )


def _texts_of(spec: ToolSpec, arguments: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yields the texts of a call's arguments, each with a flag: True if a shell would read it as a command."""
    executes = Permission.EXECUTE in spec.permissions
    if spec.name == "cli_execute":
        words = [str(arguments.get("binary", "")), *map(str, arguments.get("args") or ())]
        yield " ".join(words), True
        yield from ((line, True) for line in _commands(shlex.join(words)))
        arguments = {key: value for key, value in arguments.items() if key not in ("binary", "args")}
    for key, value in arguments.items():
        for text in _strings(value):
            is_line = executes and (spec.name not in _LINES or key in (_LINES[spec.name], "stdin"))
            if is_line:
                yield from ((line, True) for line in _commands(text))
            else:
                yield text, False


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if depth < DEEPEST_ARGUMENTS and value.lstrip()[:1] in ("{", "[", '"'):
            yield from _strings(_parse_json(value), depth + DEEPEST_ARGUMENTS // 4)
    elif depth < DEEPEST_ARGUMENTS and isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item, depth + 1)
    elif depth < DEEPEST_ARGUMENTS and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _strings(item, depth + 1)


def _parse_json(text: str) -> Any:
    """Parses a text as JSON; None if it is not JSON."""

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _commands(line: str) -> Iterator[str]:
    """Yields the line, and each command that it could run, without quotes and wrappers."""
    from forge.permissions.shell.commands import UnreadableLine, find_reached  # loads a parser of shell lines
    from forge.permissions.shell.parse import expand_line
    from forge.permissions.shell.words import ANY, SOME

    yield line
    plain = fold_look_alikes(line)
    others = dict.fromkeys(
        (plain, _fill_in_variables(plain), expand_line(plain, Scope()) if len(plain) <= LONGEST_LINE else plain)
    )
    yield from (known for known in others if known != plain)
    for spelling in dict.fromkeys((line, *others)):
        try:
            for words in find_reached(spelling) if len(spelling) <= LONGEST_LINE else ():
                yield " ".join(words).replace(ANY, "").replace(SOME, "")
        except UnreadableLine:
            continue


def _fill_in_variables(line: str) -> str:
    """Replaces variables that the line itself sets: `a=rm; $a -rf x`."""
    if "=" not in line or "$" not in line or len(line) > LONGEST_LINE:
        return line
    values = {found[1]: found[2].strip("\"'") for found in _ASSIGNMENT.finditer(line)}
    for _ in range(3):  # a value may name another variable
        line = _VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), line)[: 2 * LONGEST_LINE]
    return line


def _redact(text: str, rule: GuardrailRule, clock: SearchClock) -> str:
    """Replaces the rule's matches; if the rule still matches, replaces whole lines, then the whole text."""
    try:
        if rule.pattern.crosses_lines and not rule.pattern.tells_where:
            return MARK
        redacted = _replace_matches(text, rule.pattern, clock)
        if not rule.is_in(redacted.replace(MARK, "\ue000"), clock):
            return redacted
        lines = [MARK if rule.is_in(line.replace(MARK, "\ue000"), clock) else line for line in redacted.split("\n")]
        redacted = "\n".join(lines)
        return MARK if rule.is_in(redacted.replace(MARK, "\ue000"), clock) else redacted
    except TooLong:
        return MARK


def _replace_matches(text: str, pattern: Pattern, clock: SearchClock) -> str:
    parts, done = [], 0
    for span in pattern.spans(text, clock):
        if span.start >= done:
            parts += [text[done : span.start], MARK]
        done = max(done, span.end)
    return "".join([*parts, text[done:]])


def _find_denier(name: str, tools: Mapping[str, str]) -> str:
    return next((who for pattern, who in tools.items() if fnmatchcase(name, pattern)), "")


def _refuse_commands(rules: Iterable[GuardrailRule], text: str, clock: SearchClock, *, command: bool) -> None:
    spelled = list(spellings(text, command=command))
    for rule in rules:
        if rule.is_among(spelled, clock):
            raise ToolError(f"skill guardrail: {rule.message}", ErrorKind.SECURITY, "Do it another way.")


def _check_text(rules: Iterable[GuardrailRule], text: str, what: str) -> None:
    clock, spelled = SearchClock(), list(spellings(text))
    for rule in rules:
        if rule.is_among(spelled, clock):
            raise ToolError(f"{what}: skill guardrail: {rule.message}", ErrorKind.SECURITY, "Say it another way.")


def _config_error(where: str, problem: str, advice: str) -> ToolError:
    return ToolError(f"{where}: {problem}", ErrorKind.CONFIG, advice)


# Undoes disguises of a text: quotes, escapes, odd spaces and look-alike letters.

_LOOK_ALIKES = {  # letters of other alphabets, and signs, by the ASCII character that they look like
    "a": "\u0430\u0251\u03b1",
    "b": "\u042c\u0185",
    "c": "\u0441\u03f2\u217d",
    "d": "\u0501\u0257",
    "e": "\u0435\u04bd\u025b\u212e",
    "f": "\ua799",
    "g": "\u0261\u0581",
    "h": "\u04bb\u0570",
    "i": "\u0456\u03b9\u0131\u0269",
    "j": "\u0458\u03f3",
    "k": "\u03ba\u043a\u1d0b",
    "l": "\u04cf\u05df",
    "m": "\u043c\u1d0d",
    "n": "\u0578\u043f\u057c",
    "o": "\u043e\u03bf\u0585\u03c3",
    "p": "\u0440\u03c1",
    "q": "\u051b\u0563",
    "r": "\u0433\u1d26\uab47",
    "s": "\u0455\ua731",
    "t": "\u0442\u03c4\u1d1b",
    "u": "\u03c5\u057d\u028b",
    "v": "\u0475\u03bd\u1d20",
    "w": "\u0461\u051d\u026f\u0561",
    "x": "\u0445\u03c7",
    "y": "\u0443\u04af\u03b3",
    "z": "\u1d22\u0290",
    "A": "\u0410\u0391",
    "B": "\u0412\u0392",
    "C": "\u0421\u03f9",
    "D": "\u13a0",
    "E": "\u0415\u0395",
    "F": "\u03dc",
    "G": "\u050c",
    "H": "\u041d\u0397",
    "I": "\u0406\u0399\u04c0",
    "J": "\u0408",
    "K": "\u041a\u039a",
    "L": "\u13de",
    "M": "\u041c\u039c",
    "N": "\u039d",
    "O": "\u041e\u039f\u0555",
    "P": "\u0420\u03a1",
    "R": "\u13a1",
    "S": "\u0405\u054f",
    "T": "\u0422\u03a4",
    "U": "\u054d",
    "V": "\u0474",
    "W": "\u051c",
    "X": "\u0425\u03a7",
    "Y": "\u0423\u03a5\u04ae",
    "Z": "\u0396",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\ufe58",
    "'": "\u2018\u2019\u02bc\u2032",
    '"': "\u201c\u201d\u2033",
    "/": "\u2044\u2215\u29f8",
    "\\": "\u2216\u29f5",
    "*": "\u2217\u204e",
    ":": "\u2236\u02d0",
    ".": "\u2024",
    "~": "\u223c\u02dc",
    "|": "\u2223\u01c0",
    "=": "\ua78a",
}
_TABLE = {ord(look_alike): plain for plain, look_alikes in _LOOK_ALIKES.items() for look_alike in look_alikes}
_UNSEEN = frozenset({"Mn", "Me", "Cf"})
_UNSEEN_LETTERS = frozenset(map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)))
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrtbf\"\\/]))")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_QUOTES = str.maketrans("", "", "\"'`\\")
_SEPARATOR = re.compile(r"\$\{IFS[^}]*\}|\$IFS(?!\w)")
_NOTHING = re.compile(r"\$[1-9@*]|\$\{[1-9@*]\}")  # a line's positional parameters: usually empty


def spellings(text: str, *, command: bool = False) -> Iterator[str]:
    """Yields the text, then every other reading of it, each once. `command`: a shell would read it."""
    seen: set[str] = set()
    for spelling in _spellings(sendable(text), command):
        if spelling not in seen:
            seen.add(spelling)
            yield spelling


def _spellings(text: str, command: bool) -> Iterator[str]:
    yield text
    plain = fold_look_alikes(text)
    yield plain
    if command:
        plain = _NOTHING.sub("", _SEPARATOR.sub(" ", plain.replace("\\\n", "")))
    yield collapse_spaces(plain)
    if "\\" in plain:
        decoded = fold_look_alikes(decode_escapes(decode_escapes(plain)))
        yield decoded
        yield collapse_spaces(decoded.translate(_QUOTES))
    bare = plain.translate(_QUOTES)
    if len(bare) != len(plain):
        yield collapse_spaces(bare)


def fold_look_alikes(text: str) -> str:
    """Removes invisible characters, and replaces every look-alike by its ASCII character."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text.translate(_TABLE))
    seen = "".join(
        char
        for char in apart
        if char.isascii() or (unicodedata.category(char) not in _UNSEEN and char not in _UNSEEN_LETTERS)
    )
    return unicodedata.normalize("NFKC", seen).translate(_TABLE)


def collapse_spaces(text: str) -> str:
    """Replaces runs of white space by single spaces."""
    return " ".join(text.split())


def decode_escapes(text: str) -> str:
    """Decodes the escapes of JSON and similar formats."""
    decoded = _ESCAPE.sub(_decode_escape, text)
    if decoded.isascii():
        return decoded
    return sendable(decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))  # joins surrogate pairs


def _decode_escape(found: re.Match[str]) -> str:
    number = found[1] or found[2] or found[3]
    if number is None:
        return _LETTERS.get(found[4], found[4])
    code = int(number, 16)
    return chr(code) if code <= 0x10FFFF else found[0]
