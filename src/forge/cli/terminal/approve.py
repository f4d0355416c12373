"""Asks the person at the terminal: renders the question, and reads yes, always, no, a reason or other arguments."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from forge.cli.terminal.keyboard import read_typed, single_keys, take_typed, take_typed_ahead
from forge.cli.terminal.output import Output, as_ascii
from forge.cli.terminal.print_result import clip, diff_lines, harmless, is_diff, width_of, wrap
from forge.core.arguments.schema import compile_parser
from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.result import UNTRUSTED
from forge.core.spec import ToolSpec
from forge.core.yaml import Bounds, Unreadable, bounded_text, bounded_yaml, safe_loader
from forge.permissions.questions import (
    IN_PREVIEW,
    LONGEST_PREVIEW,
    MOST_VALUES,
    Answer,
    PermissionRequest,
    one_line,
    real_path_lines,
    request_text,
    show_invisible,
    value_text,
)
from forge.permissions.targets import PATHS

BY = "terminal"
ESCAPE = b"\x1b"
END = "\x04"  # Ctrl-D, where a key is read
WORDS = {
    "y": ("y", "yes", "o", "once"),
    "a": ("a", "always"),
    "n": ("n", "no", END),
    "r": ("r", "reason"),
    "d": ("d", "details"),
    "e": ("e", "edit"),
    "b": ("b", "back"),
    "s": ("s", "some"),
}
ECHOES = {
    "y": "yes",
    "a": "always",
    "n": "no",
    "r": "no, with a reason",
    "d": "details",
    "e": "edit",
    "b": "back",
    "s": "some",
}
LABELS = {"r": "[r]eason"} | {key: f"[{key}]{word[1:]}" for key, word in ECHOES.items() if key != "r"}
OF_EFFECTS = {"n": "[n]o, discard"}


async def ask_on_terminal(
    request: PermissionRequest, *, plain: bool = False, keep: Callable[[str], None] = lambda typed: None
) -> Answer:
    """An `Approver`. The end of the input means no. `plain`: answers are lines, and nothing is coloured.

    `keep` gets what was typed before the question could be seen: it is no answer.
    """
    return await _Question(request, Output(plain=plain), keep).ask()


class _Question:
    """One question to the person, until it has an answer."""

    def __init__(self, request: PermissionRequest, out: Output, keep: Callable[[str], None]) -> None:
        self.request = request
        self.out = out
        self.keep = keep
        self.by_key = out.live and os.isatty(0)

    async def ask(self) -> Answer:
        request = self.request
        self._keep_typed(take_typed())
        _print(render_question(request, self.out))
        is_cut = self._is_cut()
        if request.result is not None:
            return self._answer(await self._choose("yn"))
        always = bool(request.rules_to_remember)
        some = request.effects is not None and len(request.effects.files) > 1
        offered = f"y{'a' * always}{'s' * some}n{'r' * self.by_key}d{'e' * request.editable}"
        while True:
            if is_cut:  # the keys stand below a line that says what they are about
                _print(self.out.paint(summarise_request(request, self.out), TITLE))
            key = await self._choose(offered)
            if key == "d":
                _print(render_details(request, self.out))
                is_cut = True
            elif key == "e":
                if (edited := await self._edit()) is not None:
                    return edited
            elif key == "s":
                if (chosen := await self._choose_effects()) is not None:
                    return chosen
            elif key == "r" or (key == "n" and not self.by_key):
                return Answer.no(await _read_line("Reason for the model (optional): ") or "", by=BY)
            else:
                return self._answer(key)

    def _keep_typed(self, typed: str) -> None:
        if typed:
            self.keep(typed)

    def _is_cut(self) -> bool:
        return bool(self.request.preview) and len(_preview_lines(self.request)) > _room_for_preview(
            self.request, self.out
        )

    def _answer(self, key: str) -> Answer:
        if key == "n" or not key:
            return Answer.no(by=BY)
        return Answer("always" if key == "a" else "once", by=BY)

    async def _choose(self, keys: str) -> str:
        """Returns one of these keys; empty at the end of the input."""
        labels = LABELS if self.request.effects is None else {**LABELS, **OF_EFFECTS}
        offer = (" " if self.by_key else ", ").join(labels[key] for key in keys)
        if self.by_key:
            with single_keys():
                self._keep_typed(await take_typed_ahead())
                return await self._read_choice(keys, f"{self.out.paint(offer, '1')}? ")
        return await self._read_choice(keys, f"{offer}? ")

    async def _read_choice(self, keys: str, prompt: str) -> str:
        while True:
            _write(prompt)
            typed = await read_typed()
            if self.by_key and typed == ESCAPE:
                os.kill(os.getpid(), signal.SIGINT)  # stops the run, like Ctrl-C
                continue
            word = typed.decode("utf-8", "replace").strip().lower()
            if self.by_key and len(set(word)) == 1:
                word = word[0]  # a key that was pressed twice, or held
            key = next((key for key in keys if word in WORDS[key]), "")
            if key or not typed:
                if self.by_key:
                    _print(ECHOES[key] if key and word != END else "")
                return key
            _print(f"{'Press' if self.by_key else 'Type'} one of {', '.join(LABELS[key] for key in keys)}.")

    async def _choose_effects(self) -> Answer | None:
        """Returns an answer with the effects that the person chooses; None: go back."""
        assert self.request.effects is not None
        files = self.request.effects.files
        shown = files[:MOST_LISTED]
        lines = [f"{number:>4}  {kind} {one_line(path)}" for number, (kind, path) in enumerate(shown, 1)]
        _print(
            "\n".join([*lines, *([f"      ⟨{len(files) - MOST_LISTED:,} more⟩"] if len(files) > MOST_LISTED else [])])
        )
        while True:
            typed = await _read_line("Numbers or paths to apply, such as 1 3-5 src/** (Enter goes back): ")
            if not typed:
                return None
            try:
                chosen = choose_effects(typed, files)
            except ValueError as error:
                _print(harmless(str(error)))
                continue
            _print(f"Applies {len(chosen):,} of {len(files):,}, and discards the rest.")
            return Answer.some(chosen, by=BY)

    async def _edit(self) -> Answer | None:
        """Returns an answer with other arguments, which are checked and judged like the first ones; None: go back."""
        command = find_editor() if self.by_key else []
        if not command:
            return await self._edit_line()
        text = write_document(self.request)
        while True:
            try:
                text = await run_editor(command, text)
            except EditError as error:
                _print(harmless(str(error)))
                return None
            try:
                arguments = read_document(text, self.request)
            except EditError as error:
                _print(self.out.paint(harmless(str(error)), "31"))
                if await self._choose("eb") != "e":
                    return None
                text = write_document(self.request, str(error), text)
                continue
            if arguments is None:
                _print("The arguments are unchanged.")
                return None
            return Answer.edit(arguments, by=BY)

    async def _edit_line(self) -> Answer | None:
        _print(f"The arguments: {json.dumps(plain_arguments(self.request))}")
        text = await _read_line("New arguments, as one line of JSON (Enter goes back): ")
        if not text:
            return None
        try:
            arguments = json.loads(text)
        except (ValueError, RecursionError) as error:
            _print(f"That is not valid JSON: {error}.")
            return None
        if isinstance(arguments, dict):
            return Answer.edit(arguments, by=BY)
        _print("That is not an object.")
        return None


def choose_effects(typed: str, files: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the paths that numbers, ranges and patterns mean. Raises `ValueError` for one that means nothing."""
    chosen: dict[str, None] = {}
    for word in typed.replace(",", " ").split():
        first, is_range, last = word.partition("-")
        if first.isdecimal() and (last.isdecimal() if is_range else True):
            numbers = range(int(first), int(last if is_range else first) + 1)
            found = [files[number - 1][1] for number in numbers if 0 < number <= len(files)]
            if not found or len(found) != len(numbers):
                raise ValueError(f"There is no effect {word}: the numbers go from 1 to {len(files):,}.")
        else:
            found = [path for _, path in files if fnmatchcase(path, word)]
            if not found:
                raise ValueError(f"No effect matches {word}.")
        chosen |= dict.fromkeys(found)
    return list(chosen)


