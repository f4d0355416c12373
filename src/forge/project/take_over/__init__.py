"""Takes over the settings of another program: servers, rules, hooks, commands, agents and skills.

`plan_import` reads the other program's files and changes nothing. `write_import` writes what the plan shows. Nothing
becomes looser than it was there, and `not_taken` names every setting that is left out, with the reason.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.permissions.questions import Decision
from forge.project.config import read_configuration
from forge.project.read_yaml import parse_yaml
from forge.project.servers.change import Changed, add_items, put_value, read_config_text, write_config
from forge.project.servers.other_clients import CLIENTS, Converter, list_files, read_file
from forge.project.servers.plan import ServerPlan
from forge.project.take_over.claude import read_claude
from forge.project.take_over.codex import read_codex
from forge.project.take_over.findings import COMMANDS, Findings, NotTaken, RuleSource, as_written, unknown_source
from forge.project.take_over.opencode import read_opencode
from forge.workspace.paths import PathValidator
from forge.workspace.state import state_directory

SOURCES = (*CLIENTS, "codex", "opencode")
PARTS = ("servers", "rules", "hooks", "agents", "commands", "skills", "settings")
_READERS = {"claude-code": read_claude, "codex": read_codex, "opencode": read_opencode}


@dataclass(frozen=True)
class ImportPlan:
    """The changes that an import would make.

    Args:
        config: the file that would change.
        before: its text.
        after: its text with everything but the servers, which are installed and tried first.
        files: the texts of new files, by their path in the workspace.
        servers: the servers.
        not_taken: what is left out or changed, with the file and the reason.
        read: the files that were read.
    """

    config: str
    before: str
    after: str
    files: dict[str, str] = field(default_factory=dict)
    servers: list[ServerPlan] = field(default_factory=list)
    not_taken: list[NotTaken] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return self.before == self.after and not self.files and not self.servers

    @property
    def diff(self) -> str:
        """The change of the configuration as a diff."""
        name = os.path.basename(self.config)
        lines = (self.before.splitlines(), self.after.splitlines())
        return "\n".join(difflib.unified_diff(*lines, name, name, lineterm="", n=2))


def find_sources(workspace: Path, home: Path | None = None) -> dict[str, Findings]:
    """Returns the programs that have something to import, with what their files hold."""
    found = {source: _read_source(source, workspace, home) for source in SOURCES}
    return {source: one for source, one in found.items() if one.read}


def plan_import(
    source: str,
    workspace: str | os.PathLike[str] = ".",
    config: str | None = None,
    *,
    parts: Sequence[str] = PARTS,
    with_home: bool = True,
    home: Path | None = None,
) -> ImportPlan:
    """Reads what another program has, and plans the import. Changes nothing. Raises `ToolError`.

    Args:
        source: claude-code, claude-desktop, codex, cursor, opencode, vscode, or a file with MCP servers.
        workspace: the project.
        config: the file to change; by default the project's forge.yaml.
        parts: what to take over, of `PARTS`.
        with_home: whether to read the person's own files, too.
        home: the person's directory, by default HOME.
    """
    root = Path(workspace).absolute()
    config = config or str(root / "forge.yaml")
    found = _read_source(source, root, home, with_home=with_home)
    if not found.read:
        raise unknown_source(source)
    before = read_config_text(config)
    after = _change(before, config, found, parts)
    read_configuration(after, config)  # raises: nothing is written that Forge could not read
    return ImportPlan(
        config,
        before,
        after,
        _choose_files(found, parts),
        found.servers if "servers" in parts else [],
        found.not_taken,
        found.read,
    )


def write_import(
    plan: ImportPlan,
    workspace: str | os.PathLike[str] = ".",
    write: Callable[[str, str], Changed] = write_config,
) -> Changed:
    """Writes the new files and the configuration of a plan, without its servers. Raises `ToolError`.

    No file is overwritten. A configuration that was trusted stays trusted, as with `forge mcp add`.

    Args:
        plan: what `plan_import` returned.
        workspace: the project.
        write: writes the configuration: gets its path and the text, and may add the servers.
    """
    root = Path(workspace).absolute()
    if read_config_text(plan.config) != plan.before:
        raise ToolError(
            f"{plan.config} has changed since the import was planned", ErrorKind.CONFIG, "Import once more."
        )
    written: list[Path] = []
    try:
        for path, text in plan.files.items():
            target = _resolve_new(root, path)
            with target.open("x", encoding="utf-8") as file:
                written.append(target)
                file.write(text)
        return write(plan.config, plan.after)
    except BaseException as error:
        for one in written:
            one.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        problem = f"the import cannot be written: {error.strerror or error}"
        raise ToolError(problem, ErrorKind.CONFIG, "Nothing was written. Check the directory, and try again.") from None


def _resolve_new(root: Path, path: str) -> Path:
    if path.startswith(f"{COMMANDS}/"):
        folder = state_directory(root, "commands")
        if folder != root / COMMANDS:
            raise ToolError(
                f"{path} cannot be written: .forge/ was not made by Forge on this machine",
                ErrorKind.CONFIG,
                "Review and trust it with `forge trust`, or leave the commands out: --part rules …",
            )
        return folder / os.path.basename(path)
    target = PathValidator(root).resolve_for_writing(path).path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _read_source(source: str, workspace: Path, home: Path | None = None, *, with_home: bool = True) -> Findings:
    own = home if home is not None else Path(os.environ.get("HOME", "") or "/")
    found = Findings(workspace, own)
    if source in CLIENTS:
        for path in list_files(source, workspace, {"HOME": str(own)}):
            if with_home or path.is_relative_to(workspace):
                _read_servers(found, path)
    if source in _READERS:
        _READERS[source](found, with_home=with_home)
    elif source not in CLIENTS:
        _read_servers(found, Path(source), must_read=True)
    found.servers = [
        one._replace(entry={**one.entry, "disabled": True}) if one.name in found.disabled else one
        for one in found.servers
    ]
    return found


def _read_servers(found: Findings, path: Path, *, must_read: bool = False) -> None:
    """Reads a file with MCP servers. `must_read`: the person named the file."""
    try:
        read = read_file(path, found.workspace)
    except ToolError as error:
        if must_read:
            raise
        found.leave(path, "the file", error.message)
        return
    if not read.servers and must_read:
        raise ToolError(f"{path}: there are no servers", ErrorKind.USER, "Name a file with mcpServers or servers.")
    if read.servers:
        found.read.append(found.show(path))
    converter = Converter(found.workspace, read.inputs)
    found.servers += [converter.convert(name, said) for name, said in read.servers.items()]


# Puts the findings into the text of the configuration. What is there already stays, and is not repeated.


def _change(text: str, config: str, found: Findings, parts: Sequence[str]) -> str:
    document = parse_yaml(text, config) or {}
    if not isinstance(document, dict):
        raise ToolError(f"{config} is not a mapping", ErrorKind.CONFIG, "Fix the file first: `forge doctor`.")
    if "rules" in parts:
        text = _add_rules(text, document, found)
    if "hooks" in parts:
        for kind, entries in found.hooks.items():
            there = _list_at(document, "hooks", kind)
            known = [one.get("command") if isinstance(one, dict) else one for one in there]
            if new := [one for one in entries if one["command"] not in known]:
                text = add_items(text, ("hooks", kind), new, file=config)
    if "agents" in parts:
        there_agents = document.get("agents") or {}
        for name, entry in found.agents.items():
            if name not in there_agents:
                text = put_value(text, ("agents", name), entry, config)
            elif there_agents[name] != entry:
                found.leave(config, f"agents.{name}", "forge.yaml has an agent of this name, which stays as it is")
    if "settings" in parts:
        for path, value in found.settings.items():
            text = _put_setting(text, document, path, value, found, config)
    for path, items in found.items.items():
        if path == ("skills", "paths") and "skills" in parts:
            there = _list_at(document, *path) or ([] if document.get("skills") else ["skills"])
            new = [one for one in items if one not in there]
            if new and not _list_at(document, *path):
                new = [*there, *new]
        elif path[0] == "workspace" and "settings" in parts:
            known = [one.get("path") if isinstance(one, dict) else one for one in _list_at(document, *path)]
            new = [one for one in items if one["path"] not in known]
        else:
            continue
        text = add_items(text, path, new, file=config) if new else text
    return text


def _put_setting(
    text: str, document: dict[str, Any], path: tuple[str, ...], value: Any, found: Findings, config: str
) -> str:
    there = document.get(path[0])
    if len(path) > 1:
        there = there.get(path[1]) if isinstance(there, dict) else None
    if there is None:
        return put_value(text, path, value, config)
    if there != value:
        found.leave(config, ".".join(path), "forge.yaml has another value, which stays as it is")
    return text


def _list_at(document: dict[str, Any], section: str, key: str) -> list[Any]:
    inner = document.get(section)
    there = inner.get(key) if isinstance(inner, dict) else None
    return there if isinstance(there, list) else [there] if isinstance(there, str) else []


def _add_rules(text: str, document: dict[str, Any], found: Findings) -> str:
    """Adds the rules so that neither those of forge.yaml nor the imported ones become looser.

    The last rule that matches decides. So imported allows stand before the rules of forge.yaml, and denies behind.
    """
    path = ("permissions", "rules")
    there = _list_at(document, *path)
    allow, ask, deny = (found.rules[one] for one in ("allow", "ask", "deny"))
    if not there:
        rules = [*found.ordered, *allow, *ask, *deny]
        return add_items(text, path, rules) if rules else text
    if all(one in there for one in (*found.ordered, *allow, *ask, *deny)):
        return text
    own = [one.decision for one in map(as_written, there) if one is not None]
    if found.ordered or (ask and Decision.DENY in own):
        for one in (*found.ordered, *allow, *ask):
            if one not in there:
                _leave_rule(found, one)
        allow, ask = [], []
        deny = deny or []
    front = [one for one in allow if one not in there]
    back = [one for one in (*ask, *deny) if one not in there]
    text = add_items(text, path, front, first=True) if front else text
    return add_items(text, path, back) if back else text


def _leave_rule(found: Findings, source: RuleSource) -> None:
    shown = source if isinstance(source, str) else " ".join(source.values())
    found.leave("forge.yaml", shown, "forge.yaml has rules, and their order decides: write this one where it belongs")


def _choose_files(found: Findings, parts: Sequence[str]) -> dict[str, str]:
    """Returns the files that are new. One that is there with another text stays, and is named."""
    chosen = {}
    for path, text in found.files.items():
        if ("commands" if path.startswith(COMMANDS) else "hooks") not in parts:
            continue
        target = found.workspace / path
        if not os.path.lexists(target):
            chosen[path] = text
            continue
        try:
            same = target.is_file() and not target.is_symlink() and target.read_bytes() == text.encode()
        except OSError:
            same = False
        if not same:
            found.leave(target, "the file", "it is there already, with another text, and is not overwritten")
    return chosen
