# Reading ahead: a thread where it is of use, none afterwards, and the same rows and errors
# as without it.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

plan skip_all => 'needs /proc' unless -r '/proc/self/status';

my $node = new_node('ahead', 'max_parallel_workers_per_gather = 0', "shuffle_ext.block_rows = 500",
	'restart_after_crash = on');

# One segment of 200 blocks in 4 partitions, about 25 KB each.
$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION threads() RETURNS int LANGUAGE sql VOLATILE PARALLEL SAFE AS
	  $$SELECT substring(pg_read_file('/proc/self/status') FROM 'Threads:\s*(\d+)')::int$$;
	CREATE TABLE h AS
	  SELECT i AS id, CASE WHEN i % 7 > 0 THEN i * 1.25 END::numeric(12,2) AS n,
	    md5(i::text) || md5((-i)::text) AS t, i % 10 AS d
	  FROM generate_series(1, 100000) i;
	SELECT count(*) FROM shuffle_write('SELECT * FROM h', 's', partitions => 4, keys => '{id}', workers => 0);
	SELECT count(*) FROM shuffle_write('SELECT * FROM h', 'f', partitions => 4, keys => '{id}', workers => 0,
	  layout => 'partition_files');
	ANALYZE s;
});

sub threads_in
{
	my ($begin, $end) = @_;
	my $out = $node->safe_psql('postgres', "BEGIN; $begin; SELECT 'T' || threads(); $end");
	my @threads = $out =~ /^T(\d+)$/mg;

	return join(' ', @threads);
}

my $move = 'DECLARE c CURSOR FOR SELECT t FROM %s; MOVE 20000 IN c';
my $after = "CLOSE c; SELECT 'T' || threads(); COMMIT";
is(threads_in(sprintf($move, 's'), $after), '2 1', 'a scan has a thread until it ends');
is(threads_in(sprintf($move, 'f'), $after), '2 1', 'in partition files, too');
is(threads_in(sprintf($move, 'shuffle_read(NULL::s, 0, 1, 2)'), $after),
	'2 1', 'shuffle_read, too');
is(threads_in('SET LOCAL shuffle_ext.read_ahead = off; ' . sprintf($move, 's'), $after),
	'1 1', 'not when switched off');
is( threads_in('DECLARE c CURSOR FOR SELECT 1 FROM s; MOVE 20000 IN c', $after),
	'1 1', 'nor where no column is read');
is( threads_in('DECLARE c CURSOR FOR SELECT t FROM s; MOVE 700 IN c', $after),
	'1 1', 'nor in the first blocks');
is( threads_in('DECLARE c CURSOR FOR SELECT t FROM shuffle_read(NULL::s, 3) LIMIT 20000; MOVE 20000 IN c', $after),
	'2 1', 'one partition of 50 blocks is worth it');
is( threads_in("DECLARE c CURSOR FOR SELECT t FROM s WHERE ctid < '(1,1)'; MOVE 20000 IN c", $after),
	'1 1', 'a TID range is not');
my $count = "SELECT max(threads()) FROM s WHERE t > '' AND id % 5000 = 0";
is($node->safe_psql('postgres', $count), '2', 'a serial plan has a thread');
is( $node->safe_psql(
		'postgres',
		'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;'
		  . "SET min_parallel_table_scan_size = 0; $count"),
	'1', 'a parallel plan has none');
is( threads_in(
		sprintf($move, 's') . '; SAVEPOINT a; DECLARE d CURSOR FOR SELECT t FROM f; MOVE 20000 IN d;'
		  . "SELECT 'T' || threads(); ROLLBACK TO a",
		"FETCH 1 FROM c; $after"),
	'3 2 1', 'a rollback to a savepoint ends those of its cursors only');
# Each of these branches keeps its file until the end of the query.
my $many = join(' UNION ALL ', ('(SELECT t FROM s LIMIT 3000)') x 250);
is( threads_in("DECLARE c CURSOR FOR $many; MOVE 749999 IN c", $after),
	'5 1', 'many scans have no more than four threads, and their files');
is($node->safe_psql('postgres', "SELECT count(t) FROM s; SELECT threads()"),
	"100000\n1", 'none is left after a statement');
is($node->psql('postgres', 'SELECT sum(1 / (id - 60000)) FROM s'), 3, 'an error in the middle');
is( (   $node->psql(
			'postgres', q{DO $$BEGIN PERFORM sum(1 / (id - 60000)) FROM s;
			  EXCEPTION WHEN division_by_zero THEN NULL; END$$; SELECT threads()}))[1],
	'1', 'leaves none either');

# The same rows, in the same order, wherever one stops and whatever one asks for.
my %query = (
	'all columns' => 'SELECT * FROM %s',
	'some of the rows need a column' => 'SELECT CASE WHEN d = 3 THEN t END, id FROM %s',
	'some of the blocks need a column' => "SELECT id, CASE WHEN id / 20000 IN (1, 3) THEN t END, n FROM %s",
	'a filter' => "SELECT t FROM %s WHERE n > 1000 AND t > '8'",
	'a join with itself' => 'SELECT a.t, b.n FROM %s a JOIN %1$s b ON a.id = b.id + 5000',
	'a semijoin with rescans' => 'SELECT a.id, (SELECT count(b.t) FROM %s b WHERE b.d = a.d) FROM (SELECT * FROM %1$s LIMIT 4) a');
