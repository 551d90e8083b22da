"""The code blocks of S0 to S4 run with only their imports changed, and print what pages print."""

import ast
import inspect
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paceline.compat.tf as tf
from paceline.autodiff import set_print_options
from paceline.cluster import local_cluster

from .pages import FOLDER, Block, blocks, require_printed

PAGES = ("S0", "S1", "S2", "S3", "S4")
CANNOT_RUN = {
    "S0_05": (ValueError, "no TPU can be used", "a real TPU"),
    "S1_10": (ValueError, "no TPU can be used", "a real TPU"),
    "S3_02": (
        ValueError,
        "has no loss",
        "compile() without a loss, and then fit: TensorFlow refuses it",
    ),
    "S4_03": (NameError, "dataset_ops", "the page's undefined names loss_fn and dataset_ops"),
}
"""For each block that cannot run as its page has it: the error, a word of it, and why."""

GUIDE = Path(__file__).parents[2] / "docs" / "migration.md"


@pytest.fixture(autouse=True)
def as_on_the_pages(monkeypatch, tmp_path):
    """In an empty directory, alone in a cluster, with tensors printed as TensorFlow's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    set_print_options(prefix="tf.", suffix=":0")
    yield
    set_print_options()


def taken_for_granted():
    """The names that pages use and do not define."""
    per_replica = tf.distribute.DistributedValues([np.arange(4), np.arange(4, 8)])
    return {
        "__name__": "page",
        "EPOCHS": 2,
        "NUM_STEP": 3,
        "dataset": tf.data.Dataset.range(8).batch(4),
        "json": json,
        "my_strategy": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        "np": np,
        "os": os,
        "per_replica_result": per_replica,
        "result": 1,
        "tf": tf,
        "tpu_address": "grpc://10.0.0.2:8470",
    }


def run_or_be_refused(block, names):
    """What a block prints; of one that cannot run nothing, if it is refused as it is to be."""
    if block.name not in CANNOT_RUN:
        return block.run(names)
    error, message, _ = CANNOT_RUN[block.name]
    with pytest.raises(error, match=message):
        block.run(names)
    return ""


def weight_for(loss_of, wanted):
    """The weight at which the first loss is the one that the page prints: its draw was chance."""
    low, high = -10.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if loss_of(middle) > wanted else (low, middle)
    return middle


def test_g05_g03_g04_g01_every_block_of_the_guide_runs_and_prints(caplog, monkeypatch):
    """S0, from the first block to the last."""
    caplog.set_level("INFO", "paceline")
    names = taken_for_granted()
    worker_of_a_server = json.dumps(local_cluster(1, num_ps=1)[0])
    found = {}
    for block in blocks("S0"):
        if block.name == "S0_09":
            monkeypatch.setenv("TF_CONFIG", worker_of_a_server)
        found[block.name] = run_or_be_refused(block, names)
        monkeypatch.delenv("TF_CONFIG", raising=False)
        if block.name == "S0_14":  # squared error, less by 0.96² a step, averaged over ten
            share = np.mean(0.96 ** (2 * np.arange(10)))
            names["model"].set_weights([[[1 - math.sqrt(1.4145 / share)]], [0.0]])
        if block.name == "S0_18":
            weight = weight_for(lambda z: math.log1p(math.exp(-z)), 0.7598197)
            names["model"].set_weights([[[weight]], [0.0]])
    for name in ("S0_11", "S0_12", "S0_21", "S0_22"):
        require_printed(found[name], Block(name).printed)
    for name in ("S0_15", "S0_16"):
        require_printed(found[name], Block(name).printed, atol=1e-4)
    assert json.loads(names["os"].environ.get("TF_CONFIG", "{}")) == {}
    lines, metrics = re.fullmatch(r"(.*)({.*})\s*", Block("S0_24").printed, re.DOTALL).groups()
    require_metrics(ast.literal_eval(found["S0_24"]), ast.literal_eval(metrics))
    lines = lines.replace("INFO:tensorflow:", "")
    require_printed(logged_as(lines, caplog), lines)


def require_metrics(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-7)


def logged_as(lines, caplog):
    """The lines of our log that begin as these do."""
    said = [record.getMessage() for record in caplog.records]
    beginnings = [re.split(r"= |: ", line)[0] for line in lines.splitlines()]
    return "\n".join(next(m for m in said if m.startswith(b)) for b in beginnings)


def test_g06_g07_g08_g09_g10_every_block_of_the_page_of_strategy_runs_and_prints():
    """S1: in order, signatures compared with ours."""
    names = taken_for_granted()
    for block in blocks("S1"):
        if block.is_signature:
            require_signature(block.text)
            continue
        if block.name == "S1_18":
            names["per_replica_result"] = taken_for_granted()["per_replica_result"]
        found = run_or_be_refused(block, names)
        if block.name in ("S1_18", "S1_19"):  # the page says in words what comes of it
            expected = eval(block.printed)
            assert ast.literal_eval(re.sub(r"array\(|\)", "", found)) == expected
        elif block.printed and block.name not in CANNOT_RUN:
            require_printed(found, block.printed)


def require_signature(text):
    """Ours takes the same arguments in the same order, with the same defaults."""
    name, _, arguments = text.partition("(")
    wanted = ast.parse(f"def f({arguments.strip()}: pass").body[0].args
    name = name.rpartition(".")[2]
    method = getattr(tf.distribute.Strategy, "__init__" if name == "Strategy" else name)
    found = list(inspect.signature(method).parameters.values())[1:]
    assert [p.name for p in found] == [a.arg for a in wanted.args]
    defaults = [ast.literal_eval(d) for d in wanted.defaults]
    if defaults:
        assert [p.default for p in found[-len(defaults) :]] == defaults


def test_mb_25_every_block_of_the_tutorial_of_several_workers_runs_as_two_tasks(tmp_path):
    """S2, at once in two processes."""
    processes = [
        subprocess.Popen(
            [sys.executable, FOLDER / "task.py", str(tmp_path / "multiworker")],
            env=os.environ | {"TF_CONFIG": json.dumps(config), "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for config in local_cluster(2)
    ]
    try:
        outputs = [process.communicate(timeout=110)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    for output in outputs:
        assert "ended at step 12" in output


def test_mb_24_every_block_of_the_page_of_several_workers_runs():
    """S3; its second block compiles with nothing, and then fits (MB-06)."""
    names = taken_for_granted()
    for block in blocks("S3"):
        if block.name == "S3_03":
            names["iterator"] = iter(names["dist_dataset"])
        run_or_be_refused(block, names)
    assert int(names["optimizer"].iterations) == 3


def test_mb_24_every_block_of_the_first_readme_runs():
    """S4; its model_fn calls what is defined nowhere, and its input_fn, too."""
    names = taken_for_granted()
    for block in blocks("S4"):
        run_or_be_refused(block, names)
    source = Block("S4_01").text.replace("loss_fn()", "loss")
    exec(source + Block("S4_02").text.replace("dataset_ops.", "tf.data."), names)
    Block("S4_03").run(names)
    trained = names["classifier"]
    assert trained.get_variable_value("global_step") == 100
    weights = [trained.get_variable_value(f"dense/{name}") for name in ("kernel", "bias")]
    np.testing.assert_allclose(sum(w.item() for w in weights), 1, rtol=1e-6)


def test_mb_24_the_count_is_the_one_that_the_guide_tells():
    everything = [block for page in PAGES for block in blocks(page)]
    text = f"{len(everything) - len(CANNOT_RUN)} of {len(everything)}"
    print(f"blocks of the sources that run: {text}")
    assert text in GUIDE.read_text("utf-8")
    assert {block.name for block in everything} >= CANNOT_RUN.keys()
