"""Rules: what they say, in which order, about which tools and callers."""

from __future__ import annotations

import pytest

from forge import Scope, ToolCall, tool
from forge.permissions.policy import Decision, PolicyError, layered, rules
from forge.pipeline import standard_executor
from forge.tools.conversation import ask_question, converse, task_completion
from tests.permissions.judging import decide, request_for, spec_of


def test_by_default_reading_is_allowed_and_the_rest_asks():
    assert decide([], "read", "a.txt") == "allow"
    assert [decide([], permission, "x") for permission in ("write", "execute", "network")] == ["ask"] * 3
    assert decide([], None) == "allow"


@pytest.mark.parametrize(
    ("lines", "decision"),
    [
        (["allow write", "deny write"], "deny"),
        (["deny write", "allow write"], "allow"),
        (["deny write", "allow write src/**"], "allow"),
        (["allow write src/**", "deny write **"], "deny"),
        (["allow write", "ask write"], "ask"),
    ],
)
def test_the_last_match_wins(lines, decision):
    assert decide(lines, "write", "src/a.py") == decision


def test_a_star_means_every_declared_permission_and_no_tool_without_one():
    assert decide(["deny *"], "read", "a") == "deny"
    assert decide(["deny *"], "network", "a.org") == "deny"
    assert decide(["deny *"], None) == "allow"


def test_a_tool_rule_touches_that_tool_with_and_without_permissions():
    for permission in ("execute", None):
        assert decide(["deny tool:some_*"], permission, "x") == "deny"
        assert decide(["deny tool:other_*"], permission, "x") == ("ask" if permission else "allow")
    assert decide(["allow tool:some_tool"], "execute", "rm -rf x; y") == "allow"


def test_a_tool_rule_holds_for_aliases_and_forbids_in_any_case():
    spec = spec_of("send_message", aliases=("message",))
    assert decide(["deny tool:message"], None, spec=spec) == "deny"
    assert decide(["deny tool:Send_Message"], None, spec=spec) == "deny"
    assert decide(["deny tool:mess"], None, spec=spec) == "allow"
    asking = spec_of("deploy", "execute")
    assert decide(["allow tool:Deploy"], "execute", "x", spec=asking) == "ask"
    assert decide(["allow tool:deploy"], "execute", "x", spec=asking) == "allow"


@pytest.mark.parametrize("one", [task_completion, ask_question, converse])
def test_conversation_tools_are_touched_only_by_rules_that_name_them(one):
    spec, name = one.spec, one.spec.name
    for line in ("deny *", "deny tool:*", "deny tool:**", "deny read"):
        assert decide([line], None, spec=spec) == "allow"
    assert decide(rules(otherwise="deny"), None, spec=spec) == "allow"
    assert decide([f"deny tool:{name}"], None, spec=spec) == "deny"
    assert decide(["deny tool:*"], None, spec=spec_of("uuid_generate")) == "deny"


async def test_the_name_of_a_conversation_tool_alone_takes_no_tool_out_of_the_rules():
    @tool(name="converse", permissions={"write"})
    async def disguised(message: str) -> str:
        """Write something."""
        return "written"

    call, strict = ToolCall("converse", {"message": "Hi"}), rules("deny *", otherwise="deny")
    refused = await standard_executor([disguised], policy=strict).execute(call, Scope())
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"
    assert (await standard_executor([converse], policy=strict).execute(call, Scope())).for_llm == "Hi"


def test_a_mapping_can_name_tool_permission_target_and_caller():
    policy = rules(
        {
            "action": "allow",
            "permission": "network",
            "tool": "http_*",
            "target": "api.example.com",
            "agent": "main",
            "user": "ann",
            "channel": "team*",
        }
    )
    spec = spec_of("http_request", "network")
    right = {"agent": "main", "user": "ann", "channel": "team-1"}
    url = "https://api.example.com/v1"
    assert decide(policy, "network", url, spec=spec, **right) == "allow"
    for wrong in ({"agent": "other"}, {"user": ""}, {"user": "bob"}, {"channel": "public"}):
        assert decide(policy, "network", url, spec=spec, **{**right, **wrong}) == "ask"
    assert decide(policy, "network", url, spec=spec_of("fetch", "network"), **right) == "ask"
    assert decide(policy, "write", url, spec=spec_of("http_request", "write"), **right) == "ask"


def test_what_matches_nothing_is_decided_by_otherwise():
    assert decide(rules("allow write a", otherwise="deny"), "write", "b") == "deny"
    assert decide(rules("allow write a", otherwise="deny"), "write", "a") == "allow"
    assert decide(rules(otherwise="deny"), "read", "a") == "deny"
    assert decide(rules(otherwise=Decision.ALLOW), "execute", "a; b") == "allow"
    assert decide(rules(otherwise="deny"), None) == "allow"


def test_explain_names_the_rule_and_the_place():
    ruling = rules("allow read", "deny write secrets/**").explain(request_for("write", "secrets/key"))
    assert (ruling.decision, ruling.rule) == (Decision.DENY, "deny write secrets/**")
    assert "rule 2" in ruling.reason
    default = rules().explain(request_for("write", "a"))
    assert (default.decision, default.rule) == (Decision.ASK, "")
    assert "default" in default.reason


def test_a_policy_says_which_tools_it_concerns():
    policy = rules("deny tool:uuid_*", "deny read secrets/**")
    assert policy.concerns(spec_of("uuid_generate"))
    assert policy.concerns(spec_of("file_read", "read"))
    assert not policy.concerns(spec_of("math_calculate"))
    assert not rules().concerns(spec_of("file_read", "read"))
    assert rules().concerns(spec_of("bash", "execute"))
    assert rules().concerns(spec_of("csv_parse", optional_permissions=frozenset({"write"})))
    assert not rules("allow execute", otherwise="allow").concerns(spec_of("task_completion"))
    assert rules(otherwise="deny").concerns(spec_of("file_read", "read"))


