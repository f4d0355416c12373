"""Step: puts an OpenTelemetry span around every call; and the spans and metrics of agents and model requests."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ToolError, Waiting
from forge.core.execution.chain import Next, Step, StepObject
from forge.core.extras import is_installed
from forge.core.messages import Message, Usage
from forge.core.provider import name_model, traces_itself
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.core.spec import ToolSpec
from forge.core.untrusted import one_line


class TraceCalls(StepObject):
    """Makes one span per call, refused ones included, and one for background work that failed.

    `content`: the spans of calls and of model requests hold what was said, with these secrets masked.
    """

    name = "trace"

    def __init__(self, content: Secrets | None = None) -> None:
        self.content = content

    def applies(self, spec: ToolSpec) -> bool:
        return "opentelemetry.trace" in sys.modules or _is_installed()

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        if find_telemetry() is None:  # an application that sets up tracing has imported it
            return await proceed(ctx)
        with run_operation(TOOL, ctx.spec.name, _attributes(ctx)) as operation:
            result = await proceed(ctx)
            self._note(operation, ctx, result)
            return result

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        if result.failure is not None and find_telemetry() is not None:
            with run_operation(TOOL, ctx.spec.name, _attributes(ctx)) as operation:
                self._note(operation, ctx, result)
        return result

    def _note(self, operation: Operation, ctx: ToolContext, result: ToolResult) -> None:
        if self.content is not None and operation.is_recording:
            arguments = self.content.mask_everything(ctx.call.arguments)
            operation.set("gen_ai.tool.call.arguments", _write_json(arguments))
            operation.set("gen_ai.tool.call.result", self.content.mask_everything(result.for_llm))
        if result.failure is not None:
            operation.fail(str(result.failure.kind), result.failure.cause)


def add_content(make: MakeSteps) -> MakeSteps:
    """Returns a function that makes the same steps, with what is said in their spans."""

    def make_steps(gate: Any, secrets: Secrets) -> list[Step]:
        others = [step for step in make(gate, secrets) if not isinstance(step, TraceCalls)]
        return [TraceCalls(secrets), *others]

    return make_steps


@cache  # a search of all of sys.path, once a tool otherwise
def _is_installed() -> bool:
    return is_installed("otel")


def _attributes(ctx: ToolContext) -> dict[str, Any]:
    return {
        "gen_ai.tool.name": ctx.spec.name,
        "gen_ai.tool.call.id": ctx.call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": ctx.scope.session_id,
        "gen_ai.agent.name": ctx.scope.agent,
    }


# Spans and metrics, with the names of the GenAI conventions.
#
# Nothing happens unless an application, or `forge` itself, has imported OpenTelemetry. The conventions are still
# incubating: their names are here alone.


AGENT, CHAT, TOOL = "invoke_agent", "chat", "execute_tool"

_PROVIDERS = {  # what the conventions call them, where it differs from our name
    "openai-responses": "openai",
    "openai-chat": "openai",
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
_TOKEN_BUCKETS = [4.0**power for power in range(14)]  # bounds that the conventions name
_SECONDS_BUCKETS = [0.01 * 2**power for power in range(14)]

Attributes = Mapping[str, Any]


class Operation:
    """An operation in progress: its span, and the attributes that its metrics have, too."""

    def __init__(self, span: Any = None, shared: Attributes | None = None) -> None:
        self._span = span
        self.shared = dict(shared or {})
        self.usage: Usage | None = None

    @property
    def is_traced(self) -> bool:
        return self._span is not None

    @property
    def is_recording(self) -> bool:
        """False where nobody collects the span: then its content need not be written."""
        return self._span is not None and self._span.is_recording()

    def set(self, name: str, value: Any) -> None:
        if self._span is not None:
            self._span.set_attribute(name, value)

    def add_usage(self, usage: Usage) -> None:
        """Notes the tokens of the operation; a second time replaces the first."""
        self.usage = usage
        self.set("gen_ai.usage.input_tokens", usage.input)
        self.set("gen_ai.usage.output_tokens", usage.output)

    def fail(self, kind: str, cause: BaseException | None = None) -> None:
        """Marks the operation as failed. `kind` is the kind of the error, never its text, which may hold a secret.

        An operation that waits has not failed: it resumes later, in another span.
        """
        if self._span is None:
            return
        if isinstance(cause, Waiting):
            self.set("forge.waits_for", str(cause.what.get("kind", "")))
            return
        self.shared.setdefault("error.type", kind)
        telemetry = find_telemetry()
        self._span.set_attribute("error.type", kind)
        self._span.set_status(telemetry.Status(telemetry.StatusCode.ERROR, kind))

    def add_reply(self, reply: Message) -> None:
        """Notes the model's answer: its tokens, why it ended, which model answered."""
        if self._span is None:
            return
        self.add_usage(reply.usage)
        if reply.finish:
            self.set("gen_ai.response.finish_reasons", (str(reply.finish),))
        if isinstance(model := reply.extra.get("answered_by"), str):
            self.set("gen_ai.response.model", model)
        if self.is_recording and (secrets := _find_content()) is not None:
            said = {**_write_message(reply, secrets), "finish_reason": str(reply.finish or "stop")}
            self.set("gen_ai.output.messages", _write_json([said]))

    def add_request(self, messages: Sequence[Message]) -> None:
        """Notes what the model is sent, if the run's spans hold content: the latest messages, as far as they fit."""
        if not self.is_recording or (secrets := _find_content()) is None:
            return
        system = [message for message in messages if message.role == "system"]
        others = [message for message in messages if message.role != "system"]
        if system:
            parts = [part for message in system for part in _write_message(message, secrets)["parts"]]
            self.set("gen_ai.system_instructions", _write_json(parts))
        kept: list[str] = []
        size = 0
        for message in reversed(others):
            kept.append(_write_json(_write_message(message, secrets)))
            size += len(kept[-1])
            if size > LARGEST_CONTENT and len(kept) > 1:
                kept.pop()
                break
        self.set("gen_ai.input.messages", f"[{', '.join(reversed(kept))}]")
        if len(kept) < len(others):
            self.set("forge.content.left_out", len(others) - len(kept))


