"""Questions: what a policy decides and a person answers, the answers, and the text and forms that are shown."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import logging
import re
import traceback
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any, ClassVar, Literal, Protocol

from forge.core.context import Scope, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError, Waiting
from forge.core.execution.deadline import is_cancelled_itself
from forge.core.messages import ToolCall
from forge.core.plain_values import visible
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.core.spec import Permission, ToolSpec
from forge.core.untrusted import show_both_ends
from forge.permissions.conditions import CallLabels, Trace
from forge.permissions.remember import make_memory
from forge.permissions.targets import PATHS, identity, paths

MOST_REMEMBERED = 50  # permissions and targets of a question whose rules a person can read before an "always"


class Decision(StrEnum):
    """The decision of a policy: allow, ask or deny.

    Example:
        >>> Decision("ask") is Decision.ASK
        True
    """

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision and its origin.

    Args:
        decision: allow, ask or deny.
        reason: why, in words.
        rule: the rule as it was written; empty for a default.
        layer: the layer of the rule, such as "project".
        conditions: the conditions about labels that the rule has.
        traces: the values of the call that come from labelled text, and because of which it asks or denies.
        is_default: True: no rule matches. A trial run replaces the question of such a ruling.

    Example:
        >>> Ruling(Decision.DENY, "Not on a Friday.").decision
        <Decision.DENY: 'deny'>
    """

    decision: Decision
    reason: str
    rule: str = ""
    layer: str = ""
    conditions: tuple[str, ...] = ()
    traces: tuple[Trace, ...] = ()
    is_default: bool = False


_STRICTNESS = {Decision.ALLOW: 0, Decision.ASK: 1, Decision.DENY: 2}


def strictest(rulings: Iterable[Ruling]) -> Ruling | None:
    """Returns the first of the strictest rulings; None if there is none."""
    return max(rulings, key=lambda ruling: _STRICTNESS[ruling.decision], default=None)


