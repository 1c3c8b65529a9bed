"""The benchmark's data sets, on tiny files in their own formats."""

import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.datasets import DATASETS, DataError, DatasetImage, Session, Stream, carve, load
from core.errors import ProtoquadError

WNIDS = [f"n{1000 + 37 * number % 100}" for number in range(100)]  # not in the order of their names


def jpeg() -> bytes:
    encoded = BytesIO()
    Image.new("RGB", (4, 4), "red").save(encoded, format="JPEG")
    return encoded.getvalue()


JPEG = jpeg()


def write_image(file: Path) -> None:
    try:
        file.write_bytes(JPEG)
    except FileNotFoundError:
        file.parent.mkdir(parents=True)
        file.write_bytes(JPEG)


def write_list(file: Path, lines: Iterable[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


def write_cub(root: Path) -> Path:
    """Two base classes with 4 training images, then two sessions of two classes with 2 shots of 6."""
    for number in range(1, 7):
        session = (number + 1) // 2
        name = f"{number:03}.Bird_{number}"
        trained = [f"{name}/train_{image}.jpg" for image in range(4 if session == 1 else 6)]
        tested = [f"{name}/test_{image}.jpg" for image in range(3)]
        for part, files in (("train", trained), ("test", tested)):
            for file in files:
                write_image(root / part / file)
        shots = trained if session == 1 else [trained[4], trained[1]]
        for listing, lines in ((f"session_{session}.txt", shots), (f"test_{session}.txt", tested)):
            file = root / "split" / listing
            write_list(file, [*(file.read_text().split() if file.exists() else []), *lines])
    return root


def cifar_part(count: int, **changes: object) -> bytes:
    pixels = np.frombuffer(np.random.default_rng(count).bytes(count * 3072), np.uint8).reshape(count, 3072)
    labels = [row % 100 for row in range(count)]
    return pickle.dumps({"data": pixels, "fine_labels": labels, "coarse_labels": []} | changes, protocol=2)


def write_cifar(root: Path, **changes: object) -> Path:
    """The official format: 100 classes with 7 training images and one test image, labels interleaved."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    (folder / "train").write_bytes(cifar_part(700, **changes))
    (folder / "test").write_bytes(cifar_part(100))
    meta = {"fine_label_names": [f"thing {number}" for number in range(100)], "coarse_label_names": []}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return root


def mini_files(part: str, count: int) -> list[tuple[str, str]]:
    return [(f"{wnid}{part}{number}.jpg", wnid) for wnid in WNIDS for number in range(count)]


def write_mini_tables(root: Path) -> Path:
    for part, count in (("train", 7), ("test", 1)):
        files = mini_files(part, count)
        for file, _ in files:
            write_image(root / "images" / file)
        write_list(root / "split" / f"{part}.csv", ["filename,label", *(f"{f},{wnid}" for f, wnid in files)])
    return root


def borrow_mini_tables(root: Path, lender: Path) -> Path:
    """Lists of one's own beside the lender's images, which are too many to write for every test."""
    shutil.copytree(lender / "split", root / "split")
    (root / "images").symlink_to(lender / "images")
    return root


def write_mini_folders(root: Path) -> Path:
    for part, count in (("train", 7), ("test", 1)):
        for file, wnid in mini_files(part, count):
            write_image(root / part / wnid / file)
    return root


def write_folder(root: Path, classes: int = 9, images: int = 10) -> Path:
    for number in range(classes):
        for image in range(images):
            write_image(root / f"class {number}" / f"{image}.jpg")
    return root


def write_train_and_test(root: Path) -> Path:
    for part, images in (("train", 9), ("test", 2)):
        write_folder(root / part, classes=12, images=images)
    return root


def write_nothing(root: Path) -> Path:
    return root


WRITERS: dict[str, Callable[[Path], Path]] = {
    "cub200": write_cub,
    "cifar100": write_cifar,
    "miniimagenet": write_mini_tables,
    "grocery": write_train_and_test,
    "folder": write_folder,
    "shapes": write_nothing,
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every data set's files, written once; tests that spoil files write their own."""
    return {name: write(tmp_path_factory.mktemp(name)) for name, write in WRITERS.items()}


every_dataset = pytest.mark.parametrize("dataset", DATASETS)


def keys(images: Iterable[DatasetImage]) -> list[str]:
    return [image.key for image in images]


def sizes(stream: Stream) -> list[tuple[int, int, int]]:
    return [(len(s.class_ids), len(s.train), len(s.test)) for s in stream.sessions]


def shots_of(stream: Stream) -> list[DatasetImage]:
    return [image for session in stream.sessions[1:] for image in session.train]


# What holds for every data set


@every_dataset
def test_no_image_occurs_twice_in_a_stream(roots: dict[str, Path], dataset: str) -> None:
    """Training and test images are disjoint, within a session and across sessions."""
    stream = load(dataset, roots[dataset])

    images = [key for session in stream.sessions for key in keys(session.train + session.test)]
    assert len(images) == len(set(images))


@every_dataset
def test_a_class_is_taught_and_tested_in_one_session_only(roots: dict[str, Path], dataset: str) -> None:
    """Each session has its own classes, tests only those, and all have names."""
    stream = load(dataset, roots[dataset])

    taught = [class_id for session in stream.sessions for class_id in session.class_ids]
    assert sorted(taught) == sorted(set(taught)) == sorted(stream.class_names)
    for session in stream.sessions:
        assert {image.class_id for image in session.test} == set(session.class_ids)


@every_dataset
def test_loading_twice_gives_the_same_stream(roots: dict[str, Path], dataset: str) -> None:
    """Nothing depends on the order of a directory or on unseeded randomness."""
    assert load(dataset, roots[dataset], draw=3) == load(dataset, roots[dataset], draw=3)
    assert load(dataset, roots[dataset]) == load(dataset, roots[dataset])


@every_dataset
def test_another_draw_changes_the_shots_and_nothing_else(roots: dict[str, Path], dataset: str) -> None:
    """Classes, number of shots per class, base session and test images stay."""
    standard, first, second = (load(dataset, roots[dataset], draw=draw) for draw in (None, 1, 2))

    assert len({frozenset(keys(shots_of(stream))) for stream in (standard, first, second)}) == 3
    for drawn in (first, second):
        assert drawn.base == standard.base
        for session, expected in zip(drawn.sessions[1:], standard.sessions[1:], strict=True):
            assert session.test == expected.test
            assert session.class_ids == expected.class_ids
            assert Counter(p.class_id for p in session.train) == Counter(p.class_id for p in expected.train)


@every_dataset
def test_the_seed_moves_a_draw(roots: dict[str, Path], dataset: str) -> None:
    """The same draw number under another seed is another draw."""
    first, second = (load(dataset, roots[dataset], draw=1, seed=seed) for seed in (0, 1))

    assert set(keys(shots_of(first))) != set(keys(shots_of(second)))


@every_dataset
def test_every_image_decodes(roots: dict[str, Path], dataset: str) -> None:
    """What an image's read gives back is an encoded image."""
    stream = load(dataset, roots[dataset])

    for session in stream.sessions:
        for image in (session.train[0], session.test[-1]):
            Image.open(BytesIO(image.read())).load()


@pytest.mark.parametrize("dataset", ["cub200", "miniimagenet", "folder"])
def test_loading_opens_no_image(roots: dict[str, Path], dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image's file is opened when its bytes are asked for, not before."""
    opened: list[str] = []
    really_open = Path.open

    def recording(path: Path, *args: object, **kwargs: object) -> object:
        opened.append(path.suffix)
        return really_open(path, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", recording)
    stream = load(dataset, roots[dataset], draw=1)
    before = opened.count(".jpg")
    stream.base.train[0].read()

    assert (before, opened.count(".jpg")) == (0, 1)


@pytest.mark.parametrize("dataset", ["cifar100", "shapes"])
def test_loading_encodes_no_image(roots: dict[str, Path], dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that are no files of their own are made when asked for, not before."""
    saved: list[object] = []
    monkeypatch.setattr(Image.Image, "save", lambda image, *_, **__: saved.append(image))
    stream = load(dataset, roots[dataset])
    before = len(saved)
    stream.base.train[0].read()

    assert (before, len(saved)) == (0, 1)


@pytest.mark.parametrize("dataset", ["cub200", "cifar100", "miniimagenet", "folder"])
def test_a_missing_folder_is_named(tmp_path: Path, dataset: str) -> None:
    """The message says which folder is not there and what belongs in it."""
    with pytest.raises(DataError, match=r"nowhere is not a folder; give the folder that holds"):
        load(dataset, tmp_path / "nowhere")


def test_a_data_set_of_files_asks_for_its_folder() -> None:
    """Only the drawn shapes need no folder."""
    with pytest.raises(DataError, match="cub200 is read from files; give their folder"):
        load("cub200")


def test_an_unknown_data_set_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    """So a typing error is easy to correct."""
    with pytest.raises(DataError, match="no data set 'cub'; there are cub200, cifar100"):
        load("cub", tmp_path)


def test_a_data_error_is_one_of_the_product_s_errors() -> None:
    """Whoever catches the product's errors catches this one."""
    assert issubclass(DataError, ProtoquadError)


# The stream guards itself


def image(key: str, class_id: int) -> DatasetImage:
    return DatasetImage(key=key, class_id=class_id, read=lambda: b"")


def test_a_stream_refuses_an_image_that_is_both_taught_and_tested() -> None:
    """A leak from test to training cannot be built."""
    with pytest.raises(DataError, match="uses an image twice: a"):
        Stream("leak", {0: "x"}, (Session(train=(image("a", 0),), test=(image("a", 0),)),))


def test_a_stream_refuses_a_class_that_is_taught_twice() -> None:
    """New classes are new."""
    sessions = tuple(Session(train=(image(key, 7),), test=()) for key in "ab")

    with pytest.raises(DataError, match="teaches a class in two sessions: 7"):
        Stream("again", {7: "x"}, sessions)


def test_a_stream_refuses_test_images_of_classes_it_has_not_taught() -> None:
    """Test images come with the session that teaches their class, never cumulatively."""
    with pytest.raises(DataError, match=r"session 1 of early tests classes that it does not teach: \[1\]"):
        Stream("early", {0: "x", 1: "y"}, (Session(train=(image("a", 0),), test=(image("b", 1),)),))


def test_a_stream_refuses_to_teach_nothing() -> None:
    """Neither an empty session nor an empty stream is one."""
    with pytest.raises(DataError, match="has no training image"):
        Stream("empty", {}, (Session(train=(), test=()),))
    with pytest.raises(DataError, match="has no session"):
        Stream("empty", {}, ())


# CUB-200


def test_cub_s_standard_draw_is_its_split_files(roots: dict[str, Path]) -> None:
    """Line by line, training and test, in the order of the files."""
    root = roots["cub200"]
    stream = load("cub200", root)

    assert len(stream.sessions) == 3
    for number, session in enumerate(stream.sessions, start=1):
        for part, listing, images in (("train", "session", session.train), ("test", "test", session.test)):
            lines = (root / "split" / f"{listing}_{number}.txt").read_text().split()
            assert keys(images) == [f"{part}/{line}" for line in lines]


def test_cub_s_class_ids_count_from_the_number_of_the_folder(roots: dict[str, Path]) -> None:
    """Folder 001 is class 0, and its name loses number and underscores."""
    stream = load("cub200", roots["cub200"])

    assert stream.class_names == {number - 1: f"Bird {number}" for number in range(1, 7)}
    assert stream.sessions[2].class_ids == (4, 5)


def test_cub_in_its_original_layout_never_draws_a_test_image(tmp_path: Path) -> None:
    """With every image in images/, under the long paths of the published lists, the lists decide."""
    root = write_cub(tmp_path)
    for part in ("train", "test"):
        for file in (root / part).glob("*/*.jpg"):
            write_image(root / "images" / file.parent.name / file.name)
            file.unlink()
        for folder in [*(root / part).iterdir(), root / part]:
            folder.rmdir()
    for listing in (root / "split").iterdir():
        write_list(listing, [f"CUB_200_2011/images/{line}" for line in listing.read_text().split()])

    streams = [load("cub200", root, draw=draw) for draw in range(20)]

    assert {Path(key).stem[:5] for stream in streams for key in keys(shots_of(stream))} == {"train"}
    assert {Path(key).stem[:4] for s in load("cub200", root).sessions for key in keys(s.test)} == {"test"}


def test_cub_without_its_split_says_so(tmp_path: Path) -> None:
    """The images alone do not say which session they belong to."""
    root = write_cub(tmp_path)
    (root / "split").rename(root / "elsewhere")

    with pytest.raises(DataError, match=r"split is not a folder; give the folder that holds session_1\.txt"):
        load("cub200", root)


@pytest.mark.parametrize("lost", ["session_1.txt", "session_2.txt", "test_3.txt"])
def test_cub_names_a_split_file_that_is_missing(tmp_path: Path, lost: str) -> None:
    """A gap in the sessions is a lost file, not the end of the stream."""
    root = write_cub(tmp_path)
    (root / "split" / lost).unlink()

    with pytest.raises(DataError, match=f"{lost} is missing"):
        load("cub200", root)


def test_cub_names_an_image_that_is_listed_and_missing(tmp_path: Path) -> None:
    """It is found when loading, not hours later."""
    root = write_cub(tmp_path)
    (root / "train" / "003.Bird_3" / "train_4.jpg").unlink()

    with pytest.raises(DataError, match=r"session_2\.txt names 003\.Bird_3/train_4\.jpg, but .* does not exist"):
        load("cub200", root)


def test_cub_refuses_a_class_folder_without_a_number(tmp_path: Path) -> None:
    """The number is the class id."""
    root = write_cub(tmp_path)
    write_image(root / "train" / "Sparrow" / "a.jpg")
    write_list(root / "split" / "session_1.txt", ["Sparrow/a.jpg"])

    with pytest.raises(DataError, match="'Sparrow' does not begin with its number"):
        load("cub200", root)


def test_cub_refuses_two_folders_of_one_number(tmp_path: Path) -> None:
    """Two names under one class id would be two classes learnt as one."""
    root = write_cub(tmp_path)
    write_image(root / "train" / "001.Other" / "a.jpg")
    write_list(root / "split" / "session_1.txt", ["001.Bird_1/train_0.jpg", "001.Other/a.jpg"])

    with pytest.raises(DataError, match="two class folders have number 1: 'Other'"):
        load("cub200", root)


# CIFAR-100


def test_cifar_has_60_base_classes_and_8_sessions_of_5_by_5(roots: dict[str, Path]) -> None:
    """The protocol of the literature, in the order of the labels."""
    stream = load("cifar100", roots["cifar100"])

    assert sizes(stream) == [(60, 420, 60), *[(5, 25, 5)] * 8]
    assert [c for session in stream.sessions for c in session.class_ids] == list(range(100))
    assert stream.class_names[99] == "thing 99"


def test_cifar_accepts_the_folder_of_the_files_itself(roots: dict[str, Path]) -> None:
    """Both the folder that was unpacked and the one it was unpacked in will do."""
    root = roots["cifar100"]

    assert load("cifar100", root / "cifar-100-python") == load("cifar100", root)


def test_cifar_images_are_lossless(roots: dict[str, Path]) -> None:
    """The pixels come back as they were, red plane first, under the right label."""
    root = roots["cifar100"]
    rows = pickle.loads((root / "cifar-100-python" / "train").read_bytes())["data"]
    shot = load("cifar100", root).sessions[4].train[7]
    row = int(shot.key.removeprefix("train/"))

    decoded = np.asarray(Image.open(BytesIO(shot.read())))

    assert row % 100 == shot.class_id
    assert decoded.shape == (32, 32, 3)
    np.testing.assert_array_equal(decoded.transpose(2, 0, 1).ravel(), rows[row])


def test_cifar_takes_the_published_shots_when_they_are_there(tmp_path: Path) -> None:
    """Lists of rows in split/ are the standard draw; another draw passes them by."""
    root = write_cifar(tmp_path)
    expected = set()
    for number in range(8):
        rows = [c + 100 * turn for turn in range(2, 7) for c in range(60 + 5 * number, 65 + 5 * number)]
        write_list(root / "split" / f"session_{number + 2}.txt", map(str, rows))
        expected |= {f"train/{row}" for row in rows}

    assert set(keys(shots_of(load("cifar100", root)))) == expected
    assert set(keys(shots_of(load("cifar100", root, draw=0)))) != expected


@pytest.mark.parametrize("rows", [["60"] * 25, map(str, range(25)), map(str, range(60, 85))])
def test_cifar_refuses_a_list_of_other_shots(tmp_path: Path, rows: Iterable[str]) -> None:
    """A list that does not teach the session's five classes five times each is not its list."""
    root = write_cifar(tmp_path)
    write_list(root / "split" / "session_2.txt", rows)

    with pytest.raises(DataError, match=r"session_2\.txt is not the list of session 2: .* classes 60 to 64"):
        load("cifar100", root)


class Malicious:
    """Unpickled without care, it creates a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("part", ["train", "test", "meta"])
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_malicious_pickle_is_refused_and_never_run(tmp_path: Path, part: str, protocol: int) -> None:
    """A pickle may name any function; none but numpy's own is admitted."""
    root, trace = write_cifar(tmp_path), tmp_path / "was here"
    attack = pickle.dumps({"data": Malicious(trace)}, protocol=protocol)
    (root / "cifar-100-python" / part).write_bytes(attack)

    with pytest.raises(DataError, match=rf"{part} cannot be read: it needs .*, which is not allowed in a data file"):
        load("cifar100", root)

    assert not trace.exists()
    pickle.loads(attack)
    assert trace.exists()  # the attack was a real one


@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_of_eval_is_refused(tmp_path: Path, protocol: int) -> None:
    """Builtins are not harmless either."""

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return eval, ("1 + 1",)

    root = write_cifar(tmp_path)
    (root / "cifar-100-python" / "meta").write_bytes(pickle.dumps(Evil(), protocol=protocol))

    with pytest.raises(DataError, match=r"it needs (builtins|__builtin__)\.eval"):
        load("cifar100", root)


def test_cifar_reads_a_pickle_of_python_2(tmp_path: Path) -> None:
    """The official files name numpy's old module and hold byte strings."""
    root = write_cifar(tmp_path)
    official = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
        b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01Md\x00M\x00\x0c\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + (307200).to_bytes(4, "little")
    )
    labels = b"".join(b"K" + bytes([label]) for label in range(100))
    content = official + b"\xe7" * 307200 + b"tbU\x0bfine_labels](" + labels + b"eu."
    (root / "cifar-100-python" / "test").write_bytes(content)

    stream = load("cifar100", root)

    assert np.asarray(Image.open(BytesIO(stream.base.test[0].read()))).flatten().tolist() == [0xE7] * 3072


def test_cifar_refuses_a_damaged_file(tmp_path: Path) -> None:
    """A download that broke off is said to be one."""
    root = write_cifar(tmp_path)
    file = root / "cifar-100-python" / "train"
    file.write_bytes(file.read_bytes()[:1000])

    with pytest.raises(DataError, match=r"train cannot be read: .*; download the official file again"):
        load("cifar100", root)


@pytest.mark.parametrize("part", ["train", "test", "meta"])
def test_cifar_names_a_missing_file(tmp_path: Path, part: str) -> None:
    """All three files are needed."""
    root = write_cifar(tmp_path)
    (root / "cifar-100-python" / part).unlink()

    with pytest.raises(DataError, match=f"{part} is missing"):
        load("cifar100", root)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"data": [1, 2, 3]}, "'data' is not an array of bytes"),
        ({"data": np.zeros((700, 3072))}, "'data' is not an array of bytes"),
        ({"data": np.zeros((700, 12), dtype=np.uint8)}, "'data' is not an array of bytes"),
        ({"fine_labels": [1, 2, 3]}, "not a list of 700 labels"),
        ({"fine_labels": [100] * 700}, "not one of 0 to 99"),
        ({"fine_labels": [None] * 700}, "not one of 0 to 99"),
    ],
)
def test_cifar_refuses_content_of_another_kind(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    """A pickle that can be read may still be another data set."""
    root = write_cifar(tmp_path, **changes)

    with pytest.raises(DataError, match=complaint):
        load("cifar100", root)


@pytest.mark.parametrize("content", [{"label_names": ["cat"]}, ["cat"], {"fine_label_names": "cat"}])
def test_cifar_refuses_names_of_another_data_set(tmp_path: Path, content: object) -> None:
    """CIFAR-10's meta file is an easy mistake."""
    root = write_cifar(tmp_path)
    (root / "cifar-100-python" / "meta").write_bytes(pickle.dumps(content))

    with pytest.raises(DataError, match="'fine_label_names'"):
        load("cifar100", root)


def test_cifar_names_a_class_with_too_few_images(tmp_path: Path) -> None:
    """Five shots need five images."""
    labels = [0 if row in (161, 261, 361) else row % 100 for row in range(700)]
    root = write_cifar(tmp_path, fine_labels=labels)

    with pytest.raises(DataError, match="too few images of thing 61; every class needs at least 5"):
        load("cifar100", root)


# miniImageNet


def test_miniimagenet_tables_order_classes_by_first_appearance(roots: dict[str, Path]) -> None:
    """60 base classes and 8 sessions of 5 by 5, in the order of train.csv."""
    stream = load("miniimagenet", roots["miniimagenet"])

    assert sizes(stream) == [(60, 420, 60), *[(5, 25, 5)] * 8]
    assert [stream.class_names[class_id] for class_id in range(100)] == WNIDS
    assert stream.base.class_ids == tuple(range(60))
    assert all(stream.class_names[shot.class_id] in shot.key for shot in shots_of(stream))


def test_miniimagenet_test_labels_follow_the_training_table(roots: dict[str, Path], tmp_path: Path) -> None:
    """A test.csv in another order gives the same classes, matched by their labels."""
    root = borrow_mini_tables(tmp_path, roots["miniimagenet"])
    table = root / "split" / "test.csv"
    header, *lines = table.read_text().split()
    write_list(table, [header, *reversed(lines)])

    stream = load("miniimagenet", root)

    assert all(stream.class_names[p.class_id] in p.key for session in stream.sessions for p in session.test)


def test_miniimagenet_folders_order_classes_by_name(tmp_path: Path) -> None:
    """Without tables the folders' sorted names are the order."""
    stream = load("miniimagenet", write_mini_folders(tmp_path))

    assert sizes(stream) == [(60, 420, 60), *[(5, 25, 5)] * 8]
    assert list(stream.class_names.values()) == sorted(WNIDS)


def test_miniimagenet_takes_the_published_shots_when_they_are_there(roots: dict[str, Path], tmp_path: Path) -> None:
    """Lists of paths in split/ are the standard draw, whatever folder the paths begin with."""
    root = borrow_mini_tables(tmp_path, roots["miniimagenet"])
    expected = []
    for number in range(8):
        files = [f"{wnid}train{shot}.jpg" for wnid in WNIDS[60 + 5 * number :][:5] for shot in (6, 0, 3, 5, 1)]
        write_list(root / "split" / f"session_{number + 2}.txt", [f"MINI/train/n/{file}" for file in files])
        expected += [f"images/{file}" for file in files]

    assert set(keys(shots_of(load("miniimagenet", root)))) == set(expected)


def test_miniimagenet_names_an_image_that_is_listed_and_missing(tmp_path: Path) -> None:
    """It is found when loading, not hours later."""
    write_image(tmp_path / "images" / "there.jpg")
    write_list(tmp_path / "split" / "train.csv", ["filename,label", "there.jpg,n1"])
    write_list(tmp_path / "split" / "test.csv", ["filename,label", "gone.jpg,n1"])

    with pytest.raises(DataError, match=r"test\.csv names gone\.jpg, but .* does not exist"):
        load("miniimagenet", tmp_path)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (["name,class", "a,b"], "does not begin with the header filename,label"),
        ([], "does not begin with the header filename,label"),
        (["filename,label", "a.jpg"], r"gives a\.jpg no label"),
    ],
)
def test_miniimagenet_refuses_a_malformed_table(tmp_path: Path, table: list[str], complaint: str) -> None:
    """The header and both columns are needed."""
    (tmp_path / "images").mkdir()
    write_list(tmp_path / "split" / "train.csv", table)

    with pytest.raises(DataError, match=complaint):
        load("miniimagenet", tmp_path)


