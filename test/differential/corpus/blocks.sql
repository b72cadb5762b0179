-- DO blocks that change the schema, as migration tools write them.
-- engines: postgres

-- Drizzle.
-- messages
-- block
BEGIN;
DO $$ BEGIN CREATE TYPE "public"."mood" AS ENUM('happy', 'sad'); EXCEPTION WHEN duplicate_object THEN null; END $$;
DO $$ BEGIN CREATE TYPE "public"."mood" AS ENUM('happy', 'sad'); EXCEPTION WHEN duplicate_object THEN null; END $$;
CREATE TABLE IF NOT EXISTS "posts" ("id" bigint PRIMARY KEY NOT NULL, "author" bigint, "mood" "mood") WITH (cleave.shard_key = 'id');
CREATE TABLE IF NOT EXISTS "people" ("id" bigint PRIMARY KEY NOT NULL) WITH (cleave.reference = true);
DO $$ BEGIN ALTER TABLE "posts" ADD CONSTRAINT "posts_author_people_id_fk" FOREIGN KEY ("author") REFERENCES "public"."people"("id") ON DELETE no action ON UPDATE no action; EXCEPTION WHEN duplicate_object THEN null; END $$;
DO $$ BEGIN ALTER TABLE "posts" ADD CONSTRAINT "posts_author_people_id_fk" FOREIGN KEY ("author") REFERENCES "public"."people"("id") ON DELETE no action ON UPDATE no action; EXCEPTION WHEN duplicate_object THEN null; END $$;
INSERT INTO people VALUES (1), (2);
INSERT INTO posts SELECT i, i % 2 + 1, 'sad' FROM generate_series(1, 20) AS i;
SELECT count(*) FROM posts WHERE mood = 'sad';
SELECT conname FROM pg_constraint WHERE conname LIKE 'posts_author%';
INSERT INTO posts VALUES (21, 3, 'sad');
ROLLBACK;
-- end

-- IF [NOT] EXISTS on the catalogue, several in one block.
-- messages
-- block
BEGIN;
DO $body$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_type WHERE typname = 'mood') THEN CREATE TYPE mood AS ENUM ('a', 'b'); END IF; IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_name = 'orders' AND column_name = 'mood') THEN ALTER TABLE orders ADD COLUMN mood mood DEFAULT 'b'; /* for all */ CREATE INDEX orders_mood ON orders (mood); ELSE RAISE NOTICE 'there'; END IF; END $body$ LANGUAGE plpgsql;
SELECT count(*) FROM orders WHERE mood = 'b';
DO LANGUAGE plpgsql 'BEGIN IF NOT EXISTS (SELECT 1 FROM pg_type WHERE typname = ''mood'') THEN CREATE TYPE mood AS ENUM (''a''); ELSE RAISE NOTICE ''there''; END IF; END';
DO $$ BEGIN IF EXISTS (SELECT FROM pg_indexes WHERE indexname = 'orders_mood') THEN DROP INDEX orders_mood; END IF; IF to_regclass('orders_mood') IS NULL THEN ALTER TABLE orders DROP COLUMN mood; DROP TYPE mood; END IF; END $$;
SELECT count(*) FROM pg_type WHERE typname = 'mood';
SELECT mood FROM orders;
ROLLBACK;
-- end

-- What is taken back with a block, and what is not.
-- messages
-- block
BEGIN;
DO $$ BEGIN CREATE TABLE first (a int); BEGIN CREATE TABLE second (a int); CREATE TABLE orders (a int); EXCEPTION WHEN duplicate_table THEN RAISE WARNING '% (%)', SQLERRM, SQLSTATE; CREATE TABLE third (a int); END; END $$;
SELECT relname FROM pg_class WHERE relname IN ('first', 'second', 'third') ORDER BY 1;
SAVEPOINT s;
DO $$ BEGIN CREATE TABLE fourth (a int); ALTER TABLE orders ADD COLUMN id int; EXCEPTION WHEN undefined_table OR undefined_column THEN NULL; END $$;
ROLLBACK TO s;
DO $$ BEGIN DROP TABLE first; DROP TABLE nosuch; EXCEPTION WHEN OTHERS THEN DROP TABLE third; END $$;
SELECT relname FROM pg_class WHERE relname IN ('first', 'second', 'third', 'fourth') ORDER BY 1;
UPDATE orders SET qty = 1 WHERE id = 1;
DO $$ BEGIN ALTER TABLE orders ALTER COLUMN qty TYPE bigint; ALTER TABLE orders ADD CHECK (qty > 0) NOT VALID; EXCEPTION WHEN check_violation THEN RAISE NOTICE 'none'; END $$;
SELECT sum(qty) FROM orders WHERE id = 1;
ROLLBACK;
-- end

