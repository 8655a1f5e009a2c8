# The same statements on heap tables and on shuffle tables, compared after each one.
#
# Every script, those in differential/ and those made up here, runs in a schema of its own
# with default_table_access_method as its only difference: once with heap, which gives the
# expected results, and with shuffle under several settings.  After each statement the
# contents of the script's tables are summed up in a way that parallel plans can share.
# Compared are all results, in any order, and the SQLSTATE of all errors; at the end, the
# rows themselves, both ways.
#
# DIFFERENTIAL_SEED changes what is made up, DIFFERENTIAL_ROUNDS how much.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use ShuffleTest;
use Test::More;

my $seed = $ENV{DIFFERENTIAL_SEED} // 20261130;
my $rounds = $ENV{DIFFERENTIAL_ROUNDS} // 4;

my $node = new_node('differential', 'max_prepared_transactions = 5', 'max_worker_processes = 16',
	'fsync = off', 'autovacuum = off');
my $server = $node->safe_psql('postgres', 'SHOW server_version_num');
my $force = $server >= 160000 ? 'debug_parallel_query' : 'force_parallel_mode';

my %runs = (
	plain => '',
	parallel => "SET $force = regress; SET max_parallel_workers_per_gather = 2; "
	  . 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; '
	  . 'SET min_parallel_table_scan_size = 0;',
	files => 'SET shuffle_ext.inline_size = 0;',
	# rows above block_bytes make the rows before them leave memory, too
	small => 'SET shuffle_ext.memory_limit = 1024; SET shuffle_ext.block_rows = 2; '
	  . 'SET shuffle_ext.block_bytes = 1024; SET shuffle_ext.block_min_rows = 1; '
	  . 'SET shuffle_ext.write_buffer_size = 64; SET shuffle_ext.inline_size = 4096; '
	  . q{SET shuffle_ext.codec = 'none';});

# ------------------------------------------------------------------ scripts

# A script: its tables, and its statements, each as psql takes it (COPY with its data).
sub read_script
{
	my ($file) = @_;
	my ($statement, $quoted, $data) = ('', 0, 0);
	my %script = (tables => [], statements => []);

	open(my $in, '<', $file) or die "cannot open $file: $!";
	while (my $line = <$in>)
	{
		@{ $script{tables} } = split(/[,\s]+/, $1) if $line =~ /^-- tables: (.*)/;
		next if $statement eq '' && $line =~ /^\s*(--.*)?$/;
		$statement .= $line;
		$quoted ^= 1 foreach $line =~ /\$\$/g;
		if ($data ? $line eq "\\.\n" : !$quoted && $line =~ /;\s*$/)
		{
			$data = !$data && $statement =~ /^COPY\b.*\bFROM STDIN\b/i;
			next if $data;
			push @{ $script{statements} }, $statement;
			$statement = '';
		}
	}
	die "$file ends inside a statement" if $statement ne '';
	return \%script;
}

sub pick
{
	return $_[ rand(@_) ];
}

