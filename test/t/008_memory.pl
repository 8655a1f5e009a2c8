# Anonymous memory of a writing process, its writer thread's included: at most memory_limit
# and three times the largest row more than the same plan needs that only counts its rows,
# or that fills ordinary tables.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

plan skip_all => 'needs /proc' unless -r "/proc/self/status";

# What the extension itself takes, in MB: its library, plans, catalog caches and the pages that
# malloc has not given back.
use constant SLACK => 8;

my $node = new_node('memory', 'shared_buffers = 128MB', 'jit = off',
	'max_parallel_workers_per_gather = 0');

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

# The first statement takes no more than limit and three rows, in MB, above the second.
sub stays_within
{
	my ($name, $limit, $row, $sql, $base_sql, $threads) = @_;
	my $before = "SET shuffle_ext.memory_limit = '${limit}MB'; BEGIN";
	my ($base) = peak("$before; $base_sql; ROLLBACK");
	my ($peak, $seen) =
	  peak((defined $threads ? "SET shuffle_ext.writer_threads = $threads; " : '')
		  . "$before; $sql; ROLLBACK");

	is($seen, 1 + $threads, "$name: $threads writer threads") if defined $threads;
	cmp_ok($peak - $base, '<', $limit + 3 * $row + SLACK,
		sprintf('%s: %.0f MB instead of %.0f MB', $name, $peak, $base));
	return;
}

sub written
{
	my ($query, $partitions) = @_;
	return "SELECT count(*) FROM shuffle_write('$query', 't', $partitions, '{1}')";
}

my $rows = 'SELECT i, i % 97 AS b, md5(i::text) AS t FROM generate_series(1, 2000000) i';
my $wide = 'SELECT ' . join(', ', map { "i + $_ AS c$_" } 1 .. 1600) . ' FROM generate_series(1, 30000) i';
my $count = 'SELECT count(*) FROM (%s) q';

# The other plan makes a table, too: columns take memory in the catalog caches.
stays_within("$_->[0] MB, $_->[1] partitions, $_->[2]", $_->[0], 0, written($_->[3], $_->[1]),
	"CREATE TABLE t AS $_->[3] LIMIT 10; " . sprintf($count, $_->[3]))
  foreach (
	[ 8, 200, 'small rows', $rows ],
	[ 32, 200, 'small rows', $rows ],
	[ 64, 100000, 'small rows', $rows ],
	[ 64, 200, '1,600 columns', $wide ]);

# With a thread: two row buffers and what it works with.
$node->safe_psql('postgres', q{
	CREATE TABLE target (i int, b int, t text) USING shuffle;
	SELECT shuffle_set('target', 200, '{i}');
	CREATE TABLE plain (i int, b int, t text);
});
my $copy = 'COPY %s FROM PROGRAM '
  . q{$$seq 1 2000000 | awk '{ printf "%%d\t%%d\tthe text of row number %%012d\n", $1, $1 %% 97, $1 }'$$};
foreach my $case (
	[ 'shuffle_write', written($rows, 200), sprintf($count, $rows) ],
	[ 'INSERT', "INSERT INTO target $rows", sprintf($count, $rows) ],
	[ 'COPY', sprintf($copy, 'target'), sprintf($copy, 'plain') ])
{
	my ($how, $sql, $base) = @$case;

	stays_within($how, 32, 0, $sql, $base, $_) foreach (0, 1);
}

stays_within('shuffle_write, helped', 32, 0,
	"SET shuffle_ext.codec = 'zstd'; SET shuffle_ext.block_bytes = '256kB'; " . written($rows, 200),
	sprintf($count, $rows), 2);

# Rows of 100 MB, between small ones.
my $large = q{SELECT i, i AS b, CASE WHEN i % 1000 = 500 THEN repeat(md5(i::text), 3276800) ELSE md5(i::text) END AS t
	FROM generate_series(1, 3000) i};
my $copy_large = 'COPY %s FROM PROGRAM '
  . q{$$for i in 1 2 3; do printf "%%d\t1\t" $i; yes 'a row of 100 MB' | head -c 100000000 | tr '\n' ' '; echo; done$$};
(my $quoted = $large) =~ s/'/''/g;
stays_within('shuffle_write, rows of 100 MB', 16, 100, written($quoted, 20),
	"SELECT count(t) FROM ($large) q");
stays_within('INSERT, rows of 100 MB', 16, 100, "INSERT INTO target $large",
	"SELECT count(t) FROM ($large) q");
stays_within('COPY, rows of 100 MB', 16, 100, sprintf($copy_large, 'target'),
	sprintf($copy_large, 'plain'));

# All that a session writes to at a time shares the limit.
foreach my $am ('heap', 'shuffle')
{
	$node->safe_psql('postgres', join(";\n",
		"CREATE TABLE many_$am (i int, b int, t text) PARTITION BY LIST (b)",
		map { "CREATE TABLE many_${am}_$_ PARTITION OF many_$am FOR VALUES IN ($_) USING $am" } 0 .. 96));
}
stays_within('COPY into 97 tables', 32, 0, sprintf($copy, 'many_shuffle'), sprintf($copy, 'many_heap'));
stays_within('INSERT into 97 tables', 32, 0, "INSERT INTO many_shuffle $rows", "INSERT INTO many_heap $rows");
$node->safe_psql('postgres', "SET shuffle_ext.memory_limit = '32MB'; INSERT INTO many_shuffle $rows");
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM many_shuffle'), '2000000|2000001000000', 'all rows');

$node->stop;
done_testing();
