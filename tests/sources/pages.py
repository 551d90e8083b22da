"""The code blocks of the five documents that define the system, and how they are run.

A file `S0_12.py` beside this one is a block as its page has it, and `S0_12.out` what the page
prints below it (of log lines only those that state numbers).
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
IMPORTS = {
    "import tensorflow as tf": "import paceline.compat.tf as tf",
    "import tensorflow_datasets as tfds": "import paceline.compat.tfds as tfds",
}
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?")


class _Notebook(io.StringIO):
    """Shows progress bars, as the documents' notebooks do."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Block:
    """One block of code of a page, by the page and its place there: "S0_12"."""

    name: str

    @property
    def text(self) -> str:
        """As the page has it."""
        return (FOLDER / f"{self.name}.py").read_text("utf-8")

    @property
    def printed(self) -> str:
        """What the page prints below it; empty where it prints nothing."""
        path = FOLDER / f"{self.name}.out"
        return path.read_text("utf-8") if path.exists() else ""

    @property
    def is_signature(self) -> bool:
        """Whether it is a method's signature, and nothing to run."""
        return re.fullmatch(r"[\w.]+\((\n.*)?\)\s*", self.text, re.DOTALL) is not None

    def run(self, names: dict[str, Any], model_dir: str = "/tmp/multiworker") -> str:
        """Run it in a namespace, with only its imports changed.

        Args:
            names: What earlier blocks have defined.
            model_dir: Stands for the directory that S2 writes into, where others may write, too.

        Returns:
            What it prints, and the values of its expressions as a notebook shows them: of S1 each
            one, of the other pages that of the last line.
        """
        code = self.text.replace("/tmp/multiworker", model_dir)
        for theirs, ours in IMPORTS.items():
            code = code.replace(theirs, ours)
        statements = ast.parse(code).body
        shown = statements if self.name.startswith("S1") else statements[-1:]
        out = _Notebook()
        with contextlib.redirect_stdout(out), np.printoptions(legacy="1.25"):
            for statement in statements:
                self._run_statement(statement, statement in shown, names)
        return out.getvalue()

    def _run_statement(self, statement: ast.stmt, is_shown: bool, names: dict[str, Any]) -> None:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), self.name, "exec"), names)
            return
        value = eval(compile(ast.Expression(statement.value), self.name, "eval"), names)
        if is_shown and value is not None:
            print(value if isinstance(value, str) else repr(value))


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [Block(path.stem) for path in sorted(FOLDER.glob(f"{page}_*.py"))]


def require_printed(found: str, printed: str, atol: float = 2e-7, rtol: float = 2e-7) -> None:
    """Compare what a block has printed with what its page prints, word by word.

    Numbers may differ by rounding. The host stands in for all GPUs; a variable's name is unique
    here, for checkpoints, and "Variable" like all others there; times and addresses are nobody's.
    """
    ours, page = _words(found), _words(printed)
    shapes = [" ".join(_NUMBER.sub("0", word) for word in words) for words in (ours, page)]
    assert shapes[0] == shapes[1], f"{found}\non the page:\n{printed}"
    numbers, expected = _numbers(ours), _numbers(page)
    np.testing.assert_allclose(numbers, expected, rtol, atol)


def _words(text: str) -> list[str]:
    text = re.sub(r"[CG]PU:\d+", "CPU:0", text)
    text = re.sub(r"'Variable_\d+", "'Variable", text)
    text = re.sub(r"\d+s \d+[mu]?s/(step|epoch)", "0s 0ms/step", text)
    text = re.sub(r"<[\w.]+History (object )?at 0x\w+>", "History", text)
    text = re.sub(r"[^\n]*\r", "", text)  # what a progress bar has drawn over
    return re.sub(r"([\[\]])", r" \1 ", text).split()


def _numbers(words: list[str]) -> list[float]:
    return [float(found[0]) for word in words for found in _NUMBER.finditer(word)]
