"""An SFTP server (version 3 of the protocol) on standard input and output; it needs the standard library alone.

It is started inside a machine, by whatever Python 3 is there, and has the machine's rights. It keeps no rules of its
own: what the machine may read and write, its caller may.
"""

import errno
import os
import stat
import struct
import sys
import time
from typing import BinaryIO, Callable, Dict, List, Optional, Tuple  # noqa: UP035 - it runs in older Pythons too

INIT, VERSION = 1, 2
OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT, SETSTAT, FSETSTAT, OPENDIR, READDIR = range(3, 13)
REMOVE, MKDIR, RMDIR, REALPATH, STAT, RENAME, READLINK, SYMLINK = range(13, 21)
STATUS, HANDLE, DATA, NAME, ATTRS, EXTENDED = 101, 102, 103, 104, 105, 200
OK, EOF, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, BAD_MESSAGE, UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8
HAS_SIZE, HAS_OWNER, HAS_MODE, HAS_TIMES, HAS_EXTENSIONS = 1, 2, 4, 8, 0x80000000
OPEN_READ, OPEN_WRITE, OPEN_APPEND, OPEN_CREATE, OPEN_TRUNCATE, OPEN_EXCLUSIVE = 1, 2, 4, 8, 16, 32
MAX_PACKET, MAX_READ, MAX_HANDLES, NAMES_AT_ONCE = 1 << 20, 1 << 17, 1000, 100
LINK_FIRST = "SFTP_LINK_FIRST"
"""The variable that is set if the caller names a link before its target, as the standard says; OpenSSH does not."""
POSIX_RENAME = b"posix-rename@openssh.com"

CODES = {errno.ENOENT: NO_SUCH_FILE, errno.ENOTDIR: NO_SUCH_FILE, errno.EACCES: PERMISSION_DENIED,
         errno.EPERM: PERMISSION_DENIED, errno.EROFS: PERMISSION_DENIED}  # fmt: skip


class EndOfData(Exception):
    """There is no more to read."""


class UnknownRequest(Exception):
    """The request is none of this version, or its handle is unknown."""