-- Errors.
-- messages
-- foreach s: CREATE TABLE orders (a int) | CREATE TYPE t AS ENUM ('a', 'a') | ALTER TABLE nosuch ADD a int | ALTER TABLE orders ADD id int | DROP TABLE nosuch | CREATE TABLE x (a nosuch) | CREATE DOMAIN d AS int CHECK (nosuch > 0) | EXECUTE 'DROP TYPE nosuch' | EXECUTE format('DROP TABLE %I', 'no such') | EXECUTE NULL | EXECUTE 'DROP' | RAISE EXCEPTION 'said' USING ERRCODE = '42710' | IF nosuch > 1 THEN DROP TABLE orders; END IF | IF 1 / 0 = 1 THEN DROP TABLE orders; END IF | CREATE INDEX CONCURRENTLY i ON orders (qty)
DO $$ BEGIN COMMENT ON TABLE orders IS 'x'; ${s}; END $$;
-- messages
-- foreach w: duplicate_table | undefined_table | undefined_object OR duplicate_column OR SQLSTATE '22012' | OTHERS | syntax_error_or_access_rule_violation | invalid_object_definition
-- foreach s: CREATE TABLE orders (a int) | ALTER TABLE nosuch ADD a int | EXECUTE 'DROP TYPE nosuch' | IF 1 / 0 = 1 THEN DROP TABLE orders; END IF | ALTER TABLE orders ADD id int | EXECUTE NULL | CREATE TABLE x (a int) WITH (fillfactor = 1)
DO $$ BEGIN DROP TYPE IF EXISTS nosuch; ${s}; EXCEPTION WHEN ${w} THEN RAISE NOTICE 'was %', SQLERRM; END $$;
-- foreach c: CREATE TABLE x (a int | CREATE TABLE x (a int); IF true THEN | CREATE TABLE x (a int); EXCEPTION WHEN nosuch THEN NULL | CREATE TABL x (a int) | CREATE TABLE x (a int); RAISE NOTICE '%'
DO $$ BEGIN ${c}; END $$;

-- Rows of several shards beside it, and by themselves.
-- messages
-- block
BEGIN;
DO $$ BEGIN ALTER TABLE orders ADD COLUMN size integer; UPDATE orders SET size = qty + 1 WHERE qty IS NOT NULL; ALTER TABLE orders ALTER COLUMN size SET DEFAULT 5; INSERT INTO orders (tenant_id, id) VALUES (1, 901), (2, 901), (3, 901); END $$;
SELECT sum(size), count(*) FROM orders;
SELECT size FROM orders WHERE id = 901;
DO $$ BEGIN IF EXISTS (SELECT 1 FROM orders WHERE id = 901) THEN DELETE FROM orders WHERE id = 901; END IF; PERFORM count(*) FROM orders; END $$;
SELECT count(*) FROM orders WHERE id = 901;
DO $$ BEGIN INSERT INTO orders (tenant_id, id) VALUES (1, 902); INSERT INTO orders (tenant_id, id) VALUES (2, 902); INSERT INTO orders (tenant_id, id) VALUES (1, 902); EXCEPTION WHEN unique_violation THEN INSERT INTO orders (tenant_id, id) VALUES (5, 902); END $$;
SELECT tenant_id FROM orders WHERE id = 902;
ROLLBACK;
-- end
DO $$ BEGIN EXECUTE format('UPDATE %I SET qty = %L WHERE id = 1', 'orders', 3); EXECUTE 'DELETE FROM items WHERE id = 2; SELECT 1'; END $$;
DO $$ BEGIN INSERT INTO orders (tenant_id, id) VALUES (1, 903); INSERT INTO orders (tenant_id, id) SELECT tenant_id, 903 FROM orders WHERE id = 1; END $$;
-- messages
DO $$ BEGIN PERFORM 1 / (qty - qty) FROM orders; END $$;
-- messages
DO $$ BEGIN UPDATE orders SET nosuch = 1; EXCEPTION WHEN undefined_table THEN NULL; END $$;
