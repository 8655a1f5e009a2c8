"""The Arrow stream inside COPY (SELECT shuffle_fetch(...)) TO STDOUT (FORMAT binary).

COPY's binary format (PostgreSQL manual, COPY, "Binary Format"): an 11-byte signature,
int32 flags, int32 length of a header extension; per row int16 number of fields and per
field int32 length and the bytes; int16 -1 at the end.  All big-endian.
"""

import struct


def chunks(copy):
    """Yields the bytea value of every row; copy is all of COPY's output."""
    if copy[:11] != b"PGCOPY\n\xff\r\n\0":
        raise ValueError("not COPY binary output")
    _flags, extension = struct.unpack_from(">ii", copy, 11)
    at = 19 + extension
    while True:
        (fields,) = struct.unpack_from(">h", copy, at)
        at += 2
        if fields == -1:
            break
        if fields != 1:
            raise ValueError(f"{fields} fields in a row, expected 1")
        (length,) = struct.unpack_from(">i", copy, at)
        at += 4
        yield copy[at : at + length]
        at += length
    if at != len(copy):
        raise ValueError(f"{len(copy) - at} bytes behind the end of COPY's output")


def arrow_stream(copy):
    """The stream as one bytes object."""
    return b"".join(chunks(copy))


def messages(stream):
    """Yields (metadata bytes, body offset) per message by walking the framing.

    Takes the length of a body from the Message flatbuffer; needs no Arrow library.
    """
    at = 0
    while True:
        marker, length = struct.unpack_from("<II", stream, at)
        if marker != 0xFFFFFFFF:
            raise ValueError(f"no continuation marker at {at}")
        if length == 0:
            break
        meta = stream[at + 8 : at + 8 + length]
        table = struct.unpack_from("<I", meta, 0)[0]
        vtable = table - struct.unpack_from("<i", meta, table)[0]
        entry = 4 + 2 * 3  # bodyLength is field 3 of Message
        size = struct.unpack_from("<H", meta, vtable)[0]
        where = struct.unpack_from("<H", meta, vtable + entry)[0] if entry < size else 0
        body = struct.unpack_from("<q", meta, table + where)[0] if where else 0
        yield meta, at + 8 + length
        at += 8 + length + body
    if at + 8 != len(stream):
        raise ValueError(f"{len(stream) - at - 8} bytes behind the end of the stream")
