"""Reads the files of Claude Code: permissions, hooks, commands, agents and skills of `.claude`."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from forge.core.secrets import Secrets
from forge.project.servers.plan import safe_name
from forge.project.take_over.findings import Findings, RuleSource, as_written, mapping_of, rule, split_front, texts_of

ADAPTER = "hooks/claude_code.py"
PROGRAM_TOOLS = ("bash", "cli_execute", "test_runner", "local_shell")  # the tools that run a command line
EVENTS = {
    "PreToolUse": "before_call",
    "PostToolUse": "after_call",
    "UserPromptSubmit": "before_turn",
    "Stop": "on_end",
}
TOOLS = {  # of Claude Code, and those of Forge that do the same
    "Bash": ("bash", "bash_output", "bash_kill", "bash_jobs"),
    "BashOutput": ("bash_output",),
    "KillBash": ("bash_kill",),
    "KillShell": ("bash_kill",),
    "Read": ("file_read", "directory_list"),
    "NotebookRead": ("file_read",),
    "Grep": ("grep_search",),
    "Glob": ("glob_search",),
    "LS": ("directory_list", "directory_tree"),
    "Edit": ("file_edit", "file_patch"),
    "MultiEdit": ("file_edit", "file_patch"),
    "NotebookEdit": ("file_edit",),
    "Write": ("file_write",),
    "WebFetch": ("web_fetch",),
    "WebSearch": ("web_search",),
    "TodoWrite": ("todo_write", "todo_read"),
    "TodoRead": ("todo_read",),
    "Skill": ("read_skill",),
}
_READERS = ("Read", "NotebookRead", "Grep", "Glob", "LS")
_WRITERS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "Update")
_OTHERS = ("AskUserQuestion", "ExitPlanMode", "EnterPlanMode", "SlashCommand")  # Forge asks nobody about these
_RULE = re.compile(r"([A-Za-z_][\w.*-]*|\*)(?:\((.*)\))?", re.DOTALL)
_PROTECTED = (".git", ".forge", "forge.yaml", "skills", "hooks", "tools", ".claude", ".mcp.json")
_PROJECT = re.compile(r'"?\$(?:\{CLAUDE_PROJECT_DIR\}|CLAUDE_PROJECT_DIR\b)"?')
_NAMES = re.compile(r"[A-Za-z_][\w-]*(?:\|[A-Za-z_][\w-]*)*")

_REASONS = {  # of settings that are left out
    "env": "variables are not copied: set {names} yourself where programs need them",
    "apiKeyHelper": "a key is a variable, or an entry under `secrets`",
    "outputStyle": "write it into `agent: {prompt: …}`",
    "enableAllProjectMcpServers": "a server counts once forge.yaml names it",
    "enabledMcpjsonServers": "a server counts once forge.yaml names it",
    "disabledMcpjsonServers": "these servers are imported as disabled",
    "statusLine": "the terminal has its own",
    "cleanupPeriodDays": "`forge session prune` removes old sessions",
    "enabledPlugins": "Forge has no plugins: import their servers, skills and commands",
    "$schema": "",
}
_PERMISSION_REASONS = {
    "defaultMode": "a mode is chosen when a run starts, not in a file; calls ask until you choose one",
    "disableBypassPermissionsMode": "Forge has no mode without checks",
}


def read_claude(found: Findings, *, with_home: bool = True) -> None:
    """Reads the project's files, and those of the home. The most specific file is read first."""
    homes = [found.home / ".claude"] if with_home else []
    for path in (
        found.workspace / ".claude" / "settings.local.json",
        found.workspace / ".claude" / "settings.json",
        *(folder / "settings.json" for folder in homes),
    ):
        _read_settings(found, path, found.read_json(path), is_home=path.parent in homes)
    for folder in (found.workspace / ".claude", *homes):
        for path in found.list_files(folder / "commands"):
            if (text := found.read_text(path)) is not None:
                front, body = split_front(text)
                found.add_command(path, path.stem, body, front)
        for path in found.list_files(folder / "agents"):
            if (text := found.read_text(path)) is not None:
                _read_agent(found, path, *split_front(text))
    read_skills(found, found.workspace / ".claude" / "skills")
    for folder in homes:
        if os.path.isdir(folder / "skills"):
            found.leave(folder / "skills", "the folder", "it is outside of the project: copy a skill into skills/")
        read_instructions(found, folder / "CLAUDE.md", "it is outside of the project: write it into `agent.prompt`")
    read_instructions(found, found.workspace / "CLAUDE.local.md", "Forge reads CLAUDE.md and AGENTS.md only")
    _read_claude_md(found)