def test_a_comment_never_becomes_part_of_a_target():
    assert decide(["deny write secrets/**   # keep out"], "write", "secrets/a") == "deny"
    assert decide(["deny write a#b"], "write", "a#b") == "deny"


def test_a_quoted_target_is_the_text_inside():
    assert decide(['deny execute "rm *"'], "execute", "rm x") == "deny"
    assert decide(['deny write "my files/**"'], "write", "my files/x") == "deny"
    assert decide(['deny execute "my prog" "x"'], "execute", '"my prog" "x"') == "deny"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("alow read", ["'alow read'", "unknown action 'alow'", "did you mean 'allow'?"]),
        ("allow raed", ["unknown permission 'raed'", "did you mean 'read'?"]),
        ("allow sing", ["known: read, write, execute, network, effects, * or tool:NAME"]),
        ("allow", ["no permission after the action"]),
        ("", ["it is empty"]),
        ("allow tool:", ["no tool name"]),
        ("allow read\ndeny write", ["several lines", "load_rules"]),
        ("allow network https://api.example.com/v1", ["a host, not a URL", "api.example.com"]),
        ("allow network *example.com", ["whole labels", "*.example.org"]),
        ("deny network evil.com..", ["this is not a valid host name"]),
        ("deny write src/*/../x", ["`..` after a wildcard"]),
        ({"action": "allow", "permision": "read"}, ["unknown key 'permision'", "did you mean 'permission'?"]),
        ({"action": "allow"}, ["neither a permission nor a tool"]),
        ({"permission": "read"}, ["unknown action ''", "allow, ask or deny"]),
        ({"action": "allow", "permission": "read", "target": None}, ["its target is None"]),
        ({"action": "allow", "permission": ["read"]}, ["its permission is ['read']"]),
        ({"action": "allow", "permission": "read", "match": "a"}, ["match is not a list"]),
        (7, ["it is int"]),
    ],
)
def test_a_rule_that_cannot_be_read_is_explained(rule, words):
    with pytest.raises(PolicyError) as caught:
        rules("allow read", rule)
    message = str(caught.value)
    assert message.startswith("rule 2: the rule ")
    assert message.rstrip().endswith((".", "?"))
    for word in words:
        assert word in message


def test_examples_are_checked_when_the_rule_loads():
    rule = {"action": "deny", "permission": "execute", "target": "rm *"}
    right = {"match": ["rm x", "sudo /bin/rm -rf /"], "not_match": ["echo rm", "rmdir x"]}
    assert decide(rules({**rule, **right}), "execute", "rm x") == "deny"
    with pytest.raises(PolicyError, match=r"does not match its match example 'rmdir x'"):
        rules({**rule, "match": ["rm x", "rmdir x"]})
    with pytest.raises(PolicyError, match=r"matches its not_match example 'ls; rm x'"):
        rules({**rule, "not_match": ["ls; rm x"]})


def test_examples_of_an_allow_must_be_fully_covered():
    rule = {"action": "allow", "permission": "execute", "target": "git log *"}
    rules({**rule, "match": ["git log", "git log -5"], "not_match": ["git log; rm x", "git push"]})
    with pytest.raises(PolicyError, match="does not match"):
        rules({**rule, "match": ["git log | sh"]})


def test_examples_of_a_tool_rule_are_names_or_targets():
    rules({"action": "deny", "tool": "http_*", "match": ["http_request"], "not_match": ["web_fetch"]})
    rules({"action": "deny", "tool": "http_*", "target": "*.example.org", "match": ["https://a.example.org/"]})
    with pytest.raises(PolicyError, match="http_get"):
        rules({"action": "deny", "tool": "web_*", "match": ["http_get"]})


def test_a_deny_of_a_stricter_layer_stays():
    policy = layered(
        organisation=["deny write secrets/**"], project=["allow write"], session=["allow write secrets/**"]
    )
    assert decide(policy, "write", "secrets/a") == "deny"
    assert decide(policy, "write", "src/a") == "allow"
    ruling = policy.explain(request_for("write", "secrets/a"))
    assert (ruling.layer, ruling.rule) == ("organisation", "deny write secrets/**")


def test_otherwise_the_most_specific_layer_that_matches_decides():
    policy = layered(organisation=["allow write"], user=["ask write src/**"], session=["allow write src/ok/**"])
    assert decide(policy, "write", "a") == "allow"
    assert decide(policy, "write", "src/a") == "ask"
    assert decide(policy, "write", "src/ok/a") == "allow"
    assert decide(layered(user=["allow write"], project=["deny write x"]), "write", "x") == "deny"
    assert decide(layered(), "write", "x") == "ask"


def test_every_way_through_a_line_passes_every_layer():
    policy = layered(organisation=["deny execute rm *"], session=["allow execute *"])
    assert decide(policy, "execute", "ls; sudo rm x") == "deny"
    assert decide(policy, "execute", "ls; sudo cat x") == "allow"


def test_what_a_layer_says_otherwise_counts_as_its_ruling():
    policy = layered(organisation=rules("allow read", otherwise="deny"), session=["allow write"])
    assert decide(policy, "write", "x") == "deny"
    assert decide(policy, "read", "x") == "allow"


def test_a_layer_that_is_no_list_of_rules_is_refused():
    with pytest.raises(PolicyError, match="organisation"):
        layered(organisation=3)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="user rule 1"):
        layered(user=["alow read"])
    assert decide(layered(user="deny read"), "read", "x") == "deny"
