"""Asks the next model if one fails before it has shown text."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from forge.core.errors import ErrorKind
from forge.core.events import TextDelta
from forge.core.messages import Message
from forge.core.plain_values import clip_bytes
from forge.core.provider import ModelRequest, Provider, ProviderError, expects_calls

LONGEST_REASON = 500  # bytes, of each model's failure
_OURS = (ErrorKind.VALIDATION, ErrorKind.PERMISSION, ErrorKind.CANCELLED)  # another model would not help


def fallback(first: Provider, *others: Provider) -> Fallback:
    """Use the first model that answers. Once a model has shown text (more than white space), no other takes over."""
    return Fallback(first, *others)


class Fallback:
    """A provider that asks several providers in order."""

    def __init__(self, first: Provider, *others: Provider) -> None:
        self.providers = (first, *others)

    def __repr__(self) -> str:
        return f"fallback({', '.join(map(repr, self.providers))})"

    @property
    def expects_calls(self) -> bool:
        """True if the prompts of all these models demand a tool call in every reply."""
        return all(expects_calls(provider) for provider in self.providers)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | Message, None]:
        """Streams the answer of the first model that works. Raises `ProviderError` if none does."""
        failures: list[ProviderError] = []
        for provider in self.providers:
            has_spoken = False
            space = ""  # white space is held back: it does not count, but belongs to the text
            stream = provider.stream(request)
            try:
                async for part in stream:
                    if isinstance(part, Message):
                        if space:
                            yield TextDelta(space)
                        yield part
                        return
                    if not has_spoken and not part.text.strip():
                        space += part.text
                        continue
                    yield TextDelta(space + part.text) if space else part
                    has_spoken, space = True, ""
                raise _silence_error()
            except ProviderError as error:
                if has_spoken or error.kind in _OURS:
                    raise
                failures.append(error)
            finally:
                if close := getattr(stream, "aclose", None):
                    await close()
        if len(failures) == 1:
            raise failures[0]
        raise self._all_failed(failures) from failures[-1]

    def _all_failed(self, failures: list[ProviderError]) -> ProviderError:
        last = failures[-1]
        reasons = "; ".join(
            f"{_name(provider)}: {clip_bytes(failure.message, LONGEST_REASON)}"
            for provider, failure in zip(self.providers, failures, strict=True)
        )
        return ProviderError(
            f"asked {len(failures)} models, and none answered: {reasons}",
            last.kind,
            next((failure.suggestion for failure in failures if failure.suggestion), ""),
            passing=any(failure.passing for failure in failures),
            status=last.status,
        )


def _name(provider: Provider) -> str:
    model = getattr(provider, "model", "")
    return f"{type(provider).__name__} {model}" if isinstance(model, str) and model else type(provider).__name__


def _silence_error() -> ProviderError:
    return ProviderError(
        "the model's stream ended without a message", suggestion="The last item of a stream must be a Message."
    )
