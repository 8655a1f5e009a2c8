# The writer thread: on a device that is slow or fails, errors come out with path and
# reason, a cancel is noticed at once, and whatever way a write ends leaves nothing behind.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;
use Time::HiRes qw(time);

plan skip_all => 'needs /proc' unless -r '/proc/self/status';

# What slow_device.c is told; see there.
my $dir = PostgreSQL::Test::Utils::tempdir();
my $library = "$dir/slow_device.so";
my $orders = "$dir/orders";
my $compiler = $ENV{CC} // 'cc';

plan skip_all => 'needs a C compiler'
  unless system("$compiler -shared -fPIC -O1 -o $library $FindBin::RealBin/slow_device.c -ldl") == 0;

sub device
{
	my ($delay, $errno, $offset, $function) = @_;

	# At once: a write may be reading it.
	append_to_file("$orders.new",
		join(' ', $delay, $function // 'write', $errno // 0, $offset // 0) . "\n");
	rename("$orders.new", $orders) or die $!;
	unlink "$orders.log";
	return;
}

# Who has called the function for segment files since the device was set.
sub callers_of
{
	my ($function) = @_;
	my %who;

	return '' unless -e "$orders.log";
	$who{$_} = 1 foreach slurp_file("$orders.log") =~ /^(?:$function) (\w+)$/mg;
	return join(' ', sort keys %who);
}

sub writers
{
	return callers_of('write');
}

my $node;
{
	local $ENV{LD_PRELOAD} = join(':', grep { $_ } $library, $ENV{LD_PRELOAD});
	local $ENV{SLOW_DEVICE} = $orders;
	$node = new_node(
		'thread',
		"log_line_prefix = '%n [%p] '",
		'client_connection_check_interval = 100ms',
		'min_parallel_table_scan_size = 0',
		'parallel_setup_cost = 0',
		'parallel_tuple_cost = 0',
		"shuffle_ext.partitions = 8",
		"shuffle_ext.memory_limit = '8MB'",
		"shuffle_ext.block_bytes = '64kB'",
		"shuffle_ext.write_buffer_size = '64kB'");
}

my $copied = "$dir/source.copy";
$node->safe_psql(
	'postgres', qq{
	CREATE TABLE source AS
	  SELECT i AS id, md5(i::text) || md5((-i)::text) || md5((2 * i)::text) AS filler
	  FROM generate_series(1, 100000) i;
	ANALYZE source;
	COPY source TO '$copied';
	CREATE TABLE emptied (LIKE source) USING shuffle;
	SECURITY LABEL FOR shuffle_ext ON TABLE emptied IS 'partitions=8 method=round_robin';
	CREATE FUNCTION fails_at(id int, bad int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
	  AS \$\$ SELECT 1 / (id - bad) \$\$;
});

my %write = (
	shuffle_write => q{SELECT count(*) FROM shuffle_write('TABLE source', 't', keys => '{1}', workers => 0)},
	'partition files' => q{SELECT count(*) FROM shuffle_write('TABLE source', 't', keys => '{1}',
		layout => 'partition_files', workers => 0)},
	INSERT => 'INSERT INTO emptied TABLE source',
	COPY => "COPY emptied FROM '$copied'",
	'CREATE TABLE AS' => 'CREATE TABLE t USING shuffle AS TABLE source');

# Runs SQL in the background and returns when its session waits for its thread.
sub start_waiting
{
	my ($sql) = @_;
	my ($harness, $stderr) = start_sql($node, "SET application_name = 'writer'; $sql");
	my $pid = '';

	wait_for(
		'a full queue',
		sub {
			$pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity
				WHERE application_name = 'writer' AND wait_event = 'Extension'});
			return $pid ne '';
		});
	return ($harness, $stderr, $pid);
}

# When the server logged the message, in seconds.
sub logged_at
{
	my ($pid, $message, $from) = @_;
	my $at;

	wait_for(
		"\"$message\" in the log",
		sub {
			my ($found) = slurp_file($node->logfile, $from) =~ /^([\d.]+) \[$pid\].*\Q$message\E/m;
			$at = $found;
			return defined $found;
		});
	return $at // 0;
}

sub gone
{
	my ($name, $pid) = @_;
	return wait_for("$name: end of process $pid", sub { !-e "/proc/$pid" });
}

# Who writes.
device(0);
foreach my $how (sort keys %write)
{
	foreach my $case ([ -1, 'thread' ], [ 0, 'process' ], [ 1, 'thread' ])
	{
		my ($threads, $expected) = @$case;

		device(0);
		$node->safe_psql('postgres', "SET shuffle_ext.writer_threads = $threads; BEGIN; $write{$how}; ROLLBACK");

		# The last run is written by the process itself.
		like(writers(), qr/\b$expected\b/, "$how, writer_threads = $threads: by a $expected");
		unlike(writers(), qr/thread/, "$how: and by nobody else") if $expected eq 'process';
	}
}
my $parallel = $write{shuffle_write} =~ s/workers => 0/workers => 2/r;
foreach my $case ([ -1, 'process' ], [ 1, 'thread' ])
{
	my ($threads, $expected) = @$case;

	device(0);
	$node->safe_psql('postgres', "SET shuffle_ext.writer_threads = $threads; BEGIN; $parallel; ROLLBACK");
	like(writers(), qr/\b$expected\b/, "parallel, writer_threads = $threads: by a $expected");
}
nothing_left($node, 'rollback');

# Several threads: one that helps the one that writes.
$write{'two threads'} = q{SET shuffle_ext.writer_threads = 2; SET shuffle_ext.codec = 'zstd:1';
	SET shuffle_ext.memory_limit = '28MB';
	SELECT count(*) FROM shuffle_write('TABLE source UNION ALL TABLE source UNION ALL TABLE source',
		't', keys => '{1}', workers => 0)};
device(0);
$node->safe_psql('postgres', "BEGIN; $write{'two threads'}; ROLLBACK");
like(writers(), qr/thread/, 'two threads: one writes');

# Errors of the device.
foreach my $how (sort keys %write)
{
	foreach my $case (
		[ 28, '53100', qr/could not write to file "[^"]+\.arrow": No space left on device/ ],
		[ 5, '58030', qr/could not write to file "[^"]+\.arrow": Input\/output error/ ])
	{
		my ($errno, $state, $message) = @$case;
		my ($out, $err);

		device(0, $errno, 300000);
		$node->psql('postgres', "\\set VERBOSITY verbose\n$write{$how};\n\\echo :LAST_ERROR_SQLSTATE\nSELECT 'alive'",
			on_error_stop => 0, stdout => \$out, stderr => \$err);
		like($err, $message, "$how: error $errno of the device with path and reason");
		like($err, qr/ERROR:  $state/, "$how: with its SQLSTATE");
		like($out, qr/alive/, "$how: the session goes on");
		like(writers(), qr/thread/, "$how: the thread met it");
		nothing_left($node, "$how, error $errno");
	}
}

# Write-back begins early, and what it reports is not lost.
foreach my $how ('shuffle_write', 'partition files')
{
	my ($out, $err);

	device(0);
	$node->safe_psql('postgres', "SET shuffle_ext.sync = off; BEGIN; $write{$how}; ROLLBACK");
	is(callers_of('fsync|sync_file_range'), '', "$how, sync = off: nothing is synced");
	$node->safe_psql('postgres', "SET shuffle_ext.codec = 'none'; BEGIN; $write{$how}; ROLLBACK");
	is(callers_of('fsync'), 'process', "$how: the process syncs at the end");
	next if $how eq 'partition files';    # each is too small

	like(callers_of('sync_file_range'), qr/thread/, "$how: the thread has write-back begin");
	foreach my $case ([ 'fsync', 'sync' ], [ 'sync_file_range', 'write back' ])
	{
		my ($function, $verb) = @$case;

		device(0, 5, 0, $function);
		$node->psql('postgres', "SET shuffle_ext.codec = 'none'; $write{$how}", stderr => \$err);
		like($err, qr/could not $verb file "[^"]+\.arrow": Input\/output error/,
			"$how: error of $function");
		nothing_left($node, "$how, error of $function");
	}
	device(0, 22, 0, 'sync_file_range');
	$node->safe_psql('postgres', "SET shuffle_ext.codec = 'none'; BEGIN; $write{$how}; ROLLBACK");
	is(callers_of('fsync'), 'process', "$how: a file system need not take the advice");
}

# A slow device: the backend waits in the queue, and is not slow itself.
my $delay = 2;
my $slack = 0.7;
foreach my $how ('shuffle_write', 'two threads', 'INSERT', 'COPY')
{
	my ($harness, $stderr, $pid);
	my $from = -s $node->logfile;

	device($delay * 1000);
	($harness, $stderr, $pid) = start_waiting($write{$how});
	like(slurp_file("/proc/$pid/status"), $how eq 'two threads' ? qr/^Threads:\s+3$/m : qr/^Threads:\s+2$/m,
		"$how: threads of the process");
	my $start = time;
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	my $noticed = logged_at($pid, 'canceling statement due to user request', $from) - $start;
	cmp_ok($noticed, '<', $slack, sprintf('%s: cancel was noticed after %.0f ms', $how, 1000 * $noticed));
	device(0);
	$harness->finish;
	my $ended = time - $start;
	cmp_ok($ended, '<', $delay + 2, sprintf('%s: and the write in flight awaited: %.1f s', $how, $ended));
	like($$stderr, qr/canceling statement due to user request/, "$how: the client heard it");
	nothing_left($node, "$how, cancel");

	$from = -s $node->logfile;
	device($delay * 1000);
	($harness, $stderr, $pid) = start_waiting("SET statement_timeout = '3s'; $write{$how}");
	my ($begun) = slurp_file($node->logfile, $from) =~ /^([\d.]+) \[$pid\].*statement_timeout/m;
	$noticed = logged_at($pid, 'canceling statement due to statement timeout', $from) - $begun;
	cmp_ok($noticed, '>=', 3, "$how: statement_timeout");
	cmp_ok($noticed, '<', 3 + $slack, sprintf('%s: was noticed after %.0f ms', $how, 1000 * ($noticed - 3)));
	device(0);
	$harness->finish;
	nothing_left($node, "$how, statement_timeout");

	$from = -s $node->logfile;
	device($delay * 1000);
	($harness, $stderr, $pid) = start_waiting($write{$how});
	$start = time;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	$noticed = logged_at($pid, 'terminating connection due to administrator command', $from) - $start;
	cmp_ok($noticed, '<', $slack, sprintf('%s: termination was noticed after %.0f ms', $how, 1000 * $noticed));
	device(0);
	gone($how, $pid);
	$harness->finish;
	nothing_left($node, "$how, terminated");

	# A client that goes away.
	device($delay * 1000);
	($harness, $stderr, $pid) = start_waiting($write{$how});
	$start = time;
	$harness->kill_kill;
	device(0);
	gone("$how, lost client", $pid);
	cmp_ok(time - $start, '<', $delay + 5, "$how: a lost client is noticed");
	nothing_left($node, "$how, lost client");
}

# An error of the query while the thread is busy is the statement's; its own later one, too.
foreach my $errno (0, 28)
{
	device(500, $errno, 0);
	my ($status, $out, $err) = $node->psql('postgres',
		q{SELECT count(*) FROM shuffle_write('SELECT id, fails_at(id, 30000), filler FROM source', 't',
			keys => '{1}', workers => 0)});
	like($err, qr/division by zero|No space left/, "error of the query, of the device: $errno");
	like($err, qr/division by zero/, 'the query ran while the thread was busy') if $errno == 0;
	nothing_left($node, "error of the query, of the device: $errno");
}

# Subtransactions: what is rolled back is not there, what is written before and after is.
device(20);
is( $node->safe_psql(
		'postgres', q{
		BEGIN;
		INSERT INTO emptied SELECT * FROM source WHERE id <= 30000;
		SAVEPOINT a;
		INSERT INTO emptied SELECT * FROM source WHERE id > 30000 AND id <= 60000;
		ROLLBACK TO a;
		INSERT INTO emptied SELECT * FROM source WHERE id > 60000;
		DO $$ BEGIN
		  INSERT INTO emptied SELECT id / (id - 70000), filler FROM source;
		EXCEPTION WHEN division_by_zero THEN NULL; END $$;
		COMMIT;
		DISCARD ALL;
		SELECT count(*), min(id), max(id), count(*) FILTER (WHERE id BETWEEN 30001 AND 60000)
		FROM emptied}),
	'70000|1|100000|0', 'savepoint and exception block');
is(writers(), 'process thread', 'the thread had its part in it');
device(0);
is($node->safe_psql('postgres', 'TRUNCATE emptied; SELECT count(*) FROM shuffle_segment'), '0', 'truncated');

# COPY FROM STDIN whose client dies in the middle.
{
	my ($in, $out, $err) = ('', '', '');
	my $harness = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'COPY emptied FROM STDIN' ],
		'<', \$in, '>', \$out, '2>', \$err);

	device(0);
	$in = slurp_file($copied);
	wait_for('bytes of the COPY', sub { $harness->pump_nb; return writers() =~ /thread/ });
	$harness->kill_kill;
	wait_for('clean-up', sub { shuffle_files($node) == 0 });
	nothing_left($node, 'COPY FROM STDIN, client killed');
}

