"""What a reader can take in at once: files have an end, interfaces few members."""

import ast

from .test_layers import MAY_IMPORT, ROOT, modules

MOST_LINES, MOST_ABSTRACT_MEMBERS = 450, 10


def test_no_file_is_longer_than_a_reader_likes():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in sources()}
    assert {path: n for path, n in lengths.items() if n > MOST_LINES} == {}


def test_no_interface_asks_for_more_than_ten_members():
    found = {}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[f"{path.relative_to(ROOT)}: {node.name}"] = sum(map(is_abstract, node.body))
    assert max(found.values()) >= 5
    assert {name: n for name, n in found.items() if n > MOST_ABSTRACT_MEMBERS} == {}


def sources():
    """The files of the package, without tests, examples and benchmarks."""
    return [path for folder in MAY_IMPORT for path in modules(folder)]


def is_abstract(member):
    return isinstance(member, ast.FunctionDef) and any(
        isinstance(mark, ast.Name) and mark.id == "abstractmethod" for mark in member.decorator_list
    )
