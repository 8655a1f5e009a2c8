# Compaction, VACUUM FULL and SET TABLESPACE: files that old snapshots need stay, others go;
# a crash or a rollback in the middle loses nothing and leaves nothing behind.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('rewrite', 'max_prepared_transactions = 5', 'autovacuum = off',
	'restart_after_crash = on');
my $location = $node->basedir . '/elsewhere';
mkdir $location or die "could not create $location: $!";
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$location'");

# Rows wide enough to be in files, in ten segments.
my $append = q{SELECT count(*) FROM shuffle_write(
	'SELECT %d * 5000 + i AS id, md5(i::text) || md5((i + %d)::text) AS filler FROM generate_series(0, 4999) i',
	'target', keys => '{id}', partitions => 4, if_exists => 'append')};
$node->safe_psql('postgres', join(';', map { sprintf($append, $_, $_) } 0 .. 9));
my $sum = q{SELECT count(*), sum(id), md5(string_agg(filler, NULL ORDER BY id)) FROM target};
my $expected = $node->safe_psql('postgres', $sum);
like($expected, qr/^50000\|1249975000\|/, 'ten segments of rows');
is(scalar(shuffle_files($node)), 10, 'in ten files');

# A rollback, of a whole compaction or to a savepoint, leaves nothing.
my @before = shuffle_files($node);
my $compact = q{SELECT segments_before, segments_after, rows FROM shuffle_compact('target')};
$node->safe_psql('postgres', "BEGIN; $compact; ROLLBACK");
is_deeply([ shuffle_files($node) ], \@before, 'compaction rolled back: no file is left');
$node->safe_psql('postgres', "BEGIN; SAVEPOINT s; $compact; ROLLBACK TO s; COMMIT");
is_deeply([ shuffle_files($node) ], \@before, 'rolled back to a savepoint: no file is left');
is($node->safe_psql('postgres', $sum), $expected, 'and the rows are the same');

# A snapshot that is older keeps the old files readable; VACUUM takes them afterwards.
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$reader->query_safe('SELECT count(*) FROM pg_class');
is($node->safe_psql('postgres', $compact), '10|1|50000', 'ten segments become one');
is(scalar(shuffle_files($node)), 11, 'the old files are still there');
is($node->safe_psql('postgres', $sum), $expected, 'a new snapshot reads the new segment');
my ($code, $out, $err) = $node->psql('postgres', 'VACUUM (VERBOSE) target');
like($err, qr/removed 0 segment files, 50000 rows in 1 segments/, 'VACUUM leaves the old files');
like($err, qr/50000 dead rows are in segments that a snapshot may still need/, 'and says why');
$node->safe_psql('postgres', 'SELECT shuffle_sweep()');
is($reader->query_safe($sum), $expected, 'the old snapshot reads the old files, after sweeps');
$reader->query_safe('COMMIT');
$reader->quit;
($code, $out, $err) = $node->psql('postgres', 'VACUUM (VERBOSE) target');
like($err, qr/removed 10 segment files/, 'then VACUUM removes them');
is(scalar(shuffle_files($node)), 1, 'one file is left');
is($node->safe_psql('postgres', $sum), $expected, 'with all rows');

# shuffle_sweep and the next compaction do the same.
$node->safe_psql('postgres', sprintf($append, 10, 10) . ';' . sprintf($append, 11, 11));
is($node->safe_psql('postgres', $compact), '3|2|10000', 'two of three segments become one');
is($node->safe_psql('postgres', 'SELECT shuffle_sweep()'), '2', 'shuffle_sweep removes two files');
$node->safe_psql('postgres', sprintf($append, 12, 12) . ';' . $compact);
$node->safe_psql('postgres', $compact);
is(scalar(shuffle_files($node)), $node->safe_psql('postgres', 'SELECT sum(files) FROM shuffle_segments'),
	'a compaction removes what the one before has left');
$expected = $node->safe_psql('postgres', $sum);

# A crash in the middle: the backend waits for a lock on its way.
sub crash_during
{
	my ($what, $sql) = @_;
	my @files = shuffle_files($node);
	my ($harness) = start_sql($node, "LOAD 'shuffle_ext'; BEGIN; $sql; SELECT pg_sleep(600)");

	wait_for("the files of $what", sub { shuffle_files($node) > @files });
	wait_for(
		"the end of $what",
		sub {
			$node->safe_psql('postgres',
				q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) == 1;
		});
	# or recovery would not know the transaction's id, and the next one might get it
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->stop('immediate');
	$harness->finish;
	$node->start;
	is($node->safe_psql('postgres', $sum), $expected, "$what: the rows survive a crash");
	cmp_ok(scalar(shuffle_files($node)), '>', scalar(@files), "$what: the crash left files");
	$node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next'); DROP TABLE next});
	is_deeply([ shuffle_files($node) ], \@files, "$what: the next writer sweeps them");
	is($node->safe_psql('postgres', $sum), $expected, "$what: and keeps the others");
	return;
}

