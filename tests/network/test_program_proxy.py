"""Programs in the sandbox reach the hosts that rules allow and no others, and never hold the secrets they use."""

from __future__ import annotations

import asyncio
import base64
import gc
import html
import json
import math
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import forge
from forge import Egress
from forge.core.extras import is_installed
from forge.network import program_proxy
from forge.network.program_proxy import ProgramProxy, answer_name, read_server_name
from forge.network.program_requests import SecretReader
from forge.network.program_secrets import ProgramSecret
from forge.network.value_cover import ValueCover
from forge.process.running.run import find_tier
from forge.process.sandbox import Tier
from tests.network.authority import make_authority
from tests.network.inside_namespace import OTHER, PUBLIC
from tests.network.inside_program_proxy import SECRET

ROOT = Path(__file__).parents[2]
UNSHARE = ["unshare", "--map-root-user", "--net", "--mount", "--propagation", "private"]


@pytest.fixture(scope="module")
def came(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """What came of every line; they run once, in a child with a network of its own."""
    lines = _run_inside("inside_program_proxy", tmp_path_factory.mktemp("proxy"))
    return {one["name"]: one for one in lines}


def _run_inside(module: str, folder: Path) -> list[dict[str, Any]]:
    if find_tier("auto") is not Tier.BUBBLEWRAP or not is_installed("secrets"):
        pytest.skip("NOT TESTED: needs bubblewrap and the extra secrets")
    if not all(map(shutil.which, ("unshare", "ip", "mount", "curl", "python3"))) or _fails(*UNSHARE, "true"):
        pytest.skip("NOT TESTED: needs a network namespace of its own (unshare, ip and curl, on Linux)")
    authority = make_authority(folder)
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-m", f"tests.network.{module}", str(folder)],
        cwd=ROOT,
        env={
            "HOME": str(folder),  # that of root is not everybody's
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(forge.__file__).parents[1]),
            "FORGE_TRUST_ENV": "1",
            "SSL_CERT_FILE": str(authority.file),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _fails(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode != 0


@pytest.mark.parametrize("name", ["allowed", "allowed on its port", "knows no proxy", "passed through"])
def test_an_allowed_host_is_reached_by_clients_that_know_a_proxy_or_none(came, name):
    found = came[name]
    assert found["output"].startswith("GET /a HTTP/1.1")
    assert sum(found["hits"].values()) == 1
    (reached,) = found["network"]
    assert reached["host"] == "allowed.test"
    assert reached["connections"] == 1
    assert reached["bytes_received"] > 100
    assert "refused" not in reached


def test_plain_requests_are_forwarded_one_by_one(came):
    assert came["allowed, plain"]["hits"] == {f"{PUBLIC}:80": 2}
    assert "GET /b HTTP/1.1" in came["allowed, plain"]["output"]


@pytest.mark.parametrize("name", ["denied", "denied, plain", "denied, knows no proxy", "opened, denied"])
def test_a_denied_host_is_not_reached_and_the_result_says_which_rule(came, name):
    found = came[name]
    assert found["hits"] == {}
    assert found["asked"] == []
    assert "denied.test" in found["told"]
    assert "deny network denied.test" in found["told"]


def test_an_allow_without_a_port_is_about_the_web_only(came):
    assert came["allowed on another port"]["asked"] == ["tcp://allowed.test:8444"]
    assert came["allowed on another port"]["hits"] == {}


def test_a_plain_request_to_another_port_needs_its_number_since_a_body_may_be_of_any_protocol(came):
    assert came["allowed on another port, plain"]["asked"] == ["tcp://allowed.test:25"]
    assert came["allowed on another port, plain"]["hits"] == {}


def test_a_program_that_tries_many_servers_fills_no_memory_and_no_report(came):
    found = came["many hosts"]
    assert len(found["network"]) == 1_000
    assert "the program tried 1,000 hosts already" in found["output"]
    assert found["hits"] == {}


def test_one_question_is_asked_for_all_connections_while_the_program_waits(came):
    assert came["asked"]["asked"] == ["https://asked.test"]
    assert came["asked"]["hits"] == {f"{PUBLIC}:443": 2}
    assert came["asked"]["exit"] == 0


def test_the_time_that_a_program_waits_for_a_person_is_not_its_own(came):
    assert came["asked longer than its time"]["exit"] == 0
    assert came["asked longer than its time"]["output"].startswith("GET /a")


@pytest.mark.parametrize("name", ["refused by the person", "no rule"])
def test_a_host_that_the_person_refuses_is_not_reached(came, name):
    assert len(came[name]["asked"]) == 1
    assert came[name]["hits"] == {}
    assert "not that one" in came[name]["told"]


def test_a_program_that_tries_many_hosts_at_once_asks_a_few_questions_too(came):
    found = came["many refused at once"]
    assert 3 <= len(found["asked"]) <= 5
    refused = [one["refused"] for one in found["network"]]
    assert len(refused) == 9
    assert sum("no one is asked any more" in one for one in refused) == 9 - len(found["asked"])


@pytest.mark.parametrize("name", ["leads inside", "leads outside and inside"])
def test_an_allowed_name_that_leads_inside_is_refused_by_the_egress(came, name):
    assert came[name]["hits"] == {}
    assert "10.0.0.1" in came[name]["told"]


def test_no_way_around_reaches_a_host_that_is_not_allowed(came):
    found = came["ways around"]
    lines = [line for line in found["output"].splitlines() if line.startswith(("reached", "refused"))]
    assert len(lines) >= 90
    assert [line for line in lines if not line.startswith("refused")] == []
    assert [one for one in found["hits"] if one.startswith(OTHER)] == []
    assert len(found["asked"]) <= 3  # then no one is asked any more


def test_fifty_sandboxes_at_once_are_all_served(came):
    assert came["many"]["hits"] == {f"{PUBLIC}:443": 50}
    assert came["many"]["network"] == [1] * 50
    assert [one.split()[:2] for one in came["many"]["said"]] == [["GET", f"/{number}"] for number in range(50)]


def test_a_name_is_resolved_again_while_no_name_server_answers(came):
    assert came["late name"]["output"].startswith("GET /a")
    assert came["late name"]["hits"] == {f"{PUBLIC}:443": 1}
    assert "refused" not in came["late name"]["network"][0]
    assert came["no name"]["hits"] == {}
    assert "the name never.test cannot be resolved at the moment" in came["no name"]["told"]


def test_a_background_job_is_held_to_the_rules_and_its_hosts_are_told(came):
    found = came["background"]
    assert "end" in found["told"]
    assert found["hits"] == {f"{PUBLIC}:443": 1}
    assert {one["host"]: "refused" in one for one in found["network"]} == {"allowed.test": False, "denied.test": True}


def test_the_hosts_that_a_trial_tried_are_among_its_effects(came):
    found = came["a trial"]
    assert found["hits"] == {f"{PUBLIC}:443": 1}
    (summary,) = found["asked"]
    assert "creates 1 file" in summary
    assert "wanted 2 hosts" in summary
    assert "deny network denied.test" in found["told"]


def test_a_trial_uses_a_secret_that_stays_outside(came):
    found = came["a trial with a secret"]
    assert found["hits"] == {f"{PUBLIC}:443": 1}
    assert "reached" in found["output"]
    assert any("creates 1 file" in one for one in found["asked"])
    assert "refused" not in found["network"][0]
    assert SECRET not in json.dumps(found)


def test_an_open_network_stays_open_for_hosts_that_no_rule_is_about(came):
    assert came["opened"]["output"].startswith("GET /a")
    assert came["opened"]["asked"] == []


@pytest.mark.parametrize(
    ("policy", "asked", "why"),
    [("deny network", [], "the rule `deny network`"), ("ask network", ["https://other.test"], "not that one")],
)
def test_a_rule_about_all_hosts_holds_for_an_open_network(came, policy, asked, why):
    assert came[f"opened, {policy}"]["hits"] == {}
    assert came[f"opened, {policy}"]["asked"] == asked
    assert why in came[f"opened, {policy}"]["told"]


def test_an_open_network_stays_open_with_a_rule_that_allows_all_hosts(came):
    assert came["opened, allow network"]["hits"] == {f"{PUBLIC}:443": 1}
    assert came["opened, allow network"]["asked"] == []


def test_without_a_sandbox_a_line_asks_where_rules_restrict_hosts(came):
    (question,) = came["no sandbox, False"]["asked"]
    assert "held to them only in bubblewrap" in question
    assert came["no sandbox, False"]["hits"] == {}
    assert "the rules about hosts cannot be enforced" in came["no sandbox, False"]["told"]


def test_without_a_sandbox_a_line_asks_where_rules_only_allow_some_hosts(came):
    (question,) = came["no sandbox, only allows, False"]["asked"]
    assert "held to them only in bubblewrap" in question
    assert came["no sandbox, only allows, False"]["hits"] == {}
    assert "the rules about hosts cannot be enforced" in came["no sandbox, only allows, False"]["told"]


def test_a_rule_about_the_commands_of_a_tool_is_about_no_hosts(came):
    assert came["no sandbox, a rule about commands"]["hits"] == {f"{OTHER}:443": 1}
    assert came["no sandbox, a rule about commands"]["asked"] == []
    assert came["opened, a rule about commands"]["hits"] == {f"{OTHER}:8444": 1}


def test_without_a_sandbox_nothing_that_should_be_inspected_goes_out_unasked(came):
    assert len(came["no sandbox, inspect"]["asked"]) == 1
    assert came["no sandbox, inspect"]["hits"] == {}


@pytest.mark.parametrize(
    ("name", "questions"), [("no sandbox, True", 1), ("no sandbox, only allows, True", 1), ("no sandbox, no rule", 0)]
)
def test_without_a_sandbox_a_line_runs_if_the_person_says_so_or_no_rule_restricts_hosts(came, name, questions):
    assert came[name]["hits"] == {f"{OTHER}:443": 1}
    assert len(came[name]["asked"]) == questions


@pytest.mark.parametrize("who", ["a function", "working for another"])
def test_each_host_of_an_open_network_is_judged_by_a_function_and_by_the_rules_of_whoever_one_works_for(came, who):
    assert came[f"{who}, denied"]["hits"] == {}
    assert came[f"{who}, denied"]["asked"] == []
    assert "denied.test:443 was not reached: the " in came[f"{who}, denied"]["told"]
    assert set(came[f"{who}, asked"]["asked"]) == {"https://asked.test"}
    for host in ("asked", "other"):
        assert came[f"{who}, {host}"]["hits"] == {f"{PUBLIC}:443": 1}
    assert came[f"{who}, other"]["asked"] == []


@pytest.mark.parametrize("host", ["denied", "asked", "other"])
def test_a_function_alone_opens_no_network(came, host):
    assert came[f"a function, no network, {host}"]["hits"] == {}


@pytest.mark.parametrize(("says", "asked", "reached"), [("allow", 0, 1), ("ask", 1, 0), ("deny", 0, 0)])
def test_without_a_sandbox_a_function_decides_about_the_whole_network(came, says, asked, reached):
    found = came[f"a function, no sandbox, {says}"]
    assert (len(found["asked"]), sum(found["hits"].values())) == (asked, reached)


def test_with_an_open_network_a_secret_is_put_in_and_other_hosts_stay_open(came):
    assert came["opened, secret"]["hits"] == {f"{PUBLIC}:443": 1}
    assert "authorization: Bearer forge-" in came["opened, secret"]["output"]
    assert came["opened, beside a secret"]["output"].startswith("GET /a")
    assert came["opened, beside a secret"]["asked"] == []


def test_a_client_that_cannot_use_the_proxy_is_told_that_there_is_one(came):
    assert "only through a proxy here" in came["opened, no proxy"]["told"]


def test_an_open_network_is_inspected_where_the_egress_says_so(came):
    assert "its Host header does not name other.test" in came["opened, inspected"]["told"]
    assert came["opened, inspected"]["network"][0]["bytes_received"] == 0
    assert came["opened, inspected, honest"]["output"].startswith("GET /a")


def test_a_connection_ends_with_that_to_the_server_and_with_its_client(came):
    """A client that keeps one would otherwise ask on it in vain; a server that never answers would hold one."""
    assert came["kept"]["output"].split("\n")[:2] == ["True and then the end", "b'ended'"], came["kept"]["output"]


@pytest.mark.parametrize(
    "name",
    [
        *("upgraded", "in parts", "only a part", "hints", "named", "slow"),
        *("broken line", "broken status", "broken chunk", "escaped"),
    ],
)
def test_a_server_cannot_hand_the_secret_back_in_pieces_or_between_them(came, name):
    found = json.dumps(came[name])
    assert sum(came[name]["hits"].values()) >= 1
    assert not [at for at in range(len(SECRET) - 7) if SECRET[at : at + 8] in found]


def test_answers_that_are_no_plain_text_still_come(came):
    assert came["upgraded"]["output"].startswith("HTTP/1.1 101")
    assert came["upgraded"]["output"].rstrip().endswith("and the rest")
    assert came["upgraded"]["output"].count("Bearer forge-") == 2
    assert came["in parts"]["output"].count("Bearer forge-") == 3  # the whole one each time
    assert "its answer is a part" in came["only a part"]["told"]
    assert came["hints"]["output"].endswith("ok")


def test_an_answer_that_cannot_be_read_is_refused_in_words_of_ours(came):
    """The library's words quote what cannot be read, which may be the value."""
    for what, why in (("line", "illegal header line"), ("status", "illegal status line"), ("chunk", "")):
        assert f"the answer of secret.test cannot be read: {why}" in came[f"broken {what}"]["told"]
    assert came["escaped"]["output"].count("Bearer forge-") == 2
    assert "BEARER forge-" in came["escaped"]["output"]


def test_an_answer_is_refused_in_words_while_the_request_is_still_sent(came):
    assert came["refused while the request is sent"]["output"].startswith("HTTP/1.1 502 its answer is a part")


def test_what_servers_could_read_in_two_ways_is_sent_in_one(came):
    assert "transfer-encoding: chunked" in came["two lengths"]["output"]
    assert "content-length" not in came["two lengths"]["output"]
    assert "GET / HTTP/1.1" in came["another protocol"]["output"]
    assert "h2c" not in came["another protocol"]["output"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("honest", "authorization: Bearer forge-"),
        ("two values of the header", "authorization: Bearer forge-"),
        ("a folded line", "x: a Host: denied.test"),
        ("a request behind a short body", "its Host header does not name secret.test"),
        ("a length beside chunks", "its Host header does not name secret.test"),
        ("lines without returns", "its Host header does not name secret.test"),
        ("another port in Host", "its Host header does not name secret.test"),
        ("a user in Host", "its Host header does not name secret.test"),
        ("a path in Host", "its Host header does not name secret.test"),
        ("a slash in Host", "its Host header does not name secret.test"),
        ("a query in Host", "its Host header does not name secret.test"),
        ("a fragment in Host", "its Host header does not name secret.test"),
        ("two names in Host", "its Host header does not name secret.test"),
        ("its port and capitals in Host", "authorization: Bearer forge-"),
        ("a placeholder in a trailer", "authorization: Bearer forge-"),
        ("a list of protocols", "authorization: Bearer forge-"),
        ("a header that the connection names", "authorization: Bearer forge-"),
        ("HTTP/2 at once", "its Host header does not name secret.test"),
        ("two codings", "the request cannot be read: multiple Transfer-Encoding headers"),
        ("a coding with a space", "the request cannot be read: illegal header line"),
        ("a coding with a vertical tab", "the request cannot be read: illegal header line"),
        ("a zero in a header", "the request cannot be read: illegal header line"),
        ("a length with a sign", "the request cannot be read: bad Content-Length"),
        ("HTTP/0.9", "the request cannot be read: illegal request line"),
        ("an endless header", ""),  # the connection may be reset before the refusal is read
        ("a WebSocket that compresses", "upgrade: websocket"),
        ("an answer in pieces of gzip", "the answer of secret.test cannot be read"),
        ("an answer with an endless head", "the answer of secret.test cannot be read"),
    ],
)
def test_an_odd_request_is_read_in_one_way_or_refused_in_words(came, name, expected):
    found = {one["name"]: one["came"] for one in map(json.loads, came["odd requests"]["output"].splitlines())}
    assert expected in found[name]
    assert SECRET[:12] not in found[name]
    assert "GET /another" not in found[name]
    assert "permessage-deflate" not in found[name]
    assert found[name].lower().count("authorization: ") <= 1
    assert [one for one in came["odd requests"]["hits"] if one.startswith(OTHER)] == []


@pytest.mark.parametrize(
    "name", ["secret", "secret without a header", "secret as a password", "secret, knows no proxy", "search"]
)
def test_a_secret_is_sent_and_never_seen(came, name):
    found = came[name]
    assert found["hits"] == {f"{PUBLIC}:443": 1}
    assert found["exit"] == 0
    assert SECRET not in json.dumps(found)
    assert SECRET[:12] not in json.dumps(found)
    assert name == "search" or "authorization: B" in found["output"]  # the server saw one, and sent it back
    assert name != "search" or ("FOUND" not in found["output"] and "looked at True" in found["output"])


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("way", ["private", "private, by a header", "without a password"])
def test_a_private_repository_is_cloned_with_a_secret_that_stays_outside(came, way):
    said = came[f"git, {way}"]["output"]
    assert said.lstrip().startswith("1\ncloned"), said
    assert SECRET not in said  # the clone's settings have the placeholder, if anything
    assert base64.b64encode(f"x-access-token:{SECRET}".encode()).decode() not in said


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_private_repository_is_pushed_to_and_one_without_the_secret_is_refused(came):
    said = came["git, pushed"]
    assert said["exit"] == 0, said["told"]
    pushed, _, _, here = said["output"].split()
    assert pushed == here or here in said["output"]
    assert "uthentication failed" in came["git, private, a wrong password"]["output"]


def test_no_memory_of_the_sandbox_holds_the_secret_while_the_program_uses_it(came):
    found = came["memory"]
    assert found["output"].strip() == "True"
    assert sum(found["hits"].values()) == 3
    memory = found["memory"]
    assert {"bwrap", "bash", "python3"} <= set(memory["processes"])
    assert memory["bytes"] > 10_000_000
    assert memory["unread"] == 0
    assert memory["marked"] >= 2  # the placeholder is there
    assert memory["found"] == []


def test_a_secret_that_a_program_is_given_is_found_in_its_memory(came):
    assert came["memory of a program that was given it"]["memory"]["found"] != []


@pytest.mark.parametrize(("name", "sent"), [("READS", "reads"), ("WRITES", "writes"), ("none", "reads")])
def test_of_two_secrets_for_a_host_the_one_that_the_program_names_is_sent(came, name, sent):
    assert came[f"two secrets, {name}"]["output"].split()[:2] == ["Bearer", sent]


def test_a_second_placeholder_in_the_header_of_the_first_does_not_go_out(came):
    assert "it holds the placeholder of WRITES" in came["two secrets, both"]["output"]
    assert came["two secrets, both"]["network"][0]["bytes_sent"] == 0


def test_where_a_person_answers_only_later_the_host_is_refused_and_the_result_says_what_to_do(came):
    assert came["answered later"]["hits"] == {}
    assert came["answered later"]["asked"] == ["https://asked.test"]
    assert "a person can answer only later" in came["answered later"]["told"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("placeholder elsewhere", "which is only for secret.test"),
        ("placeholder in a URL", "which is only for secret.test"),
        ("placeholder of another host", "the placeholder of STRANGE, which is only for elsewhere.test"),
        ("placeholder of another host, basic", "the placeholder of STRANGE, which is only for elsewhere.test"),
        ("placeholder in a body", "its body holds the placeholder"),
        ("placeholder in two chunks", "its body holds the placeholder"),
        ("trace", "TRACE is not forwarded"),
        ("trace, small", "TRACE is not forwarded"),
        ("connect inside", "CONNECT is not forwarded"),
        ("another target", "its target is not a path"),
        ("fronting", "its Host header does not name secret.test"),
    ],
)
def test_a_placeholder_elsewhere_is_refused_and_reported(came, name, why):
    assert why in came[name]["output"]
    assert why in came[name]["network"][0]["refused"]
    assert came[name]["network"][0]["bytes_received"] == 0


