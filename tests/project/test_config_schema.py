"""The published schema gives the verdict of the reader, and every example of it is right."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from forge.core.errors import ToolError
from forge.permissions.policy import PolicyError
from forge.project.config import read_configuration
from forge.project.config.declaration import config_schema, organisation_schema
from forge.project.config.reader import document_schema, example_at
from forge.project.config_layers import Layer, rule_layers

ROOT = Path(__file__).parents[2]
KEYS = set(document_schema()["properties"])
WHOLE = """
agent: {id: ops, version: 0.1.0, description: "", prompt: "", model: "anthropic:x"}
tools:
  - group: read
  - name: cli_execute
    config: {allowed_binaries: [git, jq], env_passthrough: [GITHUB_TOKEN], timeout: 120, network: false}
  - name: "git__*"
    config: {timeout: 30, confirm: true, permissions: [read], rate: {calls: 3, seconds: 60, max_calls: 9}}
  - datetime_now
permissions:
  rules:
    - allow read
    - "Ask write src/**"
    - deny execute rm *
    - {action: allow, tool: "http_*", target: "api.example.com", agent: main, match: [api.example.com]}
workspace: {root: ., roots: [{path: ../lib, access: read}, ../more], writes: true}
sandbox: auto
egress: {mode: allowlist, domains: ["api.example.com", "*.example.org"], private: ["127.0.0.1:8080"]}
mcpServers:
  git: {command: uvx, args: [x, 8, ""], env: {A: "${B}", C: 5}, cwd: ., rename: {a: b}, prefix: g, hidden: auto}
  docs: {url: "https://example.com", headers: {A: b}, headers_env: {B: C}, include: "a*", timeout: 3, type: http}
  old: {disabled: true, autoApprove: [a]}
openapi:
  pets: {spec: ./petstore.yaml, server: "https://a.com", auth: {bearer_env: PETS}, include: [a], tags: t, hidden: true}
  basic: {spec: a, auth: {basic_env: {user: U, password: P}}}
  keyed: {spec: a, auth: {api_key_env: K, name: X, in: query}}
  short: a.json
webhooks: {notify: {url_env: HOOK, description: a, parameters: {type: object}, method: put}, plain: "https://a.com/x"}
skills: {paths: [skills], active: [code-agent]}
memory: {enabled: true, embedder: {type: endpoint, url: "http://a", model: m, key_env: K, dimensions: 3}}
schedules: [{id: nightly, cron: "0 3 * * *", task: "a", timezone: UTC, enabled: true, one_shot: false, channel: ""}]
agents: {researcher: {prompt: "a", tools: [{group: read}], model: "x:y", limits: {turns: 30}}}
limits: {turns: 50, calls: 200, tokens: 0, cost: 2, seconds: 1.5, price: {input: 1, output: 2, cached: 0.5}}
channels:
  team: {type: webhook, url_env: TEAM, headers_env: {A: B}, targets: [a, 5]}
  mail: {type: webhook, url_env: MAIL, files: multipart}
  ops: {type: slack, token_env: S, chat_id: C1, api: "http://a", targets: [C2]}
  hook: {type: slack, url_env: H}
  talk: {type: slack, token_env: S, app_token_env: A, people: [U1], approvers: [U1]}
  asked: {type: slack, token_env: S, signing_secret_env: A, people: [U1]}
  phone: {type: telegram, token_env: T, people: [42], approvers: ["42"]}
  served: {type: telegram, token_env: T, webhook_url: "https://a.com/b", webhook_secret_env: W, people: [42]}
  me: {type: telegram, token_env: T, chat_id: -100, api: "http://a", targets: []}
  out: {type: file, path: a.txt}
  here: {type: terminal}
secrets: [GITHUB_TOKEN, {file: private/token}]
guardrails: {deny_commands: [{pattern: a, message: b}, c], deny_output: [{pattern: a, action: redact}]}
durable:
  database: "postgresql://forge@db.example.com/${NAME}"
  queues: {default: {concurrency: 50, rate: {calls: 100, seconds: 0.5}, per_tenant: 5}, "on:gpu": {}}
