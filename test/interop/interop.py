"""Reads segment files and shuffle_fetch streams with pyarrow, Polars, DuckDB and (files)
DataFusion and compares every value with what SQL says about the heap table.  Prints TAP.

Connects as libpq's environment variables say, runs on the server's machine as the
server's user, and needs the packages of requirements.txt.
"""

import glob
import json
import os
import sys
import traceback

import datafusion
import duckdb
import polars
import psycopg
import pyarrow
import pyarrow.ipc

import canon
import types_table as types
from crc32c import crc32c

STREAM_READERS = ("pyarrow", "Polars", "DuckDB")
READERS = STREAM_READERS + ("DataFusion",)
CODECS = ("none", "lz4", "lz4:9", "zstd", "zstd:19")
LAYOUTS = ("log", "partition_files")


class Tap:
    def __init__(self):
        self.number = 0
        self.failed = 0

    def check(self, name, test, *arguments):
        """Runs a test that returns None, or what is wrong."""
        self.number += 1
        try:
            wrong = test(*arguments)
        except Exception:
            wrong = traceback.format_exc()
        print(f"{'not ok' if wrong else 'ok'} {self.number} - {name}", flush=True)
        if wrong:
            self.failed += 1
            for line in str(wrong).splitlines():
                print(f"# {line}", flush=True)

    def finish(self):
        print(f"1..{self.number}")
        sys.exit(1 if self.failed else 0)


# ---------------------------------------------------------------- readers


def read_file(reader, path):
    """A segment file as a pyarrow table, as this reader sees it."""
    if reader == "Polars":
        return polars.read_ipc(path).to_arrow()
    if reader == "DataFusion":
        return datafusion.SessionContext().read_arrow(path).to_arrow_table()
    table = pyarrow.ipc.open_file(path).read_all()
    table.validate(full=True)
    return through_duckdb(table) if reader == "DuckDB" else table


def read_stream(reader, stream):
    if reader == "Polars":
        return polars.read_ipc_stream(stream).to_arrow()
    table = pyarrow.ipc.open_stream(stream).read_all()
    table.validate(full=True)
    return through_duckdb(table) if reader == "DuckDB" else table


def through_duckdb(table):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", table)
        return connection.sql("SELECT * FROM t").to_arrow_table()


def segment_files(cursor, relation):
    """Files of a shuffle table, found by its storage, without asking shuffle_ext."""
    cursor.execute(
        "SELECT current_setting('data_directory'), d.oid, c.reltablespace, c.relfilenode"
        " FROM pg_class c, pg_database d"
        " WHERE c.oid = %s::regclass AND d.datname = current_database()",
        [relation],
    )
    data, database, tablespace, filenode = cursor.fetchone()
    base = f"{data}/pg_shuffle/{database}/{tablespace}_{filenode}"
    return sorted(glob.glob(f"{base}/**/*.arrow", recursive=True))


def fetch_stream(cursor, relation, *partitions):
    """One Arrow stream over the wire, out of COPY's binary format."""
    statement = psycopg.sql.SQL(
        "COPY (SELECT shuffle_fetch({}, {})) TO STDOUT (FORMAT binary)"
    ).format(relation, psycopg.sql.SQL(", ").join(map(psycopg.sql.Literal, partitions)))
    with cursor.copy(statement) as copy:
        copy.set_types(["bytea"])
        return b"".join(row[0] for row in copy.rows())


# ---------------------------------------------------------------- tables


def make_types_table(cursor, name, columns):
    """Each column cycles through its values and NULL at its own pace."""
    definition = ", ".join(f"{c.name} {c.type}" for c in columns)
    cursor.execute(f"CREATE TABLE {name} (id int NOT NULL, {definition})")
    rows = []
    for i in range(601):
        row = [i]
        for shift, column in enumerate(columns):
            if i == 0:
                row.append(None)  # nothing but NULLs
            elif i <= 20:
                row.append(column.values[(i + shift) % len(column.values)])  # no NULL
            else:
                cycle = column.values + [None]
                row.append(cycle[(i * (1 + shift % 3) + shift) % len(cycle)])
        rows.append(row)
    places = ", ".join(["%s::int"] + [f"%s::{c.type}" for c in columns])
    cursor.executemany(f"INSERT INTO {name} VALUES ({places})", rows)


