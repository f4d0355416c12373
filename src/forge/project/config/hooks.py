"""The keys about hooks: commands that decide about calls, turns and the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from forge.project.config.section import Section

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.project.config.kinds import Above0, Key, Single, Text

TIMEOUT = 60.0  # seconds


class TurnHookEntry(Section, alone="command", example={"command": "make test >&2", "timeout": 600}):
    """A command that decides. It runs in the sandbox, without network."""

    command: Annotated[
        Text,
        Key(
            "The command line, run by `sh` in the workspace. It reads JSON from stdin and writes its decision to stdout"
            " as JSON.",
            "python3 hooks/check.py",
            required=True,
        ),
    ]
    timeout: Annotated[
        Above0,
        Key("Seconds that the command may take. After them it is killed, and refuses.", 10, unset=TIMEOUT),
    ] = TIMEOUT
    name: Annotated[Text, Key("The name of the hook in messages. Default: the command.", "check")] = ""


class CallHookEntry(
    TurnHookEntry, alone="command", example={"command": "python3 hooks/check.py", "match": ["write src/**"]}
):
    """A command that decides about calls. It runs in the sandbox, without network."""

    match: Annotated[
        tuple[Text, ...],
        Single(),
        Key(
            "Only calls that match: tools by name or glob, or rules without an action. Default: every call.",
            ["bash", "write src/**"],
        ),
    ] = ()


class HooksEntry(Section, example={"before_call": [{"command": "python3 hooks/check.py", "match": ["write src/**"]}]}):
    """Commands that may block, change or add something: calls, results, turns and the end of a run."""

    before_call: Annotated[
        tuple[CallHookEntry, ...], Key("Before each call.", [{"command": "python3 hooks/check.py", "match": ["bash"]}])
    ] = ()
    after_call: Annotated[
        tuple[CallHookEntry, ...], Key("With the result of each call.", [{"command": "python3 hooks/look.py"}])
    ] = ()
    before_turn: Annotated[
        tuple[TurnHookEntry, ...], Key("Before each request to the model.", [{"command": "python3 hooks/date.py"}])
    ] = ()
    on_end: Annotated[
        tuple[TurnHookEntry, ...],
        Key("Before a run ends with an answer: a check before the task is done.", [{"command": "make test >&2"}]),
    ] = ()

    def all(self) -> list[tuple[str, TurnHookEntry]]:
        """Returns every hook with its kind."""
        kinds = ("before_call", "after_call", "before_turn", "on_end")
        return [(kind, entry) for kind in kinds for entry in getattr(self, kind)]
