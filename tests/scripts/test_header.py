"""Headers of scripts, in docstrings and comments."""

from __future__ import annotations

import pytest

from forge.scripts.header import HeaderError, header_lines, read_header

SEED = '''"""
Tool: my_custom_tool
Description: Does something useful.

Input:
  query (str): The search query.
  limit (int): Maximum results.

Output:
  results (list): The search results.
"""

import json
'''


def read(content: str, *, python: bool = True):
    return read_header(header_lines(content, python=python))


def parameters(*lines: str):
    text = "\n".join(f"  {line}" for line in lines)
    return read(f'"""\nTool: x\nDescription: d.\nInput:\n{text}\n"""').parameters


def test_the_header_of_the_seed_is_read():
    header = read(SEED)
    assert header.name == "my_custom_tool"
    assert header.description == "Does something useful.\n\nOutput:\nresults (list): The search results."
    assert header.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "The search query."},
            "limit": {"type": "integer", "description": "Maximum results."},
        },
        "required": ["query", "limit"],
    }


@pytest.mark.parametrize(
    "content",
    [
        "/**\n * Tool: x\n * Description: It does.\n * Input:\n *   a (str): One.\n */\nimport x from 'y'",
        "/* Tool: x\n   Description: It does.\n   Input:\n     a (str): One.\n*/ let a",
        "#!/usr/bin/env node\n'use strict';\n// Tool: x\n// Description: It does.\n// Input:\n//   a (str): One.\n",
        "#!/bin/sh\n# Tool: x\n# Description: It does.\n#\n# Input:\n#   a (str): One.\nset -e\n",
        "#!/usr/bin/lua\n-- Tool: x\n-- Description: It does.\n-- Input:\n--   a (str): One.\n",
        "// (c) somebody\n\n/*\nTool: x\nDescription: It does.\nInput:\n  a (str): One.\n*/\n",
        "# Tool: x\r\n# Description: It does.\r\n# Input:\r\n#   a (str): One.\r\n",
    ],
)
def test_every_kind_of_comment_is_read(content):
    header = read(content, python=False)
    assert (header.name, header.description) == ("x", "It does.")
    assert header.parameters["properties"] == {"a": {"type": "string", "description": "One."}}


@pytest.mark.parametrize(
    "content",
    [
        '# -*- coding: utf-8 -*-\n# /// script\n# ///\n\nr"""Tool: x\nDescription: It does.\n"""\n',
        "'''\n    Tool: x\n    Description: It does.\n'''\n",
        '\ufeff"""\nTool: x\nDescription: It does.\n"""',
        "#!/usr/bin/env python3\n# Tool: x\n# Description: It does.\nimport json\n",
    ],
)
def test_python_files_are_read_however_they_begin(content):
    assert (read(content).name, read(content).description) == ("x", "It does.")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "import os\n",
        '"""Just a module."""\n',
        'import os\n"""\nTool: x\nDescription: late.\n"""\n',
        'x = """\nTool: x\nDescription: no docstring.\n"""\n',
        'f"""\nTool: x\nDescription: d.\n"""\n',
        '"""\nTool: x\nDescription: never ends\n',
        "\\" * 1_000,
        '"""' + "\\" * 60_000,
        "/*" * 30_000,
        "#\n" * 30_000,
    ],
)
def test_files_without_a_header_have_none(content):
    assert read(content) is None


def test_optional_parameters_and_defaults():
    found = parameters(
        "a (str): Needed.",
        "b (int, optional): May be left out.",
        "c (int) = 3: With a default.",
        'd ("x" | "y") = "x": A choice.',
        "e (str) = metric: A bare word.",
        "f (bool) = False: As Python spells it.",
        'g (list[str]) = ["a:b"]: JSON.',
        "h (str | None) = None: Nothing.",
        "i (str, required): Needed too.",
        "- j (any): A list entry.",
    )
    assert found["required"] == ["a", "i", "j"]
    given = {name: one.get("default", "-") for name, one in found["properties"].items()}
    assert given == {
        **dict.fromkeys("abij", "-"),
        "c": 3,
        "d": "x",
        "e": "metric",
        "f": False,
        "g": ["a:b"],
        "h": None,
    }


