"""Allows for what models write: null for an entry that they leave out, and plain characters for typographic ones."""

from __future__ import annotations

from typing import Any


class OrNull:
    """Accepts null without showing it to the model. Does not import pydantic: `forge tool list` builds no schema."""

    def __init__(self, description: str = "") -> None:
        self.description = description

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {"type": "nullable", "schema": handler(source)}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        shown = handler(schema["schema"])
        return {**shown, "description": self.description} if self.description else shown


# Typographic quotes, dashes and spaces, and the plain characters that models write in their place.

PUNCTUATION = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2039\u203a", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", None),
        "…": "...",
    }
)