def expectation(cursor, name, columns):
    """{id: {column: canonical value}}, by SQL over the heap table."""
    parts = ", ".join(
        f"CASE WHEN {c.name} IS DISTINCT FROM NULL THEN to_json({c.expect.format(c.name)}) END"
        for c in columns
    )
    cursor.execute(f"SELECT id, json_build_array({parts})::text FROM {name}")
    names = [c.name for c in columns]
    return {row: dict(zip(names, json.loads(values))) for row, values in cursor.fetchall()}


def lineitem_columns():
    """lineitem with an id, described like the columns of the types table."""
    expect = {"bigint": types.CAST, "int": types.CAST, "numeric": types.CAST,
              "date": types.DAYS, "char": types.TEXT, "varchar": types.CAST}  # fmt: skip
    arrow = {"bigint": "int64", "int": "int32", "numeric": "decimal128(15, 2)",
             "date": "date32[day]", "char": "string", "varchar": "string"}  # fmt: skip
    kinds = ("bigint int int int numeric numeric numeric numeric char char date date date "
             "char char varchar").split()  # fmt: skip
    names = ("orderkey partkey suppkey linenumber quantity extendedprice discount tax returnflag "
             "linestatus shipdate commitdate receiptdate shipinstruct shipmode comment").split()
    return [
        types.Column("l_" + name, kind, arrow[kind], expect[kind])
        for name, kind in zip(names, kinds)
    ]


def shuffle(cursor, table, target, partitions=5, **options):
    given = "".join(f", {name} => {value!r}" for name, value in options.items())
    cursor.execute(
        f"SELECT sum(rows) FROM shuffle_write('SELECT * FROM {table}', '{target}', "
        f"partitions => {partitions}, keys => '{{id}}', if_exists => 'replace'{given})"
    )
    return cursor.fetchone()[0]


# ---------------------------------------------------------------- tests


def compare_files(cursor, target, reader, columns, expected):
    files = segment_files(cursor, target)
    if not files:
        return "no segment file"
    got = {}
    for path in files:
        part = canon.rows_by_id(read_file(reader, path), [c.name for c in columns])
        if got.keys() & part.keys():
            return f"{path}: ids that another file has too"
        got.update(part)
    return canon.difference(expected, got)


def compare_streams(cursor, target, partitions, reader, columns, expected):
    """Partition by partition, then two at once, then all."""
    names = [c.name for c in columns]
    got = {}
    for partition in range(partitions):
        part = canon.rows_by_id(
            read_stream(reader, fetch_stream(cursor, target, partition)), names
        )
        cursor.execute(
            "SELECT id FROM generate_series(0, (SELECT max(i) FROM unnest(%s::int[]) i)) id"
            " WHERE satisfies_hash_partition('by_id'::regclass, %s, %s, id)",
            [list(expected), partitions, partition],
        )
        belongs = {row for (row,) in cursor.fetchall()} & expected.keys()
        if set(part) != belongs:
            return f"partition {partition} has other rows than the server's hash partition"
        got.update(part)
    wrong = canon.difference(expected, got)
    if wrong:
        return wrong
    everything = read_stream(reader, fetch_stream(cursor, target, *range(partitions)))
    return canon.difference(expected, canon.rows_by_id(everything, names))


def compare_schema(cursor, target, columns, special):
    schema = pyarrow.ipc.open_file(segment_files(cursor, target)[0]).schema
    for column in columns:
        got = schema.field(column.name)
        expected = special.get(column.name, column.arrow)
        # readers print the child of a list as "item: " or "element: "
        text = str(got.type).replace("item: ", "").replace("element: ", "")
        if not text.startswith(expected) if column.name in special else text != expected:
            return f"{column.name}: expected {expected}, got {text}"
    return None


