"""Stage 5: what guards the agent, in the form that a run goes by: its rules, its egress, its guardrails, its pins."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from forge.project.build.filter import is_for_developers
from forge.project.build.gather import Documents, gather_documents
from forge.project.build.record import EGRESS, GUARDRAILS, PINS, POLICY, PROJECT, Build, File, Problem, Refused, written
from forge.project.assemble.egress import project_egress
from forge.project.assemble.policy import project_policy
from forge.permissions.policy import Rule
from forge.skills.guardrails import Guardrails
from forge.skills.guardrails import Rule as Denied


def compile_guards(build: Build) -> str:
    documents = gather_documents(build)
    build.files |= documents.files
    build.project = _project(build, documents)
    made = {
        PROJECT: build.project,
        POLICY: _policy(build),
        EGRESS: _egress(build),
        GUARDRAILS: _guardrails(build),
        PINS: _pins(build),
    }
    try:
        build.files |= {path: File(written(value)) for path, value in made.items()}
    except (TypeError, ValueError) as error:  # a date, or a number such as .nan
        raise Refused([Problem(f"{build.configuration.name}: {error}", "Write that value as a text.")]) from None
    return f"{len(made[POLICY]['rules'])} rules, egress {made[EGRESS]['mode']}"


def _project(build: Build, documents: Documents) -> dict[str, Any]:
    """forge.yaml, so that it can be read where the project is not: what it names beside it has come along."""
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
    """The project's own rules: those of a user or an organisation belong to the machine that it runs on."""
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
    project_egress(build.configuration)  # an entry that cannot be read is told now
    said = build.configuration.egress
    return {
        "mode": said.mode if said else "open",
        "domains": sorted(said.domains) if said else [],
        "private": sorted(said.private) if said else [],
        "skill_domains": sorted(build.active.egress_domains) if build.active else [],
    }


def _guardrails(build: Build) -> dict[str, Any]:
    """The project's, and those of its active skills."""
    rules = Guardrails.of(build.configuration.guardrails, f"{build.configuration.name}: guardrails")
    rules = rules.joined(*(skill.guardrails for skill in (build.active.named if build.active else ())))
    return {
        "deny_commands": _denied(rules.commands),
        "deny_output": [
            {**one, "action": rule.action} for one, rule in zip(_denied(rules.output), rules.output, strict=True)
        ],
        "deny_prompts": _denied(rules.prompts),
        "deny_responses": _denied(rules.responses),
        "denied_tools": sorted(rules.tools),
    }


def _denied(rules: Iterable[Denied]) -> list[dict[str, str]]:
    return [{"pattern": rule.pattern.source, "message": rule.message} for rule in rules]


def _pins(build: Build) -> dict[str, Any]:
    """What a person approved of each server: a run takes nothing else for approved."""
    servers: dict[str, dict[str, Any]] = {}
    for name, tool in build.remote.items():
        if name in build.tools and tool.state == "pinned":
            servers.setdefault(tool.server, {})[tool.remote] = tool.definition
    return {"servers": servers}
