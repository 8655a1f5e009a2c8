# INSERT and COPY: whatever way their transaction ends, no file and no row is left too many
# or too few; prepared transactions; a crash; a subscriber's table.
use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node(
	'insert',
	'max_prepared_transactions = 5',
	'wal_level = logical',
	"shuffle_ext.memory_limit = '8MB'");    # files exist long before the end

my $sql = sub { return $node->safe_psql('postgres', @_) };

$sql->(q{
	CREATE TABLE source AS
	  SELECT i AS id, repeat(md5(i::text), 20) AS filler FROM generate_series(1, 50000) i;
	ANALYZE source;
	CREATE FUNCTION fails_at(id int, bad int) RETURNS int LANGUAGE sql IMMUTABLE
	  AS $$ SELECT id + 0 / (id - bad) $$;
	CREATE FUNCTION slowly(id int) RETURNS int LANGUAGE plpgsql VOLATILE
	  AS $$ BEGIN IF id % 50 = 0 THEN PERFORM pg_sleep(0.02); END IF; RETURN id; END $$;
	CREATE TABLE t (id int, filler text) USING shuffle;
	CREATE TABLE p (id int, filler text) PARTITION BY HASH (id);
	SELECT count(*) FROM shuffle_write('SELECT * FROM source LIMIT 0', 'h', partitions => 8,
	  keys => '{id}', layout => 'partition_files');
	-- Catches the error of a late row, and goes on.
	CREATE FUNCTION insert_and_fail(t regclass) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	  BEGIN
	    EXECUTE format('INSERT INTO %s SELECT fails_at(id, 49000), filler FROM source', t);
	  EXCEPTION WHEN division_by_zero THEN
	    RAISE NOTICE 'caught';
	  END; END $$;
});
$sql->("CREATE TABLE p$_ PARTITION OF p FOR VALUES WITH (MODULUS 4, REMAINDER $_) USING shuffle")
  foreach 0 .. 3;
my $file = abs_path($node->basedir) . "/source.copy";
$sql->("COPY source TO '$file'");
is($sql->('SELECT count(*) FROM t'), '0', 'the tables are empty');

foreach my $table ('t', 'p', 'h')
{
	my %statements = (
		'INSERT' => "INSERT INTO $table TABLE source",
		'COPY' => "COPY $table FROM '$file'");

	foreach my $name (sort keys %statements)
	{
		my $statement = $statements{$name};

		$sql->("BEGIN; $statement; ROLLBACK");
		nothing_left($node, "$name into $table, rollback");
		$sql->("BEGIN; SAVEPOINT a; $statement; ROLLBACK TO a; COMMIT");
		nothing_left($node, "$name into $table, rollback to a savepoint");
		$sql->("BEGIN; SAVEPOINT a; SAVEPOINT b; $statement; RELEASE b; ROLLBACK TO a; COMMIT");
		nothing_left($node, "$name into $table, rollback of a parent of the savepoint");
		$sql->("BEGIN; $statement; PREPARE TRANSACTION 'x'");
		$sql->("ROLLBACK PREPARED 'x'");
		is(segment_rows($node), '0', "$name into $table, prepared and rolled back: no row");
		$sql->('SELECT shuffle_sweep()');
		nothing_left($node, "$name into $table, prepared, rolled back and swept");
	}

	my ($status, $out, $err) = $node->psql('postgres',
		"INSERT INTO $table SELECT fails_at(id, 49000), filler FROM source");
	like($err, qr/division by zero/, "INSERT into $table fails");
	nothing_left($node, "INSERT into $table, error");

	($status, $out, $err) = $node->psql('postgres', "SELECT insert_and_fail('$table')");
	like($err, qr/caught/, "INSERT into $table fails in an exception block");
	nothing_left($node, "INSERT into $table, error caught");

	my ($harness, $stderr) = start_sql($node, "INSERT INTO $table SELECT slowly(id), filler FROM source");
	wait_for('a file of the running INSERT', sub { shuffle_files($node) > 0 });
	$node->safe_psql('postgres',
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
		  . "WHERE query LIKE '%slowly%' AND pid <> pg_backend_pid()");
	$harness->finish;
	like($$stderr, qr/terminating connection/, "INSERT into $table, terminated");
	wait_for('clean-up', sub { shuffle_files($node) == 0 });
	nothing_left($node, "INSERT into $table, terminated backend");
}