def check_messages(cursor, target, partitions):
    """Partition and checksum in each record batch message, from the bytes of the file."""
    seen = 0
    for path in segment_files(cursor, target):
        with open(path, "rb") as file:
            data = file.read()
        if data[:8] != b"ARROW1\0\0" or data[-6:] != b"ARROW1":
            return f"{path}: magic"
        reader = pyarrow.ipc.open_file(pyarrow.py_buffer(data))
        blocks = {}
        at = 8
        while data[at : at + 8] != b"\xff\xff\xff\xff\0\0\0\0":
            message = pyarrow.ipc.read_message(pyarrow.py_buffer(data)[at:])
            size = 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            body = message.body.size if message.body is not None else 0
            if message.type == "record batch":
                blocks[at] = data[at : at + size + body]
            at += size + body
        if len(blocks) != reader.num_record_batches:
            return f"{path}: {len(blocks)} messages, {reader.num_record_batches} in the footer"
        for i, block in enumerate(blocks.values()):
            batch, metadata = reader.get_batch_with_custom_metadata(i)
            partition = int(metadata[b"shuffle:partition"])
            digits = metadata[b"shuffle:crc32c"]
            cursor.execute(
                "SELECT count(*) FROM unnest(%s::int[]) id"
                " WHERE NOT satisfies_hash_partition('by_id'::regclass, %s, %s, id)",
                [batch.column("id").to_pylist(), partitions, partition],
            )
            if cursor.fetchone()[0] != 0:
                return f"{path}: block {i} holds rows of another partition than {partition}"
            if block.count(digits) != 1:
                return f"{path}: block {i}: the digits of its checksum are not unique"
            # over flatbuffer and body, without the eight bytes before the flatbuffer
            if crc32c(block[8:].replace(digits, b"00000000")) != int(digits, 16):
                return f"{path}: block {i}: checksum"
            seen += 1
    return None if seen else "no block"


def check_index(cursor, target):
    """Every extent of shuffle_index, read from its file at its offset, is what it says."""
    cursor.execute(f"SELECT * FROM shuffle_index WHERE relation = '{target}'::regclass")
    names = [column.name for column in cursor.description]
    rows = [dict(zip(names, row)) for row in cursor.fetchall()]
    if not rows:
        return "no row in shuffle_index"
    data = cursor.execute("SELECT current_setting('data_directory')").fetchone()[0]
    for row in rows:
        path = os.path.join(data, row["path"])
        with open(path, "rb") as file:
            reader = pyarrow.ipc.open_file(path)
            file.seek(row["byte_offset"])
            extent = pyarrow.py_buffer(file.read(row["bytes"]))
        at = blocks = count = 0
        while at < extent.size:
            message = pyarrow.ipc.read_message(extent[at:])
            at += 8 + int.from_bytes(extent[at + 4 : at + 8].to_pybytes(), "little")
            at += message.body.size if message.body is not None else 0
            count += pyarrow.ipc.read_record_batch(message, reader.schema).num_rows
            blocks += 1
        if (at, blocks, count) != (row["bytes"], row["blocks"], row["rows"]):
            return f"{row}: found {at} bytes, {blocks} blocks, {count} rows"
    return None


def check_inserted(cursor, reader, columns, expected):
    """Small INSERTs, whose blocks lie in the catalog, then more rows than fit there."""
    cursor.execute(
        "SELECT count(*) FROM shuffle_write('SELECT * FROM types_plain WHERE false',"
        " 'inserted_s', partitions => 5, keys => '{id}', if_exists => 'replace')"
    )
    for condition in ("id < 3", "id BETWEEN 3 AND 8", "id = 9", "id > 9"):
        cursor.execute(f"INSERT INTO inserted_s SELECT * FROM types_plain WHERE {condition}")
    return compare_streams(cursor, "inserted_s", 5, reader, columns, expected)