def test_miniimagenet_refuses_a_table_that_is_not_text(tmp_path: Path) -> None:
    """An image saved under the table's name is no table."""
    (tmp_path / "images").mkdir()
    write_image(tmp_path / "split" / "train.csv")

    with pytest.raises(DataError, match=r"train\.csv cannot be read as text"):
        load("miniimagenet", tmp_path)


def test_miniimagenet_refuses_test_images_of_an_unknown_class(tmp_path: Path) -> None:
    """A class that is tested is a class that is taught."""
    for file in ("train/n1/a.jpg", "test/n1/b.jpg", "test/n999/c.jpg"):
        write_image(tmp_path / file)

    with pytest.raises(DataError, match="tests classes without a training image: n999"):
        load("miniimagenet", tmp_path)


def test_miniimagenet_needs_all_its_classes(tmp_path: Path) -> None:
    """Fewer classes would be another protocol under the same name."""
    write_image(tmp_path / "train" / "n1" / "a.jpg")
    write_image(tmp_path / "test" / "n1" / "b.jpg")

    with pytest.raises(DataError, match="has 1 classes here; it needs 100"):
        load("miniimagenet", tmp_path)


# Any folder


def test_a_folder_s_defaults_are_half_of_the_classes_then_five_at_a_time(tmp_path: Path) -> None:
    """13 classes of 10: 6 base, then 5 and the 2 that are left; a fifth of each held out."""
    stream = load("folder", write_folder(tmp_path / "birds", classes=13))

    assert stream.name == "birds"
    assert sizes(stream) == [(6, 48, 12), (5, 25, 10), (2, 10, 4)]


