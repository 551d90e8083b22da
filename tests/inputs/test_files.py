"""Datasets of files: what is in them, resuming anywhere, and errors that name file and record."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.inputs import (
    UNKNOWN,
    Dataset,
    TFRecordWriter,
    csv_rows,
    json_lines,
    nest,
    npy_rows,
    npz_rows,
    read_idx,
    text_lines,
    tf_records,
)

Make = Callable[[Path, list[int]], Dataset]


def plain(dataset: Any) -> list[Any]:
    return [nest.map_structure(lambda leaf: leaf.tolist(), element) for element in dataset]


def npy_bytes(array: np.ndarray) -> bytes:
    """The array as a `.npy` file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def text_files(folder: Path, sizes: list[int]) -> Dataset:
    for i, size in enumerate(sizes):
        (folder / f"{i}.txt").write_text("".join(f"{i}-{j}\n" for j in range(size)))
    return text_lines(folder / "*.txt")


def json_files(folder: Path, sizes: list[int]) -> Dataset:
    for i, size in enumerate(sizes):
        lines = [json.dumps({"n": i, "row": [j, j + 0.5]}) for j in range(size)]
        (folder / f"{i}.jsonl").write_text("\n\n".join(lines))
    return json_lines([folder / f"{i}.jsonl" for i in range(len(sizes))])


def csv_files(folder: Path, sizes: list[int]) -> Dataset:
    for i, size in enumerate(sizes):
        rows = "".join(f'{j},"a ""{i}""\nb",{j}.5\r\n' for j in range(size))
        (folder / f"{i}.csv").write_bytes(f"n,text,x\r\n{rows}".encode())
    return csv_rows(folder / "?.csv", label="n")


def tf_record_files(folder: Path, sizes: list[int]) -> Dataset:
    for i, size in enumerate(sizes):
        with TFRecordWriter(folder / f"{i}.tfrecord") as writer:
            for j in range(size):
                writer.write(bytes([i, j, 0]))
    return tf_records(folder / "*.tfrecord")


def packed_files(folder: Path, sizes: list[int]) -> Dataset:
    for i, size in enumerate(sizes):
        with gzip.open(folder / f"{i}.txt.gz", "wt") as file:
            file.writelines(f"{i}-{j}\n" for j in range(size))
    return text_lines(folder / "*.gz")


def npy_files(folder: Path, sizes: list[int]) -> Dataset:
    for i, size in enumerate(sizes):
        np.save(folder / f"{i}.npy", np.arange(size * 2).reshape(size, 2) + 100 * i)
    return npy_rows(folder / "*.npy")


MAKERS = {
    "text": text_files,
    "json": json_files,
    "csv": csv_files,
    "tfrecord": tf_record_files,
    "packed": packed_files,
    "npy": npy_files,
}
each_format = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@each_format
def test_the_records_of_several_files_come_in_order_and_again(make: Make, tmp_path: Path) -> None:
    dataset = make(tmp_path, [3, 1, 2])
    assert len(list(dataset)) == 6
    assert plain(dataset) == plain(dataset.repeat(2).skip(6))
    assert dataset.cardinality() in (6, UNKNOWN)


@each_format
@pytest.mark.parametrize(
    "chain",
    [lambda d: d, lambda d: d.shuffle(3).repeat(2), lambda d: d.shard(2, 1).prefetch(1)],
    ids=["alone", "shuffled", "sharded"],
)
def test_in_26_files_resume_from_every_record(
    make: Make,
    chain: Callable[[Dataset], Dataset],
    tmp_path: Path,
    assert_resumes_from_every_element: Callable[[Any], None],
) -> None:
    dataset = make(tmp_path, [3, 1, 2])
    assert_resumes_from_every_element(lambda: chain(dataset))


def test_the_values_of_each_format(tmp_path: Path) -> None:
    assert plain(text_files(tmp_path, [2])) == ["0-0", "0-1"]
    assert plain(json_files(tmp_path, [2])) == [
        {"n": 0, "row": [0.0, 0.5]},
        {"n": 0, "row": [1.0, 1.5]},
    ]
    assert plain(csv_files(tmp_path, [2])) == [
        ({"text": 'a "0"\nb', "x": 0.5}, 0),
        ({"text": 'a "0"\nb', "x": 1.5}, 1),
    ]
    assert plain(tf_record_files(tmp_path, [2])) == [[0, 0, 0], [0, 1, 0]]
    assert plain(npy_files(tmp_path, [1, 2])) == [[0, 1], [100, 101], [102, 103]]


