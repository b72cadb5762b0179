# DBD::Pg: its documented ways with a server.
use strict;
use warnings;
use DBI;
use DBD::Pg qw(:pg_types);

sub connection { DBI->connect("dbi:Pg:", undef, undef, { RaiseError => 1, PrintError => 0, AutoCommit => $_[0] // 1 }) }
my $probe = connection();
my $key = eval { $probe->selectall_arrayref("SELECT 1 FROM cleave.shards"); 1 } ? " WITH (cleave.shard_key = 'k')" : "";
$probe->disconnect;

sub fill {
    my ($d, $n) = @_;
    local $d->{PrintWarn} = 0;
    $d->do("DROP TABLE IF EXISTS p");
    $d->do("CREATE TABLE p (k bigint, id bigint, note text, PRIMARY KEY (k, id))$key");
    my $s = $d->prepare("INSERT INTO p VALUES (?, ?, ?)");
    $s->execute($_ % 10, $_, "n$_") for 0 .. $n - 1;
}

my @tests = (
    prepared => sub {
        my $d = connection(); fill($d, 30);
        my $s = $d->prepare("SELECT note FROM p WHERE k = ? AND id = ?");
        for (0 .. 29) { $s->execute($_ % 10, $_); die "row $_" unless $s->fetchrow_array eq "n$_"; $s->finish }
    },
    hashes => sub {
        my $d = connection();
        my $h = $d->selectall_hashref("SELECT id, note FROM p WHERE id < 5", "id");
        die scalar keys %$h unless keys %$h == 5 && $h->{3}{note} eq "n3";
    },
    transaction => sub {
        my $d = connection(0);
        $d->do("INSERT INTO p VALUES (1, 1000, 'x')"); $d->pg_savepoint("s");
        eval { $d->do("INSERT INTO p VALUES (1, 1000, 'x')") }; die "no error" unless $d->state eq "23505";
        $d->pg_rollback_to("s"); $d->commit;
        die unless $d->selectrow_array("SELECT count(*) FROM p WHERE id = 1000") == 1; $d->rollback;
    },
    copy_in => sub {
        my $d = connection(); $d->do("COPY p FROM STDIN");
        $d->pg_putcopydata("2\t" . (2000 + $_) . "\tc\n") for 1 .. 500; $d->pg_putcopyend;
        die unless $d->selectrow_array("SELECT count(*) FROM p WHERE id > 2000") == 500;
    },
    copy_out => sub {
        my $d = connection(); $d->do("COPY (SELECT id FROM p WHERE id < 4 ORDER BY id) TO STDOUT");
        my ($row, @got); push @got, $row while $d->pg_getcopydata($row) >= 0;
        die "@got" unless join("", @got) eq "0\n1\n2\n3\n";
    },
    cursor => sub {
        my $d = connection(0); $d->do("DECLARE c CURSOR FOR SELECT id FROM p ORDER BY id");
        my $r = $d->selectcol_arrayref("FETCH 3 FROM c"); die "@$r" unless "@$r" eq "0 1 2"; $d->rollback;
    },
    asynchronous => sub {
        my $d = connection(); $d->do("SELECT pg_sleep(0.1)", { pg_async => 1 }); die unless $d->pg_result;
    },
    cancel => sub { my $d = connection(); $d->do("SELECT pg_sleep(30)", { pg_async => 1 }); die unless $d->pg_cancel },
    notifies => sub {
        my $d = connection(); $d->do("LISTEN ch"); my $e = connection(); $e->do("NOTIFY ch, 'x'"); $d->do("SELECT 1");
        my $n = $d->pg_notifies; die "none" unless $n && $n->[2] eq "x";
    },
    last_insert_id => sub {
        my $d = connection(); $d->do("DROP TABLE IF EXISTS l"); $d->do("CREATE TABLE l (id serial PRIMARY KEY, v text)"); $d->do("INSERT INTO l (v) VALUES ('a')");
        die unless $d->last_insert_id(undef, undef, "l", undef) == 1;
    },
    catalogue => sub {
        my $d = connection();
        my @c = map { $_->{COLUMN_NAME} } @{ $d->column_info(undef, "public", "p", "%")->fetchall_arrayref({}) }; die "@c" unless "@c" eq "k id note";
        my @k = $d->primary_key(undef, "public", "p"); die "@k" unless "@k" eq "k id";
        die unless grep { $_->[2] eq "p" } @{ $d->table_info(undef, "public", "%", "TABLE")->fetchall_arrayref };
    },
    arrays => sub { my $d = connection(); my ($a) = $d->selectrow_array("SELECT ARRAY[1,2]"); die unless "@$a" eq "1 2" },
    bytea => sub {
        my $d = connection(); my $s = $d->prepare("SELECT ?::bytea"); $s->bind_param(1, "\x00\xff", { pg_type => PG_BYTEA }); $s->execute;
        die unless ($s->fetchrow_array)[0] eq "\x00\xff";
    },
    large_object => sub {
        my $d = connection(0); my $o = $d->pg_lo_creat($d->{pg_INV_WRITE} // 0x20000) or die "no object"; my $f = $d->pg_lo_open($o, 0x20000); $d->pg_lo_write($f, "abc", 3); $d->pg_lo_close($f); $d->pg_lo_unlink($o); $d->commit;
    },
);
while (my ($name, $f) = splice @tests, 0, 2) {
    if (eval { $f->(); 1 }) { print "ok $name\n" } else { my $e = $@ || "?"; $e =~ s/\n/ /g; print "not ok $name: $e\n" }
}
print "end\n";