@dataclass(frozen=True, slots=True)
class ShownEffects:
    """The effects of a trial run that a question shows. An answer is about exactly these.

    Args:
        summary: such as "changes 3 files, deletes 1 file".
        files: the kind of each effect (create, change, delete, mode) and its path.
        digest: identifies the effects with their contents.

    Example:
        >>> ShownEffects("deletes 1 file", (("delete", "a.txt"),)).files[0]
        ('delete', 'a.txt')
    """

    summary: str
    files: tuple[tuple[str, str], ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call that wants to do something to a target. An approver and a policy receive it.

    Args:
        spec: the tool's spec.
        call: the call as the model sent it.
        arguments: the validated arguments that will run. They are a copy: changing them changes nothing.
        permission: the permission; None: the tool declares none.
        target: the path, host or command; `Opaque` if it is no text.
        scope: the session, user and directories.
        ruling: why a person is asked.
        others: further permissions and targets of the same question.
        result: set when the question is whether the model may see this result.
        question: set when it is about something else, such as whether to continue.
        preview: the change that the call would make, such as a diff.
        introduction: a text about a tool that no person has approved yet.
        editable: False: the arguments are in use already, so no answer can change them.
        personal: True: only a person can answer, and only for this call.
        form: with a question: the schema of the fields that an answer has as arguments.
        labels: what is known about the origins of the arguments; None outside of runs.
        effect: for a policy, about an effect of a trial run on the target: create, change, delete or mode.
        effects: set when the question is whether to apply the effects of a trial run; `preview` has their diff.

    Example:
        >>> async def ask(request: PermissionRequest) -> Answer:
        ...     print(f"{request.call.name} wants to {request.permission} {request.target}")
        ...     return Answer.NO
        >>> @tool(permissions={"execute"}, target="service")
        ... def deploy(service: str) -> str:
        ...     "Deploy a service."
        ...     return "done"
        >>> _ = asyncio.run(Agent(None, tools=[deploy], approve=ask).call("deploy", {"service": "web"}))
        deploy wants to execute web
    """

    spec: ToolSpec
    call: ToolCall
    arguments: Mapping[str, Any]
    permission: Permission | None
    target: str
    scope: Scope
    ruling: Ruling | None = None
    others: tuple[tuple[Permission | None, str], ...] = ()
    result: ToolResult | None = None
    question: str = ""
    preview: str = ""
    introduction: str = ""
    editable: bool = True
    personal: bool = False
    form: Mapping[str, Any] | None = None
    labels: CallLabels | None = None
    effect: str = ""
    effects: ShownEffects | None = None

    @property
    def remember(self) -> str:
        """The rules that "always" stores, word for word, one a line; empty if nothing may be remembered."""
        return "\n".join(self.rules_to_remember)

    @property
    def rules_to_remember(self) -> tuple[str, ...]:
        """The rules that "always" stores for this tool in this session, word for word. A person must see them all."""
        if self.result is not None or self.question or self.personal or len(self.others) >= MOST_REMEMBERED:
            return ()
        if self.effects is not None:  # the same line may have other effects
            return ()
        found = (make_memory(self.spec, one.permission, one.target, self.arguments, self.scope) for one in self.parts)
        return tuple(dict.fromkeys(one.rule for one in found if one.key))

    @property
    def is_before_call(self) -> bool:
        """True if the question is whether the call may begin: not about its result, its effects or its next steps."""
        return self.editable and self.result is None and not self.question and self.effects is None

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The values that come from labelled text, if this is why a person is asked."""
        return self.ruling.traces if self.ruling is not None else ()

    @property
    def parts(self) -> tuple[PermissionRequest, ...]:
        """One request for each permission and target of the question."""
        alone = dataclasses.replace(self, others=())
        more = (dataclasses.replace(alone, permission=permission, target=target) for permission, target in self.others)
        return (alone, *more)


Policy = Callable[[PermissionRequest], Decision | Ruling]
"""Decides about a request: a function of a `PermissionRequest` that returns a `Decision` or a `Ruling`.

Example:
    >>> def only_reads(request: PermissionRequest) -> Decision:
    ...     return Decision.ALLOW if request.permission == "read" else Decision.DENY
    >>> policy: Policy = only_reads
"""


# The answers of a person, and how they are asked: any failure means no.


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer. `Answer.ONCE`, `Answer.ALWAYS`, `Answer.NO`, `Answer.no("why")`, `Answer.edit({…})` and
    `Answer.some([…])` make one.

    Args:
        kind: "once", "always" or "no".
        feedback: a text for the model, with a yes too.
        arguments: all arguments, where they shall be others.
        review: show the result to the person before the model sees it.
        by: who answered.
        paths: of the effects of a trial run that are applied; None: all of them.

    Example:
        >>> Answer.no("Not on a Friday.").feedback
        'Not on a Friday.'
    """

    kind: Literal["once", "always", "no"]
    feedback: str = ""
    arguments: Mapping[str, Any] | None = None
    review: bool = False
    by: str = ""
    paths: Sequence[str] | None = None

    ONCE: ClassVar[Answer]
    ALWAYS: ClassVar[Answer]
    NO: ClassVar[Answer]

    def __post_init__(self) -> None:
        if self.kind not in ("once", "always", "no"):
            raise ValueError(f"Answer({self.kind!r}): the kind must be once, always or no")
        if self.arguments is not None and not isinstance(self.arguments, Mapping):
            raise TypeError(f"Answer(arguments={self.arguments!r}): pass a dictionary of arguments")
        if isinstance(self.paths, str) or (self.paths is not None and not all(isinstance(p, str) for p in self.paths)):
            raise TypeError(f"Answer(paths={self.paths!r}): pass a list of paths")

    @classmethod
    def no(cls, feedback: str = "", by: str = "") -> Answer:
        return cls("no", feedback, by=by)

    @classmethod
    def edit(cls, arguments: Mapping[str, Any], feedback: str = "", by: str = "") -> Answer:
        """Answers that the call shall run with these arguments instead."""
        return cls("once", feedback, arguments, by=by)

    @classmethod
    def some(cls, paths: Sequence[str], feedback: str = "", by: str = "") -> Answer:
        """Answers that only these effects of a trial run shall be applied."""
        return cls("once", feedback, by=by, paths=tuple(paths) if not isinstance(paths, str) else paths)


Answer.ONCE = Answer("once")
Answer.ALWAYS = Answer("always")
Answer.NO = Answer("no")

Approver = Callable[[PermissionRequest], Answer | bool | Awaitable[Answer | bool]]
"""Answers what the policy asks: a function of a `PermissionRequest`, async or not. `True` is `Answer.ONCE`, `False` is
`Answer.NO`.

Example:
    >>> async def ask(request: PermissionRequest) -> Answer:
    ...     return Answer.ONCE if request.target == "web" else Answer.no("Only web.")
    >>> approver: Approver = ask
"""


async def nobody(request: PermissionRequest) -> Answer:
    """Refuses every request: the default approver, because no one is there to ask.

    Args:
        request: the request.

    Example:
        >>> Agent(Scripted("Hello!"), approve=nobody).run_sync("Hi").text
        'Hello!'
    """
    return Answer.no(by="nobody")


async def approve_all(request: PermissionRequest) -> Answer:
    """Approves every request once, as `--yes` does, except those that only a person can answer.

    Args:
        request: the request.

    Example:
        >>> Agent(Scripted("Hello!"), approve=approve_all).run_sync("Hi").text
        'Hello!'
    """
    if request.personal:
        return Answer.no(by="--yes")
    return Answer("once", by="--yes")


class OpeningQuestions:
    """Puts questions of sources that open to an approver, one after the other."""

    def __init__(self, approve: Approver) -> None:
        self._approve = approve
        self._lock = asyncio.Lock()

    async def ask(self, request: PermissionRequest) -> bool:
        """Returns whether a person said yes."""
        async with self._lock:
            try:
                return (await answer_of(self._approve, request, Secrets())).kind != "no"
            except Waiting:  # nobody is there now, and the program cannot wait
                return False


class AskingSource(Protocol):
    """A source of tools that may have a question while it opens, such as whether to start its program unconfined."""

    def ask_while_opening(self, questions: OpeningQuestions | None) -> None:
        """Puts the questions of the next opening there; without it, or with None, each of them is answered no."""


def let_ask(source: object, questions: OpeningQuestions | None) -> None:
    """Lets an `AskingSource` that is about to be opened put its questions there; any other source has none.

    The method is found by its name, so that a wrapper may forward it, as in `secrets_of`.
    """
    ask: Callable[[OpeningQuestions | None], None] | None = getattr(source, "ask_while_opening", None)
    if ask is not None:
        ask(questions)


async def ask_approver(approve: Approver, request: PermissionRequest) -> Answer | bool:
    """Returns what an approver answers, async or not."""
    answer = approve(request)
    return await answer if inspect.isawaitable(answer) else answer


async def answer_of(approve: Approver, request: PermissionRequest, secrets: Secrets) -> Answer:
    """Returns the approver's answer; no, if it fails or gives no answer. Raises only `Waiting` or a cancellation."""
    try:
        answer: object = await ask_approver(approve, request)
    except Waiting:
        raise
    except (Exception, SystemExit) as error:
        log.error("the approver failed on %s: %s", request.spec.name, secrets.mask_all(describe_failure(error)))
        return Answer.no(f"the question could not be asked ({type(error).__name__})", by="error")
    except asyncio.CancelledError:
        if is_cancelled_itself():
            raise
        return Answer.no("the question was closed without an answer", by="error")  # its own future was cancelled
    if isinstance(answer, Answer):
        return answer
    if isinstance(answer, bool):
        return Answer.ONCE if answer else Answer.NO
    log.error("the approver answered with %s, which is not an Answer", secrets.mask_all(type(answer).__name__))
    return Answer.no("the question got no clear answer", by="error")


# Exceptions of a custom policy or approver, for the log: type and position, never the message.


def describe_failure(error: BaseException) -> str:
    """Returns the type and the innermost position: messages and source lines may hold the arguments."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (
        f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    )


# The text for a person: everything that will run, and nothing that only looks like it.


LONGEST_VALUE = 4_000  # characters of one value
LONGEST_PREVIEW = 24_000
IN_PREVIEW = 200  # characters of a value from which on a preview stands for it
MOST_VALUES = 50  # arguments or targets of one question
_SPACES = re.compile(r" {24,}")
_BLANK_LINES = re.compile(r"\n(?: *\n){2,}")
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_INVISIBLE = frozenset(  # of other categories, and yet nothing is seen
    [*map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0))]
    + [
        chr(code)
        for start, end in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
        for code in range(start, end + 1)
    ]
)
_MARKS = re.compile(
    r"(?<=[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{3})[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]"
)


def show_invisible(text: str, limit: int = LONGEST_VALUE) -> str:
    """Marks everything invisible and counts every long gap.

    Marks are written in ⟨⟩, which appear nowhere else: where the text has them itself they are escaped too. Of a longer
    text the beginning and the end are shown, with the number of characters between them that were left out.
    """
    if len(text) <= limit:
        return _mark_invisible(text)
    head, tail = limit * 2 // 3, limit // 3
    left_out = f"⟨{len(text) - head - tail:,} characters left out⟩"
    return f"{_mark_invisible(text[:head])}{left_out}{_mark_invisible(text[len(text) - tail :])}"


NOT_EDITABLE = "The tool asks for this during its call, so its arguments can no longer be changed."


def request_text(request: PermissionRequest) -> str:
    """Renders the whole question as plain text."""
    if request.result is not None:
        return _review_text(request)
    if request.question:
        return "\n".join([f"{_render_tool(request)}:", *_indent(request.question), *_render_arguments(request)])
    if request.effects is not None:
        return "\n".join([*_effects_text(request, request.effects), *_render_arguments(request)])
    lines = [f"{_render_tool(request)} wants to"]
    parts = request.parts
    for part in parts[:MOST_VALUES]:
        lines += _indent(f"{part.permission or 'run'} {part.target}".strip())
        lines += real_path_lines(part)
    lines += [f"  ⟨{len(parts) - MOST_VALUES:,} more targets⟩"] if len(parts) > MOST_VALUES else []
    if request.ruling is not None:
        lines.append(f"Asked because: {one_line(request.ruling.reason)}")
        lines += [f"  also: {one_line(str(trace))}" for trace in request.traces[1:]]
    if request.introduction:
        lines += ["No person has approved this tool yet. Its own description:"]
        lines += _indent(request.introduction, LONGEST_PREVIEW)
    if request.preview:
        lines += [
            "Changes since the last approval:" if request.personal and not request.traces else "It would change:",
            *_indent(request.preview, LONGEST_PREVIEW),
        ]
    lines += _render_arguments(request)
    lines += [] if request.editable else [NOT_EDITABLE]
    if request.rules_to_remember:
        lines += ['"Always" stores, for this tool in this session:']
        lines += [line for rule in request.rules_to_remember for line in _indent(rule)]
    return "\n".join(lines)


def _effects_text(request: PermissionRequest, effects: ShownEffects) -> list[str]:
    lines = [f"{_render_tool(request)} ran as a trial; nothing is changed yet. Apply its effects?"]
    lines += _indent(request.target) if request.target else []
    lines.append(f"It {one_line(effects.summary)}:")
    lines += [f"  {kind} {one_line(path)}" for kind, path in effects.files[:MOST_VALUES]]
    more = len(effects.files) - MOST_VALUES
    lines += [f"  ⟨{more:,} more effects⟩"] if more > 0 else []
    if request.ruling is not None:
        lines.append(f"Asked because: {one_line(request.ruling.reason)}")
        lines += [f"  also: {one_line(str(trace))}" for trace in request.traces[1:]]
    return [*lines, *_indent(request.preview, LONGEST_PREVIEW)] if request.preview else lines


def _review_text(request: PermissionRequest) -> str:
    assert request.result is not None
    result = request.result
    lines = [f"{_render_tool(request)} has run. May the model see this result?", *_indent(result.for_llm)]
    lines += [
        f"  with an attachment: {one_line(item.name)} {one_line(item.media_type)}, {len(item.data):,} bytes"
        for item in result.attachments
    ]
    return "\n".join([*lines, *_render_arguments(request)])


def _render_tool(request: PermissionRequest) -> str:
    known = [request.spec.origin, f"server {request.call.server}" if request.call.server != "local" else ""]
    origin = ", ".join(one_line(text) for text in known if text)
    return f"{request.spec.name} ({origin})" if origin else request.spec.name


def _render_arguments(request: PermissionRequest) -> list[str]:
    if not request.arguments:
        return ["It has no arguments."]
    lines = ["With these arguments:"]
    for name, value in list(request.arguments.items())[:MOST_VALUES]:
        written = value_text(value)
        if request.preview and (not request.personal or request.traces) and len(written) > IN_PREVIEW:
            written = f"⟨{len(written):,} characters; their effect is shown above⟩"
            lines.append(f"  {one_line(name)}: {written}")
            continue
        shown = _indent(written)
        lines += [f"  {one_line(name)}: {shown[0].strip()}"] if len(shown) == 1 else [f"  {one_line(name)}:", *shown]
    more = len(request.arguments) - MOST_VALUES
    return [*lines, f"  ⟨{more:,} more arguments⟩"] if more > 0 else lines


def real_path_lines(request: PermissionRequest) -> list[str]:
    """Returns the real path of a target, if its text is another."""
    if request.permission not in PATHS or not request.target:
        return []
    real_paths = identity(request.permission, request.target, request.scope)
    if not isinstance(real_paths, frozenset):  # no path at all, or one that is too long
        return []
    root = paths.roots(str(request.scope.workspace))[0]
    written = paths.normalise(f"{root}/{request.target}" if not request.target.startswith("/") else request.target)
    elsewhere = sorted(path for path in real_paths if path != written)
    shown = elsewhere if len(real_paths) > 1 else [p for p in real_paths if p != root and not p.startswith(f"{root}/")]
    return [f"    resolves to {one_line(path)}" for path in shown]


def value_text(value: Any) -> str:
    """Writes an argument as text: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, TypeError, RecursionError):
        return repr(value)


