# Damaged, truncated and missing files: verify finds any flipped bit, reading never
# returns wrong rows and says which file it is.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('damage');

$node->safe_psql(
	'postgres', q{
	SELECT count(*) FROM shuffle_write(
	  'SELECT i AS id, i * 1.5::numeric(10,2) AS n, repeat(chr(97 + i % 26), i) AS t,
	          CASE WHEN i % 3 = 0 THEN i END AS gap FROM generate_series(1, 40) i',
	  'small', partitions => 2, keys => '{id}', workers => 0)});
my ($name) = shuffle_files($node);
my $path = $node->data_dir . "/pg_shuffle/$name";
my $good = slurp_file($path);
my $bits = 8 * length($good);
my $sum = $node->safe_psql('postgres', 'SELECT md5(string_agg(s::text, NULL ORDER BY id)) FROM small s');
my $verify = q{SELECT count(*) FILTER (WHERE error IS NOT NULL) FROM shuffle_verify('small')};
is($node->safe_psql('postgres', $verify), '0', 'shuffle_verify accepts the good file');
is($node->safe_psql('postgres', q{SELECT file FROM shuffle_verify('small')}),
	"pg_shuffle/$name", 'and names it by its path in the data directory');

sub put
{
	my ($bytes) = @_;
	open(my $file, '>:raw', $path) or die "$path: $!";
	print $file $bytes;
	close($file);
	return;
}

my ($missed, $wrong) = (0, 0);
my @missed;
my $step = $ENV{SHUFFLE_TEST_EVERY_BIT} ? 1 : 61;    # a prime: every bit of a byte has its turn
for (my $bit = 0; $bit < $bits; $bit += $step)
{
	my $bytes = $good;
	vec($bytes, $bit, 1) ^= 1;
	put($bytes);
	if ($node->safe_psql('postgres', $verify) eq '0') { $missed++; push @missed, $bit; }
	next if $bit % (7 * $step);
	my ($read, $out) =
	  $node->psql('postgres', 'SELECT md5(string_agg(s::text, NULL ORDER BY id)) FROM small s');
	$wrong++ if $read == 0 && $out ne $sum;
}
is($missed, 0, 'shuffle_verify finds a flipped bit wherever it is')
  or diag("bits missed: @missed");
is($wrong, 0, 'a table with a flipped bit is never read as other rows');

put(substr($good, 0, length($good) / 2));
my ($status, $out, $err) = $node->psql('postgres', 'SELECT count(id) FROM small');
isnt($status, 0, 'a truncated file is an error');
like($err, qr/\Q$name\E/, 'which names the file');

unlink $path;
($status, $out, $err) = $node->psql('postgres', 'SELECT count(id) FROM small');
isnt($status, 0, 'a missing file is an error');
like($err, qr/small/, 'which names the table');
like($err, qr/\Q$name\E/, 'and the file');
is($node->safe_psql('postgres', $verify), '1', 'shuffle_verify misses it, too');

put($good);
is($node->safe_psql('postgres', 'SELECT md5(string_agg(s::text, NULL ORDER BY id)) FROM small s'),
	$sum, 'with the file back all is well');
unlink $path;
$node->safe_psql('postgres', 'DROP TABLE small');
nothing_left($node, 'a table whose file is missing can be dropped');

$node->stop;
done_testing();