async def _read_line(prompt: str) -> str | None:
    """Returns a line of the terminal; None at the end of the input."""
    _write(prompt)
    typed = await read_typed()
    return typed.decode("utf-8", "replace").strip() if typed else None


def _print(text: str) -> None:
    _write(f"{text}\n")


def _write(text: str) -> None:
    """Writes as it is: colours were decided before."""
    click.echo(as_ascii(text), nl=False, err=True, color=True)


# Renders a question of the gate for a terminal: the diff or the command once, then what is left of the arguments.


AROUND = 6  # lines of a screen for the summary, the keys, and what was there before
LEAST_SHOWN = 3  # lines of a diff, however small the screen is
MOST_EFFECTS = 6  # effects that are named above the diff
MOST_OF_LINE = 4  # lines of a command line above its effects
MOST_LISTED = 200  # effects to choose from
EFFECT_COLOURS = {"create": "32", "delete": "31"}
BAR = "  │ "
BOLD, DIM, TITLE, MARKED = "1", "2", "1;33", "1;31"
QUOTE = "quote"  # in place of a colour: only the words between « and » are painted
CODES = {"green": "32", "red": "31", "cyan": "36", "bright_black": "90"}
IN_DIFF = frozenset({"content", "edits", "new_text", "old_text", "operations", "patch"})  # of the built-in file tools
_BARRED = re.compile(r"  (?:[^│]{1,60}: )?│ ")  # a value, with or without the name of its argument

