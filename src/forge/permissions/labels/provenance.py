"""Keeps what a run has read and who said it, and traces the values of a call back to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forge.core.result import PRIVATE, UNTRUSTED, Label, merge_labels
from forge.core.secrets import MASK, Secrets
from forge.core.spec import Permission, ToolSpec
from forge.permissions.conditions import RequestLabels, Trace
from forge.permissions.labels.folding import fold
from forge.permissions.labels.texts import LONGEST_SHOWN, Fields, ReadText
from forge.permissions.labels.values import (
    SHORTEST_COPIED,
    Address,
    Value,
    find_addresses,
    find_leaves,
    find_texts,
    find_values,
    host_of,
    is_short_number,
    read_address,
)

COMPUTED = "computed by the script: "
CHOSEN = "chosen by a condition on this text: "
REGISTERED = "the registered secrets"
MOST_TRACES = 5  # of one call
MOST_FOLDED = 16_000_000  # characters kept ready for the search; more are folded again when needed
SHORTEST_PRIVATE = 6  # characters
MOST_COPIED = 50  # lines of one text that are looked for, and as many addresses
MOST_PRIVATE = 5_000  # parts of one private text


@dataclass(slots=True, eq=False)
class NotedTexts:
    """The texts that entered the context of a run, each list in order."""

    words: list[ReadText] = field(default_factory=list)  # the person's and the instructions'
    read: list[ReadText] = field(default_factory=list)  # results with labels
    trusted: list[ReadText] = field(default_factory=list)  # results without
    results: list[ReadText] = field(default_factory=list)  # both
    unread: list[Label] = field(default_factory=list)  # of images and files that only the model sees


class ScriptArguments(NamedTuple):
    """The sources of the arguments of a call that a script makes, and of the decision to make the call."""

    script: str  # the id of the call that runs the script
    values: Mapping[str, Any]
    labels: Mapping[str, tuple[Label, ...]]  # of the arguments that come from results
    written: frozenset[str]  # the arguments that are written in the script: a condition on a text chose them
    decided: tuple[Label, ...] = ()  # of the results that decide whether the call is made

    def find_labels(self, name: str, arguments: Mapping[str, Any]) -> tuple[Label, ...]:
        """Returns the labels of an argument of the call. The script may have used another name of the parameter."""
        if name in self.values:
            return self.labels.get(name, ())
        return merge_labels(*(labels for one, labels in self.labels.items() if one not in arguments))


class Provenance:
    """The texts that one run has read: the person's words, and results. A sub-agent's has a parent.

    Texts are only kept by reference when they arrive. They are searched when a call changes or sends something.
    """

    def __init__(self, parent: Provenance | None = None) -> None:
        self.parent = parent
        self._noted = NotedTexts()
        self.inner: set[Label] = set()  # of sub-agents
        self.has_inner = False  # whether running tools have made calls with labels, or run agents that read such text
        self._by_call: dict[str, tuple[Label, ...]] = {}  # of calls that a running tool has made
        self._by_agents: list[tuple[Label, ...]] = []  # of agents that a running tool has run
        self._scripted: dict[str, ScriptArguments] = {}  # of running calls of scripts, by their ids

    def catch_up(self) -> None:
        """Notes what has arrived meanwhile, before anything else is noted or looked up. Here, nothing arrives."""

    @property
    def noted(self) -> NotedTexts:
        self.catch_up()
        return self._noted

    def hear(self, text: str) -> None:
        """Notes the words of the person, or of the instructions."""
        self.catch_up()
        self._add_words(text)

    def _add_words(self, text: str) -> None:
        if text:
            self._noted.words.append(ReadText(text))

    def note(
        self,
        text: str,
        labels: tuple[Label, ...],
        arguments: Mapping[str, Any] | str = "",
        fields: Fields = (),
    ) -> None:
        """Notes a result that the model reads. `fields`: the values of the data that its tool returned."""
        self.catch_up()
        self._add_result(text, labels, arguments, fields)

    def _add_result(
        self, text: str, labels: tuple[Label, ...], arguments: Mapping[str, Any] | str, fields: Fields
    ) -> None:
        if not labels and text[:1] in ("[", "{"):
            fields = True  # the values of a trusted result: nobody else chose how it looks
        result = ReadText(text, labels, arguments, fields)
        self._noted.results.append(result)
        (self._noted.read if labels else self._noted.trusted).append(result)

    def _add_unread(self, labels: tuple[Label, ...]) -> None:
        """Notes images or files that the model sees and nobody can search."""
        unread = self._noted.unread
        unread += [label for label in labels if label.kind == UNTRUSTED and label not in unread]

    def note_inner(self, parent_call: str, text: str, labels: tuple[Label, ...], fields: Fields = ()) -> None:
        """Notes a labelled result of a call that a tool makes while it runs."""
        self.catch_up()  # the first text with a value says where it comes from
        self._noted.read.append(ReadText(text, labels, fields=fields, call=parent_call))
        self._by_call[parent_call] = merge_labels(self._by_call.get(parent_call, ()), labels)
        self.has_inner = True

    def note_arguments(self, call: str, arguments: ScriptArguments) -> None:
        """Notes what the arguments of a call of a script were computed from, before the call is made."""
        self._scripted[call] = arguments

    def forget_arguments(self, call: str) -> None:
        """Forgets the arguments of a call of a script that is over."""
        self._scripted.pop(call, None)

    def find_inherited(self, call: str) -> tuple[Label, ...]:
        """Returns the labels of the arguments of a call of a script: its result and the files it writes have them."""
        script = self._scripted.get(call)
        return merge_labels(*script.labels.values(), script.decided) if script is not None else ()

    def note_agent(self, labels: tuple[Label, ...]) -> None:
        """Notes the labels of an agent that a tool has run while it runs itself."""
        if labels:
            self.inner.update(labels)
            self._by_agents.append(labels)
            self.has_inner = True

    def take_inner(self, call: str, known: tuple[Label, ...]) -> tuple[Label, ...]:
        """Returns the labels that a finished call got from the calls it made, and from agents that it ran.

        Nobody says which call ran an agent. A report that has all labels of an agent itself, `known`, is taken for the
        report of that agent. The labels of other agents belong to each call of the turn that ends after them.
        """
        reported = next((one for one in self._by_agents if set(one) <= set(known)), None)
        if reported is not None:
            self._by_agents.remove(reported)
        taken = self._by_call.pop(call, ())
        self.has_inner = bool(self._by_call or self._by_agents)
        return merge_labels(taken, *self._by_agents)

    def end_turn(self) -> None:
        """Forgets which agents were run: all calls of the turn have ended, and have their labels."""
        self._by_agents.clear()
        self.has_inner = bool(self._by_call)

    @property
    def own_labels(self) -> tuple[Label, ...]:
        """The labels of everything that is in the context, and in those of the sub-agents."""
        return merge_labels((label for text in self.noted.read for label in text.labels), sorted(self.inner))

    @property
    def labels(self) -> tuple[Label, ...]:
        """The own labels, and those of the parent."""
        return merge_labels(self.own_labels, self.parent.labels if self.parent is not None else ())

    def has(self, kind: str) -> bool:
        """Returns whether text of a kind is in the context."""
        if any(label.kind == kind for text in self.noted.read for label in text.labels):
            return True
        return any(label.kind == kind for label in self.inner) or (self.parent is not None and self.parent.has(kind))

    def label_request(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        permission: Permission | None,
        target: str,
        secrets: Secrets | None = None,
        *,
        irreversible: bool = False,
        call: str = "",
    ) -> RequestLabels | None:
        """Returns what labels say about a request of a call; None where nothing has a label, and no secret is known."""
        if not (self.noted.read or self.inner or self.parent is not None or (secrets is not None and secrets.pattern)):
            return None
        return RequestLabels(self, spec, arguments, permission, target, secrets, irreversible=irreversible, call=call)

    def trace(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        permission: Permission | None,
        target: str = "",
        *,
        irreversible: bool = False,
        call: str = "",
    ) -> tuple[Trace, ...]:
        """Traces the values of a call that stand in untrusted text, and neither in the person's words nor elsewhere."""
        if not self.has(UNTRUSTED):
            return ()
        script = self._scripted.get(call)
        found = [*self._trace_script(script, spec, arguments)] if script is not None else []
        if script is not None:  # what is written in a script cannot come from what the script has read
            arguments = {name: value for name, value in arguments.items() if not script.find_labels(name, arguments)}
        reading = script.script if script is not None else ""
        for value in find_values(spec, arguments, permission, target, irreversible=irreversible):
            if len(found) >= MOST_TRACES:
                break
            if (trace := self._trace_value(value, permission, reading, irreversible=irreversible)) is not None:
                found.append(trace)
        self._free_memory()
        return tuple(found[:MOST_TRACES])

    def _trace_script(self, script: ScriptArguments, spec: ToolSpec, arguments: Mapping[str, Any]) -> Iterator[Trace]:
        """Traces the arguments that a script computed from untrusted text, or that a condition on such text chose."""
        is_judged = False
        for name, value in arguments.items():
            if name in spec.harmless:
                continue
            is_judged |= name in script.values
            label = next((one for one in script.find_labels(name, arguments) if one.kind == UNTRUSTED), None)
            if label is not None and not self._is_all_spoken(value):
                how = CHOSEN if name in script.written else COMPUTED
                shown = str(value)
                quote = f"{how}«{fold(shown)[:LONGEST_SHOWN]}»"
                yield Trace(name, shown, UNTRUSTED, label.origin, quote)
        label = next((one for one in script.decided if one.kind == UNTRUSTED), None)
        if label is not None and not is_judged:
            yield Trace("the call", spec.name, UNTRUSTED, label.origin, f"{CHOSEN}«{spec.name}»")

    def _is_all_spoken(self, value: Any) -> bool:
        texts = [fold(str(leaf)) for _, leaf in find_leaves({"": value})]
        return bool(texts) and all(map(self._is_spoken, texts))

    def label_copy(self, text: str) -> tuple[Label, ...]:
        """Returns the labels of a text that is stored for later: all that is in the context, unless the person said it.

        A model wrote the text after it had read everything with these labels.
        """
        return () if self._is_spoken(fold(text)) else self.labels

    def find_copy(self, text: str) -> Label | None:
        """Returns the label of untrusted text of which a text has a line or an address that the person did not give."""
        if not self.has(UNTRUSTED):
            return None
        lines = [line for one in text.splitlines() if len(line := fold(one)) >= SHORTEST_COPIED]
        lines = lines[:: len(lines) // MOST_COPIED + 1] + find_addresses(fold(text))[:MOST_COPIED]
        for line in dict.fromkeys(lines):
            for read in self._texts("read"):
                label = next((label for label in read.labels if label.kind == UNTRUSTED), None)
                if label is not None and any(line in leaf.text for leaf in read.leaves) and not self._is_spoken(line):
                    return label
        return None

    def trace_private(self, arguments: Mapping[str, Any]) -> tuple[Trace, ...]:
        """Traces texts of the arguments that contain parts of private text, which the person did not give."""
        if not self.has(PRIVATE):
            return ()
        given = [(argument, fold(text)) for argument, text in find_texts(arguments)]
        found: dict[tuple[str, str], Trace] = {}
        for text in self._texts("read"):
            label = next((label for label in text.labels if label.kind == PRIVATE), None)
            if label is None:
                continue
            for part in _split_private(text):
                for argument, words in given:
                    if part in words and not self._is_spoken(part):
                        found.setdefault(
                            (argument, label.origin), Trace(argument, part, PRIVATE, label.origin, f"«{part}»")
                        )
        self._free_memory()
        return tuple(found.values())[:MOST_TRACES]

    def trace_secrets(self, arguments: Mapping[str, Any], secrets: Secrets) -> tuple[Trace, ...]:
        """Traces registered secrets in the arguments, plain or encoded. A trace does not show the secret."""
        if secrets.pattern is None:
            return ()
        found: dict[str, Trace] = {}
        for argument, text in find_texts(arguments):
            match = secrets.pattern.search(text)
            if match is not None and not self._is_spoken(fold(match.group())):
                found.setdefault(argument, Trace(argument, MASK, PRIVATE, REGISTERED, f"«{MASK}»"))
        return tuple(found.values())[:MOST_TRACES]

    def _trace_value(
        self, value: Value, permission: Permission | None, script: str = "", *, irreversible: bool
    ) -> Trace | None:
        """Traces a value. What the running `script` has read does not count: the value was written before."""
        if self._is_spoken(value.text, even_short=irreversible) or (value.whole and self._is_spoken(value.whole)):
            return None
        is_short, address = is_short_number(value.text), read_address(value.text)
        by_name = is_short and not irreversible and self._is_field(value.text)
        for text in self._texts("read"):
            label = next((label for label in text.labels if label.kind == UNTRUSTED), None)
            if label is None or (script and text.call == script):
                continue
            quote = text.quote(value.text, by_name=by_name, anywhere=irreversible)
            is_beside = not quote and address is not None
            if address is not None and is_beside:
                quote = text.quote_address(address)
            if not quote:
                continue
            if irreversible:
                return Trace(value.argument, value.shown, UNTRUSTED, label.origin, quote)
            if permission is Permission.WRITE and not is_short and self._is_known(value.text):
                return None
            if self._is_host_of_field(value.text):
                return None
            if is_beside and address is not None and self._is_familiar(address):
                return None
            return Trace(value.argument, value.shown, UNTRUSTED, label.origin, quote, _returns(value.text, label))
        return self._trace_unread(value) if permission is not Permission.WRITE else None

    def _trace_unread(self, value: Value) -> Trace | None:
        """Traces an address that no text has, to an image or a file that the model saw."""
        label = next(self._find_unread(), None)
        if label is None or value.text not in find_addresses(value.text) or self._is_said(value.text):
            return None
        quote = f"an image or a file, perhaps with «{value.text[:LONGEST_SHOWN]}»"
        return Trace(value.argument, value.shown, UNTRUSTED, label.origin, quote, _returns(value.text, label))

    def _find_unread(self) -> Iterator[Label]:
        yield from self.noted.unread
        if self.parent is not None:
            yield from self.parent._find_unread()

    def _is_said(self, value: str) -> bool:
        """Returns whether any result names it."""
        return any(
            text.says(value) or text.names_host(value) for name in ("read", "trusted") for text in self._texts(name)
        )

    def _is_host_of_field(self, value: str) -> bool:
        """Returns whether it is the host of an address that a tool itself set apart, such as a search result."""
        return "." in value and host_of(value) == value and any(text.has_host(value) for text in self._texts("read"))

    def _is_familiar(self, address: Address) -> bool:
        """Returns whether the person or trusted text named its host or one above, or a tool set such a one apart."""
        return any(text.names_address(address) for name in ("words", "trusted") for text in self._texts(name)) or any(
            text.has_host(host) for host in address.hosts for text in self._texts("read")
        )

    def _is_spoken(self, value: str, *, even_short: bool = False) -> bool:
        """Returns whether the person named it. A short number among other words names nothing, unless it may."""
        if is_short_number(value):
            return even_short and any(text.names_number(value) for text in self._texts("words"))
        parts = value.split()
        for text in self._texts("words"):
            if text.names_host(value):
                return True
            if text.says(value) or (len(parts) > 1 and all(text.says(part) for part in parts)):
                return True
        return False

    def _is_field(self, value: str) -> bool:
        """Returns whether a result has the value as a field of its own."""
        return any(text.has_field(value) for name in ("read", "trusted") for text in self._texts(name))

    def _is_known(self, value: str) -> bool:
        """Returns whether a trusted result names it, before any call did: a note of the model vouches for nothing."""
        if self.parent is not None and self.parent._is_known(value):
            return True
        for text in self.noted.results:
            if text.echoes(value):
                return False
            if not text.labels and text.says(value):
                return True
        return False

    def _texts(self, name: str) -> Iterator[ReadText]:
        yield from getattr(self.noted, name)
        if self.parent is not None:
            yield from self.parent._texts(name)

    def list_texts(self) -> tuple[list[ReadText], list[ReadText]]:
        """Returns the words of the person and the results with labels, with those of the parent."""
        return [*self._texts("words")], [*self._texts("read")]

    def _free_memory(self) -> None:
        left = MOST_FOLDED
        noted = self.noted
        for text in (*reversed(noted.words), *reversed(noted.read), *reversed(noted.trusted)):
            left -= text.size
            if left < 0:
                text.forget_leaves()


def _returns(value: str, label: Label) -> bool:
    """Returns whether a value is an address of the host that its text comes from."""
    host = label.origin.rpartition(" ")[2].lower()
    addresses = find_addresses(value)
    return bool(addresses) and "." in host and all(host_of(one) == host for one in addresses)


def _split_private(text: ReadText) -> Iterator[str]:
    """Yields the parts of a private text that are told apart: its fields, or its lines and its distinctive words."""
    count = 0
    for leaf in (one.text for one in text.leaves):
        for part in (leaf, *(word.strip(".,;:()\"'") for word in leaf.split() if any(map(str.isdigit, word)))):
            if len(part) >= SHORTEST_PRIVATE and count < MOST_PRIVATE:
                count += 1
                yield part
