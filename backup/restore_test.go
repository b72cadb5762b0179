package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/clustertest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
	"github.com/cleavedb/cleave/sqlstate"
)

func newRepository(t *testing.T) *repository.Repository {
	t.Helper()
	repo, err := repository.Open(context.Background(), "file://"+t.TempDir(), repository.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := repo.Close(); err != nil {
			t.Error(err)
		}
	})
	return repo
}

func (b *bank) backup(repo *repository.Repository) *Manifest {
	b.t.Helper()
	m, err := Create(context.Background(), CreateOptions{Directory: b.dir, Drivers: drivers, Repository: repo, Software: "test"})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func restoring(repo *repository.Repository, m *Manifest, folder string) RestoreOptions {
	return RestoreOptions{Repository: repo, Manifest: m, Folder: folder, Drivers: drivers, OpenDirectory: sqlitedir.Open, Software: "test",
		Finish: func(folder string, shards []string) error {
			return os.WriteFile(filepath.Join(folder, "cleave.json"), []byte(strings.Join(shards, " ")), 0o600)
		}}
}

// ask asks the restored cluster in a folder, through a router of its own.
func ask(t *testing.T, folder, sql string) string {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, clustertest.URL(clustertest.Router(t, filepath.Join(folder, dirFile))))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	var got string
	if err := c.QueryRow(ctx, sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// TestRestoreOfFiles takes backups of files while money moves, and makes clusters of them, each stopped at every step and begun again.
func TestRestoreOfFiles(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	repo := newRepository(t)
	done, stop := b.transfers(3)
	defer stop()
	c := b.connect()
	defer c.Close(context.Background())
	for i := range 3 {
		at := done.Load()
		waitfor.True(t, "transfers", func() bool { return done.Load() > at+5 })
		// Acknowledged before the backup begins: it has to be there.
		if _, err := c.Exec(context.Background(), "INSERT INTO account VALUES ($1, 0)", 1000+i); err != nil {
			t.Fatal(err)
		}
		m := b.backup(repo)
		folder := filepath.Join(t.TempDir(), "new")
		o := restoring(repo, m, folder)
		res := crashEverywhere(t, o)
		if res.Cluster == m.Cluster || res.Cluster == "" {
			t.Errorf("the new cluster has the id %q, the old one %q", res.Cluster, m.Cluster)
		}
		got := ask(t, folder, "SELECT sum(balance)::text || ' ' || count(*) FROM account")
		if want := fmt.Sprint(accounts*money, " ", accounts+i+1); got != want {
			t.Errorf("backup %d has %s, not %s", i, got, want)
		}
		if err := o.refused(); err == nil {
			t.Error("a restore into a folder with a cluster was not refused")
		}
	}
	all, err := List(context.Background(), repo)
	if err != nil || len(all) != 3 {
		t.Fatalf("%d backups are listed: %v", len(all), err)
	}
	for _, m := range all {
		if err := Verify(context.Background(), repo, m.Manifest); err != nil {
			t.Error(err)
		}
	}
}

func (o RestoreOptions) refused() error { _, err := o.Plan(); return err }

// crashEverywhere stops a restore at each step once, and runs it again until it comes to its end.
func crashEverywhere(t *testing.T, o RestoreOptions) *Restored {
	t.Helper()
	crash, crashed := errors.New("crash"), map[string]int{}
	o.step = func(name string) error {
		if crashed[name]++; crashed[name] == 1 || name == "object" && crashed[name] == 2 {
			return crash
		}
		return nil
	}
	for {
		res, err := o.Restore(context.Background())
		if err == nil {
			if len(crashed) != 7 {
				t.Errorf("the restore was stopped at %v", crashed)
			}
			return res
		}
		if !errors.Is(err, crash) {
			t.Fatal(err)
		}
	}
}

// TestNothingTwice: values of sequences that rows of the backup have are not given again.
func TestNothingTwice(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	ctx := context.Background()
	c := b.connect()
	defer c.Close(ctx)
	for _, sql := range []string{"CREATE TABLE invoice (id bigserial PRIMARY KEY, what text) WITH (cleave.shard_key = 'id', cleave.keyspace = 'accounts')",
		"INSERT INTO invoice (what) SELECT 'old' FROM generate_series(1, 50)"} {
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	repo, folder := newRepository(t), filepath.Join(t.TempDir(), "new")
	if _, err := restoring(repo, b.backup(repo), folder).Restore(ctx); err != nil {
		t.Fatal(err)
	}
	var last, next int
	fmt.Sscan(ask(t, folder, "SELECT max(id)::text FROM invoice"), &last)
	fmt.Sscan(ask(t, folder, "SELECT nextval('invoice_id_seq')::text"), &next)
	if last < 50 || next <= last {
		t.Errorf("%d is given, and %d is there", next, last)
	}
}

// TestOldClusterStaysOut: routers of the old cluster cannot use the new one's shards, and the other way round.
func TestOldClusterStaysOut(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	repo, folder := newRepository(t), filepath.Join(t.TempDir(), "new")
	ctx := context.Background()
	res, err := restoring(repo, b.backup(repo), folder).Restore(ctx)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := b.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	open := &opened{snap: snap, drivers: drivers}
	for _, s := range snap.Shards() {
		for cluster, url := range map[string]string{snap.State().Cluster: "file:" + filepath.Join(folder, s.Name+".db"), res.Cluster: s.URL} {
			sh, err := open.open(cluster, &shardmap.Shard{Name: s.Name, Engine: s.Engine, URL: url})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := sh.Connect(ctx, nil); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
				t.Errorf("cluster %s may use %s: %v", cluster, url, err)
			}
			if err := sh.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	dir, err := sqlitedir.Open(filepath.Join(folder, dirFile))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if snap, err = dir.Load(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range snap.Shards() {
		if !strings.HasPrefix(s.URL, "file:"+folder) {
			t.Errorf("shard %s of the new cluster is at %s", s.Name, s.URL)
		}
	}
}

// TestMoveUnderWay restores a backup that was taken while rows of a part were on two shards: the owner's stay.
func TestMoveUnderWay(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	b.copyPart(t)
	repo, folder := newRepository(t), filepath.Join(t.TempDir(), "new")
	if _, err := restoring(repo, b.backup(repo), folder).Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, want := ask(t, folder, "SELECT sum(balance)::text FROM account"), fmt.Sprint(accounts*money); got != want {
		t.Errorf("the new cluster has %s, not %s", got, want)
	}
	dir, err := sqlitedir.Open(filepath.Join(folder, dirFile))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c, err := NewCutter(context.Background(), dir, drivers)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rows := 0
	for _, p := range c.places {
		got, err := p.exec(context.Background(), "SELECT id FROM account")
		if err != nil {
			t.Fatal(err)
		}
		rows += len(got)
	}
	if rows != accounts {
		t.Errorf("the shards have %d rows, not %d", rows, accounts)
	}
	for _, ks := range c.snap.State().Keyspaces {
		if len(ks.Transits) > 0 {
			t.Error("the map has a transit")
		}
	}
}

// copyPart leaves a move as it is after its copy: a transit in the map, a capture on the source, rows on both shards.
func (b *bank) copyPart(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	snap, err := b.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ks := snap.State().Keyspaces[0]
	rng := ks.Ranges[0]
	to := snap.Shards()[0].Name
	if to == rng.Shard {
		to = snap.Shards()[1].Name
	}
	part := shardmap.Part{Low: rng.Low, High: rng.High}
	next := snap.State().Clone()
	next.PutTransit(ks.Name, shardmap.Transit{ID: "m1", Part: part, From: rng.Shard, To: to})
	if snap, err = b.dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Op: "move", Transit: "m1"}, next); err != nil {
		t.Fatal(err)
	}
	open := &opened{snap: snap, drivers: drivers}
	mover := func(name string) engine.Mover {
		sh, err := open.shard(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sh.Close(); err != nil {
				t.Error(err)
			}
		})
		m := sh.(engine.Movable).Mover(7)
		if err := m.Seize(ctx); err != nil {
			t.Fatal(err)
		}
		return m
	}
	source, target := mover(rng.Shard), mover(to)
	tables, _ := coordinator.Tables(snap, ks.Name)
	full, err := source.Describe(ctx, tables)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := source.Capture(ctx, "m1_f", engine.Set{Tables: full, Keys: snap.Keys(ks.Name, part)})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var buf bytes.Buffer
	if err := rows.Rows(ctx, 0, engine.Part{}, nil, &buf); err != nil {
		t.Fatal(err)
	}
	if n, err := target.Load(ctx, "m1_f", &full[0], engine.Part{}, &buf); err != nil || n == 0 {
		t.Fatalf("%d rows were loaded: %v", n, err)
	}
}

// TestDamagedObject changes one bit of a shard's object: the restore ends and names it.
func TestDamagedObject(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	ctx, folder := context.Background(), t.TempDir()
	repo, err := repository.Open(ctx, "file://"+folder, repository.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	m := b.backup(repo)
	name := m.Shards[1].Object.Name
	changed := 0
	err = filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(path, name) {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		raw[len(raw)/2] ^= 1
		changed++
		return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, raw, 0o600))
	})
	if err != nil || changed != 1 {
		t.Fatalf("%d objects were changed: %v", changed, err)
	}
	if err := Verify(ctx, repo, m); sqlstate.CodeOf(err) != sqlstate.DataCorrupted || !strings.Contains(err.Error(), name) {
		t.Errorf("Verify: %v", err)
	}
	o := restoring(repo, m, filepath.Join(t.TempDir(), "new"))
	if _, err := o.Restore(ctx); sqlstate.CodeOf(err) != sqlstate.DataCorrupted || !strings.Contains(err.Error(), name) {
		t.Errorf("Restore: %v", err)
	}
	if _, err := os.Stat(filepath.Join(o.Folder, "cleave.json")); err == nil {
		t.Error("the folder can be started")
	}
}

