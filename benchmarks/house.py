"""Size and shape of the code: `python -m benchmarks.house [--json]`, and `--trace` for the modules that one run passes through.

Counts files, code lines (neither blank, nor comment, nor docstring), import circles, long functions, loose dictionaries in
signatures, and names that say nothing (STYLE section 2). `--trace` runs `simnmt run @quickstart` from YAML to page and counts
the modules of which a function ran, and how often control came back to a room that it had left.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

PACKAGE = Path(__file__).resolve().parents[1] / "simnmt"
LONG_FUNCTION_LINES = 60
"""Lines of a function's body; its signature and docstring do not count."""
EMPTY_NAMES = frozenset({"found", "told", "said", "own", "each", "way", "its"})
"""Names of variables, arguments, functions and classes that say nothing of their value."""
NO_VERBS = {
    *("a", "an", "the", "this", "that", "these", "those", "it", "its", "they", "their", "he", "every", "each", "all", "none"),
    *("no", "one", "two", "only", "true", "seconds", "what", "when", "where", "whether", "which", "who", "how", "if", "as"),
    *("at", "by", "for", "from", "in", "of", "on", "to", "with", "without"),
}
"""First words with which a docstring of a function is no sentence that says what the function does."""
EMPTY_ENDINGS = ("_told", "_words")
"""Of modules; `frequent_words` holds words."""
FLOORS = {
    "base": 0,
    "workload": 1,
    "network": 1,
    "profile": 1,
    "policies": 2,
    "batching": 2,
    "streaming.plan": 2,
    "results": 3,
    "world": 4,
    "kernels": 4,
    "nmt": 5,
    "streaming": 6,
    "scenario": 7,
    "experiment": 8,
    "service": 9,
    "calibrate": 10,
    "live": 11,
    "report": 12,
    "papers": 13,
    "api": 14,
    "decisions": 15,
    "cli": 16,
}
"""Floor of each room; a room imports only from lower floors (`tests/test_floors.py`)."""

LEAVES = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


@cache
def module(source: str) -> ast.Module:
    """Return the tree of a module, parsed once."""
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Return every node of a module, without operators and contexts, half of what `ast.walk` yields."""
    reached: list[ast.AST] = [module(source)]
    for node in reached:
        for value in node.__dict__.values():
            if isinstance(value, list):
                reached += [below for below in value if isinstance(below, ast.AST) and not isinstance(below, LEAVES)]
            elif isinstance(value, ast.AST) and not isinstance(value, LEAVES):
                reached.append(value)
    return tuple(reached)


def statements(parent: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement below a node; far faster than every node."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(parent, block, None) or ():
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def code_lines(source: str) -> int:
    """Return the number of lines that hold code: not blank, no comment alone, not of a docstring."""
    documented: set[int] = set()
    of_text: set[int] = set()
    for node in nodes(source):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno != node.lineno:
            of_text |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for statement in getattr(node, "body", None) or () if not isinstance(node, (ast.Lambda, ast.IfExp)) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                documented |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    written = {
        number
        for number, line in enumerate(source.split("\n"), 1)
        if number in of_text or (line.strip() and not line.lstrip().startswith("#"))
    }
    return len(written - documented)


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def room_of(parts: tuple[str, ...] | list[str]) -> str:
    """Return the room of a module, given the parts of its name below the package; `streaming.plan` is a room of its own."""
    return "streaming.plan" if tuple(parts[:2]) == ("streaming", "plan") else parts[0]


def imported_names(source: str) -> Iterator[str]:
    """Yield the full names of all that a module imports, wherever in it."""
    for node in statements(module(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import by dots hides the floor"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def circles(sources: Mapping[str, str]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others; imports within functions count."""
    names = list(sources)
    edges = [
        (names.index(name), names.index(other)) for name in names for other in set(_imports(sources[name], sources)) - {name}
    ]
    graph = coo_matrix((np.ones(len(edges)), tuple(np.array(edges, dtype=int).reshape(-1, 2).T)), shape=(len(names),) * 2)
    _, labels = connected_components(graph, connection="strong")
    groups = [[name for name, label in zip(names, labels, strict=True) if label == group] for group in set(labels)]
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _imports(source: str, modules: Mapping[str, str]) -> Iterator[str]:
    for node in nodes(source):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


