"""Lists what a project's configuration would enable, for the person who decides about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.context import ProgramLimits
from forge.core.secrets import Secrets
from forge.project.config import read_configuration
from forge.project.config.declaration import Configuration
from forge.project.config.reader import on_one_line

if TYPE_CHECKING:  # most projects have no servers
    from forge.project.config.sources import AcpEntry, McpEntry


class TrustItem(NamedTuple):
    """One effect of a configuration; `kind` names it. A `risky` one runs, allows or sends something."""

    kind: str
    detail: str
    risky: bool = True


def trust_summary(text: str, name: str) -> list[TrustItem]:
    """Returns the effects of the configuration. Raises `ToolError` if it cannot be read."""
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
        yield from server_items(name, server, said)
    for name, agent in said.agents.items():
        if agent.acp is not None:
            sets = f" (sets {', '.join(agent.acp.environment)})" if agent.acp.environment else ""
            yield TrustItem("starts a program", f"sub-agent {name}: {' '.join(agent.acp.command)}{sets}")
            yield from _program_access(f"sub-agent {name}", agent.acp, said)
    for kind, hook in said.all_hooks:
        yield TrustItem("runs a command", f"hook {kind}: {hook.command}")
    for one in said.schedules or ():
        what = "runs a command on a schedule" if one.get("command") else "runs on a schedule"
        yield TrustItem(what, f"schedule {one['id']}: {one['cron']}: {one['task']}")
    for entry in said.tools or ():
        if entry.is_reference:
            yield TrustItem("imports code", f"{entry.name}: it can do everything that you can do")
        loose = {key: value for key, value in entry.config.items() if isinstance(value, bool) or not _is_number(value)}
        if loose:
            settings = ", ".join(f"{key}: {_plain(value)}" for key, value in loose.items())
            yield TrustItem("configures a tool", f"{entry.name or entry.group}: {settings}")


def server_items(name: str, server: McpEntry, said: Configuration) -> Iterator[TrustItem]:
    """Yields what an MCP server turns on."""
    if server.command:
        sets = f" (sets {', '.join(server.environment)})" if server.environment else ""
        yield TrustItem("starts a program", f"MCP server {name}: {' '.join(server.command)}{sets}")
        yield from _program_access(f"MCP server {name}", server, said)
    else:
        yield TrustItem("connects to", f"MCP server {name}: {server.url}")
    for key in ("issuer", "idp_token_url"):
        if url := server.auth.get(key):
            yield TrustItem("connects to", f"login of the MCP server {name}: {url}")


def _program_access(whose: str, server: McpEntry | AcpEntry, said: Configuration) -> Iterator[TrustItem]:
    """Yields what the program of a server, or of an agent of others, may reach."""
    from forge.mcp.programs.fetching import is_fetching
    from forge.project.assemble.sources import server_sandbox

    if not server.integrity and is_fetching(server.command):
        advice = (
            f"; `forge mcp add {whose.split()[-1]}` installs and pins it" if whose.startswith("MCP server ") else ""
        )
        yield TrustItem("fetches a program", f"{whose}: its package is not pinned{advice}")
    sandbox = server_sandbox(said, server)
    if sandbox == "off":
        if server.sandbox == "off":  # otherwise the project's own setting is shown
            yield TrustItem("switches off", f"the sandbox of the {whose}: it can do everything that you can do")
        return
    if sandbox == "auto":
        yield TrustItem("starts a program", f"{whose}: without a sandbox if this machine has none")
    if server.network:
        yield TrustItem("network", f"{whose}: every address, also on this machine")
    access = {"write": "reads and writes", "read": "reads", "none": "does not see"}[server.workspace]
    where = f"its directory {server.directory}" if server.directory else "the workspace"
    yield TrustItem(
        "program reaches", f"{whose}: {access} {where}", risky=server.network and server.workspace != "none"
    )
    for root in server.program_roots:
        yield TrustItem("opens directory", f"{whose}: {root.path} ({'write' if root.writable else 'read'})")


def _rule_items(said: Configuration) -> Iterator[TrustItem]:
    for rule in said.rules:
        action = str(rule.get("action", "")) if isinstance(rule, dict) else str(rule).split(maxsplit=1)[0]
        if action.lower() == "allow":
            message = rule if isinstance(rule, str) else ", ".join(f"{key}: {_plain(one)}" for key, one in rule.items())
            yield TrustItem("allows without asking", message, risky=message.split() != ["allow", "read"])


def _connection_items(said: Configuration) -> Iterator[TrustItem]:
    if not said.labels.enabled:
        yield TrustItem("switches off", "labels: a call may obey a page or a mail without a question")
    if said.labels.trusted:
        yield TrustItem("trusts", f"the results of {', '.join(map(_plain, said.labels.trusted))}")
    if said.agent.trace_content:
        yield TrustItem("records", "messages, arguments and results in the traces that OpenTelemetry exports")
    if said.sandbox == "off":
        yield TrustItem("switches off", "the sandbox: programs can do everything that you can do")
    raised = [
        f"{name} {'not limited' if not wanted else f'{wanted:,}'}"
        for name, wanted, usual in zip(ProgramLimits._fields, said.programs.limits, ProgramLimits(), strict=True)
        if not wanted or wanted > usual
    ]
    if raised:
        yield TrustItem("raises limits", f"programs: {', '.join(raised)}")
    if said.egress is None or said.egress.mode == "open":
        yield TrustItem("network", "every public address (no egress allowlist)", risky=said.egress is not None)
    else:
        yield TrustItem("network", f"{said.egress.mode}: {', '.join(said.egress.domains) or 'nothing'}", risky=False)
    if said.egress is not None and said.egress.private:
        yield TrustItem("network", f"private addresses: {', '.join(said.egress.private)}")
    for secret in said.secret_entries:
        if secret.command:
            yield TrustItem("runs a command", f"to read a secret: {' '.join(secret.command)}")
        if secret.hosts:
            named = secret.name or secret.keyring or str(secret.file or secret.command[0])
            yield TrustItem("sends a secret", f"{named}, in requests of programs to {', '.join(secret.hosts)}")
    if said.serve is not None and said.serve.auth:
        yield TrustItem("accepts tokens of", f"{said.serve.auth['issuer']}, for forge serve --http")
    for name, document in said.openapi.items():
        urls = dict.fromkeys(one for one in (document.server, document.spec) if one)
        yield TrustItem("connects to", f"OpenAPI {name}: {', '.join(urls)}")
    for name, hook in said.webhooks.items():
        yield TrustItem("connects to", f"webhook {name}: {hook.url}")
    for name, channel in said.channels.items():
        target = channel.path or channel.url_env or channel.token_env or channel.type
        yield TrustItem("delivers to", f"channel {name} ({channel.type}): {target}")
        if channel.people:
            who = f"{', '.join(channel.people)}, by messages in the channel {name} ({channel.type}), with forge listen"
            yield TrustItem("lets people start runs", who)
        if channel.approvers:
            yield TrustItem("lets people approve", f"{', '.join(channel.approvers)}, in the channel {name}")
    embedder = said.memory.embedder if said.memory else ""
    if isinstance(embedder, dict):
        yield TrustItem("connects to", f"memory, sends notes to {embedder['url']}")
    if said.durable is not None and said.durable.database:
        from forge.project.config.durable import without_password

        yield TrustItem("stores runs in", without_password(said.durable.database))
    if said.durable is not None and said.durable.health:
        yield TrustItem("serves metrics at", said.durable.health)
    if said.root is not None:
        yield TrustItem("works in", f"{said.root}", risky=".." in said.root.parts or said.root.is_absolute())
    for root in said.roots:
        yield TrustItem("opens directory", f"{root.path} ({'write' if root.writable else 'read'})")


def _harmless_items(said: Configuration) -> Iterator[TrustItem]:
    for one in said.agent.options.get("tools") or ():  # tools that the model's server runs
        yield TrustItem("gives the model", f"a tool of its own server: {_plain(one)}")
    if said.agent.model:
        yield TrustItem("model", said.agent.model, risky=False)
    for name, agent in said.agents.items():
        prompt = f": {agent.prompt}" if agent.prompt else ""
        yield TrustItem("sub-agent", f"{name}{f' with {agent.model}' if agent.model else ''}{prompt}", risky=False)
    if said.agent.prompt:
        yield TrustItem("instructs the model", said.agent.prompt, risky=False)
    if said.skills is not None:
        yield TrustItem(
            "skills", f"from {', '.join(said.skills.paths)}; active: {', '.join(said.skills.active) or 'none'}"
        )
    if said.variables:
        yield TrustItem("reads variables", ", ".join(said.variables), risky=False)


def _is_number(value: Any) -> bool:
    """Returns whether a value is only a bound; other settings may be a program, an address or a variable."""
    return isinstance(value, int | float)


def _plain(value: Any) -> str:

    return on_one_line(value)
