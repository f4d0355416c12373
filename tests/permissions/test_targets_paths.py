"""Path rules hold however the path is spelled, and wherever links lead."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.permissions.policy import rules
from tests.permissions.judging import NOWHERE, decide

KEEP_OUT = ["allow write", "deny write secrets/**"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("secrets/deep", "src", "other"):
        (tmp_path / "project" / folder).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src/**", "src/a.py", True),
        ("src/**", "src/deep/er/a.py", True),
        ("src/**", "src", True),
        ("src/**", "srcs/a.py", False),
        ("src/**", "lib/src/a.py", False),
        ("src/*", "src/a.py", True),
        ("src/*", "src/deep/a.py", False),
        ("src/", "src/deep/a.py", True),
        ("src/a.py", "src/a.py", True),
        ("src/a.py", "src/a.pyc", False),
        ("src/?.py", "src/a.py", True),
        ("src/[ab].py", "src/b.py", True),
        ("src/[ab].py", "src/c.py", False),
        ("**/.env", ".env", True),
        ("**/.env", "a/b/.env", True),
        ("**/.env", "a/b.env", False),
        ("**/test/**/x", "a/test/b/c/x", True),
        ("**", "anything/at/all", True),
        ("*", "anything/at/all", True),
        (".", ".", True),
        (".", "a", False),
        ("/etc/**", "/etc/passwd", True),
        ("/etc/**", "etc/passwd", False),
        ("../lib/**", "../lib/a", True),
        ("../lib/**", "lib/a", False),
        ("**", "/etc/passwd", False),
        ("**", "../x", False),
        (f"{NOWHERE}/src/**", "src/a", True),
    ],
)
def test_patterns_allow_exactly_what_they_say(pattern, path, matches):
    assert decide([f"allow write {pattern}"], "write", path) == ("allow" if matches else "ask")


@pytest.mark.parametrize(
    "path",
    [
        "secrets/key",
        "./secrets/key",
        "secrets//key",
        "secrets/./key",
        "secrets/deep/../key",
        "./secrets/../secrets/key",
        "src/../secrets/key",
        "secrets/key/",
        "secrets",
        "secrets/",
        "SECRETS/key",
        "Secrets/Key",
        "sec\u200brets/key",
        "se\u00adcrets/key",
        "../project/secrets/key",
        "../../nowhere/project/secrets/key",
        f"{NOWHERE}/secrets/key",
        f"/{NOWHERE}/secrets/key",
        f"//{NOWHERE}//secrets/key",
        "secrets/\x00",
        "x/" * 3_000 + "secrets",
    ],
)
def test_no_spelling_gets_around_a_deny(path):
    assert decide(KEEP_OUT, "write", path) == "deny"


@pytest.mark.parametrize(
    "path", ["src/a", "secrets2/key", "src/secrets/key", "my-secrets", "secrets.txt", "/etc/secrets/a"]
)
def test_what_only_resembles_it_is_not_denied(path):
    assert decide(KEEP_OUT, "write", path) == "allow"


def test_composed_and_decomposed_letters_are_the_same_to_a_deny():
    for written in ("NFC", "NFD"):
        for sent in ("NFC", "NFD"):
            rule = "deny write " + unicodedata.normalize(written, "café/**")
            assert decide(["allow write", rule], "write", unicodedata.normalize(sent, "café/x")) == "deny"
    assert decide(["allow write", "deny write café/**"], "write", "cafe/x") == "allow"


def test_an_allow_takes_names_exactly():
    assert decide(["allow write src/**"], "write", "SRC/a") == "ask"
    assert decide(["allow write café"], "write", unicodedata.normalize("NFD", "café")) == "ask"
    assert decide(["allow write src/**"], "write", "src/a") == "allow"


def test_a_later_ask_softens_a_deny_where_it_matches():
    lines = ["deny write secrets/**", "ask write secrets/drafts/**"]
    assert decide(lines, "write", "secrets/drafts/a") == "ask"
    assert decide(lines, "write", "secrets/key") == "deny"


def test_a_denied_name_covers_what_is_inside_it():
    assert decide(["allow write", "deny write secrets"], "write", "secrets/a/b") == "deny"
    assert decide(["allow write", "deny write secrets"], "write", "secretsX") == "allow"
    assert decide(["allow write secrets"], "write", "secrets/a/b") == "ask"
    assert decide(["allow write secrets"], "write", "secrets") == "allow"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("sec*", "secret"),
        ("sec*", "secret/f"),
        ("sec*", "a/secret/b/f"),
        ("secret/*", "secret/a"),
        ("secret/*", "secret/a/b"),
        ("secret/?", "secret/a/b/c"),
        ("secret/[ab]", "secret/a/b"),
        (".env", ".env"),
        (".env", "sub/.env"),
        (".env", "sub/.ENV"),
        (".env", "sub/.env/x"),
        (".env", "/elsewhere/.env"),
        (".env", "../.env"),
        ("*.key", "x.key"),
        ("*.key", "sub/deep/x.key"),
        ("build/", "sub/build/x"),
        ("build", "sub/build/x"),
        ("/etc/*", "/etc/a/b"),
        ("/", "/etc/a"),
    ],
)
def test_a_deny_or_an_ask_covers_any_depth_and_what_is_inside(pattern, path):
    assert decide(["allow read", f"deny read {pattern}"], "read", path) == "deny"
    assert decide(["allow read", f"ask read {pattern}"], "read", path) == "ask"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("sec*", "a/asec"),
        ("secret/*", "secrets/a"),
        ("secret/*", "secret"),
        ("secret/*", "a/secret/b"),
        (".env", "sub/.envrc"),
        (".env", "env"),
        ("*.key", "x.keys"),
        ("./build", "sub/build"),
        (".", "/elsewhere/x"),
        ("project", "src/a"),
        ("nowhere", "src/a"),
        ("/etc/*", "etc/a"),
    ],
)
def test_a_deny_does_not_cover_more(pattern, path):
    assert decide(["allow read", f"deny read {pattern}"], "read", path) == "allow"


def test_an_allow_covers_one_depth_only():
    for pattern, path in (
        ("*.key", "sub/x.key"),
        (".env", "sub/.env"),
        ("secret/*", "secret/a/b"),
        ("sec*", "secret/f"),
    ):
        assert decide([f"allow write {pattern}"], "write", path) == "ask"
    for pattern, path in (("*.key", "x.key"), (".env", ".env"), ("secret/*", "secret/a"), ("sec*", "secret")):
        assert decide([f"allow write {pattern}"], "write", path) == "allow"


def test_an_ask_at_any_depth_does_not_soften_a_deny():
    lines = ["allow write", "deny write secrets/**", "ask write drafts"]
    assert decide(lines, "write", "secrets/drafts/a") == "deny"
    assert decide(lines, "write", "src/drafts/a") == "ask"
    assert decide([*lines, "ask write secrets/drafts"], "write", "secrets/drafts/a") == "ask"


def test_a_deny_anywhere_reaches_outside_the_workspace_too():
    assert decide(["deny read **/.env"], "read", "/other/project/.env") == "deny"
    assert decide(["deny read **/.env"], "read", "/other/project/env") == "allow"


def test_a_link_into_a_denied_folder_is_denied(project):
    (project / "src" / "link").symlink_to(project / "secrets")
    (project / "src" / "relative").symlink_to("../secrets/deep")
    (project / "src" / "chain").symlink_to("link")
    (project / "src" / "fine").symlink_to("../other")
    for path in ("src/link/key", "src/relative/key", "src/chain/key", "src/link", "src/link/new/file"):
        assert decide(KEEP_OUT, "write", path, workspace=project) == "deny"
    assert decide(KEEP_OUT, "write", "src/fine/key", workspace=project) == "allow"


def test_dot_dot_behind_a_link_is_taken_both_ways(project):
    (project / "link").symlink_to("secrets/deep")
    assert decide(KEEP_OUT, "write", "link/../key", workspace=project) == "deny"
    (project / "harmless").symlink_to("src")
    assert decide(KEEP_OUT, "write", "harmless/../key", workspace=project) == "allow"


def test_a_denied_folder_that_is_itself_a_link_denies_where_it_leads(project):
    (project / "vault").symlink_to("other")
    lines = ["allow write", "deny write vault/**"]
    assert decide(lines, "write", "vault/key", workspace=project) == "deny"
    assert decide(lines, "write", "other/key", workspace=project) == "deny"
    assert decide(lines, "write", "src/key", workspace=project) == "allow"


def test_a_link_out_of_an_allowed_folder_is_not_allowed(project):
    (project / "src" / "out").symlink_to(project.parent / "outside")
    lines = ["allow write src/**"]
    assert decide(lines, "write", "src/out/x", workspace=project) == "ask"
    assert decide(lines, "write", "src/in/x", workspace=project) == "allow"
    (project / "build").symlink_to("/etc")
    assert decide(["allow write build/**"], "write", "build/passwd", workspace=project) == "ask"


def test_a_link_made_later_counts(project):
    policy = rules(*KEEP_OUT)
    assert decide(policy, "write", "src/link/key", workspace=project) == "allow"
    (project / "src" / "link").symlink_to("../secrets")
    assert decide(policy, "write", "src/link/key", workspace=project) == "deny"


def test_a_loop_of_links_is_judged(project):
    (project / "a").symlink_to("b")
    (project / "b").symlink_to("a")
    assert decide(KEEP_OUT, "write", "a/x", workspace=project) == "allow"
    assert decide(["deny write a/**"], "write", "a/x", workspace=project) == "deny"


def test_the_way_over_proc_leads_to_the_same_place(project, monkeypatch):
    if not os.path.exists("/proc/self/cwd"):
        pytest.skip("needs /proc")
    monkeypatch.chdir(project)
    assert decide(KEEP_OUT, "write", "/proc/self/cwd/secrets/key", workspace=project) == "deny"
    assert decide(KEEP_OUT, "write", f"/proc/self/root{project}/secrets/key", workspace=project) == "deny"
    assert decide(KEEP_OUT, "write", "/proc/self/cwd/src/key", workspace=project) == "allow"


def test_a_workspace_behind_a_link_is_one_workspace(project):
    alias = project.parent / "alias"
    alias.symlink_to(project)
    for path in ("src/a", f"{alias}/src/a", f"{project}/src/a"):
        assert decide(["allow write src/**"], "write", path, workspace=alias) == "allow"
    for workspace in (alias, project):
        for path in ("secrets/a", f"{alias}/secrets/a", f"{project}/secrets/a"):
            assert decide(KEEP_OUT, "write", path, workspace=workspace) == "deny"
    assert decide(["allow write src/**"], "write", f"{alias}/src/a", workspace=project) == "ask"


def test_wildcards_in_the_name_of_the_workspace_mean_nothing(tmp_path):
    workspace = tmp_path / "a[bc]*"
    workspace.mkdir()
    assert decide(["allow write src/**"], "write", "src/a", workspace=workspace) == "allow"
    assert decide(["allow write src/**"], "write", str(tmp_path / "ab" / "src" / "a"), workspace=workspace) == "ask"


def test_the_home_directory_has_two_spellings(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for pattern in ("~/.ssh/**", f"{tmp_path}/.ssh/**"):
        for path in ("~/.ssh/id", f"{tmp_path}/.ssh/id"):
            assert decide([f"deny read {pattern}"], "read", path) == "deny"
    assert decide(["deny read ~/.ssh/**"], "read", "~/notes") == "allow"
    assert decide(["deny read ~/.ssh/**"], "read", "~") == "allow"


@pytest.mark.parametrize("path", ["\ud800/x", "a\x00b", "x" * 300, "/" * 100, "..", "../" * 100])
def test_an_impossible_path_is_judged_without_an_accident(path):
    assert decide(KEEP_OUT, "write", path) in ("allow", "deny")
    assert decide(["deny write"], "write", path) == "deny"


@given(
    st.lists(st.sampled_from(["secrets", "src", "..", ".", "", "deep", "SECRETS"]), max_size=8),
    st.sampled_from(["", "/", "./", f"{NOWHERE}/", f"{NOWHERE}/../project/"]),
)
def test_what_normalises_into_the_denied_folder_is_denied(names, start):
    path = start + "/".join(names)
    place = os.path.normpath(os.path.join(NOWHERE, path)).lower().replace("//", "/")
    inside = place == f"{NOWHERE}/secrets" or place.startswith(f"{NOWHERE}/secrets/")
    assert decide(KEEP_OUT, "write", path or ".") == ("deny" if inside else "allow")
