"""docs/checkpoints.md: its code runs, in the order in which it is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("fsspec")

GUIDE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_guide_s_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) == 5
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of docs/checkpoints.md", "exec"), names)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["linear", "loop", "warm"]


def test_every_setting_of_saving_is_in_the_guide() -> None:
    from paceline import RunConfig

    text = GUIDE.read_text(encoding="utf-8")
    settings = [name for name in RunConfig.model_fields if "checkpoint" in name]
    missing = [name for name in settings if f"`{name}`" not in text and name.find("graph_def") < 0]
    assert missing == []
