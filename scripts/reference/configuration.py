"""The page of `forge.yaml`: every key of its schema, the layers, and the names of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forge.models.vendors import DEFAULTS, OWN_PROTOCOLS, SERVERS
from forge.project.config.declaration import config_schema, keys_of_layer, known_variables
from forge.project.config.reader import document_schema, on_one_line
from scripts.reference.markdown import table, type_of

Schema = Mapping[str, Any]


def configuration_page(schema: dict[str, Any] | None = None) -> str:
    sections = _object_of(config_schema(schema))["properties"]
    parts = [
        "# forge.yaml",
        "All keys of `forge.yaml`, from the schema that `forge config schema` prints. An unknown"
        " key is an error with a suggestion. `NAME` stands for a name that you choose, `[]` for an entry of a list.",
        "```sh\nforge config schema > forge.schema.json\n```",
        "Write `# yaml-language-server: $schema=forge.schema.json` in the first line of `forge.yaml`: editors then"
        " complete and check the file.",
        table(("key", "meaning"), [(f"[`{key}`](#{key.lower()})", _say(one)) for key, one in sections.items()]),
    ]
    for key, one in sections.items():
        rows = _rows(one, key)
        example = f"```yaml\n{key}: {on_one_line(one['examples'][0])}\n```"
        parts += [f"## {key}", _say(one), example, table(("key", "value", "", "example"), rows) if rows else ""]
    parts += ["## Layers", *_layers(), "## Models", *_models()]
    return "\n\n".join(part for part in parts if part)


class Key(NamedTuple):
    """How a place is spelled, what may stand there, what it means, an example."""

    place: str
    value: str
    description: str
    example: Any


def _rows(schema: Schema, place: str) -> list[tuple[str, ...]]:
    """One row a place, also where it is one of several kinds of entries."""
    found: dict[str, list[Key]] = {}
    for key in _keys(schema, place):
        found.setdefault(key.place, []).append(key)
    rows: list[tuple[str, ...]] = []
    for name, keys in found.items():
        values = " or ".join(dict.fromkeys(key.value for key in keys))
        example = "" if keys[0].example is None else f"`{on_one_line(keys[0].example)}`"
        rows.append((f"`{name}`", values, keys[0].description, example))
    return rows


def _keys(schema: Schema, place: str) -> Iterator[Key]:
    """Every place below a schema."""
    for one in (schema, *schema.get("anyOf", ()), schema.get("else", {})):
        for name, inner in one.get("properties", {}).items():
            if "not" not in inner:  # known, and never accepted
                yield from _key(inner, f"{place}.{name}")
        if isinstance(more := one.get("additionalProperties"), dict) and not _is_plain(more):
            yield from _key(more, f"{place}.NAME")
        if isinstance(items := one.get("items"), dict) and not _is_plain(items):
            yield from _keys(items, f"{place}[]")


def _key(schema: Schema, place: str) -> Iterator[Key]:
    example = schema.get("examples", [None])[0]
    value = type_of({key: schema[key] for key in schema if key != "description"}, {})
    same = place.rpartition(".")[2]
    if place.startswith("agents.") and same in ("limits", "tools"):
        yield Key(place, f"as [`{same}`](#{same})", _say(schema), None)
        return
    yield Key(place, value, _say(schema), example)
    yield from _keys(schema, place)


def _is_plain(schema: Schema) -> bool:
    inner = (schema, *schema.get("anyOf", ()), schema.get("else", {}))
    return not any("properties" in one or "items" in one or "additionalProperties" in one for one in inner)


def _object_of(schema: Schema) -> Schema:
    found: Schema = next(one for one in (schema, *schema.get("anyOf", ())) if "properties" in one)
    return found


def _say(schema: Schema) -> str:
    return str(schema.get("description", ""))


def _layers() -> Iterator[str]:
    yield (
        "The layers are the defaults, the user's `$XDG_CONFIG_HOME/forge/config.yaml` (by default"
        " `~/.config/forge/config.yaml`), the project's `forge.yaml`, environment variables, and flags. Each overrides"
        " the ones before it. The organisation's `/etc/forge/policy.yaml` overrides all of them. Denies of the user and"
        " the organisation stay, and the stricter sandbox and egress apply."
    )
    yield table(("variable", "key"), [(f"`{name}`", f"`{place}`") for name, place in known_variables().items()])
    fixed = " ".join(f"`{key}`" for key in sorted(keys_of_layer("organisation")))
    project = " ".join(f"`{key}`" for key in document_schema()["properties"] if key not in keys_of_layer("user"))
    yield f"The organisation's file may have {fixed}. The user's file may have every key except {project}."


def _models() -> Iterator[str]:
    usual = ", ".join(f"`{name}:{model}`" for name, model in DEFAULTS.items())
    yield f"Without a configured model, Forge uses the first one whose API key is set ({usual}), else a local server."
    rows = [
        (f"`{name}:MODEL`", f"`{keys[0]}`" if keys else "Google Cloud's credentials")
        for name, keys in OWN_PROTOCOLS.items()
    ]
    rows += [(f"`{name}:MODEL`", f"`{one.key}`" if one.key else one.base_url) for name, one in SERVERS.items()]
    rows += [
        ("`text:NAME`", "any of these models, if it cannot call tools itself"),
        ("`local:PATH`", "a GGUF file in this process; `pip install 'forge-tools[local]'`"),
        ("`scripted:FILE`", "no model: the turns of the file"),
    ]
    yield table(("name", "key or location"), rows)
    yield "`NAME_BASE_URL` (such as `OPENAI_BASE_URL`) sets another URL for the server."
