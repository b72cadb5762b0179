-- CREATE TABLE: the options are cut out of the text.
CREATE TABLE t (a bigint, b text, PRIMARY KEY (a, b)) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b text, PRIMARY KEY (a, b))
CREATE TABLE t (a bigint, b text) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b text)
CREATE TABLE t (a bigint NOT NULL, b text) WITH (cleave.shard_key = 'a', fillfactor = 70);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b text) WITH (fillfactor = 70)
CREATE TABLE t (a bigint NOT NULL, b text) WITH (fillfactor = 70, cleave.shard_key = 'a', autovacuum_enabled = off);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b text) WITH (fillfactor = 70, autovacuum_enabled = off)
CREATE TABLE t (a bigint DEFAULT 5, b numeric(10, 2), CHECK (b > 0)) WITH (cleave.shard_key = 'a') TABLESPACE x;
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint DEFAULT 5 NOT NULL, b numeric(10, 2), CHECK (b > 0)) TABLESPACE x
CREATE TABLE t (a bigint PRIMARY KEY) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint PRIMARY KEY)
CREATE TABLE IF NOT EXISTS app.t (a text, b uuid) WITH (cleave.shard_key = 'a, b');
--> schema change create table, all shards, creates {TableName:{Schema:app Name:t} Kind:sharded Keyspace: ShardKey:[a b] IfNotExists:true InPath:false} [CREATE TABLE]
-->   text: CREATE TABLE IF NOT EXISTS app.t (a text NOT NULL, b uuid NOT NULL)
CREATE TABLE t (a bigint) WITH (cleave.shard_key = 'a', cleave.keyspace = 'hash_bigint');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace:hash_bigint ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL)
CREATE TABLE t (a text) WITH (cleave.shard_key = 'a', cleave.keyspace = 'hash_bigint');
--> refused 42804: keyspace "hash_bigint" has keys of type (bigint), the shard key is (text)
-->   hint: choose another keyspace or other column types
CREATE TABLE t (a bigint) WITH (cleave.shard_key = 'a', cleave.keyspace = 'nosuch');
--> refused 42704: keyspace "nosuch" does not exist
-->   hint: create it: SELECT cleave.create_keyspace('nosuch', 'hash', ARRAY['bigint'])
CREATE TABLE t (a int, b text) WITH (cleave.reference = true);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:reference Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a int, b text)
CREATE TABLE t (a int, b text) WITH (cleave.reference);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:reference Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a int, b text)
CREATE TABLE t (a int, b text);
--> schema change create table, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
CREATE TABLE t (a int, b text) WITH (fillfactor = 70);
--> schema change create table, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
CREATE TABLE t ("A b" bigint, c int) WITH (cleave.shard_key = '"A b"');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[A b] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t ("A b" bigint NOT NULL, c int)
CREATE TABLE t (a bigint /* , ) */, b text) WITH (/* x */ cleave.shard_key = 'a' -- y
);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL /* , ) */, b text)
CREATE TABLE t (a bigint) WITH (cleave.shard_key = 'x');
--> refused 42703: column "x" named in cleave.shard_key does not exist
CREATE TABLE t (a bigint) WITH (cleave.shard_key = 'a, a');
--> refused 22023: cleave.shard_key names column a twice
-->   hint: WITH (cleave.shard_key = 'column[, column]'), with cleave.keyspace = 'name' if it is not the default one, or WITH (cleave.reference = true)
CREATE TABLE t (a bigint) WITH (cleave.shard_key = '');
--> refused 22023: cleave.shard_key names no column
-->   hint: WITH (cleave.shard_key = 'column[, column]'), with cleave.keyspace = 'name' if it is not the default one, or WITH (cleave.reference = true)
CREATE TABLE t (a bigint) WITH (cleave.nosuch = 'a');
--> refused 22023: unrecognized option cleave.nosuch
-->   hint: WITH (cleave.shard_key = 'column[, column]'), with cleave.keyspace = 'name' if it is not the default one, or WITH (cleave.reference = true)
CREATE TABLE t (a bigint) WITH (cleave.keyspace = 'hash_bigint');
--> refused 22023: cleave.keyspace without cleave.shard_key
-->   hint: WITH (cleave.shard_key = 'column[, column]'), with cleave.keyspace = 'name' if it is not the default one, or WITH (cleave.reference = true)
CREATE TABLE t (a bigint) WITH (cleave.reference = true, cleave.shard_key = 'a');
--> refused 22023: a reference table is on every shard: it has no shard key and no keyspace
-->   hint: WITH (cleave.shard_key = 'column[, column]'), with cleave.keyspace = 'name' if it is not the default one, or WITH (cleave.reference = true)
CREATE TABLE t (a bigint NULL) WITH (cleave.shard_key = 'a');
--> refused 42P16: shard key column "a" cannot be declared NULL
-->   hint: leave NULL out: shard key columns are NOT NULL
CREATE TABLE t (a float8) WITH (cleave.shard_key = 'a');
--> refused 0A000: a column of type float8 cannot be a shard key: equal numbers have several forms (0 and -0, NaN), so the position would not follow from the key
-->   hint: Use bigint, or text for decimal numbers.
CREATE TABLE t (a numeric) WITH (cleave.shard_key = 'a');
--> refused 0A000: a column of type pg_catalog.numeric cannot be a shard key: equal numbers have several forms (1 and 1.0), so the position would not follow from the key
-->   hint: Use bigint, or text for decimal numbers.
CREATE TABLE t (a bigint[]) WITH (cleave.shard_key = 'a');
--> refused 0A000: an array cannot be a shard key
-->   hint: Use a column of a plain type.
CREATE TABLE t (a mytype) WITH (cleave.shard_key = 'a');
--> refused 0A000: a column of type mytype cannot be a shard key: its hash and order are not known to the router
-->   hint: Use smallint, integer, bigint, text, character varying, uuid, date, timestamp, timestamptz, bytea or boolean.
CREATE TABLE t (a bigint, b int PRIMARY KEY) WITH (cleave.shard_key = 'a');
--> refused 0A000: PRIMARY KEY (b) of table t does not include the shard key column a, so two shards could hold equal rows
-->   hint: Add a to it.
CREATE TABLE t (a bigint, b int UNIQUE) WITH (cleave.shard_key = 'a');
--> refused 0A000: UNIQUE (b) of table t does not include the shard key column a, so two shards could hold equal rows
-->   hint: Add a to it.
CREATE TABLE t (a bigint, b int, UNIQUE (b)) WITH (cleave.shard_key = 'a');
--> refused 0A000: UNIQUE (b) of table t does not include the shard key column a, so two shards could hold equal rows
-->   hint: Add a to it.
CREATE TABLE t (a bigint, b int4range, EXCLUDE USING gist (a WITH =, b WITH &&)) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b int4range, EXCLUDE USING gist (a WITH =, b WITH &&))
CREATE TABLE t (a bigint, b int4range, EXCLUDE USING gist (b WITH &&)) WITH (cleave.shard_key = 'a');
--> refused 0A000: EXCLUDE of table t does not include the shard key column a, so two shards could hold equal rows
-->   hint: Add a to it.
CREATE TABLE t (a bigint, b serial) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true}, create public.t_b_seq integer first 1 start 1 by 1 in 1..2147483647 cache 0 cycle false of t.b [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b integer NOT NULL DEFAULT cleave_internal.nextval('public.t_b_seq'))
CREATE TABLE t (a bigint, b int GENERATED ALWAYS AS IDENTITY) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true}, create public.t_b_seq integer first 1 start 1 by 1 in 1..2147483647 cache 0 cycle false of t.b identity [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b int NOT NULL DEFAULT cleave_internal.nextval('public.t_b_seq', 'always'))
CREATE TABLE t (a bigint, b bigint DEFAULT nextval('s')) WITH (cleave.shard_key = 'a');
--> refused 0A000: the default calls nextval() of a sequence that is not the cluster's: each shard would count by itself
-->   hint: Make the sequence through the router (CREATE SEQUENCE), and let the default be nextval('name') alone.
CREATE TABLE t (a bigint, b uuid DEFAULT gen_random_uuid()) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b uuid DEFAULT gen_random_uuid())
CREATE TABLE t (a bigint, b bigint DEFAULT myfunction()) WITH (cleave.shard_key = 'a');
--> refused 0A000: function myfunction() is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have
-->   hint: Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.
CREATE TABLE t (a bigint GENERATED ALWAYS AS (5) STORED) WITH (cleave.shard_key = 'a');
--> refused 0A000: a generated column cannot be a shard key: its value is not in the INSERT
-->   hint: Make it a plain column and write its value.
CREATE TABLE t (a bigint, LIKE orders) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, LIKE orders)
CREATE TABLE t (LIKE notes);
--> schema change create table, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
CREATE TABLE t (a bigint) INHERITS (notes) WITH (cleave.shard_key = 'a');
--> refused 0A000: a sharded table cannot inherit, be partitioned or be made from a type yet
-->   hint: Write its columns out, without INHERITS, OF, PARTITION BY or PARTITION OF.
CREATE TABLE t () INHERITS (orders);
--> refused 0A000: inheritance and partitions of sharded and reference tables are not supported yet
CREATE TABLE t (a bigint) PARTITION BY RANGE (a) WITH (cleave.shard_key = 'a');
--> refused 0A000: a sharded table cannot inherit, be partitioned or be made from a type yet
-->   hint: Write its columns out, without INHERITS, OF, PARTITION BY or PARTITION OF.
CREATE TABLE t (a bigint) PARTITION BY RANGE (a);
--> schema change create table, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
CREATE TABLE t PARTITION OF orders DEFAULT;
--> refused 0A000: inheritance and partitions of sharded and reference tables are not supported yet
CREATE TABLE t (a int, b uuid DEFAULT gen_random_uuid()) WITH (cleave.reference = true);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:reference Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a int, b uuid DEFAULT gen_random_uuid())
CREATE TABLE t (a int, b timestamptz DEFAULT now()) WITH (cleave.reference = true);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:reference Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a int, b timestamptz DEFAULT now())
CREATE TEMP TABLE t AS SELECT id, count(*) AS n FROM orders GROUP BY id;
--> schema change create table as [SELECT]
-->   text: CREATE TEMPORARY TABLE t AS SELECT id, count(*) AS n FROM orders GROUP BY id  WITH NO DATA
CREATE TEMPORARY TABLE IF NOT EXISTS t ON COMMIT DROP AS SELECT * FROM orders;
--> refused 0A000: CREATE TABLE IF NOT EXISTS ... AS with rows of sharded tables is not supported
-->   hint: Leave IF NOT EXISTS out.
SELECT id INTO TEMP t FROM orders WHERE tenant_id = 5;
--> schema change create table as [SELECT]
-->   text: CREATE TEMPORARY TABLE t AS SELECT id FROM orders WHERE tenant_id = 5  WITH NO DATA
CREATE TEMP TABLE notes AS SELECT id FROM orders;
--> refused 0A000: a temporary table cannot have the name of notes, which it would hide
-->   hint: Give it another name.
CREATE TEMP TABLE app.t AS SELECT id FROM orders;
--> refused 42P16: cannot create temporary relation in non-temporary schema
CREATE TEMP TABLE t AS SELECT * FROM cleave.shards;
--> refused 0A000: a temporary table cannot be created from the rows of cleave.shards
-->   hint: Create the table first, then insert what a query of its own gave.
CREATE TEMP TABLE t (a int);
--> default shard [CREATE TABLE]
CREATE TABLE cleave.t (a int);
--> refused 42501: schema "cleave" belongs to the router
-->   hint: create your objects in another schema
CREATE TABLE pg_catalog.t (a int);
--> refused 42501: permission denied: schema "pg_catalog" is a system schema
-- Foreign keys.
CREATE TABLE t (a bigint, b bigint, FOREIGN KEY (a, b) REFERENCES orders (tenant_id, id)) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b bigint, FOREIGN KEY (a, b) REFERENCES orders (tenant_id, id))
CREATE TABLE t (a bigint, b bigint, FOREIGN KEY (b, a) REFERENCES orders (tenant_id, id)) WITH (cleave.shard_key = 'a');
--> refused 0A000: the foreign key to orders does not match shard key with shard key, so the referenced row could be on another shard
-->   hint: Include a in the foreign key, referencing the shard key of orders.
CREATE TABLE t (a bigint, b bigint, FOREIGN KEY (a, b) REFERENCES orders) WITH (cleave.shard_key = 'a');
--> refused 0A000: a foreign key between sharded tables has to name the columns that it references
-->   hint: Write REFERENCES orders (column, ...).
CREATE TABLE t (a bigint, b bigint REFERENCES small (id)) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b bigint REFERENCES small (id))
CREATE TABLE t (a bigint, b bigint REFERENCES notes (id)) WITH (cleave.shard_key = 'a');
--> refused 0A000: a foreign key to notes, which is on the default shard only, cannot be checked on the other shards
-->   hint: Declare notes as a reference table, or leave the foreign key out.
CREATE TABLE t (a text REFERENCES orders (note)) WITH (cleave.shard_key = 'a');
--> refused 0A000: a foreign key to orders, whose rows are on other shards, cannot be checked
-->   hint: Put both tables in one keyspace with equal shard keys.
CREATE TABLE t (a bigint, b bigint, PRIMARY KEY (a, b), FOREIGN KEY (a, b) REFERENCES t (a, b)) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b bigint, PRIMARY KEY (a, b), FOREIGN KEY (a, b) REFERENCES t (a, b))
CREATE TABLE t (a bigint, b bigint, FOREIGN KEY (a, b) REFERENCES orders (tenant_id, id) ON DELETE SET NULL) WITH (cleave.shard_key = 'a');
--> refused 0A000: a foreign key action of SET NULL or SET DEFAULT would change the shard key
-->   hint: Use CASCADE, RESTRICT or NO ACTION.
CREATE TABLE t (a bigint, b bigint, FOREIGN KEY (a, b) REFERENCES orders (tenant_id, id) ON DELETE CASCADE) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b bigint, FOREIGN KEY (a, b) REFERENCES orders (tenant_id, id) ON DELETE CASCADE)
CREATE TABLE t (a bigint REFERENCES orders (id));
--> refused 0A000: a foreign key to orders, whose rows are on other shards, cannot be checked
-->   hint: Put both tables in one keyspace with equal shard keys.
CREATE TABLE t (a bigint REFERENCES notes (id), b bigint REFERENCES small (id));
--> schema change create table, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
-- From queries.
CREATE TABLE t AS SELECT 1 AS a;
--> schema change create table as, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [SELECT]
CREATE TABLE t AS SELECT * FROM notes;
--> schema change create table as, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [SELECT]
CREATE TABLE t AS SELECT * FROM orders WHERE tenant_id = 5;
--> schema change create table as, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [SELECT]
-->   text: CREATE TABLE t AS SELECT * FROM orders WHERE tenant_id = 5  WITH NO DATA
SELECT * INTO t FROM notes;
--> schema change create table as, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [SELECT]
CREATE MATERIALIZED VIEW v AS SELECT 1;
--> schema change create materialized view [SELECT]
-- ALTER TABLE.
ALTER TABLE orders ADD COLUMN x int;
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders ADD COLUMN x int UNIQUE;
--> refused 0A000: UNIQUE (x) of table orders does not include the shard key column tenant_id, so two shards could hold equal rows
-->   hint: Add tenant_id to it.
ALTER TABLE orders ADD COLUMN x serial;
--> schema change alter table, all shards, alters [{public orders}], create public.orders_x_seq integer first 1 start 1 by 1 in 1..2147483647 cache 0 cycle false of orders.x [ALTER TABLE]
-->   text: ALTER TABLE orders ADD COLUMN x integer NOT NULL DEFAULT cleave_internal.nextval('public.orders_x_seq')
ALTER TABLE orders ADD COLUMN x int DEFAULT 5, DROP COLUMN note;
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders DROP COLUMN tenant_id;
--> refused 0A000: column tenant_id is the shard key of table orders
-->   hint: Create a table with another shard key and copy the rows.
ALTER TABLE orders ALTER COLUMN tenant_id TYPE int;
--> refused 0A000: the type of column tenant_id cannot change: it is the shard key of table orders, and its rows are placed by it
-->   hint: Create a table with another shard key and copy the rows.
ALTER TABLE orders ALTER COLUMN note TYPE varchar(10) USING left(note, 10);
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders ALTER COLUMN tenant_id DROP NOT NULL;
--> refused 0A000: column tenant_id is the shard key of table orders
-->   hint: Create a table with another shard key and copy the rows.
ALTER TABLE orders ALTER COLUMN note SET DEFAULT 'x';
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders ALTER COLUMN id SET DEFAULT nextval('s');
--> refused 0A000: the default calls nextval() of a sequence that is not the cluster's: each shard would count by itself
-->   hint: Make the sequence through the router (CREATE SEQUENCE), and let the default be nextval('name') alone.
ALTER TABLE orders ADD CONSTRAINT u UNIQUE (id);
--> refused 0A000: UNIQUE (id) of table orders does not include the shard key column tenant_id, so two shards could hold equal rows
-->   hint: Add tenant_id to it.
ALTER TABLE orders ADD CONSTRAINT u UNIQUE (tenant_id, id);
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders ADD PRIMARY KEY (tenant_id, id);
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE items ADD FOREIGN KEY (tenant_id, order_id) REFERENCES orders (tenant_id, id);
--> schema change alter table, all shards, alters [{public items}] [ALTER TABLE]
ALTER TABLE items ADD FOREIGN KEY (order_id) REFERENCES orders (id);
--> refused 0A000: the foreign key to orders does not match shard key with shard key, so the referenced row could be on another shard
-->   hint: Include tenant_id in the foreign key, referencing the shard key of orders.
ALTER TABLE orders ADD CHECK (id > 0) NOT VALID;
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders VALIDATE CONSTRAINT c;
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders SET (fillfactor = 70);
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders SET (cleave.shard_key = 'id');
--> refused 0A000: the options cleave.* of a table cannot be changed with ALTER TABLE
-->   hint: An existing table is sharded with SELECT cleave.distribute('orders', 'column').
ALTER TABLE orders DISABLE TRIGGER ALL;
--> refused 0A000: the triggers of table orders hold the shards' guards and cannot be switched through the router
ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
--> refused 0A000: row level security is not supported through the router
-->   hint: Put the condition into the statements, or into a view; with auth: passthrough, policies that are made on each shard directly hold (docs/security.md).
ALTER TABLE orders OWNER TO bob;
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders RENAME TO orders2;
--> schema change alter table, all shards, alters [{public orders2}], was {public orders} [ALTER TABLE]
ALTER TABLE orders RENAME COLUMN note TO remark;
--> schema change alter table, all shards, alters [{public orders}], column note becomes remark [ALTER TABLE]
ALTER TABLE orders RENAME COLUMN tenant_id TO tenant;
--> schema change alter table, all shards, alters [{public orders}], column tenant_id becomes tenant [ALTER TABLE]
ALTER TABLE orders RENAME CONSTRAINT a TO b;
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders SET SCHEMA app;
--> schema change alter table, all shards, alters [{app orders}], was {public orders} [ALTER TABLE]
ALTER TABLE notes ADD COLUMN x serial;
--> schema change alter table, alters [{public notes}] [ALTER TABLE]
ALTER TABLE notes SET SCHEMA app;
--> schema change alter table, alters [{app notes}], was {public notes} [ALTER TABLE]
ALTER TABLE nosuch ADD COLUMN x int;
--> schema change alter table [ALTER TABLE]
-- DROP, TRUNCATE, indexes.
DROP TABLE orders;
--> schema change drop table, all shards, drops [{public orders}] [DROP TABLE]
DROP TABLE IF EXISTS orders, items CASCADE;
--> schema change drop table, all shards, drops [{public orders} {public items}] [DROP TABLE]
DROP TABLE IF EXISTS "orders", notes, small, app.orders, nope CASCADE;
--> schema change drop table, all shards, drops [{public orders} {public notes} {public small} {app orders}] [DROP TABLE]
-->   elsewhere: DROP TABLE IF EXISTS orders, small CASCADE
TRUNCATE notes, orders, ONLY items RESTART IDENTITY;
--> schema change truncate, all shards, truncates [{public notes} {public orders} {public items}] [TRUNCATE TABLE]
-->   elsewhere: TRUNCATE orders, ONLY items RESTART IDENTITY
GRANT SELECT, UPDATE (note) ON orders, notes, nope TO somebody WITH GRANT OPTION;
--> schema change grant, all shards [GRANT]
-->   elsewhere: GRANT select, update (note) ON orders TO somebody WITH GRANT OPTION
REVOKE ALL ON TABLE notes, nope FROM somebody CASCADE;
--> schema change revoke [REVOKE]
DROP TABLE orders, notes;
--> schema change drop table, all shards, drops [{public orders} {public notes}] [DROP TABLE]
-->   elsewhere: DROP TABLE orders
DROP TABLE notes;
--> schema change drop table, drops [{public notes}] [DROP TABLE]
DROP TABLE nosuch;
--> schema change drop table [DROP TABLE]
DROP TABLE IF EXISTS nosuch;
--> schema change drop table [DROP TABLE]
DROP TABLE app.orders;
--> schema change drop table, drops [{app orders}] [DROP TABLE]
TRUNCATE orders;
--> schema change truncate, all shards, truncates [{public orders}] [TRUNCATE TABLE]
TRUNCATE TABLE orders, items RESTART IDENTITY;
--> schema change truncate, all shards, truncates [{public orders} {public items}] [TRUNCATE TABLE]
TRUNCATE orders CASCADE;
--> schema change truncate, all shards, truncates [{public orders}], and what refers to them [TRUNCATE TABLE]
TRUNCATE orders, notes;
--> schema change truncate, all shards, truncates [{public orders} {public notes}] [TRUNCATE TABLE]
-->   elsewhere: TRUNCATE orders
TRUNCATE notes CASCADE;
--> schema change truncate, and what refers to them [TRUNCATE TABLE]
TRUNCATE small;
--> schema change truncate, all shards, truncates [{public small}] [TRUNCATE TABLE]
CREATE INDEX ON orders (note);
--> schema change create index, all shards, alters [{public orders}] [CREATE INDEX]
CREATE INDEX CONCURRENTLY i ON orders (lower(note)) WHERE id > 0;
--> schema change create index, all shards, alters [{public orders}], concurrently [CREATE INDEX]
CREATE INDEX i ON orders (myfunction(note));
--> refused 0A000: function myfunction() is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have
-->   hint: Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.
CREATE UNIQUE INDEX ON orders (tenant_id COLLATE ci, id);
--> refused 0A000: UNIQUE INDEX ((expression), id) of table orders does not include the shard key column tenant_id, so two shards could hold equal rows
-->   hint: Add tenant_id to it.
CREATE UNIQUE INDEX ON orders (tenant_id COLLATE "C", id);
--> schema change create index, all shards, alters [{public orders}] [CREATE INDEX]
CREATE UNIQUE INDEX ON orders (id);
--> refused 0A000: UNIQUE INDEX (id) of table orders does not include the shard key column tenant_id, so two shards could hold equal rows
-->   hint: Add tenant_id to it.
CREATE UNIQUE INDEX ON orders (tenant_id, id);
--> schema change create index, all shards, alters [{public orders}] [CREATE INDEX]
CREATE UNIQUE INDEX ON orders ((tenant_id + 0), id);
--> refused 0A000: UNIQUE INDEX ((expression), id) of table orders does not include the shard key column tenant_id, so two shards could hold equal rows
-->   hint: Add tenant_id to it.
CREATE UNIQUE INDEX ON notes (id);
--> schema change create index, alters [{public notes}] [CREATE INDEX]
DROP INDEX i;
--> schema change drop index, all shards [DROP INDEX]
-->   elsewhere: DROP INDEX IF EXISTS i
DROP INDEX CONCURRENTLY i;
--> schema change drop index, all shards, concurrently [DROP INDEX]
-->   elsewhere: DROP INDEX CONCURRENTLY IF EXISTS i
DROP INDEX IF EXISTS app.i;
--> schema change drop index, all shards [DROP INDEX]
ALTER INDEX i RENAME TO j;
--> schema change alter index, all shards [ALTER INDEX]
-->   elsewhere: ALTER INDEX IF EXISTS i RENAME TO j
ALTER INDEX i SET (fillfactor = 70);
--> schema change alter index, all shards [ALTER INDEX]
-->   elsewhere: ALTER INDEX IF EXISTS i SET (fillfactor = 70)
-- Schemas, types, domains, sequences, comments.
CREATE SCHEMA s;
--> schema change create schema, all shards [CREATE SCHEMA]
CREATE SCHEMA cleave;
--> refused 42501: schema "cleave" belongs to the router
-->   hint: create your objects in another schema
CREATE SCHEMA pg_x;
--> refused 42939: unacceptable schema name "pg_x"
CREATE SCHEMA s CREATE TABLE t (a int);
--> refused 0A000: CREATE SCHEMA with objects in it is not supported
-->   hint: Create the schema first, then each object in a statement of its own.
ALTER SCHEMA s RENAME TO u;
--> schema change alter schema, all shards, schema s becomes u [ALTER SCHEMA]
DROP SCHEMA s;
--> schema change drop schema, all shards [DROP SCHEMA]
DROP SCHEMA app CASCADE;
--> schema change drop schema, all shards, drops [{app orders}], drops schemas [app] [DROP SCHEMA]
DROP SCHEMA cleave_internal CASCADE;
--> refused 42501: permission denied for schema cleave_internal
-->   hint: read the shard map through the schema cleave, for example SELECT * FROM cleave.tables
CREATE TYPE mood AS ENUM ('a', 'b');
--> schema change create type, all shards [CREATE TYPE]
CREATE TYPE pair AS (a int, b int);
--> schema change create type, all shards [CREATE TYPE]
CREATE TYPE r AS RANGE (subtype = int4);
--> schema change create type, all shards [CREATE TYPE]
ALTER TYPE mood ADD VALUE 'c';
--> schema change alter type, all shards [ALTER TYPE]
ALTER TYPE mood RENAME VALUE 'a' TO 'z';
--> schema change alter type, all shards [ALTER TYPE]
ALTER TYPE pair ADD ATTRIBUTE c int;
--> schema change alter type, all shards [ALTER TYPE]
DROP TYPE mood;
--> schema change drop type, all shards [DROP TYPE]
DROP TYPE mood CASCADE;
--> schema change drop type, all shards [DROP TYPE]
CREATE DOMAIN d AS int CHECK (VALUE > 0);
--> schema change create domain, all shards [CREATE DOMAIN]
CREATE DOMAIN d AS int CHECK (myfunction(VALUE));
--> refused 0A000: function myfunction() is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have
-->   hint: Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.
ALTER DOMAIN d DROP CONSTRAINT c;
--> schema change alter domain, all shards [ALTER DOMAIN]
DROP DOMAIN d;
--> schema change drop domain, all shards [DROP DOMAIN]
CREATE SEQUENCE s;
--> schema change create sequence, create public.s bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false, on the map only [CREATE SEQUENCE]
CREATE SEQUENCE s OWNED BY notes.id;
--> schema change create sequence, create public.s bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false of notes.id, on the map only [CREATE SEQUENCE]
ALTER SEQUENCE s RESTART WITH 5;
--> schema change alter sequence, all shards [ALTER SEQUENCE]
-->   elsewhere: ALTER SEQUENCE IF EXISTS s RESTART WITH 5
ALTER SEQUENCE s RENAME TO q;
--> schema change alter sequence, all shards [ALTER SEQUENCE]
-->   elsewhere: ALTER SEQUENCE IF EXISTS s RENAME TO q
DROP SEQUENCE s;
--> schema change drop sequence, all shards [DROP SEQUENCE]
-->   elsewhere: DROP SEQUENCE IF EXISTS s
COMMENT ON TABLE orders IS 'x';
--> schema change comment, all shards [COMMENT]
COMMENT ON COLUMN orders.note IS 'x';
--> schema change comment, all shards [COMMENT]
COMMENT ON TABLE notes IS 'x';
--> schema change comment [COMMENT]
COMMENT ON SCHEMA app IS 'x';
--> schema change comment, all shards [COMMENT]
COMMENT ON INDEX i IS 'x';
--> schema change comment, all shards [COMMENT]
-->   elsewhere: DO $cleave$ BEGIN COMMENT ON INDEX i IS 'x'; EXCEPTION WHEN undefined_table OR undefined_object OR undefined_function OR undefined_column OR invalid_schema_name THEN NULL; END $cleave$
-- Times: one for all shards.
ALTER TABLE orders ADD COLUMN x timestamptz DEFAULT now(), ADD y date DEFAULT 'today', ADD z uuid DEFAULT gen_random_uuid();
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
-->   text: ALTER TABLE orders ADD COLUMN x timestamptz DEFAULT ('cleave_time_0_'::timestamp with time zone), ADD COLUMN y date DEFAULT 'cleave_time_1_', ADD COLUMN z uuid DEFAULT gen_random_uuid(), ALTER COLUMN x SET DEFAULT now()
ALTER TABLE orders ALTER COLUMN note TYPE text USING note || now();
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
-->   text: ALTER TABLE orders ALTER COLUMN note TYPE text USING note || 'cleave_time_0_'::timestamp with time zone
ALTER TABLE countries ADD COLUMN x uuid DEFAULT gen_random_uuid();
--> schema change alter table [ALTER TABLE]
CREATE TABLE t (a bigint, b timestamptz DEFAULT 'now', c text DEFAULT 'now') WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b timestamptz DEFAULT 'cleave_time_0_', c text DEFAULT 'now')
CREATE TABLE t (a bigint, b timestamptz[] DEFAULT '{now}') WITH (cleave.shard_key = 'a');
--> refused 0A000: the text '{now}' has a word for the time inside, which each shard would read by its own clock
-->   hint: Write the time itself, or an expression with now().
CREATE TABLE t (a bigint, b timestamptz DEFAULT statement_timestamp()) WITH (cleave.shard_key = 'a');
--> refused 0A000: the default says something of one shard's session, or the time at which it began its part of a statement
-->   hint: now() is one time for all shards.
CREATE TABLE t (a bigint, b text DEFAULT current_database()) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b text DEFAULT CAST('cleave' AS pg_catalog.name))
CREATE TABLE t (a bigint, b text DEFAULT 'db ' || current_catalog) WITH (cleave.reference = true);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:reference Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint, b text DEFAULT 'db ' || CAST('cleave' AS pg_catalog.name))
CREATE TABLE t (a bigint, b oid DEFAULT 'pg_class'::regclass) WITH (cleave.shard_key = 'a');
--> refused 0A000: an expression that gives a column its values says the OID of an object, which is another on each shard
-->   hint: Take the value in a statement of its own (SELECT), and write it as a constant.
CREATE TABLE t (a bigint, b bigint DEFAULT 'orders'::regclass::oid::bigint) WITH (cleave.reference = true);
--> refused 0A000: an expression that gives a column its values says the OID of an object, which is another on each shard
-->   hint: Take the value in a statement of its own (SELECT), and write it as a constant.
CREATE TABLE t (a bigint, b bigint GENERATED ALWAYS AS (a + 'orders'::regclass::oid::bigint) STORED) WITH (cleave.shard_key = 'a');
--> refused 0A000: an expression that gives a column its values says the OID of an object, which is another on each shard
-->   hint: Take the value in a statement of its own (SELECT), and write it as a constant.
CREATE TABLE t (a bigint, b oid DEFAULT to_regclass('orders')) WITH (cleave.shard_key = 'a');
--> refused 0A000: an expression that gives a column its values says the OID of an object, which is another on each shard
-->   hint: Take the value in a statement of its own (SELECT), and write it as a constant.
CREATE TABLE t (a bigint, b text DEFAULT version(), c inet DEFAULT inet_server_addr()) WITH (cleave.shard_key = 'a');
--> refused 0A000: an expression that gives a column its values says version(), which is another on each shard
-->   hint: Take the value in a statement of its own (SELECT), and write it as a constant.
CREATE TABLE t (a bigint, b text DEFAULT current_setting('port')) WITH (cleave.shard_key = 'a');
--> refused 0A000: an expression that gives a column its values says current_setting() of a setting that each server has by itself, which is another on each shard
-->   hint: Take the value in a statement of its own (SELECT), and write it as a constant.
CREATE TABLE t (a bigint, b text DEFAULT current_setting('app.tenant'), c text DEFAULT current_schema(), d name DEFAULT current_user, e text DEFAULT current_setting('timezone', true)) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b text DEFAULT current_setting('app.tenant'), c text DEFAULT current_schema(), d name DEFAULT current_user, e text DEFAULT current_setting('timezone', true))
CREATE TABLE t (a bigint, b text DEFAULT 'orders'::regclass, c regclass DEFAULT 'orders'::regclass, d text DEFAULT 'x' || 'orders'::regclass::text, e tsvector DEFAULT to_tsvector('english'::regconfig, 'x')) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint NOT NULL, b text DEFAULT 'orders'::regclass, c regclass DEFAULT 'orders'::regclass, d text DEFAULT 'x' || 'orders'::regclass::text, e tsvector DEFAULT to_tsvector('english'::regconfig, 'x'))
CREATE TABLE t (a bigint, b regclass DEFAULT 16400::regclass) WITH (cleave.shard_key = 'a');
--> refused 0A000: an expression that gives a column its values says the OID of an object, which is another on each shard
-->   hint: Take the value in a statement of its own (SELECT), and write it as a constant.
CREATE DOMAIN d AS text DEFAULT current_database();
--> schema change create domain, all shards [CREATE DOMAIN]
-->   text: CREATE DOMAIN d AS text DEFAULT CAST('cleave' AS pg_catalog.name)
ALTER DOMAIN d SET DEFAULT current_catalog;
--> schema change alter domain, all shards [ALTER DOMAIN]
-->   text: ALTER DOMAIN d SET DEFAULT CAST('cleave' AS pg_catalog.name)
ALTER DOMAIN d DROP DEFAULT;
--> schema change alter domain, all shards [ALTER DOMAIN]
ALTER TABLE orders ALTER COLUMN note SET DEFAULT current_database();
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
-->   text: ALTER TABLE orders ALTER COLUMN note SET DEFAULT CAST('cleave' AS pg_catalog.name)
ALTER TABLE orders ALTER COLUMN note SET DEFAULT 'orders'::regclass;
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
ALTER TABLE orders ADD COLUMN j oid DEFAULT 'orders'::regclass;
--> refused 0A000: an expression that gives a column its values says the OID of an object, which is another on each shard
-->   hint: Take the value in a statement of its own (SELECT), and write it as a constant.
CREATE DOMAIN d AS date DEFAULT 'tomorrow';
--> schema change create domain, all shards [CREATE DOMAIN]
-->   text: CREATE DOMAIN d AS date DEFAULT 'cleave_time_0_'
CREATE TABLE cleave_rel_1 (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k');
--> refused 0A000: names that begin with cleave_rel_ are the router's own
-->   hint: Use another name.
CREATE TABLE named (k bigint PRIMARY KEY, "cleave_key_1" int) WITH (cleave.shard_key = 'k');
--> refused 0A000: names that begin with cleave_key_ are the router's own
-->   hint: Use another name.
CREATE TABLE lk (LIKE orders INCLUDING ALL) WITH (cleave.shard_key = 'tenant_id');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:lk} Kind:sharded Keyspace: ShardKey:[tenant_id] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE lk (LIKE orders INCLUDING ALL)
