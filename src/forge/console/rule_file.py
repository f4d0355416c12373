"""Adds a rule to a project's own file: one line at the end of its list; all else stays."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from forge.console.console_state import ConsoleState
from forge.core.errors import ErrorKind, ToolError
from forge.permissions.policy import load_rules
from forge.permissions.rules import read_rule
from forge.project.read_yaml import parse_yaml, read_text
from forge.project.trust import FoundConfig, accept, read_accepted_text
from forge.workspace.state import replace_file


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the file."""

    rule: str
    before: str
    after: str
    diff: str

    @property
    def was(self) -> str:
        return sha256(self.before.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The project's file; `why_not` says why it cannot be written."""

    path: Path | None
    why_not: str = ""
    is_found: bool = False  # it was found in the workspace, and counts only as long as it is trusted
    workspace: Path = Path()

    @classmethod
    def of(cls, console: ConsoleState) -> RuleFile:
        config = console.project.options.config
        if console.project.options.built is not None:
            return cls(None, "a build cannot be changed")
        if config is None:
            return cls(None, "this project uses no forge.yaml")
        path = Path(config)
        if path.suffix not in (".yaml", ".yml"):
            return cls(path, f"{path.name} is not a YAML file")
        return cls(path, "", isinstance(config, FoundConfig), console.workspace)

    def with_rule(self, rule: str) -> Change:
        """Returns the change. Raises `PolicyError` for an invalid rule, `ToolError` for an unusable file."""
        if not rule.strip().isprintable():
            way = "Type the rule again: it contains an invisible character."
            raise ToolError("a rule must be one line of visible characters", ErrorKind.VALIDATION, way)
        rule = " ".join(rule.split())
        read_rule(rule, "the new rule")
        assert self.path is not None
        before = self._read()
        after = _add_rule(before, rule)
        load_rules(f"{after}\n")
        shown = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), self.path.name, self.path.name
        )
        return Change(rule, before, after, "".join(shown))

    def _read(self) -> str:
        """Refuses a file that changed since it was trusted: writing it would trust the other changes unseen."""
        assert self.path is not None
        text = read_text(str(self.path))
        if self.is_found and text != read_accepted_text(FoundConfig(str(self.path))):
            words = f"{self.path.name} has changed since you trusted it; the trusted version is in force"
            raise ToolError(words, ErrorKind.CONFIG, "Run `forge trust` first: it shows the difference.")
        return text

    def write(self, change: Change) -> None:
        """Writes all or nothing. The new text counts as trusted."""
        assert self.path is not None
        if self._read() != change.before:
            raise ToolError(f"{self.path.name} was changed meanwhile", ErrorKind.USER, "Look at the new difference.")
        path = self.path.resolve()
        try:
            replace_file(path, change.after, path.stat().st_mode & 0o777)
        except OSError as error:
            words = f"the rule could not be written to {self.path}: {error.strerror}"
            raise ToolError(
                words, ErrorKind.SYSTEM, "Nothing was changed. Make room or fix its permissions."
            ) from error
        if self.is_found:
            accept(self.workspace, change.after)


def _add_rule(text: str, rule: str) -> str:
    """Returns the document with one more rule, checked by reading it back."""
    quoted = json.dumps(rule, ensure_ascii=False)
    old = parse_yaml(text, "the file") or {}
    try:
        root = yaml.compose(text, yaml.SafeLoader)  # bounded, since it was read above
    except yaml.YAMLError as error:
        raise ToolError(f"the file cannot be read: {error}", ErrorKind.CONFIG, "Fix it by hand first.") from error
    permissions = _value(root, "permissions")
    rules = _value(permissions, "rules") if permissions is not None else None
    if isinstance(rules, yaml.SequenceNode) and rules.value:
        made = _after_last(text, rules, quoted)
    elif permissions is None:
        made = f"{text.rstrip()}\n\npermissions:\n  rules:\n    - {quoted}\n".lstrip("\n")
    else:
        raise _elsewhere(rule)
    wanted = {**old, "permissions": {**(old.get("permissions") or {})}}
    wanted["permissions"]["rules"] = [*(wanted["permissions"].get("rules") or ()), rule]
    try:
        if parse_yaml(made, "the file") == wanted:
            return made
    except ToolError:
        pass
    raise _elsewhere(rule)


def _after_last(text: str, rules: yaml.SequenceNode, quoted: str) -> str:
    last = rules.value[-1]
    at = last.end_mark.index
    if rules.flow_style:
        return f"{text[:at]}, {quoted}{text[at:]}"
    while at > 0 and text[at - 1] in " \n":  # the mark of a mapping is at the beginning of what comes next
        at -= 1
    line_end = text.find("\n", at)
    at = len(text) if line_end < 0 else line_end
    indent = " " * rules.start_mark.column
    return f"{text[:at]}\n{indent}- {quoted}{text[at:] or chr(10)}"


def _value(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _elsewhere(rule: str) -> ToolError:
    words = "the console cannot add to the way the rules are written in this file"
    return ToolError(words, ErrorKind.CONFIG, f"Add this line to permissions.rules yourself: - {rule}")
