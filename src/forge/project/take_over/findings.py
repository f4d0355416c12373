"""Collects the findings of an import, and reads the files of another program: bounded, inside their folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.secrets import Secrets
from forge.core.untrusted import one_line
from forge.core.yaml import Unreadable, bounded_text, bounded_yaml, safe_loader
from forge.permissions.rules import PolicyError, Rule, read_rule
from forge.project.servers.other_clients import LARGEST_FILE, strip_comments
from forge.project.servers.plan import ServerPlan

LARGEST_TEXT = 64 * 1024  # bytes of a command, an agent or a script
MOST_FILES = 100  # files of one folder
MOST_RULES = 2_000  # rules of one import
COMMANDS = ".forge/commands"
_COMMAND = re.compile(r"[a-z][a-z0-9-]{0,40}")
_AGENT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PLAIN = re.compile(r"[\w ./*@=+,~-]+", re.ASCII)
_FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)

RuleSource = str | dict[str, str]


class NotTaken(NamedTuple):
    """Something that the import leaves out, or changes, and the reason."""

    file: str
    key: str
    reason: str


@dataclass
class Findings:
    """The content of one program's files in Forge's terms. `not_taken` names all the rest."""

    workspace: Path
    home: Path
    servers: list[ServerPlan] = field(default_factory=list)
    rules: dict[str, list[RuleSource]] = field(default_factory=lambda: {"allow": [], "ask": [], "deny": []})
    ordered: list[RuleSource] = field(default_factory=list)  # rules of which the last match decides, as in Forge
    hooks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[tuple[str, ...], Any] = field(default_factory=dict)  # keys of forge.yaml, by their path
    items: dict[tuple[str, str], list[Any]] = field(default_factory=dict)  # for lists of forge.yaml
    files: dict[str, str] = field(default_factory=dict)  # texts of new files, by their path in the workspace
    not_taken: list[NotTaken] = field(default_factory=list)
    read: list[str] = field(default_factory=list)  # the files that were read
    disabled: set[str] = field(default_factory=set)  # servers that the person turned off there

    def leave(self, file: Path | str, key: str, reason: str) -> None:
        """Names something that is not taken over. A secret in the name is masked."""
        row = NotTaken(self.show(file), one_line(Secrets().mask_all(key), 120), reason)
        if row not in self.not_taken:
            self.not_taken.append(row)

    def show(self, file: Path | str) -> str:
        path = Path(file)
        for root, prefix in ((self.workspace, ""), (self.home, "~/")):
            if path.is_relative_to(root):
                return f"{prefix}{path.relative_to(root)}"
        return str(path)

    def root_of(self, path: Path) -> Path:
        """Returns the folder that a file may not lead out of: the project for its own files, else the home."""
        return self.workspace if path.is_relative_to(self.workspace) else self.home

    def read_text(self, path: Path, largest: int = LARGEST_TEXT) -> str | None:
        """Returns the text of a file; None, and a reason, if it cannot be used or leads out of its root."""
        if not os.path.lexists(path):
            return None
        root = self.root_of(path)
        try:
            if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
                raise Unreadable(str(path), "it leads out of its folder", "Copy the file.")
            text = bounded_text(path, largest).replace("\r\n", "\n")
        except Unreadable as error:
            self.leave(path, "the file", f"it cannot be read: {error.problem}")
            return None
        self.read.append(self.show(path))
        return text

    def read_json(self, path: Path) -> dict[str, Any]:
        """Returns the object of a JSON file with comments; {} if there is none, and a reason if it is broken."""
        text = self.read_text(path, LARGEST_FILE)
        if text is None:
            return {}
        try:
            document = json.loads(strip_comments(text))
        except (ValueError, RecursionError) as error:
            self.leave(path, "the file", f"it is not JSON: {one_line(str(error), 200)}")
            return {}
        if not isinstance(document, dict):
            self.leave(path, "the file", "it is not an object")
            return {}
        return document

    def list_files(self, folder: Path, ending: str = ".md", deepest: int = 2) -> Iterator[Path]:
        """Yields the files of a folder and of the folders in it, sorted; links to folders are not followed."""
        count = 0
        for place, folders, names in os.walk(folder):
            folders.sort()
            if len(Path(place).relative_to(folder).parts) >= deepest:
                folders.clear()
            for name in sorted(names):
                if name.endswith(ending):
                    count += 1
                    if count > MOST_FILES:
                        self.leave(folder, "more files", f"at most {MOST_FILES} are read")
                        return
                    yield Path(place, name)

    def add_rule(self, file: Path | str, key: str, action: str, rules: list[RuleSource], *, ordered: bool) -> None:
        """Adds rules that Forge can read. A rule that cannot be read is named; `key` is what the file says."""
        for source in rules:
            text = source if isinstance(source, str) else " ".join(source.values())
            try:
                read_rule(source, "an imported rule")
                problem = "" if text.isprintable() else "it has characters that cannot be seen"
            except PolicyError as error:
                problem = one_line(str(error), 200)
            if not problem and self.count_rules() >= MOST_RULES:
                problem = f"at most {MOST_RULES:,} rules are read"
            if problem:
                self.leave(file, key, problem)
            elif ordered:
                self.ordered.append(source)
            elif source not in self.rules[action]:
                self.rules[action].append(source)

    def count_rules(self) -> int:
        return len(self.ordered) + sum(map(len, self.rules.values()))

    def add_command(self, file: Path, name: str, text: str, front: Mapping[str, Any]) -> None:
        """Adds a slash command: its text, with the description as its title."""
        called = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        if not _COMMAND.fullmatch(called):
            self.leave(file, name, "a command's name has up to 41 lower-case letters, digits and dashes")
            return
        if not text.strip() or not self._is_harmless(file, name, text):
            return
        if called != name:
            self.leave(file, name, f"it is called /{called} here")
        for key in front:
            if key != "description":
                self.leave(file, f"{name}: {key}", "a command of Forge has no such setting; rules decide about tools")
        if re.search(r"^\s*!`|!`[^`]+`", text, re.MULTILINE):
            self.leave(file, f"{name}: !`…`", "Forge runs nothing before a command: the model reads it as text")
        if re.search(r"(?:^|\s)@[\w./~-]+", text):
            self.leave(file, f"{name}: @file", "files are not inserted: the model reads the name and can open the file")
        title = one_line(front.get("description") if isinstance(front.get("description"), str) else "", 200)
        self.add_file(
            file, f"{COMMANDS}/{called}.md", f"# {title}\n\n{text.strip()}\n" if title else f"{text.strip()}\n"
        )

    def add_agent(self, file: Path, name: str, entry: dict[str, Any]) -> None:
        """Adds a type of sub-agent."""
        if not _AGENT.fullmatch(name):
            self.leave(file, name, "an agent's name has up to 64 letters, digits, - and _")
        elif name in self.agents:
            self.leave(file, name, "another file has an agent of this name")
        elif self._is_harmless(file, name, entry.get("prompt", "")):
            self.agents[name] = entry

    def add_file(self, file: Path, path: str, text: str) -> None:
        if self.files.setdefault(path, text) != text:
            self.leave(file, path, "another file has a command of this name")

    def add_setting(self, file: Path, key: str, path: tuple[str, ...], value: Any) -> None:
        """Adds a key of forge.yaml; the first one found counts, as the more specific file is read first."""
        if self.settings.setdefault(path, value) != value:
            self.leave(file, key, "a more specific file says otherwise")

    def add_item(self, path: tuple[str, str], item: Any) -> None:
        there = self.items.setdefault(path, [])
        if item not in there:
            there.append(item)

    def add_root(self, file: Path, key: str, folder: str, access: str) -> bool:
        """Adds a directory beside the workspace, if there is one. Returns whether it did."""
        own = str(self.home / folder[2:]) if folder.startswith("~/") else folder
        if not folder.isprintable() or not os.path.isdir(self.workspace / own):
            self.leave(file, f"{key}: {folder}", "there is no such directory")
            return False
        self.add_item(("workspace", "roots"), {"path": own, "access": access})
        return True

    def _is_harmless(self, file: Path, name: str, text: str) -> bool:
        """Returns whether a text can be copied: no secret, and nothing that a person would not see in the preview."""
        if Secrets().mask_all(text) != text:
            self.leave(file, name, "it holds a secret, which is not copied: replace it by the name of a variable")
        elif any(not char.isprintable() and char not in "\n\t" for char in text):
            self.leave(file, name, "it has characters that cannot be seen")
        else:
            return True
        return False


def split_front(text: str) -> tuple[dict[str, Any], str]:
    """Splits a Markdown file into its front matter ({} if it has none or it is broken) and the rest."""
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    try:
        said = bounded_yaml(found[1], "front matter", lambda yaml, source: yaml.load(source, Loader=safe_loader()))
    except Unreadable:
        said = dict(
            re.findall(r"^([\w-]+):[ \t]*(.+)$", found[1], re.MULTILINE)
        )  # `description: a: b`, as they take it
    return ({str(key): value for key, value in said.items()} if isinstance(said, dict) else {}), text[found.end() :]


def rule(action: str, permission: str = "", target: str = "", tool: str = "") -> RuleSource:
    """Returns a rule: a line where a line is clear, else a mapping."""
    if tool and not permission and not target:
        return f"{action} tool:{tool}"
    if not tool and _PLAIN.fullmatch(target or "x"):
        return " ".join(filter(None, (action, permission, target)))
    said = {"action": action, "permission": permission, "tool": tool, "target": target}
    return {key: value for key, value in said.items() if value}


def as_written(source: Any) -> Rule | None:
    """Returns the rule of forge.yaml that is there already; None if it cannot be read."""
    try:
        return read_rule(source, "forge.yaml")
    except PolicyError:
        return None


def mapping_of(value: Any) -> dict[str, Any]:
    return {str(key): one for key, one in value.items()} if isinstance(value, Mapping) else {}


def texts_of(value: Any) -> list[str]:
    """Returns the texts of a list; of a text, its words between commas."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def unknown_source(source: str) -> ToolError:
    return ToolError(
        f"{source[:200]!r} has nothing to import",
        ErrorKind.USER,
        "`forge import` lists what there is. Or name a file with MCP servers: forge import FILE",
    )
