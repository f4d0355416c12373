"""Defaults < user < project < environment, under what the organisation fixes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forge.core.errors import ToolError
from forge.core.tool import Tool
from forge.permissions.policy import PolicyError
from forge.project.assemble.choose_tools import apply_settings, choose_tools
from forge.project.config import Configuration, load_configuration
from forge.project.config.merging import stricter_egress, stricter_sandbox
from forge.project.config_layers import rule_layers, user_file
from forge.project.effective_config import HIDDEN, effective_values, nest_values
from forge.workspace.state import data_file


class Places(NamedTuple):
    """Where each layer is written, and what is loaded from them."""

    folder: Path

    def load(self, *, resolve: bool = True, **variables: str) -> Configuration:
        environment = {"HOME": str(self.folder / "home"), **variables}
        organisation, project = self.folder / "policy.yaml", self.folder / "forge.yaml"
        return load_configuration(
            str(project) if project.exists() else None,
            environment=environment,
            organisation=str(organisation),
            resolve=resolve,
        )

    def user(self, text: str) -> Path:
        path = self.folder / "home/.config/forge/config.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    def project(self, text: str) -> None:
        (self.folder / "forge.yaml").write_text(text)

    def organisation(self, text: str) -> None:
        (self.folder / "policy.yaml").write_text(text)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_without_any_layer_nothing_is_said(places):
    assert places.load() == Configuration()


def test_a_project_says_more_than_the_user_and_the_environment_more_than_both(places):
    places.user("agent: {model: 'openai:user', prompt: Be brief.}\nlimits: {turns: 5, calls: 6}\n")
    assert places.load().agent.model == "openai:user"
    places.project("agent: {model: 'openai:project'}\nlimits: {turns: 9}\n")
    found = places.load()
    assert (found.agent.model, found.agent.prompt) == ("openai:project", "Be brief.")
    assert dict(found.agent.limits) == {"turns": 9, "calls": 6}
    found = places.load(FORGE_MODEL="openai:now", FORGE_TURNS="3")
    assert (found.agent.model, found.agent.limits["turns"]) == ("openai:now", 3)
    assert found.origins["agent.model"] == "environment variable FORGE_MODEL"


def test_a_variable_that_is_not_text_is_refused_by_its_name(places):
    with pytest.raises(ToolError, match="the environment variable FORGE_MODEL: half a surrogate pair") as refused:
        places.load(FORGE_MODEL="openai:\udc80")
    assert "unset FORGE_MODEL" in refused.value.suggestion
    assert places.load(FORGE_MODEL="openai:\xe9").agent.model == "openai:\xe9"


def test_named_things_of_both_are_there_and_the_project_wins_by_name(places):
    places.user("mcpServers: {a: {command: user}, b: {command: b}, c: {command: c}}\nsecrets: [MINE]\n")
    places.project("mcpServers: {a: {command: project}, c: {disabled: true}}\nsecrets: [YOURS, MINE]\n")
    found = places.load()
    assert {name: one.command for name, one in found.servers.items()} == {"a": ("project",), "b": ("b",)}
    assert found.secrets == ("YOURS", "MINE")


def test_what_is_relative_counts_from_the_file_that_says_it(places):
    user = places.user("openapi: {mine: spec.json}\nskills: {paths: skills}\nchannels: {f: {type: file, path: out}}\n")
    places.project("openapi: {yours: spec.json}\n")
    found = places.load()
    assert found.openapi["mine"].spec == str(user.parent / "spec.json")
    assert found.openapi["yours"].spec == str(places.folder / "spec.json")
    assert found.channels["f"].path == user.parent / "out"
    assert found.skills is not None
    assert found.skills.paths == (str(user.parent / "skills"),)


@pytest.mark.parametrize(
    ("user", "project", "holds"),
    [
        ("required", "off", "required"),
        ("required", "landlock", "required"),
        ("required", "bubblewrap", "bubblewrap"),
        ("off", "auto", "auto"),
        ("off", "off", "off"),
        ("auto", "off", "auto"),
    ],
)
def test_of_two_sandboxes_the_stricter_holds(places, user, project, holds):
    places.user(f"sandbox: {user}")
    places.project(f"sandbox: {project}")
    found = places.load()
    assert found.sandbox == holds
    assert bool(found.notes) is (holds != project)


@pytest.mark.parametrize(
    ("user", "project", "enabled"),
    [("on", "off", True), ("off", "on", True), ("off", "{}", False), ("{}", "off", False), ("{}", "{}", True)],
)
def test_only_the_user_and_the_organisation_can_keep_labels_on(places, user, project, enabled):
    places.user(f"labels: {user}")
    places.project(f"labels: {project}")
    assert places.load().labels.enabled is enabled
    places.organisation("labels: on")
    assert places.load().labels.enabled


def test_every_layer_adds_labels(places):
    places.user("labels: {private: ['path:notes/**']}")
    places.project("labels: {untrusted: ['tool:read_mail'], trusted: ['host:docs.example.com']}")
    found = places.load().labels
    assert (found.untrusted, found.trusted, found.private) == (
        ("tool:read_mail",),
        ("host:docs.example.com",),
        ("path:notes/**",),
    )
    assert found.settings.untrusted == ("tool:read_mail",)
    places.project("labels: {untrusted: [read_mail]}")
    with pytest.raises(ToolError, match=r"tool:GLOB, host:GLOB and path:GLOB"):
        places.load()


def test_the_persons_latest_word_counts_more_than_their_file_but_not_than_the_organisation(places):
    places.user("sandbox: required")
    places.project("sandbox: auto")
    assert places.load(FORGE_SANDBOX="off").sandbox == "off"
    places.organisation("sandbox: required")
    found = places.load(FORGE_SANDBOX="off")
    assert found.sandbox == "required"
    assert "organisation file" in found.origins["sandbox"]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"mode": "open"}, {"domains": ["a.com"]}, {"domains": ["a.com"]}),
        ({"domains": ["a.com"]}, {"mode": "open"}, {"domains": ["a.com"]}),
        ({"mode": "deny-all"}, {"domains": ["a.com"]}, {"mode": "deny-all"}),
        ({"domains": ["a.com", "b.com"]}, {"domains": ["b.com", "c.com"]}, {"mode": "allowlist", "domains": ["b.com"]}),
        ({"domains": ["*.a.com"]}, {"domains": ["x.a.com", "a.com"]}, {"mode": "allowlist", "domains": ["x.a.com"]}),
        ({"domains": ["x.a.com"]}, {"domains": ["*.a.com"]}, {"mode": "allowlist", "domains": ["x.a.com"]}),
        ({"domains": ["a.com"]}, {"domains": ["a.com:8"]}, {"mode": "allowlist", "domains": ["a.com:8"]}),
        ({"domains": ["a.com:9"]}, {"domains": ["a.com:8"]}, {"mode": "allowlist", "domains": []}),
        (
            {"domains": ["a.com"]},
            {"domains": ["a.com"], "private": ["10.0.0.1"]},
            {"mode": "allowlist", "domains": ["a.com"], "private": []},
        ),
        (
            {"mode": "open", "private": ["10.0.0.0/8"]},
            {"mode": "open", "private": ["10.1.2.3:80", "127.0.0.1"]},
            {"mode": "open", "private": ["10.1.2.3:80"]},
        ),
        ({"inspect": True}, {"domains": ["a.com"]}, {"domains": ["a.com"], "inspect": True, "pass": []}),
        (
            {"inspect": True, "pass": ["a.com"]},
            {"domains": ["a.com"], "pass": ["b.com"]},
            {"domains": ["a.com"], "inspect": True, "pass": ["a.com"]},
        ),
        (
            {"inspect": True, "pass": ["*.a.com"]},
            {"inspect": True, "pass": ["x.a.com", "b.com"]},
            {"inspect": True, "pass": ["x.a.com"]},
        ),
        (
            {"mode": "deny-all"},
            {"domains": ["a.com"], "inspect": True},
            {"mode": "deny-all", "inspect": True, "pass": []},
        ),
        ({"pass": ["a.com"]}, {"pass": ["b.com"]}, {"pass": ["a.com", "b.com"]}),
    ],
)
def test_of_two_egresses_what_both_allow_holds(one, other, both):
    assert stricter_egress(one, other) == both


def test_a_private_address_that_nobody_above_speaks_about_stays(places):
    places.user("egress: {mode: open}")
    places.project("egress: {private: ['127.0.0.1:8080']}")
    found = places.load().egress
    assert found is not None
    assert found.private == ("127.0.0.1:8080",)


def test_a_sandbox_is_named_as_people_write_it():
    assert stricter_sandbox(False, "auto") == "auto"
    assert stricter_sandbox(False, False) == "off"


def test_a_project_cannot_loosen_through_the_settings_of_a_tool(places):
    places.project("tools: [{name: bash, config: {sandbox: off, network: true, timeout: 5}}]")
    [free] = places.load().tools
    assert (free.config["sandbox"], free.config["network"]) == (False, True)
    places.user("sandbox: required\negress: {domains: [a.com]}\n")
    found = places.load()
    [entry] = found.tools
    assert dict(entry.config) == {"sandbox": "required", "network": False, "timeout": 5}
    assert any("bash" in note for note in found.notes)


def test_a_projects_own_list_of_tools_does_not_loosen_what_the_users_says_of_one(places):
    tight = "{sandbox: required, network: false, confirm: true}"
    places.user(f"tools: [{{name: bash, config: {tight}}}, {{name: 'web_*', config: {{confirm: true}}}}]")
    for project in (
        "[bash, web_fetch]",
        "[{name: '*', config: {confirm: false}}, {name: bash, config: {network: true}}]",
    ):
        places.project(f"sandbox: off\ntools: {project}")
        registry = choose_tools(places.load())
        bash: Any = registry["bash"]
        assert (bash.sandbox, bash.network, bash.spec.confirm) == ("required", False, True)
        assert registry["web_fetch"].spec.confirm
    places.user("tools: [{name: bash, config: {network: true}}]")
    places.project("tools: [{name: bash, config: {network: true, sandbox: off}}, file_write]")
    registry = choose_tools(places.load())
    bash = registry["bash"]
    assert (bash.sandbox, bash.network, bash.spec.confirm) == (False, True, False)
    assert not registry["file_write"].spec.confirm


def test_rules_stay_apart_and_keep_their_lines(places):
    places.organisation("permissions: {rules: ['deny tool:bash']}")
    places.user("# mine\npermissions:\n  rules:\n    - deny execute rm *\n")
    places.project("permissions:\n  rules: ['allow execute *']\n")
    layers = rule_layers(places.load().layers)
    assert {name: [rule.text for rule in one.rules] for name, one in layers.items()} == {
        "organisation": ["deny tool:bash"],
        "user": ["deny execute rm *"],
        "project": ["allow execute *"],
    }
    assert layers["user"].rules[0].where.endswith("config.yaml, line 4")
    places.user("permissions: {rules: [alow read]}")
    with pytest.raises(PolicyError, match=r"config\.yaml, line 1: the rule 'alow read'"):
        rule_layers(places.load().layers)


def test_guardrails_of_all_layers_hold(places):
    places.organisation("guardrails: {deny_commands: [a]}")
    places.user("guardrails: {deny_commands: [b], deny_prompts: [p]}")
    places.project("guardrails: {deny_commands: [{pattern: c, message: never}]}")
    commands = ["b", {"pattern": "c", "message": "never"}, "a"]
    assert places.load().guardrails == {"deny_commands": commands, "deny_prompts": ["p"]}


@pytest.mark.parametrize(
    ("layer", "text", "words"),
    [
        ("user", "workspace: {root: /}", "workspace: the user's file cannot set this"),
        ("user", "schedules: []", "schedules: the user's file cannot set this"),
        ("user", "sandbx: off", "sandbx: unknown key"),
        ("user", "sandbox: maybe", "expected one of"),
        ("user", "- a", "expected a mapping"),
        ("organisation", "tools: []", "tools: the organisation's file cannot set this"),
        ("organisation", "egress: {mode: closed}", "egress.mode: expected one of"),
        ("organisation", "a: [", "not valid YAML"),
    ],
)
def test_a_mistake_is_named_with_the_file_it_is_in(places, layer, text, words):
    getattr(places, layer)(text)
    places.project("sandbox: auto")
    with pytest.raises(ToolError) as caught:
        places.load()
    assert words in caught.value.message
    assert ("config.yaml" if layer == "user" else "policy.yaml") in caught.value.message


def test_a_mistake_that_shows_later_names_the_layer_too(places):
    places.user("openapi: {mine: {spec: '${NOT_THERE}'}}\nmcpServers: {m: {command: '${NOR_THIS}'}}")
    places.project("mcpServers: {m: {command: x}}")
    with pytest.raises(ToolError, match=r"config\.yaml: openapi\.mine\.spec: .*NOT_THERE is not set"):
        places.load().check_set()
    assert places.load(NOT_THERE="a.json").servers["m"].command == ("x",)


def test_what_a_project_gets_wrong_is_the_projects_even_among_layers(places):
    places.user("sandbox: auto")
    for text in ("- a", "tools: 5", "agent: {modle: x}"):
        places.project(text)
        with pytest.raises(ToolError, match=r"forge\.yaml"):
            places.load()
    places.project("")
    assert places.load().sandbox == "auto"


@pytest.mark.parametrize(
    ("name", "value"),
    [("FORGE_SANDBOX", "maybe"), ("FORGE_EGRESS", "shut"), ("FORGE_TURNS", "0"), ("FORGE_TURNS", "x")],
)
def test_a_variable_that_makes_no_sense_is_named(places, name, value):
    with pytest.raises(ToolError, match=f"the environment variable {name}: "):
        places.load(**{name: value})


def test_an_empty_variable_says_nothing(places):
    assert places.load(FORGE_SANDBOX="", FORGE_MODEL="") == Configuration()


def test_a_users_file_that_others_can_change_decides_nothing(places):
    path = places.user("sandbox: off")
    path.chmod(0o666)
    with pytest.raises(ToolError, match="anyone can change it"):
        places.load()
    path.chmod(0o644)
    assert places.load().sandbox == "off"


def test_a_users_file_that_cannot_be_looked_at_is_not_taken_for_absent(places):
    path = places.user("sandbox: required")
    path.unlink()
    assert places.load().sandbox == "auto", "one that is not there says nothing"
    path.symlink_to(path.name)  # a circle, which not even root can follow
    with pytest.raises(ToolError, match="cannot read the configuration") as caught:
        places.load()
    assert caught.value.kind == "config_error"
    assert "XDG_CONFIG_HOME" in caught.value.suggestion


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_users_directory_that_may_not_be_read_stops_as_well(places):
    folder = places.user("sandbox: required").parent
    folder.chmod(0)
    try:
        with pytest.raises(ToolError, match="Permission denied"):
            places.load()
    finally:
        folder.chmod(0o700)
    assert places.load().sandbox == "required"


def test_an_organisations_file_that_cannot_be_read_is_not_passed_over(places):
    (places.folder / "policy.yaml").mkdir()
    with pytest.raises(ToolError, match=r"policy\.yaml: cannot read"):
        places.load()


def test_no_home_or_a_strange_one_means_no_user_file(tmp_path):
    assert user_file({}) is None
    assert user_file({"HOME": "relative"}) is None
    assert user_file({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}) == Path("/h/.config/forge/config.yaml")
    assert data_file("x", {"XDG_DATA_HOME": "/d"}) == Path("/d/forge/x")
    (tmp_path / "file").touch()
    environment = {"HOME": str(tmp_path / "file")}
    assert load_configuration(None, environment=environment, organisation=str(tmp_path / "none")) == Configuration()


def test_what_holds_is_shown_with_who_said_it_and_without_secrets(places, monkeypatch):
    monkeypatch.setenv("PETS", "pets-token-12345")
    places.organisation("permissions: {rules: [deny tool:x]}")
    places.user("sandbox: required\nsecrets: [PETS]\n")
    places.project(
        """
