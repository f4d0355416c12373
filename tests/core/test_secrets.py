"""Which texts must never be seen."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from forge.core.result import ToolResult
from forge.core.secrets import MASK, Secrets
from tests.core.calling import at_most

SECRET = "correct-horse-battery"


def test_a_registered_secret_is_masked_wherever_it_stands():
    secrets = Secrets([SECRET])
    assert secrets.mask(f"a {SECRET} b {SECRET}") == f"a {MASK} b {MASK}"
    assert secrets.mask("nothing here") == "nothing here"


def test_without_secrets_nothing_is_masked():
    assert Secrets().mask(SECRET) == SECRET
    assert Secrets().mask_value({"a": SECRET}) == {"a": SECRET}


def test_secrets_may_be_added_later():
    secrets = Secrets()
    secrets.add(SECRET, "another-secret")
    assert secrets.mask(f"{SECRET} another-secret") == f"{MASK} {MASK}"


def test_values_that_several_threads_learn_at_once_are_all_masked():
    secrets, together = Secrets(), threading.Barrier(4)

    def learn(thread: int) -> None:
        together.wait()
        for number in range(30):
            secrets.learn([f"secret-{thread}-of-{number}-here"])
            secrets.learn_next(thread, [f"value {number} of source {thread}"])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=learn, args=(number,)) for number in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        sys.setswitchinterval(interval)
    for thread in range(4):
        for number in range(30):
            assert secrets.mask(f"secret-{thread}-of-{number}-here") == MASK
            assert secrets.mask(f"value {number} of source {thread}") == MASK


def test_the_longest_secret_wins():
    secrets = Secrets(["abcdefgh", "abcdefgh-and-more"])
    assert secrets.mask("abcdefgh-and-more abcdefgh") == f"{MASK} {MASK}"


@pytest.mark.parametrize("short", ["", "a", "1234567"])
def test_a_secret_that_would_mask_words_is_refused(short):
    with pytest.raises(ValueError, match="8"):
        Secrets([short])


@pytest.mark.parametrize(
    "secret",
    [
        'quo"ted\\secret',
        "new\nline-secret",
        "umlaut-ä-secret",
        'both ä and "quote"',
        "tab\tsecret-\x7f",
        "emoji-\U0001f98a-secret",
    ],
)
def test_a_secret_is_masked_as_json_spells_it(secret):
    secrets = Secrets([secret])
    for text in (
        secret,
        json.dumps({"k": secret}),
        json.dumps({"k": secret}, ensure_ascii=False),
        ToolResult.of({"k": secret}).for_llm,
    ):
        masked = secrets.mask(text)
        assert MASK in masked
        assert secret not in masked
        assert json.dumps(secret)[1:-1] not in masked


def test_special_characters_are_taken_literally():
    assert Secrets(["a.c*(e)[g]"]).mask("a.c*(e)[g] abcccceg") == f"{MASK} abcccceg"


LOOKALIKES = [
    "sk-abcdefghijklmnopqrstuvwx",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "xoxb-1234567890-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
    "https://user:hunter2@example.com/x",
    "Authorization: Bearer abcdefghijklmnop1234",
    "api_key=abcdefgh12345678",
    "password: hunter2hunter2",
    '{"token": "abcdefgh12345678"}',
]


@pytest.mark.parametrize("text", LOOKALIKES)
def test_what_looks_like_a_secret_is_masked_in_events_and_logs_only(text):
    secrets = Secrets()
    assert MASK in secrets.mask_all(f"before {text} after")
    assert secrets.mask_all(f"before {text} after").startswith("before ")
    assert secrets.mask(text) == text


@pytest.mark.parametrize(
    "text", ["skip-this-line", "the token was lost", "password", "secret: no", "https://example.com/a@b", "key=value"]
)
def test_ordinary_words_stay(text):
    assert Secrets().mask_all(text) == text


def test_plain_data_is_masked_at_every_depth():
    secrets = Secrets([SECRET])
    value = {"a": [f"x {SECRET}", {"b": SECRET}], SECRET: 1, "n": 5, "t": (SECRET,), "none": None}
    masked = secrets.mask_value(value)
    assert SECRET not in repr(masked)
    assert masked["n"] == 5
    assert masked["none"] is None
    assert SECRET in repr(value), "what was given was changed"


def test_a_number_with_the_digits_of_a_secret_is_masked():
    secrets = Secrets(["20261116", "-7654321"])
    assert secrets.mask_value({"pin": 20261116, "sum": -7654321}) == {"pin": "[secret]", "sum": "[secret]"}
    assert secrets.mask_value({"other": 20261117, "small": 7}) == {"other": 20261117, "small": 7}


def test_a_value_under_a_telling_name_is_masked_whole():
    masked = Secrets().mask_value({"password": "short", "api_key": "abc", "name": "Ada"}, lookalikes=True)
    assert masked == {"password": MASK, "api_key": MASK, "name": "Ada"}
    assert Secrets().mask_value({"password": "short"}) == {"password": "short"}


def cycle():
    value: dict[str, object] = {"text": "fine"}
    value["again"] = value
    return value


def abyss():
    value: object = "fine"
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("value", [cycle(), abyss()], ids=["a cycle", "an abyss"])
def test_data_without_end_does_no_harm(value):
    Secrets([SECRET]).mask_value(value)
    Secrets([SECRET]).mask_value(value, lookalikes=True)


EXPLOSIVE = {
    "JWT beginnings": "-eyJ" * 15_000,
    "keys that never end": "-----BEGIN PRIVATE KEY-----" * 8_000,
    "bearers": "bearer " * 30_000,
    "spaces": "bearer" + " " * 200_000,
    "URLs": "://a:" * 40_000,
    "tokens": "token=" * 40_000,
    "dashes": "sk-" * 70_000,
    "plain": "x" * 200_000,
}


@pytest.mark.parametrize("text", EXPLOSIVE.values(), ids=EXPLOSIVE)
def test_no_text_takes_long_to_mask(text):
    with at_most(1.5):
        Secrets([SECRET]).mask_all(text)


def test_a_secret_that_others_cut_short_is_masked_too():
    secret = "sup3r-ABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789-abcdefghijklmnopqrstuvwxyz"
    secrets = Secrets([secret])
    for length in (12, 40, len(secret) - 1):
        assert secret[:8] not in secrets.mask(f'num(token="{secret[:length]}…"): expected integer')
    assert secrets.mask("nothing to hide…") == "nothing to hide…"


def test_secrets_in_sets_paths_and_objects_are_masked():
    secret = "hunter2-hunter2-hunter2"
    hidden = Secrets([secret]).mask_value({"set": {secret}, "path": Path(secret), "n": 5, "none": None})
    assert secret not in str(hidden)
    assert hidden["n"] == 5


def test_a_long_text_is_masked_before_it_is_cut():
    secret = "s3cret-" * 10
    shown = Secrets([secret]).mask_everything("x" * (128 * 1024 - 40) + secret + "y" * 100)
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: [[] for _ in range(1_000_000)], marks=pytest.mark.slow),
        pytest.param(lambda: {str(number): {} for number in range(300_000)}, marks=pytest.mark.slow),
        lambda: [json.loads("[" * 90 + "]" * 90) for _ in range(11_000)],
    ],
    ids=["lists", "objects", "nested"],
)
def test_much_data_is_masked_in_bounded_time_and_what_is_left_out_is_counted(made):
    value = made()
    with at_most(1.5):
        shown = json.dumps(Secrets([SECRET]).mask_everything({"data": value}))
    assert len(shown) < 3_000_000
    assert " more]" in shown


def test_a_secret_is_masked_in_as_much_data_as_tools_give():
    shown = Secrets([SECRET]).mask_everything({"rows": [{"n": number, "text": SECRET} for number in range(10_000)]})
    assert len(shown["rows"]) == 10_000
    assert SECRET not in json.dumps(shown)


def test_what_is_left_out_of_an_event_hides_no_secret_that_is_shown():
    shown = Secrets([SECRET]).mask_everything([[SECRET] * 60_000, SECRET])
    assert SECRET not in json.dumps(shown)
    assert shown[0][-1] == "[… 10001 more]"


def test_a_result_is_masked_to_its_end():
    assert Secrets([SECRET]).mask_value([0] * 100_000 + [SECRET])[-1] == MASK
