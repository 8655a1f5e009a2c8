# A standby has the catalog but not the files: reading says so, writing is refused.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('primary');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

$node->safe_psql('postgres',
	q{SELECT count(*) FROM shuffle_write('SELECT i FROM generate_series(1, 1000) i', 't', keys => '{1}')});
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));

my ($status, $out, $err) = $standby->psql('postgres', 'SELECT count(i) FROM t');
isnt($status, 0, 'reading on a standby without the files fails');
like($err, qr/"t"/, 'names the table');
like($err, qr/\.arrow/, 'and the file');

($status, $out, $err) = $standby->psql('postgres', q{SELECT * FROM shuffle_write('SELECT 1 AS a', 'u')});
isnt($status, 0, 'writing on a standby fails');
like($err, qr/recovery|read-only/, 'and says why');
is_deeply([ shuffle_files($standby) ], [], 'a standby makes no file');

($status, $out, $err) = $node->psql('postgres',
	q{SET default_transaction_read_only = on; SELECT * FROM shuffle_write('SELECT 1 AS a', 'u')});
like($err, qr/read-only transaction/, 'a read-only transaction is refused');

$standby->stop;
$node->stop;
done_testing();
