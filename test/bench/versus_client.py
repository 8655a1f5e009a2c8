"""Pulls lineitem out of the server and writes it partitioned, as a client would.

usage: versus_client.py adbc|connectorx SOCKET_DIRECTORY PARTITIONS OUTPUT_DIRECTORY

The partition is l_orderkey modulo PARTITIONS; files are Arrow IPC with lz4.
"""
import os
import sys
from urllib.parse import quote


def with_adbc(socket, partitions, directory):
    """Streams batches from ADBC's PostgreSQL driver into a pyarrow dataset."""
    import adbc_driver_postgresql.dbapi
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    def numbered(reader):
        for batch in reader:
            key = batch.column("l_orderkey")
            quotient = pc.divide(key, partitions)
            part = pc.subtract(key, pc.multiply(quotient, partitions)).cast(pa.int32())
            yield batch.append_column("part", part)

    uri = f"postgresql:///postgres?host={quote(socket, safe='')}&user=postgres"
    with adbc_driver_postgresql.dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM lineitem")
        reader = cursor.fetch_record_batch()
        schema = reader.schema.append(pa.field("part", pa.int32()))
        ipc = ds.IpcFileFormat()
        ds.write_dataset(numbered(reader), directory, schema=schema, format=ipc,
                         file_options=ipc.make_write_options(compression="lz4"),
                         partitioning=["part"], max_partitions=partitions,
                         max_open_files=min(partitions, 900), existing_data_behavior="error")


def with_connectorx(socket, partitions, directory):
    """Loads the table over several connections and lets Polars split it."""
    import connectorx
    import polars

    uri = f"postgresql://postgres@{quote(socket, safe='')}/postgres"
    frame = connectorx.read_sql(uri, "SELECT * FROM lineitem", return_type="polars",
                                partition_on="l_orderkey", partition_num=os.cpu_count())
    frame = frame.with_columns(part=polars.col("l_orderkey") % partitions)
    for (part,), rows in frame.partition_by("part", as_dict=True, include_key=False).items():
        rows.write_ipc(os.path.join(directory, f"p{part}.arrow"), compression="lz4")


if __name__ == "__main__":
    {"adbc": with_adbc, "connectorx": with_connectorx}[sys.argv[1]](
        sys.argv[2], int(sys.argv[3]), sys.argv[4])