@each_format
def test_a_missing_file_is_named(make: Make, tmp_path: Path) -> None:
    reader = {"npy_files": npy_rows, "csv_files": csv_rows}.get(make.__name__, text_lines)
    with pytest.raises(FileNotFoundError, match=r"No file matches '.*nothing\*'"):
        reader(tmp_path / "nothing*")
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*nothing'"):
        reader([tmp_path / "nothing"])


@pytest.mark.parametrize("make", [text_files, json_files, tf_record_files, packed_files])
def test_an_empty_file_is_named_and_can_be_left_out(make: Make, tmp_path: Path) -> None:
    dataset = make(tmp_path, [2, 1, 2])
    (victim,) = tmp_path.glob("1.*")
    victim.write_bytes(b"")
    with pytest.raises(ValueError, match=rf"{victim.name}, record 0: .* is empty \(0 bytes\)"):
        list(dataset)
    assert len(list(dataset.ignore_errors())) == 4


@pytest.mark.parametrize(
    ("damage", "message", "num_left"),
    [
        (lambda b: b[:-1], "record 2: the file is cut off: the record has 3 bytes", 4),
        (lambda b: b[: -3 - 8], "record 2: the file is cut off: 8 bytes follow the last", 4),
        (lambda b: b[:12] + b"?" + b[13:], "record 0: the checksum of the record's 3 bytes", 4),
        (lambda b: b"?" + b[1:], "record 0: the checksum of the record's length does not", 2),
    ],
)
def test_a_damaged_tfrecord_file_is_named(
    damage: Callable[[bytes], bytes], message: str, num_left: int, tmp_path: Path
) -> None:
    dataset = tf_record_files(tmp_path, [3, 2])
    victim = tmp_path / "0.tfrecord"
    victim.write_bytes(damage(victim.read_bytes()))
    with pytest.raises(ValueError, match=rf"0\.tfrecord, {message}"):
        list(dataset)
    assert len(list(dataset.ignore_errors(lambda *_: None))) == num_left


def test_a_huge_announced_length_takes_no_memory(tmp_path: Path) -> None:
    from paceline.formats.crc32c import masked_crc32c

    length = struct.pack("<Q", 1 << 62)
    (tmp_path / "bad").write_bytes(length + struct.pack("<I", masked_crc32c(length)) + b"x")
    with pytest.raises(ValueError, match="cut off: the record has 4611686018427387904 bytes"):
        list(tf_records(tmp_path / "bad"))


def test_a_packed_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    dataset = packed_files(tmp_path, [2000, 2])
    victim = tmp_path / "0.txt.gz"
    victim.write_bytes(victim.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"0\.txt\.gz, record \d+: the gzip file is damaged or"):
        list(dataset)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "Expecting property name"),
        ('{"m": 1}', r"the keys are \['m'\], but those of the first are \['n'\]"),
        ('{"n": [1, [2]]}', r"The component \['n'\] \(list\) cannot become an array"),
    ],
)
def test_a_bad_line_of_json_is_named_and_can_be_left_out(
    line: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"n": 1}}\n{line}\n{{"n": 2}}\n')
    dataset = json_lines(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match=rf"a\.jsonl, record 1: {message}"):
        list(dataset)
    assert plain(dataset.ignore_errors(lambda *_: None)) == [{"n": 1}, {"n": 2}]


def test_behind_bad_records_a_packed_file_is_not_unpacked_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"1\n{bad\n2\n{bad\n3\n"))
    records = iter(json_lines(path).ignore_errors(lambda *_: None))
    assert next(records) == 1
    path.unlink()  # what is open can still be read, and nothing else
    assert [int(record) for record in records] == [2, 3]


