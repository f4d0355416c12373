"""The keys about what an agent knows, remembers and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.project.config.section import PlainSection, Section

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.project.config.kinds import Accepts, AsWritten, Folder, Key, Of, OneOf, Single, Text, Variable, Whole
    from forge.project.config.reader import ConfigReader


_EMBEDDERS = "none, local, or a url and a model"
_TYPES = "one of none, local, endpoint"


class _Endpoint(PlainSection):
    """An embeddings server with OpenAI's API."""

    type: Annotated[str, OneOf("endpoint", expected=_TYPES), Key("Optional: follows from the URL.", "endpoint")]
    url: Annotated[Text, Key("URL of the server.", "http://127.0.0.1:11434/v1", required=True)]
    model: Annotated[Text, Key("Name of the embedding model.", "nomic-embed-text", required=True)]
    key_env: Annotated[Variable, Key("The environment variable with the server's API key.", "EMBEDDINGS_KEY")]
    dimensions: Annotated[int, Whole(1), Key("Number of dimensions of the vectors.", 768)]


class _NamedEmbedder(PlainSection):
    """An embedder by its name."""

    type: Annotated[str, OneOf("none", "local", expected=_TYPES), Key("The kind of embedder.", "local", required=True)]


class MemoryEntry(Section, example={"enabled": True, "embedder": "none"}):
    """Notes that the agent keeps between sessions."""

    enabled: Annotated[bool, Key("True by default once there is a `memory` section.", True, unset=False)] = True
    embedder: Annotated[
        Any,
        Of(_NamedEmbedder | _Endpoint | Annotated[str, OneOf("none", "local", None, expected=_EMBEDDERS)]),
        Key(
            "The embedder for searching notes by meaning. Without one, notes are found by keywords.",
            {"url": "http://127.0.0.1:11434/v1", "model": "nomic-embed-text"},
        ),
    ] = "none"

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """Reads the embedder as `forge.memory.embedders.embedder_from` takes it."""
        said = values.get("embedder", "none") or "none"
        if isinstance(said, dict):
            said = {**said, "type": "endpoint"} if "url" in said else said["type"]
        return super().from_keys(reader, {**values, "embedder": said}, key_path)


class SkillsEntry(Section, example={"paths": ["skills"], "active": ["code-agent"]}):
    """The skills of the agent."""

    paths: Annotated[
        tuple[Folder, ...], Single(), Key("Folders with skills, inside the workspace.", ["skills"], unset=["skills"])
    ] = ("skills",)
    active: Annotated[tuple[Text, ...], Single(), Key("Skills that are active from the start.", ["code-agent"])] = ()


class _Rule(PlainSection, alone="pattern", example={"pattern": "DROP TABLE", "message": "no tables are dropped here"}):
    """A regular expression, and a reason."""

    pattern: Annotated[
        str,
        Accepts({"type": "string"}),
        Key("A regular expression in RE2 syntax.", "DROP TABLE", required="a regular expression"),
    ]
    message: Annotated[Any, Key("The reason, which the model reads.", "no tables are dropped here")]


class _OutputRule(_Rule, example={"pattern": "BEGIN KEY", "action": "redact"}):
    """A regular expression, a reason, and whether to block the output or redact the match."""

    action: Annotated[
        Literal["block", "redact"], Key("`block` hides the whole output, `redact` only the match.", "redact")
    ]


class GuardrailsEntry(
    PlainSection, example={"deny_commands": [{"pattern": "DROP TABLE", "message": "no tables are dropped here"}]}
):
    """Regular expressions (RE2) that commands, output, prompts or responses must not match."""

    deny_commands: Annotated[list[_Rule], AsWritten(), Key("Commands that must not run.")]
    deny_output: Annotated[list[_OutputRule], AsWritten(), Key("Output that must not reach the model.")]
    deny_prompts: Annotated[
        list[_Rule], AsWritten(), Key("Prompts that are refused.", ["(?i)ignore your instructions"])
    ]
    deny_responses: Annotated[
        list[_Rule], AsWritten(), Key("Responses of the model that are refused.", ["(?i)as a language model"])
    ]
