package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	momentRouters = 3
	momentWriters = 6
	momentRows    = 1000
	// momentEvery is between two blocks: 20 a second.
	momentEvery = 50 * time.Millisecond
	// momentPause is between two statements of a writer.
	momentPause = 5 * time.Millisecond
)

// spans are what writers waited for their answers, and readers for the first row of a block.
type spans struct {
	mu             sync.Mutex
	writes, blocks []time.Duration
}

func (s *spans) add(to *[]time.Duration, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = append(*to, d)
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

// moments measures what writers of single rows wait, and when REPEATABLE READ blocks get their first row, through three routers: with
// blocks that are moments of the cluster, and with blocks in which each shard has a snapshot of its own.
func moments(ctx context.Context, o options, dir string) error {
	urls, end, err := momentCluster(ctx, o, dir)
	if err != nil {
		return err
	}
	defer end()
	modes := []string{"shard", "atomic"}
	all := map[string]*spans{}
	for round := range o.rounds + 1 {
		for _, mode := range modes {
			s := &spans{}
			limit, stop := context.WithTimeout(ctx, time.Duration(o.seconds)*time.Second)
			err := momentRound(limit, urls, mode, s)
			if stop(); err != nil {
				return fmt.Errorf("%s: %w", mode, err)
			}
			if round == 0 { // plans and conversations are warm now
				all[mode] = &spans{}
				continue
			}
			all[mode].writes = append(all[mode].writes, s.writes...)
			all[mode].blocks = append(all[mode].blocks, s.blocks...)
		}
	}
	fmt.Printf("%d writers through %d routers, %d blocks a second:\n\n", momentWriters, momentRouters, time.Second/momentEvery)
	fmt.Println("| blocks | writes | median | p99 | blocks | first row: median | p99 |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, mode := range modes {
		s, base := all[mode], all[modes[0]]
		cell := func(of, than []time.Duration, q float64) string {
			d := quantile(of, q)
			if mode == modes[0] {
				return ms(d)
			}
			b := quantile(than, q)
			return fmt.Sprintf("%s (%+.1f ms, %.2fx)", ms(d), float64((d-b).Microseconds())/1000, float64(d)/float64(b))
		}
		fmt.Printf("| %s | %d | %s | %s | %d | %s | %s |\n", mode, len(s.writes), cell(s.writes, base.writes, 0.5), cell(s.writes, base.writes, 0.99),
			len(s.blocks), cell(s.blocks, base.blocks, 0.5), cell(s.blocks, base.blocks, 0.99))
	}
	fmt.Println()
	return nil
}

// momentCluster starts routers of a cluster: `cleave up`, and others on its directory.
func momentCluster(ctx context.Context, o options, dir string) (urls []string, end func(), err error) {
	var routers []*exec.Cmd
	end = func() {
		for _, r := range slices.Backward(routers) {
			stopped(r)
		}
	}
	data := filepath.Join(dir, "moments")
	for i := range momentRouters {
		args := []string{"router", "--directory", "file:" + filepath.Join(data, "directory.db")}
		if i == 0 {
			args = []string{"up", "--engine", "postgres", "--data", data, "--shards", "2"}
		}
		listen := freeAddress()
		var log bytes.Buffer
		r := exec.Command(o.binary, append(args, "--listen", listen, "--admin", freeAddress(), "--moments", "cluster")...)
		r.Stdout, r.Stderr = &log, &log
		if err := r.Start(); err != nil {
			end()
			return nil, nil, err
		}
		routers = append(routers, r)
		u := "postgres://" + listen + "/cleave?sslmode=disable"
		if err := waitFor(ctx, u); err != nil {
			end()
			return nil, nil, fmt.Errorf("%w\n%s", err, log.Bytes())
		}
		urls = append(urls, u)
	}
	c, err := pgx.Connect(ctx, urls[0])
	if err != nil {
		end()
		return nil, nil, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{
		`CREATE TABLE bench_moments (id bigint PRIMARY KEY, val bigint) WITH (cleave.shard_key = 'id')`,
		fmt.Sprintf(`INSERT INTO bench_moments SELECT g, 0 FROM generate_series(1, %d) g`, momentRows),
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			end()
			return nil, nil, err
		}
	}
	return urls, end, nil
}

// momentRound has writers write and readers begin blocks of a mode until ctx ends.
func momentRound(ctx context.Context, urls []string, mode string, s *spans) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	client := func(at int, setting string, step func(ctx context.Context, c *pgx.Conn, i int) error) {
		all.Go(func() {
			whole := context.WithoutCancel(ctx)
			c, err := pgx.Connect(whole, urls[at%len(urls)])
			if err == nil {
				defer c.Close(whole)
				_, err = c.Exec(whole, setting)
			}
			for i := 0; err == nil && ctx.Err() == nil; i++ {
				err = step(whole, c, i)
			}
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
		})
	}
	for w := range momentWriters {
		client(w, "SELECT 1", func(ctx context.Context, c *pgx.Conn, i int) error {
			began := time.Now()
			_, err := c.Exec(ctx, "UPDATE bench_moments SET val = val + 1 WHERE id = $1", (i*momentWriters+w)%momentRows+1)
			s.add(&s.writes, time.Since(began))
			time.Sleep(momentPause)
			return err
		})
	}
	for r := range momentRouters {
		client(r, "SET cleave.read_consistency = '"+mode+"'", func(ctx context.Context, c *pgx.Conn, i int) error {
			next := time.Now().Add(momentRouters * momentEvery)
			tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
			if err != nil {
				return err
			}
			var sum int64
			began := time.Now()
			err = tx.QueryRow(ctx, "SELECT sum(val)::bigint FROM bench_moments").Scan(&sum)
			s.add(&s.blocks, time.Since(began))
			if err != nil {
				return err
			}
			err = tx.Commit(ctx)
			time.Sleep(time.Until(next))
			return err
		})
	}
	all.Wait()
	return failed
}