def check_altered(cursor, reader, columns, expected):
    """A stream has the table's columns, also of segments written before they changed."""
    cursor.execute("DROP TABLE IF EXISTS altered_s")
    shuffle(cursor, "lines", "altered_s")
    cursor.execute("ALTER TABLE altered_s ADD COLUMN extra int DEFAULT 7")
    cursor.execute("ALTER TABLE altered_s RENAME COLUMN l_tax TO tax")
    cursor.execute("ALTER TABLE altered_s DROP COLUMN l_comment")
    cursor.execute("INSERT INTO altered_s SELECT id + 100000, l_orderkey, l_partkey, l_suppkey,"
                   " l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag,"
                   " l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct,"
                   " l_shipmode, 8 FROM lines WHERE id <= 100")  # fmt: skip
    names = ["tax" if c.name == "l_tax" else c.name for c in columns if c.name != "l_comment"]
    wanted = {}
    for row, values in expected.items():
        values = [v for name, v in values.items() if name != "l_comment"]
        wanted[row] = dict(zip(names + ["extra"], values + ["7"]))
        if row <= 100:
            wanted[row + 100000] = dict(zip(names + ["extra"], values + ["8"]))
    table = read_stream(reader, fetch_stream(cursor, "altered_s", *range(5)))
    if table.column_names != ["id"] + names + ["extra"]:
        return f"columns {table.column_names}"
    return canon.difference(wanted, canon.rows_by_id(table, names + ["extra"]))


def check_empty(cursor, reader):
    cursor.execute("SELECT count(*) FROM shuffle_write('SELECT * FROM lines WHERE false', 'none_s',"
                   " partitions => 3, keys => '{id}', if_exists => 'replace')")  # fmt: skip
    if cursor.fetchone()[0] != 3:
        return "not one result row per partition"
    if segment_files(cursor, "none_s"):
        return "a file for no rows"
    table = read_stream(reader, fetch_stream(cursor, "none_s", 1))
    if table.num_rows != 0 or table.column_names[0] != "id" or table.num_columns != 17:
        return f"{table.num_rows} rows, columns {table.column_names}"
    return None


def check_no_columns(cursor, reader):
    """Rows without columns keep their number."""
    cursor.execute("SELECT sum(rows) FROM shuffle_write('SELECT FROM lines', 'bare_s',"
                   " partitions => 2, if_exists => 'replace')")  # fmt: skip
    written = cursor.fetchone()[0]
    rows = sum(
        pyarrow.ipc.open_file(path).get_batch(i).num_rows
        for path in segment_files(cursor, "bare_s")
        for i in range(pyarrow.ipc.open_file(path).num_record_batches)
    )
    return None if written == rows == 20000 else f"{written} written, {rows} in the files"


