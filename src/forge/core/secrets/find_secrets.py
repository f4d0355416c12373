"""Finds text that looks like a secret: well-known tokens, and values behind names such as `DB_PASSWORD`.

Literals are searched for first, which is fast; an expression is tried only where one stands. So a text without any
costs a few microseconds, and the time grows with the text alone.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from functools import cache, lru_cache

from forge.core.secrets.token_shapes import INSIDE, PREFIXES

# Recognises names that announce a secret, such as `DB_PASSWORD` or `clientSecret`, and secret values.


LONGEST_NAME = 100

_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
_PASSWORDS = ("password", "passwd", "passphrase", "passcode", "passwort")
_SHORT_PASSWORDS = frozenset("pw rootpw bindpw userpw dbpw adminpw".split())
_KEYS = ("apikey", "accesskey", "secretkey", "privatekey", "accountkey", "authkey", "encryptionkey", "signingkey")
_KEY_OF = frozenset(
    "access account admin aes algolia anthropic api app application auth aws azure client cloudflare consumer crypto"
    " data database datadog db deepseek deploy encrypt encryption gcp gemini google groq hmac jwt license master"
    " mistral openai openrouter private secret sendgrid service session shared sign signing ssh storage stripe"
    " subscription twilio webhook".split()
)
# `token_count` and `password_file` hold something else
_ABOUT = frozenset(
    "age algorithm at budget class column count counts dir directory embedding enabled end endpoint env error errors"
    " exists expiration expired expires expiry expr field fields file filename format func function handler hint id ids"
    " idx in index input is issuer kind label len length lifetime limit limits list manager max min mode model name"
    " names offset ok path pattern policy pool position probability prompt provider rate ref refs regex required reset"
    " rule rules scope scopes size source start state stdin store strength style text timeout total ttl type types"
    " uri url usage valid validator var variable version window".split()
)
_COUNTED = frozenset(
    "begin bos cls completion continuation count cursor end eos first input last mask max min n next num number output"
    " pad page per prev previous prompt sep special start stop total unk".split()
)
_NO_VALUES = frozenset(
    "any auto bool boolean bytes char default disabled enabled false empty environment example file hidden int keyring"
    " nil no none null object optional prompt redacted removed required secretstr str string text true undefined"
    " unknown unset varchar vault yes".split()
)
_NOTHING = r"""(?x)
      [^A-Za-z0-9]*                                       # ***, …, ---
    | [xX*.]+ | \[(?:secret|redacted|hidden)\].* | <[^>]*>?
    | !\w+ | \$\w+(?:[/:].*)? | \$[({].* | \#\{.* | \{.* | %\(.*|%[sdrv] | %\w+% # filled in later
    | (?i:your|my|insert|enter|change)[-_ ](?i:\w+[-_ ])*(?i:here|key|token|secret|password|me)
    """
_IDENTIFIER = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_CALL = r"[A-Za-z_][\w.]*\("
_NUMBER = r"[+-]?[\d.,_:%TZ-]+"
_MEASURE = r"[\d.,_:%+-]+(?:[a-z]{1,3}|%)?"  # 1024, 12px, 50%
_FILES = r"[\w.*?-]*\.[a-z]{1,4}|[a-z0-9_.*?-]+(?:/[a-z0-9_.*?-]*)+|[\w./-]*[*?].*"
_LOWER_PATH = r"(?:~|\.{1,2})?/(?:[a-z0-9_.-]+/)*[a-z0-9_.-]*|https?://.*"
_LABEL = r"[a-z]{2,}(?:[-_./:][a-z]{2,})+"


@lru_cache(maxsize=2048)
def kind_of(name: str) -> str:
    """Returns the kind of secret that a name announces: `password`, `pw`, `secret`, `token`, `header`, or nothing.

    The name may be written in any style: `DB_PASSWORD`, `db-password`, `dbPassword`, `PGPASSWORD`.
    """
    words = [word.lower() for word in compile_pattern(_WORDS).findall(name[:LONGEST_NAME])]
    found, position = "", -1
    for index, word in enumerate(words):
        if kind := _kind_of_word(word, words[:index]):
            found, position = kind, index
    if position < 0 or any(word in _ABOUT for word in words[position + 1 :]):
        return ""
    if found == "token" and position > 0 and words[position - 1] in _COUNTED:
        return ""
    return found


def _kind_of_word(word: str, before: list[str]) -> str:
    if word.endswith(_PASSWORDS) or (before and before[-1] != "old" and word in ("pwd", "pass")):
        return "password"
    if word in _SHORT_PASSWORDS:
        return "pw"  # or a width
    if word.endswith("secret") or word in ("credential", "credentials"):
        return "secret"
    if word.endswith("token"):
        return "token"
    if word.endswith(_KEYS) or (word == "key" and before and before[-1] in _KEY_OF):
        return "token"
    return "header" if word in ("authorization", "cookie") else ""


def is_secret_text(value: str, kind: str) -> bool:
    """Tells a quoted value that is secret from a placeholder and, for tokens and keys, from ordinary words."""
    if compile_pattern(_NOTHING).fullmatch(value) or value.lower() in _NO_VALUES:
        return False
    if kind == "password":
        return len(value) >= 4
    if kind == "pw":
        return len(value) >= 4 and not compile_pattern(_MEASURE).fullmatch(value)
    if len(value) < 8 or any(char.isspace() for char in value) or compile_pattern(_NUMBER).fullmatch(value):
        return False
    if kind == "key":
        return _looks_random(value)
    return kind == "secret" or not (
        compile_pattern(_LABEL).fullmatch(value) or compile_pattern(_LOWER_PATH).fullmatch(value)
    )


def is_secret_word(value: str, kind: str, *, assigned: bool, calls: bool) -> bool:
    """Tells a secret without quotes from code. `assigned`: as a shell does it, `NAME=value`; `calls`: a `(` follows."""
    value = value.rstrip(".,:\\")
    least = 4 if kind in ("password", "pw") else 5 if assigned else 8
    if len(value) < least or value.lower() in _NO_VALUES or compile_pattern(_NOTHING).fullmatch(value):
        return False
    if calls or compile_pattern(_CALL).match(value) or compile_pattern(_LOWER_PATH).fullmatch(value):
        return False
    if compile_pattern(_NUMBER).fullmatch(value):
        return kind == "password" and value.isdigit()
    if kind == "pw" and compile_pattern(_MEASURE).fullmatch(value):
        return False
    if kind == "key":
        return _looks_random(value)
    if not compile_pattern(_IDENTIFIER).fullmatch(value):
        return True
    if "." in value:  # an attribute, unless a part of it is no name
        return any(len(part) >= 12 and _looks_random(part) for part in value.split("."))
    if assigned:
        return True
    if value.isalpha() and value.islower():  # a word: a password in YAML, or the name of a variable
        return kind == "password" and len(value) >= 8 and not kind_of(value)
    if kind_of(value) or not any(char.isdigit() for char in value):
        return False
    return len(value) >= 8 or value.isalnum()


def is_set_by_blank(name: str, value: str, kind: str) -> bool:
    """Tells `api_key 'x1y2z3w4'` from a message such as `unexpected token 'export'` and from `grep password 'src/'`."""
    if kind == "header" or compile_pattern(_FILES).fullmatch(value) or any(char.isspace() for char in value):
        return False
    if kind == "password" and name.isupper():  # SQL: WITH PASSWORD 'letmein'
        return True
    if kind not in ("password", "pw") and len(compile_pattern(_WORDS).findall(name)) < 2:
        return False
    return any(char.isdigit() for char in value) and any(char.isalpha() for char in value)


def is_secret_on_next_line(value: str, kind: str) -> bool:
    """Tells the value of a YAML key from a key below it and from words of a description."""
    if kind == "header" or value.isalpha() or value[-1:] == ":" or value[:1] in "-&*!" or " " in value:
        return False
    return is_secret_word(value, kind, assigned=False, calls=False)


def _looks_random(value: str) -> bool:
    """Returns whether a value has letters and several digits, without the signs that join words."""
    digits = sum(char.isdigit() for char in value)
    return len(value) >= 12 and 2 <= digits < len(value) and not any(char in "-_.:/" for char in value)


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern on first use: most programs never need most of these."""
    return re.compile(pattern)


SHORTEST = 7  # `://a:b@`
SHORTEST_TOKEN = 20  # letters and digits alone
LONGEST_VALUE = 1024  # characters of a value behind a name
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
_WORD = rf"[^\s\"'`,;&|<>(){{}}\[\]]{{1,{LONGEST_VALUE}}}"
_SHELL_WORD = rf"[^\s\"'`;&]{{1,{LONGEST_VALUE}}}"
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
_LAST_WORD = rf"([^\s\"'`,;&|<>(){{}}\[\]\\]{{1,{LONGEST_VALUE}}})[ \t]{{0,8}}(?=[\r\n\"'#]|\\[rn]|\Z)"
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
    """Returns whether a text is `user:password`, and neither two ids nor variables."""
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
    most = min(start + LONGEST_VALUE, len(text))
    end = text.find(quote, start, most)
    while end > 0 and len(quote) == 1 and text[end - 1] == "\\" and text[end - 2 : end - 1] != "\\":
        end = text.find(quote, end + 1, most)
    line = text.find("\n", start, most)
    ends = [one for one in (end, line) if one >= 0]
    return min(ends, default=most)


@cache
def _ascii_lower() -> dict[int, int]:
    return {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
