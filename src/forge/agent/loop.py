"""Alternates between the model and its tools until one of them ends the turn or a limit is reached."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from forge.agent.context_window import shorten
from forge.agent.conversation import Conversation, Prepare, find_replaced
from forge.agent.hooks import MOST_REFUSED_ENDS, CallHooks, Record, TurnContext, TurnHooks
from forge.agent.labels import FROM_FORGE, LABELS, NOT_FROM_PERSON, LabelHistory, follow_labels, label_extra
from forge.agent.limits import Limits, Spent, price_for, price_of_name
from forge.agent.result import ANSWER, ENDINGS, REFUSED, UNUSABLE, AnswerRefused, Reason, RunResult, make_finished_event
from forge.agent.tokens import estimate, estimate_definition, estimate_messages
from forge.core.context import CallBudget, Scope, ToolContext, new_session
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.events import (
    ContextShortened,
    Event,
    MessageReceived,
    Retrying,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from forge.core.execution.chain import Next, Step, StepObject
from forge.core.executor import ToolExecutor
from forge.core.messages import (
    BACKGROUND,
    FOUND,
    Message,
    ToolCall,
    Usage,
    context_edits,
    found_tools,
    server_calls,
    unanswered_calls,
)
from forge.core.plain_values import text_of, visible
from forge.core.provider import (
    ModelRequest,
    Provider,
    ProviderError,
    expects_calls,
    explain_calls,
    explain_server_tool,
    loads_found_tools,
    name_model,
)
from forge.core.registry import ToolRegistry
from forge.core.result import DONE, UNTRUSTED, Attachment, Failure, Label, ToolResult, merge_labels
from forge.core.spec import Permission, ToolSpec
from forge.models.http.outgoing import BrokeOff, PromptTooLong
from forge.permissions.gate import PolicyGate, nobody
from forge.pipeline.authorize import Authorize, GuardEgress
from forge.pipeline.trace import agent_span, chat_span

if TYPE_CHECKING:
    from forge.models.server_tools import ServerTool

MOST_RETRIES = 2  # of a turn whose stream broke
MOST_NOTES = 5  # about repairs of one call
LONGEST_NOTE = 240  # characters
NOT_SHOWN = f"{NOT_FROM_PERSON} a hook refused what the person said, so you cannot read it.]"
REFUSED_END = "refused_end"  # in `Message.extra`: it sends the model back
MOST_RECOVERIES = 3  # times in a row that a model is asked to call a tool, or to fix its answer


async def run_loop(
    provider: Provider,
    executor: ToolExecutor,
    history: list[Message] | Conversation,
    scope: Scope | None = None,
    limits: Limits | None = None,
    settings: LoopSettings | None = None,
) -> RunResult:
    """Runs until an answer, without an `Agent`. A history that ends in open calls resumes with those calls.

    Never raises, except to be cancelled: then every open call has its result, so that the history can be run again.

    Args:
        provider: the model.
        executor: runs the calls.
        history: the messages so far; new ones are appended.
        scope: the session and directories of the calls.
        limits: the limits of the run.
        settings: further settings.

    Example:
        >>> history = [Message("user", "Hi")]
        >>> asyncio.run(run_loop(Scripted("Hello!"), standard_executor([]), history)).text
        'Hello!'
    """
    conversation = history if isinstance(history, Conversation) else Conversation(history)
    settings = settings if settings is not None else LoopSettings()
    run = Run(
        provider=provider,
        executor=executor,
        conversation=conversation,
        scope=scope if scope is not None else Scope(session_id=new_session()),
        limits=_with_price(limits if limits is not None else Limits(), provider),
        settings=settings,
        spent=settings.spent if settings.spent is not None else Spent(),
        id=settings.id or os.urandom(4).hex(),
        first=len(conversation.messages),
        has_published_price=limits is None or limits.price is None,
    )
    if executor.registry.search:
        _reveal_again(run)
    with follow_labels(executor, conversation.messages) as run.labels:
        try:
            with agent_span(provider, run.scope.agent, run.scope.session_id, executor.steps) as operation:
                result = await _run_in_time(run)
                operation.set("forge.run.reason", result.reason)
                operation.add_usage(result.usage)
                if result.error is not None:
                    operation.fail(str(result.error.kind))
        except asyncio.CancelledError:
            _keep_partial_reply(run)
            result = end_run(run, "cancelled")
            if not _is_stopped(run):
                _announce_end(run, result)
                raise
    _announce_end(run, result)
    return result


def _reveal_again(run: Run) -> None:
    """Shows the tools that searches of this conversation found: it may be resumed elsewhere."""
    known = run.executor.registry.revealed(run.scope.session_id)
    found = [name for message in run.conversation.shown for name in found_tools(message) if name not in known]
    if found:
        run.executor.registry.reveal(dict.fromkeys(found), run.scope.session_id)


def _is_stopped(run: Run) -> bool:
    return run.settings.stopped is not None and run.settings.stopped()


def _with_price(limits: Limits, provider: Provider) -> Limits:
    price = price_for(limits, provider)
    return limits if price is limits.price else replace(limits, price=price)


async def _run_in_time(run: Run) -> RunResult:
    """Applies the time limit to everything: the model, its tools, background work, summaries."""
    left = max(0.0, run.limits.seconds - run.spent.seconds) if run.limits.seconds else None
    try:
        async with asyncio.timeout(left) as limit:
            result = await _run_until_end(run)
            while run.settings.wait_for_background and await _wait_for_background(run):
                _receive_background(run)
    except TimeoutError:
        if not limit.expired():
            raise
        _keep_partial_reply(run)
        result = end_run(run, "max_time")
    if not unanswered_calls(run.conversation.messages):  # nothing comes between a call and its result
        _receive_background(run)  # results too late for the model are at least in the history
        _receive_messages(run)  # and so are messages
    return result


async def _run_until_end(run: Run) -> RunResult:
    if run.limits.cost and run.limits.price is None:
        model = _model_name(run.provider)
        message = f"limiting the cost to {run.limits.cost:g}: the price of the model {model} is unknown"
        advice = "Give its price: Limits(price=Price(input=…, output=…)), or limits.price in forge.yaml."
        return end_run(run, "error", error=Failure(message, ErrorKind.CONFIG, advice))
    if run.settings.server_tools and (problem := await _offer_server_tools(run, run.settings.server_tools)):
        return end_run(run, "error", error=problem)
    open_calls = unanswered_calls(run.conversation.messages)
    if open_calls and (result := await _run_calls(run, open_calls, resumed=True)):
        result = await _check_end(run, result)
        if result is not None:
            return result
    while True:
        if reason := run.spent.reason_to_stop(run.limits, run.conversation.unbilled):
            return end_run(run, reason)  # type: ignore[arg-type]
        if _is_stopped(run):  # a tool kept the cancellation from us
            return end_run(run, "cancelled")
        if run.settings.pause is not None and run.settings.pause():
            return end_run(run, "waiting")
        _receive_background(run)
        _receive_messages(run)
        if run.settings.turns is not None and (refused := await _begin_turn(run, run.settings.turns)):
            return refused
        if run.settings.prepare is not None:
            await run.settings.prepare(run.conversation)
            for shortened in run.conversation.take_shortened():
                _emit(run, shortened)
        run.spent.turns += 1
        try:
            try:
                reply = await _ask(run)
            except (BrokeOff, PromptTooLong) as error:
                reply = await _ask_again(run, error)
        except ProviderError as error:
            return end_with_error(run, error)
        reply = with_unique_ids(reply)
        if made := server_calls(reply):
            reply = _take_server_calls(run, reply, made)
        if edits := context_edits(reply):
            _note_edits(run, edits)
        run.conversation.append(reply)
        run.partial.clear()
        run.spent.add(reply.usage, _cost_of_other(run, reply))
        result = await (_run_calls(run, reply.tool_calls) if reply.tool_calls else _finish_or_continue(run, reply))
        if run.executor.activity.listening:
            _emit(run, TurnFinished(run.spent.turns, reply.usage._asdict()))
        if not loads_found_tools(run.provider):
            run.executor.registry.next_turn(run.scope.session_id)
        if result is not None and (result := await _check_end(run, result)) is not None:
            return result


# Tools that the provider runs itself: offered once, then shown, labelled and paid for.


async def _offer_server_tools(run: Run, tools: Sequence[ServerTool]) -> Failure | None:
    """Lets the rules judge each tool, once a run: the provider asks nobody about its calls. Returns what is wrong."""
    label = name_model(run.provider)[0]
    steps: list[Step] = [_ask_hooks(step) for step in run.executor.steps if isinstance(step, CallHooks)]
    judges = [step for step in run.executor.steps if isinstance(step, StepObject)]
    steps += [_ask_nobody(run, step) for step in judges if step.gate is not None or isinstance(step, GuardEgress)]
    for tool in tools:
        if missing := explain_server_tool(run.provider, tool):
            advice = "Leave it out of server_tools, or choose another model."
            return Failure(f"offering {tool.spec.name}: {missing}", ErrorKind.CONFIG, advice)
        if run.limits.cost and tool.price_at(label) is None:
            message = f"limiting the cost to {run.limits.cost:g}: the price of {tool.spec.name} is unknown"
            return Failure(message, ErrorKind.CONFIG, f"Give it: ServerTool({tool.kind!r}, price=…).")
    for tool in tools:
        executor = ToolExecutor(ToolRegistry([tool]), steps=steps, activity=run.executor.activity)
        result = await executor.execute(ToolCall(tool.spec.name, tool.settings), run.scope)
        if result.success:
            run.server_tools.append(tool)
    return None


def _ask_hooks(hooks: CallHooks) -> Step:
    """Returns the step that asks the hooks before a call about a tool. What it is set to is not theirs to change."""

    async def ask_hooks(ctx: ToolContext, proceed: Next) -> ToolResult:
        given = dict(ctx.arguments)
        await hooks.before_inner(ctx)
        if ctx.arguments != given:
            raise ToolError("a hook changed its settings", ErrorKind.PERMISSION, "Change them in server_tools.")
        return await proceed(ctx)

    return ask_hooks


def _ask_nobody(run: Run, step: StepObject) -> StepObject:
    """Returns the step that judges a tool. A stored run would wait for each answer anew, so there nobody is asked."""
    is_stored = run.settings.pause is not None
    return Authorize(PolicyGate(step.gate.policy, nobody)) if is_stored and isinstance(step.gate, PolicyGate) else step


def _take_server_calls(run: Run, reply: Message, calls: Sequence[Mapping[str, Any]]) -> Message:
    """Shows and counts the calls that the provider made, and returns the reply with their labels."""
    label = name_model(run.provider)[0]
    prices = {tool.spec.name: tool.price_at(label) or 0.0 for tool in run.server_tools}
    charged = [one for one in calls if not one.get("failed") and not one.get("free")]
    run.spent.add(Usage(), sum(prices.get(str(one["name"]), 0.0) for one in charged))
    run.spent.calls += len(calls)
    labels = merge_labels(*((Label(UNTRUSTED, str(one["name"])),) for one in calls))
    for one in calls:
        call = ToolCall(str(one["name"]), one.get("input", {}), str(one.get("id")))
        result = ToolResult.text(str(one.get("text", "")))
        _emit(run, ToolStarted(call))
        _emit(run, ToolFinished(call, not one.get("failed"), replace(result, labels=labels)))
    return replace(reply, extra={**reply.extra, LABELS: [list(label) for label in labels]})


def _note_edits(run: Run, edits: Sequence[Mapping[str, Any]]) -> None:
    """Tells what the provider left out of its prompt, once, and counts what its summary cost."""
    event, seen = ContextShortened(by="provider"), []
    for one in edits:
        count, tokens, used = one.get("count", 0), one.get("tokens", 0), one.get("usage")
        event.outputs += count if one.get("kind") == "results" else 0
        event.thoughts += count if one.get("kind") == "thinking" else 0
        event.summaries += count if one.get("kind") == "messages" else 0
        event.tokens += tokens
        seen.append((one.get("kind"), count))
        if isinstance(used, Mapping):
            run.conversation.paid = run.conversation.paid.plus(Usage(**used))
    if seen != run.edits:  # a provider repeats what it leaves out with each answer
        _emit(run, event)
    run.edits = seen


# What functions of the program decide: before a turn, which tools it has, and whether the run may end.


async def _begin_turn(run: Run, turns: TurnHooks) -> RunResult | None:
    """Asks the hooks about the next turn, and which tools it has. Returns the end of the run if a hook refuses it."""
    conversation = run.conversation
    places = _find_unanswered(conversation.messages)
    prompts = [conversation.messages[at].text for at in places]
    ctx = _make_context(run, run.spent.turns + 1)
    said = await turns.before_turn(ctx, prompts)
    refusal = said.refusal
    if refusal is None:
        for at, text in zip(places, said.prompts, strict=True):
            if said.prompts != prompts:  # all of them, so that they keep their order
                conversation.replace_message(at, replace(conversation.messages[at], text=text))
        if said.context:
            conversation.append(Message("user", said.context, extra={FROM_FORGE: True}))
        ctx.prompt = "\n".join(said.prompts)
        others = [one.spec.name for one in run.settings.server_tools]
        run.offered, refusal = await turns.choose_tools(ctx, run.executor.registry, others)
    elif said.blocked is not None and places:  # a later turn must not show it, and need not be refused for it
        conversation.replace_message(places[said.blocked], Message("user", NOT_SHOWN, extra={FROM_FORGE: True}))
    if refusal is None:
        return None
    return end_run(run, "error", error=Failure(refusal.message, refusal.kind, refusal.suggestion, cause=refusal))


def _find_unanswered(messages: Sequence[Message]) -> list[int]:
    """Returns the places of all that the person has said since the model last answered."""
    since = [*takewhile(lambda one: one.role != "assistant", reversed(messages))][::-1]
    first, replaced = len(messages) - len(since), find_replaced(since)
    return [first + at for at, one in enumerate(since) if _is_from_person(one) and at not in replaced]


def _is_from_person(message: Message) -> bool:
    return message.role == "user" and FROM_FORGE not in message.extra and BACKGROUND not in message.extra


def _make_context(run: Run, turn: int, *, prompt: str = "", answer: str = "") -> TurnContext[Any]:
    specs = [*run.executor.registry.specs(run.scope.session_id), *(one.spec for one in run.server_tools)]
    tools = tuple(spec.name for spec in specs)
    messages = run.conversation.messages
    return TurnContext(run.scope, messages, turn=turn, prompt=prompt, answer=answer, tools=tools)


def _list_offered(run: Run, offered: Collection[str]) -> list[ToolSpec]:
    """Returns the specs of this turn: the chosen tools, and those that the model needs to answer."""
    registry = run.executor.registry
    stay = {ANSWER, *(registry.sent or ())}  # with code mode, scripts call the chosen ones
    visible = registry.specs(run.scope.session_id)
    shown = [spec for spec in visible if spec.only_talks or spec.name in stay or spec.name in offered]
    if registry.sent is not None:
        return shown
    known = {spec.name for spec in shown}
    return shown + [one.spec for name, one in registry.items() if name in offered and name not in known]


async def _check_end(run: Run, ended: RunResult) -> RunResult | None:
    """Asks the hooks whether the run may end with this answer. A refusal sends the model back with the reason."""
    turns = run.settings.turns
    if turns is None or ended.reason not in ("answer", "task_completion", "converse"):
        return ended
    reason, failed = await turns.check_end(_make_context(run, run.spent.turns, answer=ended.text))
    if failed is not None:
        failure = Failure(failed.message, failed.kind, failed.suggestion, cause=failed)
        return end_run(run, "error", ended.text, error=failure)
    if not reason:
        return ended
    since = takewhile(lambda one: not _is_from_person(one), reversed(run.conversation.messages))
    if sum(REFUSED_END in message.extra for message in since) >= MOST_REFUSED_ENDS:
        message = f"the model was sent back {MOST_REFUSED_ENDS} times, and its answer is still refused: {reason}"
        return end_run(run, "error", ended.text, error=Failure(message[:1_000]))
    run.conversation.append(Message("user", reason, extra={FROM_FORGE: True, REFUSED_END: True}))
    return None


def _model_name(provider: Provider) -> str:
    return (name_model(provider)[1] or type(provider).__name__)[:100]


def _cost_of_other(run: Run, reply: Message) -> float | None:
    """Returns the cost of a reply of another model than the first, at that model's price."""
    name = reply.extra.get("answered_by")
    price = price_of_name(name) if name and run.has_published_price else None
    return price.of(reply.usage) if price is not None else None