"""
BAD = """
tols: []|tools: {}|tools: null|tools: [5]|tools: [{}]|tools: [{name: a, group: b}]|tools: [""]|tools: [{name: a, x: 1}]
tools: [{name: a, config: {timeout: 0}}]|tools: [{name: a, config: {timeout: true}}]|tools: [{name: a, config: 5}]
tools: [{name: a, config: {confirm: 1}}]|tools: [{name: a, config: {permissions: [raed]}}]
tools: [{name: a, config: {rate: {calls: -1}}}]|tools: [{name: a, config: {rate: {seconds: 0}}}]
permissions: []|permissions: {rule: []}|permissions: {rules: allow}|permissions: {rules: [alow read]}
permissions: {rules: ["allow"]}|permissions: {rules: ["allow raed"]}|permissions: {rules: [{action: allow}]}
permissions: {rules: [{tool: a}]}|permissions: {rules: [{action: allow, tool: a, x: b}]}|permissions: {rules: [null]}
workspace: {root: 5}|workspace: {roots: lib}|workspace: {roots: [{access: read}]}|workspace: {writes: 1}
sandbox: maybe|sandbox: true|sandbox: null|egress: {mode: shut}|egress: {domains: a.com}|egress: [a]|egress: {x: 1}
mcpServers: []|mcpServers: {a: {}}|mcpServers: {a: {command: x, url: y}}|mcpServers: {a__b: {command: x}}
mcpServers: {a: {command: x, type: sse}}|mcpServers: {a: {command: x, autoApprove: []}}|mcpServers: {"1": {command: x}}
mcpServers: {a: {command: x, disabled: 1}}|mcpServers: {a: {disabled: true, zzz: 1}}
mcpServers: {a: {command: x, args: [true]}}|mcpServers: {a: {command: x, env: {A: [1]}}}|mcpServers: {a: {url: " "}}
openapi: {a: {}}|openapi: {a: {spec: b, auth: {bearer: x}}}|openapi: {a: {spec: b, auth: {name: X}}}
openapi: {a: {spec: b, auth: {bearer_env: A, api_key_env: B}}}|openapi: {a: {spec: b, hidden: maybe}}
openapi: {a: {spec: b, auth: {basic_env: {user: A}}}}|openapi: {a: {spec: b, auth: {api_key_env: A, in: body}}}
webhooks: {a: {}}|webhooks: {a: {url: b, url_env: C}}|webhooks: {a: {url: b, timeout: 0}}
webhooks: {a: {url_env: "a b"}}
skills: []|skills: {path: a}|memory: true|memory: {embedder: remote}|memory: {embedder: {url: a}}|memory: {enabled: 1}
schedules: {}|schedules: [{id: a, cron: b}]|schedules: [{id: a, cron: b, task: c, x: d}]
schedules: [{id: a, cron: b, task: c, enabled: 1}]|schedules: [{id: 5, cron: b, task: c}]
agents: []|agents: {a: {tool: []}}|agents: {a: {limits: {turns: 0}}}|limits: {turns: 0}|limits: {turns: 1.5}
limits: {turns: true}|limits: {price: {input: 1}}|limits: {calls: -1}|limits: {tokens: 1e15}
channels: {a: {}}|channels: {a: {type: fax}}|channels: {a: {type: file}}|channels: {a: {type: terminal, path: b}}
channels: {a: {type: slack}}|channels: {a: {type: slack, url_env: U, token_env: T}}
channels: {a: {type: slack, url_env: U, chat_id: C1}}|channels: {a: {type: webhook, url_env: U, files: zip}}
channels: {a: {type: telegram, token_env: T, chat_id: [1]}}|channels: {a: {type: webhook, url_env: U, targets: [[]]}}
channels: {a: {type: slack, token_env: T, people: [U1]}}|channels: {a: {type: slack, url_env: U, people: [U1]}}
channels: {a: {type: telegram, token_env: T, webhook_url: a}}|channels: {a: {type: file, path: b, people: [c]}}
channels: {a: {type: telegram, token_env: T, people: 42}}
channels: {a: {type: telegram, token_env: T, app_token_env: A}}
secrets: [5]|secrets: ["sk-live"]|secrets: [{}]|secrets: [{file: a, x: b}]|secrets: A
guardrails: []|guardrails: {deny: []}|guardrails: {deny_commands: [{message: a}]}|guardrails: {deny_prompts: a}
guardrails: {deny_commands: [{pattern: a, action: redact}]}|guardrails: {deny_output: [{pattern: a, action: hide}]}
durable: []|durable: {databse: a}|durable: {database: 5}|durable: {database: mysql://a/b}|durable: {database: a.db}
durable: {queues: []}|durable: {queues: {a: 5}}|durable: {queues: {a: {concurrency: 0}}}|durable: {queues: {"a b": {}}}
durable: {queues: {a: {rate: {calls: 1}}}}|durable: {queues: {a: {rate: {calls: 1, seconds: 0}}}}
agent: {id: "a b"}|agent: {version: 0.1}|agent: {model: ""}|agent: {prompt: 5}|agent: {modle: x}|agent: x|text|[]|5
"""
GOOD = """
{}|null|tools: []|sandbox: off|sandbox: false|limits: {turns: 5.0}|limits: {cost: 0}|limits: {}|egress: {}|memory: {}
openapi: {a: {spec: b, auth: {}}}|mcpServers: {a: {disabled: true}}|skills: {paths: a}|memory: {embedder: null}
memory: {embedder: local}|memory: {embedder: {type: none}}|tools: [{name: a, config: {timeout: null, other: [1]}}]
permissions: {rules: []}|permissions: {rules: ["allow tool:a*", "DENY * x # why", {action: ask, permission: "*"}]}
durable: {}|durable: {database: "sqlite:///a.db"}|durable: {database: "${A}"}|durable: {queues: {}}
agent: {prompt: " "}|channels: {a: {type: telegram, token_env: T, chat_id: ""}}|workspace: {roots: [a]}
"""
POOL: list[Any] = [
    None, True, False, 0, 1, -1, 5.0, 1.5, "", " ", "a", "A_B", "a b", "0 3 * * *", "\0", "\x1c", "read", "auto",
    "allow read", "${A}", [], ["a"], [5], [[]], {}, {"a": "b"}, {"name": "a"}, {"url": "b"}, {"file": "c"}, 10**16,
]  # fmt: skip

SCHEMA = jsonschema_rs.validator_for(config_schema())


def listed(table: str) -> list[str]:
    return [one for line in table.strip().splitlines() for one in line.split("|")]


def why_refused(document: Any) -> str:
    """By the reader, and by whoever reads the rules."""
    text = json.dumps(document)
    try:
        said = read_configuration(text, "forge.yaml")
        rule_layers([Layer("project", "forge.yaml", said.document, text)])
    except (ToolError, PolicyError) as error:
        return str(error)
    return ""


def agree(document: Any) -> bool:
    """But for what a rule means, which no schema can say."""
    why = why_refused(document)
    return SCHEMA.is_valid(document) is (why == "") or "match example" in why or "would match nothing" in why


def test_it_is_a_schema_of_2020_12_that_describes_every_key():
    schema = config_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(schema)
    sections = schema["anyOf"][1]["properties"]
    assert set(sections) == KEYS
    assert all(one["description"] and one["examples"] for one in sections.values())
    json.dumps(schema)


@pytest.mark.parametrize("text", [WHOLE, *listed(GOOD)])
def test_both_accept_what_is_right(text):
    document = yaml.safe_load(text)
    assert why_refused(document) == ""
    assert [*SCHEMA.iter_errors(document)] == []


@pytest.mark.parametrize("text", listed(BAD))
def test_both_refuse_what_is_wrong(text):
    document = yaml.safe_load(text)
    assert why_refused(document)
    assert not SCHEMA.is_valid(document)


def test_both_agree_on_documents_that_were_broken_at_random():
    chance = random.Random(9)
    whole = yaml.safe_load(WHOLE)
    wrong = []
    for _ in range(800):
        document = copy.deepcopy(whole)
        section = chance.choice([*document])
        document = {section: document[section]}
        for _ in range(chance.choice((1, 1, 2))):
            document = broken(document, chance)
        if not agree(document):
            wrong.append((document, why_refused(document)))
    assert wrong[:3] == []


def broken(document: Any, chance: random.Random) -> Any:
    """The document with one place in it changed, removed or added to."""
    places = [*_containers(document)]
    where = chance.choice(places)
    keys = [*where] if isinstance(where, dict) else [*range(len(where))]
    way = chance.choice(("change", "change", "remove", "add"))
    if not keys or way == "add":
        if isinstance(where, dict):
            where[chance.choice(("name", "x", "url", "disabled", "timeout"))] = copy.deepcopy(chance.choice(POOL))
        else:
            where.append(copy.deepcopy(chance.choice(POOL)))
        return document
    key = chance.choice(keys)
    if way == "remove":
        del where[key]
    else:
        where[key] = copy.deepcopy(chance.choice(POOL))
    return document


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for one in [*(value.values() if isinstance(value, dict) else value)]:
            yield from _containers(one)


def documented() -> Iterator[Any]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))):
        for block in re.findall(r"```ya?ml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            document = yaml.safe_load(block)
            if isinstance(document, dict) and set(document) <= KEYS:
                yield pytest.param(document, id=f"{path.name}: {next(iter(document))}")


@pytest.mark.parametrize("document", [*documented()])
def test_what_is_documented_is_right(document):
    assert why_refused(document) == ""
    assert [*SCHEMA.iter_errors(document)] == []


def test_every_example_of_the_schema_is_right():
    count = 0
    for node in _nodes(config_schema()):
        validator = jsonschema_rs.validator_for(node)
        for example in node.get("examples", ()):
            assert validator.is_valid(example), (node, example)
            count += 1
    assert count > 80
    for key, section in config_schema()["anyOf"][1]["properties"].items():
        assert why_refused({key: section["examples"][0]}) == ""


def _nodes(schema: Any) -> Iterator[Any]:
    """Every schema inside a schema."""
    yield schema
    inner = [schema[key] for key in ("items", "additionalProperties", "else") if isinstance(schema.get(key), dict)]
    for one in (*inner, *schema.get("anyOf", ()), *schema.get("properties", {}).values()):
        yield from _nodes(one)


@pytest.mark.parametrize(
    "place",
    ["tools[0].config.rate.calls", "egress.domains[0]", "mcpServers.a.args", "nonsense", "", "limits.price.input"],
)
def test_an_example_for_a_place_is_yaml(place):
    assert yaml.safe_load(example_at(place, "", document_schema()))


def test_the_organisations_file_has_a_schema_too():
    validator = jsonschema_rs.validator_for(organisation_schema())
    assert validator.is_valid({"sandbox": "required", "permissions": {"rules": ["deny tool:bash"]}})
    assert not validator.is_valid({"tools": []})
