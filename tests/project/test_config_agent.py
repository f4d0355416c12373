"""The agent's part of forge.yaml: model, prompt, limits, kinds of sub-agents."""

import asyncio

import pytest

from forge import ToolError
from forge.agent import Conversation
from forge.project.config import load_configuration
from forge.project.project import Project, RunOptions


@pytest.fixture
def project(tmp_path):
    (tmp_path / "script.yaml").write_text(
        "- {call: task, arguments: {description: a, prompt: b, agent_type: helper}}\n- done\n"
    )
    (tmp_path / "inner.yaml").write_text("- looked\n")

    def write(text):
        path = tmp_path / "forge.yaml"
        path.write_text(text.replace("DIR", str(tmp_path)))
        return str(path)

    return tmp_path, write


def test_model_prompt_limits_and_sub_agents_come_from_the_file(project):
    folder, write = project
    config = write(
        """
agent: {model: "scripted:DIR/script.yaml", prompt: "Speak like a pirate.", options: {reasoning_effort: low}}
limits: {turns: 7, calls: 9, cost: 2, price: {input: 1, output: 2}}
permissions: {rules: ["allow execute"]}
agents:
  helper: {prompt: "Look.", tools: [csv_parse, {group: read}], model: "scripted:DIR/inner.yaml", limits: {turns: 3}}
"""
    )
    made = Project(RunOptions(config=config, workspace=str(folder))).agent()
    assert (made.limits.turns, made.limits.calls, made.limits.cost) == (7, 9, 2)
    assert made.options == {"reasoning_effort": "low"}
    conversation = Conversation([])
    result = asyncio.run(made.run("go", history=conversation))
    assert result.text == "done"
    assert "pirate" in conversation.messages[0].text
    assert any("looked" in message.text for message in conversation.messages if message.role == "tool")
    assert Project(RunOptions(config=config, workspace=str(folder))).agent(turns=2).limits.turns == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agent: {modle: x}", "Did you mean 'model'"),
        ("agent: {options: [x]}", "agent.options: expected"),
        ("agent: {model: 5}", "agent.model: expected a string"),
        ("limits: {turns: 0}", "limits.turns: expected a whole number from 1"),
        ("limits: {turns: true}", "limits.turns"),
        ("limits: {price: {input: 1}}", "output is missing"),
        ("agents: {a: {tool: []}}", "Did you mean 'tools'"),
        ("agents: {a: {limits: {turns: x}}}", "agents.a.limits.turns"),
        ("agents: [a]", "agents: expected a mapping"),
        (
            "agents: {a: {tools: [{name: bash, config: {timeout: 3}}]}}",
            "write the settings under the top-level `tools`",
        ),
    ],
)
def test_a_mistake_is_explained_with_its_place(project, text, words):
    _, write = project
    with pytest.raises(ToolError) as refused:
        load_configuration(write(text))
    assert words in f"{refused.value.message} {refused.value.suggestion}"
