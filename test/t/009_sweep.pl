# What a sweep removes and what it must leave alone, beyond a simple crash.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('sweep', 'max_prepared_transactions = 5');
my $root = $node->data_dir . '/pg_shuffle';

my $write = sub {
	my ($target, %options) = @_;
	return "SELECT count(*) FROM shuffle_write('SELECT i FROM generate_series(1, 1000) i', "
	  . "'$target', keys => '{i}', partitions => 4, "
	  . "layout => '@{[ $options{layout} // 'log' ]}', "
	  . "if_exists => '@{[ $options{if_exists} // 'error' ]}')";
};
my $sweep = sub { return $node->safe_psql('postgres', 'SELECT shuffle_sweep()') };
my $directories = sub {
	my @found = grep { -d } glob("$root/*/*");
	return scalar grep { !m{/prepared$} } @found;
};

# A prepared write survives sweeps, and is swept by the next writer once rolled back.
$node->safe_psql('postgres', $write->('kept'));
my @kept = shuffle_files($node);
$node->safe_psql('postgres',
	'BEGIN; ' . $write->('kept', if_exists => 'append') . q{; PREPARE TRANSACTION 'append'});
my @prepared = shuffle_files($node);
cmp_ok(scalar(@prepared), '>', scalar(@kept), 'a prepared write has files');
is($sweep->(), 0, 'a sweep leaves them alone');
$node->safe_psql('postgres', $write->('other') . '; DROP TABLE other');
is_deeply([ shuffle_files($node) ], \@prepared, 'so does another writer');
$node->restart;
is($sweep->(), 0, 'and a sweep after a restart');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'append'});
$node->safe_psql('postgres', $write->('other') . '; DROP TABLE other');
is_deeply([ shuffle_files($node) ], \@kept, 'rolled back: the next writer removes them');
is_deeply([ glob("$root/*/prepared/*") ], [], 'and the note that told it to');

# The same for directories of partition files and a table that the transaction made.
$node->safe_psql('postgres',
	'BEGIN; ' . $write->('new', layout => 'partition_files') . q{; PREPARE TRANSACTION 'new'});
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'new'});
$node->safe_psql('postgres', $write->('other') . '; DROP TABLE other');
is_deeply([ shuffle_files($node) ], \@kept, 'rolled back: a new table has no files left');
is($directories->(), 1, 'nor a directory');

# A prepared DROP.
$node->safe_psql('postgres', $write->('dropped', layout => 'partition_files'));
$node->safe_psql('postgres', q{BEGIN; DROP TABLE dropped; PREPARE TRANSACTION 'drop'});
is($sweep->(), 0, 'a prepared DROP: a sweep leaves the files alone');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'drop'});
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM dropped'),
	'1000|500500', 'rolled back: the rows are still there');
$node->safe_psql('postgres', q{BEGIN; DROP TABLE dropped; PREPARE TRANSACTION 'drop'});
$node->safe_psql('postgres', q{COMMIT PREPARED 'drop'});
$node->safe_psql('postgres', $write->('other') . '; DROP TABLE other');
is_deeply([ shuffle_files($node) ], \@kept, 'committed: the next writer removes the files');

# Foreign files are nobody's business.
my ($database) = glob("$root/[0-9]*");
my ($storage) = glob("$database/[0-9]*_[0-9]*");
foreach my $file ("$root/README", "$database/notes", "$storage/notes.txt", "$storage/x.arrow")
{
	append_to_file($file, "mine\n");
}
is($sweep->(), 0, 'a sweep removes nothing that has another name');
ok(-e $_, "$_ is still there")
  foreach ("$root/README", "$database/notes", "$storage/notes.txt", "$storage/x.arrow");
unlink("$root/README", "$database/notes", "$storage/notes.txt", "$storage/x.arrow");

# A leftover with a name of ours goes, whatever it is; symbolic links are not followed.
my $old = sprintf('%016x-%08x-%016x-0-0', 3, 1, 42);
my $outside = PostgreSQL::Test::Utils::tempdir();
append_to_file("$outside/p00000.arrow", 'precious');
append_to_file("$storage/$old.arrow", 'leftover');
mkdir("$storage/$old") or die;
append_to_file("$storage/$old/p00000.arrow", 'leftover');
symlink($outside, "$storage/$old/link") or die;
is($sweep->(), 3, 'leftovers are removed and counted');
ok(-e "$outside/p00000.arrow", 'what a symbolic link points at is not');
is_deeply([ shuffle_files($node) ], \@kept, 'and what is needed is not, either');

