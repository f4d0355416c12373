"""Reads the files of opencode: `opencode.json`, its commands, agents and skills."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

from forge.project.servers.other_clients import Converter
from forge.project.take_over.claude import PROGRAM_TOOLS, join_prompt, read_instructions, read_skills
from forge.project.take_over.findings import Findings, RuleSource, as_written, mapping_of, rule, split_front, texts_of

ACTIONS = ("allow", "ask", "deny")
TOOLS = {  # of opencode, and those of Forge that do the same
    "bash": ("bash", "bash_output", "bash_kill", "bash_jobs"),
    "read": ("file_read", "directory_list"),
    "edit": ("file_edit", "file_patch"),
    "write": ("file_write",),
    "patch": ("file_patch",),
    "grep": ("grep_search",),
    "glob": ("glob_search",),
    "list": ("directory_list", "directory_tree"),
    "webfetch": ("web_fetch",),
    "websearch": ("web_search",),
    "codesearch": ("web_search",),
    "todowrite": ("todo_write",),
    "todoread": ("todo_read",),
    "task": ("task",),
    "skill": ("read_skill",),
}
PROVIDERS = ("anthropic", "openai", "google", "openrouter", "ollama", "groq", "mistral", "deepseek", "xai")
_CALLED = {"google": "gemini"}
_REFERENCE = re.compile(r"\{env:([^}]+)\}")
_FILE = re.compile(r"\{file:[^}]*\}")
_MOST_STARS = 3  # of a pattern about paths that is written out
_REASONS = {
    "$schema": "",
    "instructions": "Forge reads AGENTS.md or CLAUDE.md: mention these files there",
    "provider": "a model is named as PROVIDER:MODEL; keys are variables",
    "theme": "the terminal has its own",
    "plugin": "Forge has no plugins",
    "share": "sessions are not shared",
    "tools": "the old list of tools: write `tools` in forge.yaml",
    "small_model": "Forge has no second model",
}


def read_opencode(found: Findings, *, with_home: bool = True) -> None:
    """Reads the project's files, then those of the home."""
    homes = [found.home / ".config" / "opencode"] if with_home else []
    folders = (found.workspace, found.workspace / ".opencode", *homes)
    paths = [folder / name for folder in folders for name in ("opencode.json", "opencode.jsonc")]
    documents = {path: found.read_json(path) for path in paths}
    for path, said in reversed(documents.items()):  # the last rule decides: the project's stand behind
        if "permission" in said:
            _read_permission(found, path, said["permission"])
    for path, said in documents.items():
        _read_config(found, path, said)
    for folder in (found.workspace / ".opencode", *homes):
        for kind in ("command", "commands"):
            for path in found.list_files(folder / kind):
                if (text := found.read_text(path)) is not None:
                    front, body = split_front(text)
                    found.add_command(path, path.stem, body, front)
        for kind in ("agent", "agents"):
            for path in found.list_files(folder / kind):
                if (text := found.read_text(path)) is not None:
                    front, body = split_front(text)
                    _add_agent(found, path, path.stem, {**front, "prompt": body})
        for kind in ("skill", "skills"):
            if folder not in homes:
                read_skills(found, folder / kind)
            elif os.path.isdir(folder / kind):
                found.leave(folder / kind, "the folder", "it is outside of the project: copy a skill into skills/")
    for folder in homes:
        read_instructions(found, folder / "AGENTS.md", "Forge reads the AGENTS.md of the project only")


def _read_config(found: Findings, path: Path, said: dict[str, Any]) -> None:
    for key, value in said.items():
        if key == "mcp":
            _read_servers(found, path, mapping_of(value))
        elif key == "agent":
            for name, one in mapping_of(value).items():
                _add_agent(found, path, name, mapping_of(one))
        elif key == "command":
            for name, one in mapping_of(value).items():
                given = mapping_of(one)
                template = given.pop("template", None)
                if isinstance(template, str):
                    found.add_command(path, name, template, given)
                else:
                    found.leave(path, f"command.{name}", "it has no template")
        elif key == "model" and (model := _model(value)):
            found.add_setting(path, key, ("agent", "model"), model)
        elif key != "permission" and (reason := _REASONS.get(key, "Forge has no such setting")):
            found.leave(path, key, reason)