# Bytes move while the session waits and sends no rows.
{
	my ($harness, $stderr, $pid);
	my $progress = "SELECT rows, bytes FROM shuffle_progress";

	device(200);
	($harness, $stderr, $pid) = start_waiting($write{shuffle_write});
	my ($rows, $bytes) = (0, 0);
	wait_for(
		'a report of the wait, not of the rows before it',
		sub {
			my $before = $rows;

			($rows, $bytes) = split /\|/, $node->safe_psql('postgres', $progress);
			return $rows > 1000 && $rows == $before;
		});
	my ($later_rows, $later_bytes) = ($rows, $bytes);
	wait_for(
		'bytes',
		sub {
			($later_rows, $later_bytes) = split /\|/, $node->safe_psql('postgres', $progress);
			return $later_bytes > $bytes;
		});
	is($later_rows, $rows, 'no row was taken');
	cmp_ok($later_bytes, '>', $bytes, 'and yet bytes were written');
	device(0);
	$harness->finish;
	is($$stderr, '', 'a slow write ends well');
	is($node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM t'), '100000|5000050000', 'with all rows');
	is( $node->safe_psql(
			'postgres', q{
			SELECT queue_ms > 100 AND write_ms > queue_ms / 2 AND elapsed_ms < 1.05 *
			  (input_ms + repartition_ms + interleave_ms + encode_ms + write_ms + sync_ms + queue_ms)
			FROM shuffle_stats WHERE relation = 't'::regclass}),
		't', 'and the time in the queue is told');
	$node->safe_psql('postgres', 'DROP TABLE t');
}

# Death of the postmaster: nobody stays to wait for the device.
{
	my ($harness, $stderr, $pid);
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');

	device($delay * 1000);
	($harness, $stderr, $pid) = start_waiting($write{'two threads'});
	my $start = time;
	kill_hard($postmaster);
	device(0);
	gone('death of the postmaster', $pid);
	cmp_ok(time - $start, '<', $delay + 5, 'the process has ended with the postmaster');
	$harness->finish;
	$node->{_pid} = undef;
	wait_for('restart', sub { $node->start(fail_ok => 1) });
	$node->safe_psql('postgres', 'SELECT shuffle_sweep()');
	nothing_left($node, 'death of the postmaster');
}

$node->stop;
done_testing();