Line = tuple[str, str]
"""A line and the code of its colour."""


def render_question(request: PermissionRequest, out: Output) -> str:
    """Renders everything that will run, each thing once."""
    if (
        request.result is not None
        or request.question
        or request.introduction
        or (request.personal and not request.traces)
    ):
        return render_details(request, out)
    return _lay_out(_compact_lines(request, out), out)


def render_details(request: PermissionRequest, out: Output) -> str:
    """Renders all that is known about the request: every argument, the origin of the tool, the rule of "always"."""
    lines = request_text(request).split("\n")
    marked = iter(diff_lines(line.removeprefix(BAR) for line in lines if line.startswith(BAR)))
    coloured = is_diff(request.preview)
    painted = [(line, CODES.get(next(marked)[1], "") if coloured and line.startswith(BAR) else "") for line in lines]
    return _lay_out([(lines[0], TITLE), *painted[1:]], out)


def _compact_lines(request: PermissionRequest, out: Output) -> Iterator[Line]:
    yield from _head_lines(request)
    yield from _reason_lines(request)
    if request.preview:
        lines, room = _preview_lines(request), _room_for_preview(request, out)
        yield from lines[:room]
        if len(lines) > room:
            yield f"  ⟨{len(lines) - room:,} more lines: [d]etails shows all⟩", DIM
    yield from ((line, "") for line in _argument_lines(request))
    yield from ((line, DIM) for line in _always_lines(request))


def _preview_lines(request: PermissionRequest) -> list[Line]:
    text = show_invisible(request.preview.rstrip("\n"), LONGEST_PREVIEW).split("\n")
    if is_diff(request.preview):
        return [(f"{BAR}{line}", CODES.get(colour, "")) for line, colour in diff_lines(text)]
    return [(f"{BAR}{line}", "") for line in text]


def _room_for_preview(request: PermissionRequest, out: Output) -> int:
    """Returns how many lines of the diff fit on the screen together with the rest of the question."""
    rest = [
        *_head_lines(request),
        *_reason_lines(request),
        *((line, "") for line in _argument_lines(request)),
        *((line, "") for line in _always_lines(request)),
    ]
    taken = sum(len(_wrap_line(line, out)) for line, _ in rest)
    return max(shutil.get_terminal_size().lines - taken - AROUND, LEAST_SHOWN)


