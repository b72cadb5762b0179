package planner

import "testing"

// TestOnePass: a statement that one shard cannot run is parsed once, as one that it can run.
func TestOnePass(t *testing.T) {
	snap := testSnapshot(t)
	for _, sql := range []string{
		"SELECT * FROM orders WHERE tenant_id = 5",
		"SELECT * FROM orders WHERE id = 1 LIMIT 1 FOR UPDATE",              // refused for several shards
		"CREATE TABLE made AS SELECT * FROM small, small s2 FOR UPDATE",     // refused for good
		"INSERT INTO orders DEFAULT VALUES",                                 // refused in the plan
		"SELECT * FROM orders JOIN nowhere ON true WHERE orders.id = 1",     // an error after the reason
		"UPDATE orders SET note = 'x' WHERE CURRENT OF c AND tenant_id = 5", // refused while it is bound
	} {
		texts := 0
		p := New(Limits{}).Until(func() error { texts++; return nil })
		_, err := p.Analyze(sql, snap, []string{"public"})
		if texts != 1 {
			t.Errorf("%s: %d texts were read (%v)", sql, texts, err)
		}
	}
}
