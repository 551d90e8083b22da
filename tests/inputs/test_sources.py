"""Where elements come from, and what becomes of Python values."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paceline.inputs import Dataset, TensorSpec, nest

Example = namedtuple("Example", ["image", "label"])


def test_in_20_from_tensors_is_one_element() -> None:
    (element,) = Dataset.from_tensors(([1.0], [1.0]))
    assert [(leaf.dtype, leaf.shape) for leaf in element] == [(np.float32, (1,))] * 2


def test_in_20_the_guide_s_dataset() -> None:
    dataset = Dataset.from_tensors(([1.0], [1.0])).repeat(100).batch(10)
    batches = list(dataset)
    assert len(batches) == 10
    assert all(leaf.shape == (10, 1) for batch in batches for leaf in batch)
    assert all((leaf == 1).all() for batch in batches for leaf in batch)


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (1.5, "float32", ()),
        (3, "int64", ()),
        (True, "bool", ()),
        ([1, 2.5], "float32", (2,)),
        ([[1, 2], [3, 4]], "int64", (2, 2)),
        ([(1.0, 2.0)], "float32", (1, 2)),
        ([], "float32", (0,)),
        (np.float64(1), "float64", ()),
        ([np.float64(1)], "float64", (1,)),
        (np.zeros(2), "float64", (2,)),
        (np.zeros(2, np.int8), "int8", (2,)),
    ],
)
def test_python_floats_become_float32_and_arrays_keep_their_dtype(
    value: Any, dtype: str, shape: tuple[int, ...]
) -> None:
    (element,) = Dataset.from_tensors(value)
    assert (str(element.dtype), element.shape) == (dtype, shape)


def test_in_20_from_tensor_slices_gives_rows_in_the_same_structure(images: np.ndarray) -> None:
    dataset = Dataset.from_tensor_slices(Example({"pixels": images, "none": None}, list(range(10))))
    last = list(dataset)[9]
    assert isinstance(last, Example)
    assert np.array_equal(last.image["pixels"], images[9])
    assert (last.image["none"], int(last.label)) == (None, 9)
    (batch,) = dataset.batch(10)
    assert np.array_equal(batch.image["pixels"], images)
    assert batch.label.tolist() == list(range(10))


def test_from_tensor_slices_does_not_copy(images: np.ndarray) -> None:
    assert np.shares_memory(next(iter(Dataset.from_tensor_slices(images))), images)


def test_from_tensor_slices_reads_a_memory_map(tmp_path: Any, images: np.ndarray) -> None:
    np.save(tmp_path / "images.npy", images)
    dataset = Dataset.from_tensor_slices(np.load(tmp_path / "images.npy", mmap_mode="r"))
    assert np.array_equal(next(iter(dataset.skip(2).batch(3))), images[2:5])


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            ({"image": np.zeros(3)}, np.zeros(4)),
            r"tensors\[0\]\['image'\] has 3 examples but tensors\[1\] has 4\. Give all arrays",
        ),
        (5.0, r"tensors has no leading dimension"),
        ((np.zeros(3), 1), r"tensors\[1\] has no leading dimension"),
        ((), "at least one array, got an empty structure"),
        ([[1, 2], [3]], r"The value \(list\) cannot become an array"),
        ({"a": [[1, 2], [3]]}, r"The component \['a'\] \(list\) cannot become an array"),
        ((np.ma.array([1, 2], mask=[0, 1]),), r"component \[0\] is an array with masked values"),
    ],
)
def test_arrays_that_cannot_be_sliced_are_named(tensors: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset.from_tensor_slices(tensors)


def test_a_leaf_that_is_no_array_is_named() -> None:
    with pytest.raises(TypeError, match=r"The component \[1\]\['x'\] \(object\) is not made of"):
        Dataset.from_tensors((1, {"x": object()}))


class Column:
    """A column as pandas has it: values that are Python's objects, with a dtype of its own."""

    dtype = "a dtype that NumPy does not know"

    def __init__(self, *values: Any) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._values, object)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (("male", "female"), "<U6"),
        ((b"a", b"bc"), "S2"),
        ((1, 2), np.int64),
        ((np.int32(1), 2), np.int64),
        ((1, 2.5, np.nan), np.float64),
        ((True, False), bool),
    ],
)
def test_a_column_of_python_objects_gets_the_dtype_of_its_values(
    values: tuple[Any, ...], dtype: Any
) -> None:
    dataset = Dataset.from_tensor_slices({"c": Column(*values)})
    assert dataset.element_spec == {"c": TensorSpec((), dtype)}
    np.testing.assert_array_equal([element["c"] for element in dataset], values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("a", float("nan")), "it holds 'a' at position 0, nan at position 1"),
        ((None, "a"), "it holds None at position 0, 'a' at position 1"),
        (("a", 1), "it holds 'a' at position 0, 1 at position 1"),
        ((True, 2), "it holds True at position 0, 2 at position 1"),
        ((2**80, 1), f"it holds {2**80} at position 0"),
        ((), "it holds nothing"),
    ],
)
def test_a_column_of_mixed_values_is_refused_with_the_first_of_each_type(
    values: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(TypeError, match=rf"component \['c'\] \(Column\) is not .*: {message}"):
        Dataset.from_tensor_slices({"c": Column(*values)})


def test_texts_of_a_column_that_end_with_a_nul_are_refused() -> None:
    with pytest.raises(ValueError, match="ends with a NUL"):
        Dataset.from_tensor_slices(Column("a", "b\0"))


@pytest.mark.parametrize("args", [(5,), (2, 9), (2, 9, 3), (9, 2, -3), (0,), (3, 1)])
def test_in_20_range_is_python_s_range(args: tuple[int, ...]) -> None:
    dataset = Dataset.range(*args)
    assert [int(e) for e in dataset] == list(range(*args))
    assert all(e.dtype == np.int64 for e in dataset)
    batches = [b.tolist() for b in dataset.batch(100)]
    assert batches == ([list(range(*args))] if range(*args) else [])


def test_a_huge_range_takes_no_memory() -> None:
    assert [int(e) for e in Dataset.range(10**12).skip(10**11).take(2)] == [10**11, 10**11 + 1]


@pytest.mark.parametrize(
    "source", [lambda: (i for i in range(3)), range(3), [0, 1, 2], lambda: [0, 1, 2]]
)
def test_from_generator_takes_a_function_or_an_iterable(source: Any) -> None:
    dataset = Dataset.from_generator(source)
    assert [int(e) for e in dataset] == [int(e) for e in dataset] == [0, 1, 2]


def test_from_generator_gives_nested_structures() -> None:
    dataset = Dataset.from_generator(lambda: (({"x": [float(i)]}, i) for i in range(4))).batch(2)
    assert [nest.map_structure(lambda leaf: leaf.tolist(), e) for e in dataset] == [
        ({"x": [[0.0], [1.0]]}, [0, 1]),
        ({"x": [[2.0], [3.0]]}, [2, 3]),
    ]


def test_an_iterator_is_refused_since_one_pass_would_use_it_up() -> None:
    with pytest.raises(ValueError, match=r"got an iterator \(generator\) that one pass would use"):
        Dataset.from_generator(i for i in range(3))


def test_something_that_cannot_be_iterated_is_refused() -> None:
    with pytest.raises(TypeError, match="an iterable or a function that returns one, got int"):
        Dataset.from_generator(3)


def test_a_function_that_returns_a_used_iterator_is_found_out() -> None:
    numbers = iter(range(3))
    dataset = Dataset.from_generator(lambda: numbers)
    list(dataset)
    with pytest.raises(ValueError, match="returned the same iterator twice"):
        list(dataset)


def test_an_error_in_a_generator_tells_the_element() -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise KeyError("label")

    with pytest.raises(KeyError, match="label") as caught:
        list(Dataset.from_generator(broken))
    assert caught.value.__notes__ == [
        "While reading element 1 of the dataset's source.",
        "While making element 1 of from_generator().",
    ]


def test_a_map_function_that_raises_stopiteration_does_not_end_the_data() -> None:
    with pytest.raises(RuntimeError, match="map_func raised StopIteration"):
        list(Dataset.range(3).map(lambda _: next(iter(()))))


def test_a_signature_gives_dtypes_and_a_spec_without_reading() -> None:
    signature = ({"x": TensorSpec((None,), np.float32)}, TensorSpec((), np.int32))
    num_calls = 0

    def items(count: int) -> Iterator[Any]:
        nonlocal num_calls
        num_calls += 1
        yield from (({"x": [1, 2]}, i) for i in range(count))

    dataset = Dataset.from_generator(items, output_signature=signature, args=(3,))
    assert dataset.batch(2).element_spec[1] == TensorSpec((None,), np.dtype(np.int32))
    assert num_calls == 0
    features, label = list(dataset)[2]
    assert (features["x"].dtype, label.dtype, int(label)) == (np.float32, np.int32, 2)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (([1.0], 2), r"component \[0\] of shape \(1,\) and dtype float64, but .* says \(2,\)"),
        (([1.0, 2.0], 2.5), r"component \[1\] of shape \(\) and dtype float64, but"),
        ({"x": 1}, "The structures differ at the top: the first has a tuple of 2"),
    ],
)
def test_an_item_that_differs_from_its_signature_is_named(item: Any, message: str) -> None:
    signature = (TensorSpec((2,), np.float32), TensorSpec((), np.int64))
    with pytest.raises(ValueError, match=message) as caught:
        list(Dataset.from_generator([([1.0, 2.0], 1), item], signature))
    assert caught.value.__notes__ == [
        "At element 1 of the transformation's input.",
        "While making element 1 of from_generator().",
    ]