def test_csv_columns_get_the_narrowest_dtype_that_fits(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("i,f,s,e\n1,2,x,\n-3,2.5,4,\n")
    first, second = csv_rows(tmp_path / "a.csv")
    assert {k: (v.dtype.kind, v.dtype.itemsize) for k, v in first.items() if k in "if"} == {
        "i": ("i", 8),
        "f": ("f", 4),
    }
    assert nest.map_structure(lambda v: v.tolist(), second) == {
        "i": -3,
        "f": 2.5,
        "s": "4",
        "e": "",
    }


def test_csv_columns_can_be_chosen_with_dtypes_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;true;z\n;false;z\n")
    dataset = csv_rows(
        tmp_path / "a.csv",
        dtypes={"n": np.int16, "b": bool},
        defaults={"n": -1},
        names=["n", "b", "z"],
        delimiter=";",
    )
    assert plain(dataset) == [{"n": 1, "b": True}, {"n": -1, "b": False}]
    assert next(iter(dataset))["n"].dtype == np.int16


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1", "the row has 1 fields for 2 columns"),
        ("x,1", "column 'a' must be int64, got 'x'"),
        (",1", "column 'a' is empty and has no default"),
        ('"1,2', "unexpected end of data"),
    ],
)
def test_a_bad_row_of_csv_is_named(row: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"a,b\n1,2\n{row}\n")
    dataset = csv_rows(tmp_path / "a.csv", dtypes={"a": int, "b": int})
    with pytest.raises(ValueError, match=rf"a\.csv, record 1: {message}"):
        list(dataset)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("bad", "good_before", "message"),
    [
        ('5,"x', 5, "unexpected end of data"),
        ('5,"x" y', 5, "',' expected after"),
        ('5,"x\n5,y"z', 5, "',' expected after"),
        ('"5,x\n5,y",,', 5, "the row has 3 fields for 2 columns"),
        ("5", 5, "the row has 1 fields for 2 columns"),
        ("five,x", 5, "column 'id' must be int64, got 'five'"),
    ],
)
def test_behind_a_bad_row_of_csv_no_good_one_is_lost(
    bad: str, good_before: int, message: str, packed: bool, tmp_path: Path
) -> None:
    numbers = [n for n in range(1000) if n != good_before]
    lines = ["id,text", *(f"{n},x" for n in numbers)]
    lines.insert(good_before + 1, bad)
    with (gzip.open if packed else open)(
        tmp_path / "a.csv.gz"[: None if packed else -3], "wt"
    ) as file:
        file.write("\n".join(lines))
    dataset = csv_rows(tmp_path / "a.csv*", dtypes={"id": np.int64, "text": str})
    with pytest.raises(ValueError, match=re.escape(message)):
        list(dataset)
    errors: list[str] = []
    rows = list(dataset.ignore_errors(lambda number, error: errors.append(str(error))))
    found = [int(row["id"]) for row in rows]
    assert [n for n in found if n != good_before] == numbers
    assert message in errors[0]
    assert len(errors) + len(found) == len(numbers) + 1 + bad.count("\n")


def test_integers_beyond_64_bits_are_no_integers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text(f"id,x\n{10**20},1\n2,3\n")
    dataset = csv_rows(tmp_path / "a.csv", dtypes={"id": int, "x": int})
    with pytest.raises(
        ValueError, match=rf"a\.csv, record 0: column 'id' must be int64, got '{10**20}'"
    ):
        list(dataset)
    assert plain(csv_rows(tmp_path / "a.csv")) == [{"id": f"{10**20}", "x": 1}, {"id": "2", "x": 3}]
    assert "column 'id' of" in caplog.text
    assert "holds integers beyond 64 bits and is taken for text" in caplog.text


