"""`forge session` at a terminal: a session is picked with the arrow keys; elsewhere they are listed."""

from __future__ import annotations

import json

import pytest

from forge.agent.session import SessionStore
from tests.cli.scripts import script
from tests.cli.test_terminal import talk

HELP = b"Esc leaves"
UP, DOWN, ENTER, ESCAPE = b"\x1b[A", b"\x1b[B", b"\r", b"\x1b"


@pytest.fixture
def sessions(workspace, here):
    for name, prompt in (("first", "count the apples"), ("second", "sort the pears"), ("third", "eat the plums")):
        assert here("run", prompt, "--session", name, "--model", script(workspace, "Yes.")).code == 0
    return workspace


def pick(workspace, *keys: bytes) -> str:
    """The session that is resumed after these keys, which are pressed when the list is there."""
    model = script(workspace, "Again.")
    says = ((HELP, b"".join(keys)), (b"session ", b""), (b"> ", b"more\r"), (b"Again.", b""), (b"> ", b"/quit\r"))
    code, _ = talk(workspace, "session", "pick", "--model", model, says=says, INPUTRC="/dev/null")
    assert code == 0
    with SessionStore.of(workspace) as store:
        return next(one.name for one in store.list() if one.messages > 3)


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ((ENTER,), "third"),
        ((DOWN, ENTER), "second"),
        ((DOWN, DOWN, DOWN, UP, ENTER), "second"),
        ((b"APPLES", ENTER), "first"),
        ((b"pearx\x7fs", ENTER), "second"),
    ],
)
def test_keys_pick_a_session(sessions, keys, name):
    assert pick(sessions, *keys) == name


@pytest.mark.parametrize("key", [ESCAPE, b"\x04"])
def test_who_leaves_resumes_nothing(sessions, key):
    code, shown = talk(sessions, "session", says=((HELP, key),))
    assert code == 0
    assert "eat the plums" in shown
    assert "resume:" not in shown


def test_what_fits_nothing_cannot_be_picked(sessions):
    code, shown = talk(sessions, "session", says=((HELP, b"oranges"), (b"Nothing fits", ENTER), (HELP, ESCAPE)))
    assert code == 0
    assert shown.count("Nothing fits.") == 2


def test_a_pipe_gets_the_list(sessions, here):
    assert here("session").out == here("session", "list").out
    assert json.loads(here("session", "pick", "--json").out) == here("session", "list", "--json").json


def test_without_sessions_it_says_so(workspace, here):
    assert "No session is stored here." in here("session").err


def test_a_shell_completes_the_names_of_sessions(sessions, there):
    ended = there(_FORGE_COMPLETE="bash_complete", COMP_WORDS="forge session show s", COMP_CWORD="3")
    assert [line.partition(",")[2] for line in ended.out.splitlines()] == ["second"]
