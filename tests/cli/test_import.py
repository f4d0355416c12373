"""`forge import`: rules, hooks, commands, agents and skills of other programs; nothing looser, nothing lost."""

from __future__ import annotations

import json
import os
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from forge import Scope, ToolCall, rules
from forge.core.registry import ToolRegistry
from forge.core.spec import Permission
from forge.permissions.questions import Decision, PermissionRequest
from forge.project.take_over import plan_import, write_import
from forge.project.take_over.claude import PROGRAM_TOOLS, convert_claude_rule
from forge.project.take_over.findings import RuleSource
from forge.project.trust import trust_state
from forge.tools import built_ins
from tests.cli.test_import_servers import home, write
from tests.cli.test_terminal import talk

__all__ = ["home"]  # a fixture

SETTINGS = {
    "$schema": "https://json.schemastore.org/claude-code-settings.json",
    "model": "claude-sonnet-5",
    "env": {"API_TOKEN": "hunter2hunter2"},
    "permissions": {
        "allow": [
            "Bash(npm run test:*)",
            "Bash(npm run build)",
            "Bash(git diff *)",
            "Bash(git push origin *)",
            "Edit(/src/**)",
            "Edit(notes.md)",
            "Read(~/.zshrc)",
            "WebFetch(domain:docs.example.com)",
            "mcp__github__get_issue",
            "mcp__linear",
            "WebSearch",
            "Task",
        ],
        "ask": ["Bash(git push:*)", "Edit(/src/generated/**)"],
        "deny": [
            "Bash(curl:*)",
            "Bash(npm run test:deploy *)",
            "Read(./.env)",
            "Read(./secrets/**)",
            "Edit(/infra/**)",
            "Read(//etc/passwd)",
            "WebFetch(domain:evil.example)",
            "mcp__github__delete_repo",
        ],
        "additionalDirectories": ["../shared-docs/", "../gone"],
        "defaultMode": "acceptEdits",
    },
    "statusLine": {"type": "command", "command": "x"},
    "unheardOf": True,
}

# What Claude Code decides, by its documentation, and Forge by the imported rules. `ask` is also the default there.
DECISIONS = [
    ("bash", {"command": "npm run test"}, "allow"),
    ("bash", {"command": "npm run test --watch"}, "allow"),
    ("bash", {"command": "npm run tests"}, "ask"),  # the prefix ends at a word
    ("bash", {"command": "npm run test && rm -r x"}, "ask"),  # each command must be allowed
    ("bash", {"command": "npm run test; curl x.example"}, "deny"),
    ("bash", {"command": "npm run build"}, "allow"),
    ("bash", {"command": "npm run build --force"}, "ask"),  # exactly this command
    ("bash", {"command": "npm run test:deploy now"}, "deny"),
    ("bash", {"command": "git diff HEAD"}, "allow"),
    ("bash", {"command": "git push origin main"}, "ask"),  # an ask counts before an allow
    ("bash", {"command": "git push"}, "ask"),
    ("bash", {"command": "curl -s https://x.example"}, "deny"),
    ("file_edit", {"path": "src/deep/a.py", "old_text": "a", "new_text": "b"}, "allow"),
    ("file_write", {"path": "src/a.py", "content": ""}, "allow"),  # Edit rules are about all tools that edit
    ("file_write", {"path": "lib/src/a.py", "content": ""}, "ask"),  # `/src` is the one of the project
    ("file_write", {"path": "docs/notes.md", "content": ""}, "allow"),  # a bare name is found at any depth
    ("file_write", {"path": "src/generated/a.py", "content": ""}, "ask"),
    ("file_write", {"path": "infra/a.tf", "content": ""}, "deny"),
    ("file_read", {"path": ".env"}, "deny"),
    ("file_read", {"path": "secrets/deep/key"}, "deny"),
    ("file_read", {"path": "src/a.py"}, "allow"),
    ("file_read", {"path": "/etc/passwd"}, "deny"),
    ("web_fetch", {"url": "https://docs.example.com/x"}, "allow"),
    ("web_fetch", {"url": "https://sub.docs.example.com/x"}, "ask"),
    ("web_fetch", {"url": "https://evil.example/x"}, "deny"),
    ("http_request", {"method": "POST", "url": "https://docs.example.com/x"}, "ask"),  # only WebFetch is allowed
    ("github__get_issue", {}, "allow"),
    ("github__create_issue", {}, "ask"),
    ("github__delete_repo", {}, "deny"),
    ("linear__anything", {}, "allow"),
]


