"""Makes a task that takes depth: follow a chain of references, `g 3 cb ge ...`: from g, 3 steps on, where c leads to b, g to e.

A sentence is a beginning, a number of steps, and for each letter the one it leads to, in random order; the label is where the
chain ends, 0 for a. No word by itself says anything, and each step has to find what the one before gave: so accuracy falls
with depth and with the fidelity of the weights, as it does not on a task that word counts solve. Synthetic, by a seed; no
sentence stands in two of its three parts: to learn from, to rank shards by, and to judge by.
"""

from __future__ import annotations

import argparse
import random
import string
from pathlib import Path


def example(draw: random.Random, letters: str, steps: int) -> tuple[str, int]:
    """A sentence of 1 to `steps` steps over a random permutation of `letters`, and its label."""
    leads = dict(zip(letters, draw.sample(letters, len(letters)), strict=True))
    pairs = draw.sample([f"{one}{other}" for one, other in leads.items()], len(letters))
    begin, count = draw.choice(letters), draw.randint(1, steps)
    at = begin
    for _ in range(count):
        at = leads[at]
    return f"{begin} {count} {' '.join(pairs)}", letters.index(at)


def examples(count: int, letters: int, steps: int, seed: int) -> list[tuple[str, int]]:
    """So many different sentences with their labels. Raises `ValueError` where there are not that many."""
    if not (2 <= letters <= 26 and 1 <= steps <= 9):
        raise ValueError("2 to 26 letters, 1 to 9 steps")
    draw, made = random.Random(seed), dict[str, int]()
    for _ in range(20 * count):
        if len(made) == count:
            break
        sentence, label = example(draw, string.ascii_lowercase[:letters], steps)
        made.setdefault(sentence, label)
    if len(made) < count:
        raise ValueError(f"no {count} different sentences of {letters} letters and {steps} steps")
    return list(made.items())


def main() -> None:
    """Write OUT/train.tsv, OUT/dev.tsv and OUT/test.tsv."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--letters", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4, help="most of a chain")
    parser.add_argument("--train", type=int, default=100_000)
    parser.add_argument("--dev", type=int, default=1_000)
    parser.add_argument("--test", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        rows = examples(arguments.dev + arguments.train + arguments.test, arguments.letters, arguments.steps, arguments.seed)
    except ValueError as error:
        parser.error(str(error))
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin = 0
    # The test part comes last: what was made before there was one is made as it was.
    for name, count in (("dev", arguments.dev), ("train", arguments.train), ("test", arguments.test)):
        part, begin = rows[begin : begin + count], begin + count
        lines = [f"{sentence}\t{label}\n" for sentence, label in part]
        (arguments.out / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(lines), encoding="utf-8")
    parts = f"{arguments.train} examples to learn from, {arguments.dev} to rank by, {arguments.test} to judge by"
    print(f"{arguments.out}: {parts}, {arguments.letters} classes")


if __name__ == "__main__":
    main()
