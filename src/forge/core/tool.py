"""The tool: a spec the model reads, and code that runs."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from types import CodeType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from forge.core.arguments.call_style import CallStyle, call_style
from forge.core.arguments.docstrings import description_from, description_of
from forge.core.arguments.names import fold_name, near
from forge.core.arguments.outline import flatten_schema, is_flat
from forge.core.arguments.parameters import Setting
from forge.core.arguments.signature import Signature, names_taken
from forge.core.arguments.type_schemas import field_name, is_model, read_return_schema, schema_of
from forge.core.check_definition import (
    OPTIONS,
    NameFilter,
    add_prefix,
    check_definition,
    check_function,
    check_initialiser,
    check_listed,
    class_options,
    find_scope_parameter,
    inherited_options,
    merge_options,
    own_options,
    with_titles,
    wrap_invoke,
)
from forge.core.context import Scope, ToolContext, TrialNeeds
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.extras import find_missing, missing_extra
from forge.core.plain_values import plain
from forge.core.result import Reconciled, ToolResult
from forge.core.spec import LATE, Category, JsonSchema, Permission, ToolOptions, ToolSpec, ToolTraits, is_name

Parameters = ParamSpec("Parameters")
Others = ParamSpec("Others")  # the parameters of a method, without the object
Returned = TypeVar("Returned")
Owner = TypeVar("Owner")
Deps = TypeVar("Deps")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    NeedsT = DefaultTypeVar("NeedsT", contravariant=True, default=Any)

    class TypedTool(Generic[NeedsT]):
        """The dependencies that a tool needs, for type checkers: `Tool` alone needs any."""

else:
    NeedsT = TypeVar("NeedsT", contravariant=True)

    class TypedTool:
        def __class_getitem__(cls, types: Any) -> Any:
            return cls


class Tool(TypedTool[NeedsT]):
    """A spec that the model reads, and code that runs. Subclass it and write `run` with typed parameters.

    The class docstring is the description. Options are given with the class, `class Deploy(Tool, confirm=True)`, or as
    attributes of it, `requires_confirmation = True`. A parameter annotated `ToolContext` receives the context and stays
    hidden from the model. A class with a schema of its own sets `self.spec` and defines `invoke(arguments, ctx)`
    instead of `run`. A class may define `set_context(channel, chat_id)` and `set_callback(callback)`: such a call runs
    on a shallow copy of its own, so concurrent calls never see each other's.

    Args:
        args: the parameters of the subclass.
        kwargs: the parameters of the subclass.

    Example:
        >>> class Deploy(Tool, permissions={"execute"}, target="service"):
        ...     "Deploy a service."
        ...
        ...     def __init__(self, region: str) -> None:
        ...         self.region = region
        ...
        ...     async def run(self, service: str) -> str:
        ...         return f"{service} is live in {self.region}"
        >>> agent = Agent(None, tools=[Deploy("eu")], policy=rules("allow execute web"))
        >>> asyncio.run(agent.call("deploy", {"service": "web"})).for_llm
        'web is live in eu'
    """

    spec: ToolSpec
    run: Callable[..., Any]
    stated_options: Mapping[
        str, Any
    ] = {}  # options among the attributes of a class that has no spec yet: its objects bring one
    _given_options: ClassVar[ToolOptions] = {}  # those that were given with the class
    init_args: tuple[
        tuple[Any, ...], dict[str, Any]
    ]  # the arguments of its class: two that are made alike are the same
    _signature: Signature

    if not TYPE_CHECKING:  # type checkers look at `__init__`

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            made = super().__new__(cls)
            made.__dict__["init_args"] = (args, kwargs)
            return made

    def __copy__(self) -> Self:
        """Returns a shallow copy that makes its own `parse` and `invoke`: those in use are bound to this tool."""
        made = object.__new__(type(self))
        made.__dict__.update({key: value for key, value in self.__dict__.items() if key not in ("parse", "invoke")})
        return made

    def __init_subclass__(cls, **options: Unpack[ToolOptions]) -> None:
        super().__init_subclass__()
        own = vars(cls)
        if "invoke" in own:
            cls.invoke = wrap_invoke(cls.__name__, own["invoke"])  # type: ignore[method-assign]
        stated = class_options(cls, Tool)
        run = own.get("run")
        if run is None:
            if options:
                raise DefinitionError(f"class {cls.__name__}: its options belong to a class that defines `run`")
            if not hasattr(cls, "spec"):
                cls.stated_options = stated
            elif changes := own_options(cls):
                cls.spec = cls.spec.changed(**_plain(changes), **_words(changes))
            return
        inherited = inherited_options(cls, run)
        cls._given_options = options
        merged: Any = {**inherited, **merge_options(f"class {cls.__name__}", stated, options)}
        merged["confirm"] = merged.get("confirm", False) or inherited.get("confirm", False)
        doc = own.get("__doc__") or ""
        if doc and "description" not in own and "description" not in options:
            merged.pop("description", None)  # of a class above
        name = merged.get("name") or _snake_case(cls.__name__)
        cls._signature = Signature(run, name, ToolContext, doc, _parameters(cls.__init__))
        cls.spec = _spec(name, doc or inspect.getdoc(run) or "", cls._signature, merged, cls)

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Any] | type,
        function: Callable[..., Any],
        **traits: Unpack[ToolTraits],
    ) -> Tool:
        """Makes a tool of a JSON Schema or a pydantic model, and a function that takes the arguments by name.

        A parameter annotated `ToolContext` receives the context. A function with one parameter that is the model, or a
        dictionary, receives all arguments at once.
        """
        model = parameters if is_model(parameters) else None
        schema = schema_of(name, model) if model is not None else parameters
        if isinstance(function, FunctionTool):  # whose options count, too
            traits = merge_options(f"tool {name!r}", _plain(function.options), traits)
            function = function.run
        file = cast(ToolOptions, traits).get("description_file")
        text = (lambda: description_from(file, description, function)) if file else description
        spec = ToolSpec(name=name, description=text, parameters=cast(Any, schema), **_plain(traits))
        return SchemaTool(spec, function, model)

    @classmethod
    def define(
        cls, name: str, definition: Callable[..., Any] | Mapping[str, Any], **traits: Unpack[ToolTraits]
    ) -> Tool:
        """Makes a tool that is built on first use, by a function that returns a tool or a typed function.

        A function with one parameter, `scope: Scope`, gets that of the agent or call that first needs the tool. The
        tool is built once, so it must not depend on one call's session.

        A definition that needs no building may be given as it is: a dictionary of `description`, `parameters` (a JSON
        Schema or a pydantic model), `execute` (a function of the arguments and the context) and further options.
        """
        if isinstance(definition, Mapping):
            return _build_defined(name, definition, traits)
        check_initialiser(name, definition, Tool)
        return DeferredTool(name, definition, traits)

    def reshaped(
        self,
        *,
        name: str = "",
        description: str = "",
        rename: Mapping[str, str] | None = None,
        hide: Collection[str] = (),
        fixed: Mapping[str, Any] | None = None,
    ) -> Tool[NeedsT]:
        """Returns this tool as a model shall see it; the code behind it gets its own names.

        `rename` maps parameters to new names. `hide` leaves out parameters, which keep their defaults. `fixed` gives
        arguments that no model can set; rules, labels and questions see them like all others. Raises `DefinitionError`
        for a parameter that there is not.
        """
        return ReshapedTool(self, name, description, rename, hide, fixed)

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Checks the arguments that the model sent. Raises `ToolError` in words the model can act on."""
        self.show_settings()  # the spec may be another than at the beginning
        if hasattr(self, "_signature"):
            parser = self._signature.parser(self.spec)
        else:
            from forge.core.arguments.schema import compile_parser  # raw schemas: listing tools checks no arguments

            parser = compile_parser(self.spec)
        self.__dict__["parse"] = parser  # from now on without this detour
        return parser(arguments)

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        """Runs with parsed arguments. Plain functions get a thread, so that they cannot block the loop."""
        from forge.core.execution.run_function import runner_of  # it imports asyncio; listing tools does without

        runner = runner_of(self, self._style())
        self.__dict__["invoke"] = runner
        return await runner(arguments, ctx)

    def _style(self) -> CallStyle:
        return CallStyle(self._signature.context_parameter, deps=self._signature.deps_type)

    def deps_type(self) -> Any:
        """Returns the type that the tool declares with `ctx: ToolContext[Db]`; None where it declares none."""
        try:
            return self._style().deps if type(self).invoke is Tool.invoke else None
        except (AttributeError, DefinitionError):  # without `run`, or annotations that a call reports
            return None

    def parameter_settings(self) -> Mapping[str, Setting]:
        """Returns this tool's settings for its parameters; its constructor ends with `show_settings()`."""
        return {}

    def show_settings(self) -> None:
        """Makes `parameter_settings()` the defaults that models see and that calls get."""
        settings = self.parameter_settings()
        if settings:
            self._signature = type(self)._signature.with_settings(settings)
            self.spec = self.spec.changed(parameters=lambda: self._signature.schema)
            self.__dict__.pop("parse", None)

    is_ready = True  # False: `ready` must be awaited before the spec is complete
    follows_source = False  # True: `ready` is awaited before each call, since its source may change the tool
    deduplicates_by_key = (
        False  # True: its server does a call once, by the call's key, so a call may be made again after a crash
    )
    keeps_deadline = False  # True: it ends its own work when the time is up, so that the output so far is not lost
    reports_usage = False  # True: the run counts the tokens and the cost in `data` of its results as its own
    reveals_tools = False  # True: the tools in `data` of its results, as far as they were hidden, are shown from now on
    needs_person = False  # True: a person says yes to each call; no rule, no "always" and no --yes answers for one

    async def ready(self) -> None:
        """Awaits everything that the spec needs to be complete."""

    def take_scope(self, scope: Scope) -> None:
        """Keeps the scope of the first agent or call that needs the tool, where the tool is built for one."""

    def forget_session(self, session_id: str) -> None:
        """Forgets what the tool remembers of a session that has ended."""

    def reset(self) -> None:
        """Forgets the initialised state: called when the tool is registered again."""

    def inside(self, registry: Any) -> Tool:
        """Returns the tool for another registry: itself, unless it works on the registry."""
        return self

    def _unwrap(self, arguments: Mapping[str, Any]) -> tuple[Tool, Mapping[str, Any]]:
        """Returns the tool whose code runs, and the parsed arguments as it takes them."""
        return self, arguments

    def _latest(self) -> Tool:
        """Returns the tool that has taken this one's place at its source, such as after a change of its definition."""
        return self

    def argument_defaults(self) -> Mapping[str, Any]:
        """Returns the defaults that the code behind the tool has for its parameters."""
        return self._signature.defaults if hasattr(self, "_signature") else {}

    def _argument_key(self, name: str) -> str:
        """Returns the key in parsed arguments of a property of the schema: its name, unless a model renames it."""
        return name

    def targets(self, arguments: Mapping[str, Any]) -> list[str] | None:
        """Returns the targets of a call where they differ from the parameters named as `target`; otherwise None."""
        return None

    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None:
        """Returns what a trial run of a call needs; None if it cannot be tried. The tool then confines its program by
        the trial of its gate.
        """
        return None

    def is_irreversible(self, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call cannot be undone; `irreversible` in the spec says it of every call."""
        return False

    def introduce(self) -> str:
        """Returns the texts about a tool that no person has approved yet, for the person who is asked; "" otherwise."""
        return ""

    def find_inner_call(self, arguments: Mapping[str, Any], scope: Scope) -> Any:
        """Returns the call of another tool that this call makes, a `JudgedInnerCall`; None where it makes none."""
        return None

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Returns the permissions a call needs before it runs, unless all of the spec on all targets.

        None: it is. A permission of None asks for none, so that only rules that name the tool apply. A `ToolError`
        raised here refuses the call before anybody is asked.
        """
        return None

    def _required_permissions_under(
        self, arguments: Mapping[str, Any], scope: Scope, judge: Any
    ) -> list[tuple[Permission | None, str]] | None:
        """Does as `required_permissions`, for a tool that looks at the rules, too, with a `CallJudge`."""
        return self.required_permissions(arguments, scope)

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        """Renders the changes of a call, such as a diff, for the person who is asked. It must change nothing.

        A `ToolError` raised here refuses the call before anybody is asked.
        """
        return ""

    @property
    def reconciles(self) -> bool:
        """Returns whether the tool can find out if a call of a lost worker took effect."""
        return self.spec.reconcile is not None or type(self).reconcile is not Tool.reconcile

    def note_intent(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
        """Returns what `reconcile` must know of the time before the call: it finds it as `ctx.noted`.

        The value is stored as JSON. The method runs in a thread.
        """
        return {}

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        """Returns whether a call of a lost worker took effect. It must change nothing.

        `key` is the call's `ctx.key`. By default the spec's function answers.
        """
        from forge.core.execution.run_function import ask_reconcile  # listing tools does without asyncio

        return await ask_reconcile(self.spec.reconcile, key, arguments, ctx)

    def preview(self, result: ToolResult, max_lines: int = 3) -> list[str]:
        """Returns a few lines of the result for a UI; override for something better than its first lines."""
        return result.preview(max_lines)

    def __repr__(self) -> str:
        spec = getattr(self, "spec", None)
        return f"<{type(self).__name__} {spec.name if spec else 'without a spec'}>"


class FunctionTool(Tool[NeedsT], Generic[Parameters, Returned, NeedsT]):
    """A decorated function. Still callable as the function it was, and bound like one inside a class.

    It has the function's name, signature and annotations: `inspect.signature` and type checkers see the function.
    """

    run: Callable[Parameters, Returned]
    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[Parameters, Returned], options: ToolOptions) -> None:
        check_function(function, Tool)
        self.run = function
        self.options = options
        name = str(options.get("name") or getattr(function, "__name__", ""))
        self._signature = Signature(function, name, ToolContext)
        self.spec = _spec(name, inspect.getdoc(function) or "", self._signature, options, function)
        functools.update_wrapper(self, function, updated=())
        if "__annotations__" not in vars(self):  # Python 3.14 copies none, and would find those of this class
            with suppress(AttributeError, NameError):  # a callable without any; names that only type checkers know
                self.__annotations__ = function.__annotations__

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        return self.run(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Owner, Others], Returned, NeedsT], instance: Owner, owner: type | None = None
    ) -> FunctionTool[Others, Returned, NeedsT]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return FunctionTool(cast(Any, self.run).__get__(instance), {**self.options, "name": self.spec.name})


