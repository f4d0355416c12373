"""Asks the next model if one fails before it has shown text, and records which one answered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.events import Retrying, TextDelta
from forge.core.messages import Message
from forge.core.plain_values import clip_bytes
from forge.core.provider import (
    ModelRequest,
    Provider,
    ProviderError,
    StreamPart,
    expects_calls,
    explain_calls,
    explain_server_tool,
    holds_to_schema,
    window_of,
)
from forge.core.spec import ToolSpec
from forge.models.known_models import known_of

ANSWERED_BY = "answered_by"  # in `Message.extra`
LONGEST_REASON = 500  # bytes, of each model's failure
_OURS = (ErrorKind.VALIDATION, ErrorKind.PERMISSION, ErrorKind.CANCELLED)  # another model would not help


def fallback(first: Provider, *others: Provider) -> Fallback:
    """Uses the first model that answers. Once a model has shown text (more than white space), no other takes over.

    A model is passed over for every failure that is not the request's own fault, with a `Retrying` event. The answer
    says in `Message.extra["answered_by"]` which model wrote it, and costs what that model costs.

    Args:
        first: the model that is asked first.
        others: the models that are asked if it fails.

    Example:
        >>> broken = Scripted(ProviderError("overloaded", passing=True))
        >>> Agent(fallback(broken, Scripted("Hello!"))).run_sync("Hi").text
        'Hello!'
    """
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

    def explain_calls(self, tools: Sequence[ToolSpec]) -> str:
        return next(filter(None, (explain_calls(provider, tools) for provider in self.providers)), "")

    @property
    def window(self) -> int:
        """The smallest of the models' windows, where one is known: each of them must fit the history."""
        found = [window_of(one) or (known.window if (known := known_of(one)) else 0) for one in self.providers]
        return min((window for window in found if window), default=0)

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Returns whether each of the models holds an answer to a schema."""
        return all(holds_to_schema(provider, schema, with_tools=with_tools) for provider in self.providers)

    def explain_server_tool(self, tool: Any) -> str:
        """Returns why one of the models does not run a tool on its servers; "" if all do."""
        return next(filter(None, (explain_server_tool(provider, tool) for provider in self.providers)), "")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
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
                        yield replace(part, extra={**part.extra, ANSWERED_BY: _name(provider)})
                        return
                    if not isinstance(part, TextDelta):
                        yield part  # reasoning and calls are notes: the next model may still take over
                        continue
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
                if len(failures) < len(self.providers):
                    following = _name(self.providers[len(failures)])
                    reason = f"{clip_bytes(error.message, LONGEST_REASON)}; asking {following} instead"
                    yield Retrying(reason, len(failures), status=error.status)
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
            f"none of {len(failures)} models answered: {reasons}",
            last.kind,
            next((failure.suggestion for failure in failures if failure.suggestion), ""),
            passing=any(failure.passing for failure in failures),
            status=last.status,
        )


def _name(provider: Provider) -> str:
    """Returns the name of a model, such as `openai:gpt-5`."""
    model, label = getattr(provider, "model", ""), getattr(provider, "label", "")
    if not isinstance(model, str) or not model:
        return type(provider).__name__
    return f"{label if isinstance(label, str) and label else type(provider).__name__}:{model}"


def _silence_error() -> ProviderError:
    return ProviderError(
        "the model's stream ended without a message", suggestion="The last item of a stream must be a Message."
    )
