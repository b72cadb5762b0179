// Command debian loads the package index of a Debian machine into a sharded
// table and asks it questions by maintainer.
//
// The index is real data with a real skew: some 63,000 packages, a few thousand
// maintainers, the largest of whom maintain thousands of packages while most
// maintain one. The maintainer is the tenant, and so the shard key.
//
//	make run                                  # in one terminal
//	go run ./examples/debian                  # in another
//	go run ./examples/debian -url postgres://127.0.0.1:6432/cleave -limit 5000
//
// The index is what `apt-cache dumpavail` prints; as root, `apt-get update` is
// run first when the machine has no package lists yet. With -file an index is
// read from a file of the same form instead.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

func main() {
	url := flag.String("url", "postgres://127.0.0.1:6432/cleave?sslmode=disable", "the router")
	file := flag.String("file", "", "read the index from this file instead of apt-cache")
	limit := flag.Int("limit", 0, "load at most this many packages (0: all)")
	workers := flag.Int("workers", 4, "connections that load at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *url, *file, *limit, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "debian:", err)
		os.Exit(1)
	}
}

const createTable = `CREATE TABLE IF NOT EXISTS packages (
  maintainer   text NOT NULL,
  name         text NOT NULL,
  version      text NOT NULL,
  architecture text NOT NULL,
  section      text,
  installed_kb bigint,
  description  text,
  PRIMARY KEY (maintainer, name, version, architecture)
) WITH (cleave.shard_key = 'maintainer')`

type pkg struct {
	name, version, architecture string
	section, description        *string
	installedKB                 *int64
}

