"""tests/coverage.md: each test that it names exists, and bears the ID of the row that it proves."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"\| ([A-Z]{1,2}-\d+|B\d+(?:\.\w+)?) \| (.+) \| (.+) \| (.+) \|")
LINES = [line for line in (TESTS / "coverage.md").read_text("utf-8").splitlines() if "|" in line]
ROWS = [found for line in LINES if (found := ROW.fullmatch(line))]


@cache
def definitions(path):
    """The syntax of each test of a file, by its name, behind that of its class if it has one."""
    found = {}
    for node in ast.parse((TESTS / path).read_text("utf-8")).body:
        of_class = node.body if isinstance(node, ast.ClassDef) else []
        found |= {f"{node.name}::{test.name}": test for test in of_class if hasattr(test, "name")}
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
    return found


def named(cell):
    """What a cell of the table names: each test's name and its syntax."""
    for path, name in re.findall(r"`([\w/]+\.py)::([\w:]+)`", cell):
        assert name in definitions(path), (
            f"there is no {name} in tests/{path}; mend tests/coverage.md"
        )
        yield name, definitions(path)[name]


def as_in_names(identifier):
    """The ID as it stands in the name of a test: "B8.StopAtStep" is "b8_stop_at_step"."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", identifier)
    return re.sub(r"\W", "_", words).lower()


def bears(name, test, identifier):
    """Whether an ID stands in the name of a test, or in the ID of one of its cases."""
    if f"_{as_in_names(identifier)}_" in f"_{name}_":
        return True
    constants = (node for each in test.decorator_list for node in ast.walk(each))
    texts = (str(node.value) for node in constants if isinstance(node, ast.Constant))
    return any(text.split(" ")[0] == identifier for text in texts)


def test_every_line_of_the_table_is_a_row_and_no_row_comes_twice():
    others = [line for line in LINES if not ROW.fullmatch(line)]
    assert set(others) == {"| ID | what | state | tests |", "|---|---|---|---|"}
    identifiers = [row[1] for row in ROWS]
    assert sorted(identifiers) == sorted(set(identifiers))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_a_row_has_tests_that_bear_its_id_or_says_whose_it_is(row):
    identifier, _, state, cell = row.groups()
    tests = dict(named(cell))
    if state.startswith("belongs to "):
        assert not tests
    else:
        assert re.fullmatch(r"OK|PARTLY: .+", state)
        assert cell.count("`") == 2 * len(tests), "each test is named once, as file::name"
        assert any(bears(name, test, identifier) for name, test in tests.items())
