"""Reads policy files: one rule per line, or YAML, with limits and with the position of every rule."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forge.core.arguments.names import near
from forge.core.yaml import LARGEST_YAML, Unreadable, bounded_text, bounded_yaml, safe_loader
from forge.permissions.rules import LAYERS, SYNTAX, PolicyError, RuleEntry, without_comment

_YAML = re.compile(r"[-\[{%\"'&!|>]|[\w-]+[ \t]*:(?:[ \t]|$)")

Document = list[RuleEntry] | dict[str, list[RuleEntry]]
"""Rules, or rules by layer."""


def read_document(source: str | os.PathLike[str]) -> Document:
    """Reads the rules in a file, or in a text. A text of one word is the name of a file."""
    if isinstance(source, str) and not _is_file_name(source):
        return _parse_text(source, "the given text", "")
    path = Path(source)
    return _parse_text(_read_or_raise(lambda: bounded_text(path)), str(path), path.suffix.lower())


def _is_file_name(source: str) -> bool:
    if "\n" in source or len(source) > 4_096 or not source.strip():
        return False
    return (len(source.split()) == 1 and not _YAML.match(source)) or Path(source).is_file()


def _parse_text(text: str, name: str, suffix: str) -> Document:
    if len(text) > LARGEST_YAML:
        raise _make_size_error(name)
    lines = [(number, without_comment(line)) for number, line in enumerate(text.splitlines(), 1)]
    written = [(number, line) for number, line in lines if line]
    if suffix in (".yaml", ".yml", ".json") or (written and _YAML.match(written[0][1])):
        return _from_yaml(text, name)
    return [RuleEntry(line, f"{name}, line {number}") for number, line in written]


def _make_size_error(name: str) -> PolicyError:
    return PolicyError(
        f"{name}: cannot read the policy: it is larger than {LARGEST_YAML // 1024} KiB. Use fewer rules, with globs."
    )


def _from_yaml(text: str, name: str) -> Document:
    def build(yaml: Any, source: str) -> Document:
        return _RuleReader(name, yaml).document(yaml.compose(source, Loader=safe_loader()))

    document: Document = _read_or_raise(lambda: bounded_yaml(text, name, build))
    return document


def _read_or_raise(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Unreadable as error:
        raise PolicyError(f"{error.place}: cannot read the policy: {error.problem}. {error.advice}") from None


class _RuleReader:
    """Reads the rules from a YAML tree."""

    def __init__(self, name: str, yaml: Any) -> None:
        self.name = name
        self.yaml = yaml

    def document(self, node: Any) -> Document:
        if node is None or self._is_null(node):
            return []
        if not isinstance(node, self.yaml.MappingNode):
            return self._rules(node)
        fields = self._fields(node)
        if "permissions" in fields:  # a whole forge.yaml
            return self.document(fields["permissions"])
        known = ("rules", "permissions", *LAYERS)
        for key, value in fields.items():
            if key not in known:
                hint = near(key, known, 1)
                meant = f"did you mean {hint[0]!r}?" if hint else f"known keys: {', '.join(known)}."
                raise self._error(value, f"unknown key {key!r}; {meant} Put the rules in a list under `rules:`.")
        if not fields.keys() & set(LAYERS):
            return self._rules(fields["rules"]) if fields else []
        if "rules" in fields:
            raise self._error(
                fields["rules"], "`rules` and layers cannot be combined. Put these rules under one of the layers."
            )
        return {layer: self._rules(fields[layer]) for layer in LAYERS if layer in fields}

    def _rules(self, node: Any) -> list[RuleEntry]:
        if self._is_null(node):
            return []
        if not isinstance(node, self.yaml.SequenceNode):
            raise self._error(node, f"the rules are not a list. {SYNTAX}")
        return [RuleEntry(self._value(item), self._where(item)) for item in node.value]

    def _value(self, node: Any) -> Any:
        if isinstance(node, self.yaml.ScalarNode):
            return None if self._is_null(node) else str(node.value)
        if isinstance(node, self.yaml.SequenceNode):
            return [self._value(item) for item in node.value]
        return {key: self._value(value) for key, value in self._fields(node).items()}

    def _fields(self, node: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in fields:
                raise self._error(key, f"the key {name!r} occurs twice. Keep one of them.")
            fields[name] = value
        return fields

    def _is_null(self, node: Any) -> bool:
        return isinstance(node, self.yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"

    def _where(self, node: Any) -> str:
        return f"{self.name}, line {node.start_mark.line + 1}"

    def _error(self, node: Any, problem: str) -> PolicyError:
        return PolicyError(f"{self._where(node)}: cannot read the policy: {problem}")
