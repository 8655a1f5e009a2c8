# A crash leaves no row, its files go at the next sweep, and what was committed stays.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('crash', "shuffle_ext.memory_limit = '8MB'", 'restart_after_crash = on');

$node->safe_psql(
	'postgres', q{
	CREATE TABLE source AS
	  SELECT i AS id, repeat(md5(i::text), 60) AS filler FROM generate_series(1, 50000) i;
	CREATE FUNCTION slowly(id int) RETURNS int LANGUAGE plpgsql VOLATILE PARALLEL SAFE
	  AS $$ BEGIN IF id % 50 = 0 THEN PERFORM pg_sleep(0.02); END IF; RETURN id; END $$;
	SELECT count(*) FROM shuffle_write('TABLE source', 'kept', keys => '{1}');
});
my @kept = shuffle_files($node);
my $sum = $node->safe_psql('postgres', 'SELECT count(*), sum(id), md5(string_agg(filler, NULL ORDER BY id)) FROM kept');
my $slow = q{SELECT count(*) FROM shuffle_write('SELECT slowly(id), filler FROM source', 'lost', keys => '{1}')};

# Immediate shutdown while a write is under way, and with one done but not committed.
my ($harness) = start_sql($node, q{SET shuffle_ext.memory_limit = '2MB'; SET shuffle_ext.block_bytes = '16kB';
	SET shuffle_ext.write_buffer_size = '64kB'; SET shuffle_ext.block_min_rows = 1; SET max_parallel_workers = 0;}
	  . $slow);
wait_for('an index file of the running write', sub { grep { /\.index$/ } shuffle_files($node) });
$node->stop('immediate');
$harness->finish;
cmp_ok(scalar(shuffle_files($node)), '>', scalar(@kept), 'the crash left a file');
$node->start;
is($node->safe_psql('postgres', "SELECT to_regclass('lost') IS NULL"), 't', 'but no table');
is($node->safe_psql('postgres', 'SELECT count(*), sum(id), md5(string_agg(filler, NULL ORDER BY id)) FROM kept'),
	$sum, 'committed rows survive the crash');

$node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next')});
my @files = grep { my $file = $_; !grep { $_ eq $file } @kept } shuffle_files($node);
is(scalar(@files), 1, 'the next writer swept the leftovers and kept everything else');
$node->safe_psql('postgres', 'DROP TABLE next');
is_deeply([ shuffle_files($node) ], \@kept, 'exactly the committed files are there');

# A backend killed hard: the server restarts by itself.
($harness) = start_sql($node, $slow);
wait_for('a file of the running write', sub { shuffle_files($node) > @kept });
my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity
	WHERE backend_type = 'client backend' AND query LIKE '%slowly%' AND pid <> pg_backend_pid()});
my $ready = sub { scalar(() = slurp_file($node->logfile) =~ /ready to accept connections/g) };
my $starts = $ready->();
kill_hard($pid);
$harness->finish;
wait_for('the restart', sub { $ready->() > $starts });
is($node->safe_psql('postgres', "SELECT to_regclass('lost') IS NULL"), 't',
	'no table after SIGKILL of the writer');
$node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next');
	DROP TABLE next});
is_deeply([ shuffle_files($node) ], \@kept, 'the sweep after a restart removes what SIGKILL left');
is($node->safe_psql('postgres', 'SELECT count(*), sum(id), md5(string_agg(filler, NULL ORDER BY id)) FROM kept'),
	$sum, 'committed rows are still there');

# Files of a transaction that is open while another session sweeps stay.
($harness) = start_sql($node, $slow);
wait_for('a file of the running write', sub { shuffle_files($node) > @kept });
$node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next');
	DROP TABLE next});
$harness->finish;
is($node->safe_psql('postgres', 'SELECT count(*), sum(slowly) FROM lost'), '50000|1250025000',
	'a sweep leaves the files of running transactions alone');

$node->stop;
done_testing();
