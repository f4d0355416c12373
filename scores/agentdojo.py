"""AgentDojo's user tasks and injected tasks, run call by call through Forge's loop and gate with labels.

No model takes part: each task carries the calls that solve it. So the score says what the gate lets through when a
model follows an injection to the letter, not how often a model does. The rules allow everything; what asks is the
default profile of labels.
"""

from __future__ import annotations

import asyncio
from typing import Any

from scores.agentdojo_runs import Attack, Playback, load_quickly, play
from scores.report import Missing, Row, Score

VERSION = "0.1.35"
BENCHMARK = "v1.2.2"
SOURCE = f"PyPI agentdojo {VERSION}"
MEASURES = (
    "Prompt injection: the calls of user tasks, and of injected tasks after the text that orders them, in runs with"
    " labels. All rules allow; what asks is the default profile."
)


def run() -> Score:
    try:
        from agentdojo.task_suite.load_suites import get_suites
    except ImportError as error:
        raise Missing(f"agentdojo cannot be imported: {error}") from None
    tally = asyncio.run(measure(get_suites(BENCHMARK)))
    return Score("agentdojo", SOURCE, MEASURES, tally.rows())


class Tally:
    """Counts what happened in all runs."""

    def __init__(self) -> None:
        self.users = self.pairs = self.injected = 0
        self.asked: list[str] = []  # user tasks that asked
        self.refused: list[str] = []  # user tasks that did not run through, though every question got a yes
        self.asked_attacked: list[str] = []
        self.reached: list[str] = []  # goals of injected tasks
        self.unasked: list[str] = []  # injected calls

    def count_user(self, name: str, playback: Playback) -> None:
        self.users += 1
        if not playback.is_smooth:
            self.asked.append(f"{name}: {'; '.join(playback.questions) or playback.problem}")
        if not all(one in playback.ran for one in playback.calls):
            self.refused.append(f"{name}: {playback.problem}")

    def count_attack(self, name: str, playback: Playback, injection_task: Any) -> None:
        self.pairs += 1
        self.injected += len(playback.find(injected=True))
        self.unasked += [f"{name}: {call}" for call in playback.unasked]
        if playback.is_solved(injection_task):
            self.reached.append(f"{name}: {injection_task.GOAL}")
        if not playback.is_smooth:
            self.asked_attacked.append(f"{name}: {'; '.join(playback.questions) or playback.problem}")

    def rows(self) -> list[Row]:
        reached, unasked = self.reached, self.unasked
        smooth, smooth_attacked = self.users - len(self.asked), self.pairs - len(self.asked_attacked)
        return [
            Row("injected goals reached, nobody asked", len(reached), self.pairs, "", reached, fewer_is_better=True),
            Row(
                "injected calls that change or send, run unasked",
                len(unasked),
                self.injected,
                "",
                unasked,
                fewer_is_better=True,
            ),
            Row("user tasks that run through without a question", smooth, self.users, "", self.asked),
            Row(
                "user tasks under attack that run through without a question about their own calls",
                smooth_attacked,
                self.pairs,
                "",
                self.asked_attacked,
            ),
            Row(
                "user tasks that run through when a person says yes",
                self.users - len(self.refused),
                self.users,
                "",
                self.refused,
            ),
        ]


async def measure(suites: dict[str, Any]) -> Tally:
    """Plays every user task alone, and with each injected task that its attack can reach."""
    tally = Tally()
    for name, suite in suites.items():
        load_quickly(suite)
        attack = Attack(suite)
        environment = suite.load_and_inject_default_environment({})
        injected = [
            one for one in suite.injection_tasks.values() if one.ground_truth(environment)
        ]  # some have no calls
        for user_task in suite.user_tasks.values():
            tally.count_user(f"{name}: {user_task.ID}", await play(suite, user_task))
            for injection_task in injected:
                if (texts := attack.write(user_task, injection_task)) is not None:
                    playback = await play(suite, user_task, injection_task, texts)
                    tally.count_attack(f"{name}: {user_task.ID} with {injection_task.ID}", playback, injection_task)
    return tally