class Packet:
    """The fields of a packet, read one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, form: str = ">I") -> int:
        """Return the next number."""
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> bytes:
        """Return the next text."""
        length = self.number()
        if length > len(self._data) - self._at:
            raise struct.error("a text is longer than its packet")
        self._at += length
        return self._data[self._at - length : self._at]

    def attributes(self) -> Dict[str, Tuple[int, int]]:  # noqa: UP006 - it runs in older Pythons too
        """Return the attributes to set, each as a pair."""
        attributes, flags = {}, self.number()
        if flags & HAS_SIZE:
            attributes["size"] = (self.number(">Q"), 0)
        for flag, name in ((HAS_OWNER, "owner"), (HAS_MODE, "mode"), (HAS_TIMES, "times")):
            if flags & flag:
                attributes[name] = (self.number(), 0 if flag == HAS_MODE else self.number())
        return attributes


def packed(text: bytes) -> bytes:
    """Return a text as a packet has it."""
    return struct.pack(">I", len(text)) + text


def packed_attributes(status: os.stat_result) -> bytes:
    """Return the attributes of a file as a packet has them."""
    flags = HAS_SIZE | HAS_OWNER | HAS_MODE | HAS_TIMES
    times = (max(0, int(seconds)) & 0xFFFFFFFF for seconds in (status.st_atime, status.st_mtime))
    return struct.pack(">IQIIIII", flags, status.st_size, status.st_uid, status.st_gid, status.st_mode, *times)


def long_name(name: bytes, status: os.stat_result) -> bytes:
    """Return a line of a listing for people."""
    when = time.strftime("%b %d %H:%M", time.localtime(status.st_mtime))
    head = f"{stat.filemode(status.st_mode)} {status.st_nlink} {status.st_uid} {status.st_gid} {status.st_size} {when} "
    return head.encode() + name


def set_attributes(target: object, wanted: Dict[str, Tuple[int, int]]) -> None:  # noqa: UP006
    """Set the attributes of a path or of an open file."""
    if not isinstance(target, (bytes, int)):
        raise UnknownRequest
    if "size" in wanted:
        os.truncate(target, wanted["size"][0])
    if "owner" in wanted:
        os.chown(target, *wanted["owner"])
    if "mode" in wanted:
        os.chmod(target, stat.S_IMODE(wanted["mode"][0]))  # noqa: PTH101 - a handle, too
    if "times" in wanted:
        os.utime(target, wanted["times"])


class SftpServer:
    """Answers requests, one after the other."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source, self._target = source, target
        self._handles: Dict[bytes, object] = {}  # noqa: UP006 - a number of a file, or the names of a folder
        self._next = 0
        self._answers: Dict[int, Callable[[Packet], bytes]] = {  # noqa: UP006
            OPEN: self._open, CLOSE: self._close, READ: self._read, WRITE: self._write, LSTAT: self._lstat,
            FSTAT: self._fstat, SETSTAT: self._setstat, FSETSTAT: self._fsetstat, OPENDIR: self._opendir,
            READDIR: self._readdir, REMOVE: self._remove, MKDIR: self._mkdir, RMDIR: self._rmdir,
            REALPATH: self._realpath, STAT: self._stat, RENAME: self._rename, READLINK: self._readlink,
            SYMLINK: self._symlink, EXTENDED: self._extended,
        }  # fmt: skip

    def serve(self) -> None:
        """Answer until the caller has no more requests."""
        while True:
            data = self._receive()
            if data is None:
                return
            if data[0] == INIT:
                self._send(struct.pack(">BI", VERSION, 3) + packed(POSIX_RENAME) + packed(b"1"))
                continue
            request, packet = struct.unpack_from(">I", data, 1)[0], Packet(data[5:])
            kind, answer = self._answer(data[0], packet)
            self._send(struct.pack(">BI", kind, request) + answer)

    def _receive(self) -> Optional[bytes]:  # noqa: UP045
        head = self._source.read(4)
        if len(head) < 4:
            return None
        (length,) = struct.unpack(">I", head)
        if not 5 <= length <= MAX_PACKET:
            return None
        data = self._source.read(length)
        return data if len(data) == length else None

    def _send(self, data: bytes) -> None:
        self._target.write(packed(data))
        self._target.flush()

    def _answer(self, kind: int, packet: Packet) -> Tuple[int, bytes]:  # noqa: UP006
        try:
            if kind not in self._answers:
                raise UnknownRequest
            answer = self._answers[kind](packet)
        except EndOfData:
            return STATUS, self._status(EOF, "end of file")
        except UnknownRequest:
            return STATUS, self._status(UNSUPPORTED, "not supported")
        except (struct.error, ValueError):
            return STATUS, self._status(BAD_MESSAGE, "bad message")
        except OSError as error:
            return STATUS, self._status(CODES.get(error.errno or 0, FAILURE), error.strerror or str(error))
        return self._kind_of(kind), answer or self._status(OK, "")

    def _kind_of(self, kind: int) -> int:
        if kind in (OPEN, OPENDIR):
            return HANDLE
        if kind in (READDIR, REALPATH, READLINK):
            return NAME
        return {READ: DATA, STAT: ATTRS, LSTAT: ATTRS, FSTAT: ATTRS}.get(kind, STATUS)

    def _status(self, code: int, text: str) -> bytes:
        return struct.pack(">I", code) + packed(text.encode()) + packed(b"en")

    # --- open files and folders --------------------------------------------------------------------------------------

    def _keep(self, what: object) -> bytes:
        self._next += 1
        handle = str(self._next).encode()
        self._handles[handle] = what
        return packed(handle)

    def _file(self, packet: Packet) -> int:
        handle = self._handles.get(packet.text())
        if not isinstance(handle, int):
            raise UnknownRequest
        return handle

    def _check_handles(self) -> None:
        if len(self._handles) >= MAX_HANDLES:
            raise OSError(errno.EMFILE, "too many open files")

    def _open(self, packet: Packet) -> bytes:
        path, asked, wanted = packet.text(), packet.number(), packet.attributes()
        self._check_handles()
        both = asked & OPEN_READ and asked & OPEN_WRITE
        flags = os.O_RDWR if both else os.O_WRONLY if asked & OPEN_WRITE else os.O_RDONLY
        for option, flag in ((OPEN_APPEND, os.O_APPEND), (OPEN_CREATE, os.O_CREAT), (OPEN_TRUNCATE, os.O_TRUNC),
                          (OPEN_EXCLUSIVE, os.O_EXCL)):  # fmt: skip
            flags |= flag if asked & option else 0
        return self._keep(os.open(path, flags, stat.S_IMODE(wanted.get("mode", (0o666, 0))[0])))

    def _close(self, packet: Packet) -> bytes:
        handle = self._handles.pop(packet.text(), None)
        if handle is None:
            raise UnknownRequest
        if isinstance(handle, int):
            os.close(handle)
        return b""

    def _read(self, packet: Packet) -> bytes:
        handle, at, length = self._file(packet), packet.number(">Q"), packet.number()
        data = os.pread(handle, min(length, MAX_READ), at)
        if not data and length:
            raise EndOfData
        return packed(data)

    def _write(self, packet: Packet) -> bytes:
        handle, at, data = self._file(packet), packet.number(">Q"), packet.text()
        done = 0
        while done < len(data):
            done += os.pwrite(handle, data[done:], at + done)
        return b""

    def _fstat(self, packet: Packet) -> bytes:
        return packed_attributes(os.fstat(self._file(packet)))

    def _fsetstat(self, packet: Packet) -> bytes:
        set_attributes(self._file(packet), packet.attributes())
        return b""

    def _opendir(self, packet: Packet) -> bytes:
        path = packet.text()
        self._check_handles()
        names: List[bytes] = [b".", b"..", *os.listdir(path)]  # noqa: UP006, PTH208
        return self._keep([(path, name) for name in reversed(names)])

    def _readdir(self, packet: Packet) -> bytes:
        left = self._handles.get(packet.text())
        if not isinstance(left, list):
            raise UnknownRequest
        entries: List[bytes] = []  # noqa: UP006
        while left and len(entries) < NAMES_AT_ONCE:
            path, name = left.pop()
            try:
                status = os.lstat(os.path.join(path, name))  # noqa: PTH118 - bytes
            except OSError:  # it has just been removed
                continue
            entries.append(packed(name) + packed(long_name(name, status)) + packed_attributes(status))
        if not entries:
            raise EndOfData
        return struct.pack(">I", len(entries)) + b"".join(entries)

    # --- paths -------------------------------------------------------------------------------------------------------

    def _stat(self, packet: Packet) -> bytes:
        return packed_attributes(os.stat(packet.text()))  # noqa: PTH116 - bytes

    def _lstat(self, packet: Packet) -> bytes:
        return packed_attributes(os.lstat(packet.text()))

    def _setstat(self, packet: Packet) -> bytes:
        set_attributes(packet.text(), packet.attributes())
        return b""

    def _remove(self, packet: Packet) -> bytes:
        os.unlink(packet.text())  # noqa: PTH108 - bytes
        return b""

    def _mkdir(self, packet: Packet) -> bytes:
        path, wanted = packet.text(), packet.attributes()
        os.mkdir(path, stat.S_IMODE(wanted.get("mode", (0o777, 0))[0]))  # noqa: PTH102 - bytes
        return b""

    def _rmdir(self, packet: Packet) -> bytes:
        os.rmdir(packet.text())  # noqa: PTH106 - bytes
        return b""

    def _realpath(self, packet: Packet) -> bytes:
        return self._names(os.path.realpath(packet.text() or b"."))

    def _readlink(self, packet: Packet) -> bytes:
        return self._names(os.readlink(packet.text()))  # noqa: PTH115 - bytes

    def _names(self, path: bytes) -> bytes:
        return struct.pack(">I", 1) + packed(path) + packed(path) + struct.pack(">I", 0)

    def _rename(self, packet: Packet) -> bytes:
        old, new = packet.text(), packet.text()
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, "there is a file of that name")
        os.rename(old, new)  # noqa: PTH104 - bytes
        return b""

    def _symlink(self, packet: Packet) -> bytes:
        target, link = packet.text(), packet.text()
        if LINK_FIRST in os.environ:
            target, link = link, target
        os.symlink(target, link)  # noqa: PTH211 - bytes
        return b""

    def _extended(self, packet: Packet) -> bytes:
        if packet.text() != POSIX_RENAME:
            raise UnknownRequest
        os.replace(packet.text(), packet.text())  # noqa: PTH105 - bytes
        return b""


if __name__ == "__main__":
    SftpServer(sys.stdin.buffer, sys.stdout.buffer).serve()
