# Whatever way a write ends without committing, it leaves neither a file nor a row.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node(
	'abort',
	'max_worker_processes = 16',
	"shuffle_ext.memory_limit = '8MB'",     # files exist long before the end
	'shuffle_ext.block_rows = 5');          # and index files, too

$node->safe_psql(
	'postgres', q{
	CREATE TABLE source AS
	  SELECT i AS id, repeat(md5(i::text), 20) AS filler FROM generate_series(1, 100000) i;
	ANALYZE source;
	-- Fails at one late row, slow enough to be interrupted, safe to run in parallel.
	CREATE FUNCTION fails_at(id int, bad int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
	  AS $$ SELECT 1 / (id - bad) $$;
	CREATE FUNCTION slowly(id int) RETURNS int LANGUAGE plpgsql VOLATILE PARALLEL SAFE
	  AS $$ BEGIN IF id % 100 = 0 THEN PERFORM pg_sleep(0.02); END IF; RETURN id; END $$;
});

my $write = sub {
	my ($query, $target, $workers) = @_;
	return "SELECT count(*) FROM shuffle_write('$query', '$target', partitions => 8, "
	  . "keys => '{1}', workers => $workers)";
};

foreach my $workers (0, 2)
{
	my $how = $workers ? 'parallel' : 'serial';
	my $all = $write->('TABLE source', 't', $workers);

	$node->safe_psql('postgres', "BEGIN; $all; ROLLBACK");
	nothing_left($node, "$how, rollback");

	$node->safe_psql('postgres', "BEGIN; SAVEPOINT a; $all; ROLLBACK TO a; COMMIT");
	nothing_left($node, "$how, rollback to a savepoint");

	$node->safe_psql('postgres',
		"BEGIN; SAVEPOINT a; SAVEPOINT b; $all; RELEASE b; ROLLBACK TO a; COMMIT");
	nothing_left($node, "$how, rollback of a parent of the savepoint");

	my ($status, $out, $err) = $node->psql('postgres',
		$write->('SELECT id, fails_at(id, 99000), filler FROM source', 't', $workers));
	isnt($status, 0, "$how, a failing query fails");
	like($err, qr/division by zero/, "$how, with its own error");
	nothing_left($node, "$how, error in the query");

	$node->psql('postgres',
		"BEGIN; SAVEPOINT a; "
		  . $write->('SELECT id, fails_at(id, 99000), filler FROM source', 't', $workers));
	nothing_left($node, "$how, error in a subtransaction");

	($status, $out, $err) = $node->psql('postgres', qq{
		DO \$\$ BEGIN
		  BEGIN PERFORM * FROM shuffle_write('SELECT id, fails_at(id, 99000), filler FROM source',
		                                     't', keys => '{1}', workers => $workers);
		  EXCEPTION WHEN division_by_zero THEN RAISE NOTICE 'caught'; END;
		END \$\$});
	like($err, qr/caught/, "$how, an exception block catches it");
	nothing_left($node, "$how, error caught by plpgsql");

	my $slow = $write->('SELECT slowly(id), filler FROM source', 't', $workers);
	($status, $out, $err) = $node->psql('postgres', "SET statement_timeout = '2s'; $slow");
	like($err, qr/statement timeout/, "$how, cancelled while it runs");
	nothing_left($node, "$how, cancel");

	# Terminate the backend, then a worker.
	my ($harness, $stderr) = start_sql($node, $slow);
	wait_for("$how: a file of the running write", sub { shuffle_files($node) > 0 });
	$node->safe_psql('postgres',
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
		  . "WHERE backend_type = 'client backend' AND query LIKE '%slowly%' "
		  . "AND pid <> pg_backend_pid()");
	$harness->finish;
	like($$stderr, qr/terminating connection/, "$how, the backend was terminated");
	wait_for("$how: clean-up", sub { shuffle_files($node) == 0 });
	nothing_left($node, "$how, terminated backend");

	next unless $workers;
	($harness, $stderr) = start_sql($node, $slow);
	wait_for('a file of the running write', sub { shuffle_files($node) > 0 });
	my $hit = $node->safe_psql('postgres',
		"SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity "
		  . "WHERE backend_type = 'parallel worker'");
	cmp_ok($hit, '>', 0, 'there was a worker to terminate');
	$harness->finish;
	like($$stderr, qr/terminating|parallel worker/, 'the query fails when its worker is terminated');
	nothing_left($node, 'terminated worker');
}

# Index files are among what has to go: they are there while a write runs.
{
	my ($harness, $stderr) =
	  start_sql($node, $write->('SELECT slowly(id), filler FROM source', 't', 0));
	wait_for('an index file', sub { grep { /\.index$/ } shuffle_files($node) });
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
		  . "WHERE backend_type = 'client backend' AND query LIKE '%slowly%' AND pid <> pg_backend_pid()");
	$harness->finish;
	like($$stderr, qr/canceling statement/, 'cancelled when there was an index file');
	nothing_left($node, 'cancel with an index file');
}

# The same target can be written after all that.
is($node->safe_psql('postgres', "SELECT sum(rows) FROM shuffle_write('TABLE source', 't', keys => '{1}')"),
	'100000', 'the target can be written at last');
is($node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM t'), '100000|5000050000', 'and read');
my @files = shuffle_files($node);
cmp_ok(scalar(@files), '>', 0, 'its files are there');

$node->psql('postgres', "BEGIN; SELECT count(*) FROM shuffle_write('TABLE source', 't', "
	  . "if_exists => 'replace', keys => '{1}'); ROLLBACK");
is_deeply([ shuffle_files($node) ], \@files, 'a replace that is rolled back keeps the old files');
is($node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM t'), '100000|5000050000',
	'and the old rows');

$node->stop;
done_testing();
