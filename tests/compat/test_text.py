"""Functions of text and byte strings take arrays of any shape, or refuse them."""

import numpy as np
import pytest

import paceline.compat.tf as tf
from paceline.inputs import encode_example


def tolist(values):
    return [np.asarray(value).tolist() for value in values]


DEFAULTS = [[0], [""], [1.5]]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ("25,a,2.5", [25, "a", 2.5]),
        (b"25,a,", [25, "a", 1.5]),
        (np.frombuffer(b"25,a,", np.uint8), [25, "a", 1.5]),
        (["25,a,2.5"], [[25], ["a"], [2.5]]),
        (np.array([b"25,a,2.5", b",long,"]), [[25, 0], ["a", "long"], [2.5, 1.5]]),
        ([["1,a,1"], ["2,b,2"]], [[[1], [2]], [["a"], ["b"]], [[1.0], [2.0]]]),
        (tf.expand_dims('25,"a,b",', -1), [[25], ["a,b"], [1.5]]),
        (['1,"a,1', '2,"b,2'], None),
        (np.zeros(0, str), [[], [], []]),
    ],
)
def test_columns_have_the_shape_of_the_lines(records, expected):
    if expected is None:
        with pytest.raises(ValueError, match="the line has 2 fields and there are 3"):
            tf.io.decode_csv(records, DEFAULTS)
    else:
        columns = tf.io.decode_csv(records, DEFAULTS)
        assert tolist(columns) == expected
        assert [np.asarray(c).dtype.kind for c in columns] == ["i", "U", "f"]


def test_batches_of_lines_are_decoded_by_a_dataset():
    lines = tf.data.Dataset.from_tensor_slices(["25,a", "30,b", "35,c"]).batch(2)
    columns = lines.map(lambda line: tuple(tf.io.decode_csv(line, [[0], [""]])))
    assert [tolist(batch) for batch in columns] == [[[25, 30], ["a", "b"]], [[35], ["c"]]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"na_value": "NA"}, [[7, 7, 3]]),
        ({"select_cols": [0], "na_value": "NA"}, [[7, 7, 3]]),
    ],
)
def test_fields_that_say_nothing_have_the_default(options, expected):
    assert tolist(tf.io.decode_csv(["NA", '""', "3"], [[7]], **options)) == expected


def random_number(rng):
    """A decimal of any size and precision."""
    digits, exponent = int(rng.integers(1, 25)), int(rng.integers(-330, 300))
    return f"{rng.normal():.{digits}f}" + (f"e{exponent}" if digits > 9 else "")


def test_numbers_are_rounded_as_python_rounds_them():
    rng = np.random.default_rng(0)
    numbers = [random_number(rng) for _ in range(500)] + ["inf", "-inf", "+1.5", " 2 ", ".5", "1."]
    exact, narrow = tf.io.decode_csv([f"{n},{n[:9]}" for n in numbers], [tf.float64, tf.float32])
    assert exact.numpy().tolist() == [float(number) for number in numbers]
    assert narrow.numpy().tolist() == [float(np.float32(number[:9])) for number in numbers]


@pytest.mark.parametrize("lines", [["1,a", '2,"b,c"', '3,"d""e"'], ["1,a", '2,"open', "3,b"]])
def test_many_lines_have_the_columns_of_each_alone(lines):
    together = tolist(tf.io.decode_csv(lines, [[0], [""]]))
    alone = [tolist(tf.io.decode_csv(line, [[0], [""]])) for line in lines]
    assert together == [list(column) for column in zip(*alone, strict=True)]


@pytest.mark.parametrize(
    ("field", "dtype"),
    [
        ("1_0", "int32"),
        ("1_0", "float32"),
        ("٣", "int32"),
        ("x", "float64"),
        ("99999999999", "int32"),
        ("1.0", "int64"),
    ],
)
def test_what_is_no_number_is_refused_by_its_place(field, dtype):
    with pytest.raises(ValueError, match=f"field 1 of record 2 must be {dtype}, got '{field}'"):
        tf.io.decode_csv(["1,2", "1,3", f"1,{field}"], [[""], tf.as_dtype(dtype)])


