"""`forge skill`: lists, shows, checks and writes skills."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from forge.cli.group import CommandGroup
from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import harmless, table_lines
from forge.core.errors import ToolError

if TYPE_CHECKING:  # loaded by the command that needs it
    from forge.skills.catalog import Catalog
    from forge.skills.skill import Skill


@click.group("skill", cls=CommandGroup)
def command() -> None:
    """List, show, check and create the skills of this workspace."""


@command.command("list")
@with_options()
def list_(options: Options) -> None:
    """List the skills, with missing requirements and problems.

    \b
    forge skill list --json

    With --json: {"skills": [{name, description, tags, version, path, built_in, missing, notes}],
    "problems": [{path, why}]}.
    """
    with _catalog(options) as catalog:
        skills, problems = list(catalog.skills.values()), catalog.problems
    if options.json:
        _print_json({"skills": [_main_fields(one) for one in skills], "problems": [one._asdict() for one in problems]})
        return
    lines = table_lines([(one.name, _describe(one)) for one in skills])
    for line in lines:
        click.echo(line)
    if not skills:
        click.echo("There are no skills. `forge skill new NAME` creates one.", err=True)
    _print_problems(problems)


@command.command()
@click.argument("name")
@with_options()
def show(options: Options, name: str) -> None:
    """Print a skill: its metadata and its instructions.

    \b
    forge skill show code-agent

    With --json: the fields of `list`, and {body, license, compatibility, allowed_tools, requires, egress_domains,
    denied_tools, groups, guardrails, timeout_hint, tools: [{name, description, parameters, script, problem}]}.
    """
    with _catalog(options) as catalog:
        skill = catalog.find(name)
        fields = _all_fields(skill)
    if options.json:
        _print_json(fields)
        return
    click.echo(click.style(skill.name, bold=True))
    for label, value in _rows(fields):
        click.echo(f"{label:<15} {harmless(value)}")
    click.echo(f"\n{harmless(skill.body)}")


@command.command()
@click.argument("name", required=False)
@with_options()
def check(options: Options, name: str | None) -> int:
    """Check one skill or all of them, and report problems.

    A skill in a folder is also checked against the Agent Skills standard: other programs may refuse a skill with
    further keys, or with another name than its folder. Forge uses such a skill all the same.

    \b
    forge skill check

    \b
    With --json: {"ok": …, "problems": [{path, why}], "missing": {name: […]}, "notes": {name: […]}}.
    Exit codes: 0 no problems     1 a skill is broken, or a requirement is missing     2 there is no such skill
    """
    with _catalog(options) as catalog:
        report = _check_skills(catalog, name)
    broken = not report["ok"]
    if options.json:
        _print_json(report)
        return int(broken)
    for problem in report["problems"]:
        click.echo(f"{click.style('✗', fg='red')} {harmless(problem['path'])}: {harmless(problem['why'])}")
    for mark, key, colour in (("!", "missing", "yellow"), ("·", "notes", None)):
        for one, words in report[key].items():
            for word in words:
                click.echo(f"{click.style(mark, fg=colour)} {one}: {harmless(word)}")
    if not broken:
        click.echo(f"{click.style('✓', fg='green')} {name or 'all skills'}: no problems.")
    return int(broken)


@command.command()
@click.argument("name")
@with_options()
def new(options: Options, name: str) -> None:
    """Create a skill from a template.

    \b
    forge skill new deploy

    \b
    With --json: {"skill": …, "files": […]}.
    Exit codes: 0 created     2 the name is invalid, or a file already exists
    """
    with _catalog(options) as catalog:
        files = _write_skill(catalog, name)
    if options.json:
        _print_json({"skill": name, "files": files})
        return
    click.echo(f"Wrote {' and '.join(files)}.")
    click.echo(
        "Now write its description and its instructions. Then run:\n"
        f"  forge skill check {name}\n"
        f"To use its script as a tool, name it in forge.yaml:\n  skills: {{active: [{name}]}}"
    )


@contextmanager
def _catalog(options: Options) -> Iterator[Catalog]:
    with refusals():
        from forge.project.assemble.knowledge import project_skills

        catalog: Catalog = project_skills(options)
        yield catalog


def _main_fields(skill: Skill) -> dict[str, Any]:
    return {
        "name": skill.name,
        "description": skill.description,
        "tags": list(skill.front.tags),
        "version": skill.front.version,
        "path": skill.location.shown,
        "built_in": skill.is_built_in,
        "missing": list(skill.missing),
        "notes": list(skill.notes),
    }


def _all_fields(skill: Skill) -> dict[str, Any]:
    front = skill.front
    return {
        **_main_fields(skill),
        "license": front.license,
        "compatibility": front.compatibility,
        "allowed_tools": list(front.allowed_tools),
        "requires": {key: list(value) for key, value in front.requires._asdict().items()},
        "egress_domains": list(front.egress_domains),
        "denied_tools": list(front.denied_tools),
        "groups": list(front.groups),
        "guardrails": {
            key: [{"pattern": rule.pattern.source, "message": rule.message} for rule in getattr(front.guardrails, key)]
            for key in ("commands", "output", "prompts", "responses")
        },
        "timeout_hint": front.timeout_hint,
        "tools": [
            {
                "name": one.name,
                "description": one.description,
                "parameters": dict(one.parameters),
                "script": one.script,
                "problem": one.problem,
            }
            for one in skill.tools
        ],
        "body": skill.body,
    }


def _rows(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the label and text of every field that has a value."""
    for key in ("description", "version", "license", "compatibility", "path"):
        if fields[key]:
            yield key, str(fields[key])
    for key in ("tags", "allowed_tools", "groups", "egress_domains", "denied_tools", "missing", "notes"):
        if fields[key]:
            yield key.replace("_", " "), ", ".join(fields[key])
    for key, value in fields["requires"].items():
        if value:
            yield f"needs {key.replace('_', ' ')}", ", ".join(value)
    for key, rules in fields["guardrails"].items():
        for rule in rules:
            yield f"denies {key}", f"{rule['pattern']}  ({rule['message']})"
    for tool in fields["tools"]:
        yield "tool", f"{tool['name']}: {tool['description'].partition(chr(10))[0]}"