foreach my $table ('s', 'f')
{
	foreach my $name (sort keys %query)
	{
		my $sql = sprintf("SELECT md5(string_agg(q::text, ',')) FROM ($query{$name}) q", $table);

		is( $node->safe_psql('postgres', $sql),
			$node->safe_psql('postgres', "SET shuffle_ext.read_ahead = off; $sql"),
			"$name, $table");
	}
	is( $node->safe_psql(
			'postgres', "SELECT count(*) FROM (SELECT * FROM $table EXCEPT ALL SELECT * FROM h) d"),
		'0', "the rows of $table are those of the heap");
	my $walk = 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT id, n FROM %s; MOVE 60000 IN c;'
	  . 'FETCH 3 FROM c; MOVE BACKWARD 30000 IN c; FETCH 3 FROM c; MOVE 45000 IN c; FETCH 3 FROM c; COMMIT';
	is( $node->safe_psql('postgres', sprintf($walk, $table)),
		$node->safe_psql('postgres', 'SET shuffle_ext.read_ahead = off; ' . sprintf($walk, $table)),
		"forward and backward, $table");
}

# A scan that begins again reads on from its beginning, not from where it was.
foreach my $from ('(SELECT t FROM s LIMIT 60000)', '(SELECT t FROM f LIMIT 60000)', 'shuffle_read(NULL::s, 0, 1, 2)')
{
	my @bytes = map {
		$node->safe_psql('postgres',
			"SET shuffle_ext.read_ahead = $_; SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
			  . "SELECT count(*) FROM generate_series(1, 4) g LEFT JOIN $from x ON x.t <> g::text;"
			  . "SELECT substring(pg_read_file('/proc/self/io') FROM 'rchar: (\\d+)')") =~ /(\d+)\z/
	} ('off', 'on');

	cmp_ok($bytes[1], '<', 1.5 * $bytes[0], "bytes read by rescans of $from");
}

# Fetching goes through the same cursor.
my $fetch = "SELECT md5(string_agg(c, '' ORDER BY n)) FROM shuffle_fetch('s', 0, 1, 2, 3) WITH ORDINALITY f(c, n)";
is( $node->safe_psql('postgres', $fetch),
	$node->safe_psql('postgres', "SET shuffle_ext.read_ahead = off; $fetch"),
	'shuffle_fetch');

# A session that is terminated, and one that is killed, with a thread.
foreach my $how ('terminated', 'killed')
{
	my ($harness, $stderr) = start_sql($node,
		"SET application_name = 'reader'; BEGIN; DECLARE c CURSOR FOR SELECT t FROM s; MOVE 20000 IN c; SELECT pg_sleep(600)");
	my $pid = '';

	wait_for('the reader',
		sub {
			$pid = $node->safe_psql('postgres',
				"SELECT pid FROM pg_stat_activity WHERE application_name = 'reader' AND wait_event = 'PgSleep'");
			return $pid ne '';
		});
	like(slurp_file("/proc/$pid/status"), qr/^Threads:\s*2$/m, "$how: it has a thread");
	if ($how eq 'killed')
	{
		kill_hard($pid);
	}
	else
	{
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	}
	wait_for("$how: its end", sub { !-e "/proc/$pid" });
	$harness->finish;
	if ($how eq 'killed')
	{
		$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
	}
	else
	{
		unlike(slurp_file($node->logfile), qr/terminated by signal/, 'terminated: the server stays up');
	}
	is($node->safe_psql('postgres', 'SELECT count(t) FROM s'), '100000', "$how: others read on");
}

# Damage: the error is that of the block, and what is before it has been returned.
my ($path) = map { $node->data_dir . "/$_" }
  $node->safe_psql('postgres', "SELECT path FROM shuffle_segments WHERE relation = 's'::regclass");
my ($start, $end) = split /\|/,
  $node->safe_psql('postgres',
	"SELECT byte_offset, byte_offset + bytes FROM shuffle_index WHERE relation = 's'::regclass AND partition = 2");
my $rows = $node->safe_psql('postgres',
	"SELECT sum(rows) FROM shuffle_partitions WHERE relation = 's'::regclass AND partition <= 1");

sub flip_bit
{
	my $offset = shift;
	my $bytes = slurp_file($path);

	vec($bytes, 8 * $offset, 1) ^= 1;
	open(my $file, '+<:raw', $path) or die "$path: $!";
	seek($file, $offset, 0);
	print $file substr($bytes, $offset, 1);
	close($file);
}

sub damage_is_found
{
	my ($where, $move, $message) = @_;

	foreach my $ahead ('on', 'off')
	{
		my ($status, $out, $err) = $node->psql('postgres',
			"SET shuffle_ext.read_ahead = $ahead; BEGIN; DECLARE c CURSOR FOR SELECT t FROM s; MOVE $move IN c;"
			  . "SELECT count(*) FROM shuffle_read(NULL::s, 0, 1, 3); FETCH 1 FROM c; MOVE ALL IN c");

		isnt($status, 0, "damage in $where is found, read_ahead = $ahead");
		like($err, qr/block at byte \d+ of file "[^"]*" is damaged: $message/, "and named, read_ahead = $ahead");
		my @lines = split /\n/, $out;
		like($lines[-1], qr/^[0-9a-f]{64}$/, "rows before it are returned, read_ahead = $ahead");
	}
}

flip_bit($start);
damage_is_found('a header', $rows - 1500, 'no message begins here');
flip_bit($start);
flip_bit($end - 100);
damage_is_found('a body', $rows, 'its checksum is');
truncate($path, $end - 5100) or die "$path: $!";
my ($status, $out, $err) = $node->psql('postgres', 'SELECT count(t) FROM s');
isnt($status, 0, 'a file that has been cut off is an error');
unlink($path);
($status, $out, $err) = $node->psql('postgres', 'SELECT count(t) FROM s');
like($err, qr/could not read table "s".*No such file/s, 'and so is one that is missing');

$node->stop;
done_testing();
