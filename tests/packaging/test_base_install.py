"""A base install works, and says of everything that is missing how to get it."""

from __future__ import annotations

import json

import pytest

from forge.core.extras import EXTRAS, install_command
from tests.packaging.base_install import other_modules, run_commands, run_with_extras, run_without_extras

pytestmark = pytest.mark.timeout(300)  # other processes, on a busy machine

UNAVAILABLE = {"mcp_call": "mcp", "web_fetch": "web"}
FILES = {
    "script.yaml": """
- {call: math_calculate, arguments: {expression: 6*7}}
- {call: web_fetch, arguments: {url: "http://127.0.0.1:1/"}}
- Done.
""",
    "servers.yaml": "mcpServers: {git: {command: no-such-program}}\n",
    "tools.yaml": "tools: [web_fetch, file_read]\n",
    "needs.yaml": "tools: [web_fetch]\nmcpServers: {git: {command: sh}}\ndurable: {database: 'sqlite:///a.db'}\n",
    "people.csv": "name,age\nAda,36\n",
}
LACKING = {
    "serve": "mcp",
    "serve --http": "mcp",
    "console": "console",
    "worker": "durable",
    "worker status": "durable",
    "runs list": "durable",
    "run --durable --model scripted:script.yaml hi": "durable",
}
DATA_TOOLS = {
    "file_read": {"path": "people.csv"},
    "grep_search": {"pattern": "Ada"},
    "bash": {"command": "echo hello"},
    "csv_parse": {"path": "people.csv"},
}
BOTH = {
    "list": ["tool", "list"],
    "list --json": ["tool", "list", "--json"],
    "call mcp_call": ["tool", "call", "mcp_call", "{}"],
    "call web_fetch": ["tool", "call", "web_fetch", "{}"],
    "servers": ["tool", "list", "--config", "servers.yaml"],
    "tools": ["tool", "list", "--config", "tools.yaml"],
    "explain": ["policy", "explain", "web_fetch", '{"url": "https://example.com"}'],
    "doctor --json": ["doctor", "--json"],
    "run": ["run", "--json", "--yes", "--no-audit", "--model", "scripted:script.yaml", "hello"],
}


def run_here(run, folder, commands):
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return run_commands(run, folder, commands)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The commands in a base install."""
    more = {
        "none": ["tool", "list", "--json", "--permission", "none"],
        "describe": ["tool", "describe", "web_fetch", "--json"],
        "doctor": ["doctor", "--verbose"],
        "doctor needs": ["doctor", "--json", "--config", "needs.yaml"],
        **{f"call {name}": ["tool", "call", name, json.dumps(given), "--yes"] for name, given in DATA_TOOLS.items()},
        **{words: words.split() for words in LACKING},
    }
    return run_here(run_without_extras, tmp_path_factory.mktemp("base"), BOTH | more)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The same with every extra."""
    return run_here(run_with_extras, tmp_path_factory.mktemp("full"), BOTH)


def test_modules_beyond_a_base_install_cannot_be_imported(tmp_path):
    ended = run_without_extras("import pydantic, forge\nprint('mcp' in blocked)\nimport mcp", tmp_path)
    assert ended.out == "True\n"
    assert "No module named 'mcp'" in ended.err
    assert {module.partition(".")[0] for extra in EXTRAS.values() for module in extra.modules} <= other_modules()


def test_tools_of_a_missing_extra_are_listed_as_unavailable(base):
    listed = base["list"]
    assert listed.code == 0
    lines = listed.out.splitlines()
    for name, extra in UNAVAILABLE.items():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert line.split(None, 1)[1] == f"unavailable: {install_command(extra)}"
    assert any(line.startswith("file_read") for line in lines)


def test_programs_see_them_apart(base):
    listed = base["list --json"].json
    assert not UNAVAILABLE.keys() & {tool["name"] for tool in listed["tools"]}
    assert {tool["name"]: tool["extra"] for tool in listed["unavailable"]} == UNAVAILABLE
    assert listed["unavailable"][0]["install"] == install_command("mcp")
    assert base["none"].json["unavailable"] == []


