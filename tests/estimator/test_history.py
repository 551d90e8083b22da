"""What the history of a run holds of the Estimator that trained it."""

import paceline as pl
from paceline.observe import Run


def test_the_history_holds_the_params_of_the_model(linear_model_fn, input_fn, tmp_path):
    def model_fn(features, labels, mode, params):
        return linear_model_fn(features, labels, mode)

    params = {"rate": 0.1, "layers": [4, 4], "function": linear_model_fn, "long": "x" * 300}
    pl.Estimator(model_fn, tmp_path, params=params).train(input_fn, steps=1)
    [begin] = Run.read(str(tmp_path)).beginnings
    noted = begin["params"]
    assert (noted["rate"], noted["layers"]) == (0.1, [4, 4])
    assert noted["function"].startswith("<function linear_model_fn")
    assert " at 0x" not in noted["function"]
    assert len(noted["long"]) == 201