class SchemaTool(Tool):
    """A tool of a raw JSON Schema and a function, for adapters, scripts and servers."""

    def __init__(self, spec: ToolSpec, function: Callable[..., Any], model: Any = None) -> None:
        """`model`: the pydantic model that the schema was made of."""
        from forge.core.arguments.schema import take_schema

        taken = take_schema(spec.name, spec.parameters)
        if taken is not spec.parameters:
            spec = spec.changed(parameters=taken)
        check_parameters(spec)
        self.spec = spec
        self.checked = True
        self.run = function
        self.model = model
        if type(self).invoke is Tool.invoke:
            self._style()  # refuses what could not be called

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        from forge.core.arguments.schema import compile_parser

        fills = type(self).invoke is Tool.invoke and self.model is None  # servers and models fill in their own
        parse = compile_parser(self.spec, takes=self._takes(), fills_defaults=fills)
        if self.model is not None:
            from forge.core.arguments.parse import make_model_parser

            parse = make_model_parser(self.spec, self.model, parse)
        self.__dict__["parse"] = parse
        return parse(arguments)

    def _argument_key(self, name: str) -> str:
        return name if self.model is None else field_name(self.model, name)

    def _takes(self) -> Collection[str] | None:
        """Returns the only keys that the code behind the schema can receive; None: any."""
        if self.model is not None:
            drops_others = self.model.model_config.get("extra") != "allow"
            return self.spec.parameters["properties"] if drops_others else None
        if type(self).invoke is not Tool.invoke:
            return None
        style = self._style()
        taken = None if style.whole else names_taken(self.run)
        return taken if taken is None else taken - {style.context}

    def _style(self) -> CallStyle:
        return call_style(self.run, self.spec.name, self.spec.parameters, ToolContext, self.model)


