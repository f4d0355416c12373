"""A tool with another face: other names, fewer arguments, fixed arguments. The code behind it stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any

from forge.core.arguments.explain import fold_name, near
from forge.core.arguments.outline import is_flat
from forge.core.context import Scope, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.plain_values import plain
from forge.core.result import Reconciled, ToolResult
from forge.core.spec import LATE, Category, JsonSchema, Permission, ToolSpec
from forge.core.tool import Tool


class ReshapedTool(Tool):
    """What `Tool.reshaped` returns.

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
        await self.original.ready()
        self._renew_spec()

    def reset(self) -> None:
        self.original.reset()
        self._renew_spec()

    def _renew_spec(self) -> None:
        """Makes the spec again if the original's is another now. What a project set meanwhile stays."""
        if self._is_complete == self.original.is_ready:
            return
        names = [field.name for field in fields(ToolSpec) if field.name not in LATE]
        own = {one: getattr(self.spec, one) for one in names if getattr(self.spec, one) != getattr(self._made, one)}
        self._made = self._make_spec()
        self.spec = self._made.changed(**own)

    def _take_scope(self, scope: Scope) -> None:
        self.original._take_scope(scope)

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
    def needs_person(self) -> bool:  # type: ignore[override]
        return self.original.needs_person

    def introduce(self) -> str:
        return self.original.introduce()

    def deps_type(self) -> Any:
        return self.original.deps_type()

    def preview(self, result: ToolResult, max_lines: int = 3) -> list[str]:
        return self.original.preview(result, max_lines)
