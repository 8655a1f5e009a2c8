# Many small writes: eight sessions that insert single rows, and tables that come and go.
#
# MANY_WRITERS_ROWS (10,000 in full size) is how many rows each session inserts,
# MANY_WRITERS_TABLES (1,000) how many tables are written and dropped.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $sessions = 8;
my $rows = $ENV{MANY_WRITERS_ROWS} // 500;
my $tables = $ENV{MANY_WRITERS_TABLES} // 100;

my $node = new_node('many_writers', 'fsync = off', 'autovacuum = off', 'max_connections = 30');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

# ------------------------------------------------------------------ tables that come and go

$sql->('CREATE TABLE source AS SELECT i, md5(i::text) AS t FROM generate_series(1, 1000) i');
$sql->(q{CREATE PROCEDURE come_and_go(n int) LANGUAGE plpgsql AS $$
	BEGIN
		SET LOCAL client_min_messages = warning;
		FOR i IN 1 .. n LOOP
			PERFORM shuffle_write('TABLE source', 'target', partitions => 8, keys => '{i}');
			COMMIT;
			DROP TABLE target;
			COMMIT;
		END LOOP;
	END $$});
my $heap = q{SELECT pg_relation_size(oid) + pg_relation_size(reltoastrelid)
	FROM pg_class WHERE oid = 'shuffle_segment'::regclass};
my $index = q{SELECT pg_indexes_size('shuffle_segment')};
my $round = sub {
	$sql->("CALL come_and_go($_[0])");
	# a process that is about to end may hold back the horizon of the first one
	wait_for('VACUUM to empty shuffle_segment', sub {
		$sql->('VACUUM shuffle_segment');
		return $sql->($heap) eq '0';
	});
	$sql->('VACUUM pg_seclabel');
	return $sql->($index);
};

# A round has its rows in the index until its VACUUM, and pages that a VACUUM deletes are
# used again after the next one: two rounds make the pages that later ones have to do with.
my @sizes = map { $round->($tables / 4) } 1 .. 4;
nothing_left($node, "$tables tables written and dropped");
is($sql->('SELECT count(*) FROM pg_seclabel'), '0', 'no label is left');
cmp_ok($sizes[3], '<=', $sizes[1] + 8192, "the catalog's index does not grow: @sizes");
is($sql->($heap), '0', 'its heap is empty');
is($sql->('SELECT shuffle_sweep()'), '0', 'nothing to sweep');

# ------------------------------------------------------------------ single rows

$sql->(q{CREATE TABLE single (session int, n int, note text) USING shuffle;
	SELECT shuffle_set('single', partitions => 4, keys => '{session}')});

my $script = $node->basedir . '/insert.sql';
append_to_file($script, "INSERT INTO single VALUES (:client_id, :n, 'row ' || :n);\n\\set n :n + 1\n");

# A reader sees whole transactions while rows come and while they are compacted.
my ($reader, $reader_error) = start_sql($node, q{
	DO $$
	DECLARE
		seen bigint := 0;
		now bigint;
	BEGIN
		LOOP
			SELECT count(*) INTO now FROM single;
			IF now < seen THEN RAISE EXCEPTION 'rows were lost: % after %', now, seen; END IF;
			seen := now;
			EXIT WHEN EXISTS (SELECT FROM pg_class WHERE relname = 'enough');
			PERFORM shuffle_compact('single') WHERE random() < 0.1;
			COMMIT;
			PERFORM pg_sleep(0.02);
		END LOOP;
	END $$});
command_ok([ 'pgbench', '-n', '-c', $sessions, '-j', 2, '-t', $rows, '-D', 'n=1', '-f', $script,
		$node->connstr('postgres') ],
	"$sessions sessions insert $rows rows each");
$sql->('CREATE TABLE enough ()');
$reader->finish;
is($$reader_error, '', 'a session that reads and compacts meanwhile loses none');

is($sql->('SELECT count(*), count(DISTINCT (session, n)), min(n), max(n) FROM single'),
	join('|', $sessions * $rows, $sessions * $rows, 1, $rows), 'all rows are there, once');
is($sql->(q{SELECT count(*) FROM single WHERE note <> 'row ' || n}), '0', 'and sound');
$sql->(q{SELECT shuffle_compact('single')});
cmp_ok($sql->(q{SELECT count(*) FROM shuffle_segments WHERE relation = 'single'::regclass}),
	'<', 100, 'few segments after shuffle_compact');
is($sql->('SELECT count(*), count(DISTINCT (session, n)) FROM single'),
	join('|', $sessions * $rows, $sessions * $rows), 'and the same rows');
$sql->('VACUUM single');
is(shuffle_files($node),
	$sql->(q{SELECT coalesce(sum(files), 0) FROM shuffle_segments WHERE relation = 'single'::regclass}),
	'VACUUM leaves the files of the compacted table only');
$sql->('DROP TABLE single, enough');
nothing_left($node, 'dropped');

done_testing();
