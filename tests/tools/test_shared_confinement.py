"""What is said of the sandbox when a program fails that cannot know of it."""

from __future__ import annotations

import time

import pytest

from forge.process.sandbox.layout import Confinement, find_hidden
from forge.tools.shared.confinement import find_hints

NO_NETWORK = [
    "curl: (6) Could not resolve host: example.com",
    "ssh: Could not resolve hostname github.com: Temporary failure in name resolution",
    "fatal: unable to access 'https://example.com/': Could not resolve host: example.com",
    "npm error code EAI_AGAIN",
    "socket.gaierror: [Errno -2] Name or service not known",
    "dial tcp: lookup proxy.example.org: no such host",
    "error: failed to lookup address information: Temporary failure",
    "connect: Network is unreachable",
    "ERROR: Could not find a version that satisfies the requirement requests (from versions: none)",
]


@pytest.mark.parametrize("said", NO_NETWORK)
@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_that_there_is_no_network_is_said(said, sandbox):
    (found,) = find_hints(f"first\n{said}\n", sandbox, network=False)
    assert "no network" in found
    assert "`allow network`" in found
    assert ("rules about single hosts" in found) is (sandbox == "landlock")


@pytest.mark.parametrize("said", NO_NETWORK)
def test_where_there_is_one_it_is_not(said):
    assert find_hints(said, "bubblewrap", network=True) == []
    assert find_hints(said, "none", network=False) == []


def test_a_server_of_another_command_is_out_of_reach():
    said = "curl: (7) Failed to connect to localhost port 80 after 0 ms: Couldn't connect to server"
    assert "its own network" in find_hints(said, "bubblewrap", network=False)[0]
    assert "its own network" in find_hints("Connection refused", "bubblewrap", network=False, line="nc 127.0.0.1 80")[0]
    assert "no network" in find_hints(said, "landlock", network=False)[0]
    assert find_hints(said, "bubblewrap", network=True) == []
    assert find_hints("Connection refused by the bank", "bubblewrap", network=False) == []


def test_what_git_cannot_find_or_write_is_explained():
    assert "user.name" in find_hints("\n*** Please tell me who you are.\n", "landlock", network=False)[0]
    busy = "error: could not write config file .git/config: Device or resource busy"
    assert "read-only" in find_hints(busy, "bubblewrap", network=False)[0]
    assert find_hints("error: could not write file a.txt", "bubblewrap", network=False) == []


def test_only_the_end_of_much_output_is_looked_at():
    said = "Could not resolve host"
    assert find_hints(said + "\n" + "x" * 20_000, "bubblewrap", network=False) == []
    assert find_hints("x" * 20_000 + said, "bubblewrap", network=False) != []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        *(("curl -s https://example.com", 6), ("/usr/bin/curl -sS x -o y", 7), ("wget -q https://example.com", 4)),
        *(("curl -s https://example.com | jq .", 0), ("ssh -q example.com", 255), ("cd x && curl -fs y", 22)),
    ],
)
def test_a_program_that_fails_in_silence_gets_the_note_too(line, code):
    assert "no network" in find_hints("", "bubblewrap", network=False, line=line, exit_code=code)[0]
    assert find_hints("", "bubblewrap", network=True, line=line, exit_code=code) == []


@pytest.mark.parametrize(("line", "code"), [("curl -s x", 22), ("grep -q curl file", 1), ("false", 6), ("recurl x", 6)])
def test_another_failure_gets_no_note_about_the_network(line, code):
    said = "404 Not Found" if line.startswith("curl") else ""
    assert find_hints(said, "bubblewrap", network=False, line=line, exit_code=code) == []


def test_advice_about_the_loopback_fits_a_tool_without_a_shell():
    def advice(*, in_shell: bool) -> str:
        line = "curl -s http://localhost:8080/"
        return find_hints("", "bubblewrap", network=False, line=line, exit_code=7, in_shell=in_shell)[0]

    assert "server & sleep 1; client" in advice(in_shell=True)
    assert "&" not in advice(in_shell=False)
    assert "another call" in advice(in_shell=False)


def test_no_output_makes_the_search_for_hidden_paths_slow(tmp_path):
    confined = Confinement(workspace=tmp_path)
    began = time.process_time()
    for text in ("a" * 8_000 + "!", "-" * 8_000, "a.b-" * 2_000, "/a" * 4_000 + "//!"):
        find_hidden([text], confined, {}, tmp_path)
    assert time.process_time() - began < 5
    assert find_hidden(["cannot open /srv/x/y: gone"], confined, {}, tmp_path) == ["/srv/x/y"]
