"""Follows untrusted text through a script: a value that the script computed from such text, or chose by it, is tainted.

A value in a call of a script is either written in the script, or computed from results, the script's frozen clock and
its seeded random numbers. Reading the script tells which results a value can be computed from, and which results decide
that a call is made (`data_flow`). Where a script is not understood, each value counts as untrusted once a result of an
untrusted tool has reached the script.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from forge.core.result import UNTRUSTED, Label, ToolResult, merge_labels
from forge.core.spec import ToolSpec
from forge.permissions.labels.settings import current_provenance


class ScriptOrigins:
    """Knows the labels of everything that one script has read, and what the values of its calls depend on."""

    def __init__(self, code: str, call: str, tools: Mapping[str, ToolSpec]) -> None:
        self._code, self._call, self._tools = code, call, tools
        self._labels: dict[str, tuple[Label, ...]] = {}  # by the name of the tool in the script

    def note_result(self, function: str, result: ToolResult) -> None:
        """Notes the labels of a result that the script receives."""
        untrusted = [one for one in result.labels if one.kind == UNTRUSTED]
        if untrusted:
            self._labels[function] = merge_labels(self._labels.get(function, ()), untrusted)

    def note_stored(self, function: str, result: ToolResult) -> None:
        """Notes a result from before the script waited: another process may have read it."""
        self.note_result(function, result)
        provenance = current_provenance.get()
        if result.labels and provenance is not None:
            provenance.note_inner(self._call, result.for_llm, result.labels)

    def note_arguments(self, call: str, function: str, names: Sequence[str], arguments: Mapping[str, Any]) -> None:
        """Notes what the values of a call were computed from or chosen by, before the call is made."""
        provenance = current_provenance.get()
        if provenance is None:
            return
        from forge.permissions.labels.provenance import ScriptArguments  # a run has loaded it

        labels: dict[str, tuple[Label, ...]] = {}
        decided: tuple[Label, ...] = ()
        if self._labels:
            places = {name: names.index(name) if name in names else -1 for name in arguments}
            labels = {name: found for name, at in places.items() if (found := self._find_labels(function, name, at))}
            sources = self._flow.find_decisions(function) if self._flow is not None else None
            decided = self._labels_of(sources)
        written = frozenset(name for name in labels if self._is_written(arguments[name]))
        provenance.note_arguments(call, ScriptArguments(self._call, arguments, labels, written, decided))

    def forget_arguments(self, call: str) -> None:
        """Forgets what was noted about a call that is over."""
        provenance = current_provenance.get()
        if provenance is not None:
            provenance.forget_arguments(call)

    def _is_written(self, value: Any) -> bool:
        """Returns whether a value is written in the script, so that a text can only have chosen it."""
        return all(leaf in self._constants for leaf in _find_leaves(value))

    def _find_labels(self, function: str, name: str, place: int) -> tuple[Label, ...]:
        """Returns the labels of the results that an argument can be computed from."""
        sources = self._flow.find_sources(function, name, place) if self._flow is not None else None
        return self._labels_of(sources)

    def _labels_of(self, sources: Collection[str] | None) -> tuple[Label, ...]:
        if sources is None:
            return merge_labels(*self._labels.values())
        return merge_labels(*(labels for one, labels in self._labels.items() if one in sources))

    @cached_property
    def _flow(self) -> ScriptFlow | None:
        return read_flow(self._code, self._tools, [name for name, spec in self._tools.items() if spec.irreversible])

    @cached_property
    def _constants(self) -> frozenset[str]:
        """The values that are written in the script."""
        try:
            nodes = ast.walk(ast.parse(self._code))
            return frozenset(str(node.value) for node in nodes if isinstance(node, ast.Constant))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return frozenset()  # then every value counts as computed


def _find_leaves(value: Any) -> Iterator[str]:
    """Yields the texts and numbers of plain data, which is not nested more deeply than JSON can be written."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif one is not None and not isinstance(one, bool):
            yield str(one)


