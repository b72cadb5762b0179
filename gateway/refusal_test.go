package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/shardmap"
)

// TestFunctionsReadAnew: functions that another version of the router has read are refused with the way out, which is a schema change.
func TestFunctionsReadAnew(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	exec(t, conn, `CREATE FUNCTION twice(n bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT n * 2'`)
	wantCode(t, conn, "", `SELECT sum(twice(id)) FROM orders`)
	cl.update(t, "", func(s *shardmap.State) { s.FunctionsRead, s.SchemaVersion = 1, s.SchemaVersion+1 })
	_, err := conn.Exec(context.Background(), `SELECT sum(twice(id)) FROM orders`)
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pe.Code != "0A000" || !strings.Contains(pe.Hint, semantics.NoChange) {
		t.Fatalf("%#v", err)
	}
	exec(t, conn, semantics.NoChange)
	wantCode(t, conn, "", `SELECT sum(twice(id)) FROM orders`)
}

// TestTriggerChangesKey: a trigger that gives a row a shard key of another shard is told of at once, whatever
// statement fires it. The guard's refusal looks like that of a part that moved away, which is tried again.
func TestTriggerChangesKey(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	here, there := keys[0], keys[1]
	exec(t, conn, fmt.Sprintf(`CREATE FUNCTION away() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF NEW.note = 'away' THEN NEW.tenant_id := %d; END IF; RETURN NEW; END $$`, there[0]))
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'a')`, here[0])
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'a')`, there[1])
	exec(t, conn, `CREATE TRIGGER away BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION away()`)
	ctx := context.Background()
	refused := func(what string, err error) {
		t.Helper()
		pe, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pe.Code != "0A000" || pe.TableName != "orders" || !strings.Contains(pe.Message, "sent to shard shard-0") ||
			!strings.Contains(pe.Detail, "A trigger changed the row's shard key") || !strings.HasSuffix(pe.Detail, "is of shard shard-1.") || !strings.Contains(pe.Hint, "BEFORE INSERT OR UPDATE") {
			t.Errorf("%s: %#v", what, err)
		}
	}
	began := time.Now()
	for _, sql := range []string{
		`INSERT INTO orders VALUES (%[1]d, 2, 'away')`,
		`UPDATE orders SET note = 'away' WHERE tenant_id = %[1]d`,
		`INSERT INTO orders VALUES (%[1]d, 2, 'away'), (%[2]d, 2, 'b')`,
		`UPDATE orders SET note = 'away' WHERE tenant_id IN (%[1]d, %[2]d)`, // on the other shard the row stays
		`INSERT INTO orders VALUES (%[1]d, 1, 'away') ON CONFLICT (tenant_id, id) DO UPDATE SET note = excluded.note`,
	} {
		sql = fmt.Sprintf(sql, here[0], there[1])
		_, err := conn.Exec(ctx, sql)
		refused(sql, err)
		exec(t, conn, "BEGIN")
		_, err = conn.Exec(ctx, sql)
		refused("in a transaction: "+sql, err)
		wantCode(t, conn, "25P02", "SELECT 1")
		exec(t, conn, "ROLLBACK")
		exec(t, conn, "BEGIN")
		exec(t, conn, `INSERT INTO orders VALUES ($1, 9, 'b')`, here[0])
		exec(t, conn, `INSERT INTO orders VALUES ($1, 9, 'b')`, there[0])
		_, err = conn.Exec(ctx, sql)
		refused("in a transaction over both shards: "+sql, err)
		exec(t, conn, "ROLLBACK")
	}
	_, err := conn.Exec(ctx, `INSERT INTO orders VALUES ($1, 2, $2)`, here[0], "away")
	refused("a parameter", err)
	_, err = conn.PgConn().CopyFrom(ctx, strings.NewReader(fmt.Sprintf("%d\t2\tb\n%d\t3\taway\n", here[0], here[0])), "COPY orders FROM STDIN")
	refused("COPY", err)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the refusals took %v", took)
	}
	if got := one[string](t, conn, `SELECT string_agg(note, ',') FROM orders`); got != "a,a" {
		t.Errorf("rows are %s", got)
	}
	// To a key of the shard itself it may.
	exec(t, conn, `INSERT INTO orders VALUES ($1, 2, 'away')`, there[1])
	exec(t, conn, `DELETE FROM orders WHERE tenant_id = $1 AND id = 2`, there[0])
	// While the place moves, who is told cannot know whether it is a matter of time.
	part := shardmap.Part{Key: []string{fmt.Sprint(there[0])}}
	cl.update(t, "m1", func(s *shardmap.State) {
		s.PutTransit("hash_bigint", shardmap.Transit{ID: "m1", Part: part, From: "shard-1", To: "shard-0"})
	})
	wantCode(t, conn, "40001", `INSERT INTO orders VALUES ($1, 2, 'away')`, here[0])
}