def _model(value: Any) -> str:
    provider, slash, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    usable = slash and name and provider in PROVIDERS and name.isprintable()
    return f"{_CALLED.get(provider, provider)}:{name}" if usable else ""


# Servers.


def _read_servers(found: Findings, path: Path, servers: dict[str, Any]) -> None:
    converter = Converter(found.workspace)
    for name, value in servers.items():
        said = mapping_of(value)
        command = said.get("command")
        words = [command] if isinstance(command, str) else texts_of(command)
        given: dict[str, Any] = {}
        if words:
            given = {"command": _fill(words[0]), "args": [_fill(one) for one in words[1:]]}
        if isinstance(said.get("url"), str):
            given["url"] = _fill(said["url"])
        for theirs, ours in (("environment", "env"), ("headers", "headers")):
            if pairs := mapping_of(said.get(theirs)):
                given[ours] = {key: _fill(str(one)) for key, one in pairs.items()}
        if said.get("enabled") is False:
            given["disabled"] = True
        for key in said:
            if key not in ("type", "command", "url", "environment", "headers", "enabled"):
                found.leave(path, f"mcp.{name}.{key}", "Forge has no such setting, or writes it otherwise")
        if _FILE.search(str(given)):
            found.leave(path, f"mcp.{name}", "it refers to {file:…}, which Forge does not read: use a variable")
            continue
        found.servers.append(converter.convert(name, given))


def _fill(text: str) -> str:
    return _REFERENCE.sub(r"${env:\1}", text)


# Permissions. The last rule that matches decides, as in Forge; `*` also stands for slashes.


def _read_permission(found: Findings, path: Path, value: Any) -> None:
    said = {"*": value} if isinstance(value, str) else mapping_of(value)
    for tool, decision in said.items():
        patterns = {"*": decision} if isinstance(decision, str) else mapping_of(decision)
        for pattern, action in patterns.items():
            key = f"permission.{tool}" if isinstance(decision, str) else f"permission.{tool}: {pattern}"
            if action not in ACTIONS:
                found.leave(path, key, "it is none of allow, ask and deny")
                continue
            rules, reason = convert_opencode_rule(action, tool, pattern)
            if any(as_written(one) is None for one in rules) or not pattern.isprintable():
                what = {"bash": "execute", "read": "read", "edit": "write"}.get(tool, "*")
                rules, reason = _unclear(action, what)
            if reason:
                found.leave(path, key, reason)
            denies = [one for one in found.ordered if _action(one) == "deny"]
            if reason and denies:  # a question about more would undo them
                rules = [re.sub("^ask", "deny", one) if isinstance(one, str) else one for one in rules]
            found.add_rule(path, key, action, rules, ordered=True)
            if any(_action(one) == "ask" for one in rules):  # it also covers folders and other spellings
                same = [one for one in denies if _about(one) and _about(one) in map(_about, rules)]
                found.ordered += [one for at, one in enumerate(same) if one not in same[:at]]


def _action(source: RuleSource) -> str:
    return source.split()[0] if isinstance(source, str) else source["action"]


def _about(source: RuleSource) -> str:
    """Returns the permission of a rule that has a target, else ""."""
    if isinstance(source, dict):
        return source.get("permission", "") if "target" in source else ""
    words = source.split(maxsplit=2)
    return words[1] if len(words) > 2 else ""