// TestDrill proves a backup twice. A proof with other rows makes the next drill fail.
func TestDrill(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	ctx, repo, scratch := context.Background(), newRepository(t), t.TempDir()
	m := b.backup(repo)
	for range 2 {
		p, err := Drill(ctx, restoring(repo, m, ""), scratch)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Tables) != 1 || p.Tables[0].Rows != accounts || p.Tables[0].Checksum == 0 {
			t.Errorf("the proof has %+v", p.Tables)
		}
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
	proven, err := Proven(ctx, repo)
	if err != nil || proven[m.ID].IsZero() {
		t.Errorf("proven: %v, %v", proven, err)
	}
	wrong := strings.NewReader(fmt.Sprintf(`{"format": 1, "backup": %q, "tables": [{"table": "public.account", "rows": 1, "checksum": 2}]}`, m.ID))
	if _, err := repo.Put(ctx, proofPrefix+m.ID+"/20200101T000000Z-x", wrong); err != nil {
		t.Fatal(err)
	}
	if _, err := Drill(ctx, restoring(repo, m, ""), scratch); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
		t.Errorf("a drill with other rows than before: %v", err)
	}
	if err := Delete(ctx, repo, m.ID); err != nil {
		t.Fatal(err)
	}
	if left, err := repo.List(ctx, ""); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}

// TestDeleteChecksTheID: an object's name is no id, and what is asked for so stays.
func TestDeleteChecksTheID(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	ctx, repo := context.Background(), newRepository(t)
	m := b.backup(repo)
	for _, id := range []string{m.ID + "/shard", m.ID + "/", "/" + m.ID, "..", "", strings.ToUpper(m.ID)} {
		if err := Delete(ctx, repo, id); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
			t.Errorf("Delete(%q): %v", id, err)
		}
		if _, err := Proofs(ctx, repo, id); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
			t.Errorf("Proofs(%q): %v", id, err)
		}
		if _, err := Load(ctx, repo, id); id != "" && sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
			t.Errorf("Load(%q): %v", id, err)
		}
	}
	if err := Verify(ctx, repo, m); err != nil {
		t.Error(err)
	}
}
