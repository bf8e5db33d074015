"""Archives made in memory, good and bad."""

import io
import tarfile
import zipfile


def tar_member(name, content=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    return info, content


def tar_bytes(*members, mode="w:gz", form=tarfile.PAX_FORMAT):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=form) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_bytes(*members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in members:
            archive.writestr(info, content)
    return buffer.getvalue()


def deb_bytes(payload, name=b"data.tar.xz"):
    def entry(label, content):
        header = label.ljust(16) + b"0".ljust(12) + b"0".ljust(6) + b"0".ljust(6)
        header += b"100644".ljust(8) + str(len(content)).encode().ljust(10) + b"`\n"
        return header + content + b"\n" * (len(content) % 2)

    parts = entry(b"debian-binary", b"2.0\n") + entry(b"control.tar.xz", b"odd")
    return b"!<arch>\n" + parts + entry(name, payload)
