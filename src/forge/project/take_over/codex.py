"""Reads the files of Codex: `config.toml`, prompts and skills."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from forge.core.untrusted import one_line
from forge.project.servers.other_clients import Converter
from forge.project.servers.plan import safe_name
from forge.project.take_over.claude import read_instructions, read_skills
from forge.project.take_over.findings import Findings, mapping_of, rule, split_front, texts_of

LARGEST_CONFIG = 1024 * 1024  # bytes
_SAME = ("command", "args", "env", "cwd", "url")
_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "none")
_REASONS = {  # of settings that are left out
    "approval_policy": "Forge asks about what no rule allows; `forge run --yes` answers for one run",
    "network_access": "hosts are opened by rules, such as `allow network HOST`",
    "profiles": "Forge has no profiles: name another file with --config",
    "model_provider": "write `agent: {model: PROVIDER:MODEL}`",
    "model_providers": "write `agent: {model: PROVIDER:MODEL}`",
    "projects": "a project counts after `forge trust`",
    "shell_environment_policy": "programs get no secrets of the environment",
    "notify": "see hooks and channels",
    "hooks": "the hooks of Codex are not taken over",
    "default_permissions": "the permission profiles of Codex are not taken over",
    "permissions": "the permission profiles of Codex are not taken over",
}


def read_codex(found: Findings, *, with_home: bool = True) -> None:
    """Reads the project's files, then those of the home."""
    own = os.environ.get("CODEX_HOME")
    homes = [Path(own) if own else found.home / ".codex"] if with_home else []
    for folder in (found.workspace / ".codex", *homes):
        path = folder / "config.toml"
        text = found.read_text(path, LARGEST_CONFIG)
        if text is not None:
            try:
                _read_config(found, path, tomllib.loads(text))
            except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
                found.leave(path, "the file", f"it is not TOML: {one_line(str(error), 200)}")
        for prompt in found.list_files(folder / "prompts", deepest=0):
            if (words := found.read_text(prompt)) is not None:
                front, body = split_front(words)
                found.add_command(prompt, prompt.stem, body, front)
        for one in ("AGENTS.md", "AGENTS.override.md"):
            read_instructions(found, folder / one, "Forge reads the AGENTS.md of the project only")
        if folder in homes and os.path.isdir(folder / "skills"):
            found.leave(folder / "skills", "the folder", "it is outside of the project: copy a skill into skills/")
        if os.path.isdir(folder / "rules"):
            found.leave(folder / "rules", "the folder", "rules of Codex are programs in Starlark: write rules of Forge")
    for name in (".codex/skills", ".agents/skills"):
        read_skills(found, found.workspace / name)
    if found.read and os.path.lexists(found.workspace / "AGENTS.md"):
        found.leave(
            found.workspace / "AGENTS.md",
            "the file",
            "nothing to copy: Forge reads it where it is, once you trust it: `forge trust`",
        )


def _read_config(found: Findings, path: Path, said: dict[str, Any]) -> None:
    provider = said.get("model_provider", "openai")
    for key, value in said.items():
        if key == "mcp_servers":
            _read_servers(found, path, mapping_of(value))
        elif key == "model" and isinstance(value, str) and provider == "openai" and value.isprintable():
            found.add_setting(path, key, ("agent", "model"), f"openai:{value}")
        elif key == "model":
            found.leave(path, key, "its provider is another one: write `agent: {model: PROVIDER:MODEL}`")
        elif key == "model_reasoning_effort" and value in _EFFORTS:
            found.add_setting(path, key, ("agent", "options"), {"reasoning_effort": value})
        elif key == "sandbox_mode":
            _read_sandbox(found, path, value)
        elif key == "sandbox_workspace_write":
            for inner, one in mapping_of(value).items():
                if inner == "writable_roots" and said.get("sandbox_mode") == "workspace-write":
                    for folder in texts_of(one if isinstance(one, list) else None):
                        found.add_root(path, inner, folder, "write")
                else:
                    found.leave(path, f"{key}.{inner}", _REASONS.get(inner, "Forge has no such setting"))
        else:
            found.leave(path, key, _REASONS.get(key, "Forge has no such setting"))


def _read_sandbox(found: Findings, path: Path, value: Any) -> None:
    if value in ("read-only", "workspace-write"):
        found.add_setting(path, "sandbox_mode", ("sandbox",), "required")
    if value == "read-only":
        found.add_setting(path, "sandbox_mode", ("workspace", "writes"), False)
    elif value != "workspace-write":
        found.leave(path, "sandbox_mode", "the sandbox stays as Forge has it")


def _read_servers(found: Findings, path: Path, servers: dict[str, Any]) -> None:
    converter = Converter(found.workspace)
    for name, value in servers.items():
        said = mapping_of(value)
        given: dict[str, Any] = {key: said[key] for key in _SAME if key in said}
        headers = {
            **mapping_of(said.get("http_headers")),
            **{key: f"${{env:{one}}}" for key, one in mapping_of(said.get("env_http_headers")).items()},
        }
        if isinstance(said.get("bearer_token_env_var"), str):
            headers["Authorization"] = f"Bearer ${{env:{said['bearer_token_env_var']}}}"
        if headers:
            given["headers"] = headers
        if passed := texts_of(said.get("env_vars")):
            given["env"] = {**{one: f"${{env:{one}}}" for one in passed}, **mapping_of(given.get("env"))}
        if said.get("enabled") is False:
            given["disabled"] = True
        plan = converter.convert(name, given)
        entry = dict(plan.entry)
        for key, ours in (("enabled_tools", "include"), ("disabled_tools", "exclude")):
            if tools := texts_of(said.get(key)):
                entry[ours] = tools
        seconds = said.get("tool_timeout_sec")
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
            entry["timeout"] = seconds
        _read_tools(found, path, name, mapping_of(said.get("tools")))
        known = (*_SAME, "http_headers", "env_http_headers", "bearer_token_env_var", "env_vars", "enabled", "tools")
        for key in said:
            if key not in (*known, "enabled_tools", "disabled_tools", "tool_timeout_sec"):
                found.leave(path, f"mcp_servers.{name}.{key}", "Forge has no such setting")
        found.servers.append(plan._replace(entry=entry))


def _read_tools(found: Findings, path: Path, server: str, tools: dict[str, Any]) -> None:
    for tool, value in tools.items():
        key = f"mcp_servers.{server}.tools.{tool}"
        for inner, mode in mapping_of(value).items():
            if inner == "approval_mode" and mode == "prompt":
                found.add_rule(path, key, "ask", [rule("ask", tool=f"{safe_name(server)}__{tool}")], ordered=False)
            else:
                found.leave(path, f"{key}.{inner}", "write a rule such as `allow tool:SERVER__TOOL`")
