"""What servers answer, as results."""

from __future__ import annotations

import base64

from forge.core.errors import ErrorKind
from forge.mcp.client.contents import LONGEST_ERROR, MOST_PARTS, result_of


def result(*content, **more):
    return result_of({"content": list(content), **more}, "git__status()")


def text(words):
    return {"type": "text", "text": words}


def test_texts_are_joined():
    assert result(text("one"), text("two")).for_llm == "one\ntwo"


def test_nothing_is_said_to_be_nothing():
    assert result().for_llm == "Done, without a result."


def test_media_travel_beside_the_text_and_never_as_base64():
    picture, sound = b"\x89PNG" * 10, b"RIFF"
    found = result(
        text("look:"),
        {"type": "image", "data": base64.b64encode(picture).decode(), "mimeType": "image/png"},
        {"type": "audio", "data": base64.b64encode(sound).decode(), "mimeType": "audio/wav"},
    )
    assert [(one.media_type, one.data) for one in found.attachments] == [
        ("image/png", picture),
        ("audio/wav", sound),
    ]
    assert found.attachments[0].name == "image-1.png"
    assert "[image/png, 40 bytes, attached as image-1.png]" in found.for_llm
    assert base64.b64encode(picture).decode() not in found.for_llm


def test_broken_media_do_not_break_the_rest():
    found = result(
        {"type": "image", "data": "%%%", "mimeType": "image/png"},
        {"type": "image", "data": None, "mimeType": "x\n\x1b[31m/y"},
        text("still here"),
    )
    assert not found.attachments
    assert found.for_llm == (
        "[image/png with unreadable data]\n[application/octet-stream with unreadable data]\nstill here"
    )


def test_a_link_is_a_line_and_is_not_followed():
    link = {"type": "resource_link", "uri": "docs://guide", "name": "guide", "description": "How\nto", "title": "guide"}
    assert result(link).for_llm == "[link to docs://guide: guide, How to]"


def test_embedded_resources_are_text_or_attached():
    found = result(
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///../x/b.bin?token=1", "blob": "AAEC"}},
    )
    assert found.for_llm.startswith("[resource file:///a.txt]\ninside\n")
    assert found.attachments[0].name == "b.bin"
    assert found.attachments[0].data == b"\0\1\2"


def test_structured_content_is_for_programs_and_for_the_model_where_there_is_no_text():
    both = result(text("two cities"), structuredContent={"count": 2})
    assert (both.for_llm, both.data) == ("two cities", {"structured": {"count": 2}})
    alone = result(structuredContent={"name": "Zürich"})
    assert alone.for_llm == '{"name": "Zürich"}'
    assert result(text("x"), structuredContent=None).data == {}


def test_what_fails_says_so_in_the_servers_words_cleaned_and_bounded():
    failed = result(text("\x1b[31mno such branch\x1b[0m"), isError=True, structuredContent={"code": 3})
    assert failed.failure is not None
    assert failed.failure.kind is ErrorKind.USER
    assert failed.failure.message == "no such branch"
    assert failed.for_llm == "git__status(): no such branch"
    assert failed.data == {"structured": {"code": 3}}
    assert len(result(text("x" * 100_000), isError=True).for_llm) < LONGEST_ERROR + 100
    assert "without a message" in result(isError=True).for_llm


def test_only_true_is_an_error():
    assert result(text("ok"), isError="false").success
    assert result(text("ok"), isError=False).success


def test_unknown_and_malformed_content_is_left_out_and_said():
    found = result({"type": "video\n"}, "nonsense", None, {"type": "resource", "resource": 3}, text("here"))
    assert found.for_llm.splitlines()[0] == "[content of the unknown type video was left out]"
    assert found.for_llm.endswith("here")
    assert result_of({"content": "no list"}, "x()").for_llm == "Done, without a result."


def test_too_many_pieces_are_counted_not_taken():
    found = result(*[text("x")] * (MOST_PARTS + 7))
    assert found.for_llm.endswith("[7 more parts of the content were left out]")


def test_half_characters_do_not_break_what_is_sent():
    assert result(text("a\ud800b")).for_llm.encode()
