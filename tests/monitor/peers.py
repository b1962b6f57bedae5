"""What the tests of monitor/ in Python share: the process tests/monitor/peer.cc, and event files read without any
library, from the description of their format alone."""

import struct
import subprocess
import sys


class Peer:
    """A training that does what it is told."""

    def __init__(self, program, folder, port=0):
        self.process = subprocess.Popen([program, folder, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().split()
        if line[:1] != ["page"]:
            raise RuntimeError(self.process.stderr.read().strip())
        self.url = line[1]
        self.port = int(self.url.rstrip("/").rsplit(":", 1)[1])

    def tell(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n", line

    def end(self):
        """What is missing, in lines."""
        out, error = self.process.communicate("end\n")
        assert self.process.returncode == 0, error
        return out

    def kill(self):
        self.process.kill()
        self.process.communicate()


def loss_of(step):
    return 5.5 - 0.0625 * (step % 64)


def crc32c(data):
    """Bit by bit, by the reflected polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The records of an event file; wrong frames are errors."""
    at = 0
    while at < len(data):
        head = data[at : at + 8]
        (size,) = struct.unpack("<Q", head)
        (crc,) = struct.unpack("<I", data[at + 8 : at + 12])
        assert crc == masked(head), f"checksum of the length at byte {at}"
        body = data[at + 12 : at + 12 + size]
        (crc,) = struct.unpack("<I", data[at + 12 + size : at + 16 + size])
        assert crc == masked(body), f"checksum of the record at byte {at}"
        yield body
        at += 16 + size
    assert at == len(data)


def fields(message):
    """The fields of a protocol buffer: (number, value), of numbers, floats and bytes."""

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    at = 0
    while at < len(message):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            value = varint()
        elif kind == 1:
            (value,) = struct.unpack("<d", message[at : at + 8])
            at += 8
        elif kind == 5:
            (value,) = struct.unpack("<f", message[at : at + 4])
            at += 4
        elif kind == 2:
            size = varint()
            value = message[at : at + size]
            assert len(value) == size
            at += size
        else:
            raise AssertionError(f"wire type {kind}")
        yield number, value


class Events:
    """Of one file: its version, where the training started, and [(tag, step, value)]."""

    def __init__(self, path):
        self.version, self.start, self.scalars, self.wall_times = None, None, [], []
        with open(path, "rb") as file:
            data = file.read()
        for i, record in enumerate(records(data)):
            event = dict(fields(record))
            self.wall_times.append(event.get(1, 0.0))
            step = event.get(2, 0)
            if 3 in event:
                assert i == 0, "the version comes first"
                self.version = event[3].decode()
            elif 7 in event:
                assert dict(fields(event[7])) == {1: 1}, "a session starts"
                self.start = step
            else:
                for number, value in fields(event[5]):
                    assert number == 1
                    scalar = dict(fields(value))
                    assert sorted(scalar) == [1, 2], scalar
                    self.scalars.append((scalar[1].decode(), step, scalar[2]))


def fail(text):
    sys.exit(f"FAILED: {text}")
