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
	                                      FROM generate_series(1, 400) i',
	                                   'hashed', partitions => 16, keys => '{seven,id}', codec => 'zstd:3');
	SELECT count(*) FROM shuffle_write('SELECT i AS id FROM generate_series(1, 400) i', 'ranged',
	                                   partitions => 3, keys => '{id}', method => 'range',
	                                   bounds => '{100,200}');
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
	                                      FROM generate_series(1, 400) i', 'hashed', if_exists => 'append')});
my $rows = 'SELECT partition, rows FROM shuffle_partitions WHERE relation = %s::regclass ORDER BY 1';
is($node->safe_psql('restored', sprintf($rows, "'hashed'")),
	$node->safe_psql('postgres', sprintf($rows, "'hashed'")),
	'every row goes to the same partition');

# Everything, in every format: the same options, and every row in the same partition.
$node->safe_psql('postgres', q{
	CREATE TABLE files (id int, k int, gone int) USING shuffle;
	SELECT shuffle_set('files', method => 'range', keys => '{k}', bounds => '{100,200,300}',
		layout => 'partition_files', codec => 'none');
	ALTER TABLE files DROP COLUMN gone;
	INSERT INTO files SELECT i, i FROM generate_series(1, 400) i;
	CREATE TABLE "without options" (a int) USING shuffle;
	INSERT INTO "without options" VALUES (1), (2);
	CREATE MATERIALIZED VIEW summary USING shuffle AS SELECT k, count(*) AS id FROM files GROUP BY k;
	CREATE TABLE in_heap (id int) USING shuffle;
	SELECT shuffle_set('in_heap', partitions => 3, method => 'round_robin');
	INSERT INTO in_heap SELECT generate_series(1, 100);
	ALTER TABLE in_heap SET ACCESS METHOD heap;
	CREATE TABLE parent (id int) PARTITION BY LIST (id);
	CREATE TABLE child PARTITION OF parent FOR VALUES IN (1, 2) USING shuffle;
	INSERT INTO parent VALUES (1), (2);
});
my $contents = q{
	SELECT relation::text COLLATE "C", partition, rows FROM shuffle_partitions ORDER BY 1, 2;
	SELECT 'hashed', count(*), sum(id), sum(day) FROM hashed UNION ALL
	SELECT 'ranged', count(*), sum(id), NULL FROM ranged UNION ALL
	SELECT 'files', count(*), sum(id), sum(k) FROM files UNION ALL
	SELECT 'summary', count(*), sum(id), sum(k) FROM summary UNION ALL
	SELECT 'in_heap', count(*), sum(id), NULL FROM in_heap UNION ALL
	SELECT 'parent', count(*), sum(id), NULL FROM parent UNION ALL
	SELECT 'without', count(*), sum(a), NULL FROM "without options" ORDER BY 1;
	SELECT relname, amname FROM pg_class c JOIN pg_am a ON a.oid = relam
	  WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'm') ORDER BY 1};
my $wanted = $node->safe_psql('postgres', "$options; $contents");
my $backup = $node->backup_dir;
my $source = $node->connstr('postgres');
$node->command_ok([ 'pg_dump', '-d', $source, '-Fd', '-j', '2', '-f', "$backup/dir" ], 'pg_dump -Fd');
$node->command_ok([ 'pg_dump', '-d', $source, '-Fc', '-f', "$backup/custom" ], 'pg_dump -Fc');
$node->command_ok([ 'pg_dump', '-d', $source, '-f', "$backup/plain.sql" ], 'pg_dump');
$node->command_ok([ 'pg_dump', '-d', $source, '--inserts', '-f', "$backup/inserts.sql" ],
	'pg_dump --inserts');
my $target = $node->connstr('again');
my %restore = (
	'pg_restore, parallel' => [ 'pg_restore', '-d', $target, '-j', '4', "$backup/dir" ],
	'pg_restore, one transaction' => [ 'pg_restore', '-d', $target, '-1', "$backup/custom" ],
	'pg_restore, by sections' => [
		'sh', '-c',
		"for s in pre-data data post-data; do pg_restore -e -d '$target' --section=\$s $backup/custom || exit 1; done"
	],
	'psql' => [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $target, '-f', "$backup/plain.sql" ],
	'psql, INSERT' =>
	  [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $target, '-f', "$backup/inserts.sql" ]);

foreach my $how (sort keys %restore)
{
	$node->safe_psql('postgres', 'CREATE DATABASE again');
	$node->command_ok($restore{$how}, $how);
	is($node->safe_psql('again', "$options; $contents"), $wanted, "$how: all is the same");
	$node->safe_psql('postgres', 'DROP DATABASE again');
}

# From PostgreSQL 15 into this version.  dump_15.sql is what pg_dump of 15 writes for the
# tables above, without comments; there, the file is compared with a new one, line by line
# but in any order: that of rows depends on which process wrote them.
my $dump_15 = "$FindBin::RealBin/dump_15.sql";
if ($node->safe_psql('postgres', 'SHOW server_version_num') < 160000)
{
	$node->command_ok([ 'pg_dump', '-d', $source, '--no-owner', '-f', "$backup/again.sql" ],
		'pg_dump --no-owner');
	my @lines = grep { !/^(--|\\(un)?restrict |\n)/ } split(/^/, slurp_file("$backup/again.sql"));
	append_to_file("$backup/dump_15.sql", join('', @lines));
	is(join('', sort @lines), join('', sort split(/^/, slurp_file($dump_15))),
		'dump_15.sql is what pg_dump of PostgreSQL 15 writes')
	  or diag("compare it with $backup/dump_15.sql");
}
$node->safe_psql('postgres', 'CREATE DATABASE again');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $target, '-f', $dump_15 ],
	'a dump of PostgreSQL 15 can be restored');
is($node->safe_psql('again', "$options; $contents"), $wanted, 'all is the same');

$node->stop;
done_testing();
