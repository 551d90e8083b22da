"""No two files import each other, over whatever others; imports for typing only count as well."""

import ast

import pytest

from .test_layers import MAY_IMPORT, ROOT, modules


def imported(path):
    """The files of this package that a file imports, wherever in it and whatever for."""
    package = path.parent.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ROOT.joinpath(*package[: len(package) - node.level + 1])
            module = base.joinpath(*(node.module or "").split("."))
            files = [file_of(module / alias.name) or file_of(module) for alias in node.names]
            yield from (file for file in files if file is not None)


def file_of(module):
    """The file of a module or package; None where it is neither, but a name within one."""
    found = (module.with_suffix(".py"), module / "__init__.py")
    return next((file for file in found if file.is_file()), None)


def a_cycle(graph):
    """The nodes of one cycle of a graph (node → nodes), in order; none where there is none."""
    finished = set()

    def search(node, way):
        if node in way:
            return way[way.index(node) :]
        if node in finished:
            return []
        for other in sorted(graph.get(node, ())):
            if found := search(other, [*way, node]):
                return found
        finished.add(node)
        return []

    return next((found for node in sorted(graph) if (found := search(node, []))), [])


def cycle_in(folder):
    graph = {path: set(imported(path)) - {path} for path in modules(folder)}
    return [str(path.relative_to(ROOT)) for path in a_cycle(graph)]


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_no_files_of_a_folder_import_each_other_in_a_circle(folder):
    assert not cycle_in(folder)


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({}, []),
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, ["a", "b"]),
        ({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}, ["b", "c", "d"]),
    ],
)
def test_cycles_are_found(graph, cycle):
    assert a_cycle(graph) == cycle
