"""What came back from a request."""

from __future__ import annotations

from dataclasses import dataclass

from forge.network.charset import Text, read_text


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, whatever its status. `headers` are pairs with lower-case names, in the order they came."""

    url: str  # the last one asked
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes  # unpacked
    truncated: bool = False  # there was more than Limits.size
    hops: tuple[str, ...] = ()  # the URLs that redirected here
    location: str = ""  # where a redirect that was not followed leads

    def header(self, name: str, default: str = "") -> str:
        """The first header of that name."""
        name = name.lower()
        return next((value for key, value in self.headers if key == name), default)

    @property
    def content_type(self) -> str:
        """As in `text/html`: lower case, without parameters."""
        return self.header("content-type").partition(";")[0].strip().lower()

    def text(self) -> Text:
        """The body as text, and a note of what had to be guessed or replaced. Never raises."""
        return read_text(self.body, self.header("content-type"), cut=self.truncated)