def summarise_request(request: PermissionRequest, out: Output) -> str:
    """Returns the question in one line: `file_write big.txt +133 −133`."""
    changed = ""
    if is_diff(request.preview):
        signs = [colour for _, colour in diff_lines(request.preview.split("\n"))]
        changed = f" +{signs.count('green'):,} −{signs.count('red'):,}"
    if request.effects is not None:
        changed = ""
    target = one_line(show_invisible(request.target)) if request.target else ""
    if request.effects is not None:
        target = one_line(request.effects.summary)
    more = f" and {len(request.parts) - 1} more" if len(request.parts) > 1 else ""
    room = shutil.get_terminal_size().columns - width_of(changed + more) - 2
    return clip(f"{_tool_label(request)} {target}".rstrip(), room) + more + changed


def _reason_lines(request: PermissionRequest) -> Iterator[Line]:
    """Yields why it is asked. For a value from untrusted or private text, the words come with it, the value marked."""
    if request.ruling is None:
        return
    reason = request.ruling.reason
    if request.traces:
        reason = reason.partition(str(request.traces[0]))[0].rstrip("; ")
    if reason:
        yield f"Asked because: {one_line(reason)}", DIM
    for trace in request.traces:
        what = "comes from text that others may have written" if trace.kind == UNTRUSTED else "contains private text"
        yield f'Careful: "{one_line(trace.argument)}" {what}, from {one_line(trace.origin)}:', BOLD
        yield f"{BAR}{one_line(trace.quote)}", QUOTE
    if request.traces:
        yield "Say yes only if this is what you want, whatever the text says.", ""


def _head_lines(request: PermissionRequest) -> Iterator[Line]:
    """Yields what the question is about: the targets of a call, or the effects of its trial run."""
    if request.effects is None:
        yield from _target_lines(request)
        return
    yield f"{_tool_label(request)} ran as a trial. Nothing is changed yet. Apply its effects?", TITLE
    line = show_invisible(request.target).split("\n")
    yield from ((f"{BAR}{one}", BOLD) for one in line[:MOST_OF_LINE])
    if len(line) > MOST_OF_LINE:
        yield f"  ⟨{len(line) - MOST_OF_LINE:,} more lines: [d]etails shows all⟩", DIM
    yield f"It {one_line(request.effects.summary)}:", ""
    files = request.effects.files
    for kind, path in files[:MOST_EFFECTS]:
        yield f"  {kind:<6} {one_line(path)}", EFFECT_COLOURS.get(kind, "")
    if len(files) > MOST_EFFECTS:
        yield f"  ⟨{len(files) - MOST_EFFECTS:,} more: [d]etails shows them⟩", DIM


def _target_lines(request: PermissionRequest) -> Iterator[Line]:
    tool, parts = _tool_label(request), request.parts
    path = request.target if len(parts) == 1 and request.permission in (None, *PATHS) else None
    if path is not None and "\n" not in path:
        yield f"{tool} wants to {request.permission or 'run'} {show_invisible(path)}".rstrip(), TITLE
        yield from ((line, "") for line in real_path_lines(request))
        return
    shared = {part.permission or "run" for part in parts}
    verb = shared.copy().pop() if len(shared) == 1 else ""
    yield f"{tool} wants to {'use the network' if verb == 'network' else verb}".rstrip(), TITLE
    for part in parts[:MOST_VALUES]:
        text = part.target if len(shared) == 1 else f"{part.permission or 'run'} {part.target}"
        yield from ((f"{BAR}{line}", BOLD) for line in show_invisible(text.strip()).split("\n"))
        yield from ((line, "") for line in real_path_lines(part))
    if len(parts) > MOST_VALUES:
        yield f"  ⟨{len(parts) - MOST_VALUES:,} more targets⟩", ""


def _tool_label(request: PermissionRequest) -> str:
    """Returns the name; for a tool that is not built in also its origin and server."""
    server = f"server {request.call.server}" if request.call.server != "local" else ""
    known = [one_line(text) for text in ("" if _is_built_in(request.spec) else request.spec.origin, server) if text]
    return f"{request.spec.name} ({', '.join(known)})" if known else request.spec.name