def convert_opencode_rule(action: str, tool: str, pattern: str) -> tuple[list[RuleSource], str]:
    """Returns Forge's rules for one of opencode, and the reason for what is not taken over as it is."""
    everything = pattern.strip() in ("*", "**", "")
    if tool == "*":
        if action == "allow" or not everything:
            return [], "Forge takes no allow of everything: write the rules that you need"
        return [f"{action} *"], ""
    if tool in ("external_directory", "doom_loop", "question", "lsp"):
        return [], "Forge refuses paths outside of the project and repeated calls by itself"
    if tool == "bash":
        if everything:
            if action == "allow":
                return [rule("allow", "execute", tool="bash")], ""
            return [rule(action, "execute", tool=name) for name in PROGRAM_TOOLS], ""
        if "\\" in pattern:
            return _unclear(action, "execute")
        target = re.sub(r"\[", "[[]", pattern.strip())
        return [rule(action, "execute", target, "bash" if action == "allow" and target[0] in "*?" else "")], ""
    if tool in ("read", "edit"):
        permission, tools = ("read", "") if tool == "read" else ("write", "file_*")
        if everything:
            return [rule("allow", permission, tool=tools) if action == "allow" else f"{action} {permission}"], ""
        if "\\" in pattern or not re.fullmatch(r"[^\[\]{}]+", pattern):
            return _unclear(action, permission)
        if action == "allow":
            return [rule("allow", permission, pattern.replace("$HOME", "~"), tools)], ""
        paths = _spell_out(pattern.replace("$HOME", "~"))
        return ([rule(action, permission, one) for one in paths], "") if paths else _unclear(action, permission)
    if tool in TOOLS:
        if everything:
            return [rule(action, tool=name) for name in TOOLS[tool]], ""
        return _unclear(action, f"tool:{TOOLS[tool][0]}")
    if not everything:
        return [], "Forge has no such tool"
    # a tool of a server is SERVER_TOOL there: which part is the server is known only for a pattern
    server, star, _ = tool.partition("*")
    if star and tool.endswith("*") and tool.count("*") == 1 and server.endswith("_"):
        return [rule(action, tool=f"{server.rstrip('_')}__*")], ""
    if action == "allow":
        return [], "it is not clear which tool of which server it means"
    return [rule("ask", tool="*__*")], "it is not clear which tool it means: all tools of servers ask"


def _unclear(action: str, what: str) -> tuple[list[RuleSource], str]:
    if action == "allow":
        return [], "Forge cannot read this pattern"
    return [f"ask {what}"], f"Forge cannot read this pattern; so `ask {what}` asks about more"


def _spell_out(pattern: str) -> list[str]:
    """Returns patterns of Forge that together cover one in which each `*` also stands for slashes."""
    parts = re.split(r"\*+", pattern)
    if len(parts) - 1 > _MOST_STARS:
        return []
    found = []
    for stars in itertools.product(("*", "*/**/*"), repeat=len(parts) - 1):
        found.append("".join(itertools.chain(*itertools.zip_longest(parts, stars, fillvalue=""))))
    return found


# Agents.


def _add_agent(found: Findings, path: Path, name: str, said: dict[str, Any]) -> None:
    if said.get("mode") == "primary" or said.get("disable") is True:
        found.leave(path, f"agent.{name}", "it is not a sub-agent, or disabled")
        return
    prompt = said.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip() or _FILE.search(prompt):
        found.leave(path, f"agent.{name}", "its prompt is missing, or in another file: copy it into forge.yaml")
        return
    entry: dict[str, Any] = {"prompt": join_prompt(said.get("description"), prompt)}
    switches = mapping_of(said.get("tools"))
    denied = {tool for tool, on in switches.items() if on is False}
    permission = mapping_of(said.get("permission"))
    denied |= {tool for tool, one in permission.items() if one == "deny"}
    if "permission" in said and not isinstance(said["permission"], dict):
        found.leave(
            path, f"agent.{name}", "its permission is about everything: write the agent into forge.yaml yourself"
        )
        return
    wanted = [tool for tool, on in switches.items() if on is True and tool in TOOLS and tool not in denied]
    reading = [tool for tool in ("read", "grep", "glob") if tool not in denied]
    tools = list(dict.fromkeys(one for tool in wanted or reading for one in TOOLS[tool]))
    if "*" in denied or not tools:
        found.leave(path, f"agent.{name}", "it has none of Forge's tools, and an agent without a list would have more")
        return
    entry["tools"] = tools
    if not wanted:
        found.leave(path, f"agent.{name}.tools", "it has all other tools there; here it has those that read")
    if any(one != "deny" for one in permission.values()):
        found.leave(path, f"agent.{name}.permission", "the rules of the project hold for its sub-agents")
    if model := _model(said.get("model")):
        entry["model"] = model
    for key in said:
        if key == "model" and model:
            continue
        if key not in ("description", "prompt", "tools", "permission", "mode", "disable", "name"):
            found.leave(path, f"agent.{name}.{key}", "an agent of Forge has no such setting, or another form of it")
    found.add_agent(path, name, entry)
