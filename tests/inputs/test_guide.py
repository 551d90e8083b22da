"""docs/input.md: its code runs, in the order in which it is read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BLOCKS = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[2] / "docs" / "input.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


def test_the_guide_s_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = [block for block in BLOCKS if "__main__" not in block]
    assert len(blocks) == 6
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of docs/input.md", "exec"), names)
    pipelines = [
        names["inputs"].InputContext(num_input_pipelines=2, input_pipeline_id=i) for i in range(2)
    ]
    first, second = (next(iter(names["training_input"](context)))[1] for context in pipelines)
    assert len({*first.tolist(), *second.tolist()}) == 128


def test_the_guide_s_script_runs(tmp_path: Path) -> None:
    (script,) = [block for block in BLOCKS if "__main__" in block]
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "118\n", "")