def test_a_folder_s_seed_moves_classes_and_test_images_but_no_class_id(roots: dict[str, Path]) -> None:
    """Another seed is another order and another hold-out of the same labelled images."""
    first, second = (load("folder", roots["folder"], seed=seed) for seed in (0, 1))

    assert first.class_names == second.class_names
    assert first.base.class_ids != second.base.class_ids
    tests = [{p for session in stream.sessions for p in session.test} for stream in (first, second)]
    assert tests[0] != tests[1]


def test_a_folder_passes_over_what_is_no_image(tmp_path: Path) -> None:
    """Hidden files, hidden folders, texts and loose files are not counted; endings may be in capitals."""
    root = write_folder(tmp_path, classes=2)
    for stray in (".hidden.jpg", "notes.txt", "folder.jpg/a.jpg", "../.cache/a.jpg", "../loose.jpg"):
        write_image(root / "class 0" / stray)
    write_image(root / "class 0" / "LAST.PNG")

    # under one seed or another every class is a base class, which uses all of its images
    sessions = [session for seed in range(10) for session in load("folder", root, seed=seed).sessions]

    used = {key for session in sessions for key in keys(session.train + session.test)}
    assert used == {f"class {c}/{n}.jpg" for c in range(2) for n in range(10)} | {"class 0/LAST.PNG"}