async def _ask_again(run: Run, error: BrokeOff | PromptTooLong) -> Message:
    """Asks again after the answer broke off, or after the history was too long and has been shortened."""
    for attempt in range(1, MOST_RETRIES + 1):
        if isinstance(error, BrokeOff):
            _emit(run, Retrying(error.message, attempt, status=error.status))
        elif not await shorten(run.conversation, run.provider, estimate_messages(run.conversation.shown) // 3):
            break
        try:
            return await _ask(run)
        except (BrokeOff, PromptTooLong) as again:
            error = again
    raise error


async def _ask(run: Run) -> Message:
    """Runs one turn of the model. Emits its text as it arrives and always closes the stream."""
    executor, session = run.executor, run.scope.session_id
    search = executor.registry.search
    request = ModelRequest(
        messages=run.conversation.shown,
        tools=executor.registry.specs(session),
        options=run.settings.options,
        definitions_for=lambda dialect: executor.registry.definitions(dialect, session),
        search=search,
        found=executor.registry.revealed(session) if search else (),
        server_tools=run.server_tools,
        session=session,
    )
    if run.offered is not None:
        specs = _list_offered(run, run.offered)
        others = [one for one in run.server_tools if one.spec.name in run.offered]
        request = replace(request, tools=specs, definitions_for=None, search="", found=(), server_tools=others)
    stream = run.provider.stream(request)
    run.partial.clear()
    run.is_asking = True
    try:
        with chat_span(run.provider) as operation:
            operation.add_request(request.messages)
            async for part in stream:
                if isinstance(part, Message):
                    run.is_asking = False
                    operation.add_reply(part)
                    return part
                if isinstance(part, TextDelta):
                    run.partial.append(part.text)
                _emit(run, part)
            raise ProviderError(
                "the provider ended its stream without a message", suggestion="Its last item must be a Message."
            )
    except ProviderError:
        run.is_asking = False
        raise
    except Exception as error:  # a custom provider
        run.is_asking = False
        raise ProviderError(f"the provider failed: {text_of(error)}") from error
    finally:
        if close := getattr(stream, "aclose", None):
            try:
                await close()
            except Exception:  # noqa: S110 - the turn is over, and this is how its stream ends
                pass


async def _run_calls(run: Run, calls: Sequence[ToolCall], *, resumed: bool = False) -> RunResult | None:
    """Runs the calls of a turn. Each call gets its result, in order; the run may end with them.

    A call that waits for something stays open: run again, the history gets its result then.
    """
    outer = run.scope.budget  # of the call that this run works for
    was_at_limit = bool(run.limits.calls) and run.spent.calls >= run.limits.calls
    was_at_limit = was_at_limit or (outer is not None and outer.is_spent)
    was_told = run.is_short_of_calls
    results = _find_refusals(run, calls, resumed=resumed)
    runnable = _select_within_limit(
        run, [call for call in calls if call.id not in results] if results else calls, results
    )
    run.spent.calls += len(runnable)
    if runnable:
        run.recoveries = 0
    if run.labels is not None:
        run.labels.follow(run.conversation.messages)
    left = max(0, run.limits.calls - run.spent.calls) if run.limits.calls else None
    budget = CallBudget(left, 0, run.offered, outer)
    scope = run.scope.in_turn(f"{run.id}.{run.spent.turns}", budget)
    if results:
        for call in calls:
            if call.id in results:
                run.executor.emit_not_run(call, scope, results[call.id])

    waits: set[str] = set()

    def done(call: ToolCall, result: ToolResult) -> None:
        results[call.id] = result
        if result.failure is not None and find_waiting(result) is not None:
            waits.add(call.id)
        used = result.data.get("usage")
        if isinstance(used, Mapping) and run.executor.registry.find(call.name).reports_usage:
            cost = result.data.get("cost")
            run.spent.add(Usage(**used), cost if isinstance(cost, float | int) else None)  # they are the run's

    try:
        await run.executor.execute_all(runnable, scope, done)
    finally:  # also when we are cancelled: what is finished is not lost
        run.spent.calls += budget.made  # calls that tools made are the run's, too
        run.spent.calls -= len(waits)  # they are made when they can be
        if outer is not None:
            outer.made -= len(waits)
        _append_results(run, [call for call in calls if call.id not in waits] if waits else calls, results)
    is_told_now = run.is_short_of_calls and not was_told  # then it is asked for its answer once more
    return (
        end_run(run, "waiting") if waits else find_ending(run, calls, results, is_over=was_at_limit and not is_told_now)
    )


def _select_within_limit(run: Run, calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> Sequence[ToolCall]:
    """Returns the calls that may still run and those that hand over to the person; refuses the others."""
    left, outer = run.limits.calls - run.spent.calls, run.scope.budget
    if outer is None and (not run.limits.calls or len(calls) <= left):
        return calls
    allowed = []
    for call in calls:
        is_allowed = not run.limits.calls or left > 0
        message = "" if is_allowed else f"the run may make {run.limits.calls} calls, and has made them"
        if outer is not None and is_allowed and not outer.take():
            message = "the run that this agent works for has made all the calls that its limit allows"
        if not message or run.executor.registry.find(call.name).spec.ends_turn:
            allowed.append(call)
            left -= 1
        else:
            results[call.id] = _make_refusal(call, message, "Give your final answer now, with what you have.")
            run.is_short_of_calls = True
    return allowed


def find_waiting(result: ToolResult) -> Waiting | None:
    """Returns the event that a call waits for, if the call could not continue."""
    cause = result.failure.cause if result.failure is not None else None
    return cause if isinstance(cause, Waiting) else None


def _find_refusals(run: Run, calls: Sequence[ToolCall], *, resumed: bool) -> dict[str, ToolResult]:
    """Returns the calls that are not run, each with the reason."""
    refused = {}
    if run.offered is not None and not resumed:
        refused = _refuse_not_offered(run, calls, {spec.name for spec in _list_offered(run, run.offered)})
    refusals = (
        {} if resumed else run.conversation.messages[-1].extra.get("refused", {})
    )  # by a provider that reads calls
    for call in calls:
        if call.id in refusals:
            refused[call.id] = _make_refusal(call, str(refusals[call.id]), "Write the call again as the protocol says.")
        elif call.server != "local":
            words = f"no server {call.server!r} is mounted"
            refused[call.id] = _make_refusal(call, words, "Use the tools you were given.")
    if resumed:
        for call in calls:
            spec = run.executor.registry.find(call.name).spec
            if call.id not in run.settings.not_started and not may_run_again(spec):
                words = "its state is unknown: the run was interrupted while it was under way, and it may have happened"
                refused[call.id] = _make_refusal(call, words, "Check what is there before you repeat it.")
    last = run.conversation.messages[-1]
    if last.role != "assistant":  # resumed
        last = next(message for message in reversed(run.conversation.messages) if message.role == "assistant")
    if last.finish == "length" and calls and calls[-1] is last.tool_calls[-1]:
        words = "the answer was cut before this call was complete, so it was not run"
        refused[calls[-1].id] = _make_refusal(calls[-1], words, "Send it again, in smaller parts if it is long.")
    return refused


def _refuse_not_offered(run: Run, calls: Sequence[ToolCall], offered: Collection[str]) -> dict[str, ToolResult]:
    """Returns the calls of tools that exist, and that the model does not have in this turn."""
    registry, hint = run.executor.registry, f"Use one of: {', '.join(sorted(offered))}."
    return {
        call.id: _make_refusal(call, "it is not offered in this turn", hint)
        for call in calls
        if call.name in registry and registry[call.name].spec.name not in offered
    }


def may_run_again(spec: ToolSpec) -> bool:
    """Returns whether an interrupted call of the tool can be repeated without harm."""
    return spec.idempotent or not spec.permissions - {Permission.READ}


def _make_refusal(call: ToolCall, message: str, suggestion: str = "Go on without it.") -> ToolResult:
    return ToolResult.failed(ToolError(message, ErrorKind.USER, suggestion), during=call.name)


def _append_results(run: Run, calls: Sequence[ToolCall], results: Mapping[str, ToolResult]) -> None:
    """Appends results in call order; a cancelled call is answered too, so that the history stays valid."""
    messages = []
    search = run.executor.registry.search
    for call in calls:
        result = results.get(call.id) or _make_refusal(call, "cancelled before it ended.", "")
        text = _add_repairs(result) if "repaired" in result.data else result.for_llm
        if not text and not result.attachments:
            text = DONE  # some providers refuse an empty message
        extra = label_extra(result, run.executor.registry.find(call.name).spec) if result.labels else {}
        if call.name == search and (found := _find_revealed(run, result)):
            extra = {**extra, FOUND: found}
        if call.name == ANSWER and REFUSED in result.data:
            extra = {**extra, REFUSED: True}
        is_error = result.failure is not None
        messages.append(Message("tool", text, (), call.id, files_in(result), extra=extra, is_error=is_error))
    run.conversation.append(*messages)


def _find_revealed(run: Run, result: ToolResult) -> list[str]:
    revealed, tools = run.executor.registry.revealed(run.scope.session_id), result.data.get("tools")
    names = [one.get("name") for one in tools if isinstance(one, Mapping)] if isinstance(tools, list) else []
    return [str(name) for name in names if name in revealed]


def files_in(result: ToolResult) -> tuple[Attachment, ...]:
    """Returns the files of a result. Of an address only the name is left: a provider would fetch what a tool chose."""
    if not result.attachments:
        return ()
    return tuple(replace(one, url="") if one.url else one for one in result.attachments)


def _add_repairs(result: ToolResult) -> str:
    """Returns the text for the model, and one line about the repairs: so the model learns the right form."""
    notes = result.data["repaired"]
    if not isinstance(notes, list) or not notes:
        return result.for_llm
    line = visible(" ".join("; ".join(map(str, notes[:MOST_NOTES])).split()))
    return f"{result.for_llm}\n[arguments repaired: {line[:LONGEST_NOTE]}{'…' if len(line) > LONGEST_NOTE else ''}]"


def with_unique_ids(reply: Message) -> Message:
    """Gives calls unique ids. Built-in providers guarantee unique ids; custom ones may not."""
    if len(reply.tool_calls) == 1 and reply.tool_calls[0].id:
        return reply
    seen: set[str] = set()
    if all(call.id and not (call.id in seen or seen.add(call.id)) for call in reply.tool_calls):  # type: ignore[func-returns-value]
        return reply
    return replace(reply, tool_calls=tuple(ToolCall(c.name, c.arguments, server=c.server) for c in reply.tool_calls))


async def _finish_or_continue(run: Run, reply: Message) -> RunResult | None:
    """Ends the run with an answer without calls, unless it does not fit or background work is open."""
    complaint = ""
    specs = run.executor.registry.specs(run.scope.session_id)
    ending = [spec.name for spec in specs if spec.ends_turn]
    if expects_calls(run.provider) and ending:
        complaint = f"Your answer held no tool call. Call a tool; to finish, call {' or '.join(ending)}."
        form = explain_calls(run.provider, specs)
        complaint = f"{complaint}\n{form}" if form else complaint
    if run.settings.accept is not None:
        try:
            said = run.settings.accept(reply.text)
            complaint = await said if isawaitable(said) else said
        except AnswerRefused as error:
            failure = Failure(error.message, error.kind, error.suggestion, cause=error)
            return end_run(run, "error", reply.text, error=failure)
    if complaint:
        run.recoveries += 1
        if run.recoveries > MOST_RECOVERIES:
            message = f"the model was told {MOST_RECOVERIES} times and did not fix its answer: {complaint}"
            return end_run(run, "error", reply.text, error=Failure(message[:1_000]))
        run.conversation.append(Message("user", complaint, extra={FROM_FORGE: True}))
        return None
    if run.settings.pause is not None and run.executor.background.is_open(run.scope.session_id):
        return end_run(run, "waiting", reply.text)  # it is received when the run resumes
    if run.settings.wait_for_background and await _wait_for_background(run):
        return None  # new messages are received before the next turn
    if _receive_messages(run):
        return None  # a person spoke meanwhile: the model answers that, too
    reason: Reason = "length" if reply.finish == "length" else correct_reason(run, "answer")
    return end_run(run, reason, reply.text)


async def _wait_for_background(run: Run) -> bool:
    """Waits until background work of the session is over; False where there is none."""
    return await run.executor.background.next_completed(run.scope.session_id)


def _receive_background(run: Run) -> None:
    """Appends completed background work to the conversation, each result once."""
    for call, result in run.executor.background.take_completed(run.scope.session_id):
        run.conversation.append(make_completion_message(call, result))


def _receive_messages(run: Run) -> bool:
    """Appends what a person has said meanwhile; returns whether there was anything."""
    texts = run.settings.inbox() if run.settings.inbox is not None else ()
    for text in texts:
        run.conversation.append(Message("user", text))
        _emit(run, MessageReceived(text))
    return bool(texts)


def make_completion_message(call: ToolCall, result: ToolResult) -> Message:
    """Renders the message that tells the model about completed background work."""
    message = f"{NOT_FROM_PERSON} the background work of {call.name}, call {call.id}, is over.]"
    extra = {BACKGROUND: call.id, **(label_extra(result, None) if result.labels else {})}
    return Message("user", f"{message}\n{result.for_llm}", attachments=files_in(result), extra=extra)


def _keep_partial_reply(run: Run) -> None:
    """Keeps the text that a stopped run has shown and counts its tokens, and gives its open calls a result."""
    if run.is_asking:
        run.is_asking = False
        definitions = sum(map(estimate_definition, run.executor.registry.specs(run.scope.session_id)))
        asked, said = estimate_messages(run.conversation.shown), estimate("".join(run.partial))
        usage = Usage(input=asked + definitions, output=said)  # it is paid for, though no provider says how much it was
        run.spent.add(usage)
        run.spent.estimated = run.spent.estimated.plus(usage)
    if run.partial:
        run.conversation.append(Message("assistant", "".join(run.partial)))
        run.partial.clear()
    rest = unanswered_calls(run.conversation.messages)
    if rest:
        _append_results(run, rest, {})


def _announce_end(run: Run, result: RunResult) -> None:
    if run.settings.announce:
        _emit(run, make_finished_event(result))
    run.conversation.billed = run.conversation.paid


def _emit(run: Run, event: Event) -> None:
    if run.executor.activity.listening:
        scope = run.scope
        event.session, event.agent, event.task = scope.session_id, scope.agent, scope.task
        run.executor.activity.emit(event)


# How a run ends: after these calls, with an error, for a reason.


def find_ending(
    run: Run, calls: Sequence[ToolCall], results: Mapping[str, ToolResult], *, is_over: bool
) -> RunResult | None:
    """Returns the ending that these results cause, or None: a hand-over, a loop, a second cut, too many calls.

    `is_over`: no call was left for this turn and the model knew, so it was the one in which it could only answer.
    """
    for call in calls:
        result = results[call.id]
        spec = run.executor.registry.find(call.name).spec
        if spec.ends_turn and result.success:
            shown = "" if result.silent else result.for_user or result.for_llm
            ended = end_run(run, correct_reason(run, ENDINGS.get(spec.name, "answer")), shown)
            ended.output_or_none, ended.has_output = result.data.get("output"), "output" in result.data
            return ended
        if call.name == ANSWER and result.failure is not None and (refused := _find_refused_answer(run, result)):
            return end_run(run, "error", error=refused)
    for call in calls:
        data = results[call.id].data
        if data.get("stop") == "loop":
            return end_run(run, "loop", error=Failure(data.get("stop_reason", "it went in circles"), ErrorKind.USER))
    if run.conversation.messages[-len(calls) - 1].finish == "length":
        run.cuts += 1
        if run.cuts > 1:
            return end_run(run, "error", error=Failure("the model's answer was cut inside a call twice in a row"))
    else:
        run.cuts = 0
    return end_run(run, "max_calls") if is_over else None


def _find_refused_answer(run: Run, result: ToolResult) -> Failure | None:
    """Returns why the run ends with a refused answer: nothing can be done, or the model was told often enough.

    The messages keep count: another attempt at a stored run, and its next part, go on counting.
    """
    if result.data.get(REFUSED) == UNUSABLE:
        return result.failure
    since = takewhile(lambda one: not _is_from_person(one), reversed(run.conversation.messages))
    if REFUSED not in result.data or sum(REFUSED in message.extra for message in since) <= MOST_RECOVERIES:
        return None
    problem = result.failure.message if result.failure is not None else ""
    return Failure(f"the model was told {MOST_RECOVERIES} times and did not fix its answer: {problem}"[:1_000])


def correct_reason(run: Run, reason: Reason) -> Reason:
    """Replaces the reason for an answer of a model that wanted more calls than it was allowed."""
    return "max_calls" if run.is_short_of_calls and reason in ("answer", "task_completion") else reason


def end_with_error(run: Run, error: ProviderError) -> RunResult:
    return end_run(run, "error", error=Failure(error.message, error.kind, error.suggestion, error.passing, error))


def end_run(run: Run, reason: Reason, text: str = "", *, error: Failure | None = None) -> RunResult:
    """Builds the result with the model's last text: "" where it said nothing. `reason` and `error` tell the rest."""
    if not text:
        messages = run.conversation.messages[run.first :]
        text = next(
            (message.text for message in reversed(messages) if message.role == "assistant" and message.text), ""
        )
    beside = run.conversation.unbilled
    return RunResult(
        text=text,
        reason=reason,
        turns=run.spent.turns,
        messages=run.conversation.messages,
        usage=run.spent.usage.plus(beside),
        calls=run.spent.calls,
        cost=run.spent.cost(run.limits.price, beside),
        error=error,
        estimated=run.spent.estimated,
        given=run.conversation.given,
    )


# The state of a run in progress, and its settings.


Accept = Callable[[str], str | Awaitable[str]]
"""Checks a final answer. Returns the problem, in words for the model, or nothing. It may be async."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LoopSettings:
    """Settings of a run, besides the model, the tools and the limits. `run_loop` takes them.

    Args:
        options: passed on to the model.
        accept: checks a final answer; returns the problem in words for the model, or an empty text.
        prepare: called before every turn; may shorten what the model is shown.
        not_started: ids of open calls that never ran.
        wait_for_background: whether the run waits for background work.
        pause: called before every turn; True ends the run as waiting, to be run again.
        announce: whether the end of the run is an event; False for a sub-agent.
        inbox: called before every turn; returns what a person has said meanwhile.
        stopped: called where the run is cancelled, and before every turn; True: a person has stopped the run, which
            ends with the reason "cancelled", and does not raise.
        server_tools: tools that the provider runs itself, if the rules allow them.
        turns: the hooks of turns, and the choice of tools; an agent sets it.
        record: stores what these return, for another attempt at a stored run.
        spent: what earlier parts of the run used; it is added to.
        id: the id of the run; by default a new one.

    Example:
        >>> LoopSettings(options={"temperature": 0}).wait_for_background
        False
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    accept: Accept | None = None
    prepare: Prepare | None = None
    not_started: Collection[str] = ()
    wait_for_background: bool = False
    pause: Callable[[], bool] | None = None
    inbox: Callable[[], Sequence[str]] | None = None
    stopped: Callable[[], bool] | None = None
    announce: bool = True
    server_tools: Sequence[ServerTool] = ()
    turns: TurnHooks | None = None
    record: Record | None = None
    spent: Spent | None = None
    id: str = ""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Run:
    """Everything one run needs; `run_loop` makes it from its arguments."""

    provider: Provider
    executor: ToolExecutor
    conversation: Conversation
    scope: Scope
    limits: Limits
    settings: LoopSettings
    spent: Spent
    id: str
    first: int  # where this run begins in the history
    has_published_price: bool = False  # the price is not one that a person has set
    partial: list[str] = field(default_factory=list)  # the text so far of an unfinished answer
    is_asking: bool = False  # the model has been asked and has not answered yet
    labels: LabelHistory | None = None  # None: labels are off
    offered: frozenset[str] | None = None  # the tools that were chosen for this turn; None: all
    is_short_of_calls: bool = False  # the model wanted more than `limits.calls`
    server_tools: list[ServerTool] = field(default_factory=list)  # that the rules allow
    edits: list[tuple[Any, int]] = field(default_factory=list)  # what the provider left out of its last prompt
    recoveries: int = 0
    cuts: int = 0
