# DBIx::Class: its result classes, deployment and schema loader, as its manual shows them.
package Shop::User;
use base 'DBIx::Class::Core';
__PACKAGE__->load_components('InflateColumn::DateTime') if eval { require DateTime::Format::Pg };
__PACKAGE__->table('dbic_users');
__PACKAGE__->add_columns(id => { data_type => 'integer', is_auto_increment => 1 }, name => { data_type => 'varchar', size => 50 }, score => { data_type => 'numeric', is_nullable => 1 }, raw => { data_type => 'bytea', is_nullable => 1 });
__PACKAGE__->set_primary_key('id');
__PACKAGE__->add_unique_constraint(dbic_users_name => ['name']);
__PACKAGE__->has_many(posts => 'Shop::Post', 'user_id');
package Shop::Post;
use base 'DBIx::Class::Core';
__PACKAGE__->table('dbic_posts');
__PACKAGE__->add_columns(id => { data_type => 'integer', is_auto_increment => 1, sequence => 'dbic_posts_id_seq' }, user_id => { data_type => 'integer' }, title => { data_type => 'text' });
__PACKAGE__->set_primary_key('id');
__PACKAGE__->belongs_to(user => 'Shop::User', 'user_id');
package Shop::Order;
use base 'DBIx::Class::Core';
__PACKAGE__->table('dbic_orders');
__PACKAGE__->add_columns(qw(tenant id price));
__PACKAGE__->set_primary_key(qw(tenant id));
package Shop;
use base 'DBIx::Class::Schema';
__PACKAGE__->register_class($_ => "Shop::$_") for qw(User Post Order);

package main;
use strict;
use warnings;
my $s = Shop->connect('dbi:Pg:', undef, undef, { RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoCommit => 1, quote_names => 1 });
my $d = sub { my @sql = @_; $s->storage->dbh_do(sub { $_[1]->do($_) for @sql }) };
sub want { my ($got, $expected) = @_; die "$got is not $expected" unless $got eq $expected }

my @tests = (
    tables => sub {
        my $key = eval { $d->('SELECT 1 FROM cleave.shards'); 1 } ? " WITH (cleave.shard_key = 'tenant')" : '';
        $d->('DROP TABLE IF EXISTS dbic_posts, dbic_users, dbic_orders', 'CREATE TABLE dbic_users (id serial PRIMARY KEY, name varchar(50) NOT NULL UNIQUE, score numeric, raw bytea)',
            'CREATE TABLE dbic_posts (id serial PRIMARY KEY, user_id int REFERENCES dbic_users ON DELETE CASCADE, title text)', "CREATE TABLE dbic_orders (tenant bigint, id bigint, price int, PRIMARY KEY (tenant, id))$key");
    },
    creates => sub {
        my $u = $s->resultset('User')->create({ name => 'a', score => '1.5', raw => "\x00\xff", posts => [{ title => 'p' }, { title => 'q' }] });
        want($u->id, 1);
        $u->discard_changes;
        want(unpack('H*', $u->raw), '00ff');
        want($u->posts->count, 2);
    },
    populates => sub {
        $s->populate('User', [['name'], map { ["n$_"] } 1 .. 200]);
        want($s->resultset('User')->count, 201);
    },
    searches => sub {
        my $r = $s->resultset('User')->search({ name => { -like => 'n1%' }, id => { '>' => 1 } }, { order_by => { -desc => 'id' }, rows => 5, page => 2 });
        want($r->pager->total_entries, 111);
        want(scalar $r->all, 5);
        want($s->resultset('User')->search({ 'posts.title' => 'p' }, { join => 'posts', prefetch => 'posts' })->first->name, 'a');
        want($s->resultset('Post')->search({ user_id => { -in => $s->resultset('User')->search({ name => 'a' })->get_column('id')->as_query } })->count, 2);
        want($s->resultset('Post')->search({}, { select => ['user_id', { count => 'id', -as => 'n' }], as => [qw(u n)], group_by => 'user_id', having => \'count(id) > 1' })->first->get_column('n'), 2);
        want($s->resultset('User')->search({ name => \['= upper(?)', 'A'] })->count, 0);
    },
    changes => sub {
        want($s->resultset('User')->search({ name => { -like => 'n2%' } })->update({ score => \'coalesce(score, 0) + 1' }), 12);
        my $u = $s->resultset('User')->find({ name => 'n1' }, { key => 'dbic_users_name' });
        $u->update({ score => 9 });
        want($s->resultset('User')->find_or_create({ name => 'n1' })->id, $u->id);
        want($s->resultset('User')->update_or_create({ name => 'n1', score => 4 })->score, 4);
        $u->delete;
        want($s->resultset('User')->search({ name => 'n1' })->count, 0);
    },
    transactions => sub {
        $s->txn_do(sub {
            $s->resultset('User')->create({ name => 'tx' });
            eval { $s->svp_begin('s'); $s->resultset('User')->create({ name => 'tx' }); 1 } and die 'no error';
            $s->svp_rollback('s');
        });
        eval { $s->txn_do(sub { $s->resultset('User')->delete; die "back\n" }) };
        want($s->resultset('User')->search({ name => 'tx' }, { for => 'update' })->count, 1);
        my $guard = $s->txn_scope_guard; $s->resultset('User')->search({ name => 'tx' })->delete; $guard->commit;
    },
    deferred => sub { $s->storage->with_deferred_fk_checks(sub { $s->resultset('Post')->create({ user_id => 1, title => 'd' }) }) },
    cursors => sub { my $c = $s->resultset('User')->search({}, { columns => ['id'] })->cursor; my $n = 0; $n++ while $c->next; want($n, 200) },
    sharded => sub {
        my $r = $s->resultset('Order');
        $s->populate('Order', [[qw(tenant id price)], map { [$_ % 9, $_, $_] } 0 .. 89]);
        want($r->find(3, 12)->price, 12);
        want($r->search({ tenant => 4 })->get_column('price')->sum, 445);
        want($r->search({ tenant => [1, 2] }, { order_by => { -desc => 'price' }, rows => 1 })->single->id, 83);
        want($r->search({ price => { '>' => 80 } })->delete, 9);
        want(join(',', map { $_->get_column('n') } $r->search({}, { select => [{ count => '*', -as => 'n' }], as => ['n'], group_by => 'tenant', order_by => 'tenant' })->all), '9,9,9,9,9,9,9,9,9');
    },
    loads_schema => sub {
        require DBIx::Class::Schema::Loader;
        local $SIG{__WARN__} = sub { };
        my $class = 'Loaded';
        @Loaded::ISA = ('DBIx::Class::Schema::Loader');
        DBIx::Class::Schema::Loader->can('import');
        Loaded->loader_options(constraint => qr/^dbic_/, naming => 'current', quiet => 1);
        my $l = Loaded->connect('dbi:Pg:');
        want(join(',', sort $l->sources), 'DbicOrder,DbicPost,DbicUser');
        want(join(',', $l->source('DbicOrder')->primary_columns), 'tenant,id');
        want($l->source('DbicPost')->has_relationship('user') ? 1 : 0, 1);
    },
);
while (my ($name, $f) = splice @tests, 0, 2) {
    if (eval { $f->(); 1 }) { print "ok $name\n" } else { my $e = $@ || '?'; $e =~ s/\n/ /g; print "not ok $name: $e\n" }
}
print "end\n";