def _argument_lines(request: PermissionRequest) -> Iterator[str]:
    """Yields the arguments that neither the targets nor the diff show, and that are not the tool's defaults."""
    spec, targets = request.spec, {part.target for part in request.parts}
    properties = spec.parameters.get("properties", {})
    in_diff = IN_DIFF if _is_built_in(spec) and is_diff(request.preview) else frozenset()
    arguments = [
        (one_line(name), value_text(value))
        for name, value in request.arguments.items()
        if name not in in_diff
        and not _is_default(properties.get(name), value)
        and not (name in spec.targets and value_text(value) in targets)
    ]
    for name, text in arguments[:MOST_VALUES]:
        lines = show_invisible(text).split("\n")
        if request.preview and len(text) > IN_PREVIEW:
            yield f"  {name}: ⟨{len(text):,} characters, whose effect is shown above⟩"
        elif len(lines) == 1:
            yield f"  {name}: │ {lines[0]}"
        else:
            yield f"  {name}:"
            yield from (f"{BAR}{line}" for line in lines)
    if len(arguments) > MOST_VALUES:
        yield f"  ⟨{len(arguments) - MOST_VALUES:,} more arguments⟩"


def _always_lines(request: PermissionRequest) -> Iterator[str]:
    """Yields the rules that "always" stores, word for word."""
    stored = request.rules_to_remember
    if stored:
        yield f"Always stores {'this rule' if len(stored) == 1 else 'these rules'} for this tool in this session:"
        yield from (f"{BAR}{line}" for rule in stored for line in show_invisible(rule).split("\n"))


def _is_built_in(spec: ToolSpec) -> bool:
    return spec.origin == f"forge.tools.{spec.name}"


def _is_default(schema: Any, value: object) -> bool:
    return isinstance(schema, Mapping) and "default" in schema and value_text(schema["default"]) == value_text(value)


def _lay_out(lines: Iterator[Line] | list[Line], out: Output) -> str:
    """Wraps and paints the lines. A wrapped line keeps its bar: no value can pass for a line of the question."""
    return "\n".join(
        painted
        for line, code in lines
        for painted in (
            _paint_quote(_wrap_line(line, out), out)
            if code == QUOTE
            else (out.paint(part, code) for part in _wrap_line(line, out))
        )
    )


def _paint_quote(parts: list[str], out: Output) -> Iterator[str]:
    """Paints the words between « and », which may be on several lines."""
    is_marked = False
    for part in parts:
        pieces = re.split("([«»])", part)
        painted = []
        for piece in pieces:
            is_marked = piece != "»" and (is_marked or piece == "«")
            painted.append(out.paint(piece, MARKED if is_marked or piece == "»" else ""))
        yield "".join(painted)


def _wrap_line(line: str, out: Output) -> list[str]:
    if not out.live:
        return [line]
    columns = shutil.get_terminal_size().columns - 1
    barred = _BARRED.match(line)
    start, indent = (barred[0], BAR) if barred else ("", "  ")
    first, *more = wrap(line[len(start) :], max(columns - max(width_of(start), width_of(indent)), 20))
    return [start + first, *(indent + part for part in more)]


# Lets a person edit the arguments of a call as YAML, in the editor of their choice.


EDITORS = ("sensible-editor", "nano", "vim", "vi")  # where neither $VISUAL nor $EDITOR is set
LARGEST_EDITED = 64 * 1024 * 1024  # bytes of an edited file
BOUNDS = Bounds(levels=100, aliases=0, values=200_000)
FILE = "arguments.yaml"
HEAD = """\
# The arguments of {tool}. Change them, save the file and close the editor.
# They are checked first; what they do is then judged by the same rules.
# Leave them as they are, or empty the file, to go back to the question.
"""


class EditError(Exception):
    """The reason why no edited arguments can be used."""


def find_editor() -> list[str]:
    """Returns the command of the person's editor; empty if there is none."""
    for variable in ("VISUAL", "EDITOR"):
        with suppress(ValueError):  # an open quote
            if words := shlex.split(os.environ.get(variable, "")):
                return words
    return next(([name] for name in EDITORS if shutil.which(name)), [])


