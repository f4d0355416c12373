"""Changes forge.yaml: servers with their lock, rules and other entries. Comments and the layout of the rest stay."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.mcp.programs.installed import LockedProgram, is_installed_here, read_lock, write_lock
from forge.mcp.programs.installer import install_program, remove_program
from forge.project.read_yaml import parse_yaml, read_text
from forge.project.servers.plan import SECTION, ServerPlan, folder_of
from forge.project.trust import accept, trust_state
from forge.workspace.state import replace_file


class Changed(NamedTuple):
    """A changed file. `needs_trust`: it is not in force before `forge trust`."""

    file: str
    needs_trust: bool


def read_servers(config: str) -> dict[str, Any]:
    """Returns the entries of the servers as they are written; {} without a file. Raises `ToolError`."""
    document = parse_yaml(read_config_text(config), config) or {}
    found = document.get(SECTION) if isinstance(document, dict) else None
    return dict(found) if isinstance(found, dict) else {}


def check_free(config: str, names: Sequence[str], *, replace: bool) -> None:
    """Raises `ToolError` if a server of that name exists and must not be replaced."""
    there = [name for name in names if name in read_servers(config)]
    if there and not replace:
        raise ToolError(
            f"{config} has a server {', '.join(there)} already",
            ErrorKind.CONFIG,
            "Choose another name, or replace it with --replace.",
        )


async def add_servers(
    config: str, plans: Sequence[ServerPlan], try_servers: Callable[[str], Awaitable[None]], text: str | None = None
) -> Changed:
    """Installs the pinned packages, tries the servers, then writes all entries.

    `try_servers` gets the text that would be written. `text`: what to add the entries to, instead of the file's text.
    Raises `ToolError`, also its own; then the file is unchanged.
    """
    text = read_config_text(config) if text is None else text
    for plan in plans:
        text = put_entry(text, SECTION, plan.name, plan.entry, config)
    locks = read_lock(folder_of(config))
    installed = []
    try:
        for plan in plans:
            locks.pop(plan.name, None)
            if plan.locked is not None:
                if not is_installed_here(plan.locked.integrity):
                    installed.append(plan.locked.integrity)
                await install_program(plan.locked)
                locks[plan.name] = plan.locked
        await try_servers(text)
    except BaseException:
        for integrity in installed:
            remove_program(integrity)
        raise
    return write_config(config, text, locks)


def remove_server(config: str, name: str) -> Changed:
    """Removes a server, its lock and its installation, unless another server uses it. Raises `ToolError`."""
    servers = read_servers(config)
    if name not in servers:
        known = ", ".join(servers) or "none"
        raise ToolError(f"{config} has no server {name[:60]!r}", ErrorKind.NOT_FOUND, f"Its servers: {known}.")
    text = remove_entry(read_config_text(config), SECTION, name, config)
    locks = read_lock(folder_of(config))
    gone = locks.pop(name, None)
    changed = write_config(config, text, locks)
    if gone is not None and gone.integrity not in {one.integrity for one in locks.values()}:
        remove_program(gone.integrity)
    return changed


async def install_servers(config: str, names: Sequence[str] = ()) -> list[str]:
    """Installs pinned servers of a project on this machine, all or some. Returns their names. Raises `ToolError`."""
    servers, locks = read_servers(config), read_lock(folder_of(config))
    pinned = {name: one["integrity"] for name, one in servers.items() if isinstance(one, dict) and "integrity" in one}
    for name in names:
        if name not in pinned:
            known = ", ".join(pinned) or "none"
            raise ToolError(
                f"{config} has no pinned server {name[:60]!r}", ErrorKind.NOT_FOUND, f"Its pinned servers: {known}."
            )
    for name in names or pinned:
        locked = locks.get(name)
        if locked is None or locked.integrity != pinned[name]:
            raise ToolError(
                f"the packages of the server {name} are not known: the lock does not fit {config}",
                ErrorKind.CONFIG,
                f"Restore forge.mcp.lock, or pin the server again: forge mcp add {name} --replace -- COMMAND",
            )
        await install_program(locked)
    return list(names or pinned)


def read_config_text(config: str) -> str:
    """Returns the text of the file; "" without one. Raises `ToolError`."""
    return read_text(config) if os.path.lexists(config) else ""


def write_config(config: str, text: str, locks: dict[str, LockedProgram] | None = None) -> Changed:
    """Writes the lock, if it changes, then the file. A file that was trusted as it was is trusted with this change."""
    path = Path(os.path.realpath(config))
    is_projects = path.name == "forge.yaml"
    before = trust_state(path.parent).status if is_projects else "none"
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    if locks is not None:
        write_lock(folder_of(config), locks)
    try:
        replace_file(path, text, mode)
    except OSError as error:
        raise ToolError(
            f"{config} cannot be written: {error.strerror}", ErrorKind.CONFIG, "Make the file writable."
        ) from None
    if is_projects and before in ("trusted", "none"):
        accept(path.parent, text)
    return Changed(config, is_projects and before not in ("trusted", "none"))


# Adds and removes entries of a mapping in a YAML text. Comments and the layout of the rest stay as they are.


_PLAIN = re.compile(r"[A-Za-z_./@][\w./@+-]*")
_PLAIN_LINE = re.compile(r"(?!.*:(?: |$))[A-Za-z]\w* [\w ./*@=+:~-]*[\w/*]", re.ASCII)
_WORDS = frozenset("true false yes no on off null y n ~".split())  # YAML reads them as other values
_STEP = "  "


def put_entry(text: str, section: str, name: str, entry: Mapping[str, Any], file: str = "forge.yaml") -> str:
    """Returns the text with the entry `name` in the mapping `section`; an existing one is replaced.

    Raises `ToolError` if the text cannot be changed safely.
    """
    before = _read_mapping(text, file)
    if name in (before.get(section) or {}):
        text = remove_entry(text, section, name, file)
    changed = _add(text, section, name, entry)
    wanted = {**before, section: {**{k: v for k, v in (before.get(section) or {}).items() if k != name}, name: entry}}
    return _checked(changed, wanted, file)


def put_value(text: str, path: Sequence[str], value: Any, file: str = "forge.yaml") -> str:
    """Returns the text with a value for a key of one or two levels that the text does not have yet.

    Raises `ToolError` if the text cannot be changed safely.
    """
    before = _read_mapping(text, file)
    section, *rest = path
    wanted = {**before, section: {**(before.get(section) or {}), rest[0]: value} if rest else value}
    lines = _render_value(section, {rest[0]: value} if rest else value, "")
    if not before.get(section):
        if section in before:  # `agent:` without a value
            text = _cut(text, _root(text), section)
        root = _root(text)
        if root is not None and root.value and root.flow_style:
            text = _into_flow(text, root, f"{json.dumps(section)}: {json.dumps(wanted[section])}")
        else:
            text = _ended(text) + lines
        return _checked(text, wanted, file)
    mapping = _find(_root(text), section)[1]
    if not rest or not isinstance(mapping.value, list) or isinstance(before[section], list):
        raise _refuse(file)
    if mapping.flow_style:
        return _checked(_into_flow(text, mapping, f"{json.dumps(rest[0])}: {json.dumps(value)}"), wanted, file)
    at = _end_of_block(text, mapping)
    indent = " " * mapping.value[0][0].start_mark.column
    return _checked(_ended(text[:at]) + _render_value(rest[0], value, indent) + text[at:], wanted, file)


def add_items(
    text: str, path: tuple[str, str], items: Sequence[Any], *, first: bool = False, file: str = "forge.yaml"
) -> str:
    """Returns the text with more items in a list, at its end or in front. Raises `ToolError` as `put_value` does."""
    before = _read_mapping(text, file)
    section, key = path
    there = (before.get(section) or {}).get(key) if isinstance(before.get(section) or {}, dict) else None
    if not there:
        if there is not None:  # an empty list
            text = remove_entry(text, section, key, file)
        return put_value(text, path, list(items), file)
    found = _find(_find(_root(text), section)[1], key)[1]
    if not isinstance(there, list):
        raise _refuse(file)
    wanted = {**before, section: {**before[section], key: [*items, *there] if first else [*there, *items]}}
    if found.flow_style:
        at = found.start_mark.index + 1 if first else found.end_mark.index - 1
        inner = ", ".join(map(_flow, items))
        ends_in_comma = text[:at].rstrip().endswith(",")
        changed = f"{inner}, " if first else f"{' ' if ends_in_comma else ', '}{inner}"
        return _checked(text[:at] + changed + text[at:], wanted, file)
    lines = "".join(_render_item(one, " " * found.start_mark.column) for one in items)
    if first:
        at = text.rfind("\n", 0, found.start_mark.index) + 1
        return _checked(text[:at] + lines + text[at:], wanted, file)
    at = _end_of_block(text, found)
    return _checked(_ended(text[:at]) + lines + text[at:], wanted, file)


def remove_entry(text: str, section: str, name: str, file: str = "forge.yaml") -> str:
    """Returns the text without an entry. Raises `ToolError` if the text cannot be changed safely."""
    before = _read_mapping(text, file)
    left = {key: value for key, value in before[section].items() if key != name}
    if not left:
        changed = _cut(text, _root(text), section)
        return _checked(changed, {key: value for key, value in before.items() if key != section}, file)
    return _checked(_cut(text, _find(_root(text), section)[1], name), {**before, section: left}, file)


def _read_mapping(text: str, file: str) -> dict[str, Any]:
    document = parse_yaml(text, file)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _refuse(file)
    return document


def _checked(text: str, wanted: Mapping[str, Any], file: str) -> str:
    """Returns the changed text if it means exactly what is wanted."""
    try:
        found = _read_mapping(text, file)
    except ToolError:
        found = None
    if found != dict(wanted):
        raise _refuse(file)
    return text


def _refuse(file: str) -> ToolError:
    return ToolError(
        f"{file} cannot be changed without touching other parts of it",
        ErrorKind.CONFIG,
        "Write the entry by hand: `--dry-run` shows it.",
    )


def _root(text: str) -> Any:
    import yaml  # only where a file is changed

    return yaml.compose(text, Loader=yaml.SafeLoader)


def _find(mapping: Any, name: str) -> tuple[Any, Any]:
    return next(((key, value) for key, value in mapping.value if key.value == name), (None, None))


def _add(text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
    root = _root(text)
    if root is None or not root.value:
        return f"{_ended(text)}{section}:\n{_render(name, entry, _STEP)}"
    if root.flow_style:
        key, value = _find(root, section)
        if key is None:
            return _into_flow(text, root, f"{json.dumps(section)}: {json.dumps({name: entry})}")
        return _into_flow(text, value, f"{json.dumps(name)}: {json.dumps(entry)}")
    key, value = _find(root, section)
    if key is None:
        return f"{_ended(text)}{section}:\n{_render(name, entry, _STEP)}"
    if not isinstance(value.value, list) or not value.value:  # nothing, or {}
        start, end = key.end_mark.index, value.end_mark.index
        tail = text[end:] if value.value == [] else text[max(end, text.index(":", start) + 1) :]
        line_end = tail.find("\n")
        rest, below = (tail, "") if line_end < 0 else (tail[:line_end], tail[line_end + 1 :])
        return f"{text[:start]}:{rest}\n{_render(name, entry, _STEP)}{below}"
    if value.flow_style:
        return _into_flow(text, value, f"{json.dumps(name)}: {json.dumps(entry)}")
    indent = " " * value.value[0][0].start_mark.column
    at = _end_of_block(text, value)
    return f"{_ended(text[:at])}{_render(name, entry, indent)}{text[at:]}"


def _into_flow(text: str, mapping: Any, item: str) -> str:
    """Inserts an item before the closing brace."""
    brace = mapping.end_mark.index - 1
    before = text[:brace].rstrip()
    comma = "" if before.endswith(("{", ",")) else ","
    return f"{before}{comma}{'' if before.endswith('{') else ' '}{item}{text[len(before) : brace]}{text[brace:]}"


def _end_of_block(text: str, mapping: Any) -> int:
    """Returns where the last line of a block with content ends; comments and empty lines below stay below."""
    last = _last_index(mapping)
    end = text.find("\n", last)
    return len(text) if end < 0 else end + 1


def _last_index(node: Any) -> int:
    """Returns where the content of a node ends. The mark of a block itself is behind the comments that follow it."""
    import yaml

    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        end: int = node.end_mark.index
        return end - 1 if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end
    last = node.value[-1]
    return max(_last_index(last[0]), _last_index(last[1])) if isinstance(last, tuple) else _last_index(last)


def _cut(text: str, mapping: Any, name: str) -> str:
    """Removes one item of a mapping."""
    index = next(number for number, (key, _) in enumerate(mapping.value) if key.value == name)
    key, value = mapping.value[index]
    if not mapping.flow_style:
        start = text.rfind("\n", 0, key.start_mark.index) + 1
        end = text.find("\n", max(key.end_mark.index, _last_index(value)))
        return text[:start] + ("" if end < 0 else text[end + 1 :])
    if index + 1 < len(mapping.value):
        return text[: key.start_mark.index] + text[mapping.value[index + 1][0].start_mark.index :]
    start = mapping.value[index - 1][1].end_mark.index if index else key.start_mark.index
    return text[:start] + text[value.end_mark.index :]


def _render(name: str, entry: Mapping[str, Any], indent: str) -> str:
    """Renders an entry in block style: a line for each key, values in flow style."""
    lines = [f"{indent}{_scalar(name)}:"]
    lines += [f"{indent}{_STEP}{_scalar(key)}: {_flow(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def _render_value(key: str, value: Any, indent: str) -> str:
    """Renders a key with its value: lists with a line for each item, mappings with a line for each key."""
    if isinstance(value, Mapping) and value:
        inner = "".join(_render_value(name, one, indent + _STEP) for name, one in value.items())
        return f"{indent}{_scalar(key)}:\n{inner}"
    if isinstance(value, list) and value:
        return f"{indent}{_scalar(key)}:\n" + "".join(_render_item(one, indent + _STEP) for one in value)
    return f"{indent}{_scalar(key)}: {_render_text(value, indent + _STEP)}\n"


def _render_item(value: Any, indent: str) -> str:
    is_plain = isinstance(value, str) and _PLAIN_LINE.fullmatch(value)
    return f"{indent}- {value if is_plain else _flow(value)}\n"


def _render_text(value: Any, indent: str) -> str:
    """Renders a text of several lines as a block, if the block means exactly the text."""
    if not isinstance(value, str) or "\n" not in value:
        return _flow(value)
    is_plain = all(line.rstrip() == line and (not line or line.isprintable()) for line in value.split("\n"))
    if not is_plain or value.startswith((" ", "\n")) or value.endswith("\n"):
        return _flow(value)
    return "|-\n" + "\n".join(f"{indent}{line}" if line else "" for line in value.split("\n"))


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS and value[0] != "@":
        return value
    return json.dumps(value, ensure_ascii=False)


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
