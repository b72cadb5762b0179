package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// resident returns a process's resident memory in MiB (VmRSS of /proc/PID/status).
func resident(pid int) (float64, error) { return memoryOf(pid, "VmRSS:") }

// memoryOf returns a line of /proc/PID/status in MiB.
func memoryOf(pid int, name string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, name)
}

// idleClients opens a thousand sessions, each of which prepares and runs a
// statement and then idles.
func idleClients(ctx context.Context, url string, pid, rows int) error {
	const clients = 1000
	before, err := resident(pid)
	if err != nil {
		return err
	}
	conns := make([]*pgx.Conn, clients)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close(context.WithoutCancel(ctx)) // it is over either way
			}
		}
	}()
	for i := range conns {
		if conns[i], err = pgx.Connect(ctx, url); err != nil {
			return err
		}
		var balance int
		if err := conns[i].QueryRow(ctx, `SELECT abalance FROM bench_accounts WHERE aid = $1`, 1+i%rows).Scan(&balance); err != nil {
			return err
		}
	}
	opened, err := resident(pid)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
	}
	after, err := resident(pid)
	if err != nil {
		return err
	}
	fmt.Printf("%d clients, each with a prepared statement: resident memory %.1f MiB before, %.1f MiB when all had connected, %.1f MiB after 10 s of idling.\n\n", clients, before, opened, after)
	return nil
}

// distinctTexts runs statements of which no two share a shape.
func distinctTexts(ctx context.Context, url string, pid int, o options) error {
	var mu sync.Mutex
	var failed error
	next, step := 0, max(o.texts/10, 1)
	var at []string
	var wg sync.WaitGroup
	for range o.clients {
		wg.Go(func() {
			conn, err := pgx.Connect(ctx, url)
			if err == nil {
				defer conn.Close(context.WithoutCancel(ctx))
			}
			for {
				mu.Lock()
				if err != nil && failed == nil {
					failed = err
				}
				n := next
				next++
				if failed != nil || n >= o.texts {
					mu.Unlock()
					return
				}
				if n%step == 0 {
					if mib, err := resident(pid); err == nil {
						at = append(at, fmt.Sprintf("%.0f", mib))
					}
				}
				mu.Unlock()
				_, err = conn.PgConn().Exec(ctx, fmt.Sprintf("SELECT abalance AS column_%d FROM bench_accounts WHERE aid = %d", n, 1+n%o.rows)).ReadAll()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	last, err := resident(pid)
	if err != nil {
		return err
	}
	fmt.Printf("%d statements of distinct text: resident memory %s, %.0f MiB (at every tenth).\n\n", o.texts, strings.Join(at, ", "), last)
	return nil
}
