# Anonymous memory of a writing process stays within memory_limit + 64 MB.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

plan skip_all => 'needs /proc' unless -r "/proc/self/status";

my $node = new_node('memory', 'shared_buffers = 128MB');

sub peak
{
	my ($sql) = @_;
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	my $peak = 0;
	my ($harness, $stderr) = start_sql($node, $sql);

	while ($harness->pumpable)
	{
		foreach my $pid (split ' ', slurp_file("/proc/$postmaster/task/$postmaster/children"))
		{
			open(my $file, '<', "/proc/$pid/status") or next;
			my ($kb) = join('', <$file>) =~ /^RssAnon:\s+(\d+)/m;
			$peak = $kb if defined $kb && $kb > $peak;
		}
		$harness->pump_nb;
		select(undef, undef, undef, 0.01);
	}
	$harness->finish or die $$stderr;
	return $peak / 1024;
}

foreach my $case (
	[ '32MB', 200, q{SELECT i, i % 97 AS b, md5(i::text) AS t FROM generate_series(1, 2000000) i} ],
	[ '64MB', 100000, q{SELECT i, i % 97 AS b, md5(i::text) AS t FROM generate_series(1, 2000000) i} ],
	[ '64MB', 200,
		'SELECT ' . join(', ', map { "i + $_ AS c$_" } 1 .. 1600) . ' FROM generate_series(1, 30000) i' ])
{
	my ($limit, $partitions, $query) = @$case;
	my $peak = peak("SET shuffle_ext.memory_limit = '$limit'; SELECT count(*) FROM shuffle_write("
		  . "'$query', 't', partitions => $partitions, keys => '{1}'); DROP TABLE t");
	my ($mb) = $limit =~ /(\d+)/;
	cmp_ok($peak, '<', $mb + 64, sprintf('%s, %d partitions, %s: %.0f MB', $limit, $partitions,
			substr($query, 0, 30), $peak));
}

$node->stop;
done_testing();