@pytest.mark.parametrize("seed", range(4))
def test_a_folder_names_every_class_with_too_few_images(tmp_path: Path, seed: int) -> None:
    """All of them at once, whatever the seed, with what they have and what they need."""
    root = write_folder(tmp_path, classes=4, images=6)
    (root / "class 1" / "0.jpg").unlink()
    (root / "empty").mkdir()

    with pytest.raises(DataError, match=r"in class 1 \(5\), empty \(0\): 5 shots .* need 6 of every class"):
        load("folder", root, seed=seed)


def test_a_folder_with_just_enough_images_is_enough(tmp_path: Path) -> None:
    """The number that the message asks for is the least that works."""
    stream = load("folder", write_folder(tmp_path, classes=4, images=6))

    assert sizes(stream) == [(2, 10, 2), (2, 10, 2)]


@pytest.mark.parametrize("classes", [0, 1])
def test_a_folder_needs_two_classes(tmp_path: Path, classes: int) -> None:
    """One for the base and one that is new."""
    with pytest.raises(DataError, match=f"has {classes} class folders; a stream needs at least 2"):
        load("folder", write_folder(tmp_path, classes=classes))


# Painted shapes


def test_shapes_need_no_folder() -> None:
    """A newcomer without data has a stream: 10 base classes, then 5 sessions of 2 by 5."""
    stream = load("shapes")

    assert sizes(stream) == [(10, 200, 100), *[(2, 10, 20)] * 5]
    assert len(set(stream.class_names.values())) == 20