@contextmanager
def run_operation(
    name: str,
    subject: str,
    attributes: Attributes,
    *,
    shared: Attributes | None = None,
    parent: Callable[[], Any] = lambda: None,
    is_request: bool = False,
) -> Iterator[Operation]:
    """Makes a span `NAME SUBJECT` around a block, and measures it. `shared` are attributes of the metrics, too.

    `parent` returns the context that the span belongs to; by default the current one. `is_request`: it is sent to
    another system.
    """
    telemetry = find_telemetry()
    if telemetry is None:
        yield Operation()
        return
    both = {"gen_ai.operation.name": name, **(shared or {})}
    starting = telemetry.get_tracer("forge").start_as_current_span(
        f"{name} {subject}".rstrip(),
        context=parent(),
        kind=telemetry.SpanKind.CLIENT if is_request else telemetry.SpanKind.INTERNAL,
        attributes={**both, **attributes},
        record_exception=False,  # its text may hold a secret that is not masked yet
        set_status_on_exception=False,
    )
    began = time.perf_counter()
    with starting as span:
        operation = Operation(span, both)
        try:
            yield operation
        except BaseException as error:
            operation.fail(str(error.kind) if isinstance(error, ToolError) else type(error).__name__, error)
            raise
        finally:
            _measure(operation, time.perf_counter() - began)


_NOT_TRACED = nullcontext(Operation())  # without a span it notes neither replies nor failures


# What is said: the messages of a model request, and the arguments and the result of a call. Off by default.


LARGEST_CONTENT = 64_000  # characters of the messages of one request; older ones are left out

MakeSteps = Callable[[Any, Secrets], list[Step]]
_CONTENT = "forge-content"  # key of OpenTelemetry's context: the secrets of a run whose spans hold content


def _write_message(message: Message, secrets: Secrets) -> dict[str, Any]:
    """Returns a message as the conventions write it, masked. Attachments are named, and not copied."""
    parts: list[dict[str, Any]] = []
    text = secrets.mask_everything(message.text)
    if message.role == "tool":
        parts.append({"type": "tool_call_response", "id": message.call_id, "response": text})
    elif text:
        parts.append({"type": "text", "content": text})
    for call in message.tool_calls:
        arguments = secrets.mask_everything(call.arguments)
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments})
    for one in message.attachments:
        kind = one.media_type.partition("/")[0]
        parts.append({"type": "blob", "modality": kind, "mime_type": one.media_type})
    return {"role": message.role, "parts": parts}


