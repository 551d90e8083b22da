"""K-means: points are grouped round centers, which move to the means of their points."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ...autodiff import Array, lift
from ...nn.arguments import check_choice, count
from ...nn.metrics import Sum, to_host
from ...nn.optimizers import TrainOp
from ...strategies import (
    COUNTER,
    ReplicaContext,
    Variable,
    get_or_create_global_step,
    get_variable,
)
from ...training import ModeKeys, SessionRunContext, SessionRunHook, SessionRunValues
from ..estimator import Estimator
from ..export import DEFAULT_SERVING_SIGNATURE_DEF_KEY, PredictOutput
from ..feature_column import DenseColumn, DenseFeatures
from ..run_config import RunConfig
from ..specs import EstimatorSpec
from .together import replica_of_all

InitialClusters = str | np.ndarray | Sequence[Any] | Callable[[np.ndarray, int], Any]
"""A method, the centers themselves, or a function of points and a number that gives them."""


class KMeansClustering(Estimator):
    """Groups points round centers, with batches of any size on any number of replicas and workers.

    Points are features: an array (batch, dimension), or a dict whose arrays are put side by side in
    the order of their names. Labels are left alone. The centers are chosen among the points of the
    first global batches. In each step the replicas add up the points that are nearest to each
    center, so that N workers move the centers as one would with all their points. Where parameter
    servers keep the centers there must be one worker.

    Each call of `model_fn` gives the mean distance to the nearest center as its loss; evaluation
    gives "score", the sum over all points, and predictions are "cluster_index" and "all_distances".

    Args:
        num_clusters: How many centers, k.
        model_dir, config: See `Estimator`.
        initial_clusters: "random": k points of the first batch (if it has as few, of those that
            follow); "kmeans_plus_plus": points that lie far from those chosen before, by Arthur and
            Vassilvitskii (2007); an array (k, dimension); or a function of the first global batch
            and k that gives one.
        distance_metric: "squared_euclidean", or "cosine": 1 less the cosine of the angle.
        seed: Of the choice; by default that of `config`.
        use_mini_batch: Whether a center is the mean of all points that ever were nearest to it, or
            of those of the last global batch: with all data in each of them that is Lloyd's method.
        mini_batch_steps_per_iteration: For how many steps points are told the same centers.
        kmeans_plus_plus_num_retries: How many candidates are drawn for a center besides one.
        relative_tolerance: Training ends where the loss changes by a smaller part; this is meant
            for full batches.
        feature_columns: Dense columns that make points of a dict of features.

    Raises:
        ValueError: A number or a name that is not allowed.
    """

    SQUARED_EUCLIDEAN_DISTANCE: ClassVar = "squared_euclidean"
    COSINE_DISTANCE: ClassVar = "cosine"
    RANDOM_INIT: ClassVar = "random"
    KMEANS_PLUS_PLUS_INIT: ClassVar = "kmeans_plus_plus"
    SCORE: ClassVar = "score"
    CLUSTER_INDEX: ClassVar = "cluster_index"
    ALL_DISTANCES: ClassVar = "all_distances"
    CLUSTER_CENTERS_VAR_NAME: ClassVar = "clusters"

    def __init__(
        self,
        num_clusters: int,
        model_dir: str | os.PathLike[str] | None = None,
        initial_clusters: InitialClusters = RANDOM_INIT,
        distance_metric: str = SQUARED_EUCLIDEAN_DISTANCE,
        seed: int | None = None,
        use_mini_batch: bool = True,
        mini_batch_steps_per_iteration: int = 1,
        kmeans_plus_plus_num_retries: int = 2,
        relative_tolerance: float | None = None,
        config: RunConfig | None = None,
        feature_columns: Sequence[DenseColumn] | None = None,
    ) -> None:
        if isinstance(initial_clusters, str):
            known = (self.RANDOM_INIT, self.KMEANS_PLUS_PLUS_INIT)
            check_choice("initial_clusters", initial_clusters, known)
        metrics = (self.SQUARED_EUCLIDEAN_DISTANCE, self.COSINE_DISTANCE)
        check_choice("distance_metric", distance_metric, metrics)
        if relative_tolerance is not None and not relative_tolerance >= 0:
            raise ValueError(f"relative_tolerance must be ≥ 0, it is {relative_tolerance}")
        if not kmeans_plus_plus_num_retries >= 0:
            raise ValueError(
                f"kmeans_plus_plus_num_retries must be ≥ 0, it is {kmeans_plus_plus_num_retries}"
            )
        k = count("num_clusters", num_clusters)
        steps = count("mini_batch_steps_per_iteration", mini_batch_steps_per_iteration)
        if seed is None and config is not None:
            seed = config.tf_random_seed
        choice = _Choice(initial_clusters, k, kmeans_plus_plus_num_retries, seed)
        is_cosine = distance_metric == self.COSINE_DISTANCE
        stop = [] if relative_tolerance is None else [_StopWhenSteady(relative_tolerance)]

        def model_fn(features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
            points = _points(features, feature_columns, is_cosine)
            centers = _Centers(points, choice, is_cosine, steps)
            if mode is not ModeKeys.TRAIN:
                return _measured(mode, centers.distances(points))
            replica = replica_of_all("KMeansClustering")
            centers.choose(points, replica)
            loss = centers.move(points, replica, use_mini_batch)
            counted = TrainOp([], [get_or_create_global_step()])
            return EstimatorSpec(mode, loss=loss, train_op=counted, training_hooks=stop)

        super().__init__(model_fn, model_dir, config)

    def cluster_centers(self) -> np.ndarray:
        """The centers (num_clusters, dimension), of the newest checkpoint."""
        return self.get_variable_value(self.CLUSTER_CENTERS_VAR_NAME)

    def predict_cluster_index(self, input_fn: Callable[..., Any]) -> Iterator[Any]:
        """The number of the nearest center of each point."""
        for found in self.predict(input_fn, [self.CLUSTER_INDEX]):
            yield found[self.CLUSTER_INDEX]

    def transform(self, input_fn: Callable[..., Any]) -> Iterator[np.ndarray]:
        """The distances of each point to all centers, (num_clusters,); squared if euclidean."""
        for found in self.predict(input_fn, [self.ALL_DISTANCES]):
            yield found[self.ALL_DISTANCES]

    def score(self, input_fn: Callable[..., Any]) -> float:
        """The sum over all points of the distance to the nearest center; squared if euclidean.

        (In scikit-learn its negative is the score.)
        """
        found: float = self.evaluate(input_fn)[self.SCORE]
        return found


def _measured(mode: ModeKeys, distances: Array) -> EstimatorSpec:
    """What is said of points by their distances to all centers, (batch, k)."""
    index = KMeansClustering.CLUSTER_INDEX
    found = {KMeansClustering.ALL_DISTANCES: distances, index: distances.argmin(axis=1)}
    if mode is ModeKeys.PREDICT:
        exported = {name: PredictOutput(value) for name, value in found.items()}
        exported[DEFAULT_SERVING_SIGNATURE_DEF_KEY] = exported[index]
        return EstimatorSpec(mode, predictions=found, export_outputs=exported)
    nearest = distances.min(axis=1)
    score = Sum(KMeansClustering.SCORE)
    score.update_state(nearest)
    metrics = {KMeansClustering.SCORE: score}
    return EstimatorSpec(mode, predictions=found, loss=nearest.mean(), eval_metric_ops=metrics)


class _Centers:
    """The centers of a model, which all replicas of all workers have alike.

    Args:
        points: Of a batch, (batch, dimension): what the centers are made for.
        choice: How they are chosen.
        is_cosine: Whether angles are measured, and not distances.
        steps_per_iteration: For how many steps points are told the same centers.
    """

    def __init__(
        self, points: Array, choice: _Choice, is_cosine: bool, steps_per_iteration: int
    ) -> None:
        k, shape = choice.num_clusters, (choice.num_clusters, points.shape[1])
        given = choice.given(shape)
        first = 0.0 if given is None else given
        self.values = get_variable("clusters", shape, points.dtype, first, **COUNTER)
        self._ahead = self.values
        if steps_per_iteration > 1:  # those that move meanwhile
            self._ahead = get_variable("clusters/ahead", shape, points.dtype, first, **COUNTER)
        self._num_points = get_variable("clusters/num_points", (k,), np.float64, 0.0, **COUNTER)
        self._num_chosen = get_variable(
            "clusters/num_chosen", (), np.int64, 0 if given is None else k, **COUNTER
        )
        self._choice, self._is_cosine, self._steps = choice, is_cosine, steps_per_iteration

    def choose(self, points: Array, replica: ReplicaContext) -> None:
        """Choose centers that are missing among the points of all replicas."""
        chosen = int(self._num_chosen)
        if chosen == self._choice.num_clusters:
            return
        everyone = to_host(replica.all_gather(points, axis=0))
        centers = self.values.numpy().copy()
        more = self._choice.more(everyone, centers[:chosen])
        centers[chosen : chosen + len(more)] = more
        self.values.assign(centers)
        if self._ahead is not self.values:
            self._ahead.assign(centers)
        self._num_chosen.assign(chosen + len(more))

    def distances(self, points: Array) -> Array:
        """(batch, k) of each point to each center, float64; without end to one not chosen yet."""
        distances = _distances(points.astype(np.float64), _array(self.values), self._is_cosine)
        distances[:, int(self._num_chosen) :] = np.inf
        return distances

    def move(self, points: Array, replica: ReplicaContext, keeps_all: bool) -> float:
        """Move the centers to the points of all replicas; the mean distance of the points here.

        Args:
            points: Those of this replica.
            replica: The caller.
            keeps_all: Whether earlier points count as well.
        """
        distances = self.distances(points)
        nearest = distances.argmin(axis=1)
        is_nearest = nearest[:, None] == np.arange(distances.shape[1], like=distances)
        of_center = is_nearest.astype(np.float64)
        sums, counts = replica.all_reduce("SUM", (of_center.T @ points, of_center.sum(axis=0)))
        before = _array(self._ahead)
        seen = _array(self._num_points) + counts if keeps_all else counts
        # The mean of all points seen, as the old mean and how far the new points pull it.
        pull = (sums - counts[:, None] * before) / np.maximum(seen, 1)[:, None]
        self._ahead.assign(lift((before + pull).astype(points.dtype)))
        self._num_points.assign(lift(seen))
        step = int(get_or_create_global_step().value_in(replica.local_index))
        if self._steps > 1 and (step + 1) % self._steps == 0:
            self.values.assign(self._ahead.numpy())
        return float(distances.min(axis=1).mean())


class _Choice:
    """How the first centers are chosen.

    Args:
        initial: See `KMeansClustering`.
        num_clusters: How many.
        num_retries: For "kmeans_plus_plus".
        seed: None: another choice each time. The chief's counts.
    """

    def __init__(
        self, initial: InitialClusters, num_clusters: int, num_retries: int, seed: int | None
    ) -> None:
        self.num_clusters = num_clusters
        self._initial, self._num_retries, self._seed = initial, num_retries, seed

    def given(self, shape: tuple[int, int]) -> np.ndarray | None:
        """The centers where they need not be chosen.

        Raises:
            ValueError: They have another shape than the points call for.
        """
        if isinstance(self._initial, str) or callable(self._initial):
            return None
        return _checked(np.asarray(self._initial), shape)

    def more(self, points: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Centers among `points` besides those there are; fewer where there are few points.

        Args:
            points: (batch, dimension) of the global batch.
            centers: (chosen, dimension).
        """
        if callable(self._initial):
            found = np.asarray(self._initial(points, self.num_clusters))
            return _checked(found, (self.num_clusters, points.shape[1]))
        rng = np.random.default_rng(None if self._seed is None else [self._seed, len(centers)])
        missing = min(len(points), self.num_clusters - len(centers))
        if self._initial == KMeansClustering.RANDOM_INIT:
            return np.asarray(points[rng.choice(len(points), missing, replace=False)])
        for _ in range(missing):
            chosen = self._far_from(centers, points, rng)
            centers = np.concatenate([centers, points[None, chosen]])
        return centers[len(centers) - missing :]

    def _far_from(self, centers: np.ndarray, points: np.ndarray, rng: np.random.Generator) -> int:
        """The number of a point, likelier the farther it is from all centers.

        The best of several: the one that leaves the smallest sum of distances.
        """
        if not len(centers):
            return int(rng.integers(len(points)))
        to_center = _distances(points, centers, False).min(axis=1)
        total = to_center.sum()
        share = to_center / total if total > 0 else None
        candidates = rng.choice(len(points), 1 + self._num_retries, p=share)
        left = np.minimum(_distances(points, points[candidates], False), to_center[:, None])
        return int(candidates[left.sum(axis=0).argmin()])


