package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// transactions measures the router's CPU for a transaction of two updates on one
// shard and on two, and for reads over all shards in both modes of consistency.
func transactions(ctx context.Context, o options, cleaveURL string, pid int) error {
	c, err := pgx.Connect(ctx, cleaveURL)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{
		`CREATE TABLE bench_pairs (id bigint PRIMARY KEY, val bigint) WITH (cleave.shard_key = 'id')`,
		`INSERT INTO bench_pairs SELECT g, 0 FROM generate_series(1, 64) g`,
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return err
		}
	}
	shards := map[string][]int{} // keys by their shard
	first, second := "", ""
	for key := 1; key <= 64 && len(shards[first]) < 2 || second == ""; key++ {
		if key > 64 {
			return errors.New("64 keys are not on two shards")
		}
		var shard string
		if err := c.QueryRow(ctx, fmt.Sprintf("SELECT cleave.shard_of('hash_bigint', %d)", key)).Scan(&shard); err != nil {
			return err
		}
		shards[shard] = append(shards[shard], key)
		if len(shards[shard]) == 2 && first == "" {
			first = shard
		}
		if first != "" && shard != first {
			second = shard
		}
	}
	pair := func(a, b int) func() error {
		return func() error {
			for _, sql := range []string{"BEGIN", fmt.Sprintf("UPDATE bench_pairs SET val = val + 1 WHERE id = %d", a),
				fmt.Sprintf("UPDATE bench_pairs SET val = val - 1 WHERE id = %d", b), "COMMIT"} {
				if _, err := c.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		}
	}
	read := func() error {
		var n int64
		return c.QueryRow(ctx, "SELECT sum(val) FROM bench_pairs").Scan(&n)
	}
	cost := func(setting string, f func() error) (us float64, err error) {
		if _, err := c.Exec(ctx, setting); err != nil {
			return 0, err
		}
		const times = 500
		for i := range 2 * times {
			if i == times { // the first half warms plans and conversations up
				if us, err = cpu(pid, false); err != nil {
					return 0, err
				}
			}
			if err := f(); err != nil {
				return 0, err
			}
		}
		after, err := cpu(pid, false)
		return (after - us) * 1e6 / times, err
	}
	kinds := []struct {
		name, setting string
		f             func() error
		best          float64
	}{
		{"two updates on one shard", "SET cleave.read_consistency = 'shard'", pair(shards[first][0], shards[first][1]), 0},
		{"two updates on two shards", "SET cleave.read_consistency = 'shard'", pair(shards[first][0], shards[second][0]), 0},
		{"sum over all shards", "SET cleave.read_consistency = 'shard'", read, 0},
		{"sum over all shards, atomic", "SET cleave.read_consistency = 'atomic'", read, 0},
	}
	for range o.rounds {
		for i := range kinds {
			us, err := cost(kinds[i].setting, kinds[i].f)
			if err != nil {
				return fmt.Errorf("%s: %w", kinds[i].name, err)
			}
			if kinds[i].best == 0 || us < kinds[i].best {
				kinds[i].best = us
			}
		}
	}
	fmt.Println("| transaction | router CPU, us |")
	fmt.Println("|---|---|")
	for i, k := range kinds {
		beside := ""
		if i%2 == 1 {
			beside = fmt.Sprintf(" (%.2fx)", k.best/kinds[i-1].best)
		}
		fmt.Printf("| %s | %.0f%s |\n", k.name, k.best, beside)
	}
	fmt.Println()
	return nil
}