class DeferredTool(Tool):
    """A tool that is initialised once, on first use; registering it again initialises it again."""

    def __init__(self, name: str, initialise: Callable[..., Any], traits: ToolTraits) -> None:
        self._build = initialise
        self._takes_scope = bool(find_scope_parameter(initialise))
        self._scope: Scope | None = None
        self._traits = traits
        self._made: Tool | None = None
        self._running: list[Any] = []  # the task of the initialiser, while it runs
        self.spec = self._own_spec = ToolSpec(
            name=name,
            description=lambda: self._initialise_now().spec.description,
            parameters=lambda: self._initialise_now().spec.parameters,
            **_plain(traits),
        )

    def take_scope(self, scope: Scope) -> None:
        if self._scope is None and self._takes_scope:
            self._scope = scope

    def _initialise(self) -> Any:
        return self._build(self._scope if self._scope is not None else Scope()) if self._takes_scope else self._build()

    async def ready(self) -> None:
        from forge.core.execution.run_function import (
            initialise_once,
        )  # it imports asyncio, which listing tools does without

        if self._made is None:
            self._take(await initialise_once(self._running, self._initialise))

    @property
    def is_ready(self) -> bool:  # type: ignore[override]
        return self._made is not None

    def reset(self) -> None:
        self._keep_changes()
        self._made = self._scope = None
        self.spec = self._own_spec = self.spec.changed(
            description=lambda: self._initialise_now().spec.description,
            parameters=lambda: self._initialise_now().spec.parameters,
        )

    def _unwrap(self, arguments: Mapping[str, Any]) -> tuple[Tool, Mapping[str, Any]]:
        return self._initialise_now()._unwrap(arguments)

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        return self._initialise_now().parse(arguments)

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        await self.ready()
        return await self._initialise_now().invoke(arguments, ctx)

    def _argument_key(self, name: str) -> str:
        return self._initialise_now()._argument_key(name)

    def targets(self, arguments: Mapping[str, Any]) -> list[str] | None:
        return self._initialise_now().targets(arguments)

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        return self._initialise_now().required_permissions(arguments, scope)

    def _required_permissions_under(
        self, arguments: Mapping[str, Any], scope: Scope, judge: Any
    ) -> list[tuple[Permission | None, str]] | None:
        return self._initialise_now()._required_permissions_under(arguments, scope, judge)

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return await self._initialise_now().preview_call(arguments, ctx)

    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None:
        return self._initialise_now().trial_needs(arguments)

    @property
    def reconciles(self) -> bool:
        return self._initialise_now().reconciles

    def note_intent(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
        return self._initialise_now().note_intent(arguments, ctx)

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        await self.ready()
        return await self._initialise_now().reconcile(key, arguments, ctx)

    @property
    def needs_person(self) -> bool:  # type: ignore[override]
        return self._made is not None and self._made.needs_person

    def deps_type(self) -> Any:
        return self._made.deps_type() if self._made is not None else None

    def _initialise_now(self) -> Tool:
        if self._made is None:
            value = self._initialise()
            if inspect.isawaitable(value):
                cast(Any, value).close()
                raise DefinitionError(
                    f"tool {self.spec.name!r} is initialised asynchronously: await registry.ready() first"
                )
            self._take(value)
        return cast(Tool, self._made)

    def _keep_changes(self) -> None:
        """Makes what a project or a program set in the spec meanwhile an option, which stays when the tool is built."""
        self._traits = cast(ToolTraits, {**self._traits, **_changes(self._own_spec, self.spec)})

    def _take(self, value: Any) -> None:
        self._keep_changes()
        named = cast(ToolOptions, {**self._traits, "name": self.spec.name})
        if isinstance(value, Mapping):
            made = _build_defined(self.spec.name, value, self._traits)
        else:
            made = value if isinstance(value, Tool) else FunctionTool(value, named)
        merged: Any = dict(self._traits)  # the definition's options count, but may only tighten
        for name in ("permissions", "optional_permissions"):
            merged[name] = frozenset(merged.get(name, ())) | getattr(made.spec, name)
        merged["confirm"] = merged.get("confirm", False) or made.spec.confirm
        merged["irreversible"] = merged.get("irreversible", False) or made.spec.irreversible
        merged["strict"] = merged.get("strict", False) or made.spec.strict
        merged["expose_errors"] = merged.get("expose_errors", True) and made.spec.expose_errors
        merged["target"] = merged.get("target", "") or made.spec.target
        self.spec = made.spec.changed(**{**merged, "name": self.spec.name, "aliases": self.spec.aliases})
        self._made, self._own_spec = made, self.spec


class ReshapedTool(Tool):
    """A tool with other names, hidden or fixed arguments: `Tool.reshaped` makes it.

    The model, the rules and the person see the new names. The fixed arguments are among the parsed ones, so that rules,
    labels and questions count them. The original gets everything under its own names.
    """

    def __init__(
        self,
        original: Tool,
        name: str = "",
        description: str = "",
        rename: Mapping[str, str] | None = None,
        hide: Collection[str] = (),
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        self.original = original
        self.follows_source = original.follows_source or type(original)._latest is not Tool._latest
        self._name, self._description = name, description
        self._rename = dict(rename or {})  # the original's name -> the new one
        self._hide, self._fixed = frozenset(hide), copy.deepcopy(dict(fixed or {}))
        self._read_fixed: dict[str, Any] = {}  # as the original parsed them
        self._parser: tuple[ToolSpec, Callable[[Mapping[str, Any] | str], dict[str, Any]]] | None = None
        self._check_words(original.spec, hide)
        self.spec = self._made = self._make_spec()

    def _check_words(self, spec: ToolSpec, hide: Collection[str]) -> None:
        """Raises `DefinitionError` for what is wrong whatever the parameters are."""
        who = f"tool {spec.name!r}: reshaped"
        if isinstance(hide, str):
            raise DefinitionError(f"{who}(hide={hide!r:.80}) is a string; write hide=[{hide!r:.80}]")
        if spec.category is Category.BUILTIN and (self._rename or self._name not in ("", spec.name)):
            raise DefinitionError(
                f"{who} cannot rename a built-in tool or its arguments: rules, labels and guardrails know them by "
                "name; description, hide and fixed are possible"
            )
        twice = [one for one in self._fixed if one in self._hide or one in self._rename]
        twice += [one for one in self._rename if one in self._hide]
        if twice:
            raise DefinitionError(f"{who}: {twice[0]!r} is in two of rename, hide and fixed; name it once")

    def _make_spec(self) -> ToolSpec:
        """Makes the spec of the original's, which may be another once the original is ready."""
        spec, self._is_complete = self.original.spec, self.original.is_ready
        if self._is_complete:
            self._check_parameters(spec)
        fixed = {**self._fixed, **self._hidden_defaults(spec)}
        gone = self._hide | fixed.keys()
        aliases = {
            alias: self._rename.get(parameter, parameter)
            for alias, parameter in spec.argument_aliases.items()
            if parameter not in gone and alias not in self._rename.values()
        }
        return spec.changed(
            name=self._name or spec.name,
            aliases=() if self._name and self._name != spec.name else spec.aliases,
            description=self._description or (lambda: self.original.spec.description),
            parameters=self._make_schema,
            argument_aliases=aliases,
            target=" ".join(self._rename.get(one, one) for one in spec.targets),
            harmless=frozenset(self._rename.get(one, one) for one in spec.harmless),
            concurrency_key=" ".join(self._rename.get(one, one) for one in spec.concurrency_key.split()),
            fixed={**spec.fixed, **fixed},
        )

    def _hidden_defaults(self, spec: ToolSpec) -> dict[str, Any]:
        """Returns the defaults of hidden parameters, which are fixed: rules and people see what a call will do."""
        properties = spec.parameters.get("properties") or {} if self._hide and self._is_complete else {}
        return {one: properties[one]["default"] for one in sorted(self._hide) if "default" in properties.get(one, {})}

    def _check_parameters(self, spec: ToolSpec) -> None:
        if not self._rename and not self._hide and not self._fixed:
            return
        schema, who = spec.parameters, f"tool {spec.name!r}: reshaped"
        if not is_flat(schema):
            raise DefinitionError(
                f"{who} cannot change the arguments of a schema that is composed of others (with anyOf, allOf, $ref or "
                "if); write a tool of your own that calls this one"
            )
        properties = schema.get("properties") or {}
        for option, names in (("rename", self._rename), ("hide", sorted(self._hide)), ("fixed", self._fixed)):
            for one in names:
                if one not in properties:
                    hint = near(str(one), properties, 1)
                    known = f"its parameters are {', '.join(properties) or 'none'}"
                    advice = f"did you mean {hint[0]!r}?" if hint else known
                    raise DefinitionError(f"{who}: {option} names {one!r}, which is not a parameter; {advice}")
        taken = {*properties, *spec.fixed}
        for old, new in self._rename.items():
            if not isinstance(new, str) or not new or len(new.split()) != 1 or new in taken:
                problem = "already a parameter" if new in taken else "not a name"
                raise DefinitionError(f"{who}: rename={{{old!r}: {new!r}}}: {new!r} is {problem}; choose another")
            taken.add(new)
        for one in sorted(self._hide & frozenset(schema.get("required") or ())):
            raise DefinitionError(
                f"{who}: {one!r} is required and cannot be hidden; give its value: fixed={{{one!r}: …}}"
            )
        self._check_fixed(who, schema, properties)

    def _check_fixed(self, who: str, schema: JsonSchema, properties: Mapping[str, Any]) -> None:
        """Raises `DefinitionError` for a value that the parameter does not take."""
        if not self._fixed:
            return
        from forge.core.arguments.schema import compile_parser  # listing tools checks no arguments

        only = {**schema, "properties": {one: properties[one] for one in self._fixed}, "required": [*self._fixed]}
        try:
            compile_parser(ToolSpec(name="fixed", description="", parameters=only, strict=True))(self._fixed)
        except ToolError as error:
            raise DefinitionError(f"{who}(fixed=…): {error.message}") from None

    def _make_schema(self) -> JsonSchema:
        """Makes the schema that the model sees."""
        if not self._is_complete:
            self._check_parameters(self.original.spec)  # it was built for this schema
        schema = dict(self.original.spec.parameters)
        if not self._rename and not self._hide and not self._fixed:
            return schema
        gone = self._hide | self._fixed.keys()
        properties = schema.get("properties") or {}
        schema["properties"] = {self._rename.get(key, key): one for key, one in properties.items() if key not in gone}
        required = [self._rename.get(key, key) for key in schema.pop("required", None) or () if key not in gone]
        return {**schema, "required": required} if required else schema

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Checks what was sent against the schema that the model saw, then lets the original read it."""
        if not self._is_complete and self.spec.parameters is not None:  # which builds the original
            self._renew_spec()
        if isinstance(arguments, Mapping):
            arguments = self._leave_out_fixed(dict(arguments))
        if self._parser is None or self._parser[0] is not self.spec:
            from forge.core.arguments.schema import compile_parser

            self._parser = self.spec, compile_parser(self.spec)
        sent = self._leave_out_fixed(self._parser[1](arguments))
        self._refuse_others(sent)
        names = {new: old for old, new in self._rename.items()}
        whole = {names.get(key, key): value for key, value in sent.items()}
        parsed = self.original.parse({**whole, **copy.deepcopy(dict(self.spec.fixed))})
        self._read_fixed = {
            key: parsed[found] for key in self.spec.fixed if (found := self._argument_key(key)) in parsed
        }
        keys = {self.original._argument_key(old): new for old, new in self._rename.items()}
        return {keys.get(key, key): value for key, value in parsed.items()}

    def _follow_source(self) -> None:
        """Takes over the original's latest definition. Raises `ToolError` where it no longer fits."""
        latest, before, spec = self.original._latest(), self.original, self.spec
        if latest is before:
            return
        self.original, self._parser = latest, None
        try:
            self._remake_spec()
        except DefinitionError as error:
            self.original, self.spec = before, spec
            message = f"its source has changed this tool, and it no longer fits how it was reshaped: {error}"
            raise ToolError(message, ErrorKind.CONFIG, "Use another tool.") from None

    def _leave_out_fixed(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Leaves out fixed arguments that were sent as they are, as after a person's edit; refuses other values."""
        for name, value in self.spec.fixed.items():
            for key in {name, self._argument_key(name)} & sent.keys():
                if plain(sent[key]) not in (value, plain(self._read_fixed.get(name, value))):
                    raise ToolError(
                        f"{name!r} is fixed and cannot be set", ErrorKind.VALIDATION, f"Leave {name!r} out."
                    )
                sent = {other: one for other, one in sent.items() if other != key}
        return sent

    def _refuse_others(self, sent: Mapping[str, Any]) -> None:
        """Refuses names that the original would understand, but that the model was not given."""
        others = sent.keys() - (self.spec.parameters.get("properties") or {}).keys()
        if not others:
            return
        gone = {*self._rename, *self._hide, *self.spec.fixed}
        gone |= {alias for alias, one in self.original.spec.argument_aliases.items() if one in gone}
        folded = frozenset(map(fold_name, gone))
        for key in sorted(others):
            if fold_name(key) in folded:
                raise ToolError(f"unknown argument {key!r}", ErrorKind.VALIDATION, f"Leave {key!r} out.")

    def _translate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns parsed arguments under the names of the original."""
        keys = {new: self.original._argument_key(old) for old, new in self._rename.items()}
        return {keys.get(key, key): value for key, value in arguments.items()}

    def _unwrap(self, arguments: Mapping[str, Any]) -> tuple[Tool, Mapping[str, Any]]:
        return self.original._unwrap(self._translate(arguments))

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        return await self.original.invoke(self._translate(arguments), ctx)

    def _argument_key(self, name: str) -> str:
        return name if name in self._rename.values() else self.original._argument_key(name)

    def argument_defaults(self) -> Mapping[str, Any]:
        return {self._rename.get(key, key): value for key, value in self.original.argument_defaults().items()}

    def targets(self, arguments: Mapping[str, Any]) -> list[str] | None:
        return self.original.targets(self._translate(arguments))

    def is_irreversible(self, arguments: Mapping[str, Any]) -> bool:
        return self.original.is_irreversible(self._translate(arguments))

    def find_inner_call(self, arguments: Mapping[str, Any], scope: Scope) -> Any:
        return self.original.find_inner_call(self._translate(arguments), scope)

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        return self.original.required_permissions(self._translate(arguments), scope)

    def _required_permissions_under(
        self, arguments: Mapping[str, Any], scope: Scope, judge: Any
    ) -> list[tuple[Permission | None, str]] | None:
        return self.original._required_permissions_under(self._translate(arguments), scope, judge)

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return await self.original.preview_call(self._translate(arguments), ctx)

    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None:
        return self.original.trial_needs(self._translate(arguments))

    def note_intent(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
        return self.original.note_intent(self._translate(arguments), ctx)

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        return await self.original.reconcile(key, self._translate(arguments), ctx)

    @property
    def reconciles(self) -> bool:
        return self.original.reconciles

    @property
    def is_ready(self) -> bool:  # type: ignore[override]
        return self._is_complete

    async def ready(self) -> None:
        self._follow_source()
        await self.original.ready()
        self._renew_spec()

    def reset(self) -> None:
        self.original.reset()
        self._renew_spec()

    def _renew_spec(self) -> None:
        """Makes the spec again if the original's is another now. What a project set meanwhile stays."""
        if self._is_complete != self.original.is_ready:
            self._remake_spec()

    def _remake_spec(self) -> None:
        own = _changes(self._made, self.spec)
        self._made = self._make_spec()
        self.spec = self._made.changed(**own)

    def take_scope(self, scope: Scope) -> None:
        self.original.take_scope(scope)

    def inside(self, registry: Any) -> Tool:
        inner = self.original.inside(registry)
        if inner is self.original:
            return self
        made = copy.copy(self)
        made.original, made._parser = inner, None
        return made

    @property
    def deduplicates_by_key(self) -> bool:  # type: ignore[override]
        return self.original.deduplicates_by_key

    @property
    def keeps_deadline(self) -> bool:  # type: ignore[override]
        return self.original.keeps_deadline

    @property
    def reports_usage(self) -> bool:  # type: ignore[override]
        return self.original.reports_usage

    @property
    def reveals_tools(self) -> bool:  # type: ignore[override]
        return self.original.reveals_tools

    @property
    def needs_person(self) -> bool:  # type: ignore[override]
        return self.original.needs_person

    def introduce(self) -> str:
        return self.original.introduce()

    def deps_type(self) -> Any:
        return self.original.deps_type()

    def preview(self, result: ToolResult, max_lines: int = 3) -> list[str]:
        return self.original.preview(result, max_lines)


class UnknownTool(Tool):
    """Replaces an unregistered name, so that the pipeline needs no special case."""

    def __init__(self, name: str, similar: list[str]) -> None:
        shown = name if is_name(name) else "unknown_tool"
        self.spec = ToolSpec(name=shown, description="", parameters={}, category=Category.ADAPTER)
        self.similar = similar

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        hint = " or ".join(f'"{name}"' for name in self.similar)
        advice = f"Did you mean {hint}?" if hint else "Call one of the tools you were given."
        raise ToolError("no such tool", ErrorKind.NOT_FOUND, advice)


class UnavailableTool(Tool):
    """Replaces a tool whose extra is not installed: every call of it says how to install the extra."""

    def __init__(self, original: Tool) -> None:
        self.original, self.spec = original, original.spec

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        raise explain_unavailable(self.spec)


class PlainFunction(Protocol):
    """A function or a method that is not a tool yet. A tool is none: type checkers then check what it needs."""

    @property
    def __code__(self) -> CodeType: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def explain_unavailable(spec: ToolSpec) -> ToolError:
    """Returns the reason why a tool is unavailable, with the command that installs its extra."""
    return missing_extra(spec.extra, f"{spec.name} cannot be used", find_missing(spec.extra))


class ToolDecorator(Protocol):
    """Makes a tool of a function. The dependencies of a context that comes first are a part of the tool's type."""

    @overload
    def __call__(self, function: functools.partial[Returned], /) -> FunctionTool[..., Returned, object]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[Deps], Parameters], Returned], /
    ) -> FunctionTool[Concatenate[ToolContext[Deps], Parameters], Returned, Deps]: ...
    @overload
    def __call__(self, function: Callable[Parameters, Returned], /) -> FunctionTool[Parameters, Returned, object]: ...


