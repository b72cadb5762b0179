package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	moveClients = 4
	// movePause is between two statements of a client: the machine must not be
	// at its limit before the move begins, or all is queueing.
	movePause = 2 * time.Millisecond
	// moveLook is between two looks at the workflow.
	moveLook = 10 * time.Millisecond
)

// latencies of updates of keys that move and of others.
type latencies struct {
	mu             sync.Mutex
	moving, others []time.Duration
}

func (l *latencies) row(phase string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	cell := func(all []time.Duration) string {
		if len(all) == 0 {
			return "– | – | – | –"
		}
		slices.Sort(all)
		at := func(q float64) string { return ms(all[min(int(q*float64(len(all))), len(all)-1)]) }
		return fmt.Sprintf("%d | %s | %s | %s", len(all), at(0.5), at(0.99), ms(all[len(all)-1]))
	}
	return fmt.Sprintf("| %s | %s | %s |", phase, cell(l.moving), cell(l.others))
}

// histogram are the bounds of a histogram's columns, milliseconds.
var histogram = []int{1, 2, 5, 10, 20, 50, 100, 200, 300, 1000}

func histogramHead() string {
	head, line := "| updates that took up to, ms |", "|---|"
	for _, b := range histogram {
		head += fmt.Sprintf(" %d |", b)
		line += "---|"
	}
	return head + " more |\n" + line + "---|"
}

func histogramRow(name string, all []time.Duration) string {
	counts := make([]int, len(histogram)+1)
	for _, d := range all {
		at, _ := slices.BinarySearchFunc(histogram, d, func(b int, d time.Duration) int {
			return cmp.Compare(time.Duration(b)*time.Millisecond, d)
		})
		counts[at]++
	}
	row := "| " + name + " |"
	for _, n := range counts {
		row += fmt.Sprintf(" %d |", n)
	}
	return row
}

// moves measures updates of single rows while a quarter of the rows goes to another
// shard: before, during the copy and the catch-up, and from the hold to the end.
func moves(ctx context.Context, o options, cleaveURL string, pid int) error {
	c, err := pgx.Connect(ctx, cleaveURL)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	const table = "bench_moves"
	for _, sql := range []string{
		`CREATE TABLE ` + table + ` (id bigint PRIMARY KEY, val bigint, filler text) WITH (cleave.shard_key = 'id')`,
		fmt.Sprintf(`INSERT INTO `+table+` SELECT g, 0, repeat('x', 100) FROM generate_series(1, %d) g`, o.spread),
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	// The range of positions from 0 to 2^62 is one shard's whole range.
	var from, to string
	moving := make([]bool, o.spread+1)
	rows, err := c.Query(ctx, `SELECT id, hashint8extended(id, 0) >= 0 AND hashint8extended(id, 0) < 4611686018427387904 FROM `+table)
	if err != nil {
		return err
	}
	key, n := 0, 0
	for rows.Next() {
		var id int
		var in bool
		if err := rows.Scan(&id, &in); err != nil {
			return err
		}
		if moving[id] = in; in {
			key, n = id, n+1
		}
	}
	if rows.Err() != nil {
		return rows.Err()
	}
	if err := c.QueryRow(ctx, fmt.Sprintf(`SELECT cleave.shard_of('hash_bigint', %d)`, key)).Scan(&from); err != nil {
		return err
	}
	for id := 1; to == "" || to == from; id++ {
		if err := c.QueryRow(ctx, fmt.Sprintf(`SELECT cleave.shard_of('hash_bigint', %d)`, id)).Scan(&to); err != nil {
			return err
		}
	}

	var phase atomic.Pointer[latencies]
	before, during, cutover := &latencies{}, &latencies{}, &latencies{}
	phase.Store(before)
	work, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, moveClients)
	var clients sync.WaitGroup
	for i := range moveClients {
		clients.Go(func() { failed <- moveClient(work, cleaveURL, o.spread, uint64(i), moving, &phase) })
	}
	seconds := time.Duration(o.seconds) * time.Second
	// The looks at the workflow cost something, too: they are made before as they are later.
	for until := time.Now().Add(seconds); time.Now().Before(until); {
		var n int
		if err := c.QueryRow(ctx, `SELECT count(*) FROM cleave.workflows WHERE id = 'bench'`).Scan(&n); err != nil {
			return err
		}
		if err := sleep(ctx, moveLook); err != nil {
			return err
		}
	}
	phase.Store(during)
	began := time.Now()
	if _, err := c.Exec(ctx, fmt.Sprintf(`SELECT cleave.move(keyspace => 'hash_bigint', range => '0:4611686018427387904', to_shard => '%s', id => 'bench')`, to)); err != nil {
		return err
	}
	var opened time.Duration
	var peak float64 // MiB that router and coordinator, which are one process, take
	lastLook := time.Time{}
	for opened == 0 {
		var step string
		if err := c.QueryRow(ctx, `SELECT step FROM cleave.workflows WHERE id = 'bench'`).Scan(&step); err != nil {
			return err
		}
		switch step {
		case "closing", "opening":
			phase.Store(cutover)
		case "opened":
			opened = time.Since(began)
		case "cancelled", "failed":
			return fmt.Errorf("the move is %s", step)
		}
		if time.Since(lastLook) > 100*time.Millisecond {
			lastLook = time.Now()
			mib, err := resident(pid)
			if err != nil {
				return err
			}
			peak = max(peak, mib)
		}
		if err := sleep(ctx, moveLook); err != nil {
			return err
		}
	}
	phase.Store(cutover)
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	stop()
	clients.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return fmt.Errorf("a client's statement failed: %w", err)
		}
	}
	var held int64
	if err := c.QueryRow(ctx, `SELECT held_ms FROM cleave.workflows WHERE id = 'bench'`).Scan(&held); err != nil {
		return err
	}
	fmt.Printf("%d of %d rows moved from %s to %s in %s, with %d clients that update single rows (pause %v); the part was held for %d ms; no statement failed. Router and coordinator, one process, took up to %.0f MiB.\n\n",
		n, o.spread, from, to, opened.Round(10*time.Millisecond), moveClients, movePause, held, peak)
	fmt.Println("| updates, ms | moving rows: n | median | p99 | worst | others: n | median | p99 | worst |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	fmt.Println(before.row("before"))
	fmt.Println(during.row("copy, catch-up, verification"))
	fmt.Println(cutover.row("cutover and the second after it"))
	fmt.Println()
	fmt.Println(histogramHead())
	for _, p := range []struct {
		name string
		l    *latencies
	}{{"before", before}, {"copy to verification", during}, {"cutover", cutover}} {
		fmt.Println(histogramRow(p.name+", moving rows", p.l.moving))
		fmt.Println(histogramRow(p.name+", others", p.l.others))
	}
	fmt.Println()
	return nil
}

func moveClient(ctx context.Context, url string, rows int, seed uint64, moving []bool, phase *atomic.Pointer[latencies]) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	r := rand.New(rand.NewPCG(20261122, seed))
	for {
		id := 1 + r.IntN(rows)
		start := time.Now()
		_, err := c.Exec(ctx, `UPDATE bench_moves SET val = val + 1 WHERE id = $1`, id)
		took := time.Since(start)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		l := phase.Load() // the phase in which it ended
		l.mu.Lock()
		if moving[id] {
			l.moving = append(l.moving, took)
		} else {
			l.others = append(l.others, took)
		}
		l.mu.Unlock()
		if sleep(ctx, movePause) != nil {
			return nil
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(ctx.Err())
	case <-t.C:
		return nil
	}
}
