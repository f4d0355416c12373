"""The keys about what tools may reach: rules, directories, addresses, secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args

from forge.core.context import ProgramLimits
from forge.permissions.conditions import CONDITIONS
from forge.permissions.labels.settings import FORMS, LabelSettings, problem_with_entry
from forge.project.config.kinds import BLANK, AsWritten, Choice, FilePath, Flag, ListOf, Schema, Text, WholeNumber
from forge.project.config.reader import ConfigReader
from forge.project.config.section import Section, key

Sandbox = Literal["auto", "required", "bubblewrap", "landlock", "off"]
SANDBOXES: tuple[str, ...] = get_args(Sandbox)
MODES = ("open", "allowlist", "deny-all")


class RootEntry(Section, alone="path"):
    """A directory beside the workspace that tools may read, or read and write."""

    path: Path = key(FilePath(), "A directory, relative to this file.", "../lib", required=True)
    access: str = key(
        Choice("read", "write", expected="read or write"),
        "`read`, or `write` to read and write.",
        "read",
        default="read",
    )

    @property
    def writable(self) -> bool:
        return self.access == "write"


class WorkspaceEntry(Section, example={"root": ".", "roots": [{"path": "../lib", "access": "read"}]}):
    """The directories in which tools work."""

    root: Path | None = key(FilePath(), "The directory in which tools work, relative to this file.", ".")
    roots: tuple[RootEntry, ...] = key(
        ListOf(RootEntry), "Further directories that tools may use.", [{"path": "../lib", "access": "read"}]
    )
    writes: bool = key(Flag(), "Set to false to make the workspace read-only.", False, default=True, unset=True)


class ProgramsEntry(Section, example={"memory": 4096, "temporary": 2048}):
    """The limits of programs in a sandbox. 0: no limit."""

    memory: int = key(
        WholeNumber(),
        "MiB of memory that each process of a program may write to.",
        4096,
        default=ProgramLimits().memory,
        unset=ProgramLimits().memory,
    )
    processes: int = key(
        WholeNumber(),
        "Processes and threads of a program, with all that it starts. The kernel does not apply this limit to root.",
        2000,
        default=ProgramLimits().processes,
        unset=ProgramLimits().processes,
    )
    open_files: int = key(
        WholeNumber(),
        "Files that each process may have open.",
        8192,
        default=ProgramLimits().open_files,
        unset=ProgramLimits().open_files,
    )
    temporary: int = key(
        WholeNumber(),
        "MiB of temporary files, in the `/tmp` of the sandbox.",
        2048,
        default=ProgramLimits().temporary,
        unset=ProgramLimits().temporary,
    )

    @property
    def limits(self) -> ProgramLimits:
        return ProgramLimits(self.memory, self.processes, self.open_files, self.temporary)

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        for name, (least, unit) in _LEAST_OF_PROGRAMS.items():
            if 0 < values.get(name, 0) < least:
                raise reader.error(
                    f"{key_path}.{name}", f"expected 0 (no limit) or at least {least}{unit}, got {values[name]}"
                )
        return super().from_keys(reader, values, key_path)


_LEAST_OF_PROGRAMS = {"memory": (64, " MiB"), "processes": (16, ""), "open_files": (64, "")}


class EgressEntry(Section, example={"mode": "allowlist", "domains": ["api.example.com", "*.example.org"]}):
    """The addresses that tools may connect to."""

    mode: Literal["open", "allowlist", "deny-all"] = key(
        Choice(*MODES),
        "`open`: every public address. `allowlist`: only `domains`; the default if there are any. `deny-all`: none.",
        "allowlist",
        default="open",
        unset="open",
        variable="FORGE_EGRESS",
    )
    domains: tuple[str, ...] = key(
        ListOf(Text()),
        "Hosts; *.host for subdomains; optionally with :port.",
        ["api.example.com", "*.example.org"],
    )
    private: tuple[str, ...] = key(
        ListOf(Text()), "Private hosts, addresses or networks that tools may reach.", ["127.0.0.1:8080"]
    )

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        mode = "allowlist" if "domains" in values else "open"
        return super().from_keys(reader, {"mode": mode, **values}, key_path)


class _Rule(AsWritten):
    """`forge.permissions` reads it."""

    def schema(self) -> Schema:
        subject = f"\\*|{'|'.join(_any_case(one) for one in ('read', 'write', 'execute', 'network'))}"
        action = f"({'|'.join(_any_case(one) for one in ('allow', 'ask', 'deny'))})"
        plain: Schema = {"type": ["string", "number", "boolean"], "pattern": f"[^{BLANK}]"}
        listed: Schema = {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
        keys: Schema = {
            "action": {"type": "string", "pattern": f"^{action}$"},
            "permission": {"type": "string", "pattern": f"^({subject})$"},
            **dict.fromkeys(("tool", "target", "agent", "user", "channel", "from"), plain),
            **{name: {"enum": [value]} for name, value in CONDITIONS.items() if value},
            **dict.fromkeys(("match", "not_match"), listed),
        }
        rule = {"type": "object", "properties": keys, "additionalProperties": False, "required": ["action"]}
        either = [{"required": ["permission"]}, {"required": ["tool"]}]
        line = {"type": "string", "pattern": rf"^\s*{action}[^\S\n]+({subject}|tool:\S+)([^\S\n].*)?\s*$"}
        return {"anyOf": [line, {**rule, "anyOf": either}]}


class PermissionsEntry(Section, example={"rules": ["allow read", "deny execute rm *"]}):
    """Rules that allow, ask or deny."""

    rules: tuple[Any, ...] = key(
        ListOf(_Rule()),
        "ACTION PERMISSION|tool:GLOB|* [TARGET] [CONDITION …]. The last matching rule decides, but a deny by the user"
        " or the organisation always wins. Conditions are about labels, such as from:untrusted.",
        ["allow read", "ask write src/**", "deny execute rm *", {"action": "allow", "tool": "http_*"}],
    )


class _LabelledSource(Text):
    def read(self, reader: ConfigReader, value: Any, key_path: str) -> str:
        if problem := problem_with_entry(value):
            raise reader.error(key_path, f"{value!r:.60}: {problem}")
        return str(value)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^({'|'.join(FORMS)}):"}


class LabelsEntry(Section, example={"untrusted": ["path:downloads/**"], "private": ["path:customers/**"]}):
    """Follows what others wrote, and private data, into later calls. `labels: off` turns it off."""

    enabled: bool = key(Flag(), "Set to false to follow nothing.", False, default=True, unset=True)
    untrusted: tuple[str, ...] = key(
        ListOf(_LabelledSource()),
        "Results that others may have written: tool:GLOB, host:GLOB or path:GLOB.",
        ["path:downloads/**", "tool:read_mail"],
    )
    trusted: tuple[str, ...] = key(
        ListOf(_LabelledSource()),
        "Results that are trusted, though their tool says otherwise. `untrusted` wins over it.",
        ["tool:docs__*", "host:docs.example.com"],
    )
    private: tuple[str, ...] = key(
        ListOf(_LabelledSource()), "Results that must not leave.", ["path:customers/**", "tool:get_user_information"]
    )

    @classmethod
    def read(cls, reader: ConfigReader, value: Any, key_path: str) -> Any:
        return super().read(reader, {"enabled": value} if isinstance(value, bool) else value, key_path)

    @classmethod
    def schema(cls) -> Schema:
        made = super().schema()
        said: Schema = {name: made.pop(name) for name in ("description", "examples") if name in made}
        return {"anyOf": [{"type": "boolean"}, made], **said}

    @property
    def settings(self) -> LabelSettings | bool:
        """The settings for an agent; False where labels are off."""
        if not self.enabled:
            return False
        return LabelSettings(untrusted=self.untrusted, trusted=self.trusted, private=self.private)


class _HomePath(FilePath):
    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Path:
        return reader.path(os.path.expanduser(reader.text(value, key_path)))


class SecretFile(Section):
    """A file whose content is a secret."""

    file: Path = key(
        _HomePath(), "A file with the secret, readable only by its owner.", "~/.secrets/github", required=True
    )


def _any_case(word: str) -> str:
    """Returns a pattern that matches a word in upper and lower case."""
    return "".join(f"[{letter.upper()}{letter}]" for letter in word)