def test_a_text_goes_on_in_deeper_lines():
    found = parameters("a (str): One", "   two.", "b (int): Three.")
    assert found["properties"]["a"]["description"] == "One two."
    assert list(found["properties"]) == ["a", "b"]


def test_words_after_the_header_are_no_parameters():
    header = read('"""\nTool: x\nDescription: d.\nInput:\n  a (str): One.\n\nSee the manual.\n"""')
    assert list(header.parameters["properties"]) == ["a"]


@pytest.mark.parametrize("words", ["none", "None.", ""])
def test_a_tool_may_take_nothing(words):
    assert parameters(words) == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a: no type.", "line 5: 'a: no type.' is not a parameter; write it as"),
        ("a (str) text", "line 5: a: there is no :"),
        ("a (str: text", "line 5: a ) is missing"),
        ("a (strng): text", "line 5: a: the type 'strng': unknown type"),
        ("a (int) = many: text", 'line 5: a: its default "many" is not of its type'),
        ("a (float) = NaN: text", "its default NaN is not of its type"),
        ("a (int) = : text", 'its default "" is not of its type'),
        ("1a (int): text", "is not a parameter"),
        (r'a (str) = "\ud800": text', r'its default "\ud800" is not of its type'),
        (f"a (str) = x{' ' * 60_000}y", "line 5: a: there is no :"),  # in no time
        (f"a (str{'[]' * 3_000}): text", "it is nested more than 5 levels deep"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(line, why):
    with pytest.raises(HeaderError) as wrong:
        parameters(line)
    assert why in str(wrong.value)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("Tool:\nDescription: d.", "the line Tool: has no name"),
        ("Tool: x", "no description"),
        ("Tool: x\nTool: y\nDescription: d.", "line 3: there is a second section Tool:"),
        ("Tool: x\nDescription: d.\nInput:\n  a (str): 1.\n  a (str): 2.", "line 6: a is declared twice"),
        ("Tool: x\nDescription: d.\nInput:\n" + "\n".join(f"  a{n} (str): x" for n in range(65)), "65 parameters"),
    ],
)
def test_a_broken_header_is_refused(header, why):
    with pytest.raises(HeaderError) as wrong:
        read(f'"""\n{header}\n"""')
    assert why in str(wrong.value)


def test_descriptions_are_clean_and_bounded():
    header = read(f'"""\nTool: x\nDescription: \x1b[31mred\x1b[0m \u200bzero {"long " * 1000}\n"""')
    assert header.description.startswith("red zero long")
    assert len(header.description) <= 2_000


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (r'a ("\ud800" | "b"): text', "half a character"),
        (f"a ({'9' * 400}.0 | 1): text", "a number that JSON does not allow"),
        ('a (any) = {"a": 1e999}: text', "a number that JSON does not allow"),
        (r'a ("\u001b[31m" | "b"): text', "control characters"),
        (f"a (any) = {'[' * 900}{']' * 900}: text", "more than 100 levels deep"),
    ],
)
def test_what_no_model_could_be_sent_is_refused(line, why):
    with pytest.raises(HeaderError, match=why):
        parameters(line)


def test_a_default_may_be_nested():
    assert parameters(f"a (any) = {'[' * 50}{']' * 50}: text")["properties"]["a"]["description"] == "text"


@pytest.mark.parametrize("written", ["'a: b'", "'a' b", "a b", "'a", "'", "it's", "[1"])
def test_a_bare_default_is_taken_as_it_is_written(written):
    expected = "a: b" if written == "'a: b'" else written
    assert parameters(f"a (str) = {written} : Text.")["properties"]["a"]["default"] == expected
