"""A deadline that cancels, then abandons, and never swallows what was meant for others."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from typing import Any

import pytest

from forge.core.execution.deadline import Deadline, DeadlinePassed
from tests.core.calling import at_most


def untouched() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


async def forever() -> Any:
    await asyncio.Event().wait()


async def stubborn(times: int, notes: list[str] | None = None) -> str:
    """Swallow that many cancellations."""
    for _ in range(times):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if notes is not None:
                notes.append("swallowed")
    return "swallowed them all"


async def test_what_ends_in_time_gives_its_value():
    async def at_once() -> int:
        return 1

    async def soon() -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        return 2

    assert await Deadline(at_once(), 5) == 1
    assert await Deadline(soon(), 5) == 2
    assert await Deadline(soon(), None) == 2
    assert untouched()


async def test_what_fails_fails_with_its_own_error():
    async def at_once() -> None:
        raise ValueError("odd")

    async def soon() -> None:
        await asyncio.sleep(0)
        raise ValueError("odd")

    for failing in (at_once, soon):
        with pytest.raises(ValueError, match="odd"):
            await Deadline(failing(), 5)
    assert untouched()


async def test_a_timeout_of_its_own_is_not_the_deadline():
    async def gives_up() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await Deadline(gives_up(), 5)


async def test_what_takes_too_long_is_cancelled():
    cleaned = []

    async def waits() -> None:
        try:
            await forever()
        finally:
            cleaned.append(True)

    with at_most(1.0), pytest.raises(DeadlinePassed):
        await Deadline(waits(), 0.02)
    assert cleaned == [True]
    assert untouched()


async def test_cleaning_up_may_take_its_time_within_the_grace():
    notes = []

    async def tidy() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0.02)
            notes.append("tidied")

    with pytest.raises(DeadlinePassed):
        await Deadline(tidy(), 0.02, grace=5)
    assert notes == ["tidied"]
    assert untouched()


async def test_cleaning_up_without_end_is_abandoned():
    async def untidy() -> None:
        try:
            await forever()
        finally:
            await forever()

    with at_most(1.0), pytest.raises(DeadlinePassed):
        await Deadline(untidy(), 0.02, grace=0.02)
    assert untouched()


async def test_what_ignores_its_cancellation_is_abandoned():
    notes: list[str] = []
    with at_most(1.0), pytest.raises(DeadlinePassed):
        await Deadline(stubborn(1_000, notes), 0.02, grace=0.02)
    assert 1 <= len(notes) <= 3
    assert untouched()


async def test_what_answers_its_cancellation_with_a_value_gives_that_value():
    assert await Deadline(stubborn(1), 0.02, grace=5) == "swallowed them all"
    assert untouched()


async def test_what_answers_its_cancellation_with_an_error_gives_that_error():
    async def complains() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise ValueError("how rude") from None

    with pytest.raises(ValueError, match="how rude"):
        await Deadline(complains(), 0.02)
    assert untouched()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_what_refuses_even_to_be_closed_is_abandoned():
    async def refuses() -> None:
        for _ in range(20):
            try:
                await forever()
            except BaseException:
                pass

    with at_most(1.0), pytest.raises(DeadlinePassed):
        await Deadline(refuses(), 0.02, grace=0.02)
    assert untouched()


@pytest.mark.parametrize("seconds", [0, -1, 1e-9])
async def test_no_time_at_all_still_lets_it_begin(seconds):
    notes = []

    async def begins() -> str:
        notes.append("begun")
        return "done"

    assert await Deadline(begins(), seconds) == "done"
    with at_most(1.0), pytest.raises(DeadlinePassed):
        await Deadline(forever(), seconds)
    assert notes == ["begun"]


async def test_the_task_can_go_on_as_if_nothing_had_happened():
    for _ in range(3):
        with pytest.raises(DeadlinePassed):
            await Deadline(forever(), 0.01)
        await asyncio.sleep(0)
        assert untouched()
    async with asyncio.timeout(60):
        await asyncio.sleep(0)


async def test_a_cancellation_from_outside_is_passed_on():
    started, cleaned = asyncio.Event(), []

    async def waits() -> None:
        started.set()
        try:
            await forever()
        finally:
            cleaned.append(True)

    async def outer() -> None:
        await Deadline(waits(), 30)

    task = asyncio.create_task(outer())
    await started.wait()
    task.cancel("stop")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
    assert task.cancelled()


@pytest.mark.parametrize("times", [1, 1_000])
async def test_a_cancellation_from_outside_is_passed_on_even_if_it_is_swallowed_inside(times):
    started = asyncio.Event()

    async def swallows() -> str:
        started.set()
        return await stubborn(times)

    task = asyncio.create_task(_until(swallows(), 30, 0.02))
    await started.wait()
    task.cancel()
    with at_most(1.0), pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def _until(coroutine: Any, seconds: float | None, grace: float = 1.0) -> Any:
    return await Deadline(coroutine, seconds, grace)


@pytest.mark.parametrize("times", [1, 1_000])
async def test_a_cancellation_before_it_first_waits_is_passed_on_too(times):
    """That is what Ctrl-C does when it comes while the coroutine computes."""

    async def interrupted() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await stubborn(times)

    task = asyncio.create_task(_until(interrupted(), 30, 0.02))
    with at_most(1.0), pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 2)


async def test_without_a_deadline_a_cancellation_is_passed_on_too():
    started = asyncio.Event()

    async def swallows() -> str:
        started.set()
        return await stubborn(1_000)

    task = asyncio.create_task(_until(swallows(), None, 0.02))
    await started.wait()
    task.cancel()
    with at_most(1.0), pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_after_the_deadline_is_a_cancellation():
    """The deadline struck, the coroutine tidies up, and then the caller goes away as well."""
    tidying = asyncio.Event()

    async def tidy() -> None:
        try:
            await forever()
        finally:
            tidying.set()
            await forever()

    task = asyncio.create_task(_until(tidy(), 0.02, 5))
    await tidying.wait()
    task.cancel()
    with at_most(1.0), pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_timeout_of_asyncio_inside_works():
    async def tries() -> str:
        try:
            async with asyncio.timeout(0.01):
                await forever()
        except TimeoutError:
            await asyncio.sleep(0)
            return "gave up in time"
        return ""

    assert await Deadline(tries(), 5) == "gave up in time"
    assert untouched()


async def test_the_deadline_still_holds_after_a_timeout_inside():
    async def tries() -> str:
        try:
            async with asyncio.timeout(0.01):
                await forever()
        except TimeoutError:
            await forever()
        return ""

    with at_most(1.0), pytest.raises(DeadlinePassed):
        await Deadline(tries(), 0.05, grace=5)
    assert untouched()


async def test_after_a_timeout_inside_there_is_more_time_than_the_grace():
    async def tries() -> str:
        try:
            async with asyncio.timeout(0.01):
                await forever()
        except TimeoutError:
            await asyncio.sleep(0.1)
        return "took its time"

    assert await Deadline(tries(), 5, grace=0.02) == "took its time"


async def test_a_timeout_inside_that_takes_a_while_to_clean_up_does_not_end_it_early():
    async def tries() -> str:
        try:
            async with asyncio.timeout(0.01):
                try:
                    await forever()
                finally:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            await asyncio.sleep(0.1)
        return "took its time"

    assert await Deadline(tries(), 5, grace=0.03) == "took its time"
    assert untouched()


async def test_wait_for_inside_works():
    async def tries() -> str:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(forever(), 0.01)
        return "fine"

    assert await Deadline(tries(), 5) == "fine"
    assert untouched()


async def test_a_timeout_of_asyncio_outside_works():
    with at_most(1.0), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await Deadline(forever(), 30)
    assert untouched()


async def test_a_timeout_of_asyncio_outside_works_even_if_it_is_swallowed_inside():
    with at_most(1.0), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await Deadline(stubborn(1_000), 30, grace=0.02)
    assert untouched()


async def test_deadlines_may_be_nested():
    with pytest.raises(DeadlinePassed):
        await Deadline(_until(forever(), 30), 0.02)

    async def outer() -> str:
        with pytest.raises(DeadlinePassed):
            await Deadline(forever(), 0.02)
        await asyncio.sleep(0)
        return "inner passed"

    assert await Deadline(outer(), 5) == "inner passed"
    with at_most(1.0), pytest.raises(DeadlinePassed):
        await Deadline(_until(stubborn(1_000), 30, 0.02), 0.02, grace=1)
    assert untouched()


async def failing_group() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("odd")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fails())
        tasks.create_task(forever())


async def test_groups_of_tasks_inside_work():
    async def group() -> int:
        async with asyncio.TaskGroup() as tasks:
            one = tasks.create_task(asyncio.sleep(0, 1))
            two = tasks.create_task(asyncio.sleep(0.01, 2))
        return one.result() + two.result()

    assert await Deadline(group(), 5) == 3
    assert untouched()


async def test_the_deadline_of_a_group_of_tasks_ends_its_tasks():
    async def endless() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(forever())

    with pytest.raises(DeadlinePassed):
        await Deadline(endless(), 0.02)
    assert untouched()
    assert len(asyncio.all_tasks()) == 1


async def test_a_group_of_tasks_that_fails_inside_fails_with_its_own_error():
    with pytest.raises(ExceptionGroup):
        await Deadline(failing_group(), 5)


async def test_a_group_of_tasks_that_fails_inside_and_is_dealt_with_is_no_cancellation():
    """Before 3.13 such a group leaves its own cancellation counted in the task."""

    async def copes() -> str:
        try:
            await failing_group()
        except* ValueError:
            pass
        await asyncio.sleep(0)
        return "coped"

    assert await Deadline(copes(), 5) == "coped"
    assert await Deadline(copes(), 5, grace=0.02) == "coped"


async def test_after_a_group_that_failed_inside_there_is_more_time_than_the_grace():
    async def copes() -> str:
        try:
            await failing_group()
        except* ValueError:
            pass
        await asyncio.sleep(0.1)
        return "took its time"

    assert await Deadline(copes(), 5, grace=0.02) == "took its time"


async def test_it_works_inside_a_group_of_tasks():
    results = []

    async def limited(seconds: float) -> None:
        try:
            await Deadline(forever(), seconds)
        except DeadlinePassed:
            results.append(seconds)

    async with asyncio.TaskGroup() as tasks:
        for seconds in (0.01, 0.02, 0.03):
            tasks.create_task(limited(seconds))
    assert results == [0.01, 0.02, 0.03]


async def test_a_failing_sibling_stops_it():
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("odd")

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_until(stubborn(1_000), 30, 0.02))
            tasks.create_task(fails())

    with at_most(1.0), pytest.raises(ExceptionGroup):
        await group()


async def test_a_shielded_inner_task_survives_the_deadline():
    inner = asyncio.create_task(asyncio.sleep(0.05, "survived"))

    async def waits() -> str:
        return await asyncio.shield(inner)

    with pytest.raises(DeadlinePassed):
        await Deadline(waits(), 0.01)
    assert await inner == "survived"


async def test_locks_and_queues_are_left_in_order():
    lock = asyncio.Lock()
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def takes() -> None:
        async with lock:
            await queue.get()

    with pytest.raises(DeadlinePassed):
        await Deadline(takes(), 0.02)
    assert not lock.locked()
    queue.put_nowait(1)
    assert await asyncio.wait_for(queue.get(), 1) == 1


async def test_context_variables_are_those_of_the_caller():
    variable = contextvars.ContextVar("variable", default=0)

    async def changes() -> None:
        await asyncio.sleep(0)
        variable.set(5)

    await Deadline(changes(), 5)
    assert variable.get() == 5


async def test_the_current_task_is_the_callers():
    async def which() -> Any:
        await asyncio.sleep(0)
        return asyncio.current_task()

    assert await Deadline(which(), 5) is asyncio.current_task()


async def test_no_timer_is_left_behind():
    loop = asyncio.get_running_loop()
    before = len([handle for handle in loop._scheduled if not handle.cancelled()])  # type: ignore[attr-defined]
    for _ in range(50):
        await Deadline(asyncio.sleep(0), 60)
        with pytest.raises(DeadlinePassed):
            await Deadline(forever(), 0)
    after = len([handle for handle in loop._scheduled if not handle.cancelled()])  # type: ignore[attr-defined]
    assert after == before


async def test_many_deadlines_at_once():
    with at_most(3.0):
        results = await asyncio.gather(*(_until(forever(), 0.05) for _ in range(500)), return_exceptions=True)
    assert all(isinstance(result, DeadlinePassed) for result in results)


async def test_a_generator_based_awaitable_inside_works():
    class Twice:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            yield from asyncio.sleep(0).__await__()
            return "twice"

    async def waits() -> str:
        result: str = await Twice()
        return result

    assert await Deadline(waits(), 5) == "twice"


async def test_an_async_generator_inside_is_closed():
    notes = []

    async def ticks() -> Any:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            notes.append("closed")

    async def consumes() -> None:
        stream = ticks()
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()

    with pytest.raises(DeadlinePassed):
        await Deadline(consumes(), 0.02)
    assert notes == ["closed"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_other_ways_out_are_passed_on(error):
    async def exits() -> None:
        raise error

    async def main() -> None:
        with pytest.raises(error):
            await Deadline(exits(), 5)
        assert untouched()

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
async def test_eager_tasks_have_deadlines_too():
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]

    async def adds(a: int, b: int) -> int:
        return a + b

    assert await asyncio.create_task(_until(adds(1, 2), 5)) == 3
    with pytest.raises(DeadlinePassed):
        await asyncio.create_task(_until(forever(), 0.02))
    with at_most(1.0), pytest.raises(DeadlinePassed):
        await asyncio.create_task(_until(stubborn(1_000), 0.02, 0.02))