def read_skills(found: Findings, folder: Path) -> None:
    """Adds a folder of skills to those of the project. The skills stay where they are."""
    if not os.path.isdir(folder):
        return
    if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(found.workspace)):
        found.leave(folder, "the folder", "it leads out of the project")
        return
    found.read.append(found.show(folder))
    found.add_item(("skills", "paths"), found.show(folder))


def read_instructions(found: Findings, path: Path, reason: str) -> None:
    """Names a file of instructions that Forge does not read."""
    if os.path.lexists(path):
        found.leave(path, "the file", reason)


def _read_claude_md(found: Findings) -> None:
    path = found.workspace / "CLAUDE.md"
    text = found.read_text(path)
    if text is None:
        return
    if os.path.lexists(found.workspace / "AGENTS.md"):
        found.leave(path, "the file", "AGENTS.md stands beside it, and only AGENTS.md counts")
    else:
        found.leave(path, "the file", "nothing to copy: Forge reads it where it is, once you trust it: `forge trust`")
    if re.search(r"^\s*@\S+", text, re.MULTILINE):
        found.leave(path, "@file", "other files are not inserted")


def _read_settings(found: Findings, path: Path, said: dict[str, Any], *, is_home: bool) -> None:
    for key, value in said.items():
        if key == "permissions":
            _read_permissions(found, path, mapping_of(value), is_home=is_home)
        elif key == "hooks" and is_home:
            found.leave(path, key, "a hook runs in the sandbox, which has only the project: copy it into hooks/")
        elif key == "hooks":
            _read_hooks(found, path, mapping_of(value))
        elif key == "model" and isinstance(value, str) and value.startswith("claude-"):
            found.add_setting(path, key, ("agent", "model"), f"anthropic:{value}")
        elif key == "model":
            found.leave(path, key, "it is not the whole name of a model: write `agent: {model: anthropic:MODEL}`")
        elif key == "sandbox":
            _read_sandbox(found, path, mapping_of(value))
        elif key == "env":
            names = ", ".join(sorted(mapping_of(value))[:20]) or "none"
            found.leave(path, key, _REASONS[key].format(names=names))
        elif reason := _REASONS.get(key, "Forge has no such setting"):
            found.leave(path, key, reason)
        if key == "disabledMcpjsonServers":
            found.disabled.update(texts_of(value))


def _read_sandbox(found: Findings, path: Path, said: dict[str, Any]) -> None:
    for key, value in said.items():
        if key == "enabled" and value is True:
            found.add_setting(path, "sandbox.enabled", ("sandbox",), "required")
        elif key == "enabled":
            found.leave(path, "sandbox.enabled", "the sandbox stays as Forge has it")
        else:
            found.leave(path, f"sandbox.{key}", "programs get hosts and folders by rules, egress and `workspace.roots`")


# Permissions. In Claude Code a deny counts before an ask, and an ask before an allow, wherever they stand.


def _read_permissions(found: Findings, path: Path, said: dict[str, Any], *, is_home: bool) -> None:
    for key, value in said.items():
        if key in ("allow", "ask", "deny"):
            if not isinstance(value, list):
                found.leave(path, f"permissions.{key}", "it is not a list")
                continue
            for one in value:
                if isinstance(one, str):
                    add_claude_rule(found, path, key, one.strip(), is_home=is_home)
                else:
                    found.leave(path, f"permissions.{key}", f"one of its entries is {type(one).__name__}, not a text")
        elif key == "additionalDirectories":
            for folder in texts_of(value if isinstance(value, list) else None):
                if found.add_root(path, key, folder, "read"):
                    found.leave(path, f"{key}: {folder}", "it is read-only here: `access: write` lets tools change it")
        else:
            found.leave(path, f"permissions.{key}", _PERMISSION_REASONS.get(key, "Forge has no such setting"))


def add_claude_rule(found: Findings, path: Path, action: str, text: str, *, is_home: bool = False) -> None:
    """Adds a rule of Claude Code. It never becomes looser: an allow that is unclear is left out, others ask."""
    rules, reason = convert_claude_rule(action, text, is_home=is_home)
    key = f"permissions.{action}: {text}"
    if reason:
        found.leave(path, key, reason)
    for one in rules:
        kind = one.split()[0] if isinstance(one, str) else one["action"]
        found.add_rule(path, key, kind, [one], ordered=False)


