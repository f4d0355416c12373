"""Right calls, made wrong by chance: the same seed gives the same calls."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from fuzz.ground import BINARIES, HARMLESS
from fuzz.vocabulary import JOINS, NUMBERS, OFTEN, TEXTS, WORDS, paths, urls
from fuzz.website import PATHS

COSTLY = {  # they start a process, or many: one in so many of the calls that chance gives them is made
    **dict.fromkeys(("bash", "cli_execute", "local_shell"), 6),
    **dict.fromkeys(("repeat", "mcp_call", "run_code"), 10),
    "test_runner": 40,
}
LONGEST, MOST = 4_000_000, 30_000  # bytes of a line, and lists and objects in it: more is time, not chance


class Mutations:
    """An endless stream of calls, each a line for `forge tool call -`."""

    def __init__(self, seed: int, right: dict[str, list[dict[str, Any]]], beside: str, site: str) -> None:
        self.random = random.Random(seed)
        self.right = right
        self.names = sorted(right)
        self.paths = paths(beside)
        self.quick = [
            path for path in self.paths if "pipe" not in path
        ]  # a shell would wait there until its time is up
        self.urls = [f"{site}{path}" for path in PATHS] + urls(site)
        self.count = 0

    def line(self) -> bytes:
        """The next call. Its id is its number, unless the line is so broken that it has none."""
        self.count += 1
        while True:
            line = self._line()
            if len(line) < LONGEST and line.count(b"[") + line.count(b"{") < MOST:
                return line

    def _line(self) -> bytes:
        pick = self.random
        name = self._name()
        arguments: Any = copy.deepcopy(pick.choice(self.right[name]))
        for _ in range(pick.choice((0, 1, 1, 1, 1, 2, 2, 4))):
            self._change(arguments)
        if pick.random() < 0.06:
            arguments = self._as_text(arguments)
        elif pick.random() < 0.01:
            arguments = self._value("")
        if pick.random() < 0.02:
            name = self._misspelt(name)
        line = json.dumps({"name": name, "arguments": arguments, "id": str(self.count)}).encode()
        return self._broken(line) if pick.random() < 0.01 else line

    def _name(self) -> str:
        while True:
            name = self.random.choice(self.names)
            if self.random.randrange(COSTLY.get(name, 1)) == 0:
                return name

    def _change(self, arguments: dict[str, Any]) -> None:
        """One mutation, somewhere in the arguments."""
        pick = self.random
        holder, key = self._place(arguments)
        if key is None:
            self._add(holder)
            return
        chance = pick.random()
        if chance < 0.7:
            holder[key] = self._like(holder[key], str(key))
        elif chance < 0.82:
            holder[key] = self._value(str(key))
        elif chance < 0.87:
            del holder[key]
        elif chance < 0.91 and isinstance(holder, dict):
            holder[self._misspelt(str(key))] = holder.pop(key)
        elif chance < 0.96:
            holder[key] = self._wrapped(holder[key])
        else:
            self._add(holder)

    def _place(self, value: Any) -> tuple[Any, Any]:
        """A container somewhere inside, and one of its keys; None where it is empty."""
        holder, key = value, None
        while isinstance(holder, dict | list) and holder:
            key = self.random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            inner = holder[key]
            if not isinstance(inner, dict | list) or not inner or self.random.random() < 0.4:
                return holder, key
            holder = inner
        return holder, None

    def _add(self, holder: Any) -> None:
        value = self._value("")
        if isinstance(holder, list):
            holder.extend([value] * self.random.choice((1, 1, 2, 50)))
        else:
            holder[self.random.choice(("unknown", "path", "timeout", "", "__proto__", "self", "ctx", "a" * 200))] = (
                value
            )

    def _like(self, value: Any, key: str) -> Any:
        """Another value of the same kind."""
        pick = self.random
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return pick.choice((*NUMBERS, value + 1, -value, value // 2))
        if isinstance(value, list):
            return pick.choice(([], value * 2, value[::-1], value * 100))
        if isinstance(value, dict):
            return pick.choice(({}, {**value, "more": 1}, {str(number): value for number in range(20)}))
        return self._text(str(value), key)

    def _text(self, text: str, key: str) -> str:
        pick = self.random
        if key in ("command", "stdin"):  # whole words only: what chance makes of letters might be a program
            return self._command()
        if key in ("binary", "args"):
            return pick.choice((*BINARIES, "sh", "nope", "./cat", "/bin/cat", ""))
        if key in ("url", "spec", "server") and pick.random() < 0.7:
            return pick.choice(self.urls)
        if key in ("path", "to", "working_dir", "target", "filename", "include", "exclude") and pick.random() < 0.7:
            return pick.choice(self.paths)
        ways: tuple[Callable[[], str], ...] = (
            lambda: pick.choice(TEXTS),
            lambda: text[: pick.randrange(len(text) + 1)],
            lambda: text[:20_000] * pick.choice((2, 3, 100)),
            lambda: text + pick.choice(TEXTS),
            lambda: _inserted(text, pick.randrange(len(text) + 1), pick.choice(TEXTS)),
            lambda: text[::-1],
            lambda: text.swapcase(),
            lambda: pick.choice(self.paths),
            lambda: _inserted(text, pick.randrange(len(text) + 1), chr(pick.randrange(1, 0x2FFF))),
            lambda: (text[:20] or "x") * 100_000 if pick.random() < 0.1 else json.dumps(text),
        )
        return pick.choice(ways)()[:2_000_000]

    def _command(self) -> str:
        """Programs that harm nothing, on files of the ground, joined in every way a shell knows."""
        pick = self.random
        words = [pick.choice((*OFTEN, *HARMLESS))]
        for _ in range(pick.randrange(7)):
            words.append(pick.choice(JOINS))
            words.append(pick.choice((*HARMLESS, *WORDS, *self.quick)) if pick.random() < 0.8 else pick.choice(WORDS))
        return "".join(words)

    def _value(self, key: str) -> Any:
        """Any value at all."""
        pick = self.random
        if key in ("command", "stdin"):
            return pick.choice((None, 1, [], {}, True, [self._command()], self._command()))
        return pick.choice(
            (
                *(None, True, False, [], {}, [None], {"a": {"b": []}}, pick.choice(NUMBERS), pick.choice(NUMBERS)),
                *(pick.choice(TEXTS), pick.choice(TEXTS), self._text("text", key), [pick.choice(TEXTS)], _deep(60)),
            )
        )

    def _wrapped(self, value: Any) -> Any:
        ways = ([value], {"value": value}, json.dumps(value), [[value], [value]], str(value))
        return self.random.choice(ways)

    def _misspelt(self, word: str) -> str:
        pick = self.random
        at = pick.randrange(len(word) + 1)
        ways = (word.upper(), word.replace("_", "-"), word.title().replace("_", ""), word[:at] + word[at + 1 :], "")
        return pick.choice(
            (*ways, f"{word}s", f"{word} ", f"functions.{word}", _inserted(word, at, pick.choice(TEXTS)))
        )

    def _as_text(self, arguments: Any) -> str:
        """As models that write JSON badly send them."""
        text = json.dumps(arguments, ensure_ascii=self.random.random() < 0.5)
        at = self.random.randrange(len(text) + 1)
        ways = (
            text,
            text[:at],
            f"{text}}}",
            text.replace('"', "'"),
            f"```json\n{text}\n```",
            str(arguments),
            f"{text}{text}",
        )
        return self.random.choice((*ways, text.replace("}", ",}"), _inserted(text, at, self.random.choice(TEXTS))))

    def _broken(self, line: bytes) -> bytes:
        """A line that is no call, but still one line, and not a blank one."""
        at = self.random.randrange(1, len(line))
        ways = (
            line[:at],
            line[:at] + b"\xff\xfe" + line[at:],
            line + line,
            b"[]",
            b"null",
            b'"x"',
            b"{" * 10_000,
            b"{}",
        )
        return self.random.choice(ways)


def _inserted(text: str, at: int, piece: str) -> str:
    return text[:at] + piece + text[at:]


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value
