"""Stage 6: the agent itself, the files it needs, and the list of everything with its hashes."""

from __future__ import annotations

from typing import Any

from forge.project.build.definition import entry_of
from forge.project.build.dockerfile import dockerfile
from forge.project.build.filter import is_for_developers
from forge.project.build.gather import gather_scripts, gather_skills
from forge.project.build.record import AGENT, FORMAT, MANIFEST, Build, File, digest, written
from forge.project.config import SubAgentEntry
from forge.project.version import version
from forge.core.spec import INTERFACE_VERSION

REQUIRES = ">=3.11"  # of Python, as the package says


def manifest(build: Build) -> str:
    build.files |= gather_scripts(build) | gather_skills(build)
    build.files["Dockerfile"] = File(dockerfile(build).encode())
    build.files[AGENT] = File(written(_agent(build)))
    content = written(_manifest(build))
    build.files[MANIFEST] = File(content)
    build.sha256 = digest(content)
    return f"{len(build.files)} files"


def _agent(build: Build) -> dict[str, Any]:
    """The AgentSpec."""
    configuration, own = build.configuration, build.configuration.agent
    return {
        "tool_interface_version": INTERFACE_VERSION,
        **_named(build),
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


def _named(build: Build) -> dict[str, str]:
    own = build.configuration.agent
    return {"id": own.id or "agent", "version": own.version or "0.0.0"}


def _manifest(build: Build) -> dict[str, Any]:
    return {
        "manifest_version": FORMAT,
        "mode": build.order.mode,
        "agent": _named(build),
        "versions": {"forge": version(), "python": REQUIRES, "tool_interface": INTERFACE_VERSION},
        "counts": build.counts,
        "environment": environment(build),
        "sources": build.sources,
        "files": {path: _listed(file) for path, file in build.files.items()},
    }


def environment(build: Build) -> dict[str, list[str]]:
    """Names of variables: those it needs, those it can use, and the one of its model's provider."""
    return {
        "required": sorted(build.required),
        "optional": sorted(build.optional),
        "model": [build.key] if build.key else [],
    }


def _listed(file: File) -> dict[str, Any]:
    listed: dict[str, Any] = {"sha256": digest(file.content), "bytes": len(file.content)}
    return {**listed, "executable": True} if file.executable else listed
