"""OB-03: event files that TensorBoard reads; each test reads with the `tensorboard` package."""

import io

import numpy as np
import pytest

import paceline as pl
from paceline.observe import forget_logged
from paceline.summary import FileWriter
from paceline.summary.values import Histogram


def test_ob_03_scalars_are_read_with_their_steps(tmp_path, shown):
    with FileWriter(tmp_path) as writer:
        for step in (0, 1, 300, 2**40):
            writer.scalar("train/loss", step / 4, step)
    assert shown(tmp_path).scalars("train/loss") == [(s, s / 4) for s in (0, 1, 300, 2**40)]


@pytest.mark.parametrize(
    "value",
    [1.5, np.float16(1.5), np.array([[1.5]]), pl.Tensor(1.5), pl.Tensor(np.array([1.5]))],
    ids=lambda value: type(value).__name__,
)
def test_a_scalar_is_whatever_has_one_number(tmp_path, shown, value):
    with FileWriter(tmp_path) as writer:
        writer.scalar("x", value, 1)
    assert shown(tmp_path).scalars("x") == [(1, 1.5)]


def test_a_scalar_that_is_not_finite_is_shown_as_such(tmp_path, shown):
    with FileWriter(tmp_path) as writer:
        writer.scalar("x", float("inf"), 1)
    assert shown(tmp_path).scalars("x") == [(1, float("inf"))]


@pytest.mark.parametrize(
    ("kind", "value", "error", "told"),
    [
        ("scalar", np.zeros(2), TypeError, r"'x' must be one number, it is of shape \(2,\)"),
        ("scalar", "1", TypeError, "'x' must be one number"),
        ("text", 3, TypeError, "'x' must be a str, it is int"),
        ("image", np.zeros((2, 2, 5)), ValueError, r"'x' must be .* of shape \(2, 2, 5\)"),
        ("image", np.zeros((2, 2), np.int64), ValueError, "dtype int64"),
        ("image", np.zeros((0, 2, 2, 1)), ValueError, r"\(0, 2, 2, 1\)"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(tmp_path, kind, value, error, told):
    with pytest.raises(error, match=told):
        getattr(FileWriter(tmp_path), kind)("x", value, 1)


def test_histograms_have_moments_and_buckets_of_all_finite_numbers(tmp_path, shown):
    numbers = np.random.default_rng(0).normal(size=1000)
    with FileWriter(tmp_path) as writer:
        writer.histogram("weights", np.append(numbers, [np.nan, np.inf]), 7)
    found = shown(tmp_path).histogram("weights")
    assert (found.min, found.max, found.num) == (numbers.min(), numbers.max(), 1000)
    assert found.sum == pytest.approx(numbers.sum())
    assert found.sum_squares == pytest.approx(np.square(numbers).sum())
    assert sum(found.bucket) == 1000
    limits, counts = np.array(found.bucket_limit), np.array(found.bucket)
    for index in (5, 100, 300):
        assert counts[: index + 1].sum() == (numbers <= limits[index]).sum()


def test_an_empty_histogram_is_written(tmp_path, shown):
    with FileWriter(tmp_path) as writer:
        writer.histogram("none", np.zeros(0), 7)
    assert shown(tmp_path).histogram("none").num == 0


def test_histograms_of_parts_add_up_to_that_of_the_whole():
    numbers = np.random.default_rng(0).normal(size=(2, 100))
    parts, whole = Histogram.of(numbers[0]) + Histogram.of(numbers[1]), Histogram.of(numbers)
    assert parts.buckets() == whole.buckets()
    assert (parts.min, parts.max, parts.num) == (whole.min, whole.max, whole.num)
    assert parts.sum == pytest.approx(whole.sum)
    assert Histogram.from_json(parts.as_json()) == parts


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_images_are_png_files_with_every_pixel(tmp_path, shown, channels):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (2, 5, 7, channels)).astype(np.uint8)
    with FileWriter(tmp_path) as writer:
        writer.image("digits", pixels, 3)
    tensorboard = shown(tmp_path)
    width, height, *pngs = tensorboard.strings("digits")
    assert tensorboard.plugin("digits") == "images"
    assert (int(width), int(height), len(pngs)) == (7, 5, 2)
    for png, expected in zip(pngs, pixels, strict=True):
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(png))), expected.squeeze())


def test_floats_in_an_image_are_clipped_and_only_three_of_many_are_kept(tmp_path, shown):
    from PIL import Image

    with FileWriter(tmp_path) as writer:
        writer.image("x", np.full((9, 1, 1, 1), 2.0), 3)
        writer.image("flat", np.array([[0.0, 0.5, -1.0, np.nan]]), 3)
    assert len(shown(tmp_path).strings("x")) == 2 + 3
    image = Image.open(io.BytesIO(shown(tmp_path).strings("flat")[2]))
    assert np.asarray(image).tolist() == [[0, 128, 0, 0]]


def test_text_is_shown_by_the_text_plugin(tmp_path, shown):
    with FileWriter(tmp_path) as writer:
        writer.text("notes", "# Größe\n<b>", 3)
    assert shown(tmp_path).strings("notes") == ["# Größe\n<b>".encode()]
    assert shown(tmp_path).plugin("notes") == "text"


def test_what_is_flushed_is_there_and_the_writer_goes_on(tmp_path, shown):
    writer = FileWriter(tmp_path / "made" / "when needed")
    writer.scalar("x", 1, 1)
    assert not (tmp_path / "made").exists()
    writer.flush()
    assert shown(tmp_path / "made" / "when needed").scalars("x") == [(1, 1.0)]
    writer.scalar("x", 2, 2)
    writer.close()
    assert shown(tmp_path / "made" / "when needed").scalars("x") == [(1, 1.0), (2, 2.0)]


def test_a_run_that_goes_on_takes_the_place_of_what_the_killed_one_wrote_later(tmp_path, shown):
    with FileWriter(tmp_path) as killed:
        for step in (10, 20, 30):
            killed.scalar("loss", step, step)
    with FileWriter(tmp_path) as resumed:
        resumed.begin(20)
        resumed.scalar("loss", 0.5, 30)
    assert shown(tmp_path).scalars("loss") == [(10, 10), (20, 20), (30, 0.5)]


def test_behind_a_url_the_file_is_uploaded_as_a_whole(tmp_path, shown):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    with FileWriter("memory://runs/a") as writer:
        for step in range(3):
            writer.scalar("x", step, step)
            writer.flush()
    memory.get("/runs/a", str(tmp_path), recursive=True)
    memory.rm("/runs", recursive=True)
    (directory,) = {path.parent for path in tmp_path.rglob("*tfevents*")}
    assert shown(directory).scalars("x") == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_outside_a_model_summaries_without_a_writer_are_warned_of_once(caplog):
    forget_logged()
    pl.summary.scalar("x", 1)
    pl.summary.text("y", "z")
    assert sum("FileWriter" in record.getMessage() for record in caplog.records) == 1
