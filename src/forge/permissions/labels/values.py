"""Finds the values in a call's arguments that name something: addresses, names, ids, dates, words of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from posixpath import normpath
from typing import Any, NamedTuple

from forge.core.spec import Permission, ToolSpec
from forge.permissions.labels.folding import decode_parts, fold
from forge.permissions.targets.hosts import read_host

LONGEST_NAME = 120  # characters: a longer text, or one of several lines, is content
SHORTEST_COPIED = 24  # characters of a line of content that is no copy by chance
MOST_VALUES = 2_000  # of one call
RUN = 3  # words of a command that are compared together
DEEPEST_DATA = 20
DELEGATING = frozenset({"task", "run_code"})  # they do nothing but make calls, each of which is judged

_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*://[^\s\"'<>`]+"  # a URL
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # a mail address
    r"|(?<![\w@./-])(?:[a-z0-9-]+\.)+[a-z]{2,}\.?(?:/[^\s\"'<>`]*)?(?![\w@])"  # a host, perhaps with a path
    r"|(?<![\w:/])//(?:[a-z0-9-]+\.)+[a-z]{2,}(?:[/:][^\s\"'<>`]*)?"  # a host after nothing but slashes
    r"|(?<![\w.])(?:0x[0-9a-f]{7,8}|\d{1,3}(?:\.\d{1,3}){3})(?![\w.]*\w)(?:/[^\s\"'<>`]*)?"  # a number of a host
    r"|(?<!\w)(?=[a-z0-9]*\d[a-z0-9]*\d[a-z0-9]*\d)[a-z0-9]{10,}(?!\w)"  # an account or a key
)
_INNER = re.compile(r"[?&=#;,%@]|/(?=[a-z]+:/)")
_RELAYED = re.compile(r"[%!@]")
_DECIMAL = re.compile(r"(\d+)\.(\d)")
_DEFAULT = re.compile(r"\$\{\w+:?[-=+]([^{}]*)\}")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_MONTHS = "january february march april may june july august september october november december".split()
_HAS_DIGITS = re.compile(r"(?<!\w)(?=\w*\d\w*\d\w*\d)\w{3,}(?!\w)")
_PARTS = re.compile(r"[=:,;@<>~!\[\](){}|&'\"\s]+")
# programs whose first operand says what they do
_HAS_COMMANDS = frozenset(
    "apt apt-get aws az brew bundle cargo composer conda docker dotnet gcloud gem gh git go helm hg kubectl npm pip"
    " pip3 pipx pnpm podman poetry rustup svn systemctl terraform uv yarn".split()
)
_TAKES_CONTENT = frozenset({"cat", "tee", "git", "mail", "gh"})  # their here-documents are texts
_COUNTRY = frozenset("ac co com edu gov net org".split())
_EVERYDAY = frozenset(  # words that stand in every page about programs
    "add all app bin build clean config data dev dist doc docs example examples file files head index init install lib"
    " list main master origin run src start test tests".split()
)


class Value(NamedTuple):
    """A folded value of an argument, and the name of the argument."""

    argument: str
    text: str
    shown: str  # as it was written
    whole: str = ""  # the folded word of a command of which it is a part


class Address(NamedTuple):
    """The place to which a URL, a host or a mail address leads, in one spelling."""

    user: str  # of a mail address, without a `+tag`
    hosts: frozenset[str]  # the spellings of the host
    path: tuple[str, ...] = ()

    @property
    def sites(self) -> frozenset[str]:
        """The last parts of the host, which belong to one owner."""
        return frozenset(_find_site(host) for host in self.hosts)

    def leads_to(self, other: Address) -> bool:
        """Returns whether it leads to the host of another address, or to one beside it."""
        if self.hosts & other.hosts or self.sites & other.sites:
            return True
        inner = [f".{mine.replace(sign, '.')}." for mine in self.hosts for sign in ".-"]  # `evil.example.proxy.example`
        return any(f".{one}." in mine for one in other.hosts for mine in inner if "." in one)

    def is_below(self, other: Address) -> bool:
        """Returns whether its host is that of another address, or a part of it."""
        return any(mine == one or mine.endswith(f".{one}") for mine in self.hosts for one in other.hosts)


def find_values(
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    permission: Permission | None,
    target: str = "",
    *,
    irreversible: bool = False,
) -> list[Value]:
    """Returns the values of a call that say what it does to what: those that must not come from untrusted text.

    Enumerated values, signs and single letters name nothing, except in a call that cannot be undone. Parameters that
    the tool declares as harmless do not count, but the target that such a parameter names does.
    """
    if spec.name in DELEGATING:
        return []
    commands = frozenset(spec.targets) if permission is Permission.EXECUTE else frozenset()
    skipped = spec.harmless if irreversible else spec.harmless | _find_enumerated(spec)
    found: dict[tuple[str, str], Value] = {}
    leaves = [(argument, leaf) for argument, leaf in find_leaves(arguments) if argument not in skipped]
    if target and spec.harmless and all(leaf != target for _, leaf in leaves):
        leaves.append((spec.target or "target", target))
    for argument, leaf in leaves:
        whole = leaf if isinstance(leaf, str) and " " not in leaf.strip() else ""
        names = [(text, whole) for text in _find_names(leaf, is_command=argument in commands)]
        if irreversible:
            names += [(text, "") for text in _find_details(leaf)]
        if argument in commands and isinstance(leaf, str):
            names += [operand for text in (leaf, *decode_parts(leaf)) for operand in _find_operands(text)]
            names += [(path, word) for word in leaf.split() for path in _spell_path(word.strip("'\""))]
        for text, whole in names:
            value = Value(argument, fold(text), text, fold(whole))
            shortest = 1 if irreversible else 2
            if value.text.isdigit() or (len(value.text) >= shortest and any(map(str.isalnum, value.text))):
                found.setdefault(value[:2], value)
        if len(found) >= MOST_VALUES:
            break
    return list(found.values())


def find_texts(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields every text of the arguments with the name of its argument, encoded parts also decoded."""
    for argument, leaf in find_leaves(arguments):
        text = leaf if isinstance(leaf, str) else str(leaf)
        yield argument, text
        for plain in decode_parts(text):
            yield argument, plain


