"""Puts a form to a person: the fields are the arguments of the request, and the answer must fit the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.plain_values import visible
from forge.core.spec import ToolSpec
from forge.permissions.answers import Answer
from forge.permissions.request import PermissionRequest

ROUNDS = 3  # attempts to fill in a form
LONGEST_PROBLEM = 500  # characters
LONGEST_LINE = 300  # characters of a title, a description or a list of choices
_TYPES = ("string", "number", "integer", "boolean", "array")


class Asker(Protocol):
    """Answers a request; a gate is one."""

    async def ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer: ...


async def fill_form(
    asker: Asker, ctx: ToolContext, question: str, form: Mapping[str, Any]
) -> Mapping[str, Any] | Literal[False] | None:
    """Asks for the fields of a form, with their defaults. Returns the answer; None: declined; False: cancelled.

    An answer that does not fit is asked for again, a few times.
    """
    fields: Mapping[str, Any] = form["properties"]
    shown = {name: field.get("default") for name, field in fields.items()}
    problem = ""
    for _ in range(ROUNDS):
        answer = await asker.ask(ctx, _make_request(ctx, f"{problem}{question}", shown, form))
        if answer.kind == "no":
            return False if answer.by in ("cancelled", "error") else None
        content = {key: value for key, value in (answer.arguments or shown).items() if value is not None}
        try:
            return check_answer(form, content)
        except ToolError as error:
            shown = {**shown, **{key: value for key, value in content.items() if key in fields}}
            problem = f"The answer does not fit: {visible(error.message[:LONGEST_PROBLEM])}\n"
    return None


async def ask_own_form(
    asker: Asker, ctx: ToolContext, message: str, form: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Asks for the fields of a tool's own form. Returns the answer; None if it was declined."""
    check_form(form)
    lines = [f"{ctx.spec.name} asks:", *(f"  {line}" for line in message.split("\n")), "Edit the fields, or deny:"]
    fields = [describe_field(name, field, form) for name, field in form["properties"].items()]
    return await fill_form(asker, ctx, "\n".join([*lines, *fields]), form) or None


def check_answer(form: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer as the form wants it. Raises `ToolError` if it does not fit."""
    fields = form["properties"]
    if unknown := [key for key in content if key not in fields]:
        raise ToolError(f"there is no field {visible(unknown[0][:60])}")
    from forge.core.arguments.schema import compile_parser  # only where a form is asked for

    return dict(compile_parser(ToolSpec(name="answer", description="", parameters=form))(content))


def check_form(form: Mapping[str, Any]) -> None:
    """Raises `ToolError` for a schema that is not a flat form."""
    from forge.core.arguments.schema import check_schema

    fields = form.get("properties")
    try:
        check_schema("answer", form)
        flat = (
            form.get("type") == "object"
            and isinstance(fields, Mapping)
            and all(isinstance(field, Mapping) and field.get("type") in _TYPES for field in fields.values())
        )
    except DefinitionError as error:
        raise ToolError(f"the form of a question is no valid schema: {error}", ErrorKind.SYSTEM) from None
    if not flat:
        raise ToolError(
            "a question's form must be a flat object: texts, numbers, booleans and choices", ErrorKind.SYSTEM
        )


def describe_field(name: str, field: Mapping[str, Any], form: Mapping[str, Any]) -> str:
    """Returns a line about a field, for the person who fills it in."""
    about = [str(field["type"])]
    about += ["required"] if name in required_names(form) else []
    if choices := _choices(field):
        about.append(f"one of {_one_line(', '.join(map(str, choices)))}")
    elif choices := _choices(field.get("items")):
        about.append(f"any of {_one_line(', '.join(map(str, choices)))}")
    said = " - ".join(filter(None, (_one_line(field.get(key)) for key in ("title", "description"))))
    return f"  {_one_line(name)[:60]} ({', '.join(about)}){f': {said}' if said else ''}"


def required_names(form: Mapping[str, Any]) -> Sequence[Any]:
    found = form.get("required")
    return found if isinstance(found, list) else ()


def _choices(schema: Any) -> list[Any]:
    """Returns the choices of a field, plain or titled."""
    if not isinstance(schema, Mapping):
        return []
    plain = schema.get("enum")
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        return [one["const"] for one in titled if isinstance(one, Mapping) and "const" in one]
    return plain if isinstance(plain, list) else []


def _one_line(text: object) -> str:
    return visible(" ".join(text.split())[:LONGEST_LINE]) if isinstance(text, str) else ""


def _make_request(
    ctx: ToolContext, question: str, fields: Mapping[str, Any], form: Mapping[str, Any]
) -> PermissionRequest:
    return PermissionRequest(
        ctx.spec,
        ctx.call,
        dict(fields),
        None,
        "",
        ctx.scope,
        question=question,
        editable=bool(fields),
        personal=True,
        form=form,
    )
