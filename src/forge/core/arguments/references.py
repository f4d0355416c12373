"""Follows the local references of a schema within bounds, and counts the cost of following them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from forge.core.spec import JsonSchema

# the keywords of JSON Schema that hold schemas for the same value
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
BRANCHES = ("anyOf", "oneOf")
CONDITIONS = ("if", "then", "else")
DEPENDENT = ("dependentSchemas", "dependencies")  # … by the name of a key

_BESIDE_ONE = ("not", *CONDITIONS)
_BESIDE_LISTS = ("allOf", *BRANCHES)
_ANCHORS = ("$anchor", "$dynamicAnchor")


class References:
    """The parts of a schema that its references name."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._nodes: dict[int, Mapping[str, Any]] = {}
        self._bases: dict[int, Mapping[str, Any]] = {}  # the node at which a node's pointers begin
        # several: an example may hold the same name, to hide the part that the validator finds
        self._anchors: dict[str, list[Mapping[str, Any]]] = {}
        self._look(schema)

    def targets(self, node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Returns the schemas that this one refers to."""
        found = [one for key in REFERENCES if key in node for one in self._at(node, node[key])]
        return [one for one in found if isinstance(one, Mapping)]

    def same_place(self, nodes: Iterable[Any], most: int) -> list[Mapping[str, Any]]:
        """Returns all schemas that check the same value: behind references, in branches. At most `most`."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = [node for node in nodes if isinstance(node, Mapping)]
        while waiting and len(found) < most:
            node = waiting.pop()
            if id(node) not in found:
                found[id(node)] = node
                waiting.extend(self._beside(node))
        return list(found.values())

    def exceeds(self, most: int) -> bool:
        """Returns whether some value would be checked more than `most` times. A schema inside itself counts once.

        A few lines can ask for billions of checks; a validator makes them all, and nothing else runs meanwhile.
        """
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
                named = node.get("$id")
                if isinstance(named, str) and named.startswith("#"):  # how drafts 6 and 7 spell an anchor
                    self._anchors.setdefault(named[1:], []).append(node)
                elif isinstance(named, str):
                    base = node
                self._nodes[id(node)], self._bases[id(node)] = node, base
                for key in _ANCHORS:
                    if isinstance(node.get(key), str):
                        self._anchors.setdefault(node[key], []).append(node)
                waiting.extend((item, base) for item in node.values())
            elif isinstance(node, list | tuple):
                waiting.extend((item, base) for item in node)

    def _beside(self, node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Returns the schemas that check the same value as this one."""
        found: list[Any] = [*self.targets(node)]
        found += [node.get(key) for key in _BESIDE_ONE]
        found += [one for key in _BESIDE_LISTS if isinstance(node.get(key), list | tuple) for one in node[key]]
        found += [one for key in DEPENDENT if isinstance(node.get(key), Mapping) for one in node[key].values()]
        return (one for one in found if isinstance(one, Mapping))

    def _at(self, node: Mapping[str, Any], reference: Any) -> Sequence[Any]:
        if not isinstance(reference, str):
            return ()
        pointer = _read_pointer(reference)
        if pointer and not pointer.startswith("/"):
            return self._anchors.get(pointer, ())
        try:
            return (_follow(self._bases[id(node)], pointer),)
        except LookupError:
            return ()  # the validator reports it


def find_reference(root: JsonSchema, reference: str) -> Any:
    """Returns what a reference such as `#/$defs/Address` points to; `{}`, which allows anything, if it is not there."""
    try:
        return _follow(root, _read_pointer(reference))
    except LookupError:
        return {}


def _read_pointer(reference: str) -> str:
    pointer = reference.removeprefix("#")
    if "%" in pointer:
        return unquote(pointer)
    return pointer


def _follow(root: Any, pointer: str) -> Any:
    """Follows a JSON pointer. Raises `LookupError`."""
    found = root
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(part)] if isinstance(found, list | tuple) else found[part]
        except (ValueError, TypeError) as error:
            raise LookupError(pointer) from error
    return found
