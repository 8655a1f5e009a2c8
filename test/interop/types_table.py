"""Columns of every type in the type table: edge values, the Arrow type they must have,
and an SQL expression that says, independently of shuffle_ext, what a value is.

The expression gives JSON made of text, lists, objects and null; canon.py brings Arrow
values into the same form.
"""

from dataclasses import dataclass, field


@dataclass
class Column:
    name: str
    type: str  # PostgreSQL
    arrow: str  # as pyarrow prints the type
    expect: str  # SQL; {0} is the value
    values: list = field(default_factory=list)  # as text; None is NULL


TEXT = "concat({0})"  # through the output function, so that char(n) keeps its padding
CAST = "{0}::text"
FLOAT = "CASE WHEN {0} = 'NaN' THEN 'nan' ELSE encode(float8send({0}), 'hex') END"
EPOCH_US = "(extract(epoch FROM {0}) * 1000000)::bigint::text"
DAYS = "({0} - date '1970-01-01')::text"
MONTHS_DAYS_US = (
    "concat((extract(year FROM {0}) * 12 + extract(month FROM {0}))::bigint, ' ',"
    " extract(day FROM {0})::bigint, ' ', (extract(hour FROM {0}) * 3600000000"
    " + extract(minute FROM {0}) * 60000000 + extract(microseconds FROM {0}))::bigint)"
)


def list_of(element):
    """Expectation of an array whose elements have this one."""
    return (
        "coalesce((SELECT json_agg(CASE WHEN ({0})[o] IS DISTINCT FROM NULL THEN to_json("
        + element.format("({0})[o]")
        + ") END ORDER BY o) FROM generate_subscripts({0}, 1) o), '[]')"
    )


def struct_of(**fields):
    pairs = (
        f"'{name}', CASE WHEN ({{0}}).{name} IS DISTINCT FROM NULL THEN "
        f"to_json({expect.format('({0}).' + name)}) END"
        for name, expect in fields.items()
    )
    return "json_build_object(" + ", ".join(pairs) + ")"


SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'ein wenig müde');
CREATE TYPE pair AS (a int, b text);
CREATE TYPE deep AS (n numeric(20,4), pairs pair[], t timestamptz, inner_pair pair);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN short_list AS int[] CHECK (cardinality(VALUE) < 9);
"""

PAIR = struct_of(a=CAST, b=CAST)
BIG = "x" * 70000

COLUMNS = [
    Column("c_bool", "bool", "bool", CAST, ["t", "f"]),
    Column("c_int2", "int2", "int16", CAST, ["-32768", "0", "32767"]),
    Column("c_int4", "int4", "int32", CAST, ["-2147483648", "-1", "0", "2147483647"]),
    Column(
        "c_int8",
        "int8",
        "int64",
        CAST,
        ["-9223372036854775808", "0", "1", "9223372036854775807"],
    ),
    Column(
        "c_float4",
        "float4",
        "float",
        FLOAT,
        ["0", "-0", "1.5", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38"],
    ),
    Column(
        "c_float8",
        "float8",
        "double",
        FLOAT,
        ["0", "-0", "0.1", "NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e308"],
    ),
    Column("c_oid", "oid", "uint32", CAST, ["0", "1", "4294967295"]),
    Column("c_xid", "xid", "uint32", CAST, ["3", "4294967295"]),
    Column("c_cid", "cid", "uint32", CAST, ["0", "4294967295"]),
    Column("c_regclass", "regclass", "uint32", "{0}::oid::text", ["pg_class", "pg_type", "-"]),
    Column("c_regtype", "regtype", "uint32", "{0}::oid::text", ["int4", "text"]),
    Column(
        "c_money",
        "money",
        "int64",
        "({0}::numeric * 100)::bigint::text",
        ["0", "-12.34", "92233720368547758.07", "-92233720368547758.08"],
    ),
    Column(
        "c_date",
        "date",
        "date32[day]",
        DAYS,
        ["1970-01-01", "1969-12-31", "2000-02-29", "0001-01-01", "9999-12-31"],
    ),
    Column(
        "c_timestamp",
        "timestamp",
        "timestamp[us]",
        EPOCH_US,
        [
            "1970-01-01 00:00:00",
            "1969-12-31 23:59:59.999999",
            "2026-02-28 12:34:56.789012",
            "0001-01-01 00:00:00",
            "9999-12-31 23:59:59.999999",
        ],
    ),
    Column(
        "c_timestamptz",
        "timestamptz",
        "timestamp[us, tz=UTC]",
        EPOCH_US,
        ["1970-01-01 00:00:00+00", "2026-06-30 23:59:59.999999-11:30", "1900-01-01 00:00:00+14"],
    ),
    Column(
        "c_time",
        "time",
        "time64[us]",
        EPOCH_US,
        ["00:00:00", "00:00:00.000001", "12:00:00", "23:59:59.999999"],
    ),
    Column(
        "c_numeric",
        "numeric(15,2)",
        "decimal128(15, 2)",
        CAST,
        ["0", "0.01", "-0.01", "1234.50", "9999999999999.99", "-9999999999999.99"],
    ),
    Column(
        "c_numeric38",
        "numeric(38,10)",
        "decimal128(38, 10)",
        CAST,
        [
            "0",
            "9" * 28 + "." + "9" * 10,
            "-" + "9" * 28 + "." + "9" * 10,
            "0.0000000001",
            "18446744073709551616",
            "-9223372036854775809.5",
        ],
    ),
    Column(
        "c_numeric5_5", "numeric(5,5)", "decimal128(5, 5)", CAST, ["0.99999", "-0.00001", "0.1"]
    ),
    Column(
        "c_numeric38_0", "numeric(38,0)", "decimal128(38, 0)", CAST, ["9" * 38, "-1", "10000"]
    ),
    Column(
        "c_numeric_free",
        "numeric",
        "string",
        CAST,
        ["0", "NaN", "Infinity", "-Infinity", "1e100", "0.000", "-12345678901234567890.5"],
    ),
    Column("c_numeric_wide", "numeric(50,3)", "string", CAST, ["1", "9" * 47 + ".125"]),
    Column("c_numeric_neg", "numeric(5,-2)", "string", CAST, ["12345", "-100"]),
    Column("c_text", "text", "string", CAST, ["", "a", "ü€𝄞", "tab\tand\nline", BIG]),
    Column("c_varchar", "varchar(44)", "string", CAST, ["", "  blanks  ", "äöü"]),
    Column("c_char", "char(25)", "string", TEXT, ["", "abc", "ü", " lead"]),
    Column("c_char1", "char(1)", "string", TEXT, ["", "x", "ß"]),
    Column("c_name", "name", "string", CAST, ["pg_catalog", "", "n" * 63]),
    Column(
        "c_json", "json", "string", CAST, ["null", '{"b": 1,  "a": [1, 2.50]}', '"\\u00fc"']
    ),
    Column("c_jsonb", "jsonb", "string", CAST, ["null", '{"b": 1, "a": [1, 2.50]}', '"ü"']),
    Column("c_xml", "xml", "string", CAST, ["<a/>", "<a>text &amp; more</a>"]),
    Column(
        "c_bytea",
        "bytea",
        "binary",
        "encode({0}, 'hex')",
        ["\\x", "\\x00ff00", "\\x" + "ab" * 3000],
    ),
    Column(
        "c_uuid",
        "uuid",
        "fixed_size_binary[16]",
        "replace({0}::text, '-', '')",
        ["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    ),
    Column("c_enum", "mood", "string", CAST, ["sad", "happy", "ein wenig müde"]),
    Column("c_domain", "positive", "int32", CAST, ["1", "2147483647"]),
    Column(
        "c_int_list",
        "int[]",
        "list<int32>",
        list_of(CAST),
        ["{}", "{1}", "{1,NULL,-2147483648}", "{" + ",".join(map(str, range(500))) + "}"],
    ),
    Column(
        "c_text_list", "text[]", "list<string>", list_of(CAST), ["{}", '{"",NULL,"a,b"}', "{ü}"]
    ),
    Column("c_bool_list", "bool[]", "list<bool>", list_of(CAST), ["{t,f,NULL}", "{}", "{f}"]),
    Column(
        "c_numeric_list",
        "numeric(10,3)[]",
        "list<decimal128(10, 3)>",
        list_of(CAST),
        ["{0.001,NULL,-1234567.891}", "{}"],
    ),
    Column(
        "c_tz_list",
        "timestamptz[]",
        "list<timestamp[us, tz=UTC]>",
        list_of(EPOCH_US),
        ["{2026-01-01 00:00:00+01,NULL}"],
    ),
    Column(
        "c_uuid_list",
        "uuid[]",
        "list<fixed_size_binary[16]>",
        list_of("replace({0}::text, '-', '')"),
        ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}", "{}"],
    ),
    Column("c_domain_list", "short_list", "list<int32>", list_of(CAST), ["{}", "{1,2,NULL}"]),
    Column(
        "c_pair",
        "pair",
        "struct<a: int32, b: string>",
        PAIR,
        ['(1,"x y")', "(,)", '(,"")', "(-5,)"],
    ),
    Column(
        "c_pair_list",
        "pair[]",
        "list<struct<a: int32, b: string>>",
        list_of(PAIR),
        ["{}", '{"(1,a)",NULL,"(,)"}', '{"(2,\\"b c\\")"}'],
    ),
    Column(
        "c_deep",
        "deep",
        "struct<n: decimal128(20, 4), pairs: list<struct<a: int32, b: string>>, "
        "t: timestamp[us, tz=UTC], inner_pair: struct<a: int32, b: string>>",
        struct_of(n=CAST, pairs=list_of(PAIR), t=EPOCH_US, inner_pair=PAIR),
        [
            '(1.5,"{""(1,a)"",NULL}","2026-01-01 00:00:00+00","(7,q)")',
            "(,,,)",
            '(-0.0001,"{}",,"(,)")',
        ],
    ),
    Column("c_inet", "inet", "string", TEXT, ["127.0.0.1", "10.0.0.0/8", "::1/128"]),
    Column("c_cidr", "cidr", "string", TEXT, ["10.0.0.0/8", "::/0"]),
    Column("c_macaddr", "macaddr", "string", TEXT, ["08:00:2b:01:02:03"]),
    Column("c_bit", "bit(5)", "string", TEXT, ["10101"]),
    Column("c_varbit", "varbit", "string", TEXT, ["", "1"]),
    Column("c_timetz", "timetz", "string", TEXT, ["12:00:00+05:30", "23:59:59.999999-08"]),
    Column("c_tsvector", "tsvector", "string", TEXT, ["'a':1 'b':2", ""]),
    Column("c_point", "point", "string", TEXT, ["(0.1,-2)", "(1e300,NaN)"]),
    Column("c_int4range", "int4range", "string", TEXT, ["empty", "[1,10)", "(,)"]),
    Column(
        "c_tstzrange",
        "tstzrange",
        "string",
        TEXT,
        ["[2026-01-01 00:00:00+01,2026-01-02 00:00:00+01)", "(,infinity]"],
    ),
    Column("c_pg_lsn", "pg_lsn", "string", TEXT, ["16/B374D848", "0/0"]),
]

# Polars refuses files with it, so it has a table of its own.
INTERVAL = Column(
    "c_interval",
    "interval",
    "month_day_nano_interval",
    MONTHS_DAYS_US,
    [
        "0",
        "1 year 2 mons -3 days",
        "-04:05:06.789012",
        "178 years 11 mons 30 days 23:59:59.999999",
        "100000:00:00",
    ],
)

# With types => 'arrow_ext' these are extension types over the same storage.
EXTENSIONS = {
    "c_uuid": "extension<arrow.uuid>",
    "c_json": "extension<arrow.json>",
    "c_jsonb": "extension<arrow.json>",
    "c_uuid_list": "list<extension<arrow.uuid>>",
}
