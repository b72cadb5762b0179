package e2e

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
)

// TestVirtualSchemaInPSQL: psql shows the schema cleave, and says the same of it whatever the default shard is.
func TestVirtualSchemaInPSQL(t *testing.T) {
	testrun.Short(t)
	commands := []struct{ command, want string }{
		{`\dv cleave.*`, " cleave | workflows    | view | "}, {`\d cleave.shards`, " is_default  | boolean "}, {`\d cleave.*`, `View "cleave.hot_keys"`},
		{`\d+ cleave.users`, " name   | text "}, {`\df cleave.*`, "keyspace text, key anyelement, shard text"}, {`\df cleave.shard_of`, `keyspace text, VARIADIC key "any"`},
		{`\dn cleave`, " cleave | "}, {`\dt cleave.*`, "Did not find any relation"}, {`\dv+ cleave.pins`, "the keys that are pinned to a shard"},
		{`\df+ cleave.pin`, "pins a key to a shard"}, {`\dn+ cleave`, "the router's own views and functions"},
		{`SELECT attname FROM pg_attribute WHERE attrelid = 'cleave.users'::regclass AND attnum > 0 ORDER BY attnum;`, " name"},
		{`SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'cleave' ORDER BY 1, ordinal_position;`, "workflows"},
		{`SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema IN ('public', 'cleave') AND table_type = 'VIEW' ORDER BY 3;`, " cleave        | cleave       | constraints  | VIEW"},
		{`SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'cleave';`, " cleave"},
		{`SELECT description FROM pg_description WHERE objoid = 'cleave.pins'::regclass;`, "the keys that are pinned"},
	}
	alike := map[string]string{}
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			c := start(t, engine)
			for _, w := range commands {
				out := c.psql(t, w.command+"\n")
				if !strings.Contains(out, w.want) {
					t.Errorf("%s\n%s\nhas no %q", w.command, out, w.want)
				}
				// The owner's name is as long as it is, and so are the lines with it.
				if strings.Contains(out, "Owner") {
					continue
				}
				if first := alike[w.command]; first != "" && first != out {
					t.Errorf("%s\n%s\non the other engine:\n%s", w.command, out, first)
				}
				alike[w.command] = out
			}
			// The result of a query names its table by the number that the catalogue has, as pgjdbc's ResultSetMetaData asks.
			conn := c.connect(t)
			rows, err := conn.Query(t.Context(), "SELECT id, kind FROM cleave.workflows")
			if err != nil {
				t.Fatal(err)
			}
			kind := rows.FieldDescriptions()[1]
			rows.Close()
			var name string
			if err := conn.QueryRow(t.Context(), "SELECT relname || '.' || attname FROM pg_class AS c JOIN pg_attribute ON attrelid = c.oid WHERE c.oid = $1 AND attnum = $2", kind.TableOID, kind.TableAttributeNumber).Scan(&name); err != nil || name != "workflows.kind" {
				t.Errorf("column %d of table %d is %q: %v", kind.TableAttributeNumber, kind.TableOID, name, err)
			}
			for _, command := range []string{`\dn`, `\dv`, `\df`, `\d`, `\dv public.*`} {
				if out := c.psql(t, command+"\n"); strings.Contains(out, "cleave") || strings.Contains(out, "workflows") {
					t.Errorf("%s shows\n%s", command, out)
				}
			}
		})
	}
}