def convert_claude_rule(action: str, text: str, *, is_home: bool = False) -> tuple[list[RuleSource], str]:
    """Returns Forge's rules for a rule of Claude Code, and the reason for what is not taken over as it is.

    Args:
        action: the list that holds the rule: allow, ask or deny.
        text: the rule, such as `Bash(npm run test:*)`.
        is_home: whether the rule stands in the settings of the home, where `/path` is not about the project.
    """
    parsed = _RULE.fullmatch(text)
    if parsed is None:
        return [], "it is not a rule of Claude Code"
    tool = parsed[1]
    what = "execute" if tool == "Bash" else "read" if tool in _READERS else "write" if tool in _WRITERS else "*"
    if not text.isprintable():
        return _unclear(action, what, "it has characters that cannot be seen")
    if Secrets().mask_all(text) != text:
        return _unclear(action, what, "it holds a secret, which is not copied")
    rules, reason = _convert(action, tool, parsed[2], is_home=is_home)
    if any(as_written(one) is None for one in rules):
        return _unclear(action, what, "Forge cannot read this pattern")
    return rules, reason


def _convert(action: str, tool: str, said: str | None, *, is_home: bool) -> tuple[list[RuleSource], str]:
    inner = "" if said is None or said.strip() in ("", "*", ":*", "**") else said.strip()
    if tool == "Bash":
        return _bash_rule(action, inner)
    if tool in _READERS or tool in _WRITERS:
        return _path_rule(action, tool, inner, is_home=is_home)
    if tool.startswith("mcp__"):
        return _mcp_rule(action, tool, inner)
    if tool == "WebFetch":
        return _web_rule(action, inner)
    if tool in ("Task", "Agent"):
        if inner:
            return _unclear(action, "tool:task", "a rule cannot name the type of an agent")
        return [rule(action, tool="task")], ""
    if tool == "*":
        return ([], "Forge takes no allow of everything") if action == "allow" else ([f"{action} *"], "")
    if tool in _OTHERS or (tool in TOOLS and action == "allow" and tool not in ("WebSearch",)):
        return [], "Forge does not ask about this tool" if action == "allow" else "Forge has no such question to deny"
    if tool not in TOOLS:
        return [], "Forge has no such tool"
    if inner and action == "allow":
        return [], "a rule of Forge cannot say this about the tool"
    return [rule(action, tool=name) for name in TOOLS[tool]], ""


def _unclear(action: str, what: str, reason: str) -> tuple[list[RuleSource], str]:
    if action == "allow":
        return [], reason
    return [f"ask {what}"], f"{reason}; so `ask {what}` asks about more"


def _bash_rule(action: str, inner: str) -> tuple[list[RuleSource], str]:
    if not inner:
        if action == "allow":
            return [rule("allow", "execute", tool="bash")], ""
        return [rule(action, "execute", tool=name) for name in PROGRAM_TOOLS], ""
    if "\\" in inner:
        return _unclear(action, "execute", "it has a backslash, which both read in their own way")
    prefix = inner.removesuffix(":*")
    if prefix != inner:
        targets = [f"{_literal(prefix)} *"]
        if action != "allow" and not prefix[-1:].isalnum():  # `curl http://x/:*` was a prefix once
            targets.append(f"{_literal(prefix)}*")
    else:
        targets = [_literal(inner)]
    tool = "bash" if action == "allow" and targets[0].startswith(("*", "[")) else ""
    return [rule(action, "execute", target, tool) for target in targets], ""


def _literal(text: str) -> str:
    """Escapes what only Forge takes for a wildcard."""
    return re.sub(r"[\[?]", lambda char: f"[{char[0]}]", text)


