"""Archives: what is wanted comes out; whatever is hostile or broken leaves nothing behind."""

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile

import pytest
from archive_makers import deb_bytes, tar_bytes, tar_member, zip_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from undamped._base.errors import DataError
from undamped.lab.data.published.sources import Pick
from undamped.lab.data.published.transport.archives import Limits, unpack

PICKS = (Pick("good.txt", "good.txt"),)


def try_unpack(tmp_path, name, content, picks, limits=None):
    archive = tmp_path / name
    archive.write_bytes(content)
    into = tmp_path / "into"
    into.mkdir(exist_ok=True)
    unpack(archive, into, picks, limits)
    return into


def refused(tmp_path, name, content, picks=PICKS, limits=None):
    """Unpack, expect one sentence, and nothing inside or beside the folder."""
    with pytest.raises(DataError) as caught:
        try_unpack(tmp_path, name, content, picks, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "into"])
    assert list((tmp_path / "into").rglob("*")) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


GOOD = tar_member("good.txt", b"good")


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz", "a.tar.xz", "a.tar.bz2"])
def test_only_wanted_members_come_out_of_a_tar(tmp_path, name):
    mode = {"tar": "w", "gz": "w:gz", "tgz": "w:gz", "xz": "w:xz", "bz2": "w:bz2"}
    entries = (GOOD, tar_member("setup.py", b"raise"), tar_member("d/x.txt", b"x"))
    content = tar_bytes(*entries, mode=mode[name.rpartition(".")[2]])
    into = try_unpack(
        tmp_path, name, content, (Pick("good.txt", "renamed.txt"), Pick("d/", "deep/"))
    )
    files = {p.relative_to(into).as_posix(): p.read_bytes() for p in into.rglob("*.*")}
    assert files == {"renamed.txt": b"good", "deep/x.txt": b"x"}


@pytest.mark.parametrize("name", ["a.zip", "a.whl"])
def test_only_wanted_members_come_out_of_a_zip(tmp_path, name):
    content = zip_bytes(("p/one.txt", b"1"), ("p/two.txt", b"2"), ("p/three.md", b"3"))
    into = try_unpack(tmp_path, name, content, (Pick("p/*.txt", ""),))
    assert {path.name for path in into.iterdir()} == {"one.txt", "two.txt"}


def test_debian_package(tmp_path):
    inside = tar_bytes(tar_member("./usr/a.gz", gzip.compress(b"plain")), mode="w")
    into = try_unpack(tmp_path, "a.deb", deb_bytes(lzma.compress(inside)), (Pick("usr/a.gz", "a"),))
    assert (into / "a").read_bytes() == b"plain"


def test_single_file_is_decompressed_or_copied(tmp_path):
    into = try_unpack(tmp_path, "f.gz", gzip.compress(b"text"), (Pick("f.gz", "f"),))
    assert (into / "f").read_bytes() == b"text"
    into = try_unpack(tmp_path, "g.bin", b"as it is", (Pick("g.bin", "g.bin"),))
    assert (into / "g.bin").read_bytes() == b"as it is"


@pytest.mark.parametrize(
    "name", ["../evil.txt", "a/../../evil.txt", "/tmp/evil.txt", "C:/evil.txt", "..\\evil.txt"]
)
def test_no_path_leaves_the_folder(tmp_path, name):
    picks = (Pick("good.txt", "good.txt"), Pick(name, "evil.txt"))
    for requested in (picks, picks[:1]):
        message = refused(tmp_path, "a.tgz", tar_bytes(GOOD, tar_member(name, b"x")), requested)
        assert "stay inside the folder" in message
        (tmp_path / "a.tgz").unlink()
        refused(tmp_path, "a.zip", zip_bytes(("good.txt", b""), (name, b"x")), requested)
        (tmp_path / "a.zip").unlink()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(tmp_path, kind):
    evil = tar_member("d/link", kind=kind, link="/etc/passwd")
    message = refused(
        tmp_path, "a.tgz", tar_bytes(GOOD, evil), (Pick("good.txt", "g"), Pick("d/", "d/"))
    )
    assert "plain files" in message


def test_link_that_nobody_wants_is_passed_over(tmp_path):
    evil = tar_member("link", kind=tarfile.SYMTYPE, link="/etc/passwd")
    into = try_unpack(tmp_path, "a.tgz", tar_bytes(evil, GOOD), (Pick("good.txt", "good.txt"),))
    assert [path.name for path in into.iterdir()] == ["good.txt"]


def test_link_in_a_zip_is_refused(tmp_path):
    info = zipfile.ZipInfo("good.txt")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "link" in refused(tmp_path, "a.zip", zip_bytes((info, b"/etc/passwd")))


def test_the_same_file_twice_is_refused(tmp_path):
    # The second could replace the first after it was checked, or differ only in case.
    for second in ("d/one", "d/ONE"):
        content = tar_bytes(tar_member("d/one", b"1"), tar_member(second, b"2"))
        assert "twice" in refused(tmp_path, "a.tgz", content, (Pick("d/", "d/"),))
        (tmp_path / "a.tgz").unlink()


