"""In a network of its own, with an attacker's name server: nothing private is reached, not even once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forge
from tests.network.authority import make_authority
from tests.network.inside_namespace import HOSTILE, OTHER, PUBLIC, SIX, UNPREPARED

ROOT = Path(__file__).parents[2]
UNSHARE = ["unshare", "--net", "--mount", "--propagation", "private"]


@pytest.fixture(scope="module")
def came(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """What came of every scenario; they run once, in a child."""
    if not all(map(shutil.which, ("unshare", "ip", "mount"))) or _fails(*UNSHARE, "true"):
        pytest.skip("NOT TESTED: needs a network namespace of its own (root, unshare and ip, on Linux)")
    directory = tmp_path_factory.mktemp("namespace")
    authority = make_authority(directory)
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-W", "error", "-m", "tests.network.inside_namespace", str(directory)],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(forge.__file__).parents[1]),
            "FORGE_TRUST_ENV": "1",
            "SSL_CERT_FILE": str(authority.file),
        },
        capture_output=True,
        text=True,
        timeout=50,
    )
    if done.stderr.startswith(UNPREPARED):
        pytest.skip(f"NOT TESTED: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}


def _fails(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode != 0


def test_a_public_name_is_resolved_once_and_asked_by_its_name(came):
    found = came["a public name"]
    assert (found["came"], found["hits"]) == (["200"], {PUBLIC: 1})
    assert (found["questions"], found["hosts"]) == ({"plain.test": 1}, ["plain.test"])
    assert came["a public name with IPv6"]["hits"] == {SIX: 1}


def test_the_next_address_is_tried_where_the_first_is_dead(came):
    assert came["a dead address first"]["came"] == ["200"]
    assert came["a dead address first"]["hits"] == {PUBLIC: 1}


def test_https_goes_to_the_judged_address_with_the_name_of_the_host(came):
    found = came["https"]
    assert (found["came"], found["hits"]) == (["200"], {OTHER: 1})
    assert (found["named"], found["hosts"]) == (["tls.test"], ["tls.test"])


@pytest.mark.parametrize("name", ["rebind", "rebind-to-metadata", "rebind-tls"])
def test_a_name_that_changes_its_address_reaches_the_judged_one_only(came, name):
    found = came[name]
    assert found["came"][0] == "200"
    assert "security_error" in found["came"][1]
    assert found["hits"] == {PUBLIC: 1}
    assert found["questions"] == {f"{name}.test": 2}  # once a connection


@pytest.mark.parametrize("name", ["hostile", "redirected"])
def test_no_private_server_is_reached_by_any_name_address_or_spelling(came, name):
    found = came[name]
    assert set(found["hits"]) <= {PUBLIC}
    assert found["hits"].get(PUBLIC, 0) == (len(HOSTILE) if name == "redirected" else 0)
    assert len(found["came"]) == len(HOSTILE)
    for url, one in zip(HOSTILE, found["came"], strict=True):
        assert one.startswith("security_error"), (url, one)


def test_a_redirect_to_a_public_server_is_followed(came):
    found = came["redirected to a public address"]
    assert set(found["hits"]) == {PUBLIC, OTHER}


def test_metadata_is_not_reached_even_where_its_range_is_allowed(came):
    assert came["allowed ranges"]["came"] == ["200", "200"]
    assert came["allowed ranges"]["hits"] == {"10.0.0.1": 1, "169.254.1.1": 1}
    assert came["allowed ranges and metadata"]["hits"] == {}
    assert all("credentials" in one for one in came["allowed ranges and metadata"]["came"])


def test_a_private_name_can_be_allowed_and_opens_nothing_else(came):
    assert came["an allowed private name"]["hits"] == {"10.0.0.1": 1}
    assert came["other names in an allowlist"]["hits"] == {}
    assert came["other names in an allowlist"]["questions"] == {}  # refused before anybody is asked


def test_the_environment_s_proxy_is_not_asked(came):
    found = came["the environment's proxy"]
    assert (found["came"], found["hits"]) == (["200"], {PUBLIC: 1})
