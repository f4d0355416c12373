"""Controls access: a link that works once becomes a cookie, beside a token that only the console's own page can keep.

The cookie alone is not enough: a browser sends it to every server of this machine, whatever its port. Nothing is stored
for both but one key, so that a page goes on after a restart of the server.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from hashlib import sha256

OPEN = 600.0  # seconds that a link works
STAYS = 7 * 86_400.0  # seconds that a cookie counts
MOST_USED = 10_000  # links that are remembered as used: each works for ten minutes at most

Clock = Callable[[], float]


def new_key() -> str:
    return secrets.token_hex(32)


class Entrance:
    """Signs links, cookies and tokens; `born` differs at every start, so that earlier links do not work."""

    def __init__(self, key: str, born: str, clock: Clock = time.time) -> None:
        self._key = key.encode()
        self._born = born
        self._clock = clock
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()

    def new_link(self) -> str:
        """Returns a token for `/enter?token=…`."""
        return self._sign(f"enter {self._born}", OPEN)

    def enter(self, token: str) -> str | None:
        """Returns the value of a cookie for a token that is new and unused."""
        if not self._holds(f"enter {self._born}", token):
            return None
        with self._lock:
            now = self._clock()
            self._used = {one: until for one, until in self._used.items() if until > now}
            if token in self._used or len(self._used) >= MOST_USED:
                return None
            self._used[token] = now + OPEN
        return self._sign("cookie", STAYS)

    def knows(self, cookie: str) -> bool:
        return self._holds("cookie", cookie)

    def page_token(self, cookie: str) -> str:
        """Returns the token that the page sends with every request; pages of other ports and sites cannot read it."""
        return self._mark("page", cookie)

    def look_key(self, cookie: str) -> str:
        """Returns the key for addresses, where no header can be sent: for reading only, since addresses are stored."""
        return self._mark("look", cookie)

    def is_page_token(self, cookie: str, given: str) -> bool:
        return hmac.compare_digest(self.page_token(cookie).encode(), given.encode("utf-8", "replace"))

    def is_look_key(self, cookie: str, given: str) -> bool:
        return hmac.compare_digest(self.look_key(cookie).encode(), given.encode("utf-8", "replace"))

    def _sign(self, purpose: str, lasting: float) -> str:
        body = f"{int(self._clock() + lasting)}.{secrets.token_urlsafe(24)}"
        return f"{body}.{self._mark(purpose, body)}"

    def _holds(self, purpose: str, text: str) -> bool:
        body, _, mark = text.rpartition(".")
        until = body.partition(".")[0]
        if not hmac.compare_digest(self._mark(purpose, body).encode(), mark.encode("utf-8", "replace")):
            return False
        return until.isdecimal() and int(until) > self._clock()

    def _mark(self, purpose: str, text: str) -> str:
        words = f"{purpose}\n{text}".encode("utf-8", "replace")
        return hmac.new(self._key, words, sha256).hexdigest()
