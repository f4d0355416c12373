"""The keys about what tools may reach: rules, directories, addresses, secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from forge.core.context import ProgramLimits
from forge.core.secrets.live_text import SecretSource
from forge.project.config.reader import SECRET_LIFETIME
from forge.project.config.section import Schema, Section, belongs_to

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.permissions.labels.settings import LabelSettings
    from forge.project.config.kinds import (
        Above0,
        Argument,
        FilePath,
        HomePath,
        Host,
        Key,
        LabelledSource,
        Matches,
        OneOf,
        Rule,
        Text,
        VariableName,
        Whole,
    )
    from forge.project.config.reader import ConfigReader

Sandbox = Literal["auto", "required", "bubblewrap", "landlock", "off"]
SANDBOXES: tuple[str, ...] = get_args(Sandbox)
Trial = Literal["off", "auto", "always"]
TRIALS: tuple[str, ...] = get_args(Trial)
MODES = ("open", "allowlist", "deny-all")


class RootEntry(Section, alone="path"):
    """A directory beside the workspace that tools may read, or read and write."""

    path: Annotated[FilePath, Key("A directory, relative to this file.", "../lib", required=True)]
    access: Annotated[
        str, OneOf("read", "write", expected="read or write"), Key("`read`, or `write` to read and write.", "read")
    ] = "read"

    @property
    def writable(self) -> bool:
        return self.access == "write"


class WorkspaceEntry(Section, example={"root": ".", "roots": [{"path": "../lib", "access": "read"}]}):
    """The directories in which tools work."""

    root: Annotated[FilePath | None, Key("The directory in which tools work, relative to this file.", ".")] = None
    roots: Annotated[
        tuple[RootEntry, ...], Key("Further directories that tools may use.", [{"path": "../lib", "access": "read"}])
    ] = ()
    writes: Annotated[bool, Key("Set to false to make the workspace read-only.", False, unset=True)] = True


def _at_least(least: int, unit: str = "") -> Schema:
    """Returns the rule that a limit is none, which is 0, or at least so much."""
    message = f"expected 0 (no limit) or at least {least}{unit}"
    return {"not": {"exclusiveMinimum": 0, "exclusiveMaximum": least}, "errorMessage": message}


class ProgramsEntry(
    Section,
    rules=[{"properties": {"memory": _at_least(64, " MiB"), "processes": _at_least(16), "open_files": _at_least(64)}}],
    example={"memory": 4096, "temporary": 2048},
):
    """The limits of programs in a sandbox. 0: no limit."""

    memory: Annotated[
        int,
        Whole(),
        Key("MiB of memory that each process of a program may write to.", 4096, unset=ProgramLimits().memory),
    ] = ProgramLimits().memory
    processes: Annotated[
        int,
        Whole(),
        Key(
            "Processes and threads of a program, with all that it starts. The kernel does not apply this limit to"
            " root.",
            2000,
            unset=ProgramLimits().processes,
        ),
    ] = ProgramLimits().processes
    open_files: Annotated[
        int, Whole(), Key("Files that each process may have open.", 8192, unset=ProgramLimits().open_files)
    ] = ProgramLimits().open_files
    temporary: Annotated[
        int,
        Whole(),
        Key("MiB of temporary files, in the `/tmp` of the sandbox.", 2048, unset=ProgramLimits().temporary),
    ] = ProgramLimits().temporary

    @property
    def limits(self) -> ProgramLimits:
        return ProgramLimits(self.memory, self.processes, self.open_files, self.temporary)


class EgressEntry(Section, example={"mode": "allowlist", "domains": ["api.example.com", "*.example.org"]}):
    """The addresses that tools may connect to."""

    mode: Annotated[
        Literal["open", "allowlist", "deny-all"],
        Key(
            "`open`: every public address. `allowlist`: only `domains`; the default if there are any. `deny-all`:"
            " none.",
            "allowlist",
            unset="open",
            variable="FORGE_EGRESS",
        ),
    ] = "open"
    domains: Annotated[
        tuple[Text, ...],
        Key("Hosts; *.host for subdomains; optionally with :port.", ["api.example.com", "*.example.org"]),
    ] = ()
    private: Annotated[
        tuple[Text, ...], Key("Private hosts, addresses or networks that tools may reach.", ["127.0.0.1:8080"])
    ] = ()
    inspect: Annotated[
        bool,
        Key(
            "Set to true to end the TLS of programs in the sandbox, so that what they send is seen as requests to the"
            " host that rules allow. Needs the extra `secrets`.",
            True,
            unset=False,
        ),
    ] = False
    passed: Annotated[
        tuple[Host, ...],
        Key(
            "Hosts of which the TLS of programs is never ended: clients that pin certificates, mutual TLS, gRPC.",
            ["*.googleapis.com"],
            name="pass",
        ),
    ] = ()

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        mode = "allowlist" if "domains" in values else "open"
        return super().from_keys(reader, {"mode": mode, **values}, key_path)


class PermissionsEntry(Section, example={"rules": ["allow read", "deny execute rm *"]}):
    """Rules that allow, ask or deny."""

    rules: Annotated[
        tuple[Rule, ...],
        Key(
            "ACTION PERMISSION|tool:GLOB|* [TARGET] [CONDITION …]. The last matching rule decides, but a deny by the"
            " user or the organisation always wins. Conditions are about labels, such as from:untrusted.",
            ["allow read", "ask write src/**", "deny execute rm *", {"action": "allow", "tool": "http_*"}],
        ),
    ] = ()


class LabelsEntry(
    Section, alone="enabled", example={"untrusted": ["path:downloads/**"], "private": ["path:customers/**"]}
):
    """Follows what others wrote, and private data, into later calls. `labels: off` turns it off."""

    enabled: Annotated[bool, Key("Set to false to follow nothing.", False, unset=True)] = True
    untrusted: Annotated[
        tuple[LabelledSource, ...],
        Key(
            "Results that others may have written: tool:GLOB, host:GLOB or path:GLOB.",
            ["path:downloads/**", "tool:read_mail"],
        ),
    ] = ()
    trusted: Annotated[
        tuple[LabelledSource, ...],
        Key(
            "Results that are trusted, though their tool says otherwise. `untrusted` wins over it.",
            ["tool:docs__*", "host:docs.example.com"],
        ),
    ] = ()
    private: Annotated[
        tuple[LabelledSource, ...],
        Key("Results that must not leave.", ["path:customers/**", "tool:get_user_information"]),
    ] = ()

    @property
    def settings(self) -> LabelSettings | bool:
        """The settings for an agent; False where labels are off."""
        from forge.permissions.labels.settings import LabelSettings  # loads the rules' hosts and paths

        if not self.enabled:
            return False
        return LabelSettings(untrusted=self.untrusted, trusted=self.trusted, private=self.private)


class SecretEntry(
    Section,
    rules=[
        {
            "not": {"allOf": [{"not": {"required": [one]}} for one in ("name", "file", "command", "keyring")]},
            "errorMessage": "expected where the secret is: a name, file, command or keyring",
        },
        belongs_to(("header",), "for", "expected `for`, the hosts that get the secret, beside it"),
        {
            "if": {"required": ["lifetime"]},
            "then": {"anyOf": [{"required": [one]} for one in ("file", "command", "keyring")]},
            "errorMessage": "expected a command, a file or keyring beside `lifetime`",
        },
    ],
    example={"name": "GITHUB_TOKEN", "for": ["api.github.com"], "header": "Authorization: Bearer {}"},
):
    """A secret: where its value is, and with `for`, the hosts whose requests get it in place of a placeholder."""

    name: Annotated[
        VariableName,
        Key(
            "An environment variable that holds the value, or a name for a value from elsewhere: `${NAME}` in headers"
            " and variables of servers stands for it. With `for`, programs find a placeholder in it.",
            "GITHUB_TOKEN",
        ),
    ] = ""
    file: Annotated[
        HomePath | None, Key("A file with the secret, readable only by its owner.", "~/.secrets/github")
    ] = None
    command: Annotated[
        tuple[Argument, ...],
        Key("A command that prints the secret. It runs outside of the sandbox.", ["gh", "auth", "token"]),
    ] = ()
    lifetime: Annotated[
        float,
        Above0,
        Key("Seconds after which the command, the file or the keyring is read again.", 300, unset=SECRET_LIFETIME),
    ] = SECRET_LIFETIME
    keyring: Annotated[
        Text, Key("SERVICE/USER in the system's keyring. Needs the extra `secrets`.", "github.com/alice")
    ] = ""
    hosts: Annotated[
        tuple[Host, ...],
        Key(
            "The hosts whose requests get the value: it is put in by the proxy of programs, which never hold it."
            " *.host for subdomains.",
            ["api.github.com"],
            name="for",
        ),
    ] = ()
    header: Annotated[
        str,
        Matches(
            r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\{\}[^\r\n]*",
            "a header with {} for the value, such as Authorization: Bearer {}",
        ),
        Key(
            "The header that gets the value, in place of {}. A user and a password after `Basic` become base64.",
            "Authorization: Bearer {}",
            unset="Authorization: Bearer {}",
        ),
    ] = "Authorization: Bearer {}"
    source: SecretSource | None = None  # of the value

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        return super().from_keys(reader, {**values, "source": reader.secret_source(key_path)}, key_path)