def test_no_shape_colour_or_texture_gives_a_class_away() -> None:
    """Every trait is shared with other classes, and the base session shows all of them."""
    stream = load("shapes")
    traits = Counter(trait for name in stream.class_names.values() for trait in name.split())
    shown = {trait for class_id in stream.base.class_ids for trait in stream.class_names[class_id].split()}

    assert min(traits.values()) >= 4
    assert shown == set(traits)


def test_a_shape_is_drawn_the_same_every_time() -> None:
    """Equal keys are equal bytes, so a key can be a cache key."""
    first, second = load("shapes").base.test[3], load("shapes").base.test[3]

    assert first.key == second.key
    assert first.read() == second.read() == first.read()


def test_shapes_of_one_class_differ() -> None:
    """Place, size, angle, shade and background are drawn anew; training and test images too."""
    base = load("shapes").base
    images = [p for p in base.train + base.test if p.class_id == 4]

    assert len({p.read() for p in images}) == 30


def test_another_seed_paints_other_shapes_under_other_keys() -> None:
    """A cache that knows seed 0 must not answer for seed 1."""
    first, second = load("shapes", seed=0).base.train[0], load("shapes", seed=1).base.train[0]

    assert first.key != second.key
    assert first.read() != second.read()


# The pseudo-incremental protocol