func run(ctx context.Context, out io.Writer, url, file string, limit, workers int) error {
	index, done, err := open(ctx, file)
	if err != nil {
		return err
	}
	byMaintainer, total, err := parse(index, limit)
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	if total == 0 {
		return errors.New("the index is empty; run apt-get update as root, or name a file with -file")
	}
	maintainers := make([]string, 0, len(byMaintainer))
	for m := range byMaintainer {
		maintainers = append(maintainers, m)
	}
	slices.SortFunc(maintainers, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(byMaintainer[b]), len(byMaintainer[a])), cmp.Compare(a, b))
	})
	fmt.Fprintf(out, "%d packages of %d maintainers\n", total, len(maintainers))

	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("%w\nis the router running? try: make run", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, createTable); err != nil {
		return err
	}

	began := time.Now()
	if err := load(ctx, url, maintainers, byMaintainer, workers); err != nil {
		return err
	}
	fmt.Fprintf(out, "loaded in %.1f s\n", time.Since(began).Seconds())

	// Every maintainer is asked: a statement each, each on one shard.
	var found int64
	shards := map[string]int64{}
	for _, m := range maintainers {
		var n int64
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM packages WHERE maintainer = $1`, m).Scan(&n); err != nil {
			return err
		}
		var shard string
		if err := conn.QueryRow(ctx, `SELECT cleave.shard_of('hash_text', $1)`, m).Scan(&shard); err != nil {
			return err
		}
		found += n
		shards[shard] += n
	}
	names := make([]string, 0, len(shards))
	for s := range shards {
		names = append(names, s)
	}
	slices.Sort(names)
	for _, s := range names {
		fmt.Fprintf(out, "%-10s %6d packages\n", s, shards[s])
	}
	if limit == 0 && found < int64(total) {
		return fmt.Errorf("%d packages were loaded but %d are found", total, found)
	}

	fmt.Fprintln(out, "the largest maintainers:")
	for _, m := range maintainers[:min(5, len(maintainers))] {
		var sections int64
		var largest string
		if err := conn.QueryRow(ctx, `SELECT count(DISTINCT section) FROM packages WHERE maintainer = $1`, m).Scan(&sections); err != nil {
			return err
		}
		err := conn.QueryRow(ctx, `SELECT name FROM packages WHERE maintainer = $1 AND installed_kb IS NOT NULL
			ORDER BY installed_kb DESC, name LIMIT 1`, m).Scan(&largest)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		fmt.Fprintf(out, "%6d packages in %d sections, largest %s: %s\n", len(byMaintainer[m]), sections, largest, m)
	}
	return nil
}

// load inserts the packages, one maintainer's at a time, several rows a
// statement: all rows of one statement have the same shard key, so each
// statement goes to one shard.
func load(ctx context.Context, url string, maintainers []string, byMaintainer map[string][]pkg, workers int) error {
	const rowsPerStatement = 200
	work := make(chan string)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(work)
		for _, m := range maintainers {
			select {
			case work <- m:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range max(workers, 1) {
		g.Go(func() error {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for m := range work {
				for rows := range slices.Chunk(byMaintainer[m], rowsPerStatement) {
					sql, args := insert(m, rows)
					if _, err := conn.Exec(ctx, sql, args...); err != nil {
						return fmt.Errorf("maintainer %q: %w", m, err)
					}
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func insert(maintainer string, rows []pkg) (sql string, args []any) {
	var b strings.Builder
	b.WriteString("INSERT INTO packages (maintainer, name, version, architecture, section, installed_kb, description) VALUES ")
	args = append(args, maintainer)
	for i, p := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("($1")
		for _, v := range []any{p.name, p.version, p.architecture, p.section, p.installedKB, p.description} {
			args = append(args, v)
			fmt.Fprintf(&b, ", $%d", len(args))
		}
		b.WriteByte(')')
	}
	b.WriteString(" ON CONFLICT DO NOTHING")
	return b.String(), args
}

// open returns the index and what to call when it was read.
func open(ctx context.Context, file string) (io.Reader, func() error, error) {
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, nil, err
		}
		return f, f.Close, nil
	}
	// A cheap look first: without package lists dumpavail prints only what is installed.
	stats, err := exec.CommandContext(ctx, "apt-cache", "pkgnames", "postgresql-plperl").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("apt-cache is needed to read the index (or use -file): %w", err)
	}
	if len(stats) == 0 && os.Geteuid() == 0 {
		if msg, err := exec.CommandContext(ctx, "apt-get", "update").CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("apt-get update: %w\n%s", err, msg)
		}
	}
	cmd := exec.CommandContext(ctx, "apt-cache", "dumpavail")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return pipe, func() error {
		// What is left unread (with -limit) must not block the writer.
		_, err := io.Copy(io.Discard, pipe)
		return errors.Join(err, cmd.Wait())
	}, nil
}

// parse reads stanzas of "Field: value" lines, separated by blank lines
// (deb822(5)).
func parse(r io.Reader, limit int) (map[string][]pkg, int, error) {
	byMaintainer := map[string][]pkg{}
	type id struct{ maintainer, name, version, architecture string }
	seen := map[id]bool{}
	total := 0
	var p pkg
	var maintainer string
	end := func() {
		key := id{maintainer, p.name, p.version, p.architecture}
		if p.name != "" && maintainer != "" && !seen[key] {
			seen[key] = true
			byMaintainer[maintainer] = append(byMaintainer[maintainer], p)
			total++
		}
		p, maintainer = pkg{}, ""
	}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for (limit == 0 || total < limit) && s.Scan() {
		line := s.Text()
		if line == "" {
			end()
			continue
		}
		field, value, ok := strings.Cut(line, ": ")
		if !ok || line[0] == ' ' {
			continue // the continuation of a long field
		}
		switch field {
		case "Package":
			p.name = value
		case "Version":
			p.version = value
		case "Architecture":
			p.architecture = value
		case "Section":
			p.section = &value
		case "Description", "Description-en":
			p.description = &value
		case "Maintainer":
			maintainer = value
		case "Installed-Size":
			if kb, err := strconv.ParseInt(value, 10, 64); err == nil {
				p.installedKB = &kb
			}
		}
	}
	end()
	return byMaintainer, total, s.Err()
}