# Finds out which calls of a script each argument of a call can depend on, by reading the script without running it.
#
# The analysis follows values, not paths: a variable has the sources of all values that are assigned to it, in any order
# and in any function. A change of an object counts for each name that may hold the object. A condition counts, too: a
# variable that is assigned under it depends on it, and so does a constant in a call that the condition chooses. A loop
# over a text chooses nothing for the constants in it, unless a condition ends or skips its rounds. A script with
# anything else than the listed kinds of syntax is not understood, and then each value depends on everything.


MOST_ROUNDS = 50  # until nothing changes; a script that needs more is not understood
MOST_NODES = 20_000  # of a script that is read

Sources = frozenset[str]  # the tools whose results are in a value
_NOTHING: Sources = frozenset()
_ALL = "*"  # the place of an argument that may be any
_MADE = "()"  # the place of what decides whether a call is made


class ScriptFlow(NamedTuple):
    """The sources of the arguments of each call, by the tool and the name or the place of the argument."""

    arguments: Mapping[tuple[str, str | int], Sources]

    def find_decisions(self, function: str) -> Sources | None:
        """Returns the tools whose results decide whether a call is made; None where the script does not say."""
        return self.arguments.get((function, _MADE))

    def find_sources(self, function: str, name: str, place: int) -> Sources | None:
        """Returns the tools whose results can be in an argument; None where the script does not say."""
        found = [self.arguments.get((function, key)) for key in (name, place, _ALL)]
        known = [one for one in found if one is not None]
        return frozenset().union(*known) if known else None


