"""Where a description comes from."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from forge.core.errors import DefinitionError
from forge.core.tool import Tool, tool


def greet(name: str) -> str:
    """The embedded text, in ${cwd}.

    Args:
        name: who
    """
    return name


def described(file) -> str:
    return tool(description_file=str(file))(greet).spec.description


def test_a_description_file_is_read_trimmed_and_its_variables_are_filled_in(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("\n  In ${workspace}, ${directory} and ${cwd}.  \n\n", encoding="utf-8")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("AGENT_WORKSPACE_ROOT", "/srv/project")
    assert described(tmp_path / "text.txt") == f"In /srv/project, {tmp_path}/here and {tmp_path}/here."


def test_the_workspace_is_the_current_directory_unless_it_is_set(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("${workspace}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENT_WORKSPACE_ROOT", raising=False)
    assert described(tmp_path / "text.txt") == str(tmp_path)


def test_other_dollars_stay_as_they_are(tmp_path):
    text = "Costs $5, $$, ${HOME}, $HOME, $cwd and ${}."
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    assert described(tmp_path / "text.txt") == text


@pytest.mark.parametrize("content", [None, b"", b"  \n ", b"\xff\xfe\x00"], ids=["missing", "empty", "blank", "binary"])
def test_without_a_readable_file_the_embedded_text_is_used(tmp_path, monkeypatch, content):
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert described(tmp_path / "text.txt") == f"The embedded text, in {tmp_path}."


def test_a_folder_in_its_place_is_no_reason_to_fail(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert described(tmp_path) == f"The embedded text, in {tmp_path}."


def test_a_relative_file_lies_beside_the_module_that_defines_the_tool(tmp_path, monkeypatch):
    (tmp_path / "beside.txt").write_text("Beside.", encoding="utf-8")
    (tmp_path / "lying_beside.py").write_text(
        "from forge.core.tool import Tool, tool\n"
        "@tool(description_file='beside.txt')\n"
        "def made() -> str:\n    'Embedded.'\n"
        "class Made(Tool, description_file='beside.txt'):\n    'Embedded.'\n    def run(self) -> str: ...\n",
        encoding="utf-8",
    )
    spec = importlib.util.spec_from_file_location("lying_beside", tmp_path / "lying_beside.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lying_beside", module)
    spec.loader.exec_module(module)
    assert module.made.spec.description == "Beside."
    assert module.Made().spec.description == "Beside."


def test_a_class_takes_a_description_file_too(tmp_path):
    (tmp_path / "text.txt").write_text("From the file.", encoding="utf-8")

    class Reads(Tool, description_file=str(tmp_path / "text.txt")):
        """Embedded."""

        def run(self) -> str:
            return ""

    assert Reads().spec.description == "From the file."


def test_a_file_alone_is_enough_of_a_description(tmp_path):
    (tmp_path / "text.txt").write_text("From the file.", encoding="utf-8")

    def bare() -> str:
        return ""

    assert tool(description_file=str(tmp_path / "text.txt"))(bare).spec.description == "From the file."


@pytest.mark.parametrize("words", [{}, {"description": "Embedded."}])
def test_a_definition_with_a_schema_takes_a_description_file_too(tmp_path, words):
    (tmp_path / "text.txt").write_text("From the file.", encoding="utf-8")
    file, schema = str(tmp_path / "text.txt"), {"type": "object", "properties": {"name": {"type": "string"}}}
    whole = {**words, "parameters": schema, "execute": greet, "description_file": file}
    assert Tool.define("greet", whole).spec.description == "From the file."
    assert Tool.define("greet", {**whole, "description_file": "nowhere.txt"}).spec.description == "".join(
        words.values()
    )


def test_a_definition_with_a_schema_and_no_words_is_refused():
    with pytest.raises(DefinitionError, match="needs a `description`"):
        Tool.define("greet", {"parameters": {"type": "object"}, "execute": greet})


def test_the_file_is_read_when_the_description_is_and_not_before(tmp_path):
    made = tool(description_file=str(tmp_path / "late.txt"))(greet)
    (tmp_path / "late.txt").write_text("Late.", encoding="utf-8")
    assert made.spec.description == "Late."


GOOGLE = """First line.

    More of it.

    Args:
        name: who to greet,
            and why
    Returns:
        text
    """
GOOGLE_TYPED = """First line.

    More of it.

    Args:
        name (str): who to greet, and why
    """
NUMPY = """First line.

    More of it.

    Parameters
    ----------
    name : str
        who to greet,
        and why

    Returns
    -------
    str
    """
SPHINX = """First line.

    More of it.

    :param name: who to greet,
        and why
    :type name: str
    :returns: text
    """
SPHINX_TYPED = """First line.

    More of it.

    :param str name: who to greet, and why
    """


@pytest.mark.parametrize("doc", [GOOGLE, GOOGLE_TYPED, NUMPY, SPHINX, SPHINX_TYPED])
def test_docstrings_of_every_style_are_read(doc):
    def made(name: str) -> str:
        return name

    made.__doc__ = doc
    spec = tool(made).spec
    assert spec.description == "First line.\n\nMore of it."
    assert spec.parameters["properties"]["name"]["description"] == "who to greet, and why"


def test_a_docstring_that_only_looks_like_a_section_does_no_harm():
    def made(name: str) -> str:
        """Greet.

        Args:
        nothing here follows the style at all
        """
        return name

    assert tool(made).spec.description == "Greet."
    assert tool(made).spec.parameters["properties"]["name"]["type"] == "string"
