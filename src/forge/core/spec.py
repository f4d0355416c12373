"""The part of a tool that is pure data, for models, manifests, policies and workers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypedDict, TypeVar, get_args
from weakref import WeakKeyDictionary

from forge.core.errors import DefinitionError
from forge.core.extras import EXTRAS
from forge.core.result import Reconcile

JsonSchema = Mapping[str, Any]

INTERFACE_VERSION = "1.0"

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class Category(StrEnum):
    """The origin of a tool. Production builds drop `DEV`.

    Example:
        >>> Category("builtin") is Category.BUILTIN
        True
    """

    BUILTIN = "builtin"
    ADAPTER = "adapter"
    DEV = "dev"
    CUSTOM = "custom"


class Permission(StrEnum):
    """A kind of effect that a tool may have on the world: read, write, execute or network.

    Example:
        >>> Permission.READ == "read"
        True
    """

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"


PermissionName = Literal["read", "write", "execute", "network"]

TrustName = Literal["trusted", "untrusted"]
TRUST_NAMES: tuple[TrustName, ...] = get_args(TrustName)

RepairName = Literal["fence", "prose", "quotes", "commas", "encoding", "closing", "wrapping", "names", "values"]
REPAIR_NAMES: tuple[RepairName, ...] = get_args(RepairName)
REPAIRS: frozenset[str] = frozenset(REPAIR_NAMES)
"""The kinds of repair that arguments may get; docs/tools.md explains each."""


class Rate(NamedTuple):
    """Limits how often a tool may be called.

    Args:
        calls: calls in every `seconds`; 0: no limit.
        seconds: the length of the window.
        max_calls: calls in one run; 0: no limit.

    Example:
        >>> Rate(calls=10, seconds=60).max_calls
        0
    """

    calls: int = 0
    seconds: float = 60.0
    max_calls: int = 0


class ToolTraits(TypedDict, total=False):
    """Fields that a tool of any source may have; `ToolSpec` explains each."""

    aliases: Collection[str]
    argument_aliases: Mapping[str, str]
    category: Category
    groups: Collection[str]
    permissions: Collection[PermissionName | Permission]
    optional_permissions: Collection[PermissionName | Permission]
    target: str
    harmless: Collection[str]
    irreversible: bool
    ends_turn: bool
    confirm: bool
    parallel: bool
    repeatable: bool
    animate: bool
    idempotent: bool
    reconcile: Reconcile | None
    hidden: bool
    keep_end: bool
    isolate: bool
    trust: TrustName
    private: bool
    strict: bool
    repairs: Collection[RepairName]
    expose_errors: bool
    timeout: float | None
    rate: Rate | None
    max_concurrency: int
    concurrency_key: str
    runs_on: str
    extra: str
    origin: str


class ToolOptions(ToolTraits, total=False):
    """Everything `@tool(...)` and `class X(Tool, ...)` accept: they have a name and a docstring already."""

    name: str
    description: str
    description_file: str


T = TypeVar("T")

LATE = ("description", "parameters", "returns")
"""Fields that may be given as functions."""


class Lazy(Generic[T]):
    """A field that may be given as a function and is then computed on first use, once."""

    def __init__(self, *default: T) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.key = f"_{name}"

    def __get__(self, spec: Any, owner: type) -> T:
        if spec is None and self.default:
            return self.default[0]
        if spec is None:
            raise AttributeError(self.key)  # so that the dataclass sees a field without default
        value = spec.__dict__[self.key]
        if callable(value):
            value = spec.__dict__[self.key] = value()
        return value  # type: ignore[no-any-return]

    def __set__(self, spec: Any, value: T | Callable[[], T]) -> None:
        spec.__dict__[self.key] = value


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolSpec:
    """A tool as others see it: pure data.

    Args:
        name: its name, in snake case.
        description: its prompt. A function is called when it is first read; so are the next two.
        parameters: the JSON Schema of its arguments.
        returns: the schema of the value that a call returns; None: text, or unknown.
        aliases: other names of the tool.
        argument_aliases: other names of parameters, each with its parameter.
        fixed: arguments of every call that no model can set; `Tool.reshaped` fills it.
        category: where it comes from.
        groups: names of groups, such as "code-agent".
        permissions: the effects that every call has.
        optional_permissions: the effects that some calls have.
        target: the parameters that say what is touched, separated by spaces.
        harmless: the parameters that others may choose, such as the content of a file. Labels do not look at them.
        irreversible: its effect cannot be undone: it deletes, pays, sends or cancels. After untrusted text was read, a
            call asks if any of its arguments comes from that text and the person did not name it.
        ends_turn: the loop stops here and hands over to the person.
        confirm: ask, even where the policy would allow.
        parallel: may run beside other calls of the same turn.
        repeatable: False: the same call twice in a turn is answered, not run.
        animate: False: no spinner while it runs.
        idempotent: safe to run again after a crash.
        reconcile: a function of a call's key and arguments that says whether the call took effect. A durable run asks
            it after a crash. It returns a `Reconciled` and changes nothing.
        hidden: not shown to the model until `tool_search` reveals it.
        keep_end: a long result keeps its end as well as its beginning.
        isolate: runs in its own process.
        trust: "untrusted": its results may contain what others wrote, such as a page or a mail. Labels follow them.
        private: its results contain what must not leave, such as the person's data. Labels follow them.
        strict: True: nothing in the arguments is repaired.
        repairs: the kinds of repair that its arguments may get; by default all of them.
        expose_errors: False: an unexpected exception is withheld from the model and logged under an id.
        timeout: the seconds that a call may take; None: no limit.
        rate: how often it may be called.
        max_concurrency: the calls that may run at once in this process; others wait for a place. 0: any number.
        concurrency_key: the parameters by whose values places are counted, separated by spaces. With
            `max_concurrency=1, concurrency_key="account"`, calls for one account run one after another.
        runs_on: the kind of worker it needs in stored runs, such as "gpu".
        extra: the extra of Forge that it needs, such as "web". Without the extra, the tool is unavailable.
        origin: where it came from: a module, a file, an MCP server.

    Example:
        >>> @tool(permissions={"read"}, target="path")
        ... def count_lines(path: str) -> int:
        ...     "Count the lines of a file."
        ...     return 0
        >>> count_lines.spec.name, count_lines.spec.target
        ('count_lines', 'path')
    """

    name: str
    description: Lazy[str] = Lazy()
    parameters: Lazy[JsonSchema] = Lazy()
    returns: Lazy[JsonSchema | None] = Lazy(None)
    aliases: tuple[str, ...] = ()
    argument_aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    category: Category = Category.CUSTOM
    groups: frozenset[str] = frozenset()
    permissions: frozenset[Permission] = frozenset()
    optional_permissions: frozenset[Permission] = frozenset()
    target: str = ""
    harmless: frozenset[str] = frozenset()
    irreversible: bool = False
    ends_turn: bool = False
    confirm: bool = False
    parallel: bool = True
    repeatable: bool = True
    animate: bool = True
    idempotent: bool = False
    reconcile: Reconcile | None = None
    hidden: bool = False
    keep_end: bool = False
    isolate: bool = False
    trust: TrustName = "trusted"
    private: bool = False
    strict: bool = False
    repairs: frozenset[str] = dataclasses.field(default_factory=lambda: REPAIRS)
    expose_errors: bool = True
    timeout: float | None = 120.0
    rate: Rate | None = None
    max_concurrency: int = 0
    concurrency_key: str = ""
    runs_on: str = ""
    extra: str = ""
    origin: str = ""

    has_own_schema: ClassVar[bool]  # each spec's own: whether `parameters` were given as data, and not as a function

    def __post_init__(self) -> None:
        fill, who = object.__setattr__, f"tool {self.name!r}"
        if isinstance(self.aliases, str):
            raise DefinitionError(f"{who}: aliases={self.aliases!r} is a string; write aliases=[{self.aliases!r}]")
        fill(self, "aliases", tuple(self.aliases))
        for field in ("groups", "harmless", "permissions", "optional_permissions", "repairs"):
            fill(self, field, collect_values(who, field, getattr(self, field)))
        if type(self.category) is not Category:
            fill(self, "category", _member(who, "category", Category, self.category))
        fill(self, "has_own_schema", not callable(self.__dict__["_parameters"]))
        if isinstance(self.__dict__["_parameters"], type):
            raise DefinitionError(
                f"{who}: its parameters are a class; give the schema, such as Model.model_json_schema(), or use "
                "Tool.from_schema, which takes a pydantic model"
            )
        for name in (self.name, *self.aliases):
            check_name(name)
        for flag in _FLAGS:
            if type(getattr(self, flag)) is not bool:
                raise DefinitionError(f"{who}: {flag}={getattr(self, flag)!r} must be True or False")
        if self.category is not Category.ADAPTER and any("__" in name for name in (self.name, *self.aliases)):
            raise DefinitionError(
                f"tool name {self.name!r}: two underscores in a row are reserved for server__tool names; use one"
            )
        if self.trust not in TRUST_NAMES:
            raise DefinitionError(f'{who}: trust={self.trust!r} must be "trusted" or "untrusted"')
        if self.reconcile is not None and not callable(self.reconcile):
            raise DefinitionError(f"{who}: reconcile={self.reconcile!r} must be a function of a key and arguments")
        if self.extra and self.extra not in EXTRAS:
            raise DefinitionError(f"{who}: extra={self.extra!r} is no extra of Forge; there are {', '.join(EXTRAS)}")
        if self.timeout is not None and not (isinstance(self.timeout, int | float) and self.timeout > 0):
            raise DefinitionError(
                f"tool {self.name!r}: timeout={self.timeout!r} must be a number of seconds above 0, or None"
            )
        if type(self.max_concurrency) is not int or self.max_concurrency < 0:
            raise DefinitionError(
                f"{who}: max_concurrency={self.max_concurrency!r} must be a number of calls, or 0 for any number"
            )
        if self.concurrency_key and not self.max_concurrency:
            raise DefinitionError(
                f"{who}: concurrency_key={self.concurrency_key!r} counts nothing without max_concurrency; write "
                "max_concurrency=1"
            )

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.target.split())

    @property
    def only_talks(self) -> bool:
        """Returns whether the tool only hands over to the person: it is built in, ends the turn and needs nothing."""
        is_ending = self.ends_turn and self.category is Category.BUILTIN
        return is_ending and not self.permissions and not self.optional_permissions

    @property
    def requires_confirmation(self) -> bool:
        """Returns whether a person is asked unless a rule allows it: from the permissions, or `confirm`."""
        return self.confirm or bool(self.permissions - {Permission.READ})

    @property
    def allowed_repairs(self) -> frozenset[str]:
        """The kinds of repair that are made: none where `strict` is set."""
        return frozenset() if self.strict else self.repairs

    def changed(self, **fields: Any) -> ToolSpec:
        """Returns a copy with other fields; fields not computed yet stay uncomputed."""
        late = {name: self.__dict__[f"_{name}"] for name in LATE}
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in late}
        made = ToolSpec(**{**plain, **late, **fields})
        if "parameters" not in fields:  # computed meanwhile is not given
            object.__setattr__(made, "has_own_schema", self.has_own_schema)
        return made

    def is_like(self, other: ToolSpec) -> bool:
        """Returns whether the other spec is equal; computes fields only where that is needed."""
        if self is other:
            return True
        names = [field.name for field in dataclasses.fields(self) if field.name not in LATE]
        if any(getattr(self, name) != getattr(other, name) for name in names):
            return False
        return self.description == other.description and self.parameters == other.parameters

    def to_function(self) -> dict[str, Any]:
        """Returns the OpenAI-style definition most providers accept; `properties` is always present."""
        parameters = {"type": "object", "properties": {}, **self.parameters}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


_FLAGS = tuple(field.name for field in dataclasses.fields(ToolSpec) if type(field.default) is bool)


def collect_values(who: str, field: str, values: Any) -> frozenset[Any]:
    """Collects values given as a set or a list. Raises `DefinitionError` for a text, and for an unknown permission."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise DefinitionError(f"{who}: {field}={values!r} must be a set; write {field}={{{values!r}}}")
    if field in ("groups", "harmless"):
        return frozenset(values)
    if field == "repairs":
        return _collect_repairs(who, frozenset(values))
    return frozenset(value if type(value) is Permission else _member(who, field, Permission, value) for value in values)


def _collect_repairs(who: str, kinds: frozenset[Any]) -> frozenset[str]:
    if unknown := kinds - REPAIRS:
        known = ", ".join(f'"{one}"' for one in REPAIR_NAMES)
        raise DefinitionError(f"{who}: unknown value {min(unknown, key=str)!r} in repairs; known: {known}")
    return kinds


def _member(who: str, field: str, kind: type[StrEnum], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f'"{one}"' for one in kind)
        raise DefinitionError(f"{who}: unknown value {value!r} in {field}; known: {known}") from None


def once_for_each_spec(build: Callable[[ToolSpec], T]) -> Callable[[ToolSpec], T]:
    """Makes a function keep what it built for a spec, as long as the spec lives."""
    built: WeakKeyDictionary[ToolSpec, T] = WeakKeyDictionary()

    @wraps(build)
    def find(spec: ToolSpec) -> T:
        if spec not in built:
            built[spec] = build(spec)
        return built[spec]

    return find


def is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Refuses names that some provider refuses: names are public API of a tool."""
    if not is_name(name):
        raise DefinitionError(
            f"tool name {name!r}: must match {_NAME.pattern}, that is a letter or _, then up to 63 letters, digits, "
            "_ or -"
        )
