"""Writes the uncompressed kernel out of a compressed Linux image: QEMU's emulation boots that one only.

Usage: vmlinux.py IMAGE OUTPUT. The header of the image says where its payload lies (Documentation/arch/x86/boot.rst).
"""

import lzma
import pathlib
import subprocess
import sys
import zlib

SETUP_SECTORS = 0x1F1
PAYLOAD_OFFSET = 0x248
PAYLOAD_LENGTH = 0x24C


def unpacked(payload: bytes) -> bytes:
    if payload.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(payload)
    for magic, command in ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x02\x21\x4c\x18", "lz4")):
        if payload.startswith(magic):
            # The image's length follows the stream, which both tools complain about after they have written all.
            done = subprocess.run([command, "-dc"], input=payload, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            return done.stdout
    raise SystemExit(f"unknown compression: {payload[:6].hex()}")


def main() -> None:
    image = pathlib.Path(sys.argv[1]).read_bytes()
    number = lambda at: int.from_bytes(image[at : at + 4], "little")  # noqa: E731
    start = (image[SETUP_SECTORS] + 1) * 512 + number(PAYLOAD_OFFSET)
    kernel = unpacked(image[start : start + number(PAYLOAD_LENGTH)])
    if not kernel.startswith(b"\x7fELF"):
        raise SystemExit("the payload is no ELF file")
    pathlib.Path(sys.argv[2]).write_bytes(kernel)


main()