def config_of(workspace: Path) -> dict:
    return yaml.safe_load((workspace / "forge.yaml").read_text())


def reasons(ended) -> dict[str, str]:
    return {one["key"]: one["reason"] for one in ended.json["not_taken"]}


def test_permissions_of_claude_code_decide_as_they_did_there(here, home, workspace):
    write(workspace / ".claude" / "settings.json", SETTINGS)
    (workspace.parent / "shared-docs").mkdir(exist_ok=True)
    done = here("import", "claude-code", "--yes", "--json")
    assert done.code == 0, done.err
    servers = {name: {"url": f"https://{name}.example/mcp"} for name in ("github", "linear")}
    text = (workspace / "forge.yaml").read_text() + yaml.safe_dump({"mcpServers": servers})
    (workspace / "forge.yaml").write_text(text)
    examples = [{"tool": tool, "arguments": given, "expect": expect} for tool, given, expect in DECISIONS]
    write(workspace / "examples.yaml", yaml.safe_dump(examples))
    tried = here("policy", "test", "examples.yaml", "--config", "forge.yaml", "--json")
    assert tried.out, tried.err
    wrong = [
        (one["arguments"], one["expect"], one["decision"], one["rule"])
        for one in tried.json["examples"]
        if not one["ok"]
    ]
    assert not wrong
    assert len(tried.json["examples"]) == len(DECISIONS)
    said = config_of(workspace)
    assert {"allow tool:web_search", "allow tool:task"} <= {
        one for one in said["permissions"]["rules"] if isinstance(one, str)
    }
    assert said["agent"] == {"model": "anthropic:claude-sonnet-5"}
    assert said["workspace"] == {"roots": [{"path": "../shared-docs/", "access": "read"}]}
    why = reasons(done)
    assert {"env", "statusLine", "unheardOf", "permissions.defaultMode"} <= set(why)
    assert "API_TOKEN" in why["env"]
    assert "hunter2hunter2" not in done.out + done.err + text
    assert trust_state(workspace).status == "changed"  # this test added servers


WORDS = st.sampled_from(["git", "push", "npm", "run", "test", "-f", "main", "x"])
SPECS = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
ENDS = st.sampled_from(["", ":*", " *", "*"])
ACTIONS = st.sampled_from(["allow", "ask", "deny"])
ORDER = [Decision.ALLOW, Decision.ASK, Decision.DENY]


def claude_decides(listed: list[tuple[str, str]], command: str) -> Decision:
    """The documented order: deny, ask, allow; ` *` and `:*` end at a word; without a rule it asks."""

    def fits(spec: str) -> bool:
        if spec.endswith((":*", " *")):
            prefix = spec[:-2]
            return fnmatchcase(command, prefix) or fnmatchcase(command, f"{prefix} *")
        return fnmatchcase(command, spec)

    for action in reversed(ORDER):
        if any(kind == action and fits(spec) for kind, spec in listed):
            return action
    return Decision.ASK


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(ACTIONS, st.builds(str.__add__, SPECS, ENDS)), min_size=1, max_size=4),
    st.lists(WORDS, min_size=1, max_size=4).map(" ".join),
)
def test_no_imported_rule_about_commands_is_looser(listed, command):
    sources: dict[str, list[RuleSource]] = {action: [] for action in ("allow", "ask", "deny")}
    for action, spec in listed:
        converted, reason = convert_claude_rule(action, f"Bash({spec})")
        assert converted
        assert not reason
        sources[action] += converted
    policy = rules(*sources["allow"], *sources["ask"], *sources["deny"])
    bash = next(tool for tool in built_ins(ToolRegistry()) if tool.spec.name == "bash")
    request = PermissionRequest(
        bash.spec, ToolCall("bash", {"command": command}), {"command": command}, Permission.EXECUTE, command, Scope()
    )
    ours = policy.explain(request).decision
    theirs = claude_decides(listed, command)
    assert ORDER.index(ours) >= ORDER.index(theirs)
    if theirs is Decision.ALLOW and command.split()[0] in ("git", "npm"):
        assert ours is Decision.ALLOW  # and what is clear is taken over