def read_flow(code: str, tools: Iterable[str], irreversible: Iterable[str] = ()) -> ScriptFlow | None:
    """Returns the flow of a script; None where it contains something that is not understood.

    `irreversible`: the tools whose calls cannot be undone. For them, how often a loop runs is a decision, too.
    """
    names = frozenset(tools)
    try:
        tree = ast.parse(code)
        nodes = list(ast.walk(tree))
        if len(nodes) > MOST_NODES or not is_understood(nodes, names):
            return None
        return _Reader(names, nodes, frozenset(irreversible)).read(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Reader:
    """Reads a script again and again until no variable gets another source."""

    def __init__(
        self, tools: frozenset[str], nodes: Sequence[ast.AST], irreversible: frozenset[str] = frozenset()
    ) -> None:
        self._tools, self._irreversible = tools, irreversible
        self._functions = {node.name: node for node in nodes if isinstance(node, Function)}
        self._is_repeated = len([node for node in nodes if isinstance(node, Function)]) > len(self._functions)
        self._names: dict[str, Sources] = {}
        self._shared: dict[str, set[str]] = {}  # the names that may hold the same object
        self._control: Sources = _NOTHING  # what decides whether the current statement runs, and how often
        self._choice: Sources = _NOTHING  # the conditions among it: they decide whether a constant is used
        self._chosen: dict[str, Sources] = {}  # the conditions under which own functions are called
        self._arguments: dict[tuple[str, str | int], Sources] = {}
        self._has_changed = False

    def read(self, tree: ast.Module) -> ScriptFlow | None:
        if self._is_repeated:
            return None
        for _ in range(MOST_ROUNDS):
            self._has_changed = False
            self._read_body(tree.body)
            if not self._has_changed:
                return ScriptFlow(self._arguments)
        return None

    def _read_body(self, body: Iterable[ast.stmt], control: Sources = _NOTHING, choice: Sources | None = None) -> None:
        """Reads statements that run under conditions. `choice` are those that count for constants; by default all."""
        before = self._control, self._choice
        self._control |= control
        self._choice |= control if choice is None else choice
        for statement in body:
            self._read_statement(statement)
            self._choice |= self._find_ends(statement)
        self._control, self._choice = before

    def _read_statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assign(target, node.value, changes=isinstance(node, ast.AugAssign))
        elif isinstance(node, ast.Expr):
            self._read(node.value)
        elif isinstance(node, ast.If):
            self._read_body([*node.body, *node.orelse], self._read(node.test))
        elif isinstance(node, ast.While):
            self._read_body([*node.body, *node.orelse], self._read(node.test) | self._find_decisions(node.body))
        elif isinstance(node, ast.For):
            self._assign(node.target, node.iter)
            decisions = self._find_decisions(node.body)
            self._read_body([*node.body, *node.orelse], self._read(node.iter) | decisions, decisions)
        elif isinstance(node, Function):
            decisions = self._find_decisions(node.body)
            control = self._give(f"{node.name}()", _NOTHING) | decisions
            self._read_body(node.body, control, decisions | self._chosen.get(node.name, _NOTHING))
        elif isinstance(node, ast.Try):
            self._read_try(node)
        elif isinstance(node, ast.Return):
            pass  # its value is read where the function is called
        elif isinstance(node, ast.Raise | ast.Assert):
            self._read(node.exc if isinstance(node, ast.Raise) else node.msg)

    def _read_try(self, node: ast.Try) -> None:
        """Reads a statement whose parts run or do not, depending on everything that may fail in its body."""
        failing = self._find_all(node.body)
        self._read_body([*node.body, *node.orelse, *node.finalbody], failing, _NOTHING)
        for handler in node.handlers:
            if handler.name:
                self._give(handler.name, failing)
            self._read_body(handler.body, failing)

    def _read(self, node: ast.AST | None) -> Sources:
        """Returns the sources of a value."""
        if node is None or isinstance(node, ast.Constant):
            return _NOTHING
        if isinstance(node, ast.Name):
            return self._names.get(node.id, _NOTHING)
        if isinstance(node, ast.Call):
            return self._read_call(node)
        if isinstance(node, ast.NamedExpr):
            self._assign(node.target, node.value)
            return self._read(node.value) | self._read(node.target)
        if isinstance(node, Comprehension):
            found, chosen = _NOTHING, _NOTHING
            for one in node.generators:
                self._assign(one.target, one.iter)
                chosen = chosen.union(*map(self._read, one.ifs))
                found |= self._read(one.iter) | chosen
            parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            before, self._control = self._control, self._control | found  # how often the parts are computed
            found |= self._read_chosen(parts, chosen)
            self._control = before
            return found
        if isinstance(node, ast.IfExp | ast.BoolOp):
            first, *rest = (node.test, node.body, node.orelse) if isinstance(node, ast.IfExp) else node.values
            found = self._read(first)
            return found | self._read_chosen(rest, found)
        return _NOTHING.union(*(self._read(child) for child in ast.iter_child_nodes(node)))

    def _read_chosen(self, nodes: Iterable[ast.AST], choice: Sources) -> Sources:
        """Returns the sources of values that a condition chooses; a call among them is made only if it holds."""
        before, self._choice = self._choice, self._choice | choice
        found = _NOTHING.union(*map(self._read, nodes))
        self._choice = before
        return found

    def _read_call(self, node: ast.Call) -> Sources:
        given = _NOTHING.union(*(self._read(one) for one in arguments_of(node) if not isinstance(one, ast.Lambda)))
        for one in arguments_of(node):
            if isinstance(one, ast.Lambda):
                for parameter in parameters_of(one.args):
                    self._give(parameter, given | self._read(node.func))
                given |= self._read(one.body)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self._tools:
            self._note_arguments(name, node)
            return frozenset({name})
        if name in self._functions:
            return self._read_own_function(self._functions[name], node)
        if name in PURE:
            return given
        whole = given | self._read(node.func)
        for root in find_roots([node.func] if isinstance(node.func, ast.Attribute) else arguments_of(node)):
            self._change(root, given)  # a method may store its arguments; a function may change them
        return whole

    def _read_own_function(self, function: Function, node: ast.Call) -> Sources:
        """Gives the arguments to the parameters, and returns the sources of what is returned."""
        parameters = parameters_of(function.args)
        is_plain = not (function.args.vararg or function.args.kwarg) and not any(
            map(is_spread, (*node.args, *node.keywords))
        )
        if is_plain and len(node.args) <= len(parameters):
            for parameter, value in zip(parameters, node.args, strict=False):
                self._bind(parameter, value)
            for keyword in node.keywords:
                self._bind(keyword.arg or "", keyword.value)
        else:
            for parameter in parameters:
                for value in arguments_of(node):
                    self._bind(parameter, value)
        for parameter in parameters:
            for default in (*function.args.defaults, *(one for one in function.args.kw_defaults if one is not None)):
                self._bind(parameter, default)
        self._give(f"{function.name}()", self._control)  # its statements run where it is called
        before = self._chosen.get(function.name, _NOTHING)
        if not self._choice <= before:
            self._chosen[function.name] = before | self._choice
            self._has_changed = True
        returned = [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value is not None]
        for value in returned:
            self._share(f"{function.name}()", value)
        return _NOTHING.union(self._find_decisions(function.body), *map(self._read, returned))

    def _note_arguments(self, tool: str, node: ast.Call) -> None:
        places: list[tuple[str | int, ast.expr]] = []
        for place, value in enumerate(node.args):
            places.append((_ALL if any(map(is_spread, node.args[: place + 1])) else place, value))
        places += [(keyword.arg or _ALL, keyword.value) for keyword in node.keywords]
        choice = self._choice | self._control if tool in self._irreversible else self._choice
        self._note_argument(tool, _MADE, choice)
        for key, value in places:
            self._note_argument(
                tool, key, self._read(value) | (choice if is_written(value) else choice | self._control)
            )

    def _note_argument(self, tool: str, key: str | int, sources: Sources) -> None:
        before = self._arguments.get((tool, key))
        if before is None or not sources <= before:
            self._arguments[tool, key] = (before or _NOTHING) | sources
            self._has_changed = True

    def _assign(self, target: ast.AST, value: ast.AST | None, *, changes: bool = False) -> None:
        sources = self._read(value)
        if isinstance(target, ast.Name):
            self._give(target.id, sources)
            self._share(target.id, value)
            if changes:
                self._change(target.id, sources)  # `a += b` changes the object, if it is a list
        elif isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._assign(one, value)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value)
        elif isinstance(target, ast.Subscript | ast.Attribute):
            key = self._read(target.slice) if isinstance(target, ast.Subscript) else _NOTHING
            for root in find_roots([target.value]):
                self._change(root, sources | key)
                self._share(root, value)

    def _bind(self, name: str, value: ast.AST) -> None:
        self._give(name, self._read(value))
        self._share(name, value)

    def _give(self, name: str, sources: Sources) -> Sources:
        """Adds sources to a variable. What decides that it is assigned is among them."""
        before = self._names.get(name, _NOTHING)
        after = before | sources | self._control
        if after != before:
            self._names[name] = after
            self._has_changed = True
        return after

    def _change(self, name: str, sources: Sources) -> None:
        """Adds sources to every name that may hold the same object."""
        for one in self._shared.get(name, {name}) | {name}:
            self._give(one, sources)

    def _share(self, name: str, value: ast.AST | None) -> None:
        """Notes that a name may hold an object that names in the value hold."""
        group = self._shared.setdefault(name, {name})
        for other in find_roots([value] if value is not None else []):
            theirs = self._shared.setdefault(other, {other})
            if theirs is not group:
                group |= theirs
                for one in group:
                    self._shared[one] = group
                self._has_changed = True

    def _find_ends(self, statement: ast.stmt) -> Sources:
        """Returns the sources of the conditions under which a statement ends the script or the function early."""
        if isinstance(statement, Function):
            return _NOTHING
        called = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id in self._functions]
        bodies = [[statement], *(self._functions[name].body for name in called)]
        ending = [
            body
            for body in bodies
            if any(isinstance(node, ast.Raise | ast.Assert) for one in body for node in ast.walk(one))
        ]
        return _NOTHING.union(*map(self._find_decisions, ending))

    def _find_decisions(self, body: Iterable[ast.stmt]) -> Sources:
        """Returns the sources of all conditions in a body that may end early: how often the rest runs depends on it."""
        nodes = [node for statement in body for node in ast.walk(statement)]
        if not any(isinstance(node, ast.Break | ast.Continue | ast.Return | ast.Raise | ast.Assert) for node in nodes):
            return _NOTHING
        tests = (node.test for node in nodes if isinstance(node, ast.If | ast.While | ast.Assert))
        iterated = (node.iter for node in nodes if isinstance(node, ast.For))
        return _NOTHING.union(*(self._find_all([one]) for one in (*tests, *iterated)))

    def _find_all(self, nodes: Iterable[ast.AST]) -> Sources:
        """Returns the sources of everything that is named."""
        names = [node.id for one in nodes for node in ast.walk(one) if isinstance(node, ast.Name)]
        inner = (self._find_all(self._functions[name].body) for name in names if name in self._functions)
        called = frozenset(name for name in names if name in self._tools)
        return called.union(*(self._names.get(name, _NOTHING) for name in names), *inner)


