# Anonymous memory of a writing process, its writer thread's included, stays within
# memory_limit + 64 MB.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

plan skip_all => 'needs /proc' unless -r "/proc/self/status";

my $node = new_node('memory', 'shared_buffers = 128MB');

# Of all processes at any time: most memory in MB, most threads.
sub peak
{
	my ($sql) = @_;
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	my ($peak, $threads) = (0, 0);
	my ($harness, $stderr) = start_sql($node, $sql);

	while ($harness->pumpable)
	{
		foreach my $pid (split ' ', slurp_file("/proc/$postmaster/task/$postmaster/children"))
		{
			open(my $file, '<', "/proc/$pid/status") or next;
			my $status = join('', <$file>);
			my ($kb) = $status =~ /^RssAnon:\s+(\d+)/m;
			my ($n) = $status =~ /^Threads:\s+(\d+)/m;
			$peak = $kb if defined $kb && $kb > $peak;
			$threads = $n if defined $n && $n > $threads;
		}
		$harness->pump_nb;
		select(undef, undef, undef, 0.01);
	}
	$harness->finish or die $$stderr;
	return ($peak / 1024, $threads);
}

foreach my $case (
	[ '32MB', 200, q{SELECT i, i % 97 AS b, md5(i::text) AS t FROM generate_series(1, 2000000) i} ],
	[ '64MB', 100000, q{SELECT i, i % 97 AS b, md5(i::text) AS t FROM generate_series(1, 2000000) i} ],
	[ '64MB', 200,
		'SELECT ' . join(', ', map { "i + $_ AS c$_" } 1 .. 1600) . ' FROM generate_series(1, 30000) i' ])
{
	my ($limit, $partitions, $query) = @$case;
	my ($peak) = peak("SET shuffle_ext.memory_limit = '$limit'; SELECT count(*) FROM shuffle_write("
		  . "'$query', 't', partitions => $partitions, keys => '{1}'); DROP TABLE t");
	my ($mb) = $limit =~ /(\d+)/;
	cmp_ok($peak, '<', $mb + 64, sprintf('%s, %d partitions, %s: %.0f MB', $limit, $partitions,
			substr($query, 0, 30), $peak));
}

# With a thread: two row buffers and what it works with.
$node->safe_psql('postgres', q{CREATE TABLE target (i int, b int, t text) USING shuffle;
	SECURITY LABEL FOR shuffle_ext ON TABLE target IS 'partitions=200 method=round_robin'});
my $query = 'SELECT i, i % 97 AS b, md5(i::text) AS t FROM generate_series(1, 2000000) i';
foreach my $case (
	[ 'shuffle_write', "SELECT count(*) FROM shuffle_write('$query', 't', keys => '{1}')" ],
	[ 'INSERT', "INSERT INTO target $query" ],
	[ 'COPY', 'COPY target FROM PROGRAM '
		  . q{$$seq 1 2000000 | awk '{ printf "%d\t%d\tthe text of row number %012d\n", $1, $1 % 97, $1 }'$$} ])
{
	my ($how, $sql) = @$case;

	foreach my $wanted (0, 1)
	{
		my ($peak, $threads) =
		  peak("SET shuffle_ext.memory_limit = '32MB'; SET shuffle_ext.writer_threads = $wanted; "
			  . "BEGIN; $sql; ROLLBACK");
		is($threads, 1 + $wanted, "$how: $wanted writer threads");
		cmp_ok($peak, '<', 32 + 64, sprintf('%s, %d writer threads: %.0f MB', $how, $wanted, $peak));
	}
}

# The tables that one statement writes to share the limit.
$node->safe_psql('postgres', 'CREATE TABLE parent (i int, b int, t text) PARTITION BY HASH (i);'
	  . join('', map { "CREATE TABLE child_$_ PARTITION OF parent FOR VALUES WITH (MODULUS 64, REMAINDER $_) "
		  . "USING shuffle; SECURITY LABEL FOR shuffle_ext ON TABLE child_$_ IS 'partitions=8 method=round_robin';" }
		  0 .. 63));
my ($peak) = peak("SET shuffle_ext.memory_limit = '32MB'; INSERT INTO parent $query");
cmp_ok($peak, '<', 32 + 64, sprintf('64 shuffle tables in one INSERT: %.0f MB', $peak));
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM parent'), '2000000|2000001000000', 'all rows');

$node->stop;
done_testing();
