# Progress of a compaction and of a load, as another session sees it.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('progress');

# Slow to compress: there is time to look at it.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE target (i int, t text) USING shuffle;
	INSERT INTO target SELECT i, md5(i::text) || md5((i + 1)::text) FROM generate_series(1, 200000) i;
	INSERT INTO target SELECT i, md5(i::text) || md5((i + 1)::text) FROM generate_series(1, 200000) i;
	SELECT shuffle_set('target', codec => 'zstd:19');
	CREATE VIEW seen AS SELECT operation, relation, rows, bytes, expected_rows, percent, processes,
	  rows BETWEEN 1 AND expected_rows AND percent = round(100.0 * rows / expected_rows, 1) AS good
	  FROM shuffle_progress;
});

my ($harness, $stderr) =
  start_sql($node, "SELECT shuffle_compact('target')");
my $seen;
wait_for('a compaction under way',
	sub { $seen = $node->safe_psql('postgres', 'SELECT operation, relation, expected_rows, processes, good FROM seen WHERE rows > 0') });
is($seen, 'compact|target|400000|1|t', 'a compaction knows how far it is');
my $pid = $node->safe_psql('postgres', 'SELECT pid FROM shuffle_progress');
my ($before) = split /\n/, $node->safe_psql('postgres', 'SELECT rows FROM shuffle_progress');
wait_for('it going on', sub {
	my $rows = $node->safe_psql('postgres', 'SELECT sum(rows) FROM shuffle_progress');
	return $rows eq '' || $rows > ($before || 0);
});
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)") if $pid ne '';
$harness->finish;
is($node->safe_psql('postgres', 'SELECT count(*) FROM shuffle_progress'), '0', 'nothing runs after it');

# A worker whose rows are written goes, and what it has done remains counted: one sleeps over
# the first row while the other writes nearly all.
$node->safe_psql('postgres',
	'CREATE TABLE source AS SELECT i FROM generate_series(1, 400000) i; ANALYZE source');
($harness, $stderr) = start_sql($node, q{
	SET parallel_leader_participation = off;
	SELECT count(*) FROM shuffle_write('SELECT i, CASE WHEN i = 1 THEN pg_sleep(60) IS NOT NULL END AS slept FROM source',
	  'by_two', partitions => 4, workers => 2)});
wait_for('the rows of a worker that is done', sub {
	$seen = $node->safe_psql('postgres', q{
		SELECT pid FROM shuffle_progress WHERE rows BETWEEN 200000 AND 400000
		AND (SELECT count(*) FROM pg_stat_activity WHERE leader_pid = shuffle_progress.pid) = 1});
	return $seen ne '';
});
isnt($seen, '', 'rows of a worker that is done remain counted');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($seen)") if $seen ne '';
$harness->finish;

# A COPY that waits for its client: rows are counted as they come.
($harness, $stderr) = start_sql($node,
	q{COPY target FROM PROGRAM 'seq -f "%.0f	text" 1 300000; sleep 2; seq -f "%.0f	text" 1 100000; sleep 2'});
wait_for('a COPY under way',
	sub { $seen = $node->safe_psql('postgres', 'SELECT operation, relation, rows > 200000 AND rows <= 400000 FROM seen WHERE rows > 200000') });
is($seen, 'write|target|t', 'COPY shows the rows that have come');
$harness->finish;

$node->stop;
done_testing();