def test_a_long_body_goes_through_whole(came):
    assert int(came["body"]["output"]) > 300_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_usual_clients_work_with_tls_passed_and_with_tls_ended(tmp_path):
    found = _run_inside("program_clients", tmp_path)
    assert len(found) == 28
    assert [one for one in found if one["came"] not in ("works", "not installed")] == []
    assert {"curl", "pip install", "urllib"} <= {one["name"] for one in found if one["came"] == "works"}


def test_names_are_answered_here_and_asked_nowhere():
    question = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\x04evil\x04test\0"
    assert answer_name(question + b"\0\1\0\1") == b"\x12\x34\x81\x80\0\1\0\1\0\0\0\0" + question[12:] + (
        b"\0\1\0\1\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x7f\0\0\1"
    )
    no_ipv6 = answer_name(question + b"\0\x1c\0\1")
    assert no_ipv6 is not None
    assert no_ipv6[6:8] == b"\0\0"


@pytest.mark.parametrize("noise", [b"", b"\0" * 12, b"\xff" * 40, b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1"])
def test_noise_instead_of_a_question_is_not_answered(noise):
    assert answer_name(noise) is None


@pytest.mark.parametrize(
    "noise", [b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 70_000]
)
def test_what_is_no_tls_greeting_names_nobody(noise):
    assert not read_server_name(noise)


PLACEHOLDER = ProgramSecret(lambda: "", ("x.test",)).placeholder


def test_a_value_is_covered_however_an_answer_is_cut():
    text = b"before the-secret-value after the-secret-value"
    for size in range(1, len(text)):
        changer = ValueCover([("the-secret-value", PLACEHOLDER)])
        pieces = [changer.change(text[at : at + size]) for at in range(0, len(text), size)]
        whole = b"".join([*pieces, changer.change(b"", last=True)])
        assert len(whole) == len(text)
        assert b"secret-value" not in whole
        assert whole.startswith(b"before forge-")
        assert b" after forge-" in whole


def test_base64_of_a_value_is_covered_at_any_place():
    value = "a-long-enough-secret-value"
    changer = ValueCover([(value, PLACEHOLDER)])
    for before in range(6):
        coded = base64.b64encode(b"x" * before + value.encode() + b"yz")
        assert value[3:-3].encode() not in base64.b64decode(changer.change_whole(coded).replace(b"-", b"+"))


@pytest.mark.parametrize(
    "spell",
    [
        lambda value: "".join(f"%{ord(one):02x}" if not one.isalnum() else one for one in value),
        lambda value: "".join(f"%{ord(one):02X}" for one in value),
        lambda value: quote(value, safe="").lower(),
        lambda value: value.encode().hex(),
        lambda value: value.encode().hex().upper(),
        lambda value: json.dumps(value),
        lambda value: html.escape(value),
        lambda value: base64.urlsafe_b64encode(b"me:" + value.encode()).decode(),
        lambda value: "".join(f"\\u{ord(one):04X}" if one in "<>&'+=" else one for one in json.dumps(value)[1:-1]),
        lambda value: json.dumps(json.dumps(value)),
        lambda value: "".join(one if one.isalnum() else f"\\x{ord(one):02x}" for one in value),
        lambda value: html.escape(value).replace("+", "&#43;").replace("&quot;", "&#34;"),
        lambda value: html.escape(value).replace("/", "&#x2F;").replace("=", "&#x3D;"),
        lambda value: value.translate({ord("/"): "&sol;", ord("+"): "&plus;", ord("="): "&equals;"}),
        lambda value: "".join(f"={ord(one):02X}" if one in "=&" else one for one in value),
        lambda value: base64.b64encode(value.encode()).decode().replace("/", "\\/").replace("+", "\\u002b"),
        str.upper,
        str.lower,
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_usual_spellings_of_a_value_are_covered(spell, size):
    value = 'a>>>b???c"d\\e&long+enough/value=='
    changer = ValueCover([(value, PLACEHOLDER)])
    text = f"before {spell(value)} after".encode()
    changed = b"".join(changer.change(text[at : at + size]) for at in range(0, len(text), size))
    changed += changer.change(b"", last=True)
    assert b"forge-" in changed
    assert b"ong" not in changed[10:-6].lower().replace(PLACEHOLDER.lower().encode(), b"")
    assert len(changed) == len(text)
    assert changer.change_whole(b"before a>>>b and after") == b"before a>>>b and after"


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_a_value_in_wide_characters_is_covered(coding):
    text = "before the-secret-value after".encode(coding)
    changed = ValueCover([("the-secret-value", PLACEHOLDER)]).change_whole(text)
    assert len(changed) == len(text)
    assert b"s" not in changed.replace(b"\0", b"").partition(b"before ")[2].partition(b"forge-")[0]
    assert b"secret" not in changed.replace(b"\0", b"")
    assert changed.replace(b"\0", b"").endswith(b" after")


def test_a_piece_that_holds_no_beginning_of_a_value_is_passed_on_at_once():
    changer = ValueCover([("the-secret", "forge-0000")])
    assert changer.change(b"data: 1\n\n") == b"data: 1\n\n"
    assert changer.change(b"data: the-se") == b"data: "
    assert changer.change(b"cret") == b"forge-0000"
    assert changer.change(b"the-se") == b""
    assert changer.change(b"nse") == b"the-sense"
    for said in (b"100%\n", b"a=b&c=d\n\n", b'{"a": "b\\n"}', b"x = 1", b"the\n"):
        assert changer.change(said) == said


@contextmanager
def _serving(judge, egress: Egress | None = None) -> Iterator[tuple[ProgramProxy, int, int]]:
    """A proxy that listens here: itself, its port, and that for clients that know none. Needs a running loop."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in listening]
    proxy = ProgramProxy(judge, egress or Egress())
    proxy.take([one.detach() for one in (*listening, names)])
    try:
        yield proxy, ports[0], ports[1]
    finally:
        proxy.close()


@pytest.mark.parametrize("pause", [0, 1, 2, 5])
async def test_a_proxy_that_is_closed_while_it_begins_closes_its_sockets(pause):
    async def judge(url: str) -> str:
        return "not that one"

    for _ in range(20):
        with _serving(judge):
            for _ in range(pause):
                await asyncio.sleep(0)
    with _serving(judge) as (_, port, _):  # when this one answers, those before it have ended
        assert "not that one" in await asyncio.to_thread(_ask_for, "one.example", port)


def _ask_for(host: str, port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return client.recv(4_096).decode()


async def test_the_time_of_several_questions_at_once_counts_once():
    answered, asked = asyncio.Event(), asyncio.Semaphore(0)

    async def judge(url: str) -> str:
        asked.release()
        await answered.wait()
        return "not that one"

    began = time.monotonic()
    with _serving(judge) as (proxy, port, _):
        asking = [asyncio.create_task(asyncio.to_thread(_ask_for, f"h{one}.example", port)) for one in range(4)]
        for _ in asking:
            await asked.acquire()
        assert proxy.waited == math.inf
        answered.set()
        assert all("not that one" in one for one in await asyncio.gather(*asking))
        assert 0 < proxy.waited <= time.monotonic() - began


def test_a_program_that_outlives_the_loop_of_its_judge_is_refused_and_not_kept_waiting():
    async def judge(url: str) -> str:
        return "by the judge"

    async def serve() -> tuple[Any, str]:
        serving = _serving(judge)
        _, port, _ = entered = serving.__enter__()
        return (serving, entered), await asyncio.to_thread(_ask_for, "one.example", port)

    (serving, (proxy, port, _)), told = asyncio.run(serve())
    try:
        assert "by the judge" in told
        assert "no one can be asked any more" in _ask_for("two.example", port)
        assert proxy.waited < math.inf
        assert [one["host"] for one in proxy.report()] == ["one.example", "two.example"]
    finally:
        serving.__exit__(None, None, None)


async def test_a_question_outlives_its_client_and_not_its_program():
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def judge(url: str) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return ""

    with _serving(judge) as (proxy, port, _):
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.sendall(b"CONNECT one.example:443 HTTP/1.1\r\nHost: one.example\r\n\r\n")
            await asked.wait()
        assert proxy.waited == math.inf
        assert not given_up.is_set()
    async with asyncio.timeout(20):
        await given_up.wait()


async def test_a_greeting_may_come_in_pieces_and_half_a_greeting_is_not_waited_for():
    judged: asyncio.Queue[str] = asyncio.Queue()

    async def judge(url: str) -> str:
        judged.put_nowait(url)
        return "no"

    written = ssl.MemoryBIO()
    greeting = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), written, server_hostname="whole.example")
    with pytest.raises(ssl.SSLWantReadError):
        greeting.do_handshake()
    said = written.read()

    def greet(*pieces: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                return client.recv(100)
        return b""

    with _serving(judge) as (proxy, _, port):
        assert await asyncio.to_thread(greet, said[:1], said[1:50], said[50:]) == b""
        assert await judged.get() == "https://whole.example"
        assert await asyncio.to_thread(greet, said[:50]) == b""
        assert "without a name" in proxy.report()[-1]["refused"]


HERE = Egress(private=("localhost", "127.0.0.1"))


async def _yes(url: str) -> str:
    return ""


def _tunnel(port: int, through: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", through), 20)
    client.sendall(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert b" 200 " in client.recv(4_096)
    return client


def _greeting(name: str) -> bytes:
    written = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), written, server_hostname=name).do_handshake()
    return written.read()


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize("between", [b"", b"\x14\x03\x03\0\1\1", b"\x17\x03\x03\0\3xyz"])
async def test_a_second_greeting_that_names_another_host_does_not_go_out(between, size):
    """A server may ask for another greeting; a client need not wait for that, and may cut it into small records."""
    message = _greeting("evil.example")[5:]
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    second = b"".join(b"\x16\x03\x03" + len(one).to_bytes(2) + one for one in parts)
    came = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            came.extend(piece)
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with _serving(_yes, HERE) as (proxy, through, _):

            def send() -> bytes:
                with _tunnel(port, through) as client:
                    client.sendall(_greeting("localhost") + between)
                    client.sendall(second)
                    with suppress(ConnectionResetError):
                        return client.recv(100)
                return b""

            assert await asyncio.to_thread(send) == b""
            assert 'names another host ("evil.example")' in proxy.report()[0]["refused"]
    assert second not in bytes(came)


async def test_a_name_in_a_greeting_is_shown_without_control_characters():
    ended = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with _serving(_yes, HERE) as (proxy, through, _):

            def send() -> None:
                with _tunnel(port, through) as client, suppress(ConnectionResetError):
                    client.sendall(_greeting("evil0example").replace(b"evil0", b"evi\x1b\n"))
                    client.recv(100)

            await asyncio.to_thread(send)
            await ended.wait()
            assert proxy.report()[0]["refused"].endswith('names another host ("evi\\u001b\\nexample")')


async def test_a_second_greeting_that_a_server_asked_for_goes_through(tmp_path):
    authority = make_authority(tmp_path)
    context = authority.certify("DNS:localhost")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_ecdh_curve("secp521r1")  # clients guess another one, and have to greet again

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(300_000))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with _serving(_yes, HERE) as (proxy, through, _):

            def ask() -> int:
                trusting = ssl.create_default_context(cafile=str(authority.file))
                with trusting.wrap_socket(_tunnel(port, through), server_hostname="localhost") as client:
                    client.sendall(bytes(300_000))
                    return sum(iter(lambda: len(client.recv(65_536)), 0))

            assert await asyncio.to_thread(ask) == 300_000
            assert "refused" not in proxy.report()[0]


async def test_an_answer_without_end_ends_with_the_bytes_of_a_program(monkeypatch):
    monkeypatch.setattr("forge.network.program_proxy.MOST_BYTES", 3_000_000)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(bytes(65_536))
                await writer.drain()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with _serving(_yes, HERE) as (proxy, through, _):

            def ask() -> int:
                with socket.create_connection(("127.0.0.1", through), 20) as client:
                    client.sendall(f"GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
                    with suppress(ConnectionResetError):
                        return sum(iter(lambda: len(client.recv(65_536)), 0))
                return 0

            assert await asyncio.to_thread(ask) <= 3_000_000
            assert "more than 3,000,000 bytes" in proxy.report()[0]["refused"]


async def test_the_connections_of_all_programs_leave_files_for_other_work(monkeypatch):
    """A server that never ends its side, as here, does not hold one for long after its client has gone."""
    monkeypatch.setattr(program_proxy, "ENDED_SECONDS", 0.2)
    few, held = asyncio.Semaphore(3), list[asyncio.StreamWriter]()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    monkeypatch.setattr(program_proxy, "_all_connections", lambda process: few)
    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with _serving(_yes, HERE) as (_, through, _), _serving(_yes, HERE) as (_, other, _):

            def ask() -> None:
                served = [_tunnel(port, one) for one in (through, through, other)]
                with socket.create_connection(("127.0.0.1", other), 20) as late:
                    late.sendall(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    late.settimeout(0.3)
                    with pytest.raises(TimeoutError):
                        late.recv(4_096)
                    late.settimeout(60)
                    served[0].close()
                    assert b" 200 " in late.recv(4_096)
                    for one in served:
                        one.close()

            await asyncio.to_thread(ask)
        for one in held:
            one.close()


async def test_a_secret_that_takes_a_while_is_read_once_for_all_requests_that_wait():
    """Otherwise a program whose secret hangs would use up the threads with which others resolve names."""
    asked, begun, answered = list[int](), threading.Event(), threading.Event()

    def read() -> str:
        asked.append(1)
        begun.set()
        assert answered.wait(60)
        return "the value"

    secret = ProgramSecret(read, ("x.test",))
    reader = SecretReader([secret])
    gone = asyncio.create_task(reader.read(secret))
    waiting = [asyncio.create_task(reader.read(secret)) for _ in range(100)]
    assert await asyncio.to_thread(begun.wait, 60)
    gone.cancel()  # its client has ended
    assert await asyncio.to_thread(lambda: "others work") == "others work"
    answered.set()
    assert await asyncio.gather(*waiting) == ["the value"] * 100
    assert asked == [1]
    assert await reader.read(secret) == "the value"  # and again for later ones
    assert asked == [1, 1]


def test_the_certificates_of_a_long_session_stay_valid(monkeypatch):
    if not is_installed("secrets"):
        pytest.skip("NOT TESTED: needs the extra secrets")
    from cryptography import x509

    from forge.network import session_authority

    def greet() -> x509.Certificate:
        """Greets the proxy as a program does; returns the certificate of the host."""
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE  # OpenSSL has a clock of its own
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting.wrap_bio(to_client, to_server, server_hostname="long.example")
        server = session_authority.find_context("long.example").wrap_bio(to_server, to_client, server_side=True)
        for side in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        return x509.load_der_x509_certificate(client.getpeercert(binary_form=True) or b"")

    last = session_authority.trust_bundle().rpartition(b"-----BEGIN")  # the process's own
    authority = x509.load_pem_x509_certificate(b"".join(last[1:]))
    now = session_authority._now()
    numbers = set()
    for days in (0, 1, 50, 400, 3_000):
        later = now + timedelta(days=days)
        monkeypatch.setattr(session_authority, "_now", lambda later=later: later)
        found = greet()
        numbers.add(found.serial_number)
        found.verify_directly_issued_by(authority)
        for one in (found, authority):
            assert one.not_valid_before_utc < later < one.not_valid_after_utc - timedelta(days=7)
    assert 4 <= len(numbers) <= 5  # some are used again


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_ten_thousand_connections_leave_nothing_behind():
    greeting = _greeting("localhost")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(b"5" + await reader.readexactly(len(greeting)))
            await writer.drain()
        writer.close()

    def ask(times: int) -> None:
        for _ in range(times):
            with _tunnel(port, through) as client:
                client.sendall(greeting)
                while client.recv(65_536):
                    pass

    def measure() -> tuple[int, int]:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4, len(os.listdir("/proc/self/fd"))

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with _serving(_yes, HERE) as (proxy, through, _):
            await asyncio.to_thread(ask, 1_000)
            kib, files = measure()
            await asyncio.to_thread(ask, 10_000)
            kib_after, files_after = measure()
            (reached,) = proxy.report()
            assert reached["connections"] == 11_000
            assert kib_after - kib < 8 * 1024
            assert files_after <= files + 8


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_ten_thousand_connections_whose_tls_is_ended_leave_nothing_behind(tmp_path):
    if not is_installed("secrets"):
        pytest.skip("NOT TESTED: needs the extra secrets")
    authority = make_authority(tmp_path)
    trusted = {"FORGE_TRUST_ENV": "1", "SSL_CERT_FILE": str(authority.file)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.network.ended_connections", str(tmp_path), "1000", "10000"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1]), **trusted},
        capture_output=True,
        text=True,
        timeout=1_100,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    first, last = said["measured"]
    assert said["connections"] == 11_000
    assert last["kib"] - first["kib"] < 8 * 1024
    assert last["files"] <= first["files"] + 8
    assert last["tasks"] <= 3  # it serves, and accepts in two tasks


@pytest.mark.parametrize(
    "head",
    [
        f"CONNECT a.example:{'9' * 6_000} HTTP/1.1\r\nHost: a.example\r\n\r\n",
        f"GET http://a.example:{'9' * 6_000}/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ],
)
async def test_a_request_for_no_server_is_answered_in_words(head):
    with _serving(_yes) as (proxy, port, _):
        said = await asyncio.to_thread(_say, head, port)
        assert said.startswith("HTTP/1.1 400 ")
        assert "Forge: " in said
        assert proxy.report() == []


async def test_a_refused_connection_is_closed_and_says_so():
    async def judge(url: str) -> str:
        return "not that one"

    with _serving(judge) as (_, port, _):
        for head in ("CONNECT a.example:443", "GET http://a.example/"):
            said = await asyncio.to_thread(_say, f"{head} HTTP/1.1\r\nHost: a.example\r\n\r\n", port)
            assert said.startswith("HTTP/1.1 403 ")
            assert "connection: close" in said.lower()


def _say(head: str, port: int) -> str:
    """Returns all that comes back until the proxy closes the connection."""
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(head.encode())
        return b"".join(iter(lambda: client.recv(65_536), b"")).decode()


def test_the_trusted_authorities_are_found_with_the_packages_of_the_extra_alone():
    code = "import sys; sys.modules['certifi'] = None; from forge.network.session_authority import trust_bundle; "
    code += "print(trust_bundle().count(b'BEGIN CERTIFICATE'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) >= 1, done.stderr
