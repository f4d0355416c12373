"""Checks a skill against the Agent Skills standard, as its reference validator does.

Forge also reads skills that the standard does not allow, such as those with further keys. `forge skill check` reports
them, since other programs may refuse them.
"""

from __future__ import annotations

import unicodedata
from typing import Any

FILES = ("SKILL.md", "skill.md")
KEYS = ("allowed-tools", "compatibility", "description", "license", "metadata", "name")
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1_024
LONGEST_COMPATIBILITY = 500


def is_standard_name(name: str) -> bool:
    """Returns whether a skill may have this name: lower-case letters and digits of any script, and single dashes."""
    plain = unicodedata.normalize("NFKC", name)
    return (
        0 < len(plain) <= LONGEST_NAME
        and plain == plain.lower()
        and not plain.startswith("-")
        and not plain.endswith("-")
        and "--" not in plain
        and all(char.isalnum() or char == "-" for char in plain)
    )


def check_standard(text: str, folder: str) -> list[str]:
    """Returns what the standard does not allow in the text of a SKILL.md in a folder of this name."""
    if not text.startswith("---"):
        return ["the standard wants --- as the very first characters of the file"]
    parts = text.split("---", 2)  # at any ---, as the validator does
    if len(parts) < 3:
        return ["the standard wants --- behind the front matter"]
    front, problem = _read_plain(parts[1])
    if problem:
        return [problem]
    found = []
    if unknown := sorted(set(front) - set(KEYS)):
        found.append(f"the standard has no keys {', '.join(unknown)[:200]}: put them under metadata")
    found += _check_name(front, folder)
    description = front.get("description")
    if not isinstance(description, str) or not description.strip():
        found.append("the standard wants a description")
    elif len(description) > LONGEST_DESCRIPTION:
        found.append(f"its description has more than {LONGEST_DESCRIPTION:,} characters")
    compatibility = front.get("compatibility", "")
    if not isinstance(compatibility, str) or len(compatibility) > LONGEST_COMPATIBILITY:
        found.append(f"its compatibility is not a text of up to {LONGEST_COMPATIBILITY} characters")
    return found


def _check_name(front: dict[str, Any], folder: str) -> list[str]:
    name = front.get("name")
    if not isinstance(name, str) or not name.strip():
        return ["the standard wants a name"]
    if not is_standard_name(name.strip()):
        return [f"its name {name[:80]!r} is not lower-case letters, digits and single dashes, at most {LONGEST_NAME}"]
    if unicodedata.normalize("NFKC", name.strip()) != unicodedata.normalize("NFKC", folder):
        return [f"its name {name[:80]!r} is not the name of its folder"]
    return []


def _read_plain(text: str) -> tuple[dict[str, Any], str]:
    """Returns the front matter with all values as texts, and the problem if it is not YAML of the strict kind."""
    import yaml  # heavy: only where a skill is checked

    try:
        tokens = list(yaml.scan(text, Loader=yaml.SafeLoader))
        for token in tokens:
            if isinstance(token, yaml.FlowMappingStartToken | yaml.FlowSequenceStartToken):
                return (
                    {},
                    f"line {token.start_mark.line + 1}: the standard allows no [lists] and {{mappings}} in a line",
                )
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken):
                return {}, f"line {token.start_mark.line + 1}: the standard allows no &anchors, *aliases and !tags"
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        return {}, f"its front matter is not YAML: {' '.join(str(error).split())[:200]}"
    if not isinstance(node, yaml.MappingNode):
        return {}, "its front matter is not a mapping"
    problem = _check_mappings(node)
    return ({} if problem else _plain(node)), problem


def _check_mappings(node: Any) -> str:
    """Returns a problem of a mapping in the node: a key that is there twice, or indented unlike the one before."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return ""
    if isinstance(node, yaml.SequenceNode):
        return next(filter(None, map(_check_mappings, node.value)), "")
    keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    if len(keys) != len(node.value) or len(set(keys)) != len(keys):
        return "a key of its front matter is there twice, or is not a text"
    if len({value.start_mark.column for _, value in node.value if isinstance(value, yaml.MappingNode)}) > 1:
        return "the mappings of its front matter are not indented alike"
    return next(filter(None, (_check_mappings(value) for _, value in node.value)), "")


def _plain(node: Any) -> Any:
    if isinstance(node.value, str):
        return node.value
    if node.value and isinstance(node.value[0], tuple):
        return {key.value: _plain(value) for key, value in node.value}
    return [_plain(one) for one in node.value]
