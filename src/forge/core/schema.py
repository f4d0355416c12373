"""Raw JSON Schemas: refused when a tool could not live with them, compiled when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

from forge.core.arguments import Mended, Problem, as_text, explain, help_for, read
from forge.core.errors import DefinitionError
from forge.core.example import example
from forge.core.mend import MOST_MENDED, hopeless, repair, unaliased
from forge.core.spec import ToolSpec

DEEPEST = 100
MOST_NODES = 10_000
MOST_CHECKS = 100_000  # of one value: some milliseconds, in which nothing else runs

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_ONE = ("not", "if", "then", "else")
_LISTS = ("allOf", "anyOf", "oneOf")
_NAMED = ("dependentSchemas", "dependencies")
_ANCHORS = ("$anchor", "$dynamicAnchor")


def check_schema(name: str, schema: Any) -> None:
    """Raise `DefinitionError`, naming the tool, for a schema that is invalid, remote or too large."""
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"tool {name!r}: its parameters are {type(schema).__name__}, not a JSON Schema object")
    if schema.get("type", "object") != "object":
        raise DefinitionError(
            f"tool {name!r}: its schema has type {schema.get('type')!r}; parameters are always an object"
        )
    _check_size(name, schema)
    import jsonschema_rs  # heavy: only where raw schemas exist

    try:
        jsonschema_rs.validator_for(dict(schema), offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise DefinitionError(f"tool {name!r}: invalid schema: {str(error).splitlines()[0][:300]}") from None


def compiled(spec: ToolSpec) -> Callable[[Mapping[str, Any] | str], dict[str, Any]]:
    """The `parse` of a tool that has a schema but no Python signature."""
    import jsonschema_rs

    schema = spec.parameters
    properties = schema.get("properties") or {}
    takes_more = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    forbids_more = schema.get("additionalProperties") is False
    validator = _validator(jsonschema_rs, dict(schema))
    folded = {name.casefold(): name for name in properties}
    help_text = cache(lambda: help_for(schema, spec.argument_aliases, example(spec.name, schema)))

    def check(data: dict[str, Any]) -> dict[str, Any] | list[Problem]:
        unknown = {key for key in data if key not in properties}
        misspelt = [key for key in unknown if folded.get(key.casefold(), key) not in data]
        if not misspelt and validator.is_valid(data):
            return data if takes_more else {key: value for key, value in data.items() if key not in unknown}
        found = [Problem((key,), "unknown") for key in misspelt if not forbids_more]
        errors = islice(validator.iter_errors(data), MOST_MENDED + 1)
        return found + [problem for error in errors for problem in _problems(error)]

    def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        data = unaliased(read(as_text(arguments)), spec.argument_aliases)
        checked = check(data)
        if isinstance(checked, list) and not spec.strict and not hopeless(checked):
            checked = repair(data, checked, check, schema)
        if isinstance(checked, list):
            raise explain(checked, help_text())
        ignored = [key for key in data if key not in checked]
        return Mended(checked, getattr(checked, "mended", []), ignored) if ignored else checked

    return parse


def _validator(jsonschema_rs: Any, schema: dict[str, Any]) -> Any:
    """Patterns run on a linear-time engine; those it cannot read (look-around) on one with a bounded backtrack."""
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:
        bounded = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=bounded)


def _problems(error: Any) -> list[Problem]:
    """One error of the validator, in our terms."""
    path, kind, value = tuple(error.instance_path), error.kind, error.instance
    match kind.name:
        case "required":
            return [Problem((*path, kind.property), "missing")]
        case "type":
            return [Problem(path, "type", one, value) for one in kind.types]
        case "enum":
            return [Problem(path, "choice", ", ".join(repr(option) for option in kind.options)[:120], value)]
        case "const":
            return [Problem(path, "choice", repr(kind.expected_value)[:120], value)]
        case "additionalProperties" | "unevaluatedProperties":
            return [Problem((*path, key), "unknown") for key in kind.unexpected]
        case "anyOf" | "oneOf" if getattr(kind, "context", None):
            return [problem for branch in kind.context for inner in branch for problem in _problems(inner)]
    return [Problem(path, "", message=error.message[:120])]


def _check_size(name: str, schema: Mapping[str, Any]) -> None:
    """Walk without recursion: a schema may be as deep as it is hostile."""
    nodes, refers = 0, False
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if depth > DEEPEST:
            raise DefinitionError(f"tool {name!r}: its schema is more than {DEEPEST} levels deep; use $defs")
        if nodes > MOST_NODES:
            raise DefinitionError(f"tool {name!r}: its schema has more than {MOST_NODES} nodes; split the tool")
        if isinstance(node, Mapping):
            for keyword in _REFERENCES:
                target = node.get(keyword)
                refers |= target is not None
                if isinstance(target, str) and not target.startswith("#"):
                    raise DefinitionError(
                        f"tool {name!r}: {keyword} {target[:100]!r} is remote; only local ones (#/…) are read"
                    )
            waiting.extend((item, depth + 1) for item in node.values())
        elif isinstance(node, list | tuple):
            waiting.extend((item, depth + 1) for item in node)
    if refers and _Unfolding(schema).exceeds(MOST_CHECKS):
        raise DefinitionError(
            f"tool {name!r}: its schema refers to the same parts so often that checking a value might never end"
        )


class _Unfolding:
    """How often a schema checks one value once its references are followed: a few lines can ask for billions of times.

    A validator follows them all, and nothing else runs meanwhile.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._nodes: dict[int, Mapping[str, Any]] = {}
        self._bases: dict[int, Mapping[str, Any]] = {}  # what a node's pointers begin at
        self._anchors: dict[str, Mapping[str, Any]] = {}
        self._look(schema)

    def exceeds(self, most: int) -> bool:
        """Whether some value would be checked more than `most` times. What contains itself counts once."""
        costs: dict[int, int] = {}
        for start in self._nodes.values():
            path = [(start, self._beside(start))] if id(start) not in costs else []
            is_open = {id(start)}
            costs.setdefault(id(start), 1)
            while path:
                node, others = path[-1]
                other = next(others, None)
                if other is None:
                    path.pop()
                    is_open.discard(id(node))
                    if path:
                        costs[id(path[-1][0])] += costs[id(node)]
                elif id(other) in costs:
                    costs[id(node)] += 1 if id(other) in is_open else costs[id(other)]
                else:
                    costs[id(other)] = 1
                    is_open.add(id(other))
                    path.append((other, self._beside(other)))
                if costs[id(node)] > most:
                    return True
        return False

    def _look(self, schema: Mapping[str, Any]) -> None:
        waiting: list[tuple[Any, Mapping[str, Any]]] = [(schema, schema)]
        while waiting:
            node, base = waiting.pop()
            if isinstance(node, Mapping):
                base = node if isinstance(node.get("$id"), str) else base
                self._nodes[id(node)], self._bases[id(node)] = node, base
                for key in _ANCHORS:
                    if isinstance(node.get(key), str):
                        self._anchors.setdefault(node[key], node)
                waiting.extend((item, base) for item in node.values())
            elif isinstance(node, list | tuple):
                waiting.extend((item, base) for item in node)

    def _beside(self, node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The schemas that check the same value as this one does."""
        found = [self._at(node, node[key]) for key in _REFERENCES if key in node]
        found += [node.get(key) for key in _ONE]
        found += [one for key in _LISTS if isinstance(node.get(key), list | tuple) for one in node[key]]
        found += [one for key in _NAMED if isinstance(node.get(key), Mapping) for one in node[key].values()]
        return (one for one in found if isinstance(one, Mapping))

    def _at(self, node: Mapping[str, Any], reference: Any) -> Any:
        if not isinstance(reference, str):
            return None
        pointer = unquote(reference.removeprefix("#"))
        if pointer and not pointer.startswith("/"):
            return self._anchors.get(pointer)
        found: Any = self._bases[id(node)]
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(part)] if isinstance(found, list | tuple) else found[part]
            except (KeyError, IndexError, ValueError, TypeError):
                return None  # the validator says so
        return found