def test_with_the_extras_they_are_tools_like_others(full):
    listed = full["list --json"].json
    assert UNAVAILABLE.keys() <= {tool["name"] for tool in listed["tools"]}
    assert listed["unavailable"] == []
    assert "unavailable" not in full["list"].out


def test_such_a_tool_is_still_described(base):
    described = base["describe"].json
    assert described["install"] == install_command("web")
    assert "url" in described["parameters"]["properties"]


@pytest.mark.parametrize("name", sorted(UNAVAILABLE))
def test_a_call_says_what_is_missing_and_how_to_get_it(base, name):
    ended = base[f"call {name}"]
    assert ended.code == 1
    assert ended.json["error"].startswith(f"{name} cannot be used: the extra '{UNAVAILABLE[name]}' is not installed")
    assert ended.json["suggestion"] == f"Install it with: {install_command(UNAVAILABLE[name])}"


@pytest.mark.parametrize("name", sorted(UNAVAILABLE))
def test_with_the_extra_the_call_reaches_the_tool(full, name):
    assert full[f"call {name}"].json["error_type"] == "validation_error"


def finished_calls(ended):
    events = [json.loads(line) for line in ended.out.splitlines()]
    return {one["call"]["name"]: one["result"] for one in events if one["event"] == "tool_call_end"}


def test_an_agent_runs_and_a_model_that_calls_such_a_tool_gets_the_reason(base):
    assert base["run"].code == 0, base["run"].err
    calls = finished_calls(base["run"])
    assert calls["math_calculate"]["for_llm"] == "42"
    assert install_command("web") in calls["web_fetch"]["for_llm"]


def test_with_the_extras_the_same_run_uses_the_tool(full):
    assert full["run"].code == 0, full["run"].err
    assert "extra" not in finished_calls(full["run"])["web_fetch"]["for_llm"]


LIBRARY = """
import logging, pydoc
logging.basicConfig(format="%(message)s")
from forge import *
import forge
from forge.tools.web_fetch import WebFetch
assert Agent is forge.Agent and mcp is forge.mcp
assert "class Agent" in pydoc.plain(pydoc.render_doc(forge))
print("DurableAgent" in forge.__all__)
registry = ToolRegistry()
register_all(registry)
model = Scripted("Hello.")
Agent(model, tools=registry).run_sync("hi")
sent = [spec.name for spec in model.requests[0].tools]
print("web_fetch" in sent, "csv_parse" in sent)
Agent(Scripted("Hello."), tools=[WebFetch()])
from forge import DurableAgent
"""


def test_the_library_works_without_the_extras(tmp_path):
    """The star import and `help`; what a model is sent; an agent that is given a tool it cannot use."""
    ended = run_without_extras(LIBRARY, tmp_path)
    assert ended.out.split() == ["False", "False", "True"], ended.err
    (logged,) = [line for line in ended.err.splitlines() if line.startswith("web_fetch cannot be used")]
    assert logged.endswith(f"Install it with: {install_command('web')}")
    assert ended.err.splitlines()[-1].endswith(f"Install it with: {install_command('durable')}")


def test_the_library_works_with_them(tmp_path):
    ended = run_with_extras(LIBRARY, tmp_path)
    assert ended.out.split() == ["True", "True", "True"]
    assert ended.err == ""


CLOUDS = """
import os
os.environ |= {"GOOGLE_CLOUD_PROJECT": "p", "AZURE_OPENAI_ENDPOINT": "https://example.org", "AWS_REGION": "eu-west-1"}
os.environ |= {"HOME": os.getcwd(), "CLOUDSDK_CONFIG": os.getcwd()}
for name in ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
    os.environ.pop(name, None)
from forge.core.provider import ProviderError
from forge.models.vendors import provider_for
def choose():
    for model in ("vertex:gemini-3-pro", "azure:gpt", "bedrock:amazon.nova-pro-v1:0"):
        try:
            provider_for(model)
            print("chosen")
        except ProviderError as error:
            print(f"{error.message}: {error.suggestion}")
choose()
os.environ |= {"AZURE_OPENAI_API_KEY": "k", "CLOUDSDK_AUTH_ACCESS_TOKEN": "t", "AWS_BEARER_TOKEN_BEDROCK": "t"}
choose()
print([name for name in ("azure.identity", "botocore", "google.auth") if name in sys.modules])
"""