@pytest.mark.parametrize(
    ("action", "text", "expected"),
    [
        ("allow", "Bash", [{"action": "allow", "permission": "execute", "tool": "bash"}]),
        ("allow", "Bash(*)", [{"action": "allow", "permission": "execute", "tool": "bash"}]),
        ("deny", "Bash", [{"action": "deny", "permission": "execute", "tool": name} for name in PROGRAM_TOOLS]),
        ("allow", "Bash(echo [a]?)", [{"action": "allow", "permission": "execute", "target": "echo [[]a][?]"}]),
        ("allow", "Bash(sed \\* x)", []),
        ("deny", "Bash(sed \\* x)", ["ask execute"]),
        (
            "allow",
            "Bash(git log from:untrusted)",
            [{"action": "allow", "permission": "execute", "target": "git log from:untrusted"}],
        ),
        ("allow", "Edit(.git/**)", []),
        (
            "allow",
            "Edit(//etc/x)",
            [
                {"action": "allow", "permission": "write", "tool": "file_*", "target": t}
                for t in ("/etc/x", "/etc/x/**")
            ],
        ),
        (
            "allow",
            "Write(docs/**)",
            [{"action": "allow", "permission": "write", "tool": "file_write", "target": "docs/**"}],
        ),
        ("deny", "Edit(!x)", ["ask write"]),
        ("deny", "Edit(a*/../y)", ["ask write"]),
        ("ask", "Bash(rm \u200b)", ["ask execute"]),
        ("deny", "Bash(curl -H 'x: ghp_0123456789abcdefghij0123456789abcdef')", ["ask execute"]),
        ("allow", "Bash(curl -H 'x: ghp_0123456789abcdefghij0123456789abcdef')", []),
        ("allow", "Read(!x)", []),
        ("allow", "WebFetch(https://x.example)", []),
        ("deny", "WebFetch(https://x.example)", ["ask tool:web_fetch"]),
        ("allow", "mcp__*", []),
        ("deny", "mcp__My Files", []),
        ("allow", "*", []),
        ("deny", "*", ["deny *"]),
        ("allow", "Unheard(x)", []),
        ("allow", "Bash(x\u202ey)", []),
        ("deny", "Agent(Explore)", ["ask tool:task"]),
    ],
)
def test_a_rule_that_is_unclear_asks(action, text, expected):
    converted, reason = convert_claude_rule(action, text)
    assert converted == expected
    assert bool(reason) or bool(expected)


HOOK = """
import json, os, sys
said = json.load(sys.stdin)
command = said["tool_input"].get("command", said["tool_input"].get("file_path", ""))
if "forbidden" in command:
    print(json.dumps({"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "not here"}}))
elif "legacy" in command:
    sys.exit("old way") if False else (sys.stderr.write("use the new one"), sys.exit(2))
elif "rename" in command:
    new = {**said["tool_input"], "command": "echo renamed"}
    print(json.dumps({"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": new}}))
assert said["hook_event_name"] == "PreToolUse" and os.environ["CLAUDE_PROJECT_DIR"] == said["cwd"]
"""


