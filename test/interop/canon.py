"""Arrow values as JSON made of text, lists, objects and null: the form that the
expectations of types.py have."""

import json
import struct

import pyarrow as pa


def canonical(array):
    """A list with one entry per value; array is a pyarrow Array or ChunkedArray."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in canonical(chunk)]
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return canonical(array.storage)
    if pa.types.is_boolean(kind):
        return each(array, lambda v: "true" if v else "false")
    if pa.types.is_integer(kind):
        return each(array, str)
    if pa.types.is_floating(kind):
        return each(array, lambda v: "nan" if v != v else struct.pack(">d", v).hex())
    if pa.types.is_decimal(kind):
        return each(array, lambda v: format(v, "f"))
    if pa.types.is_date32(kind):
        return each(array.cast(pa.int32()), str)
    if pa.types.is_timestamp(kind):
        if kind.tz not in (None, "UTC", "Etc/UTC"):
            raise ValueError(f"time zone {kind.tz}")
        return each(array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), str)
    if pa.types.is_time64(kind):
        return each(array.cast(pa.time64("us")).cast(pa.int64()), str)
    if pa.types.is_interval(kind):
        return each(array, lambda v: f"{v.months} {v.days} {v.nanoseconds // 1000}")
    if is_text(kind):
        return each(array, str)
    if is_bytes(kind):
        return each(array, bytes.hex)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = canonical(array.flatten())
        lengths = array.value_lengths().to_pylist()
        result, at = [], 0
        for length in lengths:
            if length is None:
                result.append(None)
            else:
                result.append(items[at : at + length])
                at += length
        return result
    if pa.types.is_struct(kind):
        columns = {kind[i].name: canonical(array.field(i)) for i in range(kind.num_fields)}
        return [
            {name: values[i] for name, values in columns.items()} if present else None
            for i, present in enumerate(array.is_valid().to_pylist())
        ]
    raise TypeError(f"no canonical form for {kind}")


def each(array, convert):
    return [None if v is None else convert(v) for v in array.to_pylist()]


def is_text(kind):
    return any(
        test(kind)
        for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def is_bytes(kind):
    return (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def rows_by_id(table, names):
    """{id: {column: canonical value}} of a pyarrow table with a column "id"."""
    ids = table.column("id").to_pylist()
    columns = {name: canonical(table.column(name)) for name in names}
    if len(set(ids)) != len(ids):
        raise ValueError("an id appears twice")
    return {
        row: {name: values[i] for name, values in columns.items()} for i, row in enumerate(ids)
    }


def difference(expected, got):
    """What differs first, or None."""
    if expected.keys() != got.keys():
        missing = sorted(expected.keys() - got.keys())[:5]
        extra = sorted(got.keys() - expected.keys())[:5]
        return f"ids missing {missing}, unexpected {extra}"
    for row, columns in expected.items():
        for name, value in columns.items():
            if got[row][name] != value:
                return (
                    f"id {row}, column {name}: expected {json.dumps(value)[:200]}, "
                    f"got {json.dumps(got[row][name])[:200]}"
                )
    return None