def _path_rule(action: str, tool: str, inner: str, *, is_home: bool) -> tuple[list[RuleSource], str]:
    permission = "read" if tool in _READERS else "write"
    if not inner:
        if tool in ("Grep", "Glob", "LS"):
            denied: list[RuleSource] = [rule(action, tool=one) for one in TOOLS[tool]]
            return ([], "reading is allowed") if action == "allow" else (denied, "")
        if action == "allow" and permission == "write":
            return [rule("allow", "write", tool="file_write" if tool == "Write" else "file_*")], ""
        return [f"{action} {permission}"], ""
    if "\\" in inner or inner.startswith("!") or (inner.startswith("//") and inner.strip("/") == ""):
        return _unclear(action, permission, "Forge cannot read this pattern")
    if inner.startswith("/") and not inner.startswith("//") and is_home and action == "allow":
        return [], "it is not clear which folder `/` is in the settings of the home"
    if action != "allow":
        return [rule(action, permission, _deny_path(inner))], ""
    names = tuple(name.lower() for name in inner.split("/") if name not in ("", "."))
    if names[:1] and (names[0] in _PROTECTED or not {".git", ".forge"}.isdisjoint(names)):
        return [], "Forge protects these files: write the rule yourself"
    if ".." in names:
        return [], "it leads out of its folder"
    # a rule about all tools would also allow what programs write
    writer = "" if permission == "read" else "file_write" if tool == "Write" else "file_*"
    return [rule("allow", permission, target, writer) for target in _allow_paths(inner)], ""


def _deny_path(inner: str) -> str:
    """Returns the pattern for a deny or ask, which covers all that is in a folder, and names at any depth."""
    if inner.startswith("//"):
        return inner[1:]
    if inner.startswith("/"):
        return f".{inner}"
    return inner.removeprefix("./") or "."


def _allow_paths(inner: str) -> list[str]:
    """Returns the patterns for an allow, which covers exactly what it says. A pattern follows .gitignore."""
    plain = inner.removeprefix("./").rstrip("/")
    if inner.startswith("//"):
        base = f"/{inner.strip('/')}"
    elif inner.startswith("/"):
        base = f".{inner.rstrip('/')}"
    elif inner.startswith("~") or "/" in plain or plain.startswith("**"):
        base = plain
    else:
        base = f"./{plain}" if inner.startswith("./") else f"**/{plain}"
    last = base.rpartition("/")[2]
    return [base] if "*" in last else [base, f"{base}/**"]


def _mcp_rule(action: str, tool: str, inner: str) -> tuple[list[RuleSource], str]:
    server, _, name = tool.removeprefix("mcp__").partition("__")
    if inner and action == "allow":
        return [], "a rule of Forge cannot say this about a tool of a server"
    if "*" in server:
        if action == "allow" or server != "*":
            return _unclear(action, "tool:*__*", "a rule for the tools of several servers is not taken over")
        return [rule(action, tool="*__*")], ""
    called = safe_name(server)
    if action == "allow" and (name.startswith("*") and name != "*"):
        return [], "it is not clear which tools it means"
    return [rule(action, tool=f"{called}__{name or '*'}")], ""


def _web_rule(action: str, inner: str) -> tuple[list[RuleSource], str]:
    host = inner.removeprefix("domain:").strip()
    if not inner or host == "*":
        return [rule(action, tool="web_fetch")], ""
    if host == inner or not re.fullmatch(r"(\*\.)?[A-Za-z0-9][A-Za-z0-9.-]*", host):
        return _unclear(action, "tool:web_fetch", "only domain:HOST is read")
    # a rule about all tools would also open the host to programs
    return [rule(action, "network", host, "web_fetch" if action == "allow" else "")], ""


# Hooks run through a script that speaks for Claude Code: its names of tools, its JSON.


def _read_hooks(found: Findings, path: Path, said: dict[str, Any]) -> None:
    for event, groups in said.items():
        kind = EVENTS.get(event)
        if kind is None:
            found.leave(path, f"hooks.{event}", "Forge has no such hook; see events for what a program can follow")
            continue
        for group in groups if isinstance(groups, list) else []:
            matcher = mapping_of(group).get("matcher", "")
            hooks = mapping_of(group).get("hooks")
            if not isinstance(hooks, list) or not isinstance(matcher, str):
                found.leave(path, f"hooks.{event}", "one of its entries is not a list of hooks with a matcher")
                continue
            for hook in hooks:
                _add_hook(found, path, event, matcher, mapping_of(hook))


