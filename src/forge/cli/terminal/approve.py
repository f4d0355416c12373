"""Asks the person at the terminal: yes, always, no with or without a reason, or other arguments. One key answers."""

from __future__ import annotations

import json
import os

import click

from forge.cli.terminal.edit_arguments import (
    EditError,
    find_editor,
    plain_arguments,
    read_document,
    run_editor,
    write_document,
)
from forge.cli.terminal.keyboard import discard_typed, flush_typed, read_typed, single_keys
from forge.cli.terminal.output import Output
from forge.cli.terminal.print_result import harmless
from forge.cli.terminal.question import render_details, render_question
from forge.permissions.answers import Answer
from forge.permissions.request import PermissionRequest

BY = "terminal"
END = "\x04"  # Ctrl-D, where a key is read
WORDS = {
    "y": ("y", "yes", "o", "once"),
    "a": ("a", "always"),
    "n": ("n", "no", END),
    "r": ("r", "reason"),
    "d": ("d", "details"),
    "e": ("e", "edit"),
    "b": ("b", "back"),
}
ECHOES = {"y": "yes", "a": "always", "n": "no", "r": "no, with a reason", "d": "details", "e": "edit", "b": "back"}
LABELS = {"r": "[r]eason"} | {key: f"[{key}]{word[1:]}" for key, word in ECHOES.items() if key != "r"}


async def ask_on_terminal(request: PermissionRequest, *, plain: bool = False) -> Answer:
    """An `Approver`. The end of the input means no. `plain`: answers are lines, and nothing is coloured."""
    return await _Question(request, Output(plain=plain)).ask()


class _Question:
    """One question to the person, until it has an answer."""

    def __init__(self, request: PermissionRequest, out: Output) -> None:
        self.request = request
        self.out = out
        self.by_key = out.live and os.isatty(0)

    async def ask(self) -> Answer:
        request = self.request
        flush_typed()
        _print(render_question(request, self.out))
        if request.result is not None:
            return self._answer(await self._choose("yn"))
        always = bool(request.rules_to_remember)
        offered = f"y{'a' * always}n{'r' * self.by_key}d{'e' * request.editable}"
        while True:
            key = await self._choose(offered)
            if key == "d":
                _print(render_details(request, self.out))
            elif key == "e":
                if (edited := await self._edit()) is not None:
                    return edited
            elif key == "r" or (key == "n" and not self.by_key):
                return Answer.no(await _read_line("Reason for the model (optional): ") or "", by=BY)
            else:
                return self._answer(key)

    def _answer(self, key: str) -> Answer:
        if key == "n" or not key:
            return Answer.no(by=BY)
        return Answer("always" if key == "a" else "once", by=BY)

    async def _choose(self, keys: str) -> str:
        """Returns one of these keys; empty at the end of the input."""
        offer = (" " if self.by_key else ", ").join(LABELS[key] for key in keys)
        if self.by_key:
            with single_keys():
                await discard_typed()
                return await self._read_choice(keys, f"{self.out.paint(offer, '1')}? ")
        return await self._read_choice(keys, f"{offer}? ")

    async def _read_choice(self, keys: str, prompt: str) -> str:
        while True:
            _write(prompt)
            typed = await read_typed()
            word = typed.decode("utf-8", "replace").strip().lower()
            key = next((key for key in keys if word in WORDS[key]), "")
            if key or not typed:
                if self.by_key:
                    _print(ECHOES[key] if key and word != END else "")
                return key
            _print(f"{'Press' if self.by_key else 'Type'} one of {', '.join(LABELS[key] for key in keys)}.")

    async def _edit(self) -> Answer | None:
        """Returns an answer with other arguments, which are checked and judged like the first ones; None: go back."""
        command = find_editor() if self.by_key else []
        if not command:
            return await self._edit_line()
        text = write_document(self.request)
        while True:
            try:
                text = await run_editor(command, text)
            except EditError as error:
                _print(harmless(str(error)))
                return None
            try:
                arguments = read_document(text, self.request)
            except EditError as error:
                _print(self.out.paint(harmless(str(error)), "31"))
                if await self._choose("eb") != "e":
                    return None
                text = write_document(self.request, str(error), text)
                continue
            if arguments is None:
                _print("The arguments are unchanged.")
                return None
            return Answer.edit(arguments, by=BY)

    async def _edit_line(self) -> Answer | None:
        _print(f"The arguments: {json.dumps(plain_arguments(self.request))}")
        text = await _read_line("New arguments, as one line of JSON (Enter goes back): ")
        if not text:
            return None
        try:
            arguments = json.loads(text)
        except (ValueError, RecursionError) as error:
            _print(f"That is not valid JSON: {error}.")
            return None
        if isinstance(arguments, dict):
            return Answer.edit(arguments, by=BY)
        _print("That is not an object.")
        return None


async def _read_line(prompt: str) -> str | None:
    """Returns a line of the terminal; None at the end of the input."""
    _write(prompt)
    typed = await read_typed()
    return typed.decode("utf-8", "replace").strip() if typed else None


def _print(text: str) -> None:
    _write(f"{text}\n")


def _write(text: str) -> None:
    """Writes as it is: colours were decided before."""
    click.echo(text, nl=False, err=True, color=True)