def test_bombs_are_refused_before_anything_is_written(tmp_path):
    small = Limits(size=100_000, files=5)
    zeros = b"\0" * 1_000_000
    refused(tmp_path, "a.tgz", tar_bytes(GOOD, tar_member("big", zeros)), limits=small)
    (tmp_path / "a.tgz").unlink()
    refused(tmp_path, "a.zip", zip_bytes(("good.txt", b"g"), ("big", zeros)), limits=small)
    (tmp_path / "a.zip").unlink()
    many = [tar_member(f"f{number}") for number in range(10)]
    assert "members" in refused(tmp_path, "a.tgz", tar_bytes(GOOD, *many), limits=small)


def test_header_that_asks_for_gigabytes_is_refused(tmp_path):
    # A pax header is read into memory as a whole, so its size must be believed by nobody.
    info = tarfile.TarInfo("good.txt")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    header = info.tobuf(tarfile.GNU_FORMAT)
    refused(tmp_path, "a.tgz", gzip.compress(header + b"\0" * 4096))


def test_a_debian_header_that_asks_for_gigabytes_is_refused(tmp_path):
    content = deb_bytes(lzma.compress(tar_bytes(GOOD, mode="w"))[:-9])
    size = str(len(lzma.compress(tar_bytes(GOOD, mode="w"))) - 9).encode().ljust(10)
    assert size in content
    refused(tmp_path, "a.deb", content.replace(size, b"9999999999"))


def test_gz_inside_that_grows_past_the_limit(tmp_path):
    bomb = tar_member("f.gz", gzip.compress(b"\0" * 1_000_000))
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_bytes(bomb, mode="w"))
    (tmp_path / "into").mkdir()
    with pytest.raises(DataError, match="at most"):
        unpack(archive, tmp_path / "into", (Pick("f.gz", "f"),), Limits(size=100_000))


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("kind", ["tgz", "tar.xz", "tar.bz2", "zip", "deb"])
def test_truncated_archives(tmp_path, kind, fraction):
    noise = bytes(range(256)) * 64 + bz2.compress(bytes(range(255)) * 9)
    entry = tar_member("good.txt", noise)
    content = {
        "tgz": lambda: tar_bytes(entry),
        "tar.xz": lambda: tar_bytes(entry, mode="w:xz"),
        "tar.bz2": lambda: tar_bytes(entry, mode="w:bz2"),
        "zip": lambda: zip_bytes(("good.txt", noise)),
        "deb": lambda: deb_bytes(lzma.compress(tar_bytes(entry, mode="w"))),
    }[kind]()
    refused(tmp_path, f"a.{kind}", content[: int(len(content) * fraction)])


@pytest.mark.parametrize("kind", ["tgz", "tar.xz", "tar.bz2"])
def test_an_archive_without_its_last_bytes_is_refused(tmp_path, kind):
    """The checksum behind the last member is compared, though nobody needs to read so far."""
    mode = {"tgz": "w:gz", "tar.xz": "w:xz", "tar.bz2": "w:bz2"}[kind]
    content = tar_bytes(tar_member("good.txt", bytes(range(256)) * 64), mode=mode)
    refused(tmp_path, f"a.{kind}", content[:-3])
    changed = bytearray(content)
    changed[-6] ^= 1
    refused(tmp_path, f"a.{kind}", bytes(changed))


def test_missing_member_is_named(tmp_path):
    message = refused(tmp_path, "a.tgz", tar_bytes(tar_member("other", b"")))
    assert "good.txt" in message


def test_encrypted_zip_is_refused(tmp_path):
    content = bytearray(zip_bytes(("good.txt", b"good")))
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + offset] |= 1
    refused(tmp_path, "a.zip", bytes(content))


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(
        st.lists(
            st.sampled_from(["..", ".", "", "a", "b", "C:", "\\", "~", "x\n"]),
            min_size=1,
            max_size=4,
        ).map("/".join),
        min_size=1,
        max_size=4,
    ),
    zipped=st.booleans(),
)
def test_whatever_the_names_nothing_lands_outside(tmp_path_factory, names, zipped):
    base = tmp_path_factory.mktemp("any")
    into = base / "deep" / "into"
    into.mkdir(parents=True)
    if zipped:
        archive = base / "a.zip"
        unique = dict.fromkeys(names)
        archive.write_bytes(zip_bytes(*((name or "e", b"x") for name in unique)))
    else:
        archive = base / "a.tgz"
        archive.write_bytes(tar_bytes(*(tar_member(name, b"x") for name in names)))
    try:
        unpack(archive, into, (Pick("a/", ""), Pick("b", "b"), Pick("*", "rest/")))
    except DataError:
        assert list(into.rglob("*")) == []
    outside = [path for path in base.rglob("*") if into not in path.parents]
    assert set(outside) == {archive, base / "deep", into}
