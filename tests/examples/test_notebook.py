"""CL-18: the notebook of the guide runs from its first cell to its last, and shows its pictures."""

import warnings
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "guide.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    for module in ("sklearn", "matplotlib", "ipykernel"):
        pytest.importorskip(module)
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the client's own dependencies
        nbclient.NotebookClient(notebook, timeout=100, resources=resources).execute()
    return notebook


def outputs(notebook, kind):
    return [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs if kind(o)]


def test_every_cell_runs_and_none_warns(executed):
    assert not outputs(executed, lambda o: o.output_type == "error" or o.get("name") == "stderr")


def test_the_pictures_are_there(executed):
    assert len(outputs(executed, lambda o: "image/png" in o.get("data", {}))) == 4


def test_it_is_kept_without_outputs():
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells)