@pytest.mark.parametrize("missing", ["", "NA", "N/A", "NULL", "null"])
@pytest.mark.parametrize(("number", "dtype"), [("1", np.int64), ("2.5", np.float32)])
def test_a_missing_number_leaves_a_column_one_of_numbers(
    missing: str, number: str, dtype: type, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text(f"text,v\n{missing},{number}\nb,{missing}\n")
    dataset = csv_rows(tmp_path / "a.csv")
    assert dataset.element_spec["v"].dtype == dtype
    with pytest.raises(ValueError, match=r"record 1: column 'v' is \w+.* and has no default"):
        list(dataset)
    values = [v["v"] for v in csv_rows(tmp_path / "a.csv", defaults={"v": 7})]
    assert [float(v) for v in values] == [float(number), 7]
    assert [str(v["text"]) for v in csv_rows(tmp_path / "a.csv", defaults={"v": 7})] == [
        missing,
        "b",
    ]
    assert not caplog.text


def test_a_column_that_begins_empty_is_text_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text("id,late\n" + "1,\n" * 100 + "2,7\n")
    assert str(plain(csv_rows(tmp_path / "a.csv"))[100]["late"]) == "7"
    (warning,) = caplog.messages
    assert "column 'late' of" in warning
    assert "holds nothing in the first 100 rows and is taken for text; give dtypes" in warning
    csv_rows(tmp_path / "a.csv", dtypes={"id": int, "late": int})
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_the_mark_of_utf_8_files_is_no_part_of_the_text(packed: bool, tmp_path: Path) -> None:
    def write(name: str, text: str) -> Path:
        path = tmp_path / (f"{name}.gz" if packed else name)
        path.write_bytes((gzip.compress if packed else bytes)(text.encode("utf-8-sig")))
        return path

    lines = text_lines([write("a.txt", "é\n\ufeffb\n"), write("b.txt", "c\n")])
    assert plain(lines) == ["é", "\ufeffb", "c"]
    assert plain(json_lines(write("a.jsonl", '{"a": 1}\n{"a": 2}\n'))) == [{"a": 1}, {"a": 2}]
    assert plain(csv_rows(write("a.csv", "a,b\n1,2\n"))) == [{"a": 1, "b": 2}]
    assert plain(csv_rows(write("b.csv", "1,2\n"), names=["a", "b"])) == [{"a": 1, "b": 2}]
    iterator = iter(lines)
    next(iterator)
    again = iter(lines)
    again.set_state(iterator.get_state())
    assert plain(again) == ["\ufeffb", "c"]


@pytest.mark.parametrize("content", [b"a,b\r1,2\r", b"\xff\xfea,b\n1,2\n"])
def test_a_header_of_csv_that_cannot_be_read_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"b\.csv: the header cannot be read: "):
        csv_rows(tmp_path / "b.csv")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    dataset = csv_rows(tmp_path / "*.csv")
    with pytest.raises(ValueError, match=r"b\.csv, record 0: the header cannot be read: "):
        list(dataset)
    assert plain(dataset.ignore_errors()) == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("read", [text_lines, csv_rows, json_lines])
def test_a_text_that_ends_with_a_nul_is_named_and_not_cut(
    read: Callable[[Any], Dataset], tmp_path: Path
) -> None:
    nul = r"\u0000" if read is json_lines else "\0"
    (tmp_path / "a.txt").write_text(
        f'"a"\n"b"\n"c{nul}d"\n"e{nul}"\n"f"\n'.replace('"', '"' if read is json_lines else "")
    )
    dataset = read(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a\.txt, record \d: .* ends with a NUL"):
        list(dataset)
    assert "c\0d" in str(plain(dataset.ignore_errors())).encode().decode("unicode_escape")
    assert len(plain(dataset.ignore_errors())) == (3 if read is csv_rows else 4)


def test_csv_files_with_different_headers_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("b,a\n1,2\n")
    dataset = csv_rows(tmp_path / "*.csv")
    with pytest.raises(ValueError, match=r"b\.csv, record 0: the header is \['b', 'a'\], but"):
        list(dataset)
    assert plain(dataset.ignore_errors(lambda *_: None)) == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("arguments", [{"label": "z"}, {"dtypes": {"z": int}}])
def test_an_unknown_csv_column_is_named(arguments: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"a\.csv has no column 'z'"):
        csv_rows(tmp_path / "a.csv", **arguments)


def test_rows_of_npy_files_are_mapped_and_shuffled_over_all_files(tmp_path: Path) -> None:
    dataset = npy_files(tmp_path, [30, 1, 20])
    batches = list(dataset.shuffle(51, seed=1).batch(10))
    assert sorted(np.concatenate(batches)[:, 0].tolist()) == sorted(
        [*range(0, 60, 2), 100, *range(200, 240, 2)]
    )
    (batch,) = npy_rows(tmp_path / "0.npy").batch(30)
    assert isinstance(batch.base, np.memmap) or batch.base is not None
    assert not batch.flags.writeable


def test_npy_files_side_by_side(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "y.npy", np.arange(3))
    dataset = npy_rows((tmp_path / "x.npy", {"y": tmp_path / "y.npy"}))
    assert plain(dataset.skip(1).batch(2)) == [([[2.0, 3.0], [4.0, 5.0]], {"y": [1, 2]})]
    np.save(tmp_path / "y.npy", np.arange(4))
    with pytest.raises(ValueError, match="files must have equally many rows, got 3, 4"):
        npy_rows((tmp_path / "x.npy", tmp_path / "y.npy"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"x" * 200, "is no .npy file"),
        (npy_bytes(np.arange(10))[:-1], "cut off"),
        (npy_bytes(np.arange(10)) + b"!", r"shape \(10,\), behind which 1 bytes are left over"),
        (npy_bytes(np.arange(10)).replace(b"(10,)", b"(1,) "), "72 bytes are left over"),
        (npy_bytes(np.arange(10)).replace(b"(10,)", b"(9**20,)"), "is no .npy file"),
    ],
)
def test_a_damaged_npy_file_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.npy .*{message}"):
        npy_rows(path)


