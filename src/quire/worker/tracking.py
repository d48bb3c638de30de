"""What a cell brings into the namespace by its text: import statements and function definitions."""

from __future__ import annotations

import ast


def imports_and_functions(tree: ast.Module, source: str) -> tuple[list[str], list[str]]:
    imports: list[str] = []
    functions: list[str] = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(ast.unparse(node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append(_whole(node, source))
    return imports, functions


def _whole(node: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> str:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