def _indent(text: str, limit: int = LONGEST_VALUE) -> list[str]:
    """Puts text behind a bar, so that no value can pass for a line of the question."""
    return [f"  │ {line}" for line in show_invisible(text, limit).split("\n")]


def one_line(text: str) -> str:
    """Marks everything invisible, line ends too."""
    return show_invisible(text, 500).replace("\n", "⟨U+000A⟩")


def _mark_invisible(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        text = "".join(char if char == "\n" or _is_seen(char) else f"⟨U+{ord(char):04X}⟩" for char in text)
        text = _MARKS.sub(lambda mark: f"⟨U+{ord(mark[0]):04X}⟩", text)
        text = _BLANK_LINES.sub(lambda gap: f"\n⟨{gap[0].count(chr(10)) - 1:,} blank lines⟩\n", text)
    return _SPACES.sub(lambda gap: f"⟨{len(gap[0]):,} spaces⟩", text)


def _is_seen(char: str) -> bool:
    if char == " ":
        return True
    return char not in "⟨⟩" and char not in _INVISIBLE and unicodedata.category(char) not in _INVISIBLE_CATEGORIES


# Forms to fill in: the fields are the arguments of the request, and the answer must fit the form.


ROUNDS = 3  # attempts to fill in a form
LONGEST_PROBLEM = 500  # characters
LONGEST_LINE = 300  # characters of a title, a description or a list of choices
LONGEST_NAME = 60  # characters of the name of a field
_TYPES = ("string", "number", "integer", "boolean", "array")


class Asker(Protocol):
    """Answers a request; a gate is one."""

    async def ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer: ...


async def fill_form(
    asker: Asker, ctx: ToolContext, question: str, form: Mapping[str, Any]
) -> Mapping[str, Any] | Literal[False] | None:
    """Asks for the fields of a form, with their defaults. Returns the answer; None: declined; False: cancelled.

    An answer that does not fit is asked for again, a few times.
    """
    fields: Mapping[str, Any] = form["properties"]
    shown = {name: field.get("default") for name, field in fields.items()}
    problem = ""
    for _ in range(ROUNDS):
        answer = await asker.ask(ctx, _make_request(ctx, f"{problem}{question}", shown, form))
        if answer.kind == "no":
            return False if answer.by in ("cancelled", "error") else None
        content = {key: value for key, value in (answer.arguments or shown).items() if value is not None}
        try:
            return check_answer(form, content)
        except ToolError as error:
            shown = {**shown, **{key: value for key, value in content.items() if key in fields}}
            problem = f"The answer does not fit: {visible(show_both_ends(error.message, LONGEST_PROBLEM))}\n"
    return None


async def ask_own_form(
    asker: Asker, ctx: ToolContext, message: str, form: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Asks for the fields of a tool's own form. Returns the answer; None if it was declined."""
    check_form(form)
    lines = [f"{ctx.spec.name} asks:", *(f"  {line}" for line in message.split("\n")), "Edit the fields, or deny:"]
    fields = [describe_field(name, field, form) for name, field in form["properties"].items()]
    return await fill_form(asker, ctx, "\n".join([*lines, *fields]), form) or None


def check_answer(form: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer as the form wants it. Raises `ToolError` if it does not fit."""
    fields = form["properties"]
    if unknown := [key for key in content if key not in fields]:
        raise ToolError(f"there is no field {visible(unknown[0][:60])}")
    from forge.core.arguments.schema import compile_parser  # only where a form is asked for

    return dict(compile_parser(ToolSpec(name="answer", description="", parameters=form))(content))


def check_form(form: Mapping[str, Any]) -> None:
    """Raises `ToolError` for a schema that is not a flat form."""
    from forge.core.arguments.schema import check_schema

    fields = form.get("properties")
    try:
        check_schema("answer", form)
        flat = (
            form.get("type") == "object"
            and isinstance(fields, Mapping)
            and all(isinstance(field, Mapping) and field.get("type") in _TYPES for field in fields.values())
        )
    except DefinitionError as error:
        raise ToolError(f"the form of a question is no valid schema: {error}", ErrorKind.SYSTEM) from None
    if not flat:
        raise ToolError(
            "a question's form must be a flat object: texts, numbers, booleans and choices", ErrorKind.SYSTEM
        )


def describe_field(name: str, field: Mapping[str, Any], form: Mapping[str, Any]) -> str:
    """Returns a line about a field, for the person who fills it in."""
    about = [str(field["type"])]
    about += ["required"] if name in required_names(form) else []
    if choices := _choices(field):
        about.append(f"one of {_one_line(', '.join(map(str, choices)))}")
    elif choices := _choices(field.get("items")):
        about.append(f"any of {_one_line(', '.join(map(str, choices)))}")
    said = " - ".join(filter(None, (_one_line(field.get(key)) for key in ("title", "description"))))
    return f"  {_one_line(name, LONGEST_NAME)} ({', '.join(about)}){f': {said}' if said else ''}"


def required_names(form: Mapping[str, Any]) -> Sequence[Any]:
    found = form.get("required")
    return found if isinstance(found, list) else ()


def _choices(schema: Any) -> list[Any]:
    """Returns the choices of a field, plain or titled."""
    if not isinstance(schema, Mapping):
        return []
    plain = schema.get("enum")
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        return [one["const"] for one in titled if isinstance(one, Mapping) and "const" in one]
    return plain if isinstance(plain, list) else []


def _one_line(text: object, limit: int = LONGEST_LINE) -> str:
    return " ".join(show_both_ends(text, limit).split()) if isinstance(text, str) else ""


def _make_request(
    ctx: ToolContext, question: str, fields: Mapping[str, Any], form: Mapping[str, Any]
) -> PermissionRequest:
    return PermissionRequest(
        ctx.spec,
        ctx.call,
        dict(fields),
        None,
        "",
        ctx.scope,
        question=question,
        editable=bool(fields),
        personal=True,
        form=form,
    )
