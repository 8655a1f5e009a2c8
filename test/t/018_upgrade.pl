# pg_upgrade keeps shuffle tables, once their files are copied.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $elsewhere = PostgreSQL::Test::Utils::tempdir;
my $old = new_node('old');

# "a" comes before shuffle_segment in the dump, "tall" behind it
$old->safe_psql('postgres', q{
	SELECT count(*) FROM shuffle_write('SELECT i, i % 7 AS k, md5(i::text) AS t FROM generate_series(1, 20000) i',
		'a', partitions => 16, keys => '{i,k}');
	SELECT count(*) FROM shuffle_write('TABLE a', 'tall', partitions => 3, layout => 'partition_files');
	CREATE TABLE small (i int) USING shuffle;
	INSERT INTO small VALUES (1), (2);
	CREATE TABLE rewritten USING shuffle AS TABLE a;
	VACUUM FULL rewritten});
$old->append_conf('postgresql.conf', "shuffle_ext.directory = '$elsewhere'");
$old->reload;
$old->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('TABLE a', 'elsewhere', partitions => 4)});

my $contents = join(' UNION ALL ',
	map { "SELECT '$_', count(*), sum(hashtext(x::text)::bigint) FROM $_ x" } qw(a tall small rewritten elsewhere));
my $options = 'SELECT objname, label FROM pg_seclabels ORDER BY 1, 2';
my $expected = $old->safe_psql('postgres', "$contents ORDER BY 1; $options");
$old->stop;

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init(allows_streaming => 1);
my $bin = $new->config_data('--bindir');
chdir $PostgreSQL::Test::Utils::tmp_check or die "cannot enter tmp_check: $!";
command_ok([ 'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin,
		'-s', $new->host, '-p', $old->port, '-P', $new->port ],
	'pg_upgrade');
$new->start;
is($new->safe_psql('postgres', 'SELECT count(*), sum(i) FROM small'), '2|3', 'small segments are in the catalog');
my ($status, $out, $error) = $new->psql('postgres', 'SELECT * FROM a');
like($error, qr/could not read table "a".*No such file/, 'files are missed');
$new->stop;
system_or_bail('cp', '-r', $old->data_dir . '/pg_shuffle', $new->data_dir);
$new->start;

is($new->safe_psql('postgres', "$contents ORDER BY 1; $options"), $expected, 'all tables and options are the same');
is($new->safe_psql('postgres', 'SELECT shuffle_sweep()'), '0', 'nothing is swept');
$new->safe_psql('postgres', "INSERT INTO $_ SELECT * FROM $_; INSERT INTO $_ SELECT * FROM $_ LIMIT 5")
  foreach qw(a tall small rewritten elsewhere);
is($new->safe_psql('postgres', q{SELECT count(*) FROM elsewhere}), '40005', 'more can be written');
is($new->safe_psql('postgres', 'SELECT count(*) FROM pg_class c, LATERAL shuffle_verify(c.oid) v '
		  . q{WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'shuffle') AND error IS NOT NULL}),
	'0', 'files are sound');

# Whose directory it is the server cannot know.
my ($owner) = glob("$elsewhere/PG_*/OWNER");
open(my $file, '>', $owner) or die "$owner: $!";
print $file $new->data_dir, "\n";
close($file);
$new->safe_psql('postgres', 'DROP TABLE a, tall, small, rewritten, elsewhere');
nothing_left($new, 'dropped');
is_deeply([ shuffle_files($new, $elsewhere) ], [], 'and none elsewhere, which was made over to the new server');
$new->stop;
done_testing();