def test_hooks_of_claude_code_decide_about_calls_of_forge(here, home, workspace):
    write(workspace / ".claude" / "hooks" / "check.py", HOOK)
    command = f'{sys.executable} "$CLAUDE_PROJECT_DIR"/.claude/hooks/check.py'
    hooks = {
        "PreToolUse": [
            {"matcher": "Bash|Edit|Write", "hooks": [{"type": "command", "command": command, "timeout": 30}]}
        ],
        "SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}],
        "Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}],
    }
    write(workspace / ".claude" / "settings.json", {"hooks": hooks})
    write(home / ".claude" / "settings.json", {"hooks": {"PreToolUse": []}})
    write(workspace / "forge.yaml", "sandbox: off\npermissions: {rules: [allow execute echo *, allow write]}\n")
    here("trust", "--yes")
    done = here("import", "claude-code", "--yes", "--json")
    assert done.code == 0, done.err
    assert done.json["files"] == ["hooks/claude_code.py"]
    assert {"hooks.SessionStart", "hooks"} <= set(reasons(done))
    (entry,) = config_of(workspace)["hooks"]["before_call"]
    assert {"bash", "cli_execute", "file_edit", "file_write", "file_patch"} <= set(entry["match"])
    assert entry["timeout"] == 30
    asked = [("bash", {"command": "echo fine"}), ("bash", {"command": "echo forbidden"})]
    asked += [("bash", {"command": "echo legacy"}), ("bash", {"command": "echo rename"})]
    patch = "*** Begin Patch\n*** Add File: forbidden.txt\n+x\n*** End Patch"
    asked += [("file_patch", {"patch": patch}), ("file_patch", {"patch": patch.replace("forbidden", "good")})]
    results = [here("tool", "call", name, json.dumps(given)) for name, given in asked]
    assert [one.code for one in results] == [0, 1, 1, 0, 1, 0], [one.out + one.err for one in results]
    assert "fine" in results[0].out
    assert "not here" in results[1].out + results[1].err
    assert "use the new one" in results[2].out + results[2].err
    assert "renamed" in results[3].out
    assert not (workspace / "forbidden.txt").exists()
    assert (workspace / "good.txt").exists()
    again = here("import", "claude-code", "--yes", "--json")
    assert (again.json["written"], again.json["diff"], again.json["files"]) == (False, "", [])


AGENT = """---
name: reviewer
description: Reviews code: carefully
tools: Read, Grep, Bash(git diff:*), mcp__github__get_issue, NotATool
model: opus
color: blue
---
You are a reviewer.

Look at the diff.
"""

COMMAND = """---
description: Fix an issue
allowed-tools: Bash(git:*)
---
Fix issue $1 of $ARGUMENTS. See @README.md and !`git status`.
"""


def test_commands_agents_and_skills_of_claude_code(here, home, workspace):
    write(workspace / ".claude" / "commands" / "git" / "fix_issue.md", COMMAND)
    write(workspace / ".claude" / "agents" / "reviewer.md", AGENT)
    write(workspace / ".claude" / "agents" / "none.md", "---\nname: none\ntools: Other\n---\nx\n")
    write(
        workspace / ".claude" / "skills" / "deploy" / "SKILL.md", "---\nname: deploy\ndescription: Deploys.\n---\nGo.\n"
    )
    write(workspace / "CLAUDE.md", "Be kind.\n")
    done = here("import", "claude-code", "--yes", "--json")
    assert done.code == 0, done.err
    assert (workspace / ".forge/commands/fix-issue.md").read_text().startswith("# Fix an issue\n\nFix issue $1 of")
    said = config_of(workspace)
    tools = [
        "file_read",
        "directory_list",
        "grep_search",
        "bash",
        "bash_output",
        "bash_kill",
        "bash_jobs",
        "github__get_issue",
    ]
    assert said["agents"] == {
        "reviewer": {"prompt": "Reviews code: carefully\n\nYou are a reviewer.\n\nLook at the diff.", "tools": tools}
    }
    assert [one["name"] for one in here("skill", "list", "--json").json["skills"] if not one["built_in"]] == ["deploy"]
    why = reasons(done)
    assert {"fix_issue: allowed-tools", "fix_issue: !`…`", "fix_issue: @file", "tools: NotATool", "none"} <= set(why)
    assert {"reviewer: model", "reviewer: color", "tools: Bash(git diff:*)"} <= set(why)
    assert here("config", "show").code == 0
    assert "there is nothing new" in here("import", "claude-code", "--yes").out.lower()