@overload
def tool(
    function: functools.partial[Returned], /, **options: Unpack[ToolOptions]
) -> FunctionTool[..., Returned, object]: ...
@overload
def tool(
    function: Callable[Concatenate[ToolContext[Deps], Parameters], Returned], /, **options: Unpack[ToolOptions]
) -> FunctionTool[Concatenate[ToolContext[Deps], Parameters], Returned, Deps]: ...
@overload
def tool(
    function: Callable[Parameters, Returned], /, **options: Unpack[ToolOptions]
) -> FunctionTool[Parameters, Returned, object]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> ToolDecorator: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Makes a tool of a function: `@tool` or `@tool(permissions={"read"}, target="path")`.

    The function's name, docstring and annotations become the tool's name, prompt and schema. The function can still be
    called as before. Of a function that is a tool already, the result has the options of both.

    Args:
        function: a plain function, a coroutine function or a generator.
        options: fields of `ToolSpec`, such as `permissions`, `target`, `timeout` and `confirm`.

    Example:
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> add(1, 2), add.spec.parameters["required"]
        (3, ['a', 'b'])
    """
    if function is not None:
        return function if isinstance(function, FunctionTool) and not options else _decorate(function, options)
    return lambda decorated: _decorate(decorated, options)


def _decorate(function: Any, options: ToolOptions) -> FunctionTool[Any, Any]:
    if not isinstance(function, FunctionTool):
        return FunctionTool(function, options)
    return FunctionTool(function.run, merge_options(f"tool {function.spec.name!r}", function.options, options))


def toolset(
    things: object,
    *,
    prefix: str = "",
    include: Collection[str] = (),
    exclude: Collection[str] = (),
    **options: Unpack[ToolOptions],
) -> list[Tool]:
    """Makes a set of tools: of the public methods of an object, or of a list of tools and functions.

    `mcp`, `openapi` and `scripts` have the same `prefix`, `include` and `exclude`. Raises `DefinitionError` for a name
    or a pattern that no tool of the set has.

    Args:
        things: an object, not its class; or a list of tools and functions.
        prefix: the tools are named `prefix_name`.
        include: patterns of the names, without the prefix: only these.
        exclude: patterns of the names to leave out.
        options: options of all tools, such as `permissions`. Those of a method under `@tool(...)` count before these.

    Example:
        >>> class Store:
        ...     def list_items(self) -> list[str]:
        ...         "List the items."
        ...         return ["a"]
        >>> [made.spec.name for made in toolset(Store(), prefix="store")]
        ['store_list_items']
    """
    if isinstance(things, type):
        raise DefinitionError(f"toolset({things.__name__}): pass an instance, not the class")
    if hasattr(things, "__aenter__") and hasattr(things, "problems"):  # else its own methods would be the tools
        raise DefinitionError(
            f"toolset({things!r:.80}): a source takes prefix, include and exclude itself, as in mcp(…)"
        )
    chosen = NameFilter.read("toolset", include, exclude)
    listed = _list_members(things, options)
    if problems := chosen.find_problems([name for name, _ in listed]):
        raise DefinitionError(f"toolset({problems[0]})")
    return [make(add_prefix("toolset", prefix, name)) for name, make in listed if chosen.selects(name)]


def _list_members(things: object, options: ToolOptions) -> list[tuple[str, Callable[[str], Tool]]]:
    """Returns the name of each member of a set, and what makes a tool of it under another name."""
    if isinstance(things, list | tuple | Iterator):
        check_listed(things)
        return [_read_member(one, options) for one in things]
    found: list[tuple[str, Callable[[str], Tool]]] = []
    for name in dir(things):
        if name.startswith("_") or isinstance(
            inspect.getattr_static(things, name), property | staticmethod | classmethod
        ):
            continue
        method = getattr(things, name)
        if isinstance(method, FunctionTool) or inspect.ismethod(method):
            found.append(_read_member(method, options))
    if not found:
        raise DefinitionError(
            f"{type(things).__name__} has no public methods to make tools of; pass an instance, not the class"
        )
    return found


def _read_member(one: Any, options: ToolOptions) -> tuple[str, Callable[[str], Tool]]:
    if not isinstance(one, Tool):
        return FunctionTool(one, options).spec.name, lambda name: FunctionTool(one, {**options, "name": name})
    if not options:
        return one.spec.name, lambda name: one if name == one.spec.name else one.reshaped(name=name)
    if not isinstance(one, FunctionTool):
        raise DefinitionError(f"toolset(…, {next(iter(options))}=…): {one!r} has options of its own; set them there")
    return one.spec.name, lambda name: FunctionTool(one.run, _own_first(one, options, name))


def _own_first(method: FunctionTool[Any, Any], options: ToolOptions, name: str) -> ToolOptions:
    """Adds the options of a set to those of a method. Either may ask for confirmation.

    The target of the set belongs to the permissions of the set.
    """
    if method.options.keys() & {"permissions", "optional_permissions"}:
        options = cast(ToolOptions, {key: value for key, value in options.items() if key != "target"})
    confirm = options.get("confirm", False) or method.options.get("confirm", False)
    return {**options, **method.options, "confirm": confirm, "name": name}


def are_alike(one: Tool, other: Tool) -> bool:
    """Returns whether two tools are the same, or made alike: one class, made with the same settings, and one spec."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    try:
        return _settings(one) == _settings(other) and one.spec.is_like(other.spec)
    except Exception:  # a custom comparison, or a schema that is not ready
        return False


