"""The settings of labels, and how they label a call's result beside what tools declare."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from forge.core.context import Runnable, Scope
from forge.core.errors import ToolError
from forge.core.result import LONGEST_ORIGIN, PRIVATE, UNTRUSTED, Label
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool
from forge.permissions.targets import targets_of
from forge.permissions.targets.hosts import read_host

if TYPE_CHECKING:
    from forge.permissions.labels.provenance import Provenance


FORMS = ("tool", "host", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSettings:
    """Says which results are untrusted, trusted or private, beside what tools declare.

    An entry is `tool:GLOB`, `host:GLOB` or `path:GLOB`; a path is relative to the workspace. `untrusted` wins over
    `trusted`.

    Args:
        untrusted: results that others may have written.
        trusted: results that are trusted though their tools say otherwise.
        private: results that must not leave.

    Example:
        >>> labels = LabelSettings(untrusted=["path:downloads/**"], trusted=["host:docs.example.com"])
        >>> agent = Agent(Scripted("Hello!"), labels=labels)
    """

    untrusted: Collection[str] = ()
    trusted: Collection[str] = ()
    private: Collection[str] = ()

    def __post_init__(self) -> None:
        for name in ("untrusted", "trusted", "private"):
            entries = getattr(self, name)
            entries = (entries,) if isinstance(entries, str) else tuple(entries)
            for entry in entries:
                if problem := problem_with_entry(entry):
                    raise ValueError(f"LabelSettings({name}=…): {entry!r} cannot be used: {problem}")
            object.__setattr__(self, name, entries)


def problem_with_entry(entry: object) -> str:
    """Returns why an entry cannot be used, in words; empty if it can."""
    if not isinstance(entry, str):
        return "it is no text. Write tool:GLOB, host:GLOB or path:GLOB."
    form, mark, pattern = entry.partition(":")
    if form not in FORMS or not mark or not pattern.strip():
        return (
            "it is none of tool:GLOB, host:GLOB and path:GLOB. Write, for example, tool:github__* or path:downloads/**."
        )
    return ""


def matches_any(entries: Iterable[str], form: str, values: Iterable[str]) -> bool:
    """Returns whether an entry of a form matches one of the values."""
    patterns = [entry.partition(":")[2].strip().lower() for entry in entries if entry.startswith(f"{form}:")]
    return bool(patterns) and any(fnmatchcase(value.lower(), pattern) for value in values for pattern in patterns)


current_provenance: ContextVar[Provenance | None] = ContextVar("current_provenance", default=None)
"""What the run of the current call has read; None outside of runs, and where labels are off."""


# Decides the labels of a call's result: from the tool's spec, the settings, and what the call reads.


STATE = ".forge"
STORED_OUTPUTS = (f"{STATE}/spill/", f"{STATE}/files/", f"{STATE}/memory/")  # texts of tools, and of models
READS_MARKS = frozenset({"memory_get"})  # they know the labels of each entry


def find_fixed_labels(spec: ToolSpec, tool: Runnable, settings: LabelSettings) -> tuple[Label, ...] | None:
    """Returns the labels that every result of a tool has; None if they depend on the call.

    They do not, if neither the tool names targets nor any setting can apply.
    """
    names_targets = type(tool).targets is not Tool.targets
    if spec.target or names_targets or is_shell(spec):
        return None
    return None if settings.untrusted or settings.trusted or settings.private else _declare_labels(spec)


def _declare_labels(spec: ToolSpec) -> tuple[Label, ...]:
    untrusted = (Label(UNTRUSTED, spec.name),) if spec.trust == UNTRUSTED else ()
    return (*untrusted, Label(PRIVATE, spec.name)) if spec.private else untrusted


def label_call(
    settings: LabelSettings, spec: ToolSpec, tool: Runnable | None, arguments: Mapping[str, Any], scope: Scope
) -> tuple[Label, ...]:
    """Returns the labels of a result of this call."""
    if _is_plain(settings, spec, arguments):
        return ()
    try:
        targets = [str(one) for one in targets_of(spec, arguments, tool)]
    except Exception as error:
        if not isinstance(error, ToolError) and _are_valid(tool, arguments):
            raise  # a defect of the tool: its result is withheld
        targets = []  # arguments that the tool refuses: the result says so, and has the labels that are declared
    is_network = Permission.NETWORK in spec.permissions | spec.optional_permissions
    hosts = [name for target in targets for name in read_host(target).names] if is_network else []
    has_paths = not hosts and spec.permissions & {Permission.READ, Permission.WRITE}
    paths = relative_paths(targets, scope) if has_paths else []
    what = (hosts or paths or [""])[0]
    origin = f"{spec.name} {what}".strip()[:LONGEST_ORIGIN]
    found = []
    if _is_untrusted(settings, spec, targets, hosts, paths):
        found.append(Label(UNTRUSTED, origin))
    if spec.private or matches_settings(settings.private, spec, hosts, paths):
        found.append(Label(PRIVATE, origin))
    return tuple(found)


def _are_valid(tool: Runnable | None, arguments: Mapping[str, Any]) -> bool:
    if not isinstance(tool, Tool):
        return True
    try:
        tool.parse(arguments)
    except ToolError:
        return False
    return True


def _is_plain(settings: LabelSettings, spec: ToolSpec, arguments: Mapping[str, Any]) -> bool:
    """Says at once that most calls have no labels: the tool declares none, no setting can apply, no output is read."""
    if spec.trust == UNTRUSTED or spec.private or settings.untrusted or settings.private or is_shell(spec):
        return False
    return not any(type(value) is str and STATE in value for value in arguments.values())


def is_shell(spec: ToolSpec) -> bool:
    """Returns whether a tool of Forge runs programs."""
    return spec.category is Category.BUILTIN and Permission.EXECUTE in spec.permissions | spec.optional_permissions


def _is_untrusted(
    settings: LabelSettings, spec: ToolSpec, targets: list[str], hosts: list[str], paths: list[str]
) -> bool:
    if matches_settings(settings.untrusted, spec, hosts, paths):
        return True
    declared = spec.trust == UNTRUSTED or (spec.name not in READS_MARKS and any(map(_may_hold_outputs, paths)))
    if not declared and is_shell(spec):
        declared = any(map(prints_untrusted, targets))
    return declared and not matches_settings(settings.trusted, spec, hosts, paths)


def prints_untrusted(line: str) -> bool:
    """Returns whether a command line may print what a server sends, or a stored output of a tool."""
    from forge.permissions.shell.commands import may_fetch  # it loads a parser of shell lines

    return STATE in line or may_fetch(line)


def _may_hold_outputs(path: str) -> bool:
    """Returns whether a path is a stored output of a tool, or a folder with such outputs."""
    clean = normpath(path)
    return clean == STATE or f"{clean}/".startswith(STORED_OUTPUTS)


def matches_settings(entries: Collection[str], spec: ToolSpec, hosts: list[str], paths: list[str]) -> bool:
    """Returns whether an entry of the settings names the tool, a host or a path of a call."""
    if not entries:
        return False
    names = (spec.name, *spec.aliases)
    return (
        matches_any(entries, "tool", names)
        or matches_any(entries, "host", hosts)
        or matches_any(entries, "path", paths)
    )


def relative_paths(targets: list[str], scope: Scope) -> list[str]:
    """Returns the paths as the settings write them: relative to the workspace, where they are inside."""
    start = f"{scope.workspace}/"
    return [target.removeprefix(start).removeprefix("./") for target in targets]