class SealedSession(Session):
    """A session whose test images cannot even be looked at."""

    def __getattribute__(self, name: str) -> object:
        if name == "test":
            raise AssertionError("the test images were touched")
        return super().__getattribute__(name)


def never() -> bytes:
    raise AssertionError("a test image was read")


def base_session(classes: int, images: int, kind: type[Session] = Session) -> Session:
    return kind(
        train=tuple(image(f"train/{c}/{n}", c) for c in range(classes) for n in range(images)),
        test=tuple(DatasetImage(f"test/{c}", c, never) for c in range(classes)),
    )


def test_carving_never_touches_a_test_image() -> None:
    """Every image of the carved stream is a training image of the base session."""
    base = base_session(100, 10, SealedSession)

    stream = carve(base)

    carved = [p for session in stream.sessions for p in session.train + session.test]
    assert set(carved) <= set(base.train)
    assert {p.read() for p in carved} == {b""}


def test_carving_100_classes_gives_70_and_three_times_ten() -> None:
    """A fifth of each pseudo-base class is held out; of the new ones, all that is no shot."""
    stream = carve(base_session(100, 10))

    assert sizes(stream) == [(70, 560, 140), *[(10, 50, 50)] * 3]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [(60, [42, 6, 6, 6]), (75, [52, 7, 8, 8]), (10, [7, 1, 1, 1]), (3, [2, 1]), (2, [1, 1])],
)
def test_carving_fewer_classes_keeps_the_proportions(classes: int, expected: list[int]) -> None:
    """Seven tenths are the base, and the others are spread over the sessions."""
    stream = carve(base_session(classes, 8))

    assert [len(session.class_ids) for session in stream.sessions] == expected


