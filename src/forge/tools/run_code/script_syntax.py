"""Names the syntax that the analysis of a script understands, and takes the parts of calls and functions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

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
    "abs all any ascii bin bool chr divmod float format hash hex int isinstance len oct ord pow print range repr round"
    " str sum".split()
)
_DYNAMIC = frozenset(
    "__builtins__ __import__ compile delattr eval exec getattr globals locals setattr type vars".split()
)


def is_understood(nodes: Sequence[ast.AST], tools: frozenset[str]) -> bool:
    """Says whether a script has only syntax whose values can be followed."""
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
    """Says whether a value consists of constants alone."""
    return not any(isinstance(one, ast.Name | ast.Call) for one in ast.walk(node))


def arguments_of(node: ast.Call) -> list[ast.expr]:
    """Returns the values that a call passes."""
    return [*node.args, *(one.value for one in node.keywords)]


def is_spread(node: ast.AST) -> bool:
    """Says whether it is `*values` or `**named`."""
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
