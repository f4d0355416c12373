"""What is said of the sandbox when a program fails that cannot know of it."""

from __future__ import annotations

import pytest

from forge.tools.shell_parts.sandbox_hints import find_hints

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