CODEX = """
model = "gpt-5.4"
model_reasoning_effort = "high"
approval_policy = "never"
sandbox_mode = "workspace-write"
[sandbox_workspace_write]
writable_roots = ["/usr/share", "/srv/unheard-of"]
network_access = true
[mcp_servers.docs]
url = "https://docs.example.com/mcp"
bearer_token_env_var = "DOCS_TOKEN"
enabled_tools = ["search"]
tool_timeout_sec = 20
startup_timeout_sec = 5
[mcp_servers.local]
command = "PYTHON"
args = ["server.py", "--api-key", "hunter2hunter2"]
env_vars = ["LOCAL_HOME"]
enabled = false
[mcp_servers.docs.tools.delete]
approval_mode = "prompt"
[profiles.fast]
model = "o4-mini"
"""


def test_codex(here, home, workspace):
    write(workspace / ".codex" / "config.toml", CODEX.replace("PYTHON", sys.executable))
    write(home / ".codex" / "config.toml", 'model = "other"\nnotify = ["x"]\n')
    write(home / ".codex" / "prompts" / "review.md", "Review $ARGUMENTS.\n")
    done = here("import", "codex", "--yes", "--json")
    assert done.code == 0, done.err
    said = config_of(workspace)
    assert said["agent"] == {"model": "openai:gpt-5.4", "options": {"reasoning_effort": "high"}}
    assert said["sandbox"] == "required"
    assert said["workspace"] == {"roots": [{"path": "/usr/share", "access": "write"}]}
    assert said["permissions"] == {"rules": ["ask tool:docs__delete"]}
    assert said["mcpServers"]["docs"] == {
        "url": "https://docs.example.com/mcp",
        "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"},
        "include": ["search"],
        "timeout": 20,
    }
    local = said["mcpServers"]["local"]
    assert local["disabled"]
    assert local["env"] == {"LOCAL_HOME": "${LOCAL_HOME}"}
    assert local["args"] == ["server.py", "--api-key", "${LOCAL_API_KEY}"]
    assert "hunter2" not in done.out + done.err + (workspace / "forge.yaml").read_text()
    assert (workspace / ".forge/commands/review.md").read_text() == "Review $ARGUMENTS.\n"
    why = reasons(done)
    assert {"approval_policy", "sandbox_workspace_write.network_access", "profiles", "notify", "model"} <= set(why)
    assert "writable_roots: /srv/unheard-of" in why
    assert "mcp_servers.docs.startup_timeout_sec" in why
    project_only = here("import", "codex", "--no-home", "--dry-run", "--json")
    assert "notify" not in reasons(project_only)


OPENCODE = """{
  // of the team
  "$schema": "https://opencode.ai/config.json",
  "model": "anthropic/claude-sonnet-5",
  "mcp": {
    "local": {"type": "local", "command": ["PYTHON", "s.py"], "environment": {"KEY": "{env:MY_KEY}"}, "enabled": false},
    "far": {"type": "remote", "url": "https://far.example/mcp", "timeout": 5,
            "headers": {"Authorization": "Bearer {env:FAR}"}},
  },
  "permission": {
    "*": "allow",
    "bash": {"*": "ask", "git status*": "allow", "git *": "allow", "git push *": "deny"},
    "edit": {"*": "deny", "pages/*.md": "allow", "docs/secret/*": "deny", "docs": "ask"},
    "read": {"*.env": "deny"},
    "webfetch": "ask",
    "far_*": "ask",
    "external_directory": "allow",
  },
  "agent": {"helper": {"description": "Helps.", "prompt": "Help.", "tools": {"bash": false}, "temperature": 0.1}},
  "command": {"test": {"template": "Run the tests of $ARGUMENTS", "description": "Tests", "agent": "build"}},
  "instructions": ["docs/style.md"],
}"""