def write_document(request: PermissionRequest, problem: str = "", edited: str = "") -> str:
    """Returns the text to edit: the arguments, or `edited` with the problem above it."""
    head = HEAD.format(tool=request.spec.name)
    if not problem:
        return head + _to_yaml(plain_arguments(request))
    body = "".join(line for line in edited.splitlines(keepends=True) if not line.startswith("#"))
    return head + "".join(f"# Problem: {line}\n" for line in harmless(problem).splitlines()) + body


def read_document(text: str, request: PermissionRequest) -> Mapping[str, Any] | None:
    """Returns the edited arguments; None where nothing was changed. Raises `EditError`."""
    try:
        document = bounded_yaml(text, FILE, lambda yaml, source: yaml.load(source, Loader=safe_loader()), BOUNDS)
        plain = json.loads(json.dumps(document, default=str, allow_nan=False))
    except Unreadable as error:
        raise EditError(str(error)) from None
    except (TypeError, ValueError) as error:
        raise EditError(f"{FILE}: {error}. Write values that JSON has, too.") from None
    if plain is None or plain == plain_arguments(request):
        return None
    if not isinstance(plain, dict):
        raise EditError(f"{FILE} does not hold arguments by their names. Write one `name: value` a line.")
    _check(plain, request)
    return plain


async def run_editor(command: list[str], text: str) -> str:
    """Returns the text as the person leaves it. Raises `EditError`; the editor ends if this is cancelled."""
    with tempfile.TemporaryDirectory(prefix="forge-edit-") as folder:
        path = Path(folder, FILE)  # only its owner can enter the folder
        code = await _wait_for(_start_editor(command, path, text))
        if code:
            raise EditError(f"The editor {command[0]!r} ended with code {code}. Nothing is changed.")
        try:
            return bounded_text(path, LARGEST_EDITED)
        except Unreadable as error:
            raise EditError(f"{FILE}: {error.problem}. {error.advice}") from None


def _start_editor(command: list[str], path: Path, text: str) -> subprocess.Popen[bytes]:
    path.write_text(text, encoding="utf-8")
    try:
        return subprocess.Popen([*command, str(path)])
    except OSError as error:
        raise EditError(f"The editor {command[0]!r} cannot be started: {error.strerror}. Set $EDITOR.") from None


async def _wait_for(editor: subprocess.Popen[bytes]) -> int:
    modes = termios.tcgetattr(0)
    try:
        code: int = await in_thread(editor.wait)
        return code
    except asyncio.CancelledError:
        editor.terminate()
        raise
    finally:
        termios.tcsetattr(0, termios.TCSANOW, modes)


def plain_arguments(request: PermissionRequest) -> dict[str, Any]:
    """Returns the arguments as JSON data."""
    arguments: dict[str, Any] = json.loads(json.dumps(dict(request.arguments), default=str))
    return arguments


def _check(arguments: Mapping[str, Any], request: PermissionRequest) -> None:
    """Raises `EditError` for arguments that do not fit. The gate parses and judges them again."""
    if request.form is not None:
        spec = ToolSpec(name="answer", description="", parameters=request.form)
        arguments = {name: value for name, value in arguments.items() if value is not None}
    else:
        spec = dataclasses.replace(request.spec, strict=False)
    try:
        compile_parser(spec)(arguments)
    except ToolError as error:
        raise EditError("\n".join(filter(None, (error.message, error.suggestion)))) from None


def _to_yaml(arguments: dict[str, Any]) -> str:
    """Writes texts of several lines as blocks; everything as JSON where YAML would be read differently."""
    import yaml  # heavy: only where somebody edits

    class Dumper(yaml.SafeDumper):
        """Writes a text of several lines as a block."""

    def represent_text(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent_text)
    steers = any(harmless(text) != text for text in _texts(arguments))
    text = yaml.dump(arguments, Dumper=Dumper, sort_keys=False, allow_unicode=not steers, width=1_000_000)
    try:
        if yaml.load(text, Loader=safe_loader()) == arguments:  # noqa: S506 - the safe one
            return str(text)
    except yaml.YAMLError:
        pass
    return json.dumps(arguments, indent=2, ensure_ascii=True) + "\n"


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in (str(key), *_texts(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []
