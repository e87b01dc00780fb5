"""Small semantic changes of Python source: each changes one operator, constant, condition or call."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
NAME_SWAPS = {"min": "max", "max": "min", "any": "all", "all": "any"}
TEXT_NODES = (ast.JoinedStr, ast.Raise, ast.Assert)  # messages, and checks that tests need not reach


@dataclass(frozen=True)
class Change:
    """A change of a syntax tree: sets an item of a list, or an attribute of a node."""

    line: int
    what: str
    target: object
    key: int | str
    value: object

    def apply(self) -> None:
        """Make the change."""
        if isinstance(self.key, int):
            self.target[self.key] = self.value  # type: ignore[index]
        else:
            setattr(self.target, self.key, self.value)


def changed_tree(source: str, number: int) -> tuple[ast.Module, Change]:
    """Return the syntax tree of a source with one of its possible changes, and the change.

    >>> tree, change = changed_tree("x = 1 + 2", 0)
    >>> change.what, ast.unparse(tree)
    ('Add -> Sub', 'x = 1 - 2')
    """
    tree = ast.parse(source)
    change = list(possible_changes(tree))[number]
    change.apply()
    return ast.fix_missing_locations(tree), change


def possible_changes(tree: ast.AST) -> Iterator[Change]:
    """Yield every possible change. Annotations, messages and blocks for type checkers are left out."""
    for node in _meaningful_nodes(tree):
        if isinstance(node, ast.Compare):
            for index, operator in enumerate(node.ops):
                if type(operator) in SWAPS:
                    yield Change(node.lineno, _swap_text(operator), node.ops, index, SWAPS[type(operator)]())
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
            yield Change(node.lineno, _swap_text(node.op), node, "op", SWAPS[type(node.op)]())
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield Change(node.lineno, f"{node.value} -> {not node.value}", node, "value", not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield Change(node.lineno, f"{node.value} -> {node.value + 1}", node, "value", node.value + 1)
        elif isinstance(node, ast.Name | ast.Attribute):
            key, name = ("id", node.id) if isinstance(node, ast.Name) else ("attr", node.attr)
            if name in NAME_SWAPS:
                yield Change(node.lineno, f"{name} -> {NAME_SWAPS[name]}", node, key, NAME_SWAPS[name])
        elif isinstance(node, ast.If | ast.IfExp):
            yield _negation(node)
        for name, value in ast.iter_fields(node):
            yield from _changes_of_field(node, name, value)


def _negation(node: ast.If | ast.IfExp) -> Change:
    test = node.test
    negated = test.operand if _is_not(test) else ast.UnaryOp(ast.Not(), test)  # type: ignore[attr-defined]
    return Change(node.lineno, "condition negated", node, "test", negated)


def _changes_of_field(node: ast.AST, name: str, value: object) -> Iterator[Change]:
    """Yield the changes that replace a child: a dropped `not`, and a removed call whose value is not used."""
    if isinstance(value, ast.UnaryOp) and _is_not(value) and not isinstance(node, ast.If | ast.IfExp):
        yield Change(value.lineno, "not dropped", node, name, value.operand)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
                called = ast.unparse(child.value.func)
                yield Change(child.lineno, f"call of {called} removed", value, index, ast.Pass())
            elif isinstance(child, ast.UnaryOp) and _is_not(child):
                yield Change(child.lineno, "not dropped", value, index, child.operand)


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _meaningful_nodes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: only checks
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, TEXT_NODES):
                yield from _meaningful_nodes(child)


def _swap_text(operator: ast.AST) -> str:
    return f"{type(operator).__name__} -> {SWAPS[type(operator)].__name__}"