# Transactions of inserts, errors, savepoints and DDL on three tables.
sub make_script
{
	my ($transactions) = @_;
	my @tables = ('r1', 'r2', 'r3');
	my %columns = map { $_ => [ 'note', 'amount' ] } @tables;
	my ($serial, $added) = (0, 0);
	my @out;

	push @out, "CREATE TABLE $_ (id int NOT NULL, note text DEFAULT 'none', "
	  . "amount numeric(10,2) CHECK (amount < 1000));\n"
	  foreach @tables;
	push @out, "SELECT options('r2', 5, 'id');\n";
	push @out, "SELECT options('r3', 3);\n";

	my $insert = sub {
		my $table = pick(@tables);
		my $n = pick(1, 1, 2, 5, 40, 300);
		my $first = $serial;
		$serial += $n;
		return pick(
			"INSERT INTO $table (id, note, amount) VALUES "
			  . join(', ', map { "($_, 'row $_', " . ($_ % 90) . '.25)' } $first .. $first + ($n > 40 ? 40 : $n)),
			"INSERT INTO $table (id, note) SELECT i, repeat(chr(65 + i % 26), i % 1500) "
			  . "FROM generate_series($first, $first + $n) i",
			"INSERT INTO $table (id) SELECT id + 100000 FROM " . pick(@tables) . " WHERE id % 3 = 0 AND id < 500000",
			"INSERT INTO $table SELECT * FROM $table WHERE id % 7 = 1",
			"INSERT INTO $table (id, amount) VALUES ($first, $n / 3.0) RETURNING id, amount, note",
			"WITH x AS (INSERT INTO $table (id) VALUES ($first), ($first + 1) RETURNING id) SELECT sum(id) FROM x",
			"EXECUTE add_$table($first)",
			"COPY $table (id, note, amount) FROM STDIN;\n"
			  . join('', map { "$_\t" . pick('\\N', "copied $_", 'x' x ($_ % 700)) . "\t" . ($_ % 999) . "\n" }
				  $first .. $first + $n) . '\\.');
	};
	my $failing = sub {
		my $table = pick(@tables);
		return pick(
			"INSERT INTO $table (id) SELECT 10 / (50 - i) FROM generate_series(1, 99) i",
			"INSERT INTO $table (id, amount) SELECT i, i FROM generate_series(900, 1100) i",
			"INSERT INTO $table (id) SELECT NULLIF(i, 77) FROM generate_series(1, 99) i",
			"INSERT INTO $table (id, amount) VALUES (1, 1), (2, 2), (3, 12345678901)",
			"COPY $table (id) FROM STDIN;\n1\n2\n3\nfour\n5\n\\.",
			'SELECT 1 / 0');
	};
	my $ddl = sub {
		my $table = pick(@tables);
		my $column = $columns{$table};
		my $kind = pick(qw(add add_default add_volatile drop retype truncate rename analyze widen));
		if ($kind =~ /^add/)
		{
			my $name = 'c' . ++$added;
			push @$column, $name;
			return "ALTER TABLE $table ADD COLUMN $name "
			  . { add => 'int', add_default => "text DEFAULT 'default $added'",
				add_volatile => "int DEFAULT nextval('numbers')" }->{$kind};
		}
		my @free = grep { /^c/ } @$column;
		my $name = @free ? pick(@free) : undef;
		return "ALTER TABLE $table ALTER COLUMN amount TYPE numeric(" . pick(12, 14, 16) . ',2)'
		  if $kind eq 'widen';
		return "ALTER TABLE $table ALTER COLUMN id TYPE " . pick('int', 'bigint') if $kind eq 'retype';
		return "TRUNCATE $table" if $kind eq 'truncate' && $serial % 3 == 0;
		return "ANALYZE $table" if $kind eq 'analyze' || !defined $name;
		@$column = grep { $_ ne $name } @$column;
		return "ALTER TABLE $table DROP COLUMN $name" if $kind eq 'drop';
		push @$column, "${name}x";
		return "ALTER TABLE $table RENAME COLUMN $name TO ${name}x";
	};

	# the order in which a rewrite numbers rows is not the same
	push @out, "CREATE SEQUENCE numbers MINVALUE 7 MAXVALUE 7 CYCLE;\n";
	push @out, "PREPARE add_$_ (int) AS INSERT INTO $_ (id, note) VALUES (\$1, 'prepared'), (\$1 + 1, DEFAULT);\n"
	  foreach @tables;
	foreach my $transaction (1 .. $transactions)
	{
		my $snapshot = sub { return { map { $_ => [ @{ $columns{$_} } ] } @tables } };
		my @saved;

		if (rand() < 0.25)
		{
			my $n = $transaction;
			push @out, $_ . ";\n" foreach pick($insert, $failing, $ddl)->(),
			  pick('VACUUM r1', 'VACUUM FULL r2', "SELECT compact('r1')", "SELECT compact('r2')",
				"SELECT compact('r3')", 'VACUUM (ANALYZE) r3');
			next;
		}
		push @saved, $snapshot->();
		push @out, 'BEGIN' . pick('', '', ' ISOLATION LEVEL REPEATABLE READ', ' ISOLATION LEVEL SERIALIZABLE') . ";\n";
		foreach (1 .. 2 + int(rand(7)))
		{
			my $what = rand();
			if ($what < 0.55) { push @out, $insert->() . ";\n" }
			elsif ($what < 0.68)
			{
				push @saved, $snapshot->();
				push @out, "SAVEPOINT s$#saved;\n";
			}
			elsif ($what < 0.78 && @saved > 1)
			{
				my $to = 1 + int(rand($#saved));
				$#saved = $to;
				%columns = %{ $saved[$to] };
				$saved[$to] = $snapshot->();
				push @out, "ROLLBACK TO s$to;\n";
			}
			elsif ($what < 0.84 && @saved > 1)
			{
				my $to = 1 + int(rand($#saved));
				$#saved = $to - 1;
				push @out, "RELEASE s$to;\n";
			}
			elsif ($what < 0.9 && @saved > 1)
			{
				push @out, $failing->() . ";\n";
				%columns = %{ $saved[-1] };
				$saved[-1] = $snapshot->();
				push @out, "ROLLBACK TO s$#saved;\n";
			}
			else { push @out, $ddl->() . ";\n" }
		}
		if (rand() < 0.3)
		{
			push @out, "ROLLBACK;\n";
			%columns = %{ $saved[0] };
		}
		else { push @out, "COMMIT;\n" }
	}
	return { tables => \@tables, statements => \@out };
}

# ------------------------------------------------------------------ running

# What the scripts call that differs between the two kinds of tables.
my %helpers = (
	heap => q{
		CREATE FUNCTION options(t regclass, n int, VARIADIC keys text[] DEFAULT '{}')
			RETURNS void LANGUAGE sql AS '';
		CREATE FUNCTION compact(t regclass) RETURNS void LANGUAGE sql AS '';},
	shuffle => q{
		CREATE FUNCTION options(t regclass, n int, VARIADIC keys text[] DEFAULT '{}')
			RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 1 .. cardinality(keys) LOOP
				EXECUTE format('SECURITY LABEL FOR shuffle_ext ON COLUMN %s.%I IS %L',
					t, keys[i], 'key=' || i);
			END LOOP;
			EXECUTE format('SECURITY LABEL FOR shuffle_ext ON TABLE %s IS %L', t,
				format('partitions=%s method=%s', n, CASE WHEN keys = '{}' THEN 'round_robin'
					ELSE format('hash keys=%s', cardinality(keys)) END));
		END $$;
		CREATE FUNCTION compact(t regclass) RETURNS void LANGUAGE sql AS
			'SELECT shuffle_compact(t)';});

# Runs a script; returns per statement what it printed, lines sorted, and its errors.
sub run_script
{
	my ($schema, $am, $settings, $script) = @_;
	my $file = $node->basedir . "/$schema.sql";
	my ($out, $err, $number) = ('', '', 0);

	open(my $sql, '>', $file) or die "cannot write $file: $!";
	print $sql "\\set VERBOSITY sqlstate\n";
	print $sql "SET client_min_messages = warning; CREATE SCHEMA $schema;\n";
	print $sql "SET search_path = $schema, public; SET default_table_access_method = $am;\n";
	print $sql $helpers{$am}, "LOAD 'shuffle_ext';\n$settings\n";
	foreach my $statement (@{ $script->{statements} })
	{
		$number++;
		print $sql "\\echo \@\@$number\n\\warn \@\@$number\n$statement";
		print $sql "SELECT '$_', count(*), sum(('x' || left(md5(x::text), 8))::bit(32)::bigint) "
		  . "FROM $_ x;\n"
		  foreach @{ $script->{tables} };
	}
	close($sql);
	IPC::Run::run([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', $file ],
		'<', \undef, '>', \$out, '2>', \$err);

	my @seen = map { '' } 0 .. $number;
	foreach my $stream ($out, $err)
	{
		my $at = 0;
		my @lines;

		$stream =~ s/^psql:[^ ]*: //mg;
		$stream =~ s/\b\Q$schema\E\b/SCHEMA/g;
		foreach my $line (split(/\n/, $stream), '@@0')
		{
			if ($line =~ /^@@(\d+)$/)
			{
				$seen[$at] .= join("\n", sort(@lines)) . "\n";
				($at, @lines) = ($1);
			}
			else { push @lines, $line }
		}
	}
	return \@seen;
}

# Rows that only one of two schemas has, in any table or materialized view of the first.
sub rows_that_differ
{
	my ($a, $b) = @_;
	my $tables = $node->safe_psql('postgres', "SELECT relname FROM pg_class "
		. "WHERE relnamespace = '$a'::regnamespace AND relkind IN ('r', 'm', 'p') ORDER BY 1");
	my $count = sub {
		my ($table) = @_;
		return "(SELECT count(*) FROM (SELECT row_to_json(x)::text FROM $a.$table x "
		  . "EXCEPT ALL SELECT row_to_json(x)::text FROM $b.$table x) d) + "
		  . "(SELECT count(*) FROM (SELECT row_to_json(x)::text FROM $b.$table x "
		  . "EXCEPT ALL SELECT row_to_json(x)::text FROM $a.$table x) d)";
	};

	return 0 if $tables eq '';
	return $node->safe_psql('postgres', 'SET client_min_messages = error; SELECT '
		. join(' + ', map { $count->($_) } split(/\n/, $tables)));
}

# ------------------------------------------------------------------ the tests

my %scripts;

foreach my $file (glob("$FindBin::RealBin/differential/*.sql"))
{
	my ($name) = $file =~ m{([^/]+)\.sql$};
	$scripts{$name} = read_script($file);
}
srand($seed);
$scripts{"made_up_$_"} = make_script(14) foreach 1 .. $rounds;

$node->safe_psql('postgres', 'CREATE ROLE differential_user; GRANT ALL ON DATABASE postgres TO differential_user');
my ($statements, $errors) = (0, 0);
foreach my $name (sort keys %scripts)
{
	my $script = $scripts{$name};
	my $expected = run_script("h_$name", 'heap', '', $script);

	$statements += @{ $script->{statements} };
	$errors += grep { /ERROR/ } @$expected;
	foreach my $run (sort keys %runs)
	{
		my $got = run_script("s_$name", 'shuffle', $runs{$run}, $script);
		my @different = grep { $got->[$_] ne $expected->[$_] } 0 .. $#$expected;

		is(scalar @different, 0, "$name, $run: " . @{ $script->{statements} } . ' statements');
		foreach my $number (@different[ 0 .. ($#different < 2 ? $#different : 2) ])
		{
			diag('statement ', $number, ': ', $number > 0 ? $script->{statements}[ $number - 1 ] : 'start');
			diag("heap:\n", $expected->[$number], "shuffle:\n", $got->[$number]);
		}
		is(rows_that_differ("h_$name", "s_$name"), 0, "$name, $run: rows") if !@different;
		is($node->safe_psql('postgres', "SELECT count(*) FROM pg_class c, LATERAL shuffle_verify(c.oid) v "
					. "WHERE relnamespace = 's_$name'::regnamespace AND relkind IN ('r', 'm') "
					. "AND relam = (SELECT oid FROM pg_am WHERE amname = 'shuffle') AND error IS NOT NULL"),
			0, "$name, $run: files are sound");
		$node->safe_psql('postgres', "SET client_min_messages = error; DROP SCHEMA s_$name CASCADE");
	}
}
cmp_ok($statements - $errors, '>', 400, 'enough statements that succeed');
cmp_ok($errors, '>', 50, 'enough that fail');

done_testing();
