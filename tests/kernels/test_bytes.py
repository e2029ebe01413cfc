"""SHA-256 and text of the runtime, against Python's."""

import codecs
import hashlib
import itertools
import random
import struct
import subprocess

import pytest
from support import simt


def run(chunks):
    """The digest and the printable form of every chunk."""
    sources = [
        simt.ROOT / "tests" / "csrc" / "bytes_test.cc",
        simt.ROOT / "csrc" / "runtime" / "sha256.cc",
    ]
    program = simt.compile_cpp(sources, "bytes_test", simt.SANITIZERS)
    data = b"".join(struct.pack("<Q", len(chunk)) + chunk for chunk in chunks)
    done = subprocess.run([program], input=data, capture_output=True, check=True)
    lines = [line.split(b" ") for line in done.stdout.splitlines()]
    assert len(lines) == len(chunks), done.stderr[-2000:]
    return [(digest.decode(), bytes.fromhex(text.decode())) for digest, text in lines]


def test_the_digest_is_sha256():
    """Around every length at which a block ends, the examples of FIPS 180-4, a million bytes."""
    rng = random.Random(1)
    chunks = [rng.randbytes(size) for size in range(260)]
    chunks += [b"abc", b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", b"a" * 10**6]
    found = [digest for digest, _ in run(chunks)]
    assert found == [hashlib.sha256(chunk).hexdigest() for chunk in chunks]
    assert found[-3] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.fixture
def one_for_each_byte():
    codecs.register_error("each", lambda error: ("\ufffd" * (error.end - error.start), error.end))


def test_what_is_no_utf8_is_replaced_byte_by_byte(one_for_each_byte):
    """Whatever two bytes follow each other, and the ends of every range of characters."""
    limits = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
    chunks = ["na\u00e9 \u2028 \U0001f600".encode(), b"", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
    chunks += [chr(limit).encode() for limit in limits]
    chunks += [chr(limit).encode()[:-1] for limit in limits]
    chunks += [bytes([first, second, 0x80, 0x80, 0x41]) for first, second in
               itertools.product(range(0x80, 0x100), range(0x70, 0x100, 4))]  # fmt: skip
    rng = random.Random(2)
    chunks += [rng.randbytes(rng.randrange(20)) for _ in range(500)]
    for chunk, (_, text) in zip(chunks, run(chunks), strict=True):
        assert text == chunk.decode("utf-8", "each").encode(), chunk