def _check_skills(catalog: Catalog, name: str | None) -> dict[str, Any]:
    from forge.skills.catalog import SkillProblem
    from forge.skills.script_tool import skill_tools
    from forge.skills.skill import read_exact_text
    from forge.skills.standard import check_standard

    problems = catalog.problems
    if name is not None and name not in catalog.skills:
        problems = [one for one in problems if f"/{name}/" in f"/{one.path}" or one.path.endswith(f"/{name}.md")]
        if not problems:
            catalog.find(name)  # raises: there is none
    elif name is not None:
        problems = []
    chosen = [one for one in catalog.skills.values() if name in (None, one.name)]
    taken = _built_in_names()
    for skill in chosen:
        problems = [*problems, *skill_tools(skill, taken=taken)[1]]
        if skill.folder is not None:
            found = check_standard(read_exact_text(skill.location), skill.folder.path.name)
            problems += [SkillProblem(skill.location.shown, why) for why in found]
    missing = {one.name: list(one.missing) for one in chosen if one.missing}
    return {
        "ok": not problems and not missing,
        "problems": [one._asdict() for one in problems],
        "missing": missing,
        "notes": {one.name: list(one.notes) for one in chosen if one.notes},
    }


def _built_in_names() -> set[str]:
    from forge.core.registry import ToolRegistry
    from forge.tools import built_ins

    return {name for tool in built_ins(ToolRegistry()) for name in (tool.spec.name, *tool.spec.aliases)}


def _write_skill(catalog: Catalog, name: str) -> list[str]:
    """Writes all files of a new skill or none. A folder that leads out of the workspace is refused."""

    from forge.project.templates import write_new
    from forge.skills.skill import files_of
    from forge.skills.standard import is_standard_name
    from forge.workspace.paths import PathValidator

    if not is_standard_name(name):
        raise Refusal(
            f"{name[:80]!r} cannot be the name of a skill\nUse up to 64 lower-case letters, digits and single dashes."
        )
    if name in catalog.skills and not catalog.skills[name].is_built_in:
        raise Refusal(f"{catalog.skills[name].location.shown} already is a skill with that name\nChoose another name.")
    folder = catalog.paths[0] if catalog.paths else "skills"
    top = PathValidator.of(catalog.scope).resolve_for_writing(f"{folder}/{name}").path
    if top.exists() or top.is_symlink():
        raise Refusal(f"{folder}/{name} already exists and is not overwritten\nChoose another name.")
    files = {f"{folder}/{name}/{file}": content for file, content in files_of(name).items()}
    try:
        write_new(catalog.scope.workspace, files)
    except ToolError:
        shutil.rmtree(top, ignore_errors=True)  # it was not there before
        raise
    return list(files)


def _describe(skill: Skill) -> str:
    lacks = f" (not usable: {'; '.join(skill.missing)})" if skill.missing else ""
    return harmless(skill.description + lacks)


def _print_problems(problems: Sequence[Any]) -> None:
    for one in problems:
        click.echo(click.style(f"{harmless(one.path)}: {harmless(one.why)}", fg="red"), err=True)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
