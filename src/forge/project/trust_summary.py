"""Lists for the deciding person what accepting a project's configuration would turn on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.secrets import Secrets
from forge.project.config import Configuration, read_configuration


class TrustItem(NamedTuple):
    """One effect of a configuration; `kind` names it. A `risky` one runs, allows or sends something."""

    kind: str
    detail: str
    risky: bool = True


def trust_summary(text: str, name: str) -> list[TrustItem]:
    """Returns the items. Raises `ToolError` if the configuration cannot be read."""
    said = read_configuration(text, name)
    mask = Secrets().mask_all
    found = [*_program_items(said), *_rule_items(said), *_connection_items(said), *_harmless_items(said)]
    return [one._replace(detail=mask(one.detail)) for one in found]


def scripts_in(workspace: str | os.PathLike[str]) -> list[str]:
    """Returns files that may be tools; their descriptions would reach the model."""
    folder = Path(workspace, "tools")
    try:
        return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith((".", "_")))
    except OSError:
        return []


def _program_items(said: Configuration) -> Iterator[TrustItem]:
    for name, server in said.servers.items():
        if server.command:
            sets = f" (sets {', '.join(server.environment)})" if server.environment else ""
            yield TrustItem("starts a program", f"MCP server {name}: {' '.join(server.command)}{sets}")
        else:
            yield TrustItem("connects to", f"MCP server {name}: {server.url}")
    for one in said.schedules or ():
        yield TrustItem("runs by the clock", f"schedule {one['id']}: {one['cron']}: {one['task']}")
    for entry in said.tools or ():
        loose = {key: value for key, value in entry.config.items() if isinstance(value, bool) or not _is_number(value)}
        if loose:
            settings = ", ".join(f"{key}: {_plain(value)}" for key, value in loose.items())
            yield TrustItem("sets a tool", f"{entry.name or entry.group}: {settings}")


def _rule_items(said: Configuration) -> Iterator[TrustItem]:
    for rule in said.rules:
        action = str(rule.get("action", "")) if isinstance(rule, dict) else str(rule).split(maxsplit=1)[0]
        if action.lower() == "allow":
            words = rule if isinstance(rule, str) else ", ".join(f"{key}: {_plain(one)}" for key, one in rule.items())
            yield TrustItem("allows without asking", words, risky=words.split() != ["allow", "read"])


def _connection_items(said: Configuration) -> Iterator[TrustItem]:
    if said.sandbox == "off":
        yield TrustItem("switches off", "the sandbox: programs can do all that you can")
    if said.egress is None or said.egress.mode == "open":
        yield TrustItem("network", "every public address (no egress allowlist)", risky=said.egress is not None)
    else:
        yield TrustItem("network", f"{said.egress.mode}: {', '.join(said.egress.domains) or 'nothing'}", risky=False)
    if said.egress is not None and said.egress.private:
        yield TrustItem("network", f"private addresses: {', '.join(said.egress.private)}")
    for name, document in said.openapi.items():
        urls = dict.fromkeys(one for one in (document.server, document.spec) if one)
        yield TrustItem("connects to", f"OpenAPI {name}: {', '.join(urls)}")
    for name, hook in said.webhooks.items():
        yield TrustItem("connects to", f"webhook {name}: {hook.url}")
    for name, channel in said.channels.items():
        target = channel.path or channel.url_env or channel.token_env or channel.type
        yield TrustItem("delivers to", f"channel {name} ({channel.type}): {target}")
    embedder = said.memory.embedder if said.memory else ""
    if isinstance(embedder, dict):
        yield TrustItem("connects to", f"memory, sends notes to {embedder['url']}")
    if said.durable is not None and said.durable.database:
        from forge.project.config.durable import without_password

        yield TrustItem("keeps runs in", without_password(said.durable.database))
    if said.root is not None:
        yield TrustItem("works in", f"{said.root}", risky=".." in said.root.parts or said.root.is_absolute())
    for root in said.roots:
        yield TrustItem("reaches", f"{root.path} ({'write' if root.writable else 'read'})")


def _harmless_items(said: Configuration) -> Iterator[TrustItem]:
    if said.agent.model:
        yield TrustItem("model", said.agent.model, risky=False)
    for name, agent in said.agents.items():
        prompt = f": {agent.prompt}" if agent.prompt else ""
        yield TrustItem("sub-agent", f"{name}{f' with {agent.model}' if agent.model else ''}{prompt}", risky=False)
    if said.agent.prompt:
        yield TrustItem("tells the model", said.agent.prompt, risky=False)
    if said.skills is not None:
        yield TrustItem(
            "skills", f"from {', '.join(said.skills.paths)}; active: {', '.join(said.skills.active) or 'none'}"
        )
    if said.variables:
        yield TrustItem("reads variables", ", ".join(said.variables), risky=False)


def _is_number(value: Any) -> bool:
    """Tells whether a value is only a bound; other settings may be a program, an address or a variable."""
    return isinstance(value, int | float)


def _plain(value: Any) -> str:
    from forge.project.config.key_paths import on_one_line

    return on_one_line(value)