def test_a_model_of_a_cloud_names_the_extra_of_its_credentials(tmp_path):
    *refused, vertex, azure, bedrock, loaded = run_without_extras(CLOUDS, tmp_path).out.splitlines()
    for extra, line in zip(("vertex", "azure", "bedrock"), refused, strict=True):
        assert f"the extra '{extra}' is not installed" in line
        assert line.endswith(f": Install it with: {install_command(extra)}")
    assert (vertex, azure, bedrock) == ("chosen",) * 3  # a key or a token in a variable needs no package
    assert loaded == "[]"


def test_with_the_extras_it_is_chosen_and_their_packages_wait_for_its_first_request(tmp_path):
    *chosen, loaded = run_with_extras(CLOUDS, tmp_path).out.splitlines()
    assert chosen == ["chosen"] * 6
    assert loaded == "[]"


@pytest.mark.parametrize("command", LACKING)
def test_commands_of_a_missing_extra_say_how_to_get_it(base, command):
    ended = base[command]
    assert ended.code == 2
    first, *_, last = ended.err.splitlines()
    assert f"the extra '{LACKING[command]}' is not installed" in first
    assert last == f"Install it with: {install_command(LACKING[command])}"


@pytest.mark.parametrize("command", ["serve", "worker status", "runs list"])
def test_with_the_extras_they_work(tmp_path, command):
    ended = run_commands(run_with_extras, tmp_path, {command: command.split()})[command]
    assert ended.code == 0, ended.err


def test_servers_of_a_forge_yaml_are_left_out_with_a_note(base, full):
    ended = base["servers"]
    assert ended.code == 0
    assert "git is left out: the MCP server git cannot be opened: the extra 'mcp' is not installed" in ended.err
    assert install_command("mcp") in ended.err
    assert "extra" not in full["servers"].err


def test_a_tool_that_a_forge_yaml_names_is_reported(base, full):
    ended = base["tools"]
    assert ended.code == 0
    assert "web_fetch cannot be used" in ended.err
    assert install_command("web") in ended.err
    assert full["tools"].err == ""


def test_the_rules_for_a_missing_tool_are_explained(base, full):
    assert base["explain"].code == 0
    assert base["explain"] == full["explain"]


def test_doctor_lists_every_extra_with_its_command(base):
    found = {check["check"]: check for check in base["doctor --json"].json["checks"]}
    for extra in EXTRAS:
        assert found[f"extra {extra}"]["status"] == "note"
        assert found[f"extra {extra}"]["fix"] == install_command(extra)
    assert all(install_command(extra) in base["doctor"].out for extra in EXTRAS)


def test_doctor_says_which_are_installed(full):
    found = {check["check"]: check for check in full["doctor --json"].json["checks"]}
    assert [found[f"extra {extra}"]["status"] for extra in EXTRAS] == ["ok"] * len(EXTRAS)


def test_doctor_knows_what_a_forge_yaml_lacks(base):
    found = {check["check"]: check for check in base["doctor needs"].json["checks"]}
    fixes = {check: (found[check]["status"], found[check]["fix"]) for check in ("tools", "mcp git", "durable runs")}
    assert fixes == {
        "tools": ("warning", install_command("web")),
        "mcp git": ("warning", install_command("mcp")),
        "durable runs": ("warning", install_command("durable")),
    }


@pytest.mark.parametrize(
    ("name", "said"), [("file_read", "Ada"), ("grep_search", "people.csv:2"), ("bash", "hello"), ("csv_parse", "36")]
)
def test_the_file_shell_and_data_tools_work(base, name, said):
    ended = base[f"call {name}"]
    assert ended.code == 0, ended
    assert said in ended.json["for_llm"]