def test_a_signature_is_made_of_specs() -> None:
    with pytest.raises(TypeError, match=r"output_signature\[0\] must be a TensorSpec"):
        Dataset.from_generator([(1, 2)], output_signature=(np.float32, TensorSpec((), np.int64)))


ITEM = ({"x": [0.1, 0.2]}, "a")


@pytest.mark.parametrize(
    ("arguments", "keywords", "shape"),
    [
        ((({"x": np.float64}, np.str_),), {}, None),
        ((({"x": "float64"}, str), ({"x": [None]}, [])), {}, (None,)),
        ((({"x": np.float64}, np.str_), ({"x": (2,)}, ())), {}, (2,)),
        ((({"x": np.float64}, np.str_), (None, [])), {}, None),
        ((({"x": TensorSpec((2,), np.float64)}, TensorSpec((), np.str_)),), {}, (2,)),
        (
            (),
            {"output_shapes": ({"x": [2]}, []), "output_types": ({"x": np.float64}, np.str_)},
            (2,),
        ),
    ],
)
def test_from_generator_takes_types_and_shapes_as_tensorflow_s(
    arguments: tuple[Any, ...], keywords: dict[str, Any], shape: Any
) -> None:
    dataset = Dataset.from_generator([ITEM], *arguments, **keywords)
    assert dataset.element_spec[0] == {"x": TensorSpec(shape, np.float64)}
    ((features, label),) = dataset
    assert (features["x"].tolist(), label) == ([0.1, 0.2], "a")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"output_shapes": [2]}, "output_shapes needs output_types"),
        (
            {"output_types": np.int64, "output_signature": TensorSpec((), np.int64)},
            "output_signature says types and shapes already",
        ),
        (
            {"output_types": (np.int64, np.int64), "output_shapes": ([],)},
            "output_shapes must have the structure of output_types",
        ),
        (
            {"output_types": (np.int64, {"x": np.int64}), "output_shapes": ([], [2])},
            r"output_shapes\[1\] must have the structure",
        ),
    ],
)
def test_types_and_shapes_that_do_not_belong_together_are_refused(
    keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset.from_generator([1], **keywords)


@pytest.mark.parametrize(
    "value", [b"ab\0", "ab\0", np.bytes_(b"ab\0"), np.str_("ab\0"), [b"ab", b"a\0"], [["a\0"]]]
)
def test_bytes_that_end_with_a_nul_are_refused_and_not_cut(value: Any) -> None:
    for dataset in (
        Dataset.from_generator(lambda: iter([{"x": value}])),
        Dataset.range(1).map(lambda _: {"x": value}),
        Dataset.from_source([{"x": value}]),
    ):
        with pytest.raises(
            ValueError, match=r"component \['x'\] ends with a NUL, .*np\.frombuffer"
        ):
            list(dataset)
    as_numbers = np.frombuffer(b"ab\0", np.uint8)
    (kept,) = Dataset.from_generator(lambda: iter([as_numbers])).batch(1)
    assert kept.tobytes() == b"ab\0"
    (inside,) = Dataset.from_generator(lambda: iter([b"a\0b"])).batch(1)
    assert bytes(inside[0]) == b"a\0b"
