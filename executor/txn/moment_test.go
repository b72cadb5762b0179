package txn

import (
	"context"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/engine"
)

// added is what was added to the balance of a shard, as a conversation sees it.
func (b *bank) added(ask func(string) (*engine.Result, error)) (n int) {
	b.t.Helper()
	res, err := ask("SELECT sum(balance) - 100 FROM account")
	if err == nil {
		n, err = strconv.Atoi(res.Rows[0][0].String)
	}
	if err != nil {
		b.t.Error(err)
	}
	return n
}

// seen begins a transaction on two shards in a way, and returns what was added to each before.
func (b *bank) seen(begin func(context.Context, []*Participant, string) error) (added [2]int) {
	b.t.Helper()
	ctx := context.Background()
	var parts []*Participant
	for i := range added {
		c, err := b.ex.Acquire(ctx, shardName(i), nil)
		if err != nil {
			b.t.Fatal(err)
		}
		defer c.Release()
		parts = append(parts, &Participant{Shard: shardName(i), Conn: c})
	}
	if err := begin(ctx, parts, repeatableRead); err != nil {
		b.t.Fatal(err)
	}
	for i, p := range parts {
		added[i] = b.added(p.Conn.Exec)
		if _, err := p.Conn.Exec("ROLLBACK"); err != nil {
			b.t.Fatal(err)
		}
	}
	return added
}

// TestMomentHasTheOrder: between the snapshots of two shards a client commits on the first one, and on the second when it has
// the answer. Snapshots that are only whole have the second transaction without the first; a moment has not.
func TestMomentHasTheOrder(t *testing.T) { banks(t, testMomentHasTheOrder) }

func testMomentHasTheOrder(t *testing.T, b *bank) {
	tx := b.transactions()
	answers := tx.Answers()
	for _, try := range []struct {
		begin func(context.Context, []*Participant, string) error
		want  [2]int
	}{{tx.Snapshots, [2]int{0, 1}}, {tx.Moment, [2]int{1, 1}}, {tx.Moment, [2]int{2, 2}}} {
		both := make(chan struct{})
		tx.step = func(step, shard string) error {
			if step != "snapshot" || shard != shardName(0) {
				return nil
			}
			first := make(chan struct{})
			go func() {
				defer close(both)
				b.query(0, "UPDATE account SET balance = balance + 1")
				close(first)
				answers.Pass()
				b.query(1, "UPDATE account SET balance = balance + 1")
			}()
			if <-first; answers.Open() {
				<-both
			}
			return nil
		}
		if got := b.seen(try.begin); got != try.want {
			t.Errorf("the shards have %v, not %v", got, try.want)
		}
		<-both
	}
}
