package sqlitedir_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/shardmaptest"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
	"github.com/cleavedb/cleave/sqlstate"
)

// childVariable makes the test binary a process that changes the directory at
// its value until it is killed.
const childVariable = "CLEAVE_SQLITEDIR_TEST_CHILD"

// createVariable makes it one that creates the directory and ends.
const createVariable = "CLEAVE_SQLITEDIR_TEST_CREATE"

// leadVariable makes it one that leads until it is deposed.
const leadVariable = "CLEAVE_SQLITEDIR_TEST_LEAD"

func TestMain(m *testing.M) {
	if path := os.Getenv(leadVariable); path != "" {
		d, err := sqlitedir.OpenWith(path, sqlitedir.Options{LeaseTTL: shardmaptest.LeaseTTL})
		if err == nil {
			err = shardmaptest.PausedLeader(d)
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	if path := os.Getenv(childVariable); path != "" {
		if err := writeForever(path); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	if path := os.Getenv(createVariable); path != "" {
		if err := createOnce(path); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, path string) shardmap.Directory {
	t.Helper()
	d, err := sqlitedir.Open(path)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return d
}

func closing(t *testing.T, d shardmap.Directory) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestConformance(t *testing.T) {
	shardmaptest.RunShared(t, func(t *testing.T) shardmaptest.Store {
		// Characters that URIs and SQL treat specially must not matter.
		path := filepath.Join(t.TempDir(), "a dir?mode=memory&x'%20#.db")
		return func() shardmap.Directory {
			d, err := sqlitedir.OpenWith(path, sqlitedir.Options{LeaseTTL: shardmaptest.LeaseTTL})
			if err != nil {
				t.Errorf("Open: %v", err)
				panic(err)
			}
			return d
		}
	})
}

func label(ctx context.Context, d shardmap.Directory, from *shardmap.Snapshot, text string) (*shardmap.Snapshot, error) {
	next := from.State().Clone()
	next.Shards[0].Labels = map[string]string{"n": text}
	return d.Update(ctx, shardmap.Change{Expect: from.Version(), By: "t", Op: "test", Why: text, ID: text}, next)
}

func create(t *testing.T, d shardmap.Directory) *shardmap.Snapshot {
	t.Helper()
	s, err := d.Update(t.Context(), shardmap.Change{By: "t", Op: "test"}, shardmaptest.State(t))
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	return s
}

// writeForever is the child: it makes one change after the other and prints the
// version and the change's ID after each that was acknowledged.
func writeForever(path string) error {
	d, err := sqlitedir.Open(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for n := 0; ; n++ {
		from, err := d.Load(ctx)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("%d-%d", os.Getpid(), n)
		made, err := label(ctx, d, from, id)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(made.Version(), id)
	}
}

// TestKill kills processes with SIGKILL while they change the directory, and
// checks after each round that what they acknowledged is there.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "directory.db")
	d := open(t, path)
	create(t, d)
	closing(t, d)
	acknowledged := map[uint64]string{}
	const rounds, children = 8, 2
	for round := range rounds {
		var procs []*exec.Cmd
		var outputs []io.ReadCloser
		for range children {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"="+path)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			procs, outputs = append(procs, cmd), append(outputs, out)
		}
		// The first to acknowledge something starts the clock, so that kills
		// fall among the changes on machines of any speed.
		first := bufio.NewReader(outputs[0])
		line, err := first.ReadString('\n')
		if err != nil {
			t.Fatalf("the child wrote %q, then %v", line, err)
		}
		time.Sleep(time.Duration(rand.IntN(40_000)) * time.Microsecond)
		for _, p := range procs {
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		readers := []io.Reader{io.MultiReader(strings.NewReader(line), first), outputs[1]}
		inFlight := 0
		for i, r := range readers {
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = procs[i].Wait() // says that it was killed
			inFlight++
			for l := range strings.Lines(string(text)) {
				v, id, ok := strings.Cut(strings.TrimSpace(l), " ")
				if !ok || !strings.HasSuffix(l, "\n") {
					continue // cut off by the kill: not acknowledged
				}
				version, err := strconv.ParseUint(v, 10, 64)
				if err != nil {
					t.Fatalf("the child wrote %q", l)
				}
				if other, twice := acknowledged[version]; twice {
					t.Fatalf("version %d was acknowledged to %s and %s", version, other, id)
				}
				acknowledged[version] = id
			}
		}
		checkAcknowledged(t, path, acknowledged, 1+(round+1)*inFlight)
	}
	if len(acknowledged) < rounds {
		t.Fatalf("only %d changes were acknowledged in %d rounds", len(acknowledged), rounds)
	}
	t.Logf("%d changes were acknowledged by %d killed processes", len(acknowledged), rounds*children)
}

// checkAcknowledged checks that the history is whole, that each acknowledged
// version is what its process stored, and that at most extra others are there.
func checkAcknowledged(t *testing.T, path string, acknowledged map[uint64]string, extra int) {
	t.Helper()
	d := open(t, path)
	defer closing(t, d)
	ctx := t.Context()
	now, err := d.Load(ctx)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	list, err := d.History(ctx, 0, 1<<30)
	if err != nil {
		t.Fatalf("History: %v", err)
	}
	if uint64(len(list)) != now.Version() {
		t.Fatalf("the history has %d lines, the version is %d", len(list), now.Version())
	}
	if len(list) > len(acknowledged)+extra {
		t.Fatalf("%d versions are stored, %d were acknowledged, at most %d more can be", len(list), len(acknowledged), extra)
	}
	found := 0
	for i, e := range list {
		if e.Version != uint64(i+1) {
			t.Fatalf("line %d of the history is of version %d", i+1, e.Version)
		}
		id, ok := acknowledged[e.Version]
		if !ok {
			continue
		}
		found++
		if e.ID != id {
			t.Fatalf("version %d was acknowledged to %s, but is %s's", e.Version, id, e.ID)
		}
		if s, err := d.At(ctx, e.Version); err != nil || s.State().Shards[0].Labels["n"] != id {
			t.Fatalf("version %d does not hold what %s stored (%v)", e.Version, id, err)
		}
	}
	if found != len(acknowledged) {
		t.Fatalf("%d versions were acknowledged, %d are there", len(acknowledged), found)
	}
}

// TestTornLog cuts the write-ahead log at many lengths, as a loss of power may:
// the file opens with some first versions, whole and in order, and takes changes.
func TestTornLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "directory.db")
	d := open(t, path)
	snap := create(t, d)
	for n := range 12 {
		var err error
		if snap, err = label(t.Context(), d, snap, strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
	}
	main, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	closing(t, d)
	versions := map[uint64]bool{}
	for i := 0; i <= 40; i++ {
		cut := len(log) * i / 40
		if i%4 == 1 && cut > 100 {
			cut -= 77 // within a frame
		}
		torn := filepath.Join(dir, fmt.Sprintf("torn-%d.db", i))
		if err := errors.Join(os.WriteFile(torn, main, 0o600), os.WriteFile(torn+"-wal", log[:cut], 0o600)); err != nil {
			t.Fatal(err)
		}
		d := open(t, torn)
		now, err := d.Load(t.Context())
		var version uint64
		switch {
		case err == nil:
			version = now.Version()
		case errors.Is(err, shardmap.ErrNotFound):
		default:
			t.Fatalf("cut to %d of %d bytes: %v", cut, len(log), err)
		}
		versions[version] = true
		list, err := d.History(t.Context(), 0, 100)
		if err != nil || uint64(len(list)) != version {
			t.Fatalf("cut to %d of %d bytes: version %d with %d lines of history (%v)", cut, len(log), version, len(list), err)
		}
		if version == 0 {
			create(t, d)
		} else if _, err := label(t.Context(), d, now, "after"); err != nil {
			t.Fatalf("cut to %d of %d bytes: Update: %v", cut, len(log), err)
		}
		closing(t, d)
	}
	if !versions[13] || len(versions) < 5 {
		t.Fatalf("the cuts left versions %v: they tested nothing", versions)
	}
}

func exec1(t *testing.T, path, sql string) string {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out := ""
	if err := sqlitex.ExecuteTransient(conn, sql, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		out = s.ColumnText(0)
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRefusedFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, content []byte) string {
		if err := os.WriteFile(file(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file(name)
	}
	made := func(name string, sql ...string) string {
		d := open(t, file(name))
		snap := create(t, d)
		if _, err := label(t.Context(), d, snap, "x"); err != nil {
			t.Fatal(err)
		}
		closing(t, d)
		for _, s := range sql {
			exec1(t, file(name), s)
		}
		return file(name)
	}
	foreign := file("foreign.db")
	exec1(t, foreign, "CREATE TABLE orders (id INTEGER)")
	damaged := made("damaged.db")
	whole, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(whole); i += 64 {
		whole[i] ^= 0x5a
	}
	write("damaged.db", whole)
	half := made("half.db")
	if err := os.Truncate(half, 8192); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		code sqlstate.Code
		says string
		hint string
	}{
		"text":            {write("text", bytes.Repeat([]byte("no database at all\n"), 400)), sqlstate.ObjectNotInState, "is not a directory file", "cleave up"},
		"short text":      {write("short", []byte("hello")), sqlstate.ObjectNotInState, "is not a directory file", "cleave up"},
		"folder":          {dir, sqlstate.ObjectNotInState, "not a regular file", "cleave up"},
		"another program": {foreign, sqlstate.ObjectNotInState, "another program", "cleave up"},
		"newer format":    {made("newer.db", "PRAGMA user_version = 3"), sqlstate.ObjectNotInState, "format 3", "newer release"},
		"no format":       {made("older.db", "PRAGMA user_version = 0"), sqlstate.ObjectNotInState, "format 0", "cleave up"},
		"no table":        {made("lost.db", "DROP TABLE map_version"), sqlstate.DataCorrupted, "lost its table", "backup"},
		"damaged pages":   {damaged, sqlstate.DataCorrupted, "damaged", "backup"},
		"half a file":     {half, sqlstate.DataCorrupted, "damaged", "backup"},
		"damaged map":     {made("map.db", "UPDATE map_version SET state = x'00112233' WHERE version = 2"), sqlstate.DataCorrupted, "cannot be read", "backup"},
		"no folder":       {file("no/such/folder/d.db"), sqlstate.IOError, "does not exist", "mkdir"},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := os.ReadFile(c.path)
			d, err := sqlitedir.Open(c.path)
			if err == nil {
				closing(t, d)
				t.Fatal("the file was opened")
			}
			e := sqlstate.As(err)
			if e.Code != c.code || !strings.Contains(err.Error(), c.says) || !strings.Contains(e.Hint, c.hint) {
				t.Fatalf("got %v\nwant SQLSTATE %s, text %q, hint %q", err, c.code, c.says, c.hint)
			}
			if after, _ := os.ReadFile(c.path); !bytes.Equal(before, after) {
				t.Fatal("the refused file was changed")
			}
		})
	}
}

func TestMapOfOtherFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	d := open(t, path)
	snap := create(t, d)
	closing(t, d)
	// What a newer release would have stored.
	raw, err := json.Marshal(snap.State())
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte(`"format":1`), []byte(`"format":2,"news":[1]`), 1)
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	err = sqlitex.ExecuteTransient(conn, "UPDATE map_version SET state = ?", &sqlitex.ExecOptions{Args: []any{compress(t, raw)}})
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	if d, err := sqlitedir.Open(path); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(err.Error(), "format 2") {
		if err == nil {
			closing(t, d)
		}
		t.Fatalf("a map of format 2: %v", err)
	}
}

func TestSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	d := open(t, path)
	defer closing(t, d)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if perm := info.Mode().Perm(); perm != 0o600 {
		t.Errorf("the file has permissions %o: it may hold passwords", perm)
	}
	if mode := exec1(t, path, "PRAGMA journal_mode"); mode != "wal" {
		t.Errorf("the journal mode is %q", mode)
	}
	for i, sync := range sqlitedir.Synchronous(d) {
		if sync != 2 {
			t.Errorf("connection %d has synchronous = %d, want FULL", i, sync)
		}
	}
}

func TestReplacedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	d := open(t, path)
	defer closing(t, d)
	snap := create(t, d)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := label(t.Context(), d, snap, "lost"); sqlstate.CodeOf(err) != sqlstate.IOError {
		t.Fatalf("Update of a removed file: %v", err)
	}
	if _, err := d.Load(t.Context()); sqlstate.CodeOf(err) != sqlstate.IOError {
		t.Fatalf("Load of a removed file: %v", err)
	}
	other := open(t, path)
	defer closing(t, other)
	if _, err := d.Load(t.Context()); sqlstate.CodeOf(err) != sqlstate.IOError {
		t.Fatalf("Load of a replaced file: %v", err)
	}
	if _, err := other.Load(t.Context()); !errors.Is(err, shardmap.ErrNotFound) {
		t.Fatalf("Load of the new file: %v", err)
	}
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	first := open(t, path)
	snap := create(t, first) // not bounded by so little
	closing(t, first)
	d, err := sqlitedir.OpenWith(path, sqlitedir.Options{BusyMax: 3 * time.Second}) // it bounds what nobody keeps waiting, too
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, d)
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteTransient(conn, "BEGIN IMMEDIATE", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := label(t.Context(), d, snap, "x"); sqlstate.CodeOf(err) != sqlstate.LockNotAvailable {
		t.Fatalf("Update while the file is locked: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := label(ctx, d, snap, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Update with a short context while the file is locked: %v", err)
	}
	// Reading goes on.
	if s, err := d.Load(t.Context()); err != nil || s.Version() != 1 {
		t.Fatalf("Load while the file is locked: %v", err)
	}
	if err := sqlitex.ExecuteTransient(conn, "ROLLBACK", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := label(t.Context(), d, snap, "x"); err != nil {
		t.Fatalf("Update after the lock was released: %v", err)
	}
}

// TestFull has the file reach its limit of pages: a change that does not fit is
// refused whole, and the next one that fits is stored.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	d := open(t, path)
	defer closing(t, d)
	snap := create(t, d)
	sqlitedir.LimitPages(t, d, 12)
	next := snap.State().Clone()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 4000 {
		next.Tables = append(next.Tables, shardmap.Table{Schema: "public", Name: fmt.Sprintf("t%d_%d", i, random.Uint64()), Kind: shardmap.Whole})
	}
	_, err := d.Update(t.Context(), shardmap.Change{Expect: 1, By: "t", Op: "test"}, next)
	if sqlstate.CodeOf(err) != sqlstate.DiskFull {
		t.Fatalf("Update of a full file: %v", err)
	}
	if s, err := d.Load(t.Context()); err != nil || !reflect.DeepEqual(s.State(), snap.State()) {
		t.Fatalf("Load after it: %v", err)
	}
	if s, err := label(t.Context(), d, snap, "small"); err != nil || s.Version() != 2 {
		t.Fatalf("a small change after it: %v", err)
	}
}

// TestConcurrentProcesses has several processes create the same directory: the
// file is made once, and one of them stores the first version.
func TestConcurrentProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "directory.db")
	const children = 6
	results := make(chan string, children)
	for range children {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), createVariable+"="+path)
		go func() {
			out, err := cmd.CombinedOutput()
			results <- fmt.Sprintf("%s%v", out, err)
		}()
	}
	count := map[string]int{}
	for range children {
		count[<-results]++
	}
	if count["won\n<nil>"] != 1 || count["lost\n<nil>"] != children-1 {
		t.Fatalf("the processes say %v", count)
	}
}

func createOnce(path string) error {
	d, err := sqlitedir.Open(path)
	if err != nil {
		return err
	}
	var t testing.T
	_, err = d.Update(context.Background(), shardmap.Change{By: "t", Op: "test"}, shardmaptest.State(&t))
	switch {
	case err == nil:
		fmt.Println("won")
	case errors.Is(err, shardmap.ErrConflict):
		fmt.Println("lost")
	default:
		return err
	}
	return d.Close()
}