def find_addresses(text: str) -> list[str]:
    """Returns the addresses in a text: URLs, hosts, mail addresses, account numbers."""
    return [match.group().rstrip(".,;:!?)'").removeprefix("//") for match in _ADDRESS.finditer(text.lower())]


def _find_inner_addresses(text: str) -> Iterator[str]:
    """Yields the addresses in a text, and those inside an address, such as the target of a redirection."""
    for address in find_addresses(text):
        yield address
        if "/" not in address:
            continue
        parts = _INNER.split(address.partition("://")[2] or address)
        yield from (one for part in parts[1:] for one in find_addresses(part))
    if "@" in text and (
        "%" in text or "!" in text
    ):  # a mail that another host passes on: eve%evil.example@relay.example
        yield from (one for part in _RELAYED.split(text) for one in find_addresses(part))


@lru_cache(maxsize=4_096)
def read_address(text: str) -> Address | None:
    """Reads a folded URL, host or mail address; None for anything else."""
    host = host_of(text)
    user, at, _ = text.partition("@")
    is_mail = bool(at) and "/" not in text
    hosts = _read_hosts(host)
    if not hosts or not ("://" in text or any("." in one or ":" in one for one in hosts)):
        return None
    rest = text.partition("://")[2] if "://" in text else text
    path = () if is_mail else tuple(filter(None, re.split(r"[?#]", rest, maxsplit=1)[0].split("/")[1:]))
    return Address(user.partition("+")[0].removeprefix("mailto:") if is_mail else "", hosts, path)


def _read_hosts(host: str) -> frozenset[str]:
    """Returns the spellings of a host: without a dot at the end, numbers as they are usually written, letters plain."""
    host = host.strip(".")
    labels = [_read_punycode(label) for label in host.split(".")]
    names = read_host(f"[{host}]" if host.count(":") > 1 else host).names if host.isascii() else frozenset()
    return frozenset({fold(".".join(labels)), *names}) - {""}


