# What the TAP tests share: a server with the extension, and a look at its files.
package ShuffleTest;

use strict;
use warnings;

use Exporter 'import';
use File::Find;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(new_node shuffle_files segment_rows nothing_left wait_for start_sql kill_hard);

# A started server with the extension and the given lines in postgresql.conf.
sub new_node
{
	my ($name, @conf) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => 1);
	$node->append_conf('postgresql.conf', join("\n", @conf)) if @conf;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION shuffle_ext');
	return $node;
}

# Files of segments and index files of all databases, relative to the data directory; owner
# files left out.
sub shuffle_files
{
	my ($node, $root) = @_;
	my @files;

	$root //= $node->data_dir . '/pg_shuffle';
	find(sub { push @files, $File::Find::name if -f && /\.(?:arrow|index)$/ }, $root) if -d $root;
	s{^\Q$root\E/}{} for @files;
	@files = sort @files;
	return @files;    # a count in scalar context
}

sub segment_rows
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT count(*) FROM shuffle_segment');
}

# No file and no catalog row.
sub nothing_left
{
	my ($node, $name) = @_;

	is_deeply([ shuffle_files($node) ], [], "$name: no file is left");
	is(segment_rows($node), '0', "$name: no catalog row is left");
	return;
}

# Waits until the code returns true; 60 seconds at most.
sub wait_for
{
	my ($what, $code) = @_;

	foreach (1 .. 600)
	{
		return 1 if $code->();
		select(undef, undef, undef, 0.1);
	}
	fail("waited in vain for $what");
	return 0;
}

# A psql that runs in the background; returns the IPC::Run harness and a reference to
# what it writes to stderr.
sub start_sql
{
	my ($node, $sql) = @_;
	my ($out, $err) = ('', '');
	my $harness = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', $sql ],
		'<', \undef, '>', \$out, '2>', \$err);

	return ($harness, \$err);
}

# Ends a server process that it cannot handle.
sub kill_hard
{
	my ($pid) = @_;
	return kill('KILL', $pid);
}

1;