def test_opencode(here, home, workspace, monkeypatch):
    monkeypatch.setenv("FAR", "x")
    write(workspace / "opencode.jsonc", OPENCODE.replace("PYTHON", sys.executable))
    done = here("import", "opencode", "--yes", "--json")
    assert done.code == 0, done.err
    said = config_of(workspace)
    assert said["agent"] == {"model": "anthropic:claude-sonnet-5"}
    assert said["mcpServers"]["local"]["env"] == {"KEY": "${MY_KEY}"}
    assert said["mcpServers"]["far"]["headers"] == {"Authorization": "Bearer ${FAR}"}
    assert said["agents"]["helper"]["prompt"] == "Helps.\n\nHelp."
    assert "bash" not in said["agents"]["helper"]["tools"]
    assert (workspace / ".forge/commands/test.md").read_text() == "# Tests\n\nRun the tests of $ARGUMENTS\n"
    expected = [
        ("bash", {"command": "git status"}, "allow"),
        ("bash", {"command": "git push x"}, "deny"),
        ("bash", {"command": "make"}, "ask"),
        ("file_write", {"path": "a.py", "content": ""}, "deny"),
        ("file_write", {"path": "docs/a.md", "content": ""}, "ask"),  # a question about a folder is about its files
        ("file_write", {"path": "pages/a.md", "content": ""}, "allow"),
        (
            "file_write",
            {"path": "docs/secret/deep/a.md", "content": ""},
            "deny",
        ),  # a question about docs is not one here
        ("file_read", {"path": "deep/prod.env"}, "deny"),
        ("file_read", {"path": "deep/prod.py"}, "allow"),
        ("web_fetch", {"url": "https://x.example"}, "ask"),
        ("far__x", {}, "ask"),
    ]
    write(
        workspace / "examples.yaml", yaml.safe_dump([{"tool": t, "arguments": g, "expect": e} for t, g, e in expected])
    )
    tried = here("policy", "test", "examples.yaml", "--json")
    assert tried.out, tried.err
    assert [one for one in tried.json["examples"] if not one["ok"]] == []
    why = reasons(done)
    assert {"permission.*", "permission.external_directory", "instructions", "test: agent"} <= set(why)
    assert {"mcp.far.timeout", "agent.helper.temperature"} <= set(why)


def test_rules_of_forge_yaml_stay_and_nothing_becomes_looser(here, home, workspace):
    write(
        workspace / ".claude" / "settings.json",
        {"permissions": {"allow": ["Bash(git:*)"], "deny": ["Bash(git push:*)"]}},
    )
    own = "# ours\npermissions:\n  rules:\n    # careful\n    - deny execute git reset *  # never\n"
    own += "    - allow execute git push *\n"
    write(workspace / "forge.yaml", own)
    done = here("import", "claude-code", "--yes", "--json")
    assert config_of(workspace)["permissions"]["rules"] == [
        "allow execute git *",
        "deny execute git reset *",
        "allow execute git push *",
        "deny execute git push *",
    ]
    text = (workspace / "forge.yaml").read_text()
    assert text.startswith("# ours\npermissions:\n  rules:\n    # careful\n")
    assert "- deny execute git reset *  # never\n" in text
    assert done.json["needs_trust"]
    write(workspace / ".claude" / "settings.json", {"permissions": {"allow": ["Bash(ls:*)"], "ask": ["Bash(ls -R:*)"]}})
    mixed = here("import", "claude-code", "--yes", "--json")
    assert not mixed.json["written"]  # where the question belongs is the person's to say
    assert {"ask execute ls -R *", "allow execute ls *"} <= set(reasons(mixed))