def test_carving_is_as_asked_when_the_classes_suffice() -> None:
    """Classes that were not asked for are left out."""
    stream = carve(base_session(20, 8), base_classes=4, ways=2, sessions=5, shots=3, held_out=0.5)

    assert sizes(stream) == [(4, 16, 16), *[(2, 6, 10)] * 5]


def test_carving_repeats_by_its_seed() -> None:
    """The seed moves which classes play the new ones."""
    base = base_session(20, 8)

    assert carve(base, seed=1) == carve(base, seed=1)
    assert carve(base, seed=1).base.class_ids != carve(base, seed=2).base.class_ids


def test_carving_holds_out_at_least_one_image() -> None:
    """A fifth of two images is still one."""
    stream = carve(base_session(10, 2), shots=1)

    assert sizes(stream) == [(7, 7, 7), *[(1, 1, 1)] * 3]


def test_carving_names_classes_with_too_few_images() -> None:
    """Shots and one image to test on."""
    with pytest.raises(DataError, match=r"too few training images .* class \d has 5 and needs 6"):
        carve(base_session(10, 5))


@pytest.mark.parametrize("options", [{"ways": 0}, {"shots": 0}, {"held_out": 0.0}, {"held_out": 0.9}])
def test_carving_refuses_a_protocol_that_cannot_be(options: dict[str, float]) -> None:
    """Each option has a least value that makes sense."""
    with pytest.raises(DataError, match=r"at least 1|at most 0\.5"):
        carve(base_session(10, 8), **options)


def test_carving_needs_two_classes() -> None:
    """One plays the base and one is new."""
    with pytest.raises(DataError, match="a base session of 1 classes cannot be carved"):
        carve(base_session(1, 8))