def _read_punycode(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode().decode("punycode")
    except (UnicodeError, ValueError, OverflowError):
        return label


def _find_site(host: str) -> str:
    """Returns the last two parts of a host; three where these are a country's, such as `co.uk`."""
    labels = host.split(".")
    if labels[-1].isdigit() or ":" in host:
        return host
    is_country = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _COUNTRY
    return ".".join(labels[-3:] if is_country else labels[-2:])


def spell_value(text: str) -> Sequence[str]:
    """Returns the ways to write a date such as `2024-05-01` or a number such as `1100`; otherwise the value alone."""
    if text.isdigit() and 4 <= len(text) <= 15:
        grouped = f"{int(text):,}"
        return (text, grouped, grouped.replace(",", "."), grouped.replace(",", " "), grouped.replace(",", "'"))
    if "/" in text:
        return (text, text.replace("/", "\\"))
    if (decimal := _DECIMAL.fullmatch(text)) is not None:
        return (text, f"{text}0", f"{decimal[1]},{decimal[2]}", f"{decimal[1]},{decimal[2]}0")
    match = _DATE.fullmatch(text[:10])
    if match is None or not 1 <= int(match[2]) <= 12:
        return (text,)
    year, month, day = match[1], _MONTHS[int(match[2]) - 1], str(int(match[3]))
    days = [day + ending for ending in ("", "st", "nd", "rd", "th")]
    names = (month, month[:3])
    spelled = [f"{name} {one}{comma} {year}" for name in names for one in days for comma in ("", ",")]
    spelled += [f"{one}{of} {name} {year}" for name in names for one in days for of in ("", " of")]
    return (text, *spelled) if len(text) == len(match.group()) else (text,)


def host_of(address: str) -> str:
    """Returns the host of a URL, or of an address that begins with a host; without user and port."""
    start = address.partition("://")[2] if "://" in address else address
    host = re.split(r"[/?#\\]", start, maxsplit=1)[0].rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_short_number(text: str) -> bool:
    """Returns whether a value is a bare number of up to three digits, which also stands in texts by chance."""
    return len(text) <= 3 and text.isdigit()


def _find_names(leaf: Any, *, is_command: bool) -> Iterator[str]:
    if isinstance(leaf, int | float):
        digits = _write_number(leaf)
        if len(digits) >= 4 and not 1900 <= leaf <= 2100:
            yield digits
        return
    if len(leaf) <= LONGEST_NAME and "\n" not in leaf.strip() and not (is_command and leaf.strip().isalnum()):
        yield leaf
        if not is_command:
            yield from _spell_path(leaf)
    for text in (leaf, *decode_parts(leaf)):
        addresses = [*_find_inner_addresses(fold(text))]
        yield from (one for one in addresses if one != leaf)
        yield from (host for one in addresses if "@" not in one.partition("://")[0] and "." in (host := host_of(one)))
        if is_command:
            words = text.split()
            yield from (" ".join(words[at : at + RUN]) for at in range(min(len(words) - RUN + 1, 200)))


def _spell_path(path: str) -> Iterator[str]:
    """Yields a path without detours, and its last two parts."""
    if "/" in path and "://" not in path:
        plain = normpath(path.replace("\\", "/"))
        yield plain
        yield "/".join(plain.split("/")[-2:])


def _find_details(leaf: Any) -> Iterator[str]:
    """Yields what counts only in a call that cannot be undone: small numbers, codes and lines of content."""
    if isinstance(leaf, int | float):
        yield _write_number(leaf)
    else:
        yield from (line for line in leaf.splitlines() if len(line) >= SHORTEST_COPIED)
        yield from _HAS_DIGITS.findall(leaf)


def _find_operands(line: str) -> Iterator[tuple[str, str]]:
    """Yields the operands of the commands of a line, their parts and the values of options, each with its word."""
    from forge.permissions.shell.commands import UnreadableLine, find_reached  # they load a parser of shell lines

    for word in _find_hidden_words(line):
        yield from _name_parts(word)
    try:
        commands = find_reached(line)
    except UnreadableLine:
        commands = (("", *line.split()),)
    for program, *words in filter(None, commands):
        name = program.rpartition("/")[2]
        if name != program:
            yield program, program
            yield name, program
        operands = [word for word in words if not word.startswith("-")]
        does = operands[:1] if name in _HAS_COMMANDS else []
        for before, word in zip(("", *words), words, strict=False):
            if word.startswith("--") or (word.startswith("-") and "=" in word):
                yield from _name_parts(word.partition("=")[2], word)
            elif word.startswith("-"):
                yield from _name_parts(word[2:] if len(word) > 5 else "", word)
            elif [word] != does:
                yield from _name_parts(word)
                if before in ("-c", "-e", "--eval"):  # a program in another language
                    yield from ((one, word) for one in word.split() if _names_something(one))


def _name_parts(word: str, whole: str = "") -> Iterator[tuple[str, str]]:
    """Yields a word of a command and its parts, such as the package of `package==1.0`, each with the whole word."""
    parts = [word]
    if "://" not in word and " " not in word:
        parts += [*_PARTS.split(word), word.rstrip("/").rpartition("/")[2], word.replace("_", "-")]
        parts.append(word.replace("-", "_"))
    yield from ((one, whole or word) for one in parts if _names_something(one))


def _names_something(word: str) -> bool:
    return len(word) > 2 and not word.isdigit() and word.lower() not in _EVERYDAY


def _find_hidden_words(line: str) -> Iterator[str]:
    """Yields the values of variables in a line, and the texts that a command gets as its input."""
    from forge.permissions.shell import parse as shell

    for command in shell.read(line).commands:
        yield from (value for _, value in command.assignments)
        yield from (one.target for one in command.redirections if one.operator == "<<<")
        if command.words[:1] and command.words[0] not in _TAKES_CONTENT:
            documents = (one.target for one in command.redirections if one.operator == "<<")
            yield from (word for text in documents for word in text.split()[:MOST_VALUES])
    yield from _DEFAULT.findall(line)


def _write_number(number: float) -> str:
    return f"{number:g}" if isinstance(number, float) and abs(number) < 1e6 else str(number).removesuffix(".0")


def find_leaves(arguments: Any, argument: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields the texts and numbers of plain data, each with the name of its argument."""
    if isinstance(arguments, Mapping):
        for key, value in arguments.items():
            if depth < DEEPEST_DATA:
                if argument and not str(key).isidentifier():  # a name that the schema does not choose
                    yield argument, str(key)
                yield from find_leaves(value, argument or str(key), depth + 1)
    elif isinstance(arguments, list | tuple | set | frozenset):
        for value in arguments:
            yield from find_leaves(value, argument, depth + 1) if depth < DEEPEST_DATA else ()
    elif isinstance(arguments, str | int | float) and not isinstance(arguments, bool):
        yield argument, arguments


def _find_enumerated(spec: ToolSpec) -> frozenset[str]:
    properties = spec.parameters.get("properties", {})
    if not isinstance(properties, Mapping):
        return frozenset()
    listed = (
        name for name, one in properties.items() if isinstance(one, Mapping) and ("enum" in one or "const" in one)
    )
    return frozenset(listed)