# Of a transaction that has not happened yet: kept.
my $future = sprintf('%016x-%08x-%016x-0-0', 4_000_000_000, 1, 42);
append_to_file("$storage/$future.arrow", 'future');
is($sweep->(), 0, 'a file of a transaction to come is kept');
unlink("$storage/$future.arrow");

# Dropped databases.
$node->safe_psql('postgres', 'CREATE DATABASE gone');
$node->safe_psql('gone', 'CREATE EXTENSION shuffle_ext');
$node->safe_psql('gone', $write->('t', layout => 'partition_files'));
$node->safe_psql('gone', $write->('u'));
$node->safe_psql('postgres', 'CREATE DATABASE stays');
$node->safe_psql('stays', 'CREATE EXTENSION shuffle_ext');
$node->safe_psql('stays', $write->('t'));
$node->safe_psql('postgres', 'DROP DATABASE gone');
is($sweep->(), 5, "a dropped database's files are removed by a sweep in another one");
is(scalar(my @dirs = glob("$root/*")), 2, 'with their directory');
is($node->safe_psql('stays', 'SELECT count(*), sum(i) FROM t'), '1000|500500',
	"other databases' are not");
$node->safe_psql('postgres', 'DROP DATABASE stays');
$node->safe_psql('postgres', $write->('other') . '; DROP TABLE other');
is(scalar(@dirs = glob("$root/*")), 1, 'the next writer anywhere removes them, too');

# In the transaction that made it, a table is truncated in place.
$node->safe_psql('postgres',
	'BEGIN; ' . $write->('place') . '; TRUNCATE place; COMMIT');
is_deeply([ shuffle_files($node) ], \@kept, 'truncated where it was made: no file is left');
is($node->safe_psql('postgres', 'SELECT count(*) FROM place'), '0', 'nor a row');
$node->safe_psql('postgres', 'DROP TABLE place');
$node->safe_psql('postgres',
	'BEGIN; ' . $write->('place') . '; TRUNCATE place; '
	  . $write->('place', if_exists => 'append') . '; COMMIT; DROP TABLE place');
is_deeply([ shuffle_files($node) ], \@kept, 'truncated, written and dropped: no file is left');

# A write without rows.
my $before = $directories->();
$node->safe_psql('postgres', $write->('none') =~ s/ i', / i WHERE false', /r);
is($node->safe_psql('postgres', 'SELECT count(*) FROM none'), '0', 'a table without rows');
$node->safe_psql('postgres', 'DROP TABLE none');
is($directories->(), $before, 'its directory goes with it');

# What cannot be removed at commit is logged, and removed by the session's next write.
$node->safe_psql('postgres', $write->('stuck'));
my $name = $node->safe_psql('postgres', q{SELECT path FROM shuffle_segments WHERE relation = 'stuck'::regclass});
my $path = $node->data_dir . "/$name";
my $directory = $path =~ s{/[^/]+$}{}r;
my $offset = -s $node->logfile;
$node->safe_psql(
	'postgres', qq{
	COPY (SELECT 1) TO PROGRAM 'chmod 500 $directory';
	DROP TABLE stuck;
	COPY (SELECT 1) TO PROGRAM 'test -f $path && chmod 700 $directory';
	@{[ $write->('other') ]};
	DROP TABLE other;
	});
like(slurp_file($node->logfile, $offset), qr/could not remove file "\Q$name\E"/, 'logged');
is_deeply([ shuffle_files($node) ], \@kept, 'a file that could not be removed goes later');

# The extension goes with everything.
$node->safe_psql('postgres', $write->('more', layout => 'partition_files'));
$node->safe_psql('postgres', 'BEGIN; DROP EXTENSION shuffle_ext CASCADE; ROLLBACK');
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM more'), '1000|500500',
	'DROP EXTENSION rolled back: the rows are still there');
$node->safe_psql('postgres', 'DROP EXTENSION shuffle_ext CASCADE');
is_deeply([ shuffle_files($node) ], [], 'DROP EXTENSION CASCADE removes all files');

$node->stop;
done_testing();
