"""Text is read in the charset it is in, and what was guessed or lost is said."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as some

from forge.network.body import read_text

WORD = "Grüße, €5 – naïve"


@pytest.mark.parametrize(
    ("body", "declared"),
    [
        (WORD.encode(), "text/html; charset=utf-8"),
        (WORD.encode(), "text/plain"),
        (WORD.encode(), ""),
        (WORD.encode("cp1252"), "text/html; charset=windows-1252"),
        (WORD.encode("cp1252"), "text/html; charset=ISO-8859-1"),
        (WORD.encode("cp1252"), 'text/html; Charset="latin1"'),
        (WORD.encode("utf-16-le"), "text/html; charset=utf-16le"),
        (codecs.BOM_UTF8 + WORD.encode(), "text/html; charset=koi8-r"),
        (codecs.BOM_UTF16_LE + WORD.encode("utf-16-le"), ""),
        (codecs.BOM_UTF16_BE + WORD.encode("utf-16-be"), "text/html; charset=utf-8"),
        (codecs.BOM_UTF32_LE + WORD.encode("utf-32-le"), ""),
        (WORD.encode("gb18030"), "text/html; charset=gb18030"),
    ],
)
def test_text_in_its_charset_needs_no_note(body, declared):
    found = read_text(body, declared)
    assert (found.text, found.note, found.binary) == (WORD, "", False)


@pytest.mark.parametrize(
    ("head", "charset"),
    [
        ('<html><meta charset="windows-1251">', "cp1251"),
        ("<META http-equiv='Content-Type' content='text/html; charset=koi8-r'>", "koi8-r"),
        ('<?xml version="1.0" encoding="windows-1251"?>', "cp1251"),
    ],
)
def test_a_page_may_say_its_charset_itself(head, charset):
    found = read_text((head + "Привет").encode(charset), "text/html")
    assert (found.text, found.charset, found.note) == (head + "Привет", charset, "")
    assert "Привет" not in read_text((head + "Привет").encode(charset), "text/html; charset=iso-8859-2").text


@pytest.mark.parametrize("declared", ["iso-8859-1", "us-ascii", "windows-1252", "shift_jis", "euc-kr"])
def test_a_charset_that_lies_about_utf_8_is_found_out(declared):
    text = "naïve café – ünïcödé, 5 €!"
    found = read_text(text.encode(), f"text/html; charset={declared}")
    assert found.text == text
    assert "but it is UTF-8" in found.note


def test_old_text_without_or_with_a_wrong_charset_is_guessed_and_said_to_be():
    for declared, why in (
        ("", ""),
        ("; charset=utf-8", "declared as utf-8"),
        ("; charset=nonsense", "not a known charset"),
    ):
        found = read_text(WORD.encode("cp1252"), f"text/plain{declared}")
        assert (found.text, found.charset) == (WORD, "cp1252")
        assert "guessed" in found.note
        assert why in found.note


@pytest.mark.parametrize(
    "codec", ["zip", "rot13", "hex", "utf-7", "idna", "unicode_escape", "punycode", "base64", "undefined"]
)
def test_only_charsets_count_as_charsets(codec):
    found = read_text(b"+ADw-script+AD4- \\x41", f"text/html; charset={codec}")
    assert found.text == "+ADw-script+AD4- \\x41"
    assert "not a known charset" in found.note


def test_invalid_bytes_are_shown_and_counted():
    found = read_text(
        "häuser ".encode() * 100 + b"\xff\xfe bad \x80 " + "straße \ufffd".encode(), "text/plain; charset=utf-8"
    )
    assert found.text.count("\ufffd") == 4
    assert found.note == "3 invalid byte sequences shown as \ufffd"


def test_binary_is_called_binary():
    for body in (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", bytes(range(256)), b"\x00"):
        found = read_text(body, "text/html; charset=utf-8")
        assert found.binary
        assert "not text" in found.note
        assert len(found.text) == len(body)
    assert read_text(b"\x00\x01\x02\x00" * 99, "text/html; charset=utf-32").note
    assert not read_text(b"\x1b[1mbold\x1b[0m\ttext\r\n\f", "text/plain").binary


def test_a_body_that_was_cut_loses_at_most_its_last_character():
    body = WORD.encode()
    for end in range(len(body) + 1):
        found = read_text(body[:end], "text/plain; charset=utf-8", cut=True)
        assert WORD.startswith(found.text)
        assert (found.note, found.charset) == ("", "utf-8")


@given(
    some.binary(max_size=200),
    some.sampled_from(["", "utf-8", "ascii", "utf-16", "utf-32le", "iso2022_jp", "big5", "\x00"]),
)
def test_reading_never_raises_and_never_stays_silent_about_a_loss(body, charset):
    for cut in (False, True):
        found = read_text(body, f"text/html; charset={charset}" if charset else "", cut=cut)
        if found.text.count("\ufffd") and not found.note:
            found.text.encode(found.charset)  # it was really there