$node->safe_psql('postgres', join(';', map { sprintf($append, $_, $_) } 13 .. 15));
$expected = $node->safe_psql('postgres', $sum);
crash_during('compaction', $compact);
crash_during('SET TABLESPACE', 'ALTER TABLE target SET TABLESPACE elsewhere');
crash_during('a rewrite', 'ALTER TABLE target ALTER COLUMN id TYPE numeric');

# Right after the commit.
$node->safe_psql('postgres', $compact);
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', $sum), $expected, 'a crash after the compaction loses nothing');
$node->safe_psql('postgres', 'VACUUM target');
is(scalar(shuffle_files($node)), $node->safe_psql('postgres', 'SELECT sum(files) FROM shuffle_segments'),
	'VACUUM removes the old files after a crash, too');

# SET TABLESPACE: rolled back, prepared, committed.
@before = shuffle_files($node);
$node->safe_psql('postgres', 'BEGIN; ALTER TABLE target SET TABLESPACE elsewhere; ROLLBACK');
is_deeply([ shuffle_files($node) ], \@before, 'SET TABLESPACE rolled back: no file is left');
$node->safe_psql('postgres',
	q{BEGIN; ALTER TABLE target SET TABLESPACE elsewhere; PREPARE TRANSACTION 'move'});
$node->restart;
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'move'});
$node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next'); DROP TABLE next});
is_deeply([ shuffle_files($node) ], \@before, 'prepared and rolled back: no file is left');
$node->safe_psql('postgres',
	q{BEGIN; ALTER TABLE target SET TABLESPACE elsewhere; PREPARE TRANSACTION 'move'});
$node->safe_psql('postgres', q{COMMIT PREPARED 'move'});
is($node->safe_psql('postgres', $sum), $expected, 'prepared and committed: the rows are there');
$node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next'); DROP TABLE next});
is(scalar(shuffle_files($node)), scalar(@before), 'and only the new files');
$node->safe_psql('postgres', 'ALTER TABLE target SET TABLESPACE pg_default');
is($node->safe_psql('postgres', $sum), $expected, 'moved back: the rows are there');
is(scalar(shuffle_files($node)), scalar(@before), 'and only the new files');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_verify('target') WHERE error IS NOT NULL}),
	'0', 'they are sound');

# It moves files to where new ones go, also to another file system.
SKIP:
{
	skip 'no second file system', 5 unless -d '/dev/shm' && (stat '/dev/shm')[0] != (stat $node->data_dir)[0];
	my $outer = "/dev/shm/shuffle_test_$$";
	mkdir $outer or die "could not create $outer: $!";
	$node->append_conf('postgresql.conf', "shuffle_ext.directory = '$outer'");
	$node->reload;
	$node->safe_psql('postgres', q{
		SELECT count(*) FROM shuffle_write('SELECT i AS id FROM generate_series(1, 10000) i', 'files',
			partitions => 3, keys => '{id}', layout => 'partition_files');
		ALTER TABLE target SET TABLESPACE elsewhere});
	is_deeply([ shuffle_files($node) ], [], 'SET TABLESPACE copies files to another file system');
	is($node->safe_psql('postgres', $sum), $expected, 'with all rows');
	$node->append_conf('postgresql.conf', "shuffle_ext.directory = ''");
	$node->reload;
	$node->safe_psql('postgres', q{
		ALTER TABLE target SET TABLESPACE pg_default;
		ALTER TABLE files SET TABLESPACE elsewhere});
	is($node->safe_psql('postgres', $sum), $expected, 'and back');
	is($node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM files'), '10000|50005000',
		'also one file per partition');
	is_deeply([ shuffle_files($node, $outer) ], [], 'nothing is left there');
	$node->safe_psql('postgres', 'DROP TABLE files');
	system('rm', '-rf', $outer);
}

# VACUUM FULL leaves one segment, and the ages of the table advance with VACUUM.
$node->safe_psql('postgres', 'VACUUM FULL target');
is($node->safe_psql('postgres', $sum), $expected, 'VACUUM FULL keeps the rows');
is(scalar(shuffle_files($node)), 1, 'in one file');
my $age = q{SELECT age(relfrozenxid) FROM pg_class WHERE relname = 'target'};
$node->safe_psql('postgres', 'SELECT txid_current()') foreach 1 .. 20;
cmp_ok($node->safe_psql('postgres', $age), '>', 20, 'the table ages');
$node->safe_psql('postgres', 'VACUUM target');
cmp_ok($node->safe_psql('postgres', $age), '<', 3, 'and VACUUM makes it young');

