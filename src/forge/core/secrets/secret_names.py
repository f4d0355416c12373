"""Recognises names that announce a secret, such as `DB_PASSWORD` or `clientSecret`, and secret values."""

from __future__ import annotations

import re
from functools import cache, lru_cache

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
    """Says whether a value has letters and several digits, without the signs that join words."""
    digits = sum(char.isdigit() for char in value)
    return len(value) >= 12 and 2 <= digits < len(value) and not any(char in "-_.:/" for char in value)


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern on first use: most programs never need most of these."""
    return re.compile(pattern)