def test_it_asks_before_it_writes(here, home, workspace):
    write(workspace / ".claude" / "settings.json", {"permissions": {"deny": ["Bash(rm:*)"]}})
    write(workspace / ".claude" / "commands" / "go.md", "Go.\n")
    before = sorted(os.listdir(workspace))
    shown = here("import", "claude-code", "--dry-run")
    assert shown.code == 0
    assert "+    - deny execute rm *" in shown.err
    assert ".forge/commands/go.md would be written:\nGo." in shown.err
    assert here("import", "claude-code").code == 3
    assert sorted(os.listdir(workspace)) == before
    code, _ = talk(workspace, "import", "claude-code", says=((b"Import this?", b"n\n"),))
    assert code == 1
    assert sorted(os.listdir(workspace)) == before
    assert here("import", "claude-code", "--yes").code == 0
    assert trust_state(workspace).status == "trusted"
    assert (workspace / ".forge/commands/go.md").read_text() == "Go.\n"


def test_nothing_is_overwritten(here, home, workspace):
    write(workspace / ".claude" / "commands" / "go.md", "Go.\n")
    assert here("import", "claude-code", "--yes").code == 0
    write(workspace / ".claude" / "commands" / "go.md", "Go there.\n")
    done = here("import", "claude-code", "--yes", "--json")
    assert not done.json["written"]
    assert any("not overwritten" in one["reason"] for one in done.json["not_taken"])
    assert (workspace / ".forge/commands/go.md").read_text() == "Go.\n"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "null",
        '"x"',
        "[" * 100_000,
        '{"permissions": 1, "hooks": [], "env": 7, "model": []}',
        '{"permissions": {"allow": {"a": 1}, "deny": [1, null, {}], "ask": "x", "additionalDirectories": 3}}',
        '{"hooks": {"PreToolUse": [1, {"hooks": 3}, {"matcher": 4, "hooks": []}]}}',
        '{"hooks": {"PreToolUse": [{"matcher": "(", "hooks": [{"command": "x"}]}]}}',
        '{"permissions": {"allow": ["Bash(\\ud800)", "Bash(a\\nb)", "Bash(\\u202e)", "Edit(../../x/*/../y)"]}}',
        "\x00",
        '{"a": "' + '\\"' * 100_000,
    ],
)
def test_a_hostile_file_breaks_nothing(here, home, workspace, content):
    write(workspace / ".claude" / "settings.json", content)
    write(workspace / ".claude" / "commands" / "ok.md", "Fine.\n")
    done = here("import", "claude-code", "--yes", "--json")
    assert done.code == 0, done.err
    assert done.json["not_taken"]
    assert "permissions" not in (config_of(workspace) or {})
    assert (workspace / ".forge/commands/ok.md").exists()


def test_links_that_lead_away_and_large_files_are_named(here, home, workspace, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "key"
    outside.write_text("secret text")
    folder = workspace / ".claude" / "commands"
    write(folder / "ok.md", "Fine.\n")
    (folder / "leak.md").symlink_to(outside)
    (folder / "large.md").write_text("x" * 100_000)
    (folder / "token.md").write_text("Use ghp_0123456789abcdefghij0123456789abcdef\n")
    os.mkfifo(folder / "pipe.md")
    (workspace / ".claude" / "skills").symlink_to(outside.parent)
    done = here("import", "claude-code", "--yes", "--json")
    named = {Path(one["file"]).name for one in done.json["not_taken"]}
    assert {"leak.md", "large.md", "token.md", "pipe.md", "skills"} <= named
    assert os.listdir(workspace / ".forge/commands") == ["ok.md"]
    assert "secret text" not in done.out
    assert "ghp_0123456789" not in done.out + done.err


def test_it_can_be_used_from_python(home, workspace):
    write(workspace / "opencode.json", {"permission": {"bash": {"rm *": "deny"}}})
    plan = plan_import("opencode", workspace, with_home=False)
    assert re.search(r"^\+    - deny execute rm \*$", plan.diff, re.MULTILINE)
    assert not (workspace / "forge.yaml").exists()
    write_import(plan, workspace)
    assert plan_import("opencode", workspace).is_empty