def _settings(made: Tool) -> dict[str, Any]:
    """Returns the settings a tool was made with and those set since, without its internal state."""
    args, kwargs = made.init_args
    bound = inspect.signature(type(made).__init__).bind(None, *args, **kwargs)
    bound.apply_defaults()
    given = {key: None if isinstance(value, ToolSpec) else value for key, value in bound.arguments.items()}
    shown = {key: value for key, value in vars(made).items() if key[0] != "_" and type(value) in _PLAIN}
    return {**{f"({key})": value for key, value in given.items()}, **shown}


_PLAIN = frozenset({str, int, float, bool, bytes, type(None), frozenset})


def unknown(name: str, names: Mapping[str, Any]) -> UnknownTool:
    return UnknownTool(name, near(str(name), names))


def _spec(name: str, doc: str, signature: Signature, options: ToolOptions, made_of: Any) -> ToolSpec:
    if not doc and not options.get("description") and not options.get("description_file"):
        raise DefinitionError(f"tool {name!r} needs a docstring: it is what the model reads")
    embedded = options.get("description") or (lambda: description_of(doc))
    file = options.get("description_file")
    spec = ToolSpec(
        **{"origin": getattr(made_of, "__module__", ""), **_plain(options), "name": name},
        description=(lambda: description_from(file, embedded, made_of)) if file else embedded,
        parameters=lambda: signature.schema,
        returns=lambda: read_return_schema(signature.function),
    )
    if spec.isolate and "<" in getattr(made_of, "__qualname__", ""):
        raise DefinitionError(
            f"tool {name!r}: isolate=True needs something at module level, that another process can import"
        )
    _check_named(spec, signature.parameters)
    for alias, parameter in spec.argument_aliases.items():
        if parameter not in signature.parameters:
            raise DefinitionError(
                f"tool {name!r}: argument alias {alias!r} names {parameter!r}, which is not a parameter"
            )
    _check_harmless(spec, signature.parameters)
    return spec


