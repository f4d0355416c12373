"""A key is declared once: the typed value, the check, the schema, the page and `config show` come from there."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jsonschema_rs
import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.project.config import Configuration, read_configuration
from forge.project.config.agent import AgentEntry
from forge.project.config.declaration import config_schema, known_variables, variables_set
from forge.project.config.section import Section, exactly_one
from forge.project.effective_config import effective_values
from scripts.reference.__main__ import SCHEMA, schema_text
from scripts.reference.configuration import configuration_page
from scripts.reference.schema import make_schema

if TYPE_CHECKING:
    from forge.project.config.kinds import FilePath, Key, Text, Whole


class Retries(Section, example={"most": 3}):
    """How often a call that failed is tried again."""

    most: Annotated[int, Whole(1), Key("So many times.", 3, unset=2)] = 2
    pause: Annotated[Literal["short", "long"] | None, Key("Between two of them.", "long")] = None


class Talkative(AgentEntry):
    """The agent of this test."""

    tone: Annotated[Text, Key("How it speaks.", "friendly")] = ""


class Larger(Configuration, example={"retries": {"most": 3}}):
    """A document with keys that `forge.yaml` does not have."""

    retries: Annotated[Retries | None, Key()] = None
    agent: Annotated[Talkative, Key()] = field(default_factory=Talkative)


LARGER = make_schema(Larger)


def read(text: str) -> Any:
    return read_configuration(text, "forge.yaml", LARGER)


def refused(text: str) -> ToolError:
    with pytest.raises(ToolError) as caught:
        read(text)
    assert caught.value.kind is ErrorKind.CONFIG
    return caught.value


def test_a_declared_key_is_a_typed_value():
    found = read("retries: {most: 5}\nagent: {tone: friendly, model: 'a:b'}\n")
    assert found.retries == Retries(most=5)
    assert (found.agent.tone, found.agent.model) == ("friendly", "a:b")
    assert read("retries: {}").retries == Retries(most=2)
    assert read("{}").retries is None


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("agent: {}\nretries:\n  most: 0\n", "retries.most: expected a whole number from 1, got 0 (line 3)", "most: 3"),
        ("retries: {mots: 1}", "retries.mots: unknown key (line 1)", "Did you mean 'most'? For example: most: 3"),
        ("\nretires: {}", "retires: unknown key (line 2)", "Did you mean 'retries'? For example: retries: {most: 3}"),
        ("retries: {pause: lung}", "expected one of short, long, got 'lung' (line 1)", "Did you mean 'long'?"),
        ("agent:\n  tone: ''", "agent.tone: expected a string, got an empty string (line 2)", "tone: friendly"),
    ],
)
def test_a_declared_key_is_checked_with_its_file_line_and_fix(text, message, fix):
    error = refused(text)
    assert error.message.startswith("forge.yaml: ")
    assert message in error.message
    assert fix in error.suggestion


def test_a_declared_key_is_in_the_schema():
    validator = jsonschema_rs.validator_for(config_schema(LARGER))
    assert validator.is_valid({"retries": {"most": 1, "pause": "short"}, "agent": {"tone": "friendly"}})
    assert not validator.is_valid({"retries": {"most": 0}})
    assert not validator.is_valid({"retries": {"mots": 1}})
    declared = config_schema(LARGER)["anyOf"][1]["properties"]["retries"]
    assert declared["description"] == "How often a call that failed is tried again."
    assert declared["properties"]["most"] == {
        "type": "integer",
        "minimum": 1,
        "exclusiveMaximum": 10**15,
        "description": "So many times.",
        "examples": [3],
        "default": 2,
    }


def test_a_declared_key_is_on_the_reference_page():
    page = configuration_page(LARGER)
    assert "## retries" in page
    assert "| `retries.most` | integer, 1 or more | So many times. | `3` |" in page
    assert "| `agent.tone` | string | How it speaks. | `friendly` |" in page
    assert "retries" not in configuration_page()


def test_a_declared_key_is_shown_and_explained():
    unsaid = {one.key_path: one for one in effective_values(read("{}"), schema=LARGER)}
    assert unsaid["retries.most"] == ("retries.most", 2, "defaults", "So many times.")
    said = {one.key_path: one for one in effective_values(read("retries: {most: 7}"), schema=LARGER)}
    assert (said["retries.most"].value, said["retries.most"].description) == (7, "So many times.")


def test_forge_yaml_itself_does_not_have_them():
    with pytest.raises(ToolError, match="retries: unknown key"):
        read_configuration("retries: {}", "forge.yaml")


def test_the_variables_that_say_something_are_declared_with_their_keys():
    known = known_variables()
    assert known["FORGE_MODEL"] == "agent.model"
    assert known["FORGE_DATABASE"] == "durable.database"
    assert all(name.startswith("FORGE_") for name in known)  # `variables_set` relies on it
    assert variables_set({"FORGE_MODEL": "a:b", "FORGE_TURNS": ""}) == {"FORGE_MODEL": "agent.model"}


def test_every_key_says_what_it_is_and_shows_how_it_is_written():
    def undescribed(node: Any, place: str) -> list[str]:
        found: list[str] = []
        for one in (node, *node.get("anyOf", ()), node.get("else", {}), node.get("items", {})):
            for name, inner in one.get("properties", {}).items():
                if "not" not in inner and not (inner.get("description") and inner.get("examples")):
                    found.append(f"{place}.{name}")
                found += undescribed(inner, f"{place}.{name}")
            more = one.get("additionalProperties")
            found += undescribed(more, f"{place}.NAME") if isinstance(more, dict) else []
        return found

    schema = make_schema(Configuration)
    schema["properties"]["permissions"]["properties"]["rules"]["items"] = {}  # `forge.permissions` describes them
    assert undescribed(schema, "") == []


def test_the_schema_that_commands_read_is_that_of_the_declaration():
    assert SCHEMA.read_text(encoding="utf-8") == schema_text()


class Shape(Section, alone="path", rules=[exactly_one(("path", "url"), "either a path or a url")]):
    """A section with a short form."""

    path: Annotated[FilePath | None, Key("Where it lies.", "a.txt")] = None
    url: Annotated[Text, Key("Where it is.", "https://example.com")] = ""


def test_typed_values_never_change_and_are_copied_with_changes():
    one = Shape(url="a")
    with pytest.raises(FrozenInstanceError):
        one.url = "b"  # type: ignore[misc]
    assert one.replace(url="b") == Shape(url="b")
    assert one == copy.deepcopy(one) == Shape(url="a").replace(key_path="elsewhere")
    assert one != Shape()


def test_a_section_has_a_short_form_and_rules():
    validator = jsonschema_rs.validator_for(make_schema(Shape))
    assert validator.is_valid("a.txt")
    assert validator.is_valid({"url": "a"})
    assert not validator.is_valid({"url": "a", "path": "b"})
    assert not validator.is_valid("")