def long_functions(source: str) -> Iterator[tuple[str, int]]:
    """Yield name and body lines of the functions that are too long."""
    for node in nodes(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
            if lines > LONG_FUNCTION_LINES:
                yield node.name, lines


def loose_dictionaries(source: str) -> int:
    """Return how often `dict[str, Any]` stands in a signature."""
    count = 0
    for node in nodes(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
            notes = [argument.annotation for argument in arguments if argument is not None and argument.annotation is not None]
            count += sum(
                ast.unparse(note).count("dict[str, Any]") for note in [*notes, *([node.returns] if node.returns else [])]
            )
    return count


def empty_names(source: str) -> Counter[str]:
    """Count the bindings of names that say nothing: variables, arguments, functions, classes, fields."""
    names: Counter[str] = Counter()
    for node in nodes(source):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] += 1
        elif isinstance(node, ast.arg):
            names[node.arg] += 1
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[node.name.lower().strip("_")] += 1
    return Counter({name: count for name, count in names.items() if name.strip("_") in EMPTY_NAMES})


def verbless_docstrings(source: str) -> Iterator[str]:
    """Yield the functions, properties apart, whose docstring does not start with a verb."""
    for node in nodes(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            words = (ast.get_docstring(node) or "Return").split()
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not is_property and words[0].strip("`,.:").lower() in NO_VERBS:
                yield node.name


def size() -> dict[str, Any]:
    """Return the counts of the whole package."""
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    long = {f"{module}.{name}": lines for module, source in sources.items() for name, lines in long_functions(source)}
    names: Counter[str] = sum((empty_names(source) for source in sources.values()), Counter())
    papers = [source for module, source in sources.items() if module.split(".")[1:2] in (["papers"], ["reproduce"])]
    return {
        "files": len(sources),
        "code_lines": sum(code_lines(source) for source in sources.values()),
        "lines_of_papers": sum(source.count("\n") for source in papers),
        "import_circles": circles(sources),
        "long_functions": long,
        "loose_dictionaries": sum(loose_dictionaries(source) for source in sources.values()),
        "verbless_docstrings": [
            f"{module}.{name}" for module, source in sources.items() for name in verbless_docstrings(source)
        ],
        "empty_names": dict(names.most_common()),
        "empty_modules": sorted(name for name in sources if name.endswith(EMPTY_ENDINGS) and "frequent_words" not in name),
    }


def trace(scenario: str = "@quickstart", engine: Literal["simpy", "compiled"] | None = None) -> dict[str, Any]:
    """Return which modules and rooms one run of a scenario passes through, in the order of first entry."""
    import simnmt

    modules: Counter[str] = Counter()
    rooms: list[str] = []

    def enter(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("simnmt.") and not frame.f_code.co_name.startswith("<module>"):
            modules[name] += 1
            room = name.split(".")[1]
            if not rooms or rooms[-1] != room:
                rooms.append(room)

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(enter)
        try:
            simnmt.run(scenario, out=Path(folder, "run"), requests=200, replications=1, engine=engine)
        finally:
            sys.setprofile(None)
    return {
        "modules": len(modules),
        "rooms": list(dict.fromkeys(rooms)),
        "returns_to_a_room": len(rooms) - len(set(rooms)),
        "calls": dict(modules.most_common()),
    }


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", action="store_true", help="of one run, not of the whole package")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    counts = trace() if given.trace else size()
    if given.json:
        print(json.dumps(counts, indent=1))
        return
    for name, value in counts.items():
        if isinstance(value, dict):
            print(
                f"{name}: {len(value)}, sum {sum(value.values())}"
                + "".join(f"\n  {key} {count}" for key, count in list(value.items())[:30])
            )
        elif isinstance(value, list):
            print(
                f"{name}: {len(value)}"
                + "".join(f"\n  {' <-> '.join(entry) if isinstance(entry, list) else entry}" for entry in value)
            )
        else:
            print(f"{name}: {value:,}")


if __name__ == "__main__":
    main()
