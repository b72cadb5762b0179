package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// writers is how many sessions commit at once.
const writers = 16

// sqliteCommits compares the durable single-row commits per second of one SQLite
// shard with those of eight, and says what the disk can do at most.
func sqliteCommits(ctx context.Context, o options) error {
	fmt.Printf("%d writers, single-row INSERTs, synchronous=FULL; best of %d rounds of %d s.\n\n", writers, o.rounds, o.seconds)
	disk := map[int]float64{}
	rates, cpus := map[int]float64{}, map[int]float64{}
	for range o.rounds {
		for _, shards := range []int{1, 8} {
			syncs, err := diskSyncs(ctx, shards, time.Duration(o.seconds)*time.Second/3)
			if err != nil {
				return err
			}
			disk[shards] = max(disk[shards], syncs)
			rate, us, err := commits(ctx, o, shards)
			if err != nil {
				return err
			}
			if rate > rates[shards] {
				rates[shards], cpus[shards] = rate, us
			}
		}
	}
	fmt.Println("| SQLite shards | commits/s | CPU us per commit | write+fdatasync/s of as many files |")
	fmt.Println("|---|---|---|---|")
	for _, shards := range []int{1, 8} {
		times := ""
		if shards > 1 {
			times = fmt.Sprintf(" (%.2fx)", rates[shards]/rates[1])
		}
		fmt.Printf("| %d | %.0f%s | %.0f | %.0f |\n", shards, rates[shards], times, cpus[shards], disk[shards])
	}
	fmt.Println()
	return nil
}

// commits runs the writers against a new cluster for some seconds.
func commits(ctx context.Context, o options, shards int) (perSecond, cpuUS float64, err error) {
	dir, err := os.MkdirTemp("", "cleave-bench")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	listen, admin := freeAddress(), freeAddress()
	up := exec.CommandContext(ctx, o.binary, "up", "--engine", "sqlite", "--shards", strconv.Itoa(shards), "--data", filepath.Join(dir, "data"), "--listen", listen, "--admin", admin)
	var log bytes.Buffer
	up.Stdout, up.Stderr = &log, &log
	if err := up.Start(); err != nil {
		return 0, 0, err
	}
	defer func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		_ = up.Wait()
	}()
	url := "postgres://" + listen + "/cleave?sslmode=disable"
	if err := waitFor(ctx, url); err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, log.Bytes())
	}
	var conns []*pgx.Conn
	for range writers {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return 0, 0, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		conns = append(conns, conn)
	}
	if _, err := conns[0].Exec(ctx, `CREATE TABLE bench_rows (id bigint PRIMARY KEY, filler text) WITH (cleave.shard_key = 'id')`); err != nil {
		return 0, 0, err
	}
	var next, done atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, writers)
	before, err := cpu(up.Process.Pid, false)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	end := began.Add(time.Duration(o.seconds) * time.Second)
	for _, conn := range conns {
		wg.Go(func() {
			for time.Now().Before(end) {
				if _, err := conn.Exec(ctx, `INSERT INTO bench_rows VALUES ($1, 'some words to be kept')`, next.Add(1)); err != nil {
					errs <- err
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began).Seconds()
	after, err := cpu(up.Process.Pid, false)
	if err != nil {
		return 0, 0, err
	}
	select {
	case err := <-errs:
		return 0, 0, err
	default:
	}
	return float64(done.Load()) / took, (after - before) * 1e6 / float64(done.Load()), nil
}

// diskSyncs is how often a second as many files can be written and synced, each
// by its own thread: what a commit of SQLite needs at least.
func diskSyncs(ctx context.Context, files int, d time.Duration) (float64, error) {
	dir, err := os.MkdirTemp("", "cleave-bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var done atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, files)
	began := time.Now()
	for i := range files {
		wg.Go(func() {
			f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
			if err != nil {
				errs <- err
				return
			}
			defer f.Close()
			page := make([]byte, 4120) // a frame of the write-ahead log
			for time.Since(began) < d && ctx.Err() == nil {
				if _, err := f.Write(page); err != nil {
					errs <- err
					return
				}
				if err := syscall.Fdatasync(int(f.Fd())); err != nil {
					errs <- err
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	return float64(done.Load()) / time.Since(began).Seconds(), ctx.Err()
}
