"""What looks like a secret is masked in events and logs, and ordinary text is left alone."""

from __future__ import annotations

import json
import time

import pytest

from forge.core.secrets import MASK, Secrets
from forge.core.secrets.find_secrets import kind_of
from tests.core.secret_corpus import FALSE, TRUE


@pytest.mark.parametrize(("text", "secret"), TRUE, ids=range(len(TRUE)))
def test_a_secret_is_masked(text, secret):
    shown = Secrets().mask_all(text)
    assert secret not in shown
    assert secret[8:] == "" or secret[-8:] not in shown, "its end is readable"
    assert MASK in shown


@pytest.mark.parametrize(("text", "secret"), TRUE, ids=range(len(TRUE)))
def test_a_secret_is_masked_inside_json_and_among_other_lines(text, secret):
    shown = Secrets().mask_all(json.dumps({"command": f"cd /work; {text}"}))
    assert json.dumps(secret)[1:-1] not in shown
    assert secret not in Secrets().mask_all(f"first line\n{text}\nlast line")


@pytest.mark.parametrize("text", FALSE)
def test_ordinary_text_stays(text):
    assert Secrets().mask_all(text) == text


def test_the_corpus_is_large_enough_to_mean_something():
    assert len(TRUE) >= 60
    assert len(FALSE) >= 60


@pytest.mark.parametrize(("text", "secret"), TRUE, ids=range(len(TRUE)))
def test_masking_twice_changes_nothing_more(text, secret):
    once = Secrets().mask_all(text)
    assert Secrets().mask_all(once) == once


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("DB_PASSWORD=hunter2 psql", "DB_PASSWORD=[secret] psql"),
        ('{"client_secret": "abc-def-123"}', '{"client_secret": "[secret]"}'),
        ("curl -u bob:hunter2 https://x.org", "curl -u [secret] https://x.org"),
        ("tool(password='hunter2', retries=3)", "tool(password='[secret]', retries=3)"),
    ],
)
def test_the_name_and_what_is_around_stay_readable(text, shown):
    assert Secrets().mask_all(text) == shown


@pytest.mark.parametrize(
    "name",
    "password DB_PASSWORD db-password dbPassword PGPASSWORD passwd db_pass DB_PWD passphrase client_secret clientSecret"
    " secret GITHUB_TOKEN githubToken x-auth-token X-Api-Key apikey API_KEY aws_secret_access_key SECRET_KEY_BASE"
    " Authorization credentials private_key password_hash PASSWORD2 Cookie".split(),
)
def test_a_name_announces_a_secret(name):
    assert kind_of(name)
    assert Secrets().mask_everything({name: "short"}) == {name: MASK}


@pytest.mark.parametrize(
    "name",
    "name key public_key token_count max_tokens tokens tokenizer token_type next_token page_token PWD OLDPWD secretary"
    " password_file secret_name monkey keyboard passenger bypass compass author".split(),
)
def test_an_ordinary_name_announces_none(name):
    assert not kind_of(name)
    assert Secrets().mask_everything({name: "short"}) == {name: "short"}


def test_values_of_other_kinds_under_a_telling_name():
    shown = Secrets().mask_everything(
        {
            "password": 12345678,
            "Authorization": ["Basic abc"],
            "token": None,
            "secret": {"type": "string"},
            "api_key": True,
        }
    )
    assert shown == {
        "password": MASK,
        "Authorization": MASK,
        "token": None,
        "secret": {"type": "string"},
        "api_key": True,
    }


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-u", "bob:hunter2", "https://x.org"], ["-u", MASK, "https://x.org"]),
        (["--password", "hunter2", "-v"], ["--password", MASK, "-v"]),
        (["--api-key", "abcd1234"], ["--api-key", MASK]),
        (["-u", "1000:1000"], ["-u", "1000:1000"]),
        (["--max-tokens", "4096"], ["--max-tokens", "4096"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        (["--user", "node"], ["--user", "node"]),
        (["docker", "login", "-u", "bob", "-p", "hunter2"], ["docker", "login", "-u", "bob", "-p", MASK]),
        (["docker", "login", "-p", "-u", "bob"], ["docker", "login", "-p", "-u", "bob"]),
        (["docker", "run", "-p", "8080:80"], ["docker", "run", "-p", "8080:80"]),
    ],
)
def test_a_secret_behind_a_flag_in_a_list_of_arguments(words, shown):
    assert Secrets().mask_everything(words) == shown


def test_things_that_compare_in_their_own_way_are_masked_in_a_list():
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

        def __str__(self) -> str:
            return "odd"

    assert Secrets().mask_everything(["login", Odd(), "-p", "hunter2"])[2:] == ["-p", MASK]


def test_a_token_at_the_place_where_a_long_text_is_cut_is_masked():
    token = "gh" + "p_" + "aB3dE6gH9jK2" * 3
    for before in range(128 * 1024 - len(token) - 1, 128 * 1024, 5):
        shown = Secrets().mask_everything("x" * (before - 1) + " " + token + " " + "y" * 5_000)
        assert "p_aB3d" not in shown


EXPLOSIVE = {
    "names": "token" * 40_000,
    "names and signs": "password:" * 20_000,
    "quotes": 'secret="' * 25_000,
    "escaped quotes": 'secret="' + '\\"' * 100_000,
    "underscores": "token_" * 30_000,
    "logins": "curl -u a:" * 20_000,
    "basic": "basic " * 30_000,
    "begin": "-----BEGIN " * 20_000,
    "mysql": "mysql " * 30_000,
    "redis": "redis-cli -" * 20_000,
    "letters with a longer lower case": "İ token=abc12345 " * 10_000,
    "registries": "docker login " * 20_000,
    "registries and options": "docker login -p " * 15_000,
    "registry after registry": "docker " * 30_000 + "login -p x",
    "continued flags": "--token \\\n" * 20_000,
    "keys and lines": "\n password:\n  " * 15_000,
    "blanks below a key": "password:\n" + " " * 200_000,
    "short names": "pw=" * 60_000,
    "quotes behind names": "api_key '" * 20_000,
    "every prefix": "sk-key-xox-sg.pk_sk_rk_pat1//0eyJ" * 5_000,
}


@pytest.mark.parametrize("text", EXPLOSIVE.values(), ids=EXPLOSIVE)
def test_no_text_takes_long(text):
    started = time.process_time()
    Secrets().mask_all(text)
    assert time.process_time() - started < 1.5


def test_letters_whose_lower_case_is_longer_do_not_shift_the_mask():
    assert Secrets().mask_all("İİİİ DB_PASSWORD=hunter22 İ") == "İİİİ DB_PASSWORD=[secret] İ"
