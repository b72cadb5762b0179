package gateway_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestNoticesOfCommit: what shards say at COMMIT reaches the client, however many of them wrote. What was set for the session
// stays told.
func TestNoticesOfCommit(t *testing.T) {
	t.Parallel()
	cl, _, keys := orders(t, config{})
	for i := range cl.shards {
		cl.direct(t, i, `CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'told'; RETURN NULL; END $$;
			CREATE CONSTRAINT TRIGGER tell AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tell()`)
	}
	cfg, err := pgx.ParseConfig(cl.url(""))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said = append(said, n.Message) }
	session, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close(t.Context()) }()
	for writes := range 3 {
		said = nil
		exec(t, session, "BEGIN")
		exec(t, session, "SET DateStyle = 'German'")
		one[int64](t, session, "SELECT count(*) FROM orders")
		for i := range writes {
			exec(t, session, fmt.Sprintf("INSERT INTO orders VALUES (%d, %d, 'n')", keys[i][0], writes))
		}
		exec(t, session, "COMMIT")
		if want := slices.Repeat([]string{"told"}, writes); !slices.Equal(said, want) {
			t.Errorf("%d shards wrote: the client heard %q", writes, said)
		}
		if style := session.PgConn().ParameterStatus("DateStyle"); style != "German, DMY" {
			t.Errorf("%d shards wrote: DateStyle is told to be %s", writes, style)
		}
		exec(t, session, "SET DateStyle = 'ISO, MDY'")
	}
}
