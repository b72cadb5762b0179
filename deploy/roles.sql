-- The roles and the database of a shard on a PostgreSQL server: docs/security.md, "Roles on the shards".
--   CLEAVE_PASSWORD=... CLEAVE_MOVER_PASSWORD=... psql -X -v ON_ERROR_STOP=1 -f deploy/roles.sql postgres://postgres@db1/postgres
\getenv password CLEAVE_PASSWORD
\getenv mover_password CLEAVE_MOVER_PASSWORD
SET password_encryption = 'scram-sha-256';

-- All users' statements run as this role. It owns the database and the tables, and needs nothing more.
CREATE ROLE cleave LOGIN PASSWORD :'password';

-- Moves log in as this role: they read the log, and write rows that triggers, foreign keys and guards have let through elsewhere.
CREATE ROLE cleave_mover LOGIN REPLICATION BYPASSRLS PASSWORD :'mover_password';
GRANT cleave, pg_read_all_stats TO cleave_mover;
SELECT current_setting('server_version_num')::int >= 150000 AS parameters \gset
\if :parameters
GRANT SET ON PARAMETER session_replication_role, deadlock_timeout TO cleave_mover;
\else
-- Before version 15 only superusers may set it.
ALTER ROLE cleave_mover SUPERUSER;
\endif

SELECT 'CREATE DATABASE shard' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'shard') \gexec
ALTER DATABASE shard OWNER TO cleave;
