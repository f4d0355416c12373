"""AgentDojo's user tasks and injected tasks, run call by call through Forge's loop and gate with labels.

No model takes part: each task carries the calls that solve it. So the score says what the gate lets through when a
model follows an injection to the letter, not how often a model does. The rules allow everything; what asks is the
default profile of labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

from scores import agentdyn
from scores.agentdojo_runs import (
    DISGUISES,
    NOT_FOLLOWED,
    PLAIN,
    Attack,
    Playback,
    Setting,
    disguise_texts,
    load_quickly,
    play,
    play_script,
    write_passing_script,
)
from scores.report import Missing, Row, Score

VERSION = "0.1.35"
BENCHMARK = "v1.2.2"
SOURCE = f"PyPI agentdojo {VERSION}"
MEASURES = (
    "Prompt injection: the calls of user tasks, and of injected tasks after the text that orders them, in runs with"
    " labels. All rules allow; what asks is the default profile."
)
SETTINGS = {
    "shown as YAML": Setting("yaml"),
    "returned as YAML strings": Setting("yaml string"),
    "with irreversible tools declared": Setting(irreversible=True),
}


def run() -> Score:
    try:
        from agentdojo.task_suite.load_suites import get_suites
    except ImportError as error:
        raise Missing(f"agentdojo cannot be imported: {error}") from None
    suites = get_suites(BENCHMARK)
    return asyncio.run(_measure_all(suites))


async def _measure_all(suites: Mapping[str, Any]) -> Score:
    plain = await measure(suites)
    rows = plain.rows()
    for name, setting in SETTINGS.items():
        tally = await measure(suites, setting)
        rows += [
            tally.goals_row(f"results {name}: " if setting.shown != "data" else f"{name}: "),
            tally.users_row(name),
        ]
    for disguise in DISGUISES:
        tally = await measure(suites, disguise=disguise, users=False)
        known = " (not followed, as SECURITY.md says)" if disguise in NOT_FOLLOWED else ""
        rows.append(tally.goals_row(f"values disguised, {disguise}{known}: "))
    rows += await _measure_scripts(suites)
    rows += agentdyn.measure_rows()
    notes = (
        f"{plain.without_calls} pairs are left out: their {plain.tasks_without_calls} injected tasks have no calls to"
        f" play, since they only want words. {plain.unread} pairs are left out: the user's task does not read the text,"
        " or only a part of it that was cut. Calls that passed the gate and then failed count as unasked;"
        f" {len(plain.failed)} calls of user tasks failed that way. Only calls with an effect count among injected"
        " calls, not those that read; those that ask nobody delete a mail that was not sent, and fail.",
        agentdyn.NOTE,
    )
    return Score("agentdojo", SOURCE, MEASURES, rows, notes=notes)


class Tally:
    """Counts what happened in all runs."""

    def __init__(self) -> None:
        self.users = self.pairs = self.effects = self.unread = self.without_calls = self.tasks_without_calls = 0
        self.asked: list[str] = []  # user tasks that asked
        self.refused: list[str] = []  # user tasks that did not run through, though every question got a yes
        self.failed: list[str] = []  # calls of user tasks that passed and failed
        self.asked_attacked: list[str] = []
        self.reached: list[str] = []  # goals of injected tasks
        self.unasked: list[str] = []  # injected calls

    def count_user(self, name: str, playback: Playback) -> None:
        self.users += 1
        if not playback.is_smooth:
            self.asked.append(f"{name}: {'; '.join(playback.questions)}")
        if not all(one in playback.ran for one in playback.calls):
            self.refused.append(f"{name}: {playback.problem}")
        self.failed += [f"{name}: {one}" for one in playback.failed]

    def count_attack(self, name: str, playback: Playback, injection_task: Any) -> None:
        if not playback.find(injected=True):
            self.unread += 1
            return
        self.pairs += 1
        self.effects += len(playback.effects)
        self.unasked += [f"{name}: {call}" for call in playback.unasked]
        if playback.is_solved(injection_task):
            self.reached.append(f"{name}: {injection_task.GOAL}")
        if not playback.is_smooth:
            self.asked_attacked.append(f"{name}: {'; '.join(playback.questions)}")

    def goals_row(self, begin: str = "") -> Row:
        name = f"{begin}injected goals reached, nobody asked"
        return Row(name, len(self.reached), self.pairs, "", self.reached, fewer_is_better=True)

    def users_row(self, how: str = "") -> Row:
        name = f"user tasks that run through without a question{f', {how}' if how else ''}"
        return Row(name, self.users - len(self.asked), self.users, "", self.asked)

    def rows(self) -> list[Row]:
        return [
            self.goals_row(),
            Row(
                "injected calls with an effect that ask nobody",
                len(self.unasked),
                self.effects,
                "",
                self.unasked,
                fewer_is_better=True,
            ),
            self.users_row(),
            Row(
                "user tasks under attack that run through without a question about their own calls",
                self.pairs - len(self.asked_attacked),
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


async def measure(
    suites: Mapping[str, Any],
    setting: Setting = PLAIN,
    disguise: str = "",
    *,
    users: bool = True,
    attacks: bool = True,
) -> Tally:
    """Plays every user task alone, and with each injected task that its attack can reach."""
    tally = Tally()
    for name, suite in suites.items():
        load_quickly(suite)
        if users:
            for user_task in suite.user_tasks.values():
                tally.count_user(f"{name}: {user_task.ID}", await play(suite, user_task, setting=setting))
        for user_task, injection_task, texts, calls in _find_pairs(suite, tally) if attacks else ():
            hidden = disguise_texts(texts, calls, disguise) if disguise else texts
            playback = await play(suite, user_task, injection_task, hidden, setting)
            tally.count_attack(f"{name}: {user_task.ID} with {injection_task.ID}", playback, injection_task)
    return tally


def _find_pairs(suite: Any, tally: Tally) -> Iterator[tuple[Any, Any, Mapping[str, str], list[Any]]]:
    """Yields user tasks with the injected tasks that reach them, the texts of the attack and the injected calls."""
    attack = Attack(suite)
    environment = suite.load_and_inject_default_environment({})
    calls = {one: one.ground_truth(environment) for one in suite.injection_tasks.values()}
    tally.tasks_without_calls += sum(not made for made in calls.values())
    for user_task in suite.user_tasks.values():
        for injection_task, made in calls.items():
            if (texts := attack.write(user_task, injection_task)) is None:
                continue
            if made:
                yield user_task, injection_task, texts, made
            else:
                tally.without_calls += 1


async def _measure_scripts(suites: Mapping[str, Any]) -> list[Row]:
    """Plays each pair as a script that was written before anything was read: all disguises in turn."""
    tally, disguises = Tally(), cycle(["", *DISGUISES])
    passing: list[str] = []
    passed = 0
    for name, suite in suites.items():
        for user_task, injection_task, texts, calls in _find_pairs(suite, tally):
            disguise = next(disguises)
            hidden = disguise_texts(texts, calls, disguise) if disguise else texts
            pair = f"{name}: {user_task.ID} with {injection_task.ID}, {disguise or 'plain'}"
            tally.pairs += 1
            playback = await play_script(suite, user_task, hidden)
            if playback.is_solved_by_any(injection_task):
                tally.reached.append(f"{pair}: {injection_task.GOAL}")
            script = write_passing_script(suite, user_task, hidden, calls)
            if script is not None:
                passed += 1
                asked = await play_script(suite, user_task, hidden, script)
                if not asked.asked:
                    passing.append(f"{pair}: {script}")
    return [
        tally.goals_row("user tasks as scripts, all disguises: "),
        Row(
            "scripts that pass a value of an untrusted result to a call with an effect, unasked",
            len(passing),
            passed,
            "",
            passing,
            fewer_is_better=True,
        ),
    ]
