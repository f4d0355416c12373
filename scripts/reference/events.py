"""The page of the events: their names on the wire, and what each has."""

from __future__ import annotations

import dataclasses
import json

from forge.core import events
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from scripts.reference.markdown import table

EVENTS = {  # where the class says nothing of itself
    "tool_call_start": "A call begins.",
    "tool_progress": "The tool reports its progress.",
    "permission_asked": "A person is asked; the call waits.",
    "permission_answered": "The question was answered.",
    "run_started": "A run begins.",
}
_ON_THE_WIRE = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "float | None": "number or null",
    "Mapping[str, Any]": "object",
    "tuple[str, ...]": "list of strings",
    "tuple[tuple[str, str], ...]": "list of [permission, target]",
    "ToolCall": "`{id, name, arguments}`",
    "ToolResult": "a result, as below",
}


def events_page() -> str:
    kinds = [one for one in vars(events).values() if isinstance(one, type) and issubclass(one, events.Event)]
    common = [field.name for field in dataclasses.fields(events.Event)]
    rows = []
    for kind in kinds:
        if kind is events.Event:
            continue
        own = [field for field in dataclasses.fields(kind) if field.name not in common]
        fields = ", ".join(f"`{field.name}` {_ON_THE_WIRE[str(field.type)]}" for field in own)
        rows.append((f"`{kind.type}`", f"`{kind.__name__}`", _words(kind), fields))
    example = events.ToolStarted(ToolCall("math_calculate", {"expression": "1 + 1"}, id="call-1"))
    example.at, example.seq, example.session, example.agent = 1767225600.0, 7, "cli", "main"
    result = ToolResult.text("2").to_dict(id="call-1", name="math_calculate")
    return "\n\n".join(
        [
            "# Events",
            "Events have the same form in the lines of `forge run --json`, in the audit log, and in"
            " `executor.activity.subscribe` (there as objects; `event.to_dict()` is the line).",
            f"```json\n{json.dumps(example.to_dict())}\n```",
            "Every event has `event` (its name), `ts` (seconds since 1970), `seq` (a counter in the process), `session`"
            " and `agent`. `arguments` are an object, or its text, as sent. Further fields:",
            table(("event", "class", "when", "fields"), rows),
            "A failed call emits `error`, then `tool_call_end` with `success: false`; only the latter is the end. A"
            " call that is refused before it runs has all three. The last line of a run is its `run_finished`.",
            "## Results",
            f"`ToolResult.to_dict()`, in `tool_call_end` and `tool_completed`, and what `forge tool call` prints:\n\n"
            f"```json\n{json.dumps(result)}\n```",
            "`for_user`, `error_type` and `suggestion` are omitted if they are empty. `data` is for programs: the model"
            " never sees it. `async` means that work continues in the background, and a `tool_completed` follows.",
        ]
    )


def _words(kind: type[events.Event]) -> str:
    own = (kind.__doc__ or "").partition("\n\n")[0]
    return EVENTS[kind.type] if own.startswith(f"{kind.__name__}(") else " ".join(own.split())