def _check_named(spec: ToolSpec, parameters: Collection[str]) -> None:
    """Raises `DefinitionError` for a target, or a part of the concurrency key, that is not a parameter."""
    for field, names in (("target", spec.targets), ("concurrency_key", spec.concurrency_key.split())):
        for name in names:
            if name not in parameters:
                raise DefinitionError(f"tool {spec.name!r} has no parameter {name!r} to use as its {field}")


def _check_harmless(spec: ToolSpec, parameters: Collection[str]) -> None:
    """Raises `DefinitionError` for a harmless parameter that does not exist. Labels would look at all of them."""
    for strange in sorted(map(str, spec.harmless - frozenset(parameters))):
        hint = near(strange, parameters, 1)
        advice = f"did you mean {hint[0]!r}?" if hint else f"its parameters are {', '.join(parameters) or 'none'}"
        raise DefinitionError(f"tool {spec.name!r}: harmless names {strange!r}, which is not a parameter; {advice}")


def _changes(before: ToolSpec, after: ToolSpec) -> dict[str, Any]:
    """Returns the fields that differ, except those that may be computed late."""
    names = [field.name for field in fields(ToolSpec) if field.name not in LATE]
    return {one: getattr(after, one) for one in names if getattr(after, one) != getattr(before, one)}


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    for key in options:
        if key not in OPTIONS:
            hint = ["confirm"] if key == "requires_confirmation" else near(key, sorted(OPTIONS), 1)
            raise DefinitionError(f"unknown tool option {key!r}" + (f"; did you mean {hint[0]!r}?" if hint else ""))
    return {key: value for key, value in options.items() if key not in ("name", "description", "description_file")}


