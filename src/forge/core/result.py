"""The result of a tool: one value for three readers (model, person, program)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple, Protocol

from forge.core.errors import ErrorKind, ToolError
from forge.core.files import KIND_HEAD, kind_of
from forge.core.plain_values import brief, describe_unreadable, number, plain, sendable, short_name, text_of, visible

# A label of a result: what kind of text it is, and where it comes from.


UNTRUSTED = "untrusted"  # others may have written it
PRIVATE = "private"  # it must not leave
KINDS = (UNTRUSTED, PRIVATE)
LONGEST_ORIGIN = 200  # characters


class Label(NamedTuple):
    """Says that a result may contain what others wrote, or what must not leave, and where the result comes from.

    Args:
        kind: "untrusted" or "private".
        origin: the tool, and the host, the server or the path.

    Example:
        >>> Label("untrusted", "web_fetch example.com").origin
        'web_fetch example.com'
    """

    kind: str
    origin: str


def read_labels(wire: Any) -> tuple[Label, ...]:
    """Reads labels from JSON, of a stored message or result. Anything unknown counts as untrusted."""
    if not isinstance(wire, list | tuple):
        return ()
    found = []
    for one in wire:
        kind, origin = one if isinstance(one, list | tuple) and len(one) == 2 else (UNTRUSTED, one)
        found.append(Label(kind if kind in KINDS else UNTRUSTED, str(origin)[:LONGEST_ORIGIN]))
    return tuple(found)


def merge_labels(*groups: Iterable[Label]) -> tuple[Label, ...]:
    """Returns each label once, in order."""
    return tuple(dict.fromkeys(label for group in groups for label in group))


LARGEST_ON_WIRE = 8 * 1024 * 1024  # bytes of all attachments of a result; what is larger is named
MOST_ATTACHED = 100
PREVIEW = 500  # characters of a line in a preview
DONE = "Done."  # the text for the model of a tool that returned nothing to read
RESULT = "result"  # the key in `data` of a value that is neither an object nor text, as MCP's SDK has it


class _NotLabelled(tuple[Label, ...]):
    """No labels, of a result that Forge made from a plain value: nobody else holds the result yet."""

    __slots__ = ()


_NOT_LABELLED = _NotLabelled()
_new = object.__new__


@dataclass(frozen=True, slots=True)
class Attachment:
    """Binary content beside the text. A large one is stored in a file as well.

    Args:
        media_type: such as "image/png".
        data: the content.
        name: the name of a file.
        path: a file with the same content, where there is one.
        left_out: the number of bytes that are not in `data`, though they belong to it.
        url: of a file in a prompt: the address from which the provider fetches the content.

    Example:
        >>> Attachment("image/png", b"...", "chart.png").name
        'chart.png'
    """

    media_type: str
    data: bytes
    name: str = ""
    path: str = ""
    left_out: int = 0
    url: str = ""

    @property
    def is_unread(self) -> bool:
        """True if it only names a file of the workspace, such as `Image("photo.png")`; `Agent.run` reads the file."""
        return bool(self.path) and not self.data and not self.left_out

    @property
    def text(self) -> str:
        """The content of a text file; "" for other files."""
        return self.data.decode("utf-8", "replace") if self.media_type.startswith("text/") else ""

    def without_data(self) -> Attachment:
        """Returns the attachment without its content, for readers that do not get it."""
        return replace(self, data=b"", left_out=len(self.data) or self.left_out)

    def to_dict(self) -> dict[str, Any]:
        from base64 import b64encode  # only where results leave the process

        name, kind = (short_name(sendable(one)) for one in (self.name, self.media_type))
        wire: dict[str, Any] = {"name": name, "media_type": kind, "data": b64encode(self.data).decode()}
        if self.left_out:
            where = f"the content is in {self.path}" if self.path else "the content is only in the result itself"
            wire |= {"bytes": self.left_out, "path": sendable(self.path)}
            wire["left_out"] = f"{self.left_out:,} bytes are too many to send here; {sendable(where)}"
        return wire


_IMAGE, _AUDIO, _DOCUMENT = "image/*", "audio/*", "application/*"  # types of files that are not read yet
_NAMED = {_IMAGE: "Image", _AUDIO: "Audio", _DOCUMENT: "Document"}
_SOUNDS = {  # containers of sound and of moving pictures
    "application/ogg": "audio/ogg",
    "video/mp4": "audio/mp4",
    "video/x-matroska": "audio/webm",
}
_OFFICE = {
    ("application/zip", "docx"): "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ("application/zip", "xlsx"): "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ("application/x-ole-storage", "doc"): "application/msword",
    ("application/x-ole-storage", "xls"): "application/vnd.ms-excel",
}
_TEXTS = {"csv": "text/csv", "md": "text/markdown", "html": "text/html", "htm": "text/html"}


def Image(source: str | PathLike[str] | bytes, *, name: str = "") -> Attachment:
    """Returns an image for a prompt, or for the result of a tool.

    Args:
        source: the path of a file in the workspace, a URL that the provider fetches, or the bytes.
        name: the name of the file; by default the end of the path.

    Example:
        >>> Image("https://example.com/photo.png").media_type
        'image/png'
    """
    return _make_attachment(_IMAGE, source, name)


def Audio(source: str | PathLike[str] | bytes, *, name: str = "") -> Attachment:
    """Returns a sound for a prompt, such as a WAV or MP3 file.

    Args:
        source: the path of a file in the workspace, a URL that the provider fetches, or the bytes.
        name: the name of the file; by default the end of the path.

    Example:
        >>> Audio("https://example.com/talk.mp3").media_type
        'audio/mpeg'
    """
    return _make_attachment(_AUDIO, source, name)


def Document(source: str | PathLike[str] | bytes, *, name: str = "") -> Attachment:
    """Returns a document for a prompt: a PDF file, text, or a file of Word or Excel.

    Args:
        source: the path of a file in the workspace, a URL that the provider fetches, or the bytes.
        name: the name of the file; by default the end of the path.

    Example:
        >>> Document(b"%PDF-1.7", name="report.pdf").media_type
        'application/pdf'
    """
    return _make_attachment(_DOCUMENT, source, name)


def _make_attachment(wanted: str, source: object, name: str) -> Attachment:
    if isinstance(source, bytes | bytearray | memoryview):
        return recognise_file(wanted, bytes(source), name)
    if not isinstance(source, str | PathLike) or not (path := fspath(source)) or not isinstance(path, str):
        words = f"{_NAMED[wanted]}({brief(source)}): expected a path, a URL or bytes"
        raise ToolError(words, ErrorKind.VALIDATION, f'Write {_NAMED[wanted]}("file"), or give the bytes.')
    scheme, is_url, _ = path.partition("://")
    if not is_url or not isinstance(source, str):
        return Attachment(wanted, b"", name or path.rpartition("/")[2], path)
    host, _, file = path.partition("://")[2].partition("/")
    if scheme.lower() not in ("http", "https") or not host or "@" in host or not path.isascii() or " " in path:
        words = f"{_NAMED[wanted]}({brief(path)}): this is no address from which a provider can fetch a file"
        hint = "Write https://host/path with the characters of a URL and without a password, or give the bytes."
        raise ToolError(words, ErrorKind.VALIDATION, hint)
    from mimetypes import guess_type

    file = file.partition("?")[0].partition("#")[0].rpartition("/")[2]
    guessed = _TEXTS.get(file.rpartition(".")[2].lower()) or guess_type(file)[0] or ""
    is_right = guessed.startswith(wanted[:-1]) or (wanted == _DOCUMENT and guessed.startswith("text/"))
    return Attachment(guessed if is_right else wanted, b"", name or file, url=path)


def recognise_any(data: bytes, name: str) -> Attachment:
    """Returns an image, a sound or a document, as its bytes say. Raises `ToolError` for anything else."""
    for wanted in (_IMAGE, _AUDIO):
        try:
            return recognise_file(wanted, data, name)
        except ToolError:
            continue
    return recognise_file(_DOCUMENT, data, name)


def recognise_file(wanted: str, data: bytes, name: str) -> Attachment:
    """Returns an attachment with the type that its bytes have. Raises `ToolError` for another kind than `wanted`."""

    name, ending = name.rpartition("/")[2], name.rpartition(".")[2].lower()
    is_text, kind = _is_text(data) and not data.startswith(b"%PDF-"), None
    found = "text/plain" if is_text else ""
    if not is_text and (kind := kind_of(data[:KIND_HEAD])) is not None:
        found = kind.media_type
    if wanted == _AUDIO:
        found = _SOUNDS.get(found, found)
    elif wanted == _DOCUMENT:
        found = _OFFICE.get((found, ending), _TEXTS.get(ending, found) if is_text else found)
    fits = found in ("application/pdf", *_OFFICE.values()) or is_text if wanted == _DOCUMENT else False
    if data and (fits or (wanted != _DOCUMENT and found.startswith(wanted[:-1]))):
        return Attachment(found, data, name)
    what = "empty" if not data else "text" if is_text else f"a file of the kind {kind.name}" if kind else "unknown"
    message = f"{_NAMED[wanted]}({brief(name) if name else 'bytes'}): the content is {what}, not what the name says"
    hint = "Use Image, Audio or Document, as the content is; Attachment(media_type, data) for another type."
    raise ToolError(message, ErrorKind.VALIDATION, hint)


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


@dataclass(slots=True)
class Failure:
    """Why a call failed and what to try next. Treat it as frozen, like the result it belongs to.

    Args:
        message: what went wrong.
        kind: who has to act.
        suggestion: what to do next.
        passing: True: nothing happened, and the same call may work in a moment.
        cause: the exception, for logs. It is never serialised.

    Example:
        >>> ToolResult.error("no such file", "not_found", "List the directory.").failure.suggestion
        'List the directory.'
    """

    message: str
    kind: ErrorKind = ErrorKind.SYSTEM
    suggestion: str = ""
    passing: bool = False
    cause: BaseException | None = field(default=None, repr=False, compare=False)

    def text(self) -> str:
        return f"{self.message}\n{self.suggestion}" if self.suggestion else self.message

    def __str__(self) -> str:
        return self.text()


class StoredText(Protocol):
    """A whole long text, stored outside of memory."""

    name: str  # of the one file that several results share; "": a file of its own
    total_bytes: int
    problem: str  # why not all of it is stored

    @property
    def total_lines(self) -> int: ...  # of a text with a problem: those counted before it
    def masked(self, mask: Callable[[str], str]) -> StoredText: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def is_binary(self) -> bool: ...  # it is no text
    def pieces(self) -> Iterator[bytes]: ...


@dataclass(slots=True, kw_only=True, repr=False)
class ToolResult:
    """The only thing an execution returns: text for the model, text for the person, data for the program.

    Treat it as frozen: the methods return changed copies. (A frozen dataclass would cost every call a fifth of its
    time.)

    Args:
        for_llm: the text for the model.
        for_user: the text for the person, shown unless `silent`.
        silent: nothing is shown to the person.
        title: one line for a UI.
        data: for programs; the model never sees it. An object that a tool function returned is the data itself; a
            number, a list or another value that is neither an object nor text is `data["result"]`.
        attachments: images and files.
        failure: why the call failed; None where it did not.
        pending: work continues in the background; a `ToolCompleted` event follows.
        whole: all of a text of which `for_llm` holds a part; the output limit takes it away.
        labels: says that others may have written it, or that it must not leave. A step sets them.

    Example:
        >>> ToolResult(for_llm="3 rows", data={"rows": 3}).success
        True
        >>> ToolResult.of(6).data
        {'result': 6}
    """

    for_llm: str
    for_user: str = ""
    silent: bool = False
    title: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    attachments: tuple[Attachment, ...] = ()
    failure: Failure | None = None
    pending: bool = False
    whole: StoredText | None = field(default=None, compare=False)
    labels: tuple[Label, ...] = ()

    def __post_init__(self) -> None:
        if not self.for_llm and self.failure is not None:
            self.for_llm = self.failure.text()

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in ("for_llm", "for_user", "title", "data")}
        flags = [name for name in ("silent", "pending") if getattr(self, name)]
        failure = [f"failure={self.failure.kind}: {brief(self.failure.message)}"] if self.failure else []
        attached = [f"{len(self.attachments)} attachments"] if self.attachments else []
        texts = [f"{name}={brief(value)}" for name, value in shown.items() if value]
        return f"ToolResult({', '.join([*texts, *flags, *attached, *failure])})"

    @property
    def is_error(self) -> bool:
        return self.failure is not None

    @property
    def success(self) -> bool:
        return self.failure is None

    @classmethod
    def text(cls, text: str) -> ToolResult:
        return cls(for_llm=text)

    @classmethod
    def quiet(cls, text: str) -> ToolResult:
        """Makes a result for the model alone."""
        return cls(for_llm=text, silent=True)

    @classmethod
    def started(cls, text: str) -> ToolResult:
        """Makes the result of a call whose work continues in the background."""
        return cls(for_llm=text, pending=True)

    @classmethod
    def for_both(cls, text: str) -> ToolResult:
        """Makes a result with the same text for the model and the person."""
        return cls(for_llm=text, for_user=text)

    @classmethod
    def error(cls, message: str, kind: ErrorKind | str = ErrorKind.USER, suggestion: str = "") -> ToolResult:
        return cls(for_llm="", failure=Failure(message, ErrorKind(kind), suggestion))

    def with_error(self, error: BaseException) -> ToolResult:
        """Returns this result, marked as failed by `error`, which is stored for the log."""
        failure = self.failure or Failure(self.for_llm or text_of(error))
        return replace(self, failure=replace(failure, cause=error))

    def with_data(self, **entries: Any) -> ToolResult:
        """Returns this result with further entries for programs."""
        made = _new(type(self))  # without `__init__`: repaired calls pay for this
        made.for_llm, made.for_user, made.silent, made.title = self.for_llm, self.for_user, self.silent, self.title
        made.data, made.attachments, made.failure = {**self.data, **entries}, self.attachments, self.failure
        made.pending, made.whole, made.labels = self.pending, self.whole, self.labels
        return made

    def with_labels(self, labels: tuple[Label, ...]) -> ToolResult:
        """Returns this result with these labels. A result that was made from a plain value gets them itself."""
        if self.labels is _NOT_LABELLED:  # no copy, which would cost a labelled call a twentieth of its time
            self.labels = labels
            return self
        made = _new(type(self))
        made.for_llm, made.for_user, made.silent, made.title = self.for_llm, self.for_user, self.silent, self.title
        made.data, made.attachments, made.failure = self.data, self.attachments, self.failure
        made.pending, made.whole, made.labels = self.pending, self.whole, labels
        return made

    @classmethod
    def of(cls, value: object) -> ToolResult:
        """Turns the value of a tool function into a result. Never raises."""
        kind = type(value)
        if kind is str:
            if not value:
                return _from_text(cls, DONE, {RESULT: value})
            return _from_text(cls, value if value.isascii() else sendable(value), {})  # type: ignore[attr-defined,arg-type]
        if kind is int:
            try:
                return _from_text(cls, str(value), {RESULT: value})
            except ValueError:  # past Python's limit of digits
                return _from_text(cls, text := number(value), {RESULT: text})  # type: ignore[arg-type]
        if kind is float and value - value == 0:  # type: ignore[operator]  # finite
            return _from_text(cls, repr(value), {RESULT: value})
        if kind is bool:
            return _from_text(cls, "true" if value else "false", {RESULT: value})
        if value is None:
            return cls(for_llm=DONE)
        if isinstance(value, ToolResult):
            return value
        if isinstance(value, Attachment):
            if value.is_unread or value.url:
                message = f"it returned {brief(value.url or value.path)} as a file, without the content"
                return cls.error(message, ErrorKind.SYSTEM, "Return the bytes: Image(Path(…).read_bytes()).")
            return cls(
                for_llm=f"[{value.media_type}, {len(value.data)} bytes] {value.name}".rstrip(), attachments=(value,)
            )
        if isinstance(value, bytes | bytearray | memoryview):
            return cls.of(Attachment("application/octet-stream", bytes(value)))
        return _from_structure(value)

    @classmethod
    def failed(cls, error: BaseException, *, during: str, log_id: str = "") -> ToolResult:
        """Turns an exception into words. `during` is the call, so that the model sees what it sent.

        With a `log_id` the words of an unexpected exception are withheld and found in the log under that id.
        """
        if isinstance(error, ToolError):
            error.__traceback__ = None  # it explains itself; a result must not keep whole frames alive
            words, hint = error.message, error.suggestion
            failure = Failure(words, error.kind, hint, error.passing, error)
        else:
            words, hint = f"failed unexpectedly; the log explains error {log_id}" if log_id else text_of(error), ""
            kind = ErrorKind.TIMEOUT if isinstance(error, TimeoutError) else ErrorKind.SYSTEM
            failure = Failure(words, kind, cause=error)
        text = visible(f"{during}: {words}\n{hint}" if hint else f"{during}: {words}")
        made = _from_text(cls, text if text.isascii() else sendable(text), {})
        made.failure = failure
        return made

    def masked(self, mask: Callable[[Any], Any]) -> ToolResult:
        """Returns the result with every text in it passed through `mask`."""
        failure = self.failure
        if failure is not None:
            failure = replace(failure, message=mask(failure.message), suggestion=mask(failure.suggestion))
        return replace(
            self,
            for_llm=mask(self.for_llm),
            for_user=mask(self.for_user),
            title=mask(self.title),
            data=mask(self.data),
            attachments=tuple(_mask_attachment(one, mask) for one in self.attachments),
            failure=failure,
            whole=None if self.whole is None else self.whole.masked(mask),
        )

    def with_attachments_within(self, most: int) -> ToolResult:
        """Leaves out the content of attachments that would exceed so many bytes together."""
        if not self.attachments:
            return self
        fitting, left = [], most
        for index, one in enumerate(self.attachments):
            fits = len(one.data) <= left and index < MOST_ATTACHED
            left -= len(one.data) if fits else 0
            fitting.append(one if fits else one.without_data())
        return replace(self, attachments=tuple(fitting))

    def preview(self, max_lines: int = 3) -> list[str]:
        """Returns a few lines for a UI; of a silent result only an error."""
        if self.failure is not None:
            parts = {"Error": self.failure.message, "Suggestion": self.failure.suggestion}
            return [f"{what}: {' '.join(text[:PREVIEW].split())}" for what, text in parts.items() if text]
        text = "" if self.silent else self.for_user or self.for_llm
        if not text:
            return []
        lines = [line[:PREVIEW] for line in text.split("\n", max_lines)[:max_lines]]
        return [*lines, "…"] if text.rstrip("\n").count("\n") >= max_lines else lines

    def to_dict(self, *, id: str = "", name: str = "", whole: bool = False) -> dict[str, Any]:
        """Returns the wire form, safe to dump as JSON, without the cause of a failure.

        Attachments beyond 8 MiB have only their name, size and file, unless `whole` is set.
        """
        attachments = self.attachments if whole else self.with_attachments_within(LARGEST_ON_WIRE).attachments
        wire: dict[str, Any] = {
            "id": short_name(id),
            "name": short_name(name),
            "success": self.success,
            "is_error": self.is_error,
            "for_llm": sendable(self.for_llm),
            "silent": self.silent,
            "async": self.pending,
            "title": sendable(self.title),
            "data": plain(self.data),
            "attachments": [one.to_dict() for one in attachments],
            "error": "",
        }
        if self.labels:
            wire["labels"] = [[label.kind, sendable(label.origin)] for label in self.labels]
        if self.for_user:
            wire["for_user"] = sendable(self.for_user)
        if self.failure is not None:
            wire["error"] = sendable(self.failure.message)
            wire["error_type"] = str(self.failure.kind)
            if self.failure.suggestion:
                wire["suggestion"] = sendable(self.failure.suggestion)
        return wire

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> ToolResult:
        """Reads the result that `to_dict` wrote."""
        from base64 import b64decode

        failure = None
        if wire.get("is_error"):
            failure = Failure(wire.get("error", ""), ErrorKind(wire["error_type"]), wire.get("suggestion", ""))
        return cls(
            for_llm=wire["for_llm"],
            for_user=wire.get("for_user", ""),
            silent=wire.get("silent", False),
            title=wire.get("title", ""),
            data=wire.get("data") or {},
            attachments=tuple(
                Attachment(
                    a["media_type"], b64decode(a["data"]), a.get("name", ""), a.get("path", ""), a.get("bytes", 0)
                )
                for a in wire.get("attachments", ())
            ),
            failure=failure,
            pending=wire.get("async", False),
            labels=read_labels(wire.get("labels")),
        )


def _from_text(cls: type[ToolResult], text: str, data: Mapping[str, Any]) -> ToolResult:
    """Makes a result of a text, without `__init__`, since most results are made here."""
    made = _new(cls)
    made.for_llm, made.for_user, made.silent, made.title, made.data = text, "", False, "", data
    made.attachments, made.failure, made.pending, made.whole, made.labels = (), None, False, None, _NOT_LABELLED
    return made


def _mask_attachment(attachment: Attachment, mask: Callable[[Any], Any]) -> Attachment:
    encoding = "utf-8"
    try:
        text = attachment.data.decode()
    except UnicodeDecodeError:
        encoding = "latin-1"  # every byte a character: what is there stays as it is
        text = attachment.data.decode(encoding)
    hidden: str = mask(text)
    data = attachment.data if hidden == text else hidden.encode(encoding, "replace")
    names = {"media_type": mask(attachment.media_type), "name": mask(attachment.name)}
    return replace(attachment, data=data, **names)


def _from_structure(value: object) -> ToolResult:
    data = plain(value)
    if isinstance(data, str) and data == describe_unreadable(value):
        return ToolResult.error(
            f"it ran, but it returned {data}, which a model cannot read",
            ErrorKind.SYSTEM,
            "Return text, numbers, lists, dictionaries, dataclasses, pydantic models or a ToolResult; instead of an "
            "iterator, list(…).",
        )
    if isinstance(data, str):  # an enum, a date, NaN: its text as it is
        return ToolResult(for_llm=data, data={RESULT: data})

    failure = read_failure(data)
    if failure is not None:
        others = {key: one for key, one in data.items() if key not in _FAILURE}
        more = [json.dumps(others, ensure_ascii=False, separators=(",", ":"))] if others else []
        return ToolResult(for_llm="\n".join([failure.text(), *more]), data=data, failure=failure)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return ToolResult(for_llm=text, data=data if isinstance(data, dict) else {RESULT: data})


_FAILURE = frozenset({"success", "error", "error_type", "suggestion"})


def read_failure(data: Any) -> Failure | None:
    """Reads `{"success": false, "error": "text"}`, the value with which a function or a script reports a failure.

    None for any other value: without a text in `error`, the value is data like any other.
    """
    if not isinstance(data, Mapping) or data.get("success") is not False:
        return None
    error, kind, suggestion = data.get("error"), data.get("error_type"), data.get("suggestion")
    if not isinstance(error, str) or not error.strip():
        return None
    return Failure(
        visible(sendable(error)),
        ErrorKind(kind) if isinstance(kind, str) and kind in _KINDS else ErrorKind.USER,
        visible(sendable(suggestion)) if isinstance(suggestion, str) else "",
    )


_KINDS = frozenset(map(str, ErrorKind))


# The answer to the question whether a call of a lost worker took effect.


ReconciledState = Literal["done", "not_done", "unknown"]


class Reconciled(NamedTuple):
    """Answers whether a call took effect, after the worker that ran it was lost.

    Args:
        state: "done", "not_done" or "unknown".
        result: the result of a call that was done: what the tool would have returned.
        reason: how this is known, or why it is not. People and the event log see it.
        final: of "not_done": the call cannot take effect any more, even if the worker that began it still runs. Without
            it, Forge repeats the call only if the process of that worker has certainly ended.

    Example:
        >>> def find_transfer(key: str, arguments: dict[str, object]) -> Reconciled:
        ...     sent = {"run-1/run-1.2/call-7": "receipt 12"}  # ask the bank
        ...     return Reconciled.done(sent[key]) if key in sent else Reconciled.not_done()
        >>> find_transfer("run-1/run-1.2/call-7", {}).state, find_transfer("other", {}).state
        ('done', 'not_done')
    """

    state: ReconciledState
    result: Any = None
    reason: str = ""
    final: bool = False

    @classmethod
    def done(cls, result: Any = None, reason: str = "") -> Reconciled:
        """The call took effect, once. `result` is what the tool would have returned."""
        return cls("done", result, reason)

    @classmethod
    def not_done(cls, reason: str = "", *, final: bool = False) -> Reconciled:
        """The call took no effect, and no request of it is under way: it may run."""
        return cls("not_done", None, reason, final)

    @classmethod
    def unknown(cls, reason: str = "") -> Reconciled:
        """It cannot be found out: the call does not run, and the model learns that its state is unknown."""
        return cls("unknown", None, reason)


Reconcile = Callable[..., Reconciled | Awaitable[Reconciled]]
"""A function of the call's key and arguments, and of its `ToolContext` if it has a third parameter. It changes
nothing.
"""
