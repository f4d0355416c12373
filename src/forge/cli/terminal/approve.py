"""Asks the person at the terminal: once, always, no with a reason, or other arguments."""

from __future__ import annotations

import json
import termios
from contextlib import suppress

import click

from forge.cli.terminal.diffs import colour_diff, is_diff
from forge.cli.terminal.keyboard import read_typed_line
from forge.permissions.display import request_text
from forge.permissions.gate import Answer
from forge.permissions.request import PermissionRequest

BY = "terminal"
_YES = frozenset({"o", "once", "y", "yes"})


async def ask_on_terminal(request: PermissionRequest) -> Answer:
    """An `Approver`. The end of the input means no."""
    _discard_typed_keys()
    _print_line(_render_request(request))
    if request.result is not None:
        return await _yes_or_no()
    always = any(part.remember for part in request.parts)
    offered = ("[o]nce", "[a]lways" if always else "", "[n]o", "[e]dit" if request.editable else "")
    offer = ", ".join(filter(None, offered))
    while True:
        word = await _read_line(f"{offer}? ")
        if word is None:
            return Answer.no(by=BY)
        answer = await _parse_answer(word.lower(), request, always=always)
        if answer is not None:
            return answer
        _print_line(f"Type one of {offer}.")


async def _parse_answer(word: str, request: PermissionRequest, *, always: bool) -> Answer | None:
    if word in _YES:
        return Answer("once", by=BY)
    if always and word in ("a", "always"):
        return Answer("always", by=BY)
    if word in ("n", "no"):
        return Answer.no(await _read_line("Why not? The model is told; Enter for nothing: ") or "", by=BY)
    if request.editable and word in ("e", "edit"):
        return await _ask_arguments(request)
    return None


async def _yes_or_no() -> Answer:
    word = await _read_line("[y]es, [n]o? ")
    if word is not None and word.lower() in _YES:
        return Answer("once", by=BY)
    return Answer.no(by=BY)


async def _ask_arguments(request: PermissionRequest) -> Answer | None:
    """Reads other arguments, which are checked and judged like the first ones."""
    _print_line(f"They are: {json.dumps(dict(request.arguments), default=str)}")
    text = await _read_line("The new arguments, as one line of JSON; Enter to go back: ")
    if not text:
        return None
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        _print_line(f"That is not valid JSON: {error}.")
        return None
    if isinstance(arguments, dict):
        return Answer.edit(arguments, by=BY)
    _print_line("That is not an object.")
    return None


async def _read_line(prompt: str) -> str | None:
    """Returns a line of the terminal; None at the end of the input."""
    click.echo(prompt, nl=False, err=True)
    typed = await read_typed_line()
    return typed.decode("utf-8", "replace").strip() if typed else None


def _discard_typed_keys() -> None:
    """Discards keys that were pressed before the question was there."""
    with suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)


def _render_request(request: PermissionRequest) -> str:
    """Returns the whole question, with coloured diff lines."""
    text = request_text(request)
    return colour_diff(text, before="  │ ") if is_diff(request.preview) else text


def _print_line(text: str) -> None:
    click.echo(text, err=True)
