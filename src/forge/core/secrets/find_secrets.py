"""Finds text that looks like a secret: well-known tokens, and values behind names such as `DB_PASSWORD`.

Literals are searched for first, which is fast; an expression is tried only where one stands. So a text without any
costs a few microseconds, and the time grows with the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from forge.core.secrets.secret_names import (
    LONGEST_NAME,
    compile_pattern,
    is_secret_on_next_line,
    is_secret_text,
    is_secret_word,
    is_set_by_blank,
    kind_of,
)
from forge.core.secrets.token_shapes import INSIDE, PREFIXES

SHORTEST = 7  # `://a:b@`
SHORTEST_TOKEN = 20  # letters and digits alone
LONGEST = 1024  # characters of a value behind a name
LONGEST_KEY = 32 * 1024  # of a private key

Span = tuple[int, int]

_SIGNS = ("_", "-", ".", "")  # a text without the sign holds none of the prefixes with it
_BY_SIGN = {
    sign: tuple(literal for literal in PREFIXES if next(one for one in _SIGNS if one in literal) == sign)
    for sign in _SIGNS
}
_NAMES = (
    "passw",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "key",
    "credential",
    "authorization",
    "pwd",
    "pass",
    "pw",
)
_NAME = rf"[A-Za-z0-9_-]{{1,{LONGEST_NAME}}}"
_BEFORE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_ASSIGNS = r"""(?x)
    \\*["'`]?\]?
    (?: [ \t]{0,4}:[ \t]{0,4}(?:str|string|String|&str|bytes|SecretStr)(?:[ ]?\|[ ]?None)?[ \t]{0,4}=(?!=)  # a type
      | [ \t]{0,20}(?:=>|:=|\+=|\?=|=(?![=~>])|:(?![:=]))
      | >(?=[^<\s]{1,200}</)                                                                             # an element
    )[ \t]{0,20}
    """
_SCHEME = r"(?i:basic|bearer|token|digest|apikey|negotiate|bot|aws4-hmac-sha256)[ ]{1,4}"
_OPENS = r"(?:[rbufRBUF]{0,2})(\\*[\"'`]{1,3})"
_WORD = rf"[^\s\"'`,;&|<>(){{}}\[\]]{{1,{LONGEST}}}"
_SHELL_WORD = rf"[^\s\"'`;&]{{1,{LONGEST}}}"
_LOGIN = (
    r"(?<![\w-])(?:-[a-zA-Z]{0,6}[ua]|--(?:proxy-)?(?:user|auth))(?:[ =]{1,4}|(?<=-u))"
    r"[\"']?([^\s:\"'$]{0,100}:[^\s\"']{1,200})"
)
_CONTINUES = r"(?:\\\r?\n|\\\\(?:\\r)?\\n)"  # a shell line that continues, also inside JSON
_AFTER_FLAG = rf"[ \t]{{1,20}}(?:{_CONTINUES}[ \t]{{0,40}}){{0,3}}(?![-\s])"
_AFTER_SIGN = rf"(?:{_CONTINUES}[ \t]{{0,40}}){{1,3}}"
_REGISTRY = (
    r"(?<![\w-])(?:docker|podman|nerdctl|buildah|skopeo|oras|crane|helm|az|oc)"
    r"(?:[ ]{1,4}[\w-]{1,30}){0,2}[ ]{1,4}login(?=[ \t])"
    rf"(?:[^\n;&|\\]|{_CONTINUES}){{0,200}}?(?<=[ \t])-p(?:[ \t=]|{_CONTINUES}){{0,40}}"
)
_NEXT_LINE = r"(?:[|>][-+0-9]{0,2}[ \t]{0,4})?(?:\r?\n|(?:\\r)?\\n)([ \t]{1,60})"
_KEY_BEGINS = r"(?:\A|\n|\\n)([ \t]*(?:- )?)\\{0,3}[\"']?\Z"
_LAST_WORD = rf"([^\s\"'`,;&|<>(){{}}\[\]\\]{{1,{LONGEST}}})[ \t]{{0,8}}(?=[\r\n\"'#]|\\[rn]|\Z)"
_BLANK_AND_QUOTE = r"[ \t]{1,8}(?=\\{0,3}[\"'])"
_IDS = r":?\d*:\d*|.*:\$.*"
LONGEST_WORD = 512  # characters of a known token that has begun
LONGEST_HEAD = len("-----BEGIN  PRIVATE KEY BLOCK-----") + 40  # of a private key
_CONTINUED = "q7Zk2Vw9Xr4Tn6Bm3Hs8Jd5Lf1Gc0Yp"  # how a secret may go on
_BASIC = r"(?i:basic)[ ]([A-Za-z0-9+/]{8,1024}={0,2})"


def mask_lookalikes(text: str, mask: str) -> str:
    """Replaces everything that looks like a secret; names, as of `DB_PASSWORD=…`, stay readable."""
    if len(text) < SHORTEST or (len(text) < SHORTEST_TOKEN and text.isalnum()):
        return text
    spans = sorted(_find_spans(text))
    if not spans:
        return text
    parts, done = [], 0
    for start, end in spans:
        if start >= done:
            parts += [text[done:start], mask]
        done = max(done, end)
    return "".join([*parts, text[done:]])


def find_spans(text: str) -> list[Span]:
    """Returns where the text looks like a secret, in order."""
    return sorted(_find_spans(text))


def find_open_start(text: str) -> int:
    """Returns where a look-alike begins that needs characters after the end of the text; else the length of the text.

    At the end may stand a name and the beginning of its value, or the beginning of a known token or private key.
    """
    key = text.rfind("-----BEGIN ")
    if key >= 0 and len(text) - key < LONGEST_HEAD and "\n" not in text[key:]:
        return key
    line = text[text.rfind("\n") + 1 :].rstrip(" \t\r")
    if not line:
        return len(text)
    begin = len(line) - len(re.split(r"\s", line[-LONGEST_WORD:])[-1])
    word, place_of_line = line[begin:], text.rfind("\n") + 1
    spans = [start for start, end in _find_spans(text + _CONTINUED) if start < len(text) < end]
    lowered, begin = word.lower(), place_of_line + begin
    for sign, literals in _BY_SIGN.items():
        if sign in lowered:
            for literal in literals:
                places = _positions(lowered, literal)
                spans += [begin + one for one in places if one == 0 or not lowered[one - 1].isalnum()]
    spans += [begin + lowered.find(literal) for literal in INSIDE if literal in lowered]
    return min(spans, default=len(text))


def takes_secret(flag: str) -> str:
    """Returns the kind of secret that follows a flag such as `--password` in arguments; `login` after `-u`."""
    if not flag.startswith("-") or "=" in flag or len(flag) > LONGEST_NAME:
        return ""
    return "login" if flag in ("-u", "--user", "--proxy-user") else kind_of(flag.strip("-"))


def is_login(text: str) -> bool:
    """Says whether a text is `user:password`, and neither two ids nor variables."""
    return ":" in text and not compile_pattern(_IDS).fullmatch(text) and not any(char.isspace() for char in text)


def _find_spans(text: str) -> Iterator[Span]:
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters have a longer lower case
        lowered = text.translate(_ascii_lower())
    for sign, literals in _BY_SIGN.items():
        if sign in lowered:
            for literal in literals:
                if literal in lowered:
                    yield from _find_tokens(text, lowered, literal, PREFIXES[literal], inside=False)
    for literal, pattern in INSIDE.items():
        if literal in lowered:
            yield from _find_tokens(text, lowered, literal, pattern, inside=True)
    if "-----begin " in lowered:
        yield from _find_private_keys(text)
    if "basic " in lowered:
        yield from _find_basic_auth(text, lowered)
    if "curl" in lowered or "http" in lowered:
        yield from _find_logins(text)
    if "login" in lowered and " -p" in lowered:
        yield from _find_registry_logins(text)
    yield from _find_assigned(text, lowered)


def _positions(lowered: str, literal: str) -> Iterator[int]:
    position = lowered.find(literal)
    while position >= 0:
        yield position
        position = lowered.find(literal, position + 1)


def _find_tokens(text: str, lowered: str, literal: str, pattern: str, *, inside: bool) -> Iterator[Span]:
    done = 0
    shape = compile_pattern(pattern)
    for position in _positions(lowered, literal):
        if position < done or (not inside and position and lowered[position - 1].isalnum()):
            continue
        if found := shape.match(text, position):
            done = found.end()
            yield found.span(shape.groups)


def _find_private_keys(text: str) -> Iterator[Span]:
    done = 0
    for found in compile_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text):
        if found.start() < done:
            continue
        end = text.find("-----END ", found.end(), found.end() + LONGEST_KEY)
        last = text.find("-----", end + 9, end + 80) if end >= 0 else -1
        done = last + 5 if last >= 0 else min(found.end() + LONGEST_KEY, len(text))
        yield found.start(), done


def _find_basic_auth(text: str, lowered: str) -> Iterator[Span]:
    for position in _positions(lowered, "basic "):
        found = compile_pattern(_BASIC).match(text, position)
        if found and _is_base64_login(found[1]):
            yield found.span(1)


def _is_base64_login(text: str) -> bool:
    from base64 import b64decode
    from binascii import Error as NotBase64

    try:
        return b":" in b64decode(text + "=" * (-len(text) % 4), validate=True)
    except NotBase64:
        return False


def _find_logins(text: str) -> Iterator[Span]:
    """Finds `curl -u user:password`."""
    for found in compile_pattern(_LOGIN).finditer(text):
        if not compile_pattern(_IDS).fullmatch(found[1]) and "://" not in found[1]:
            yield found.span(1)


def _find_registry_logins(text: str) -> Iterator[Span]:
    """Finds `docker login -u user -p password`."""
    for found in compile_pattern(_REGISTRY).finditer(text):
        if span := _read_value(text, found.end(), "password", assigned=True):
            yield span


def _find_assigned(text: str, lowered: str) -> Iterator[Span]:
    done = 0
    for position in sorted(position for name in _NAMES if name in lowered for position in _positions(lowered, name)):
        if position < done:
            continue
        start = position
        while start > position - LONGEST_NAME // 2 and start > done and text[start - 1] in _BEFORE:
            start -= 1
        name = compile_pattern(_NAME).match(text, start)
        if name is None:
            continue
        done = max(done, name.end())
        if span := _find_value(text, name):
            done = span[1]
            yield span


def _find_value(text: str, name: re.Match[str]) -> Span | None:
    sign = compile_pattern(_ASSIGNS).match(text, name.end())
    if sign is None:
        return _find_value_after_blank(text, name)
    kind = _kind_of_name(name[0])
    if not kind:
        return None
    if sign[0].rstrip().endswith(":") and (below := compile_pattern(_NEXT_LINE).match(text, sign.end())):
        return _find_value_below(text, name, below, kind)
    start = continued.end() if (continued := compile_pattern(_AFTER_SIGN).match(text, sign.end())) else sign.end()
    if kind == "pw" and not _is_plain(text, sign[0], start):
        return None
    return _read_value(text, start, kind, assigned=sign[0] == "=" and name[0].isupper())


def _is_plain(text: str, sign: str, start: int) -> bool:
    """Tells `pw=…`, `pw: …` and quotes from code: `pw = page2`, `with x() as pw: page1 = …`."""
    if sign == "=" or compile_pattern(_OPENS).match(text, start):
        return True
    return sign.strip() == ":" and compile_pattern(_LAST_WORD).match(text, start) is not None


def _kind_of_name(name: str) -> str:
    return kind_of(name.strip("-")) or ("key" if name.isupper() and name.endswith("_KEY") else "")


def _find_value_after_blank(text: str, name: re.Match[str]) -> Span | None:
    """Finds the value in `--password value`, `api_key 'value'`."""
    is_flag = name[0].startswith("--")
    blank = compile_pattern(_AFTER_FLAG if is_flag else _BLANK_AND_QUOTE).match(text, name.end())
    kind = _kind_of_name(name[0]) if blank else ""
    if blank is None or not kind:
        return None
    span = _read_value(text, blank.end(), kind, assigned=False)
    if span is None or is_flag:
        return span
    is_closed = text[span[1] : span[1] + 1] in ("'", '"', "\\")
    return span if is_closed and is_set_by_blank(name[0], text[slice(*span)], kind) else None


def _find_value_below(text: str, name: re.Match[str], below: re.Match[str], kind: str) -> Span | None:
    """Finds a YAML value alone on the line below its key, further in."""
    key = compile_pattern(_KEY_BEGINS).search(text[max(0, name.start() - 80) : name.start()])
    if key is None or len(key[1]) >= len(below[1]):
        return None
    if opening := compile_pattern(_OPENS).match(text, below.end()):
        end = _find_end(text, opening[1], opening.end())
        span = (opening.end(), end)
    elif word := compile_pattern(_LAST_WORD).match(text, below.end()):
        span = word.span(1)
    else:
        return None
    return span if is_secret_on_next_line(text[slice(*span)], kind) else None


def _read_value(text: str, start: int, kind: str, *, assigned: bool) -> Span | None:
    opening = compile_pattern(_OPENS).match(text, start)
    if opening is not None:
        start = opening.end()
    if kind == "header" and (scheme := compile_pattern(_SCHEME).match(text, start)):
        start = scheme.end()
    if opening is not None:
        end = _find_end(text, opening[1], start)
        return (start, end) if is_secret_text(text[start:end], kind) else None
    word = compile_pattern(_SHELL_WORD if assigned else _WORD).match(text, start)
    if word is None:
        return None
    calls = text[word.end() : word.end() + 1] in ("(", "[") and not assigned
    return word.span() if is_secret_word(word[0], kind, assigned=assigned, calls=calls) else None


def _find_end(text: str, quote: str, start: int) -> int:
    """Returns the end of a quoted value: at its quote, else at the end of its line."""
    most = min(start + LONGEST, len(text))
    end = text.find(quote, start, most)
    while end > 0 and len(quote) == 1 and text[end - 1] == "\\" and text[end - 2 : end - 1] != "\\":
        end = text.find(quote, end + 1, most)
    line = text.find("\n", start, most)
    ends = [one for one in (end, line) if one >= 0]
    return min(ends, default=most)


@cache
def _ascii_lower() -> dict[int, int]:
    return {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
