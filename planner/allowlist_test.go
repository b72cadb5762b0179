package planner

import (
	"slices"
	"strings"
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/sqlstate"
)

// makers are the statements of PostgreSQL's grammar that make something, or change what it does: by the parser's node, each
// with texts of which taken go to the shards, which ask their catalogues (schema/code.go), and refused go nowhere.
var makers = map[string]struct{ taken, refused []string }{
	"create_stmt":          {taken: []string{"CREATE TABLE n (a int)", "CREATE TABLE n (a int DEFAULT abs(1) CHECK (a > 0))"}, refused: []string{"CREATE TABLE n (a int DEFAULT evil())", "CREATE TABLE pg_catalog.n (a int)"}},
	"create_table_as_stmt": {taken: []string{"CREATE TABLE n AS SELECT 1 AS a", "CREATE MATERIALIZED VIEW n AS SELECT 1 AS a"}, refused: []string{"CREATE TABLE n AS SELECT evil()", "CREATE MATERIALIZED VIEW n AS SELECT evil()"}},
	"view_stmt":            {taken: []string{"CREATE VIEW n AS SELECT 1 AS a"}, refused: []string{"CREATE VIEW pg_catalog.n AS SELECT 1 AS a"}},
	"index_stmt":           {taken: []string{"CREATE INDEX ON notes ((abs(id)))"}, refused: []string{"CREATE INDEX ON notes ((evil(id)))"}},
	"create_seq_stmt":      {taken: []string{"CREATE SEQUENCE n"}},
	"create_schema_stmt":   {taken: []string{"CREATE SCHEMA n"}, refused: []string{"CREATE SCHEMA n CREATE VIEW v AS SELECT evil()", "CREATE SCHEMA AUTHORIZATION n"}},
	"create_enum_stmt":     {taken: []string{"CREATE TYPE n AS ENUM ('a')", "CREATE TYPE pg_temp.n AS ENUM ('a')"}, refused: []string{"CREATE TYPE pg_temp.orders AS ENUM ('a')", "CREATE TYPE pg_temp_3.n AS ENUM ('a')", "CREATE TYPE pg_catalog.n AS ENUM ('a')"}},
	"composite_type_stmt":  {taken: []string{"CREATE TYPE n AS (a int)", "CREATE TYPE pg_temp.n AS (a int)"}, refused: []string{"CREATE TYPE pg_temp.notes AS (a int)"}},
	"create_range_stmt":    {taken: []string{"CREATE TYPE n AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = float8mi)", "CREATE TYPE pg_temp.n AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = float8mi)"}, refused: []string{"CREATE TYPE pg_temp.n AS RANGE (SUBTYPE = float8, MULTIRANGE_TYPE_NAME = m)", "CREATE TYPE pg_temp.n AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = evil)", "CREATE TYPE n AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = evil)"}},
	"create_domain_stmt":   {taken: []string{"CREATE DOMAIN n AS int CHECK (VALUE > 0)", "CREATE DOMAIN pg_temp.n AS int CHECK (VALUE > 0)"}, refused: []string{"CREATE DOMAIN pg_temp.n AS int CHECK (evil(VALUE))", "CREATE DOMAIN pg_temp.n AS int CHECK (pg_temp.f(VALUE))", "CREATE DOMAIN n AS int CHECK (evil(VALUE))"}},
	"create_function_stmt": {taken: []string{"CREATE FUNCTION n() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE FUNCTION n() RETURNS int LANGUAGE plperl AS 'x'",
		"CREATE FUNCTION pg_temp.n() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM notes'", "CREATE FUNCTION pg_temp.n() RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO notes DEFAULT VALUES; END'",
		"CREATE FUNCTION pg_temp.n() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'"}, refused: []string{
		"CREATE FUNCTION pg_temp.n() RETURNS int LANGUAGE internal AS 'x'", "CREATE FUNCTION pg_temp.n() RETURNS int LANGUAGE c AS 'x', 'y'", "CREATE FUNCTION pg_temp.n() RETURNS int LANGUAGE plperl AS 'x'",
		"CREATE FUNCTION pg_temp.n() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders'", "CREATE FUNCTION pg_temp.n() RETURNS text LANGUAGE sql AS 'SELECT pg_read_file(''x'')'",
		"CREATE FUNCTION pg_temp.n() RETURNS int LANGUAGE sql SET search_path = x AS 'SELECT 1'", "CREATE FUNCTION pg_temp.n(int) RETURNS int LANGUAGE sql SUPPORT x AS 'SELECT 1'", "CREATE FUNCTION pg_temp.n() RETURNS int LANGUAGE sql RETURN 1",
		"CREATE FUNCTION pg_temp.n() RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE ''SELECT 1''; END'", "CREATE FUNCTION pg_temp.n() RETURNS int LANGUAGE sql AS 'SELECT evil()'", "CREATE FUNCTION pg_temp.n(a int DEFAULT evil()) RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE FUNCTION pg_temp.n() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO notes DEFAULT VALUES; RETURN new; END'", "CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE sql AS 'SELECT 1'", "CREATE PROCEDURE pg_temp.n() LANGUAGE sql AS 'SELECT 1'", "CREATE FUNCTION pg_temp_3.n() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE FUNCTION n() RETURNS int LANGUAGE internal AS 'x'", "CREATE FUNCTION n() RETURNS int LANGUAGE C AS 'x', 'y'", "CREATE FUNCTION n() RETURNS int LANGUAGE sql SET session_replication_role = replica AS 'SELECT 1'", "CREATE FUNCTION n(int) RETURNS int LANGUAGE sql SUPPORT x AS 'SELECT 1'"}},
	"alter_function_stmt":           {taken: []string{"ALTER FUNCTION n() STABLE"}, refused: []string{"ALTER FUNCTION n() SET session_replication_role = replica", "ALTER FUNCTION n() SUPPORT x"}},
	"create_trig_stmt":              {refused: []string{"CREATE TRIGGER n BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION pg_temp.evil()", "CREATE TRIGGER n BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION evil()"}, taken: []string{"CREATE TRIGGER n BEFORE UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"}},
	"create_extension_stmt":         {taken: []string{"CREATE EXTENSION hstore"}},
	"alter_extension_stmt":          {taken: []string{"ALTER EXTENSION hstore UPDATE"}},
	"alter_extension_contents_stmt": {refused: []string{"ALTER EXTENSION hstore ADD FUNCTION n()", "ALTER EXTENSION hstore DROP FUNCTION n()"}},
	"define_stmt": {taken: []string{"CREATE COLLATION n (LOCALE = 'C')", "CREATE TEXT SEARCH CONFIGURATION n (COPY = simple)", "CREATE TEXT SEARCH DICTIONARY n (TEMPLATE = simple)"},
		refused: []string{"CREATE AGGREGATE n (int) (SFUNC = int4pl, STYPE = int)", "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)", "CREATE TYPE n (INPUT = x, OUTPUT = y)", "CREATE TYPE n",
			"CREATE TEXT SEARCH PARSER n (START = a, GETTOKEN = b, END = c, LEXTYPES = d)", "CREATE TEXT SEARCH TEMPLATE n (LEXIZE = a)"}},
	"create_stats_stmt":                {taken: []string{"CREATE STATISTICS n ON id, (abs(id)) FROM notes"}, refused: []string{"CREATE STATISTICS n ON id, (evil(id)) FROM notes"}},
	"create_cast_stmt":                 {refused: []string{"CREATE CAST (int AS text) WITH FUNCTION n(int)", "CREATE CAST (int AS text) WITHOUT FUNCTION"}},
	"create_conversion_stmt":           {refused: []string{"CREATE CONVERSION n FOR 'UTF8' TO 'LATIN1' FROM f"}},
	"create_op_class_stmt":             {refused: []string{"CREATE OPERATOR CLASS n FOR TYPE int USING btree AS OPERATOR 1 <"}},
	"create_op_family_stmt":            {refused: []string{"CREATE OPERATOR FAMILY n USING btree"}},
	"alter_op_family_stmt":             {refused: []string{"ALTER OPERATOR FAMILY n USING btree ADD FUNCTION 1 (int, int) f(int, int)"}},
	"alter_operator_stmt":              {refused: []string{"ALTER OPERATOR = (int, int) SET (RESTRICT = NONE)"}},
	"create_transform_stmt":            {refused: []string{"CREATE TRANSFORM FOR int LANGUAGE plperl (FROM SQL WITH FUNCTION f(internal))"}},
	"create_am_stmt":                   {refused: []string{"CREATE ACCESS METHOD n TYPE INDEX HANDLER f"}},
	"create_plang_stmt":                {refused: []string{"CREATE LANGUAGE n HANDLER f", "CREATE TRUSTED LANGUAGE n HANDLER f"}},
	"create_event_trig_stmt":           {refused: []string{"CREATE EVENT TRIGGER n ON ddl_command_end EXECUTE FUNCTION f()"}},
	"alter_event_trig_stmt":            {refused: []string{"ALTER EVENT TRIGGER n DISABLE"}},
	"create_fdw_stmt":                  {refused: []string{"CREATE FOREIGN DATA WRAPPER n"}},
	"alter_fdw_stmt":                   {refused: []string{"ALTER FOREIGN DATA WRAPPER n HANDLER f"}},
	"create_foreign_server_stmt":       {refused: []string{"CREATE SERVER n FOREIGN DATA WRAPPER w"}},
	"alter_foreign_server_stmt":        {refused: []string{"ALTER SERVER n OPTIONS (host 'x')"}},
	"create_foreign_table_stmt":        {refused: []string{"CREATE FOREIGN TABLE n (a int) SERVER s"}},
	"create_user_mapping_stmt":         {refused: []string{"CREATE USER MAPPING FOR CURRENT_USER SERVER s"}},
	"alter_user_mapping_stmt":          {refused: []string{"ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (user 'x')"}},
	"import_foreign_schema_stmt":       {refused: []string{"IMPORT FOREIGN SCHEMA x FROM SERVER s INTO public"}},
	"rule_stmt":                        {refused: []string{"CREATE RULE n AS ON INSERT TO notes DO ALSO SELECT 1"}},
	"create_policy_stmt":               {refused: []string{"CREATE POLICY n ON notes USING (true)"}},
	"alter_policy_stmt":                {refused: []string{"ALTER POLICY n ON notes USING (true)"}},
	"create_publication_stmt":          {refused: []string{"CREATE PUBLICATION n FOR ALL TABLES"}},
	"alter_publication_stmt":           {refused: []string{"ALTER PUBLICATION n ADD TABLE notes"}},
	"create_subscription_stmt":         {refused: []string{"CREATE SUBSCRIPTION n CONNECTION 'host=x' PUBLICATION p"}},
	"alter_subscription_stmt":          {refused: []string{"ALTER SUBSCRIPTION n DISABLE"}},
	"create_table_space_stmt":          {refused: []string{"CREATE TABLESPACE n LOCATION '/tmp'"}},
	"alter_table_space_options_stmt":   {refused: []string{"ALTER TABLESPACE n SET (seq_page_cost = 1)"}},
	"alter_table_move_all_stmt":        {refused: []string{"ALTER TABLE ALL IN TABLESPACE n SET TABLESPACE m"}},
	"createdb_stmt":                    {refused: []string{"CREATE DATABASE n"}},
	"alter_database_stmt":              {refused: []string{"ALTER DATABASE n CONNECTION LIMIT 1"}},
	"alter_database_set_stmt":          {refused: []string{"ALTER DATABASE n SET work_mem = '1MB'"}},
	"alter_database_refresh_coll_stmt": {refused: []string{"ALTER DATABASE n REFRESH COLLATION VERSION"}},
	"alter_system_stmt":                {refused: []string{"ALTER SYSTEM SET work_mem = '1MB'"}},
	"alter_type_stmt":                  {refused: []string{"ALTER TYPE n SET (RECEIVE = f)"}},
	"alter_domain_stmt":                {taken: []string{"ALTER DOMAIN n ADD CHECK (VALUE > 0)"}, refused: []string{"ALTER DOMAIN n ADD CHECK (evil(VALUE))", "ALTER DOMAIN n SET DEFAULT evil()"}},
	"alter_enum_stmt":                  {taken: []string{"ALTER TYPE n ADD VALUE 'b'"}},
	"alter_table_stmt":                 {taken: []string{"ALTER TABLE notes ADD COLUMN c int DEFAULT abs(1)"}, refused: []string{"ALTER TABLE notes ADD COLUMN c int DEFAULT evil()", "ALTER TABLE orders DISABLE TRIGGER ALL", "ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "ALTER TABLE pg_class ADD COLUMN a int"}},
	"alter_seq_stmt":                   {taken: []string{"ALTER SEQUENCE n INCREMENT 2"}},
	"alter_stats_stmt":                 {refused: []string{"ALTER STATISTICS n SET STATISTICS 1"}},
	"alter_collation_stmt":             {refused: []string{"ALTER COLLATION n REFRESH VERSION"}},
	"alter_tsdictionary_stmt":          {refused: []string{"ALTER TEXT SEARCH DICTIONARY n (a = b)"}},
	"alter_tsconfiguration_stmt":       {refused: []string{"ALTER TEXT SEARCH CONFIGURATION n ADD MAPPING FOR word WITH simple"}},
	"alter_object_depends_stmt":        {refused: []string{"ALTER FUNCTION n() DEPENDS ON EXTENSION hstore", `ALTER TRIGGER "~cleave_guard" ON orders DEPENDS ON EXTENSION hstore`}},
	"alter_object_schema_stmt":         {taken: []string{"ALTER FUNCTION n() SET SCHEMA s"}, refused: []string{"ALTER FUNCTION n() SET SCHEMA pg_catalog", "ALTER OPERATOR = (int, int) SET SCHEMA s"}},
	"alter_owner_stmt":                 {taken: []string{"ALTER FUNCTION n() OWNER TO x"}, refused: []string{"ALTER DATABASE n OWNER TO x", "ALTER SERVER n OWNER TO x", "ALTER EVENT TRIGGER n OWNER TO x", "ALTER LANGUAGE n OWNER TO x"}},
	"rename_stmt":                      {taken: []string{"ALTER FUNCTION n() RENAME TO m"}, refused: []string{`ALTER TRIGGER "~cleave_guard" ON orders RENAME TO a`, "ALTER LANGUAGE n RENAME TO m", "ALTER ROLE n RENAME TO m", "ALTER DATABASE n RENAME TO m"}},
	"comment_stmt":                     {taken: []string{"COMMENT ON FUNCTION n() IS 'x'"}, refused: []string{"COMMENT ON DATABASE n IS 'x'", "COMMENT ON ROLE n IS 'x'"}},
	"sec_label_stmt":                   {refused: []string{"SECURITY LABEL ON TABLE notes IS 'x'"}},
	"drop_stmt":                        {taken: []string{"DROP FUNCTION n()"}, refused: []string{`DROP TRIGGER "~cleave_guard" ON orders`, "DROP LANGUAGE plpgsql", "DROP EVENT TRIGGER n", "DROP SERVER n", "DROP ACCESS METHOD n", "DROP CAST (int AS text)", "DROP OPERATOR = (int, int)", "DROP SCHEMA pg_catalog"}},
	"drop_owned_stmt":                  {refused: []string{"DROP OWNED BY CURRENT_USER"}},
	"reassign_owned_stmt":              {refused: []string{"REASSIGN OWNED BY a TO b"}},
	"drop_table_space_stmt":            {refused: []string{"DROP TABLESPACE n"}},
	"dropdb_stmt":                      {refused: []string{"DROP DATABASE n"}},
	"drop_subscription_stmt":           {refused: []string{"DROP SUBSCRIPTION n"}},
	"drop_user_mapping_stmt":           {refused: []string{"DROP USER MAPPING FOR CURRENT_USER SERVER s"}},
	"grant_stmt":                       {taken: []string{"GRANT SELECT ON notes TO x", "GRANT EXECUTE ON FUNCTION n() TO x"}, refused: []string{"GRANT USAGE ON FOREIGN SERVER s TO x", "GRANT SET ON PARAMETER work_mem TO x", "GRANT CREATE ON DATABASE d TO x", "GRANT USAGE ON SCHEMA pg_catalog TO x"}},
	"alter_default_privileges_stmt":    {taken: []string{"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO x"}},
	"truncate_stmt":                    {taken: []string{"TRUNCATE notes"}, refused: []string{"TRUNCATE pg_class"}},
	"reindex_stmt":                     {taken: []string{"REINDEX TABLE notes"}, refused: []string{"REINDEX SYSTEM d", "REINDEX DATABASE d"}},
	"refresh_mat_view_stmt":            {taken: []string{"REFRESH MATERIALIZED VIEW n"}},
	"cluster_stmt":                     {refused: []string{"CLUSTER notes", "CLUSTER"}},
	"check_point_stmt":                 {refused: []string{"CHECKPOINT"}},
	"load_stmt":                        {refused: []string{"LOAD 'x'"}},
	"do_stmt":                          {refused: []string{"DO LANGUAGE plperl 'x'", "DO LANGUAGE c 'x'", "DO 'BEGIN PERFORM evil(); x := 1; END'"}},
	"call_stmt":                        {refused: []string{"CALL n()"}},
	// Users are the cluster's own: the router carries these out, for administrators.
	"create_role_stmt":    {taken: []string{"CREATE ROLE n LOGIN PASSWORD 'xxxxxxxx'"}, refused: []string{"CREATE ROLE n SUPERUSER"}},
	"alter_role_stmt":     {taken: []string{"ALTER ROLE n PASSWORD 'xxxxxxxx'", "ALTER ROLE n SUPERUSER"}, refused: []string{"ALTER ROLE n REPLICATION"}},
	"alter_role_set_stmt": {refused: []string{"ALTER ROLE n SET work_mem = '1MB'", "ALTER ROLE ALL SET work_mem = '1MB'"}},
	"drop_role_stmt":      {taken: []string{"DROP ROLE n"}},
	"grant_role_stmt":     {refused: []string{"GRANT a TO b", "GRANT pg_read_server_files TO CURRENT_USER"}},
}

// plainStatements are those that make nothing: the rest of the grammar.
var plainStatements = strings.Fields("select_stmt insert_stmt update_stmt delete_stmt merge_stmt explain_stmt declare_cursor_stmt fetch_stmt close_portal_stmt copy_stmt lock_stmt vacuum_stmt " +
	"transaction_stmt variable_set_stmt variable_show_stmt listen_stmt unlisten_stmt notify_stmt discard_stmt prepare_stmt execute_stmt deallocate_stmt constraints_set_stmt " +
	"return_stmt plassign_stmt raw_stmt replica_identity_stmt set_operation_stmt") // the last five are parts of others

// TestMakersAreAnAllowList: each statement of the grammar is either plain or in the list of makers, and of makers only what the
// list takes is taken. A parser of a newer PostgreSQL with another statement fails here, and the planner refuses it.
func TestMakersAreAnAllowList(t *testing.T) {
	fields := (&pg.Node{}).ProtoReflect().Descriptor().Oneofs().ByName("node").Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		if _, ok := makers[name]; !ok && strings.HasSuffix(name, "_stmt") && !slices.Contains(plainStatements, name) {
			t.Errorf("%s is in no list", name)
		}
	}
	snap := testSnapshot(t)
	p := New(Limits{})
	for name, m := range makers {
		if fields.ByName(protoreflect.Name(name)) == nil {
			t.Errorf("%s is no statement of the parser", name)
		}
		for i, sql := range append(slices.Clone(m.taken), m.refused...) {
			tree, err := pg.Parse(sql)
			if err != nil {
				t.Errorf("%s: %v", sql, err)
				continue
			}
			n := tree.Stmts[0].Stmt.ProtoReflect()
			if got := string(n.WhichOneof(n.Descriptor().Oneofs().ByName("node")).Name()); got != name {
				t.Errorf("%s is %s, not %s", sql, got, name)
			}
			_, err = p.Analyze(sql, snap, []string{"public"})
			switch code := sqlstate.CodeOf(err); {
			case i < len(m.taken) && err != nil:
				t.Errorf("%s: refused: %v", sql, err)
			case i >= len(m.taken) && err == nil:
				t.Errorf("%s: taken", sql)
			case i >= len(m.taken) && code != sqlstate.FeatureNotSupported && code != sqlstate.InsufficientPrivilege:
				t.Errorf("%s: %s %v", sql, code, err)
			}
		}
	}
}

// TestNothingNamesTheInternalSchema: no statement of the makers' takes a name in the router's schema on the shards.
func TestNothingNamesTheInternalSchema(t *testing.T) {
	snap := testSnapshot(t)
	p := New(Limits{})
	for _, sql := range []string{
		"ALTER FUNCTION cleave_internal.f() SET SCHEMA public", "ALTER FUNCTION cleave_internal.f() RENAME TO g", "ALTER FUNCTION cleave_internal.f() OWNER TO x", "ALTER FUNCTION cleave_internal.f() STABLE",
		"COMMENT ON FUNCTION cleave_internal.f() IS 'x'", "COMMENT ON INDEX cleave_internal.shard_pkey IS 'x'", "COMMENT ON SCHEMA cleave_internal IS 'x'", "COMMENT ON COLUMN cleave_internal.shard.name IS 'x'",
		"GRANT EXECUTE ON FUNCTION cleave_internal.f() TO x", "REVOKE EXECUTE ON FUNCTION cleave_internal.f() FROM x", "GRANT SELECT ON ALL TABLES IN SCHEMA cleave_internal TO x",
		"ALTER TYPE cleave_internal.shard RENAME ATTRIBUTE name TO x", "ALTER TYPE cleave_internal.shard RENAME TO x", "ALTER TYPE cleave_internal.shard SET SCHEMA public", "ALTER TYPE cleave_internal.shard OWNER TO x",
		"ALTER TYPE cleave_internal.shard ADD ATTRIBUTE a int", "CREATE TABLE n (LIKE cleave_internal.shard)", "CREATE TABLE n () INHERITS (cleave_internal.shard)", "ALTER TABLE notes INHERIT cleave_internal.shard",
		"CREATE TABLE n (a boolean REFERENCES cleave_internal.shard)", "ALTER TABLE notes SET SCHEMA cleave_internal", "CREATE EXTENSION hstore SCHEMA cleave_internal", "ALTER EXTENSION hstore SET SCHEMA cleave_internal",
		"ALTER DEFAULT PRIVILEGES IN SCHEMA cleave_internal GRANT SELECT ON TABLES TO x", `CREATE FUNCTION u&"cleave\005finternal".f() RETURNS int LANGUAGE sql AS 'SELECT 1'`, "DROP FUNCTION cleave_internal.f",
		"DROP SCHEMA notes, cleave_internal CASCADE", "ALTER SCHEMA cleave_internal RENAME TO x", "ALTER SCHEMA notes RENAME TO cleave_internal", "CREATE VIEW cleave_internal.v AS SELECT 1", "DROP DOMAIN cleave_internal.d",
		"CREATE STATISTICS s ON a, b FROM cleave_internal.shard", "CREATE TRIGGER n BEFORE UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION cleave_internal.f()", "CREATE DOMAIN n AS cleave_internal.d",
		"CREATE COLLATION cleave_internal.c (LOCALE = 'C')", "ALTER COLLATION cleave_internal.c RENAME TO d", "ALTER TEXT SEARCH CONFIGURATION cleave_internal.c RENAME TO d", "REINDEX INDEX cleave_internal.shard_pkey",
		"CREATE TEXT SEARCH CONFIGURATION n (COPY = cleave_internal.c)", "CREATE TYPE cleave_internal.t AS ENUM ('a')", "CREATE SEQUENCE cleave_internal.s", "TRUNCATE cleave_internal.shard",
	} {
		if _, err := p.Analyze(sql, snap, []string{"public"}); sqlstate.CodeOf(err) != sqlstate.InsufficientPrivilege {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for _, sql := range []string{"COMMENT ON FUNCTION f() IS 'cleave_internal'", "CREATE TABLE n (a text DEFAULT 'cleave_internal')"} {
		if _, err := p.Analyze(sql, snap, []string{"public"}); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
