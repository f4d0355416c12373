"""Whatever runners, people and clocks do, in any order: what must hold, holds."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forge.core.errors import ToolError
from forge.schedules.schedule import ScheduleOutcome, Status
from forge.schedules.store import ScheduleStore
from forge.schedules.tables import LARGE_STEP, LEASE
from tests.schedules.clocks import Clocks

NAMES = st.sampled_from(["a", "b", "c"])
RULES = st.sampled_from(["* * * * *", "*/7 * * * *", "@every 3m", "@hourly", "0 3 * * *"])
OWNERS = st.sampled_from(["one", "two", "three"])


class Schedules(RuleBasedStateMachine):
    """Three runners on one store, any of which may die at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.clocks = Clocks()
        self.store = ScheduleStore(None, lambda: self.clocks.wall, lambda: self.clocks.steady)
        self.active: dict[int, str] = {}  # run -> owner
        self.claimed: set[tuple[str, float]] = set()
        self.set_back = False

    @rule(name=NAMES, cron=RULES, one_shot=st.booleans(), enabled=st.sampled_from([None, True, False]))
    def set_one(self, name: str, cron: str, one_shot: bool, enabled: bool | None) -> None:
        made = self.store.set(id=name, cron=cron, task="Task", one_shot=one_shot, enabled=enabled)
        assert (made.next_fire is None) == (not made.enabled)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in {one.id for one in self.store.list()}:
            self.store.delete(name)

    @rule(seconds=st.sampled_from([1, 20, 45, 100, 500, 4_000, 100_000]))
    def time_passes(self, seconds: float) -> None:
        step = 20.0  # the runners that live give signs of life meanwhile
        while seconds > 0:
            self.clocks.pass_(min(step, seconds))
            seconds -= step
            if seconds > 1_000:
                self.clocks.pass_(seconds // 1_000 * 1_000)
                seconds %= 1_000
            for overtaken in self.store.beat(list(self.active)):
                del self.active[overtaken]

    @rule(seconds=st.sampled_from([10, 200, 5_000, 10_000_000]))
    def the_clock_is_set_back(self, seconds: float) -> None:
        self.clocks.wall -= seconds
        self.set_back = True

    @rule(seconds=st.sampled_from([200, 5_000, 10_000_000]))
    def the_clock_is_set_forward(self, seconds: float) -> None:
        self.clocks.wall += seconds

    @rule(owner=OWNERS, free=st.integers(0, 3))
    def tick(self, owner: str, free: int) -> None:
        found = self.store.tick(owner, free)
        assert len(found.claims) <= free
        for claim in found.claims:
            due = (claim.schedule.id, claim.run.due)
            assert claim.run.due <= self.clocks.wall
            assert self.set_back or due not in self.claimed
            self.claimed.add(due)
            self.active[claim.run.id] = owner
        for run in found.lost:
            self.active.pop(run.id, None)
        assert not self.store.tick(owner, 0).skipped  # what was skipped is not skipped again

    @rule(owner=OWNERS, name=NAMES)
    def run_now(self, owner: str, name: str) -> None:
        try:
            claim = self.store.start(owner, name)
        except ToolError:
            return
        self.active[claim.run.id] = owner

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def one_ends(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.active)))
        del self.active[number]
        run = self.store.finish(number, Status.COMPLETED, ScheduleOutcome(), 1.0)
        assert run is not None
        assert run.status is Status.COMPLETED

    @rule(owner=OWNERS)
    def a_runner_dies(self, owner: str) -> None:
        self.active = {number: other for number, other in self.active.items() if other != owner}

    @invariant()
    def each_schedule_has_one_active_run_at_most(self) -> None:
        running = [run.schedule_id for run in self.store.history(limit=1_000) if run.status is Status.RUNNING]
        assert len(running) == len(set(running))

    @invariant()
    def nothing_is_stuck_for_ever(self) -> None:
        """After the lease of the dead is over, everything enabled is planned, and not for another age."""
        for one in self.store.list(enabled_only=True):
            assert one.next_fire is not None

    def teardown(self) -> None:
        self.active.clear()
        self.clocks.pass_(LEASE + 1)
        self.store.tick("last", 0)
        for one in self.store.list(enabled_only=True):
            assert one.next_fire is not None
            assert one.next_fire <= self.clocks.wall + 86_400 + LARGE_STEP
        self.store.close()


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, derandomize=True, database=None
)