def _parameters(function: Any) -> tuple[str, ...]:
    return (getattr(function, "__code__", None) and function.__code__.co_varnames) or ()


def _words(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in ("name", "description") if key in options}


def _build_defined(name: str, definition: Mapping[str, Any], traits: ToolTraits) -> Tool:
    """Builds a tool of a dictionary."""
    check_definition(name, definition)
    execute = definition["execute"]
    own = {key: value for key, value in definition.items() if key in OPTIONS - {"name", "description"}}
    if isinstance(execute, FunctionTool):  # whose options count, too
        own = merge_options(f"tool {name!r}", _plain(execute.options), own)
        execute = execute.run
    execute = with_titles(execute)
    merged = merge_options(f"tool {name!r}", own, traits)
    if "parameters" not in definition:
        merged |= {key: definition[key] for key in ("description",) if key in definition}
        return FunctionTool(execute, cast(ToolOptions, {**merged, "name": name}))
    return Tool.from_schema(name, definition.get("description", ""), definition["parameters"], execute, **merged)


def check_parameters(spec: ToolSpec) -> None:
    """Raises `DefinitionError` if a parameter that the spec names is not in the schema."""
    if not spec.target and not spec.harmless and not spec.concurrency_key:
        return

    properties = flatten_schema(spec.parameters).get("properties") or {}
    _check_named(spec, properties)
    _check_harmless(spec, properties)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().removesuffix("_tool")
