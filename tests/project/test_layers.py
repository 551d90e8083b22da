"""The house of docs/design.md: who may import whom, and who may know which library."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MAY_IMPORT = {
    "formats": set(),
    "kernels": set(),
    "cluster": set(),
    "inputs": {"formats", "kernels"},
    "autodiff": {"kernels"},
    "observe": set(),
    "collectives": {"cluster"},
    "checkpoint": {"collectives", "formats", "observe"},
    "strategies": {"collectives", "cluster", "inputs", "autodiff", "observe"},
    "summary": {"formats", "strategies", "inputs", "autodiff", "observe"},
}
MAY_IMPORT["training"] = {
    *("summary", "strategies", "checkpoint", "cluster", "inputs", "autodiff", "observe"),
}
MAY_IMPORT["nn"] = {"kernels", "training", *MAY_IMPORT["training"]}
MAY_IMPORT["estimator"] = set(MAY_IMPORT)
MAY_IMPORT["compat"] = {*MAY_IMPORT}

BACKENDS = {
    "cupy": {"strategies/devices/gpu.py"},
    "mpi4py": {"collectives/mpi_start.py"},
    "numba": {"kernels/compiling.py"},
    "grpc": {"collectives/session/grpc_stream.py"},
    "lightgbm": {"estimator/premade/tree_growing.py"},
}
BEYOND_NUMPY_AND_PYDANTIC = {"rich", *BACKENDS}


def modules(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path):
    """(module, line) of everything that a file imports, deferred imports included."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split("."), node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = node.module.split(".") if node.module else []
            prefix = ["paceline", *base, *module] if node.level else module
            yield from (([*prefix, alias.name], node.lineno) for alias in node.names)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_the_folders_below_it(folder):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module[1]}"
        for path in modules(folder)
        for module, line in imports(path)
        if module[0] == "paceline"
        and len(module) > 1
        and module[1] in MAY_IMPORT
        and module[1] not in MAY_IMPORT[folder] | {folder}
    ]
    assert not wrong


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_inside_the_package_imports_are_relative(folder):
    for path in modules(folder):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert not (node.module or "").startswith("paceline"), path
            if isinstance(node, ast.Import):
                assert not any(a.name.startswith("paceline") for a in node.names), path


@pytest.mark.parametrize("library", BACKENDS)
def test_only_a_backends_own_module_imports_its_library(library):
    users = {
        str(path.relative_to(ROOT))
        for folder in MAY_IMPORT
        for path in modules(folder)
        for module, _ in imports(path)
        if module[0] == library
    }
    assert users <= BACKENDS[library]


def test_the_table_knows_every_folder_of_the_package():
    folders = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert folders == set(MAY_IMPORT)
