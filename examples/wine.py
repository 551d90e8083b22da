"""Premade models tell wines apart by what a chemist measures, each in one line.

    python examples/wine.py
    python examples/wine.py --replicas 2

Three cultivars, 178 wines, 13 measurements each (scikit-learn's `load_wine`). A linear model, one
of buckets and their crosses, a network, and both together, beside scikit-learn's own logistic
regression.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import paceline as pl
from paceline import feature_column as fc

BATCH = 32
CULTIVARS = ["Barolo", "Grignolino", "Barbera"]


def models(model_dir: str, x: np.ndarray, config: pl.RunConfig) -> Iterator[pl.Estimator]:
    """Classifiers of the same features: "measured", and of these "colour" and "alcohol"."""
    low, high = x.mean(axis=0) - x.std(axis=0), x.mean(axis=0) + x.std(axis=0)
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    measured = fc.numeric_column(
        "measured", x.shape[1], normalizer_fn=lambda values: (values - mean) / deviation
    )
    alcohol = fc.bucketized_column(fc.numeric_column("alcohol"), np.linspace(low[0], high[0], 4))
    colour = fc.bucketized_column(fc.numeric_column("colour"), np.linspace(low[9], high[9], 4))
    wide = [alcohol, colour, fc.crossed_column([alcohol, colour], 100)]
    told = {"n_classes": 3, "label_vocabulary": CULTIVARS, "config": config}
    yield pl.estimator.LinearClassifier([measured], f"{model_dir}/linear", **told)
    yield pl.estimator.LinearClassifier(wide, f"{model_dir}/wide", **told)
    yield pl.estimator.DNNClassifier([16, 8], [measured], f"{model_dir}/deep", **told)
    yield pl.estimator.DNNLinearCombinedClassifier(
        f"{model_dir}/both",
        linear_feature_columns=wide,
        dnn_feature_columns=[measured],
        dnn_optimizer=pl.nn.optimizers.Adagrad(0.05),
        dnn_hidden_units=[16, 8],
        **told,
    )


def features(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"measured": x, "alcohol": x[:, 0], "colour": x[:, 9]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=1, help="on so many CPU replicas")
    num_replicas = parser.parse_args().replicas

    x, y = load_wine(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x.astype(np.float32), y, stratify=y, random_state=0)
    cultivars, cultivars_test = (np.array(CULTIVARS)[labels] for labels in (y, y_test))

    def train_fn() -> pl.Dataset:
        wines = pl.Dataset.from_tensor_slices((features(x), cultivars))
        return wines.shuffle(len(x), seed=0).repeat(60).batch(BATCH // num_replicas)

    def test_fn() -> pl.Dataset:
        return pl.Dataset.from_tensor_slices((features(x_test), cultivars_test)).batch(BATCH)

    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    config = pl.RunConfig(train_distribute=strategy, tf_random_seed=0)
    for estimator in models(tempfile.mkdtemp(), x, config):
        found = estimator.train(train_fn).evaluate(test_fn)
        name = f"{type(estimator).__name__} ({estimator.model_dir.rsplit('/', 1)[1]})"
        print(f"{name:36} test accuracy {found['accuracy']:.3f}, loss {found['loss']:.3f}")
        wine = next(estimator.predict(test_fn))
        print(f"{'':36} the first wine is a {wine['classes'].item()}, by {wine['probabilities']}")
    theirs = LogisticRegression(max_iter=5000).fit(x / x.std(axis=0), y)
    accuracy = theirs.score(x_test / x.std(axis=0), y_test)
    print(f"{'scikit-learn LogisticRegression':36} test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
