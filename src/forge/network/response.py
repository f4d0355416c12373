"""Defines the response to a request."""

from __future__ import annotations

from dataclasses import dataclass

from forge.network.charset import DecodedText, read_text


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, whatever its status. `headers` are pairs with lower-case names, in the order received."""

    url: str  # the last one asked
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes  # unpacked
    truncated: bool = False  # there was more than Limits.size
    hops: tuple[str, ...] = ()  # the URLs that redirected here
    location: str = ""  # where a redirect that was not followed leads

    def header(self, name: str, default: str = "") -> str:
        """Returns the first header of that name."""
        name = name.lower()
        return next((value for key, value in self.headers if key == name), default)

    @property
    def content_type(self) -> str:
        """The media type, such as `text/html`: lower case, without parameters."""
        return self.header("content-type").partition(";")[0].strip().lower()

    def text(self) -> DecodedText:
        """Decodes the body, with a note on guesses and replacements. Never raises."""
        return read_text(self.body, self.header("content-type"), cut=self.truncated)