@pytest.mark.parametrize("read", [npy_rows, npz_rows, read_idx, csv_rows])
def test_a_path_that_is_no_regular_file_is_refused_before_it_is_opened(
    read: Callable[[Path], Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="fifo is no regular file"):
        read(tmp_path / "fifo")


def test_an_npy_file_of_other_rows_than_the_first_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    np.save(tmp_path / "b.npy", np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"b\.npy has rows of shape \(4,\) .*a\.npy has \(2,\)"):
        npy_rows(tmp_path / "*.npy")


def test_python_objects_in_an_npy_file_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}, None]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a\.npy is no \.npy file.*Python objects"):
        npy_rows(tmp_path / "a.npy")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_arrays_become_a_dict(save: Callable[..., None], tmp_path: Path) -> None:
    x, y = np.asfortranarray(np.arange(6.0).reshape(3, 2)), np.arange(3)
    save(tmp_path / "a.npz", x=x, y=y, scalar=np.float64(3))
    dataset = npz_rows(tmp_path / "a.npz", ["x", "y"])
    assert plain(dataset.batch(3)) == [{"x": x.tolist(), "y": [0, 1, 2]}]
    with pytest.raises(ValueError, match="has no array 'z', only"):
        npz_rows(tmp_path / "a.npz", ["z"])
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"a\.npz is no \.npz file, or damaged"):
        npz_rows(tmp_path / "a.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_bit_that_changed_in_an_npz_array_is_found_by_its_checksum(
    save: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "a.npz"
    save(path, x=np.random.default_rng(0).random(100_000))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz(: the array 'x.npy' is damaged| is no .npz)"):
        npz_rows(path)


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", ["(10,)", "(2,)", "(1099511627776,)", "(-1, -1)"])
def test_an_npz_array_must_be_as_long_as_its_header_announces(
    shape: str, packing: int, tmp_path: Path
) -> None:
    content = npy_bytes(np.zeros(5)).replace(b"(5,)", shape.encode())
    with zipfile.ZipFile(tmp_path / "a.npz", "w", packing) as archive:
        archive.writestr("x.npy", content)
        archive.writestr("y.npy", npy_bytes(np.zeros(9)))
    with pytest.raises(ValueError, match=r"a\.npz: the array 'x.npy' is damaged: its header annou"):
        npz_rows(tmp_path / "a.npz", ["x"])
    (batch,) = npz_rows(tmp_path / "a.npz", ["y"]).batch(9)
    assert batch["y"].tolist() == [0.0] * 9


def test_an_npz_array_that_the_directory_calls_longer_than_it_is_is_refused(
    tmp_path: Path,
) -> None:
    content = npy_bytes(np.zeros(10))[:-40]
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
        archive.writestr("y.npy", npy_bytes(np.zeros(9)))
        archive.infolist()[0].file_size += 40
    with pytest.raises(ValueError, match=r"'x.npy' is damaged: it ends after 40 of 80 bytes"):
        npz_rows(tmp_path / "a.npz", ["x"])


def test_list_files_gives_names_that_interleave_can_open(tmp_path: Path) -> None:
    text_files(tmp_path, [2, 2])
    names = Dataset.list_files(tmp_path / "*.txt", shuffle=False)
    assert [Path(str(n)).name for n in names] == ["0.txt", "1.txt"]
    lines = names.interleave(lambda name: text_lines(str(name)), cycle_length=2)
    assert plain(lines) == ["0-0", "1-0", "0-1", "1-1"]
    shuffled = Dataset.list_files(tmp_path / "*.txt", seed=1)
    assert sorted(plain(shuffled)) == sorted(plain(names))


def test_the_state_of_a_file_dataset_is_small_and_names_a_place(tmp_path: Path) -> None:
    iterator = iter(text_files(tmp_path, [100, 100]))
    for _ in range(150):
        next(iterator)
    state = iterator.get_state()["elements"]
    assert (state["file"], state["record"]) == (1, 50)
    assert len(json.dumps(state)) < 200
    iterator.close()


def test_a_state_of_files_of_other_names_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x\ny\n")
    state = iter(text_lines(tmp_path / "a")).get_state()
    with pytest.raises(ValueError, match="Restore it into the same chain"):
        iter(text_lines(tmp_path / "b")).set_state(state)
