package txn

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

const repeatableRead = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

// sum reads all balances; tx nil is without atomic reads.
func (b *bank) sum(ctx context.Context, tx *Transactions, shards ...int) (total int, err error) {
	var parts []*Participant
	defer func() {
		for _, p := range parts {
			if !p.Conn.Broken() && p.Conn.Status() != 'I' {
				if _, err := p.Conn.Exec("ROLLBACK"); err != nil {
					p.Conn.Break()
				}
			}
			p.Conn.Release()
		}
	}()
	for i := range b.urls {
		if len(shards) > 0 && i != shards[0] && i != shards[len(shards)-1] {
			continue
		}
		c, err := b.ex.Acquire(ctx, shardName(i), nil)
		if err != nil {
			return 0, err
		}
		parts = append(parts, &Participant{Shard: shardName(i), Conn: c})
	}
	if tx != nil {
		if err := tx.Snapshots(ctx, parts, repeatableRead); err != nil {
			return 0, err
		}
	}
	for _, p := range parts {
		res, err := p.Conn.Exec("SELECT sum(balance) FROM account")
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(res.Rows[0][0].String)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// TestAtomicReadDuringCommit reads at each step of a commit. An atomic read never
// sees a part of the transaction; an ordinary one does, between the decision and
// the last COMMIT PREPARED.
func TestAtomicReadDuringCommit(t *testing.T) { banks(t, testAtomicReadDuringCommit) }

func testAtomicReadDuringCommit(t *testing.T, b *bank) {
	tx, reader := b.transactions(), b.transactions()
	torn := 0
	tx.step = func(step, shard string) error {
		plain, err := b.sum(context.Background(), nil)
		if err != nil {
			t.Error(err)
		}
		if plain != 300 {
			torn++
		}
		for range 2 {
			if got, err := b.sum(context.Background(), reader); err != nil || got != 300 {
				t.Errorf("at %s %s: %d, %v", step, shard, got, err)
			}
		}
		return nil
	}
	if ok, err := b.commit(tx, b.begin()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if torn == 0 {
		t.Error("an ordinary read never saw a part of the transaction: the test shows nothing")
	}
	if got := b.balances(); got != "98 101 101" {
		t.Fatal(got)
	}
}

// TestAtomicReadOfSchemaChange: rows that were written on several shards in the transaction of a schema change, of which one
// shard has committed its part: an atomic read sees all of it, and ends what is left. Records stay while a part is prepared.
func TestAtomicReadOfSchemaChange(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	tx := b.transactions()
	ctx := context.Background()
	id, names := uuid.NewString(), []string{shardName(0), shardName(2)}
	for i, amount := range map[int]string{0: "- 5", 2: "+ 5"} {
		if err := tx.prepareShard(ctx, shardName(i)); err != nil {
			t.Fatal(err)
		}
		record, err := tx.Record(ctx, id, shardName(i), names)
		if err != nil {
			t.Fatal(err)
		}
		b.query(i, "BEGIN; UPDATE account SET balance = balance "+amount+"; "+record+"; PREPARE TRANSACTION 'cleave_ddl_"+id+"_"+shardName(i)+"'")
	}
	if got, err := b.sum(ctx, tx); err != nil || got != 300 {
		t.Fatalf("before: %d, %v", got, err)
	}
	b.query(0, "COMMIT PREPARED 'cleave_ddl_"+id+"_"+shardName(0)+"'")
	var state *cleaning
	for range 3 {
		b.age(0, "1 hour")
		var err error
		if state, err = tx.recovery().clean(ctx, state, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := b.sum(ctx, nil); err != nil || got == 300 {
		t.Fatalf("an ordinary read: %d, %v", got, err)
	}
	if got, err := b.sum(ctx, tx); err != nil || got != 300 {
		t.Fatalf("half committed: %d, %v", got, err)
	}
	if got := b.balances(); got != "95 100 105" {
		t.Fatal(got)
	}
}

// transfers moves one of an account from one shard to another, in a transaction of tx.
func (b *bank) transfers(ctx context.Context, tx *Transactions, pair []int, id int) error {
	var parts []*Participant
	defer func() {
		for _, p := range parts {
			p.Conn.Release()
		}
	}()
	for k, shard := range pair {
		c, err := b.ex.Acquire(ctx, shardName(shard), nil)
		if err != nil {
			return err
		}
		parts = append(parts, &Participant{Shard: shardName(shard), Conn: c, Wrote: true})
		if _, err := c.Exec(fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = '30s'; UPDATE account SET balance = balance + %d WHERE id = %d", 2*k-1, id)); err != nil {
			return err
		}
	}
	if err := tx.CanWrite(ctx, parts); err != nil {
		return err
	}
	if ok, _, err := tx.Commit(ctx, parts); !ok || err != nil {
		return fmt.Errorf("committed: %v, %w", ok, err)
	}
	return nil
}

// TestAtomicReads reads while two processes commit transfers.
func TestAtomicReads(t *testing.T) { banks(t, testAtomicReads) }

func testAtomicReads(t *testing.T, b *bank) {
	const accounts, writers, each = 40, 4, 60
	for i := range b.urls {
		b.query(i, fmt.Sprintf("INSERT INTO account SELECT g, 100 FROM generate_series(%d, %d) AS s(g)", 10, 10+accounts-1))
	}
	want := 300 + 3*accounts*100
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var work, reads sync.WaitGroup
	var torn, read atomic.Int64
	processes := []*Transactions{b.transactions(), b.transactions()}
	for w := range writers {
		tx := processes[w%2]
		work.Go(func() {
			for i := range each {
				id := 10 + (w*each+i)%accounts
				pair := []int{min((w+i)%3, (w+i+1)%3), max((w+i)%3, (w+i+1)%3)} // in the order of shards: a SQLite file is locked as a whole
				if err := b.transfers(ctx, tx, pair, id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for r := range 3 {
		reads.Go(func() {
			for ctx.Err() == nil {
				tx := processes[0]
				if r == 2 {
					tx = nil
				}
				got, err := b.sum(context.Background(), tx)
				switch {
				case sqlstate.CodeOf(err) == sqlstate.SerializationFailure:
					t.Log(err)
				case err != nil:
					t.Error(err)
				case tx == nil && got != want:
					torn.Add(1)
				case got != want:
					t.Errorf("sum %d, want %d", got, want)
				default:
					read.Add(1)
				}
			}
		})
	}
	work.Wait()
	stop()
	reads.Wait()
	t.Logf("%d whole reads; %d ordinary ones saw a part of a transaction", read.Load(), torn.Load())
	if got, err := b.sum(context.Background(), processes[0]); err != nil || got != want {
		t.Fatal(got, err)
	}
	if read.Load() == 0 {
		t.Fatal("no read")
	}
}

// TestAtomicReadInDoubt: a transaction that is committed on one shard and, its
// router dead, prepared on another is finished by the reader that finds it.
func TestAtomicReadInDoubt(t *testing.T) { banks(t, testAtomicReadInDoubt) }

func testAtomicReadInDoubt(t *testing.T, b *bank) {
	tx := b.transactions()
	tx.step = func(step, _ string) error {
		if step == "commit" {
			return errCrash
		}
		return nil
	}
	if _, err := b.commit(tx, b.begin()); err == nil {
		t.Fatal("not stopped")
	}
	if got, err := b.sum(context.Background(), nil); err != nil || got != 298 {
		t.Fatal(got, err)
	}
	if got, err := b.sum(context.Background(), b.transactions()); err != nil || got != 300 {
		t.Fatal(got, err)
	}
	if got := b.balances(); got != "98 101 101" {
		t.Fatal(got)
	}
	// In doubt before the decision: nobody sees anything of it, and nobody waits.
	tx = b.transactions()
	tx.step = func(step, _ string) error {
		if step == "decide" {
			return errCrash
		}
		return nil
	}
	if _, err := b.commit(tx, b.begin()); err == nil {
		t.Fatal("not stopped")
	}
	ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
	defer stop()
	if got, err := b.sum(ctx, b.transactions()); err != nil || got != 300 {
		t.Fatal(got, err)
	}
	b.settled(b.transactions())
}