class _StopWhenSteady(SessionRunHook):
    """Ends a run when the loss changes by less than a part of it; all workers see the same loss."""

    def __init__(self, relative_tolerance: float) -> None:
        self._tolerance = relative_tolerance
        self._before: float | None = None

    def begin(self) -> None:
        self._before = None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        loss, before = run_context.session.loss, self._before
        self._before = loss
        if loss is None or before is None:
            return
        if abs(before - loss) < self._tolerance * abs(before):
            run_context.request_stop()


def _points(features: Any, columns: Sequence[DenseColumn] | None, is_cosine: bool) -> Array:
    """(batch, dimension) the points of a batch, in their own float type or float32.

    Raises:
        ValueError: They are no numbers.
    """
    if columns is not None:
        points = DenseFeatures(columns, name="input_layer")(features).data
    else:
        named = sorted(features.items()) if isinstance(features, Mapping) else [("x", features)]
        parts = [(name, lift(leaf).data) for name, leaf in named]
        for name, part in parts:
            if part.dtype.kind not in "fiub" or part.ndim == 0:
                raise ValueError(
                    f"points must be numbers (batch, dimension), feature {name!r} holds "
                    f"{part.dtype} of shape {part.shape}; choose some by feature_columns"
                )
        points = np.concatenate([part.reshape(len(part), -1) for _, part in parts], axis=1)
    points = points if points.dtype.kind == "f" else points.astype(np.float32)
    return _directions(points) if is_cosine else points


def _directions(points: Array) -> Array:
    """Points at length 1; those in the origin stay there."""
    norms = np.sqrt(np.square(points).sum(axis=1, keepdims=True))
    return points / np.where(norms > 0, norms, 1)


def _distances(points: Array, centers: Array, is_cosine: bool) -> Array:
    """(batch, k) of points (directions, for angles) and centers, in float64."""
    if is_cosine:
        return 1 - points @ _directions(centers).T
    squares = np.square(points).sum(axis=1)[:, None] + np.square(centers).sum(axis=1)
    return np.maximum(squares - 2 * points @ centers.T, 0)  # rounding leaves less than nothing


def _array(variable: Variable) -> Array:
    return lift(variable).data.astype(np.float64)


def _checked(centers: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    if centers.shape != shape or centers.dtype.kind not in "fiu":
        raise ValueError(
            f"initial_clusters must be numbers of shape {shape}, (num_clusters, dimension); they "
            f"are {centers.dtype} of shape {centers.shape}"
        )
    return centers
