"""Converts the data of a result for MCP: an object that fits the tool's output schema."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import jsonschema_rs

from forge.core.plain_values import plain, text_of
from forge.core.result import DONE, RESULT, ToolResult
from forge.core.spec import ToolSpec

log = logging.getLogger(__name__)

NOTE = "forge_note"
_ADDED = ("attempts", "edited_arguments", "mended", "repaired", "rounds", "warning")  # by steps, to any data
_NOTE = {"type": "string", "description": "The reason why the data is missing. Read the text instead."}


class Shape:
    """The shape of a tool's data: clients see `schema`, and `fit` makes the data of a result fit it.

    A call may succeed without data: it was a repetition, it continues in the background, its result was too long, or
    the data does not fit the schema. Then a note replaces the data, which the schema allows.
    """

    def __init__(self, returns: Mapping[str, Any]) -> None:
        own = _root(returns)
        self.is_wrapped = not (own.get("type") == "object" and not own.keys() & {"anyOf", "oneOf", "allOf", "$ref"})
        if self.is_wrapped:
            shelf = {"$defs": own["$defs"]} if "$defs" in own else {}
            inner = {key: value for key, value in own.items() if key != "$defs"}
            own = {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], **shelf}
        required = own.pop("required", [])
        if own.get("additionalProperties") is False:
            del own["additionalProperties"]  # steps add to the data
        own["properties"] = {**own.get("properties", {}), NOTE: _NOTE}
        if required:
            own["anyOf"] = [{"required": required}, {"required": [NOTE]}]
        self.schema: dict[str, Any] = own
        self._validator = jsonschema_rs.validator_for(own, offline=True)

    @property
    def is_text(self) -> bool:
        """True if a text may be the value: texts are content, not data."""
        return self.is_wrapped and self._fits({RESULT: "a text of any kind"})

    def fit(self, outcome: ToolResult) -> dict[str, Any]:
        """Returns the data of a call that succeeded, or a note."""
        for found in _wrapped_values(outcome) if self.is_wrapped else _objects(outcome):
            if self._fits(found):
                return found
        return {NOTE: _explain(outcome)}

    def _fits(self, found: Any) -> bool:
        return bool(self._validator.is_valid(found))


_shapes: WeakKeyDictionary[ToolSpec, Shape | None] = WeakKeyDictionary()


def shape_of(spec: ToolSpec) -> Shape | None:
    """Returns the shape of a tool's data, built once; None if the tool does not declare it, or returns text."""
    if spec not in _shapes:
        _shapes[spec] = _make_shape(spec)
    return _shapes[spec]


def _make_shape(spec: ToolSpec) -> Shape | None:
    returns = spec.returns
    if returns is None:
        return None
    try:
        shape = Shape(plain(returns))
    except (ValueError, jsonschema_rs.ReferencingError) as error:  # a class may write its schema itself
        log.warning(
            "%s is offered without an output schema, because its schema is invalid: %s", spec.name, text_of(error)[:300]
        )
        return None
    return None if shape.is_text else shape


def _root(returns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema, with its root resolved if it only refers to a definition, as for a recursive class."""
    own = dict(returns)
    name = str(own.get("$ref", "")).removeprefix("#/$defs/")
    if own.keys() == {"$ref", "$defs"} and name in own["$defs"]:
        return {**own["$defs"][name], "$defs": own["$defs"]}
    return own


def _objects(outcome: ToolResult) -> list[dict[str, Any]]:
    data = plain(outcome.data)
    if not isinstance(data, dict):
        return []
    return [data, {key: value for key, value in data.items() if key not in _ADDED}]


def _wrapped_values(outcome: ToolResult) -> list[dict[str, Any]]:
    """Reads a value that is not an object from the text, where secrets are already masked; notes may follow it."""
    if outcome.data.get(RESULT) == "":
        return [{RESULT: ""}]
    first = outcome.for_llm.partition("\n")[0]
    found: list[dict[str, Any]] = []
    try:
        found.append({RESULT: json.loads(first)})
    except (ValueError, RecursionError):
        pass
    if first == DONE:
        found.append({RESULT: None})
    return [*found, {RESULT: first}]


def _explain(outcome: ToolResult) -> str:
    if outcome.pending:
        return "The work continues in the background."
    if outcome.data.get("repeated"):
        return "The call repeated an earlier one and was not run again."
    return "The result does not match the tool's schema, or is incomplete."
