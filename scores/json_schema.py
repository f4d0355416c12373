"""The JSON-Schema-Test-Suite through tools: each schema as a parameter, and as the root of the parameters."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs

from forge.core.errors import DefinitionError, ToolError
from forge.core.tool import Tool
from scores.packages import source_from_pypi
from scores.report import Row, Score

VERSION = "4.26.0"
SOURCE = f"the source of PyPI jsonschema {VERSION}, which carries the suite"
MEASURES = "No valid instance is changed apart from filled-in defaults or refused, no invalid one is taken."

DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
PLACES = ("parameter", "root")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

# Differences from the suite that are decided. Each reason holds for every case it names.
FORMATS = "formats are checked, as `optional/format` wants; the main part of the suite takes them for comments"
REMOTE = "a schema that refers to another document, or dynamically beside an $id, is refused when the tool is defined"
VOCABULARY = "a schema of its own meta-schema is refused as a root; as a parameter all its keywords count"
OTHER_NAME = "a key that is close to a known name, which was not sent, is refused: the other name was probably meant"


class Case(NamedTuple):
    draft: str
    file: str
    group: str
    schema: Any
    test: str
    data: Any
    valid: bool

    @property
    def label(self) -> str:
        return f"{self.draft}/{self.file}: {self.group}: {self.test}"


def cases(source: Path, draft: str) -> Iterator[Case]:
    """The required cases of a draft, and the optional ones about formats."""
    for name, text in _files(source, f"tests/{draft}/"):
        if "/" in name and not name.startswith("optional/format/"):
            continue
        for group in json.loads(text):
            for test in group["tests"]:
                yield Case(
                    draft,
                    name,
                    group["description"],
                    group["schema"],
                    test["description"],
                    test["data"],
                    test["valid"],
                )


def _files(source: Path, folder: str) -> list[tuple[str, str]]:
    if source.is_dir():
        root = next(path for path in (source, source / "json") if (path / folder).is_dir()) / folder
        return sorted((str(path.relative_to(root)), path.read_text("utf-8")) for path in root.rglob("*.json"))
    with tarfile.open(source) as archive:
        found = []
        for member in archive.getmembers():
            _, inside, name = member.name.partition(f"/json/{folder}")
            held = archive.extractfile(member) if inside and name.endswith(".json") else None
            if held is not None:
                found.append((name, held.read().decode()))
        return sorted(found)


def schema_at(place: str, schema: Any, draft: str) -> Any:
    """The parameters of a tool for a case, or None where the schema cannot be that of parameters."""
    if place == "parameter":
        return {"$schema": DRAFTS[draft], "type": "object", "properties": {"value": _moved(schema)}}
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return None
    return {"$schema": DRAFTS[draft], **schema}


def _moved(schema: Any) -> Any:
    """As a parameter: its own pointers begin one level deeper. A part with its own $id keeps them."""
    if isinstance(schema, list):
        return [_moved(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
        return {key: one for key, one in schema.items() if key != "$schema"}
    return {
        key: f"#/properties/value{one[1:]}"
        if key in _REFERENCES and isinstance(one, str) and (one == "#" or one.startswith("#/"))
        else one
        if key in ("const", "enum", "default", "examples")
        else _moved(one)
        for key, one in schema.items()
        if key != "$schema"
    }


class Outcome(NamedTuple):
    kind: str  # right, repaired, changed, accepted, refused, undefined
    words: str = ""
    received: Any = None


def outcome(case: Case, place: str, *, strict: bool = False) -> Outcome | None:
    """How a tool took the case; None where it does not apply to this place."""
    schema = schema_at(place, case.schema, case.draft)
    if schema is None or (place == "root" and not isinstance(case.data, dict)):
        return None
    sent = {"value": case.data} if place == "parameter" else case.data
    try:
        made = Tool.from_schema("suite", "Take a case.", schema, _taken, strict=strict)
    except DefinitionError as error:
        return Outcome("undefined", str(error))
    try:
        received = dict(made.parse(json.dumps(sent)))
    except ToolError as error:
        return Outcome("refused" if case.valid else "right", error.message)
    if case.valid:
        added = {key: one for key, one in received.items() if key not in sent}
        defaults = {key for key in added if _has_default(schema, key)}
        same = _exactly({key: one for key, one in received.items() if key not in defaults}, sent)
        return Outcome("right" if same else "changed", "", received)
    if strict:
        return Outcome("accepted", "", received)
    # lenient tools repair what has one reading: what arrives must be valid then
    try:
        Tool.from_schema("suite", "Take a case.", schema, _taken, strict=True).parse(json.dumps(received))
    except ToolError as error:
        return Outcome("accepted", error.message, received)
    return Outcome("repaired" if not _exactly(received, sent) else "accepted", "", received)


def _taken(**arguments: Any) -> str:
    return "taken"


def _has_default(schema: Mapping[str, Any], key: str) -> bool:
    return "default" in json.dumps(schema) and key in json.dumps(schema)


def _exactly(first: Any, second: Any) -> bool:
    """Equal with the same types: 1, 1.0 and true differ."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def decided(case: Case, found: Outcome) -> str:
    """The reason why a difference from the suite is meant, or nothing."""
    if found.kind == "undefined" and "is remote" in found.words:
        return REMOTE
    if found.kind == "refused" and case.file == "format.json" and "unknown argument" not in found.words:
        return FORMATS
    if case.file == "vocabulary.json" and (found.kind == "refused" or "Unknown meta-schema" in found.words):
        return VOCABULARY
    if found.kind == "refused" and "unknown argument; did you mean" in found.words:
        return OTHER_NAME
    return ""


def run() -> Score:
    source = source_from_pypi("jsonschema", VERSION)
    rows, reasons = [], Counter[str]()
    for draft in DRAFTS:
        for place in PLACES:
            passed, count, plain, failures = 0, 0, 0, []
            for case in cases(source, draft):
                found = outcome(case, place)
                if found is None:
                    continue
                count += 1
                plain += _validator_is_right(case, place)
                if found.kind in ("right", "repaired"):
                    passed += 1
                elif reason := decided(case, found):
                    reasons[reason] += 1
                    failures.append(f"{case.label}: {found.kind}: decided: {reason}")
                else:
                    failures.append(f"{case.label}: {found.kind}: {found.words}")
            failures.sort(key=lambda said: ": decided: " in said)
            others = f"jsonschema-rs {version('jsonschema-rs')} alone: {plain:,}"
            rows.append(Row(f"{draft}, the schema as the {place}", passed, count, others, failures))
    notes = [f"Decided differences: {count} × {reason}." for reason, count in reasons.most_common()]
    notes.append("jsonschema-rs alone: the validator under Forge, formats checked, on the same cases in the same run.")
    return Score("json_schema", SOURCE, MEASURES, rows, notes=notes)


def _validator_is_right(case: Case, place: str) -> bool:
    """Whether a plain validator judges the case as the suite does."""
    schema = schema_at(place, case.schema, case.draft)
    sent = {"value": case.data} if place == "parameter" else case.data
    try:
        validator = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError):
        return False
    return validator.is_valid(sent) == case.valid
