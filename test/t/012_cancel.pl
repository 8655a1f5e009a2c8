# One huge value can be written and read for seconds; a cancel need not wait for its end.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('cancel');

# Seconds until the statement has ended, and what it said.
sub timed
{
	my ($sql) = @_;
	my ($stdout, $stderr);
	my $start = time;

	$node->psql('postgres', $sql, stdout => \$stdout, stderr => \$stderr);
	return (time - $start, $stderr);
}

$node->safe_psql('postgres',
	"CREATE TABLE source AS SELECT array_fill(inet '10.0.0.1', ARRAY[4000000]) AS a");

foreach my $case (
	[ 'writing', q{SELECT shuffle_write('TABLE source', 'target', partitions => 1, if_exists => 'replace')} ],
	[ 'reading', 'SELECT array_length(a, 1) FROM target' ])
{
	my ($what, $sql) = @$case;
	my ($whole, $error) = timed($sql);

	unlike($error, qr/ERROR/, $what);
	(my $cancelled, $error) = timed("SET statement_timeout = '100ms'; $sql");
	like($error, qr/canceling statement due to statement timeout/, "$what is cancelled");
	cmp_ok($cancelled, '<', $whole / 2,
		sprintf('%s: %.1f s of %.1f s', $what, $cancelled, $whole));
}

$node->stop;
done_testing();