agent: {prompt: "say pets-token-12345", model: "openai:x"}
mcpServers:
  a: {command: x, args: ["--token", "sk-abcdefghijklmnop1234"], env: {A: plain-secret, B: "${PETS}"}}
  b: {url: "https://a.example.com/mcp?key=abc", headers: {X: plain-secret}, headers_env: {Y: PETS}}
"""
    )
    values = effective_values(places.load(resolve=False, PETS="pets-token-12345"), {"workspace.root": "/w"})
    shown = nest_values(values)
    assert not [word for word in ("plain-secret", "pets-token", "sk-abc", "key=abc") if word in str(shown)]
    assert shown["mcpServers"]["a"]["env"] == {"A": HIDDEN, "B": "${PETS}"}
    assert shown["mcpServers"]["b"]["headers_env"] == {"Y": "PETS"}
    assert shown["permissions"]["rules"] == {"organisation": ["deny tool:x"]}
    origins: dict[str, Any] = {one.key_path: one.origin for one in values}
    assert origins["sandbox"].startswith("user file")
    assert origins["agent.model"].startswith("project file")
    assert origins["limits.turns"] == "defaults"
    assert origins["workspace.root"] == "a flag"


@pytest.mark.parametrize(
    ("above", "stays"),
    [
        ("[deny network]", {"read", "network"}),
        ("[deny network evil.example.com]", {"read", "network"}),
        ("['deny *']", {"read", "network", "execute"}),
        ("[{action: deny, permission: execute, tool: 'git_*'}]", {"read", "execute"}),
        ("[allow network, ask execute, 'deny tool:other__*', deny write]", {"read"}),
    ],
)
@pytest.mark.parametrize("layer", ["user", "organisation"])
def test_a_project_does_not_declare_away_what_those_above_it_deny(places, layer, above, stays):
    places.project("tools: [{name: 'git_*', config: {permissions: [read]}}]")
    getattr(places, layer)(f"permissions: {{rules: {above}}}")
    mounted = Tool.from_schema(
        "git_push", "Push it.", {"type": "object"}, lambda: "pushed", permissions={"execute", "network"}
    )
    assert apply_settings(mounted, places.load()).spec.permissions == stays


def test_a_project_may_declare_less_where_nobody_denied_it(places):
    places.project("tools: [{name: 'git_*', config: {permissions: [read]}}]\npermissions: {rules: [deny network]}\n")
    mounted = Tool.from_schema("git_log", "Show it.", {"type": "object"}, lambda: "x", permissions={"network"})
    assert apply_settings(mounted, places.load()).spec.permissions == {"read"}


def test_tabs_in_a_text_of_several_lines_are_text(places):
    places.project("agent:\n  prompt: |\n    make:\n    \tgo\n\t\n    end\n")
    assert places.load().agent.prompt == "make:\n\tgo\n\nend\n"


@pytest.mark.parametrize(
    "text",
    [
        "permissions:\n  rules:\n  \t- deny read x\n",
        "permissions:\n  rules:\n    - allow read a\n    \t- deny read b\n",
        "permissions:\n  rules:\n    - allow read a\n\t- deny read b\n",
        "agent:\n  prompt: first\n  \tmodel: 'openai:x'\n",
    ],
)
def test_a_tab_that_hides_a_rule_or_a_key_is_refused(places, text):
    places.project(text)
    with pytest.raises(ToolError, match="not valid YAML"):
        places.load()