def main():
    tap = Tap()
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with psycopg.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS interop WITH (FORCE)")
        cursor.execute("CREATE DATABASE interop TEMPLATE template0 ENCODING 'UTF8'")
    connection = psycopg.connect(dbname="interop", autocommit=True)
    cursor = connection.cursor()
    cursor.execute("CREATE EXTENSION shuffle_ext")
    cursor.execute("CREATE TABLE by_id (id int) PARTITION BY HASH (id)")
    cursor.execute(types.SETUP)

    plain = types.COLUMNS
    full = types.COLUMNS + [types.INTERVAL]
    cursor.execute("SET datestyle = 'ISO'; SET timezone = 'UTC'; SET extra_float_digits = 1")
    make_types_table(cursor, "types_plain", plain)
    make_types_table(cursor, "types_full", full)
    expected_plain = expectation(cursor, "types_plain", plain)
    expected_full = expectation(cursor, "types_full", full)

    for script in ("lineitem_table.sql", "lineitem.sql"):
        with open(os.path.join(top, "test", script), encoding="utf-8") as file:
            text = file.read()
        for name, value in (("rows", 20000), ("first", 1), ("last", 20000)):
            for form in (f":{name}::", f":{name} "):
                text = text.replace(form, str(value) + form[len(name) + 1 :])
        cursor.execute(text)
    cursor.execute(
        "CREATE TABLE lines AS SELECT (row_number() OVER ())::int AS id, l.* FROM lineitem l"
    )
    lines = lineitem_columns()
    expected_lines = expectation(cursor, "lines", lines)

    # What is stored must not depend on how this session writes dates and numbers.
    cursor.execute(
        "SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Tokyo'; SET intervalstyle = 'iso_8601';"
        "SET bytea_output = 'escape'; SET extra_float_digits = 0"
    )

    for layout in LAYOUTS:
        for codec in CODECS:
            name = f"{layout}, {codec}"
            shuffle(cursor, "types_plain", "types_s", layout=layout, codec=codec)
            shuffle(cursor, "lines", "lines_s", layout=layout, codec=codec)
            for reader in READERS:
                tap.check(f"{name}: {reader}, files, every type", compare_files,
                          cursor, "types_s", reader, plain, expected_plain)  # fmt: skip
                tap.check(f"{name}: {reader}, files, lineitem", compare_files,
                          cursor, "lines_s", reader, lines, expected_lines)  # fmt: skip
            for reader in STREAM_READERS:
                tap.check(f"{name}: {reader}, streams, every type", compare_streams,
                          cursor, "types_s", 5, reader, plain, expected_plain)  # fmt: skip
            tap.check(f"{name}: partition and checksum of every block", check_messages,
                      cursor, "types_s", 5)  # fmt: skip
            tap.check(f"{name}: offset index", check_index, cursor, "lines_s")

        shuffle(cursor, "types_full", "full_s", layout=layout)
        for reader in ("pyarrow", "DuckDB", "DataFusion"):
            tap.check(f"{layout}: {reader}, files, interval", compare_files,
                      cursor, "full_s", reader, full, expected_full)  # fmt: skip
        for reader in ("pyarrow", "DuckDB"):
            tap.check(f"{layout}: {reader}, streams, interval", compare_streams,
                      cursor, "full_s", 5, reader, full, expected_full)  # fmt: skip
    tap.check("types => 'arrow': the Arrow types", compare_schema, cursor, "full_s", full, {})

    shuffle(cursor, "types_full", "ext_s", types="arrow_ext")
    tap.check("types => 'arrow_ext': the Arrow types", compare_schema,
              cursor, "ext_s", full, types.EXTENSIONS)  # fmt: skip
    for reader in ("pyarrow", "DataFusion"):
        tap.check(f"types => 'arrow_ext': {reader}", compare_files,
                  cursor, "ext_s", reader, full, expected_full)  # fmt: skip

    # Blocks of 4 rows in 5,000 partitions, and one row in most of 300 files.
    shuffle(cursor, "lines", "many_s", partitions=5000)
    for reader in READERS:
        tap.check(f"5000 partitions: {reader}", compare_files,
                  cursor, "many_s", reader, lines, expected_lines)  # fmt: skip
    tap.check("5000 partitions: offset index", check_index, cursor, "many_s")
    shuffle(cursor, "types_plain", "files_s", partitions=300, layout="partition_files")
    for reader in READERS:
        tap.check(f"300 partition files: {reader}", compare_files,
                  cursor, "files_s", reader, plain, expected_plain)  # fmt: skip

    for reader in STREAM_READERS:
        tap.check(f"INSERT: {reader}", check_inserted, cursor, reader, plain, expected_plain)
        tap.check(f"ALTER TABLE: {reader}", check_altered, cursor, reader, lines, expected_lines)
        tap.check(f"no rows: {reader}", check_empty, cursor, reader)
    tap.check("no columns: pyarrow", check_no_columns, cursor, "pyarrow")
    tap.finish()


if __name__ == "__main__":
    main()
