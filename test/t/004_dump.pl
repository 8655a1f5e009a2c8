# pg_dump and pg_restore keep the options of a shuffle table; dropping the extension is safe.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('dump');

$node->safe_psql(
	'postgres', q{
	SELECT count(*) FROM shuffle_write('SELECT i AS id, i % 7 AS seven, repeat(''x'', 10) AS filler
	                                      FROM generate_series(1, 1000) i',
	                                   'hashed', partitions => 16, keys => '{seven,id}', codec => 'zstd:3');
	SELECT count(*) FROM shuffle_write('SELECT i AS id FROM generate_series(1, 1000) i', 'ranged',
	                                   partitions => 3, keys => '{id}', method => 'range',
	                                   bounds => '{300,600}');
	ALTER TABLE hashed RENAME COLUMN seven TO day;
});

my $options = q{SELECT relname, objsubid, label FROM pg_seclabel s JOIN pg_class c ON c.oid = s.objoid
	WHERE provider = 'shuffle_ext' ORDER BY 1, 2};
my $dump = $node->backup_dir . '/schema.sql';
mkdir $node->backup_dir;
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '--schema-only', '-f', $dump ],
	'pg_dump of the definitions');
my $text = slurp_file($dump);
like($text, qr/CREATE EXTENSION IF NOT EXISTS shuffle_ext/, 'the dump makes the extension');
like($text, qr/SECURITY LABEL FOR shuffle_ext ON TABLE/, 'the dump has the options');

$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok(
	[ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ],
	'the dump can be restored');
is($node->safe_psql('restored', $options), $node->safe_psql('postgres', $options),
	'all options and keys are the same after it');

# Writing into the restored table uses them.
$node->safe_psql('restored', q{
	SELECT count(*) FROM shuffle_write('SELECT i AS id, i % 7 AS day, repeat(''x'', 10) AS filler
	                                      FROM generate_series(1, 1000) i', 'hashed', if_exists => 'append')});
my $rows = 'SELECT partition, rows FROM shuffle_partitions WHERE relation = %s::regclass ORDER BY 1';
is($node->safe_psql('restored', sprintf($rows, "'hashed'")),
	$node->safe_psql('postgres', sprintf($rows, "'hashed'")),
	'every row goes to the same partition');

$node->stop;
done_testing();
