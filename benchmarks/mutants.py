"""Mutation check of the core: `python -m benchmarks.mutants --seed 18 --count 60 [--tree FOLDER] [--json FILE]`.

Draws mutants of the core's rooms (one changed operator, comparison, constant or branch each), runs the tests that name the
changed module, then the other tests of its room, and counts the mutants that a test kills. The sources are changed in place,
one at a time, and always restored: run it on a checkout of its own.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOMS = ("workload", "network", "profile", "costs", "policies", "batching", "world", "results", "experiment", "scenario")
"""Of the core; `costs` is what `profile` was called before, and `scenario` held what `experiment` holds."""
TIMEOUT_S = 240.0
_OPERATORS: dict[type[ast.AST], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/"}
_COMPARISONS: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: `text` replaces the characters from `start` to `end`."""

    file: str
    line: int
    start: int
    end: int
    old: str
    text: str


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def place(line: int, column: int) -> int:
        text = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(text.encode()[:column].decode())

    def change(node: ast.expr, text: str) -> Mutant:
        start, end = place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)
        return Mutant(file, node.lineno, start, end, source[start:end], text)

    for node in _computing(ast.parse(source)):
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = ast.unparse(node.left), ast.unparse(node.right)
            yield change(node, f"(({left}) {_OPERATORS[type(node.op)]} ({right}))")
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            yield change(node, f"(({left}) {_COMPARISONS[type(node.ops[0])]} ({right}))")
        elif isinstance(node, ast.BoolOp):
            joiner = " or " if isinstance(node.op, ast.And) else " and "
            yield change(node, f"({joiner.join(f'({ast.unparse(value)})' for value in node.values)})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield change(node, f"bool({ast.unparse(node.operand)})")
        elif isinstance(node, ast.IfExp):
            parts = (ast.unparse(part) for part in (node.orelse, node.test, node.body))
            yield change(node, "(({}) if ({}) else ({}))".format(*parts))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield change(node, repr(node.value + 1))


def _computing(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions of function bodies, annotations, defaults, messages and strings apart."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            waiting: list[ast.AST] = list(function.body)
            while waiting:
                node = waiting.pop()
                if isinstance(node, (ast.Raise, ast.JoinedStr, ast.FunctionDef, ast.ClassDef)):
                    continue
                yield node
                if isinstance(node, ast.AnnAssign):
                    waiting += [node.value] if node.value else []
                else:
                    waiting += ast.iter_child_nodes(node)


def draw(tree: Path, count: int, seed: int) -> list[Mutant]:
    """Draw mutants, with the same chance for every one of the core."""
    candidates: list[Mutant] = []
    for room in ROOMS:
        for path in sorted((tree / "simnmt" / room).rglob("*.py")):
            candidates += mutants_of(str(path.relative_to(tree)), path.read_text(encoding="utf-8"))
    return random.Random(seed).sample(candidates, count)


def tests_for(tree: Path, file: str) -> list[list[str]]:
    """Return the test files that import the module, those that name it first, and the rest of its room's tests."""
    module = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    room, name = module.split(".")[1], module.split(".")[-1]
    parent = module.rpartition(".")[0]
    direct = re.compile(
        rf"from {re.escape(module)} import|import {re.escape(module)}\b|from {re.escape(parent)} import .*\b{name}\b"
    )
    files = [path for path in sorted((tree / "tests").rglob("test_*.py")) if "goldens" not in path.parts]
    first = [str(path.relative_to(tree)) for path in files if direct.search(path.read_text(encoding="utf-8"))]
    rooms = {room, "invariants"} | ({"experiment", "scenario"} if room in ("experiment", "scenario") else set())
    rest = [str(path.relative_to(tree)) for path in files if path.relative_to(tree).parts[1] in rooms]
    return [first, [path for path in rest if path not in first]]


def killed_by(tree: Path, mutant: Mutant) -> str | None:
    """Return which tests kill the mutant, None if it survives."""
    path = tree / mutant.file
    source = path.read_bytes()
    text = source.decode()
    try:
        path.write_text(text[: mutant.start] + mutant.text + text[mutant.end :], encoding="utf-8")
        for stage, tests in zip(("direct", "room"), tests_for(tree, mutant.file), strict=True):
            if tests and _fails(tree, tests):
                return stage
    finally:
        path.write_bytes(source)
    return None


def _fails(tree: Path, tests: list[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=TIMEOUT_S).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main() -> None:
    """Draw, run, print one line a mutant and the count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    outcomes = []
    for mutant in draw(given.tree, given.count, given.seed):
        stage = killed_by(given.tree, mutant)
        outcomes.append({**asdict(mutant), "killed_by": stage})
        print(f"{stage or 'SURVIVED':9} {mutant.file}:{mutant.line}: {mutant.old!r} -> {mutant.text!r}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
    print(f"{sum(outcome['killed_by'] is not None for outcome in outcomes)} of {len(outcomes)} killed, seed {given.seed}")


if __name__ == "__main__":
    main()