def _add_hook(found: Findings, path: Path, event: str, matcher: str, hook: dict[str, Any]) -> None:
    command = hook.get("command")
    key = f"hooks.{event}: {command if isinstance(command, str) else hook.get('type', '')}"
    for name in hook:
        if name not in ("type", "command", "timeout"):
            found.leave(path, f"hooks.{event}.{name}", "a hook of Forge has no such setting")
    if hook.get("type", "command") != "command" or not isinstance(command, str) or not command.strip():
        found.leave(path, key, "only a hook that is a command is taken over")
        return
    if "if" in hook or hook.get("async"):
        found.leave(path, key, "a hook with `if` or `async` is not taken over")
        return
    if not command.isprintable() or Secrets().mask_all(command) != command:
        found.leave(path, key, "its command holds a secret, or characters that cannot be seen")
        return
    try:
        re.compile(matcher)
    except re.error:
        if matcher != "*":
            found.leave(path, key, "its matcher is not a regular expression")
            return
    words = ["python3", ADAPTER, event, matcher or "*", "-c", _PROJECT.sub("$PWD", command)]
    entry: dict[str, Any] = {"command": shlex.join(words)}
    seconds = hook.get("timeout")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= 3_600:
        entry["timeout"] = seconds
    if EVENTS[event].endswith("_call") and (names := _match(matcher)):
        entry["match"] = names
    entries = found.hooks.setdefault(EVENTS[event], [])
    if entry not in entries:
        entries.append(entry)
    found.add_file(path, ADAPTER, files("forge.project.take_over").joinpath("claude_hook.py").read_text("utf-8"))


def _match(matcher: str) -> list[str]:
    """Returns the tools for a matcher of plain names; [] means every call: then the script compares."""
    if not _NAMES.fullmatch(matcher):
        return []
    extra = {"Bash": ("bash", "cli_execute"), "Write": ("file_write", "file_create", "file_patch")}
    names: list[str] = []
    for name in matcher.split("|"):
        if name.startswith("mcp__"):
            server, _, tool = name.removeprefix("mcp__").partition("__")
            names.append(f"{safe_name(server)}__{tool}")
        elif name in TOOLS:
            names += extra.get(name, TOOLS[name])
        else:
            return []
    return list(dict.fromkeys(names))


# Agents.


def _read_agent(found: Findings, path: Path, front: dict[str, Any], body: str) -> None:
    name = front.get("name") if isinstance(front.get("name"), str) else path.stem
    entry: dict[str, Any] = {"prompt": join_prompt(front.get("description"), body)}
    denied = {one for name in texts_of(front.get("disallowedTools")) for one in TOOLS.get(name, ())}
    if "tools" in front:
        tools = convert_tools(texts_of(front["tools"]), lambda tool, why: found.leave(path, f"tools: {tool}", why))
        tools = [one for one in tools if one not in denied]
        if not tools:
            found.leave(path, str(name), "it has none of Forge's tools, and an agent without a list would have more")
            return
        entry["tools"] = tools
    elif denied:
        entry["tools"] = [one for one in (*TOOLS["Read"], *TOOLS["Grep"], *TOOLS["Glob"]) if one not in denied]
        if not entry["tools"]:
            found.leave(path, str(name), "it has none of Forge's tools, and an agent without a list would have more")
            return
    else:
        found.leave(path, f"{name}: tools", "it inherits all tools there; here it has the read-only ones: add `tools`")
    model = front.get("model")
    if isinstance(model, str) and model.startswith("claude-"):
        entry["model"] = f"anthropic:{model}"
    elif model and model != "inherit":
        found.leave(path, f"{name}: model", "it is not the whole name of a model; the agent's own is used")
    for key in front:
        if key not in ("name", "description", "tools", "disallowedTools", "model"):
            found.leave(path, f"{name}: {key}", "an agent of Forge has no such setting")
    found.add_agent(path, str(name), entry)


def join_prompt(description: Any, body: str) -> str:
    about = " ".join(description.split()) if isinstance(description, str) else ""
    return "\n".join(line.rstrip() for line in "\n\n".join(filter(None, (about, body.strip()))).split("\n"))


def convert_tools(names: list[str], leave: Callable[[str, str], None]) -> list[str]:
    """Returns Forge's tools for those of Claude Code; `leave` hears of the others."""
    found: list[str] = []
    for name in names:
        plain = name.partition("(")[0].strip()
        if plain in TOOLS:
            found += TOOLS[plain]
            if plain != name:
                leave(name, "the part in brackets is not taken over: rules decide")
        elif plain.startswith("mcp__"):
            server, _, tool = plain.removeprefix("mcp__").partition("__")
            found.append(f"{safe_name(server)}__{tool or '*'}")
        else:
            leave(name, "Forge has no such tool for a sub-agent")
    return list(dict.fromkeys(found))