def _write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def chat_span(provider: Any) -> AbstractContextManager[Operation]:
    """Makes a span around a request to a model, unless its provider does so itself."""
    if find_telemetry() is None or traces_itself(provider):
        return _NOT_TRACED
    label, model = name_model(provider)
    shared = {"gen_ai.provider.name": _PROVIDERS.get(label, label or "forge")}
    if model:
        shared["gen_ai.request.model"] = model
    return run_operation(CHAT, model, {}, shared=shared, is_request=True)


@contextmanager
def agent_span(provider: Any, agent: str, session: str, steps: Sequence[Step] = ()) -> Iterator[Operation]:
    """Makes a span around a run of an agent, unless its provider is part of one that has a span.

    Of the run's `steps`, the one that traces calls says whether the spans inside hold content.
    """
    if find_telemetry() is None:
        yield Operation()
        return
    from opentelemetry import context

    content = next((step.content for step in steps if isinstance(step, TraceCalls)), None)
    token = context.attach(context.set_value(_CONTENT, content))
    try:
        if traces_itself(provider):
            yield Operation()
            return
        attributes = {"gen_ai.agent.name": agent, "gen_ai.conversation.id": session}
        with run_operation(AGENT, agent, attributes) as operation:
            yield operation
    finally:
        context.detach(token)


# Requests to an MCP server, with the names of the MCP conventions. The SDK makes the span, and passes its context on.


def name_mcp_request(method: str, params: Mapping[str, Any], attributes: Attributes) -> Any:
    """Names the SDK's span, which is the current one while a request is written. Returns it; None if there is none."""
    telemetry = find_telemetry()
    span = telemetry.get_current_span() if telemetry is not None else None
    if span is None or not span.is_recording() or not str(getattr(span, "name", "")).startswith("MCP "):
        return None
    target = params.get("name") if method in ("tools/call", "prompts/get") else None
    named = {"mcp.method.name": method, **attributes}
    if isinstance(target, str):
        target = one_line(target, 200)
        named["gen_ai.tool.name" if method == "tools/call" else "gen_ai.prompt.name"] = target
    if method == "tools/call":
        named["gen_ai.operation.name"] = TOOL
    if isinstance(uri := params.get("uri"), str) and (secrets := _find_content()) is not None:
        named["mcp.resource.uri"] = secrets.mask_everything(uri)
    span.update_name(f"{method} {target}" if isinstance(target, str) else method)
    span.set_attributes(named)
    return span


def _find_content() -> Secrets | None:
    """Returns the secrets of the run whose spans hold content; None: they hold none."""
    from opentelemetry import context

    found = context.get_value(_CONTENT)
    return found if isinstance(found, Secrets) else None


def find_telemetry() -> Any:
    """Returns OpenTelemetry if an application has imported it, else None."""
    return sys.modules.get("opentelemetry.trace")


def _measure(operation: Operation, seconds: float) -> None:
    metrics: Any = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return
    tokens, duration = _histograms(metrics.get_meter_provider())
    duration.record(seconds, operation.shared)
    if operation.shared["gen_ai.operation.name"] == CHAT and operation.usage is not None:
        for kind, count in (("input", operation.usage.input), ("output", operation.usage.output)):
            tokens.record(count, {**operation.shared, "gen_ai.token.type": kind})


@lru_cache(maxsize=1)
def _histograms(provider: Any) -> tuple[Any, Any]:
    """Makes the histograms of a provider of meters, once."""
    meter = provider.get_meter("forge")
    tokens = meter.create_histogram(
        "gen_ai.client.token.usage",
        "{token}",
        "Tokens of a request, by type.",
        explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
    )
    duration = meter.create_histogram(
        "gen_ai.client.operation.duration",
        "s",
        "Duration of an operation.",
        explicit_bucket_boundaries_advisory=_SECONDS_BUCKETS,
    )
    return tokens, duration
