"""Checks raw JSON Schemas when a tool is defined, and compiles them when they are used."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from functools import cache, cached_property
from itertools import islice
from typing import Any

from forge.core.arguments.almost_json import read_sent
from forge.core.arguments.explain import MOST_REPAIRED, ArgumentProblem
from forge.core.arguments.json_text import as_text
from forge.core.arguments.names import find_close_names, fold_name
from forge.core.arguments.old_drafts import localise_references, modernise_schema
from forge.core.arguments.outline import flatten_schema, is_flat, outline
from forge.core.arguments.parse import Parse, mark_repaired
from forge.core.arguments.references import REFERENCES, References
from forge.core.arguments.repair import Repairing, resolve_aliases
from forge.core.arguments.spellings import is_written, read_written
from forge.core.arguments.wrappers import WRAPPERS, are_all_known
from forge.core.errors import DefinitionError
from forge.core.spec import JsonSchema, ToolSpec

DEEPEST_SCHEMA = 100
MOST_NODES = 10_000
MOST_CHECKS = 100_000  # of one value: they block the loop for some milliseconds
MOST_COMPARED = 50_000  # pairs of a key and a name: beyond that, only other spellings are looked for
MOST_REFUSED = 50  # keys that are reported


def take_schema(name: str, schema: Any) -> JsonSchema:
    """Returns the schema with all references as pointers, if `check_schema` accepts that."""
    if isinstance(schema, Mapping) and _find_references(name, schema):
        schema = localise_references(schema)
    check_schema(name, schema)
    found: JsonSchema = schema
    return found


def check_schema(name: str, schema: Any) -> None:
    """Raises `DefinitionError`, naming the tool, for a schema that is invalid, remote or too large."""
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"tool {name!r}: its parameters are {type(schema).__name__}, not a JSON Schema object")
    if schema.get("type", "object") != "object":
        raise DefinitionError(f"tool {name!r}: its schema has type {schema.get('type')!r}; it must be an object")
    check_size(name, schema)
    import jsonschema_rs  # heavy: only where raw schemas exist

    try:
        jsonschema_rs.validator_for(_prepare_schema(schema), offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise DefinitionError(f"tool {name!r}: invalid schema: {str(error).splitlines()[0][:300]}") from None


def compile_parser(spec: ToolSpec, *, takes: Collection[str] | None = None, fills_defaults: bool = False) -> Parse:
    """Makes the `parse` of a tool that has a schema but no Python signature.

    `takes`: the only keys that the code behind it can receive; None: any that the schema allows. `fills_defaults`: the
    schema's defaults are added. They are for local functions; a server fills in its own.
    """
    schema = spec.parameters
    keys = _Keys(schema, spec, takes)
    validator = _validator(_prepare_schema(schema))
    fill = _make_filler(schema, validator, takes) if fills_defaults else None

    def check(data: dict[str, Any]) -> dict[str, Any] | list[ArgumentProblem]:
        is_valid = validator.is_valid(data)
        found = [] if data.keys() <= keys.known else keys.find_refused(data)
        if is_valid and not found:
            return fill(data) if fill else data
        errors = [] if is_valid else islice(validator.iter_errors(data), MOST_REPAIRED + 1)
        reported = {problem.path for problem in found}
        return found + [
            problem
            for error in errors
            for problem in _problems(error)
            if problem.kind != "unknown" or problem.path not in reported
        ]

    repairing = cache(lambda: Repairing(spec, flatten_schema(schema), check))

    def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        sent, notes = read_sent(as_text(arguments), spec)
        data = resolve_aliases(sent, spec.argument_aliases)
        found = check(data)
        return mark_repaired(*repairing().finish(data, found, notes)) if notes or isinstance(found, list) else found

    return parse


class _Keys:
    """The known keys of the arguments, and the rule for passing on others."""

    def __init__(self, schema: JsonSchema, spec: ToolSpec, takes: Collection[str] | None) -> None:
        found = outline(schema)
        self.known = found.properties.keys()
        self._spec = spec
        self._aliases = aliases = spec.argument_aliases
        self._names = (*self.known, *aliases)
        self._takes = takes
        self._widely = not found.declares_more  # a schema that does not mention further keys may not want them
        patterns = {"patternProperties": dict.fromkeys(found.patterns, False)}
        self._patterns = _validator(patterns) if found.patterns else None

    @cached_property
    def _spellings(self) -> frozenset[str]:
        return frozenset(map(fold_name, self._names))

    def find_refused(self, data: dict[str, Any]) -> list[ArgumentProblem]:
        """Returns the keys that are not passed on: the tool cannot receive them, or they misspell another name."""
        found: list[ArgumentProblem] = []
        is_large = len(data) * len(self._names) > MOST_COMPARED
        for key in data:
            if key not in self.known and self._is_refused(key, data, is_large):
                found.append(ArgumentProblem((key,), "unknown"))
                if len(found) >= MOST_REFUSED:
                    break
        return found

    def _is_refused(self, key: str, data: dict[str, Any], is_large: bool) -> bool:
        if key in self._aliases or (self._takes is not None and key not in self._takes):
            return True  # an alias is still here because its parameter was sent, too
        if self._patterns is not None and not self._patterns.is_valid({key: None}):
            return False
        if is_large:
            return fold_name(key) in self._spellings
        if self._widely and self._is_wrapped(key, data[key]):
            return True
        close = find_close_names(key, self._names, self._widely)
        return any(self._aliases.get(name, name) not in data for name in close)  # one that was sent is not meant

    def _is_wrapped(self, key: str, value: Any) -> bool:
        """Returns whether the value holds the tool's own parameters, one level too deep."""
        if key not in WRAPPERS:
            return False
        if value == {}:
            return "wrapping" in self._spec.allowed_repairs
        inside = read_written(value) if isinstance(value, str) and is_written(value) else value
        return isinstance(inside, dict) and bool(self.known) and are_all_known(inside, self.known, self._spec)


