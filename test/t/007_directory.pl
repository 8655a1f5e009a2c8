# shuffle_ext.directory: where segment files go, and whose they are.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('directory');
my $elsewhere = PostgreSQL::Test::Utils::tempdir();
my $write = q{SELECT sum(rows) FROM shuffle_write('SELECT i FROM generate_series(1, 1000) i', '%s', keys => '{1}')};

is($node->safe_psql('postgres', sprintf($write, 'inside')), '1000', 'written inside the data directory');
my @inside = shuffle_files($node);

$node->append_conf('postgresql.conf', "shuffle_ext.directory = '$elsewhere'");
$node->reload;
is($node->safe_psql('postgres', sprintf($write, 'outside')), '1000', 'written elsewhere');
is_deeply([ shuffle_files($node) ], \@inside, 'nothing new inside the data directory');
my $system = $node->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()');
my @outside = shuffle_files($node, "$elsewhere/PG_$system");
cmp_ok(scalar(@outside), '>', 0, 'in a directory named after the cluster');
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM inside'), '1000|500500',
	'segments written before the change are found');
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM outside'), '1000|500500', 'new ones, too');

# The data directory's modes hold outside, too.
my $mode = (stat("$elsewhere/PG_$system/$outside[0]"))[2] & 07777;
is($mode & 0077, 0, 'files are private like the data directory');

# A copy of the cluster must not write into the original's directory.
$node->backup('copy');
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($node, 'copy');
$copy->start;
my ($status, $out, $err) = $copy->psql('postgres', sprintf($write, 'other'));
isnt($status, 0, "a copied cluster may not write into the original's directory");
is_deeply([ shuffle_files($node, "$elsewhere/PG_$system") ], \@outside, 'and changes nothing there');
$copy->psql('postgres', 'DROP TABLE outside');
is_deeply([ shuffle_files($node, "$elsewhere/PG_$system") ], \@outside,
	'nor does it remove files there');
$copy->stop;
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM outside'), '1000|500500',
	'the original still has its rows');

foreach my $bad ("$elsewhere/missing", '/proc')
{
	$node->append_conf('postgresql.conf', "shuffle_ext.directory = '$bad'");
	$node->reload;
	($status, $out, $err) = $node->psql('postgres', sprintf($write, 'bad'));
	isnt($status, 0, "directory $bad: an error");
	like($err, qr/\Q$bad\E/, "directory $bad: named");
}
($status, $out, $err) = $node->psql('postgres', q{LOAD 'shuffle_ext'; SET shuffle_ext.directory = '/tmp'});
isnt($status, 0, 'a session cannot set the directory');

$node->stop;
done_testing();
