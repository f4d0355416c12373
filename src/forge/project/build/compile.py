"""Stage 5: compiles the rules, egress, guardrails and pins that a run enforces."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from forge.permissions.rules import Rule
from forge.project.assemble.egress import project_egress
from forge.project.assemble.policy import project_policy
from forge.project.build.filter import is_for_developers
from forge.project.build.gather import Documents, gather_documents
from forge.project.build.record import (
    EGRESS,
    GUARDRAILS,
    PINS,
    POLICY,
    PROJECT,
    Build,
    OutputFile,
    Problem,
    StageRefused,
    to_bytes,
)
from forge.skills.guardrails import Guardrails
from forge.skills.guardrails import Rule as GuardrailRule


def compile_guards(build: Build) -> str:
    """Writes the compiled documents into the build."""
    documents = gather_documents(build)
    build.files |= documents.files
    build.project = _project(build, documents)
    documents_by_path = {
        PROJECT: build.project,
        POLICY: _policy(build),
        EGRESS: _egress(build),
        GUARDRAILS: _guardrails(build),
        PINS: _pins(build),
    }
    try:
        build.files |= {path: OutputFile(to_bytes(value)) for path, value in documents_by_path.items()}
    except (TypeError, ValueError) as error:  # a date, or a number such as .nan
        raise StageRefused([Problem(f"{build.configuration.name}: {error}", "Write that value as a string.")]) from None
    return f"{len(documents_by_path[POLICY]['rules'])} rules, egress {documents_by_path[EGRESS]['mode']}"


def _project(build: Build, documents: Documents) -> dict[str, Any]:
    """Returns forge.yaml for a run without the project: the files that it names are part of the build."""
    document = copy.deepcopy(build.document)
    for name, changes in documents.entries.items():
        said = document["openapi"][name]
        document["openapi"][name] = {**(said if isinstance(said, dict) else {}), **changes}
    if isinstance(document.get("skills"), dict):
        document["skills"].pop("paths", None)
    if build.order.prod:
        for holder in (document, *(document.get("agents") or {}).values()):
            if "tools" in holder:
                holder["tools"] = [one for one in holder["tools"] if not is_for_developers(one)]
    return document


def _policy(build: Build) -> dict[str, Any]:
    """Returns the project's own rules; those of a user or an organisation belong to the machine of the run."""
    found = project_policy(build.configuration, None).every()
    return {"rules": [_rule(one) for one in found], "otherwise": {"read": "allow", "*": "ask"}}


def _rule(rule: Rule) -> dict[str, Any]:
    said = {
        "action": str(rule.decision),
        "permission": str(rule.permission) if rule.permission else "",
        **{key: getattr(rule, key) for key in ("tool", "target", "agent", "user", "channel")},
    }
    return {key: value for key, value in said.items() if value}


def _egress(build: Build) -> dict[str, Any]:
    project_egress(build.configuration)  # reports an entry that cannot be read
    said = build.configuration.egress
    return {
        "mode": said.mode if said else "open",
        "domains": sorted(said.domains) if said else [],
        "private": sorted(said.private) if said else [],
        "skill_domains": sorted(build.active.egress_domains) if build.active else [],
    }


def _guardrails(build: Build) -> dict[str, Any]:
    """Returns the guardrails of the project and of its active skills."""
    rules = Guardrails.of(build.configuration.guardrails, f"{build.configuration.name}: guardrails")
    rules = rules.joined(*(skill.guardrails for skill in (build.active.named if build.active else ())))
    return {
        "deny_commands": _guardrail_entries(rules.commands),
        "deny_output": [
            {**one, "action": rule.action}
            for one, rule in zip(_guardrail_entries(rules.output), rules.output, strict=True)
        ],
        "deny_prompts": _guardrail_entries(rules.prompts),
        "deny_responses": _guardrail_entries(rules.responses),
        "denied_tools": sorted(rules.tools),
    }


def _guardrail_entries(rules: Iterable[GuardrailRule]) -> list[dict[str, str]]:
    return [{"pattern": rule.pattern.source, "message": rule.message} for rule in rules]


def _pins(build: Build) -> dict[str, Any]:
    """Returns the tools that a person approved for each server: a run accepts no others."""
    servers: dict[str, dict[str, Any]] = {}
    for name, tool in build.remote.items():
        if name in build.tools and tool.state == "pinned":
            servers.setdefault(tool.server, {})[tool.remote] = tool.definition
    return {"servers": servers}