# Small writes have no file in the first place.
$sql->('BEGIN; INSERT INTO t VALUES (1); ROLLBACK');
$sql->("INSERT INTO t VALUES (1, 'small')");
is_deeply([ shuffle_files($node) ], [], 'a small INSERT makes no file');
$sql->("BEGIN; INSERT INTO t VALUES (2, 'prepared'); INSERT INTO t SELECT id, filler FROM source; "
	  . "PREPARE TRANSACTION 'x'");
is($sql->('SELECT count(*) FROM t'), '1', 'rows of a prepared transaction are not seen');
$node->stop('immediate');
$node->start;
is($sql->('SELECT count(*) FROM t'), '1', 'nor after a crash');
$sql->("COMMIT PREPARED 'x'");
is($sql->('SELECT count(*) FROM t'), '50002', 'but once it is committed');
is($sql->("SELECT count(*) FROM shuffle_verify('t') WHERE error IS NOT NULL"), '0', 'and they are sound');

# COPY row by row does not say when it ends; then a commit, and a crash.
$sql->("CREATE TABLE c (id int, r float8 DEFAULT random()) USING shuffle");
$sql->("COPY c (id) FROM PROGRAM 'seq 1 20000'");
is($sql->('SELECT count(*), count(r) FROM c'), '20000|20000', 'rows of COPY row by row are there');
my ($harness) = start_sql($node, 'INSERT INTO t SELECT slowly(id), filler FROM source');
my @files = shuffle_files($node);
wait_for('a file of the running INSERT', sub { shuffle_files($node) > @files });
$node->stop('immediate');
$harness->finish;
$node->start;
is($sql->('SELECT count(*) FROM t'), '50002', 'after a crash the rows committed before are there');
$sql->('INSERT INTO t TABLE source; SELECT shuffle_sweep()');
is(scalar(shuffle_files($node)), @files + 1, 'and the file of the lost INSERT is swept');
is($sql->('SELECT count(*), count(DISTINCT id) FROM t'), '100002|50000', 'and the table can be written');

# A subscriber's table: the apply worker inserts row by row and ends nothing.
my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;
$publisher->safe_psql('postgres', q{
	CREATE TABLE r (id int PRIMARY KEY, filler text);
	INSERT INTO r SELECT i, 'copied' FROM generate_series(1, 1000) i;
	CREATE PUBLICATION pub FOR TABLE r;
});
$sql->('CREATE TABLE r (id int, filler text) USING shuffle');
$sql->("CREATE SUBSCRIPTION sub CONNECTION '" . $publisher->connstr . " dbname=postgres' PUBLICATION pub");
wait_for('the initial copy', sub { $sql->('SELECT count(*) FROM r') eq '1000' });
$publisher->safe_psql('postgres', q{
	BEGIN;
	INSERT INTO r SELECT i, 'applied' FROM generate_series(1001, 1500) i;
	SAVEPOINT a;
	INSERT INTO r SELECT i, 'gone' FROM generate_series(2001, 2500) i;
	ROLLBACK TO a;
	INSERT INTO r VALUES (3000, 'last');
	COMMIT;
});
wait_for('the changes', sub { $sql->('SELECT count(*) FROM r WHERE id = 3000') eq '1' });
is($sql->("SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE filler = 'applied') FROM r"),
	'1501|1501|500', 'a shuffle table can be subscribed to');
cmp_ok($sql->("SELECT count(*) FROM shuffle_segments WHERE relation = 'r'::regclass"),
	'<=', 4, 'and rows of a transaction share a segment');
$publisher->safe_psql('postgres', q{
	BEGIN;
	INSERT INTO r SELECT i, 'one' FROM generate_series(4001, 4010) i;
	ALTER TABLE r ADD COLUMN extra int;
	INSERT INTO r SELECT i, 'two', i FROM generate_series(4011, 4020) i;
	COMMIT;
}) if $sql->('ALTER TABLE r ADD COLUMN extra int; SELECT 1');
wait_for('the changes', sub { $sql->('SELECT count(*) FROM r WHERE id = 4020') eq '1' });
is($sql->('SELECT count(*), count(extra), min(extra) FROM r WHERE id > 4000'), '20|10|4011',
	'with a column that is added in between');
$sql->('DROP SUBSCRIPTION sub');
$publisher->stop;

$node->stop;
done_testing();