@pytest.mark.parametrize("default", ["unknown", [b"unknown"], np.array(["unknown"])])
def test_a_default_of_any_kind_of_text_cuts_no_text_off(default):
    assert tolist(tf.io.decode_csv(["something long,1", ",2"], [default, [0]]))[0] == [
        "something long",
        "unknown",
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: tf.io.decode_csv(["1", '""'], [tf.int32]), "a field without default is empty"),
        (lambda: tf.io.decode_csv("1,2", [[0]], select_cols=[2]), "asks for field 2 of 2"),
        (lambda: tf.io.decode_csv("1,2", [[0]], select_cols=[1, 0]), "in ascending order"),
        (lambda: tf.io.read_file(["a", "b"]), "filename must be one text, got an array"),
        (lambda: tf.io.write_file("a", ["b", "c"]), "contents must be one byte string"),
        (lambda: tf.io.decode_png([b"a", b"b"]), "contents must be one byte string"),
        (lambda: tf.io.decode_png(b"a", dtype=tf.uint16), "dtype must be uint8 or floating"),
        (lambda: tf.io.decode_jpeg(b"a", ratio=2), "ratio must be 1, got 2"),
        (lambda: tf.io.parse_single_example([b"", b""], {}), "serialized must be one byte string"),
        (lambda: tf.io.decode_raw([b"abc", b"a"], tf.uint8), "must have one length"),
        (lambda: tf.io.decode_raw(b"abc", tf.int16), "a multiple of 2"),
        (lambda: tf.strings.split(["a b", "c"]), "input must be one text"),
        (lambda: tf.strings.length("a", unit="WORD"), "unit must be 'BYTE' or 'UTF8_CHAR'"),
        (lambda: tf.strings.substr("abc", 4, 1), "pos must be from -3 to 3 of b'abc', got 4"),
        (lambda: tf.strings.substr("ä", 0, 1), "pass unit='UTF8_CHAR'"),
        (lambda: tf.strings.lower("A", encoding="latin-1"), "encoding must be"),
        (lambda: tf.strings.as_string(1.0, scientific=True, shortest=True), "only one of"),
    ],
)
def test_what_has_no_single_answer_is_refused(call, error):
    with pytest.raises(ValueError, match=error):
        call()


@pytest.mark.parametrize("call", [tf.strings.length, tf.strings.lower, tf.strings.to_number])
def test_numbers_are_no_text(call):
    with pytest.raises(TypeError, match="must be text, got values of int64; convert them"):
        call(np.array([1, 2]))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: tf.strings.length(["ab", "ä"]), [2, 2]),
        (lambda: tf.strings.length(["ab", "ä"], unit="UTF8_CHAR"), [2, 1]),
        (lambda: tf.strings.lower(["AÄ"]), ["aÄ"]),
        (lambda: tf.strings.upper(["aä"], encoding="utf-8"), ["AÄ"]),
        (lambda: tf.strings.substr(["hello", "world"], -3, 2), ["ll", "rl"]),
        (lambda: tf.strings.substr(["hello", "world"], [0, 1], [5, 9]), ["hello", "orld"]),
        (lambda: tf.strings.join([["a", "b"], "c"], "-"), ["a-c", "b-c"]),
        (lambda: tf.strings.strip([[" a "], ["b\n"]]), [["a"], ["b"]]),
        (lambda: tf.strings.regex_replace(["aXb", "XX"], "X", r"<\0>"), ["a<X>b", "<X><X>"]),
        (lambda: tf.strings.regex_full_match(np.zeros(0, str), "a"), []),
        (lambda: tf.strings.to_number(["1", "2.5"]), [1.0, 2.5]),
        (lambda: tf.strings.as_string([1.0, 2.5]), ["1.000000", "2.500000"]),
        (lambda: tf.strings.as_string([3.14159], precision=2), ["3.14"]),
        (lambda: tf.strings.as_string([7, 42], width=4, fill="0"), ["0007", "0042"]),
        (lambda: tf.strings.as_string([True, False]), ["true", "false"]),
        (lambda: tf.io.decode_raw([b"\1\0\2\0", b"\3\0\4\0"], tf.int16), [[1, 2], [3, 4]]),
        (lambda: tf.io.decode_raw([b"abc", b"a"], tf.uint8, fixed_length=2), [[97, 98], [97, 0]]),
    ],
)
def test_texts_are_taken_one_by_one(found, expected):
    assert found().numpy().tolist() == expected


def test_examples_are_parsed_in_a_batch():
    form = {"x": tf.io.FixedLenFeature([2], tf.float32), "n": tf.io.VarLenFeature(tf.int64)}
    records = [encode_example({"x": [1.0, i], "n": [i] * count}) for i, count in ((3, 1), (4, 1))]
    found = tf.io.parse_example(records, form)
    assert (found["x"].tolist(), found["n"].tolist()) == ([[1, 3], [1, 4]], [[3], [4]])
    uneven = [records[0], encode_example({"x": [1.0, 2.0], "n": [1, 2]})]
    with pytest.raises(ValueError, match="feature 'n' must have one shape"):
        tf.io.parse_example(uneven, form)


def test_text_of_an_array_is_not_its_printed_form():
    with pytest.raises(TypeError, match="must be bytes or text, got ndarray"):
        tf.compat.as_text(np.array(["a"]))
