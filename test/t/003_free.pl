# Files and rows of a table go when the transaction that drops it commits, not before.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('free', 'max_prepared_transactions = 5');

$node->safe_psql(
	'postgres', q{
	CREATE ROLE owner;
	GRANT CREATE ON SCHEMA public TO owner;
	CREATE SCHEMA s AUTHORIZATION owner;
});

my $make = sub {
	my ($target) = @_;
	$node->safe_psql('postgres',
		"SELECT count(*) FROM shuffle_write('SELECT i FROM generate_series(1, 1000) i', "
		  . "'$target', partitions => 4, keys => '{1}')");
};

foreach my $case (
	[ 'DROP TABLE', 't', 'DROP TABLE t' ],
	[ 'DROP SCHEMA CASCADE', 's.t', 'DROP SCHEMA s CASCADE; CREATE SCHEMA s AUTHORIZATION owner' ],
	[ 'DROP OWNED', 't', 'DROP OWNED BY owner CASCADE' ],
	[ 'TRUNCATE', 't', 'TRUNCATE t' ])
{
	my ($name, $target, $sql) = @$case;

	$make->($target);
	$node->safe_psql('postgres', "ALTER TABLE $target OWNER TO owner");
	my @files = shuffle_files($node);
	cmp_ok(scalar(@files), '>', 0, "$name: there are files");

	$node->safe_psql('postgres', "BEGIN; $sql; ROLLBACK");
	is_deeply([ shuffle_files($node) ], \@files, "$name: rolled back, all files stay");
	is($node->safe_psql('postgres', "SELECT count(*), sum(i) FROM $target"),
		'1000|500500', "$name: rolled back, all rows stay");

	$node->safe_psql('postgres', $sql);
	nothing_left($node, $name);
	$node->safe_psql('postgres', "DROP TABLE IF EXISTS $target");
}

# Made and dropped, or truncated, in one transaction.
$node->safe_psql(
	'postgres', q{
	BEGIN;
	SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'once');
	DROP TABLE once;
	COMMIT});
nothing_left($node, 'made and dropped in one transaction');

# A replaced table keeps the new files only.
$make->('t');
my @old = shuffle_files($node);
$node->safe_psql('postgres',
	q{SELECT count(*) FROM shuffle_write('SELECT i + 1 AS i FROM t', 't', if_exists => 'replace')});
my @new = shuffle_files($node);
my %old = map { $_ => 1 } @old;
is(scalar(grep { $old{$_} } @new), 0, 'replace: the old files are gone');
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM t'), '1000|501500',
	'replace: the query read the old rows');

# Two-phase commit.
$node->safe_psql('postgres', q{BEGIN; DROP TABLE t; PREPARE TRANSACTION 'drop'});
is_deeply([ shuffle_files($node) ], \@new, 'prepared: the files wait for the commit');
$node->safe_psql('postgres', q{COMMIT PREPARED 'drop'});
is(segment_rows($node), '0', 'commit prepared: no catalog row is left');
$node->safe_psql('postgres', q{
	SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next');
	DROP TABLE next});

$node->safe_psql('postgres', q{
	BEGIN;
	SELECT count(*) FROM shuffle_write('SELECT i FROM generate_series(1, 1000) i', 'two', keys => '{1}');
	PREPARE TRANSACTION 'write'});
$node->restart;
is($node->safe_psql('postgres', "SELECT to_regclass('two') IS NULL"), 't', 'prepared: not visible');
$node->safe_psql('postgres', q{SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'next');
	DROP TABLE next});
$node->safe_psql('postgres', q{COMMIT PREPARED 'write'});
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM two'), '1000|500500',
	'commit prepared after a restart and a sweep: all rows are there');

# Another database can be dropped with its tables.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{CREATE EXTENSION shuffle_ext;
	SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 't')});
$node->safe_psql('postgres', 'DROP DATABASE other');

$node->stop;
done_testing();
