"""One task of a job of processes that makes one run of a scenario; see `test_processes.py`."""

import sys
from pathlib import Path

from execution import PARTITIONERS, config_of, model_fn, params_of, train
from scenarios import Run, Scenario, Topology  # noqa: F401 (what the argument consists of)

import paceline as pl


def main(text: str, index: int, model_dir: Path) -> None:
    scenario = eval(text)
    run = scenario.runs[index]
    if run.topology.kind == "servers":
        partitioner = PARTITIONERS[run.topology.partitioner]
        strategy = pl.ParameterServerStrategy(variable_partitioner=partitioner, max_staleness=0)
    else:
        strategy = pl.MultiWorkerMirroredStrategy()
    if strategy.extended.server is not None:
        estimator = pl.Estimator(model_fn, model_dir, config_of(run, train_distribute=strategy))
        no_data = pl.TrainSpec(lambda: None), pl.EvalSpec(lambda: None)
        pl.train_and_evaluate(estimator, *no_data)
        return

    def here(topology, work, model_dir):
        found = work(strategy, strategy.extended.job.trainer_index)
        strategy.extended.job.share_result("")
        return [found]

    train(scenario, index, model_dir, None, params_of(scenario), here)


main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