def _make_filler(
    schema: JsonSchema, validator: Any, takes: Collection[str] | None
) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Returns a function that adds the valid defaults, or None where there are none."""
    defaults = {
        key: shown["default"]
        for key, shown in outline(schema, branches="none").properties.items()
        if isinstance(shown, Mapping) and "default" in shown and (takes is None or key in takes)
    }
    fitting = {
        key: value
        for key, value in defaults.items()
        if not any(list(error.instance_path)[:1] == [key] for error in islice(validator.iter_errors({key: value}), 100))
    }
    if not fitting:
        return None
    judges_each = is_flat(schema) and not {"maxProperties", "not", "enum", "const"} & schema.keys()

    def fill(data: dict[str, Any]) -> dict[str, Any]:
        for key, value in fitting.items():
            if key not in data:
                whole = {**data, key: copy.deepcopy(value)}
                if judges_each or validator.is_valid(whole):  # elsewhere a default may choose another branch
                    data = whole
        return data

    return fill


def _prepare_schema(schema: JsonSchema) -> dict[str, Any]:
    """Returns the schema for the validator: without `$schema`, older spellings become current ones."""
    return dict(schema if "$schema" in schema else modernise_schema(schema))


def _validator(schema: dict[str, Any]) -> Any:
    """Makes a validator. Patterns run on a linear-time engine; look-around runs on one with a bounded backtrack."""
    import jsonschema_rs

    try:
        linear = jsonschema_rs.RegexOptions()
        return jsonschema_rs.validator_for(schema, offline=True, validate_formats=True, pattern_options=linear)
    except ValueError:
        bounded = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
        return jsonschema_rs.validator_for(schema, offline=True, validate_formats=True, pattern_options=bounded)


def _problems(error: Any) -> list[ArgumentProblem]:
    """Translates one error of the validator into problems."""
    path, kind, value = tuple(error.instance_path), error.kind, error.instance
    match kind.name:
        case "required":
            return [ArgumentProblem((*path, kind.property), "missing")]
        case "type":
            return [ArgumentProblem(path, "type", (one,), value) for one in kind.types]
        case "enum":
            return [ArgumentProblem(path, "choice", tuple(kind.options), value)]
        case "const":
            return [ArgumentProblem(path, "choice", (kind.expected_value,), value)]
        case "additionalProperties" | "unevaluatedProperties":
            return [ArgumentProblem((*path, key), "unknown") for key in kind.unexpected]
        case "anyOf" | "oneOf" if getattr(kind, "context", None):
            return [problem for branch in kind.context for inner in branch for problem in _problems(inner)]
    return [ArgumentProblem(path, "other", message=error.message[:120])]


def check_size(name: str, schema: Mapping[str, Any]) -> None:
    """Raises `DefinitionError` for a schema that is too large, remote, or too expensive to check."""
    found = _find_references(name, schema)
    for keyword, target in found:
        if isinstance(target, str) and not target.startswith("#"):
            raise DefinitionError(
                f"tool {name!r}: {keyword} {target[:100]!r} is remote; only parts of the same schema are supported"
            )
    if found and References(schema).exceeds(MOST_CHECKS):
        raise DefinitionError(
            f"tool {name!r}: its schema refers to the same parts so often that checks might never end; simplify it"
        )


def _find_references(name: str, schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Lists the references. Walks without recursion: a hostile schema may be very deep."""
    nodes, found = 0, []
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if depth > DEEPEST_SCHEMA:
            raise DefinitionError(f"tool {name!r}: its schema is more than {DEEPEST_SCHEMA} levels deep; use $defs")
        if nodes > MOST_NODES:
            raise DefinitionError(f"tool {name!r}: its schema has more than {MOST_NODES} nodes; split the tool")
        if isinstance(node, Mapping):
            found += [(keyword, node[keyword]) for keyword in REFERENCES if node.get(keyword) is not None]
            waiting.extend((item, depth + 1) for item in node.values())
        elif isinstance(node, list | tuple):
            waiting.extend((item, depth + 1) for item in node)
    return found
