"""Reads COPY binary output of shuffle_fetch from stdin and tells what is in the stream.

With pyarrow the values are read; without it the framing of the stream is walked.
"""

import sys

from copy_stream import arrow_stream, messages


def main():
    stream = arrow_stream(sys.stdin.buffer.read())
    batches = sum(1 for _ in messages(stream)) - 1
    print(f"{len(stream):,} bytes: a schema and {batches} record batches, complete")
    try:
        import pyarrow
        import pyarrow.compute as compute
        import pyarrow.ipc
    except ImportError:
        print("(pyarrow cannot be had here: values not read)")
        return
    table = pyarrow.ipc.open_stream(stream).read_all()
    table.validate(full=True)
    print(f"pyarrow {pyarrow.__version__}: {table.num_rows:,} rows,", end=" ")
    print(", ".join(f"{f.name} {f.type}" for f in list(table.schema)[:5]), "...")
    if "l_quantity" in table.column_names:
        ship = table.column("l_shipdate")
        print(
            f"sum(l_quantity) = {compute.sum(table.column('l_quantity'))},",
            f"l_shipdate {compute.min(ship)} to {compute.max(ship)}; by psql:",
        )


if __name__ == "__main__":
    main()
