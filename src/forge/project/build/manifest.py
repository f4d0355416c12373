"""Stage 6: writes the agent, its files and Dockerfile, and the list of all files with their hashes."""

from __future__ import annotations

from typing import Any

from forge.core.extras import DISTRIBUTION
from forge.core.spec import INTERFACE_VERSION
from forge.project.build.compile import entry_of, gather_scripts, gather_skills, is_for_developers
from forge.project.build.record import AGENT, FORMAT, MANIFEST, SCRIPTS, Build, OutputFile, digest, to_bytes
from forge.project.config.agent import SubAgentEntry
from forge.project.version import version

REQUIRES = ">=3.11"  # the Python versions of the package


def manifest(build: Build) -> str:
    """Adds agent.json, the Dockerfile and the manifest to the build."""
    build.files |= gather_scripts(build) | gather_skills(build)
    build.files["Dockerfile"] = OutputFile(dockerfile(build).encode())
    build.files[AGENT] = OutputFile(to_bytes(_agent(build)))
    content = to_bytes(_manifest(build))
    build.files[MANIFEST] = OutputFile(content)
    build.sha256 = digest(content)
    return f"{len(build.files)} files"


def _agent(build: Build) -> dict[str, Any]:
    """Returns the AgentSpec."""
    configuration, own = build.configuration, build.configuration.agent
    return {
        "tool_interface_version": INTERFACE_VERSION,
        **_agent_identity(build),
        "description": own.description,
        "prompt": own.prompt,
        "model": own.model,
        "limits": dict(own.limits),
        "agents": {name: _sub_agent(build, one) for name, one in configuration.agents.items()},
        "tools": [entry_of(spec) for spec in build.tools.values()],
        "skills": {
            "known": sorted(skill.name for skill in build.skills),
            "active": sorted(skill.name for skill in build.active.named) if build.active else [],
        },
        "memory": bool(configuration.memory and configuration.memory.enabled),
        "schedules": sorted(str(one["id"]) for one in configuration.schedules or ()),
        "channels": sorted(configuration.channels),
        "sandbox": configuration.sandbox,
        "writes": configuration.writes,
    }


def _sub_agent(build: Build, entry: SubAgentEntry) -> dict[str, Any]:
    return {
        "prompt": entry.prompt,
        "model": entry.model,
        "tools": [one for one in entry.tools if not (build.order.prod and is_for_developers(one))],
        "limits": dict(entry.limits),
    }


def _agent_identity(build: Build) -> dict[str, str]:
    own = build.configuration.agent
    return {"id": own.id or "agent", "version": own.version or "0.0.0"}


def _manifest(build: Build) -> dict[str, Any]:
    return {
        "manifest_version": FORMAT,
        "mode": build.order.mode,
        "agent": _agent_identity(build),
        "versions": {"forge": version(), "python": REQUIRES, "tool_interface": INTERFACE_VERSION},
        "counts": build.counts,
        "environment": environment(build),
        "sources": build.sources,
        "files": {path: _file_entry(file) for path, file in build.files.items()},
    }


def environment(build: Build) -> dict[str, list[str]]:
    """Returns the names of variables: required, optional, and that of the model's provider."""
    return {
        "required": sorted(build.required),
        "optional": sorted(build.optional),
        "model": [build.key] if build.key else [],
    }


def _file_entry(file: OutputFile) -> dict[str, Any]:
    listed: dict[str, Any] = {"sha256": digest(file.content), "bytes": len(file.content)}
    return {**listed, "executable": True} if file.executable else listed


# Writes a Dockerfile for the agent. No image is built.


PYTHON = "3.13"


def dockerfile(build: Build) -> str:
    """Returns the same text for the same project; only names of variables and packages come from the project."""
    packages = sorted(_packages(build))
    install = " ".join(("apt-get install --yes --no-install-recommends", *packages))
    lines = [
        "# Builds an image of the agent. Run in this directory: docker build --tag my-agent .",
        "# To make sure that this build runs, append --expect and the SHA-256 of build-manifest.json to the command.",
        f"ARG PYTHON={PYTHON}",
        "FROM python:${PYTHON}-slim",
        f"RUN apt-get update && {install} && rm -rf /var/lib/apt/lists/*",
        _install_line(build),
        "RUN useradd --create-home --uid 10001 agent && install --directory --owner agent /workspace",
        "COPY --chown=root:root . /agent",
        "USER agent",
        "WORKDIR /workspace",
    ]
    if needs := sorted({*build.required, *([build.key] if build.key else ())}):
        lines.append(f"# The agent needs these variables; pass them with --env or --env-file: {' '.join(needs)}")
    if build.configuration.servers:
        lines.append("# This image does not contain the programs of the MCP servers: install them above.")
    lines.append('ENTRYPOINT ["forge", "run", "--from", "/agent"]')
    return "\n".join(lines) + "\n"


def _install_line(build: Build) -> str:
    number = version()
    if " " in number:  # the version is unknown
        return f"# Install {DISTRIBUTION} here: Forge ran from source during the build, so its version is unknown."
    extras = ",".join(sorted(_extras(build)))
    package = f"'{DISTRIBUTION}[{extras}]=={number}'" if extras else f"{DISTRIBUTION}=={number}"
    return f"RUN pip install --no-cache-dir {package}"


def _extras(build: Build) -> set[str]:
    """Returns the extras that the agent's tools and sections need."""
    found = {spec.extra for spec in build.tools.values() if spec.extra}
    if build.configuration.servers:
        found.add("mcp")
    if build.configuration.durable is not None:
        found.add("durable")
    return found


def _packages(build: Build) -> set[str]:
    found = {"bubblewrap", "ca-certificates"}
    endings = {path.rpartition(".")[2] for path in build.files if path.startswith(f"{SCRIPTS}/")}
    if endings & {"js", "ts"}:
        found.add("nodejs")
    if "ts" in endings:
        found.add("esbuild")  # the Node.js of the image's system is too old to run TypeScript by itself
    return found
