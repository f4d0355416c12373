"""Stores the list of an agent's plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.tools.shared.model_habits import OrNull

MAX_ITEMS = 100
MAX_LENGTH = 2_000  # characters of one item

_BOXES = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class _Unseen:
    """Accepts a key that models know from other systems. It is not in the schema, where it would cost tokens."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        from pydantic_core import PydanticOmit  # listing tools builds no schema

        raise PydanticOmit


class TodoItem(TypedDict):
    """One thing to do."""

    content: str
    status: NotRequired[Annotated[Literal["pending", "in_progress", "completed", "cancelled"], OrNull()]]
    priority: NotRequired[Annotated[Literal["high", "medium", "low"], OrNull()]]
    id: NotRequired[Annotated[str | int, OrNull()]]
    activeForm: NotRequired[Annotated[str | None, _Unseen()]]  # such as "Reading the tests"


_EXAMPLE = [{"content": "Read the tests", "status": "in_progress"}, {"content": "Fix the parser"}]


class TodoWrite(
    Tool,
    category=Category.BUILTIN,
    groups={"code-agent"},
    permissions={"read"},
    aliases=("todowrite",),
    argument_aliases={"todos": "items", "tasks": "items", "todo_list": "items", "list": "items"},
    timeout=30.0,
):
    """Replace your to-do list. At most one item is in progress; an empty list clears it."""

    def __init__(self, max_items: int = MAX_ITEMS, max_length: int = MAX_LENGTH) -> None:
        self.max_items = max_items
        self.max_length = max_length

    def run(
        self,
        ctx: ToolContext,
        items: Annotated[list[TodoItem], ParameterLimits(example=_EXAMPLE), "The whole list, in order."],
    ) -> ToolResult:
        from forge.workspace.history.tracking import current_call  # loads what only a session's state needs

        saved = ctx.activity.secrets.mask_value(complete_items(items, self.max_items, self.max_length))
        current_call().state.todos.put(ctx.scope.session_id, saved)
        return _answer(saved, "The to-do list is empty now.")


class TodoRead(
    Tool,
    category=Category.BUILTIN,
    groups={"code-agent"},
    permissions={"read"},
    aliases=("todoread",),
    idempotent=True,
    timeout=30.0,
):
    """Read the to-do list of this session, each item with its status."""

    def run(self, ctx: ToolContext) -> ToolResult:
        from forge.workspace.history.tracking import current_call  # loads what only a session's state needs

        return _answer(current_call().state.todos.get(ctx.scope.session_id), "The to-do list is empty.")


def complete_items(
    items: Sequence[TodoItem], max_items: int = MAX_ITEMS, max_length: int = MAX_LENGTH
) -> list[dict[str, Any]]:
    """Returns the items with their optional parts, a status and an id, filled in. Raises `ToolError`."""
    if len(items) > max_items:
        raise _todo_error(f"there are {len(items):,} items, the limit is {max_items:,}", "Leave out what is done.")
    for index, item in enumerate(items):
        if not item["content"].strip():
            raise _todo_error(f"items[{index}].content is blank", "Describe the task.")
        for key in ("content", "activeForm"):
            length = len(str(item.get(key) or ""))
            if length > max_length:
                raise _todo_error(
                    f"items[{index}].{key} has {length:,} characters, the limit is {max_length:,}", "Shorten it."
                )
    _check_one_in_progress(items)
    identities = _assign_ids(items)
    return [
        {
            "id": identity,
            "content": item["content"],
            "status": item.get("status") or "pending",
            **({"priority": item["priority"]} if item.get("priority") else {}),
            **({"active_form": item["activeForm"]} if item.get("activeForm") else {}),
        }
        for identity, item in zip(identities, items, strict=True)
    ]


def _check_one_in_progress(items: Sequence[TodoItem]) -> None:
    active = [index for index, item in enumerate(items) if item.get("status") == "in_progress"]
    if len(active) > 1:
        named = ", ".join(f"items[{index}] ({_shorten(items[index]['content'], 80)})" for index in active[:2])
        more = f" and {len(active) - 2} more" if len(active) > 2 else ""
        raise _todo_error(f"only one item may be in_progress: {named}{more}", "Set all but one to pending.")


def _assign_ids(items: Sequence[TodoItem]) -> list[str]:
    """Returns the given ids, and the first free numbers for the other items."""
    given = ["" if item.get("id") is None else str(item["id"]).strip() for item in items]
    first: dict[str, int] = {}
    for index, identity in enumerate(given):
        if identity and first.setdefault(identity, index) != index:
            raise _todo_error(
                f"items[{index}].id {_shorten(identity, 40)} is also the id of items[{first[identity]}]",
                "Give each item its own id, or leave them out.",
            )
    free = (str(number) for number in range(1, 2 * len(items) + 1) if str(number) not in first)
    return [identity or next(free) for identity in given]


def _answer(items: list[dict[str, Any]], nothing: str) -> ToolResult:
    lines = [_line(item) for item in items]
    open_items = sum(item["status"] in ("pending", "in_progress") for item in items)
    text = "\n".join(lines) or nothing
    return ToolResult(for_llm=text, for_user=text, title=f"{open_items} of {len(items)} to do", data={"items": items})


def _line(item: dict[str, Any]) -> str:
    priority = f" ({item['priority']})" if "priority" in item else ""
    return f"{_BOXES[item['status']]} {' '.join(item['content'].split())}{priority}"


def _shorten(text: str, length: int) -> str:
    return f'"{text}"' if len(text) <= length else f'"{text[:length]}…"'


def _todo_error(problem: str, suggestion: str) -> ToolError:
    return ToolError(problem, ErrorKind.VALIDATION, suggestion)
