# Text in the files is UTF-8 whatever the encoding of the database is, and comes back as it was.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $node = new_node('encodings');

# Names, an enum label and values of every text-like type.  The statements are UTF-8; in a
# SQL_ASCII database they are what the client says they are.
my %word = (
	LATIN1 => 'grüß',
	WIN1252 => '€uro',
	EUC_JP => '日本語',
	SQL_ASCII => 'grüß',
	UTF8 => 'ü€日😀');

foreach my $encoding (sort keys %word)
{
	my $db = "enc_\L$encoding";
	my $w = $word{$encoding};
	my $client = $encoding eq 'SQL_ASCII' ? 'SQL_ASCII' : 'UTF8';
	my $query = sub {
		return $node->safe_psql($db, "SET client_encoding = '$client'; SET client_min_messages = warning; $_[0]");
	};

	$node->safe_psql('postgres',
		"CREATE DATABASE $db ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
	$query->(
		qq{CREATE EXTENSION shuffle_ext;
		CREATE TYPE label AS ENUM ('$w', 'x');
		CREATE TYPE pair AS (a text, "$w" varchar);
		CREATE TABLE heap (id int, "$w" text, v varchar(20), c char(8), n name, e label, t text[], p pair, j json, l label[]);
		INSERT INTO heap VALUES
		  (1, '$w', '$w', '$w', '$w', '$w', ARRAY['$w', NULL, 'ascii'], ('$w', '$w'), '{"$w": "$w"}', '{$w,x}'),
		  (2, 'ascii', '', 'ascii', 'ascii', 'x', '{}', NULL, '[]', '{}'),
		  (3, repeat('$w', 400000), NULL, NULL, NULL, NULL, ARRAY[repeat('$w', 1000)], NULL, NULL, NULL)});

	foreach my $types ('arrow', 'arrow_ext', 'native')
	{
		$query->("SELECT shuffle_write('TABLE heap', '$types', partitions => 1, types => '$types', codec => 'none')");
		is( $query->("SELECT count(*) FROM heap FULL JOIN $types s USING (id) WHERE s.id IS NULL OR heap *<> s"),
			'0', "$encoding, $types: every row comes back");
	}

	# convert_to() is not asked: the bytes of the word as this file has them
	my $hex = unpack('H*', $w);
	is( $query->("SELECT bool_or(position('\\x$hex'::bytea in chunk) > 0) FROM shuffle_fetch('arrow', 0) AS chunk"),
		't', "$encoding: the stream holds UTF-8");
}

# What is no UTF-8 needs 'native'.
$node->safe_psql('enc_sql_ascii', "CREATE TABLE bad AS SELECT 'abc' || chr(233) || 'x' AS word");
my (undef, undef, $stderr) =
  $node->psql('enc_sql_ascii', "\\set VERBOSITY verbose\nSELECT shuffle_write('TABLE bad', 'failed')");
like($stderr, qr/22021: text in column "word" has no UTF-8 form/, 'SQL_ASCII: invalid UTF-8 is refused');
like($stderr, qr/From byte 4 on it reads e9 78/, 'SQL_ASCII: the bytes are shown');
like($stderr, qr/HINT:.*types => 'native'/, 'SQL_ASCII: the hint names the way out');
is( $node->safe_psql(
		'enc_sql_ascii',
		q{SELECT rows FROM shuffle_write('TABLE bad', 'good', partitions => 1, types => 'native');
		SELECT encode(word::bytea, 'hex') FROM good}),
	"1\n616263e978", 'SQL_ASCII: native keeps the bytes');
is( $node->safe_psql(
		'enc_sql_ascii',
		q{SELECT rows FROM shuffle_write('TABLE bad', 'nulled', partitions => 1, unrepresentable => 'null');
		SELECT word IS NULL FROM nulled}),
	"1\nt", 'SQL_ASCII: NULL on request');

$node->stop;
done_testing();