# Names the syntax that the analysis of a script understands, and takes the parts of calls and functions.

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_UNDERSTOOD = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.While, ast.For, ast.Pass, ast.Break),
    *(ast.Continue, ast.FunctionDef, ast.AsyncFunctionDef, ast.arguments, ast.arg, ast.Return, ast.Try, ast.Raise),
    *(ast.ExceptHandler, ast.Assert, ast.Import, ast.ImportFrom, ast.alias, ast.BoolOp, ast.NamedExpr, ast.BinOp),
    *(ast.UnaryOp, ast.IfExp, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.comprehension, ast.Await, ast.Compare, ast.Call, ast.keyword, ast.FormattedValue, ast.JoinedStr),
    *(ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice, ast.Lambda),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
# They neither change their arguments nor return one of them.
PURE = frozenset(
    (
        "abs all any ascii bin bool chr divmod float format hash hex int isinstance len oct ord pow print range "
        "repr round str sum"
    ).split()
)
_DYNAMIC = frozenset(
    "__builtins__ __import__ compile delattr eval exec getattr globals locals setattr type vars".split()
)


def is_understood(nodes: Sequence[ast.AST], tools: frozenset[str]) -> bool:
    """Returns whether a script has only syntax whose values can be followed."""
    functions = {node.name for node in nodes if isinstance(node, Function)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    lambdas = {id(one) for node in nodes if isinstance(node, ast.Call) for one in arguments_of(node)}
    for node in nodes:
        if not isinstance(node, _UNDERSTOOD) or (isinstance(node, ast.Lambda) and id(node) not in lambdas):
            return False
        if isinstance(node, ast.Name) and (
            node.id in _DYNAMIC or (node.id in tools | functions and id(node) not in called)
        ):
            return False  # a tool or a function as a value: nobody sees who calls it
        if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
            return False
        if isinstance(node, Function) and (node.name in tools | PURE or node.decorator_list):
            return False
        if isinstance(node, ast.arg) and node.arg in tools | functions | PURE:
            return False
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PURE:
            return False
    return True


def is_written(node: ast.AST) -> bool:
    """Returns whether a value consists of constants alone."""
    return not any(isinstance(one, ast.Name | ast.Call) for one in ast.walk(node))


def arguments_of(node: ast.Call) -> list[ast.expr]:
    """Returns the values that a call passes."""
    return [*node.args, *(one.value for one in node.keywords)]


def is_spread(node: ast.AST) -> bool:
    """Returns whether it is `*values` or `**named`."""
    return isinstance(node, ast.Starred) or (isinstance(node, ast.keyword) and node.arg is None)


def parameters_of(arguments: ast.arguments) -> list[str]:
    """Returns the names of all parameters, in order."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [one.arg for one in (*named, arguments.vararg, arguments.kwarg) if one is not None]


def find_roots(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yields the names whose objects may be in a value: not those that only decide it, or that a text is made of."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PURE:
            continue
        elif not isinstance(node, ast.JoinedStr | ast.Compare | ast.Constant):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield f"{node.func.id}()"
            yield from find_roots(ast.iter_child_nodes(node))