# Autovacuum does all that by itself: rows that were moved count as dead.
$node->safe_psql('postgres', q{
	CREATE TABLE busy (id int, filler text) USING shuffle
	  WITH (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,
	        autovacuum_vacuum_insert_threshold = -1);
	SET shuffle_ext.inline_size = 0;
	INSERT INTO busy SELECT i, md5(i::text) FROM generate_series(1, 100) i;
	INSERT INTO busy SELECT i, md5(i::text) FROM generate_series(1, 100) i;
	SELECT shuffle_compact('busy');
});
is($node->safe_psql('postgres', q{SELECT n_live_tup, n_dead_tup, n_tup_ins, n_tup_upd
	FROM pg_stat_user_tables WHERE relname = 'busy'}), '200|200|200|200',
	'statistics count the rows that compaction has moved');
is(scalar(shuffle_files($node)), 4, 'their files are there');
$node->append_conf('postgresql.conf', "autovacuum = on\nautovacuum_naptime = 1");
$node->reload;
wait_for('autovacuum', sub { shuffle_files($node) == 2 });
is(scalar(shuffle_files($node)), 2, 'autovacuum removes them');
$node->poll_query_until('postgres', q{SELECT n_dead_tup = 0 AND n_live_tup = 200
	FROM pg_stat_user_tables WHERE relname = 'busy'})
  or fail('statistics after autovacuum');
$node->append_conf('postgresql.conf', 'autovacuum = off');
$node->reload;
$node->safe_psql('postgres', 'DROP TABLE busy');

# A database made from a template has no files: its tables say so, inline segments aside.
$node->safe_psql('postgres', q{
	CREATE DATABASE original;
});
$node->safe_psql('original', q{
	CREATE EXTENSION shuffle_ext;
	CREATE TABLE small (id int) USING shuffle;
	INSERT INTO small VALUES (1), (2);
	SELECT count(*) FROM shuffle_write('SELECT i FROM generate_series(1, 10000) i', 'large');
});
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE original');
is($node->safe_psql('copy', 'SELECT sum(id) FROM small'), '3', 'a copied database has its small segments');
($code, $out, $err) = $node->psql('copy', 'SELECT sum(i) FROM large');
like($err, qr/could not open file/, 'and says which files are missing');
$node->safe_psql('copy', 'TRUNCATE large; INSERT INTO large SELECT generate_series(1, 20000)');
is($node->safe_psql('copy', 'SELECT sum(i) FROM large'), '200010000', 'it can be written to');
is($node->safe_psql('original', 'SELECT sum(i) FROM large'), '50005000', 'the original is as it was');
my @all = shuffle_files($node);
$node->safe_psql('postgres', 'DROP DATABASE copy');
$node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next'); DROP TABLE next});
cmp_ok(scalar(shuffle_files($node)), '<', scalar(@all), 'files of a dropped database are swept');
is($node->safe_psql('original', 'SELECT sum(i) FROM large'), '50005000', 'the original still is as it was');

# A thousand writes and drops leave no file, no row, and no growth behind.
$node->safe_psql('postgres', q{
	DO $$
	BEGIN
		FOR i IN 1 .. 100 LOOP
			CREATE TABLE brief (id int) USING shuffle;
			INSERT INTO brief VALUES (i);
			PERFORM count(*) FROM shuffle_write('SELECT i FROM generate_series(1, 10) i', 'brief', if_exists => 'append');
			COMMIT;
			PERFORM shuffle_compact('brief');
			DROP TABLE brief;
			COMMIT;
		END LOOP;
	END $$;
	VACUUM shuffle_segment;
});
my $size = $node->safe_psql('postgres', q{SELECT pg_total_relation_size('shuffle_segment')});
foreach my $round (1 .. 9)
{
	$node->safe_psql('postgres', q{
		DO $$
		BEGIN
			FOR i IN 1 .. 100 LOOP
				PERFORM count(*) FROM shuffle_write('SELECT i FROM generate_series(1, 10) i', 'brief');
				COMMIT;
				DROP TABLE brief;
				COMMIT;
			END LOOP;
		END $$;
		VACUUM shuffle_segment;
	});
}
cmp_ok($node->safe_psql('postgres', q{SELECT pg_total_relation_size('shuffle_segment')}),
	'<=', $size, 'the catalog does not grow over 1,000 writes and drops');
is(scalar(shuffle_files($node)) - $node->safe_psql('original', 'SELECT coalesce(sum(files), 0) FROM shuffle_segment'),
	1, 'nor is a file left');

$node->stop;
done_testing();
