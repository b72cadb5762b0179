package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/change"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/turnstile"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/sqlstate"
)

// Driver is the engine of SQLite files. A shard's URL is file:/path/shard.db,
// with the options
//
//	busy_timeout     how long a writer waits for another, such as 5s (the default)
//	max_connections  conversations at a time, 100 by default
//	synchronous      full (the default) or extra
type Driver struct{}

var _ engine.Driver = Driver{}

// Name implements engine.Driver.
func (Driver) Name() string { return "sqlite" }

// Opens implements engine.Driver.
func (Driver) Opens(url string) bool { return strings.HasPrefix(url, "file:") }

// formatVersion is the version of what Cleave keeps in the file.
const formatVersion = 1

// Open implements engine.Driver.
func (Driver) Open(cfg engine.Config) (engine.Shard, error) {
	path, opts, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	s := &Shard{cfg: cfg, path: path, busy: 5 * time.Second, max: 100, synchronous: "FULL", conns: map[*Conn]bool{}}
	for k, v := range opts {
		bad := sqlstate.New(sqlstate.InvalidParameterValue, "invalid value %q of the option %s in the URL of shard %s", v[0], k, cfg.Name).
			WithHint("Example: file:/var/lib/cleave/shard-0.db?busy_timeout=5s&max_connections=100.")
		switch k {
		case "busy_timeout":
			if s.busy, err = time.ParseDuration(v[0]); err != nil || s.busy < 0 || s.busy > time.Hour {
				return nil, bad
			}
		case "max_connections":
			if s.max, err = strconv.Atoi(v[0]); err != nil || s.max < 1 || s.max > 10000 {
				return nil, bad
			}
		case "synchronous":
			if s.synchronous = strings.ToUpper(v[0]); s.synchronous != "FULL" && s.synchronous != "EXTRA" {
				return nil, bad
			}
		default:
			return nil, sqlstate.New(sqlstate.InvalidParameterValue, "unknown option %q in the URL of shard %s", k, cfg.Name).
				WithHint("Known options: busy_timeout, max_connections, synchronous.")
		}
	}
	s.writers = joinWriters(path)
	return s, nil
}

func parseURL(u string) (string, url.Values, error) {
	bad := func(why string) (string, url.Values, error) {
		return "", nil, sqlstate.New(sqlstate.InvalidParameterValue, "malformed URL of a SQLite shard: %s", why).
			WithHint("Example: file:/var/lib/cleave/shard-0.db.")
	}
	rest, ok := strings.CutPrefix(u, "file:")
	if !ok {
		return bad("it does not begin with file:")
	}
	if strings.HasPrefix(rest, "///") {
		rest = rest[2:]
	} else if strings.HasPrefix(rest, "//") {
		return bad("it names a host")
	}
	path, query, _ := strings.Cut(rest, "?")
	opts, err := url.ParseQuery(query)
	if err != nil {
		return bad(err.Error())
	}
	if path, err = url.PathUnescape(path); err != nil || path == "" || strings.ContainsRune(path, 0) {
		return bad("it has no path")
	}
	if path, err = filepath.Abs(path); err != nil {
		return bad(err.Error())
	}
	return path, opts, nil
}

// Shard is a SQLite file.
type Shard struct {
	cfg         engine.Config
	path        string
	busy        time.Duration
	max         int
	synchronous string
	writers     *writerQueue
	finisher    finisher
	movers      moverPool

	mu     sync.Mutex
	conns  map[*Conn]bool // whether it counts among max
	open   int
	isDown bool
	whole  bool // the file has all that this version keeps in it
	made   bool // Install has made the file
}

// Name implements engine.Shard.
func (s *Shard) Name() string { return s.cfg.Name }

// Path is where the shard's file is.
func (s *Shard) Path() string { return s.path }

// Engine implements engine.Shard.
func (s *Shard) Engine() string { return "sqlite" }

// Close ends all conversations.
func (s *Shard) Close() error {
	s.mu.Lock()
	if s.isDown {
		s.mu.Unlock()
		return nil
	}
	s.isDown = true
	var list []*Conn
	for c := range s.conns {
		list = append(list, c)
	}
	s.mu.Unlock()
	for _, c := range list {
		c.Close()
	}
	s.finisher.mu.Lock()
	if s.finisher.conn != nil {
		s.finisher.conn.release()
		s.finisher.conn = nil
	}
	s.finisher.mu.Unlock()
	s.writers.leave()
	return nil
}

func (s *Shard) closed(c *Conn) {
	s.mu.Lock()
	if counted, ok := s.conns[c]; ok {
		delete(s.conns, c)
		if counted {
			s.open--
		}
	}
	s.mu.Unlock()
}

func (s *Shard) openFile(create bool) (*sqlite.Conn, error) {
	flags := sqlite.OpenReadWrite
	if create {
		if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
			return nil, err
		}
		flags |= sqlite.OpenCreate
	} else if _, err := os.Stat(s.path); err != nil {
		return nil, err
	}
	db, err := sqlite.OpenConn(s.path, flags)
	if err != nil {
		return nil, err
	}
	db.SetBusyTimeout(min(s.busy, 2*time.Second))
	for _, p := range []string{"PRAGMA journal_mode = WAL", "PRAGMA synchronous = " + s.synchronous, "PRAGMA foreign_keys = ON",
		"PRAGMA temp_store = MEMORY", "PRAGMA cache_size = -4000", "PRAGMA recursive_triggers = ON", "PRAGMA trusted_schema = ON", "PRAGMA mmap_size = 0"} {
		if err := s.patiently(db, p); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

// patiently runs a statement again while the file is locked: SQLite does not call
// the busy handler where waiting could be a deadlock, and two connections that
// turn a new file to WAL at once are such a case.
func (s *Shard) patiently(db *sqlite.Conn, sql string) error {
	for deadline := time.Now().Add(min(s.busy, 2*time.Second)); ; time.Sleep(2 * time.Millisecond) {
		err := run(db, sql)
		if err == nil || sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy || time.Now().After(deadline) {
			return err
		}
	}
}

func run(db *sqlite.Conn, sql string) error {
	stmt, _, err := db.PrepareTransient(sql)
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	for {
		row, err := stmt.Step()
		if err != nil || !row {
			return err
		}
	}
}

func text1(db *sqlite.Conn, sql string) (string, error) {
	stmt, _, err := db.PrepareTransient(sql)
	if err != nil {
		return "", err
	}
	defer stmt.Finalize()
	row, err := stmt.Step()
	if err != nil || !row {
		return "", err
	}
	return stmt.ColumnText(0), nil
}

// openError maps a failure to open the file.
func (s *Shard) openError(err error) error {
	if os.IsNotExist(err) {
		return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the SQLite file of shard %s does not exist", s.cfg.Name).
			WithHint("Check the path with: cleave shard list --json. A shard is made by cleave shard add or cleave up.").OnShard(s.cfg.Name)
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the file of shard %s is not a sound SQLite database", s.cfg.Name).
			WithHint("Check it with: sqlite3 %s 'PRAGMA integrity_check'.", s.path).OnShard(s.cfg.Name)
	case sqlite.ResultFull:
		return sqlstate.Wrap(err, sqlstate.DiskFull, "the disk of shard %s is full", s.cfg.Name).OnShard(s.cfg.Name)
	}
	e := sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the SQLite file of shard %s cannot be opened", s.cfg.Name).OnShard(s.cfg.Name)
	return e.WithHint("Check that the file and its folder can be written by this user: ls -l %s.", s.path)
}

const metaSchema = `CREATE TABLE IF NOT EXISTS cleave_meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cleave_object (oid INTEGER PRIMARY KEY, kind TEXT NOT NULL, def TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS cleave_sequence (oid INTEGER PRIMARY KEY, value INTEGER NOT NULL, called INTEGER NOT NULL);
` + guardSchema + ";\n" + moveSchema

// Install implements engine.Shard: it makes the file if there is none.
func (s *Shard) Install(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, missing := os.Stat(s.path)
	db, err := s.openFile(true)
	if err != nil {
		return s.openError(err)
	}
	s.mu.Lock()
	s.made = s.made || errors.Is(missing, os.ErrNotExist)
	s.mu.Unlock()
	defer db.Close()
	if err := s.patiently(db, "BEGIN IMMEDIATE"); err != nil {
		return s.openError(err)
	}
	err = s.install(db)
	if err != nil {
		run(db, "ROLLBACK")
		if _, ok := err.(*sqlstate.Error); ok {
			return err
		}
		return s.openError(err)
	}
	if err := run(db, "COMMIT"); err != nil {
		return s.openError(err)
	}
	return nil
}

// Discard implements engine.Discarder: the file goes if this Shard has made it.
func (s *Shard) Discard() error {
	s.mu.Lock()
	made := s.made
	s.made = false
	s.mu.Unlock()
	if !made {
		return nil
	}
	errs := []error{s.Close()}
	for _, end := range []string{"", "-wal", "-shm", "-journal", turnstile.End} {
		if err := os.Remove(s.path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Shard) install(db *sqlite.Conn) error {
	has, err := hasMeta(db)
	if err != nil {
		return err
	}
	if has {
		return s.checkIdentity(db, true)
	}
	if n, err := text1(db, "SELECT count(*) FROM sqlite_schema"); err != nil {
		return err
	} else if n != "0" {
		return sqlstate.New(sqlstate.ObjectNotInState, "the SQLite file of shard %s holds tables that Cleave did not make", s.cfg.Name).
			WithHint("Give the shard a file of its own.").OnShard(s.cfg.Name)
	}
	for _, q := range append(strings.Split(metaSchema, ";\n"), internalStatements...) {
		if err := run(db, q); err != nil {
			return err
		}
	}
	for k, v := range map[string]string{"format": strconv.Itoa(formatVersion), "cluster": quote.Text(s.cfg.Cluster), "shard": quote.Text(s.cfg.Name),
		"generation": "1", "next_oid": strconv.Itoa(catalog.FirstUserOID), "lock": "0"} {
		if err := run(db, "INSERT INTO cleave_meta VALUES ("+quote.Text(k)+", "+v+")"); err != nil {
			return err
		}
	}
	return nil
}

func hasMeta(db *sqlite.Conn) (bool, error) {
	n, err := text1(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'cleave_meta'")
	return n == "1", err
}

// checkIdentity compares what Install wrote with the configuration.
func (s *Shard) checkIdentity(db *sqlite.Conn, installing bool) error {
	has, err := hasMeta(db)
	if err != nil {
		return err
	}
	if !has {
		return sqlstate.New(sqlstate.ObjectNotInState, "the SQLite file of shard %s was not prepared for Cleave", s.cfg.Name).
			WithHint("%s", engine.HintNotTheShard(s.cfg.Name)).OnShard(s.cfg.Name)
	}
	get := func(k string) string {
		v, _ := text1(db, "SELECT value FROM cleave_meta WHERE key = "+quote.Text(k))
		return v
	}
	if f := get("format"); f != strconv.Itoa(formatVersion) {
		return sqlstate.New(sqlstate.ObjectNotInState, "the SQLite file of shard %s has format %s, this version of Cleave uses %d", s.cfg.Name, f, formatVersion).
			WithHint("Run the version of Cleave that made the file, or make a new shard: cleave shard add NAME file:/path/new.db.").OnShard(s.cfg.Name)
	}
	if v := get("cluster"); s.cfg.Cluster != "" && v != s.cfg.Cluster {
		return sqlstate.New(sqlstate.ObjectNotInState, "the SQLite file of shard %s belongs to another cluster (%s)", s.cfg.Name, v).
			WithHint("Give the shard the right file: cleave shard list --json shows its URL.").OnShard(s.cfg.Name)
	}
	if v := get("shard"); s.cfg.Name != "" && v != s.cfg.Name {
		return sqlstate.New(sqlstate.ObjectNotInState, "the SQLite file given for shard %s is that of shard %s", s.cfg.Name, v).
			WithHint("Give the shard the right file: cleave shard list --json shows its URL.").OnShard(s.cfg.Name)
	}
	return nil
}

// Check implements engine.Shard.
func (s *Shard) Check(ctx context.Context) (engine.Report, error) {
	var r engine.Report
	if err := ctx.Err(); err != nil {
		return r, err
	}
	db, err := s.openFile(false)
	if os.IsNotExist(err) {
		r.Version = "SQLite " + sqliteVersion()
		level := "ok"
		if info, e := os.Stat(filepath.Dir(s.path)); e != nil || !info.IsDir() {
			level = "warning"
		}
		r.Findings = append(r.Findings, engine.Finding{Name: "file", Level: level, Is: "not made yet", Want: s.path, Fix: "cleave shard add makes it"})
		return r, nil
	}
	if err != nil {
		return r, s.openError(err)
	}
	defer db.Close()
	v, err := text1(db, "SELECT sqlite_version()")
	if err != nil {
		return r, s.openError(err)
	}
	r.Version = "SQLite " + v
	r.Findings = append(r.Findings, engine.Finding{Name: "version", Level: "ok", Is: v})
	mode, err := text1(db, "PRAGMA journal_mode")
	if err != nil {
		return r, s.openError(err)
	}
	f := engine.Finding{Name: "journal_mode", Level: "ok", Is: mode, Want: "wal"}
	if mode != "wal" {
		f.Level, f.Fix = "error", "sqlite3 "+s.path+" 'PRAGMA journal_mode = WAL'"
	}
	r.Findings = append(r.Findings, f)
	sound, err := text1(db, "PRAGMA quick_check(1)")
	if err != nil {
		return r, s.openError(err)
	}
	f = engine.Finding{Name: "quick_check", Level: "ok", Is: sound, Want: "ok"}
	if sound != "ok" {
		f.Level, f.Fix = "error", "restore the file from a backup"
	}
	r.Findings = append(r.Findings, f)
	f = engine.Finding{Name: "identity", Level: "ok", Is: s.cfg.Name}
	if has, err := hasMeta(db); err == nil && !has {
		f.Is, f.Fix = "not prepared for Cleave yet", "cleave shard add "+s.cfg.Name+" file:"+s.path
		f.Level = "warning"
	} else if err := s.checkIdentity(db, false); err != nil {
		e := sqlstate.As(err)
		f.Level, f.Is, f.Fix = "error", e.Message, e.Hint
	}
	r.Findings = append(r.Findings, f)
	return r, nil
}

// Connect implements engine.Shard.
func (s *Shard) Connect(ctx context.Context, params map[string]string) (engine.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.isDown {
		s.mu.Unlock()
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "shard %s is closed", s.cfg.Name)
	}
	if s.open >= s.max {
		s.mu.Unlock()
		return nil, sqlstate.New(sqlstate.TooManyConnections, "shard %s has %d conversations already", s.cfg.Name, s.max).
			WithHint("Raise max_connections in its URL, or use fewer sessions.").OnShard(s.cfg.Name)
	}
	s.open++
	s.mu.Unlock()
	c, err := s.connect(params)
	if err != nil {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
		return nil, err
	}
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	return c, nil
}

func (s *Shard) connect(params map[string]string) (*Conn, error) {
	db, err := s.openFile(false)
	if os.IsNotExist(err) {
		return nil, sqlstate.Wrap(err, sqlstate.ObjectNotInState, "the SQLite file of shard %s does not exist", s.cfg.Name).
			WithHint("%s", engine.HintNotTheShard(s.cfg.Name)).OnShard(s.cfg.Name)
	}
	if err != nil {
		return nil, s.openError(err)
	}
	if err := s.checkIdentity(db, false); err != nil {
		db.Close()
		if _, ok := err.(*sqlstate.Error); !ok {
			err = s.openError(err)
		}
		return nil, err
	}
	if err := s.complete(db); err != nil {
		db.Close()
		return nil, s.openError(err)
	}
	db.SetBusyTimeout(0)
	c, err := newConn(db, params)
	if err != nil {
		db.Close()
		return nil, err
	}
	c.shard, c.writers = s, s.writers
	if s.cfg.MessageMax > 0 {
		c.maxQueue = queueMax + s.cfg.MessageMax
	}
	return c, nil
}

// newConn makes a conversation over an open database.
func newConn(db *sqlite.Conn, params map[string]string) (*Conn, error) {
	c := &Conn{
		session: session{transaction: transaction{
			client: client{params: map[string]string{}},
			definitions: definitions{
				database: database{interruption: interruption{wake: make(chan struct{}), interrupt: make(chan struct{})}, db: db, env: &function.Env{Loc: time.UTC}, helpers: map[string]*sqlite.Stmt{}},
				names:    catalog.Namespace{User: "cleave", Database: "cleave"},
				filled:   map[*catalog.System]int64{},
			},
		}},
		prepared: pgbackend.Statements[*prepared]{Max: preparedMax, Gone: func(s *prepared) { s.plan.unpin() }},
		currval:  map[uint32]int64{}, maxQueue: queueMax + 256<<20,
	}
	c.portals = pgbackend.Portals[*portal]{Max: portalMax, Gone: c.forgetPortal}
	c.settings = settings{values: map[string]string{}, start: map[string]string{}, changed: c.settingChanged}
	if u := params["user"]; u != "" {
		c.names.User = u
	}
	if d := params["database"]; d != "" {
		c.names.Database = d
	}
	c.names.Path = parsePath(c.settings.get("search_path"), c.names.User)
	for k, v := range params {
		k = strings.ToLower(k)
		switch k {
		case "user", "database", "replication":
			continue
		case "options":
			if strings.TrimSpace(v) != "" {
				if err := c.startOptions(v); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := c.startSetting(k, v); err != nil {
			return nil, err
		}
	}
	for i := range settingDefs {
		if d := &settingDefs[i]; d.report {
			c.params[d.name] = c.settings.get(d.name)
		}
	}
	c.params["session_authorization"] = c.names.User
	c.out = c.out[:0]
	stop, err := change.Watch(db, &c.touched)
	if err != nil {
		return nil, err
	}
	c.unwatch = stop
	if err := function.Register(db, c.env, functionsOf(c)...); err != nil {
		return nil, err
	}
	stmt, _, err := db.PrepareTransient("SELECT value FROM cleave_meta WHERE key = 'generation'")
	if err != nil {
		return nil, err
	}
	c.genStmt = stmt
	c.resetTx()
	db.SetInterrupt(c.interrupt)
	return c, nil
}

func (c *transaction) startSetting(k, v string) error {
	d := settingByName[k]
	if d == nil {
		if strings.Contains(k, ".") {
			c.settings.start[k] = v
			return nil
		}
		if strings.HasPrefix(k, "_pq_.") {
			return nil
		}
		return sqlstate.New(sqlstate.UndefinedObject, "unrecognized configuration parameter \"%s\"", k)
	}
	n, err := c.settings.normalize(d, v)
	if err != nil {
		return err
	}
	c.settings.start[k] = n
	c.settingChanged(k)
	return nil
}

// startOptions reads "-c name=value" pairs.
func (c *transaction) startOptions(v string) error {
	fields := strings.Fields(v)
	for i := 0; i < len(fields); i++ {
		kv, ok := strings.CutPrefix(fields[i], "-c")
		if !ok {
			kv, ok = strings.CutPrefix(fields[i], "--")
		}
		if !ok {
			return sqlstate.New(sqlstate.ProtocolViolation, "invalid command-line argument for server process: %s", fields[i])
		}
		if kv == "" && i+1 < len(fields) {
			i++
			kv = fields[i]
		}
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return sqlstate.New(sqlstate.SyntaxError, "-c %s requires a value", kv)
		}
		if err := c.startSetting(strings.ToLower(strings.ReplaceAll(name, "-", "_")), value); err != nil {
			return err
		}
	}
	return nil
}

func sqliteVersion() string {
	db, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenMemory)
	if err != nil {
		return ""
	}
	defer db.Close()
	v, _ := text1(db, "SELECT sqlite_version()")
	return v
}

// loadCatalog reads the definitions of a generation inside the current transaction.
func (c *definitions) loadCatalog(gen int64) error {
	cat := catalog.New()
	cat.Generation = gen
	stmt, _, err := c.db.PrepareTransient("SELECT kind, def FROM cleave_object ORDER BY oid")
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	for {
		row, err := stmt.Step()
		if err != nil {
			return err
		}
		if !row {
			break
		}
		if err := addDefinition(cat, stmt.ColumnText(0), []byte(stmt.ColumnText(1))); err != nil {
			return err
		}
	}
	c.names.Catalog = cat
	return nil
}

// addDefinition adds an object of the file to a catalogue.
func addDefinition(cat *catalog.Catalog, kind string, def []byte) error {
	read := func(into any, what string) error {
		if err := json.Unmarshal(def, into); err != nil {
			return sqlstate.Wrap(err, sqlstate.DataCorrupted, "%s in the file cannot be read", what)
		}
		return nil
	}
	switch kind {
	case "table":
		d := &catalog.Table{}
		if err := read(d, "a table definition"); err != nil {
			return err
		}
		cat.Add(d)
	case "view":
		d := &catalog.Table{}
		if err := read(d, "the definition of a view"); err != nil {
			return err
		}
		if d.View == nil {
			return sqlstate.New(sqlstate.DataCorrupted, "the definition of a view in the file cannot be read")
		}
		d.Viewed = d.View
		cat.Views[catalog.Key(d.Schema, d.Name)] = d
	case "schema":
		d := &catalog.Schema{}
		if err := read(d, "a schema definition"); err != nil {
			return err
		}
		cat.Schemas[d.Name] = d
	case "sequence":
		d := &catalog.Sequence{}
		if err := read(d, "a sequence definition"); err != nil {
			return err
		}
		cat.Sequences[catalog.Key(d.Schema, d.Name)] = d
		cat.SeqByOID[d.OID] = d
	case "capture":
		d := &catalog.Capture{}
		if err := read(d, "the definition of a capture"); err != nil {
			return err
		}
		d.Rows = catalog.NewRowSet(&d.Set)
		if cat.Captures == nil {
			cat.Captures = map[uint32]*catalog.Capture{}
		}
		cat.Captures[d.OID] = d
	}
	return nil
}

// newOID takes the next OID.
func (c *definitions) newOID() (uint32, error) {
	n, err := c.queryInt("UPDATE cleave_meta SET value = value + 1 WHERE key = 'next_oid' RETURNING value - 1")
	return uint32(n), err
}

// changed starts a new generation of the catalogue.
func (c *definitions) changed() error {
	c.redefined = true
	n, err := c.queryInt("UPDATE cleave_meta SET value = value + 1 WHERE key = 'generation' RETURNING value")
	if err != nil {
		return err
	}
	return c.loadCatalog(n)
}

func (c *definitions) saveObject(oid uint32, kind string, v any) error {
	if err := c.writeObject(oid, kind, v); err != nil {
		return err
	}
	return c.changed()
}

// writeObject is saveObject for several in a row: changed follows the last one.
func (c *definitions) writeObject(oid uint32, kind string, v any) error {
	return c.exec(fmt.Sprintf("INSERT INTO cleave_object (oid, kind, def) VALUES (%d, '%s', %s) ON CONFLICT (oid) DO UPDATE SET def = excluded.def",
		oid, kind, quote.Text(catalog.Encode(v))))
}

func (c *definitions) saveTable(d *catalog.Table) error { return c.saveObject(d.OID, "table", d) }

func (c *definitions) dropObject(oid uint32) error {
	if err := c.exec(fmt.Sprintf("DELETE FROM cleave_object WHERE oid = %d", oid)); err != nil {
		return err
	}
	return c.changed()
}

// internalStatements make what every file has beside its definitions.
var internalStatements = []string{
	`CREATE TABLE IF NOT EXISTS cleave_prepared (gid TEXT PRIMARY KEY, owner TEXT NOT NULL, database TEXT NOT NULL, prepared INTEGER NOT NULL, locks INTEGER NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS cleave_change (gid TEXT NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (gid, n))`,
	`CREATE TABLE IF NOT EXISTS "cleave_internal.transaction" ("id" NOT NULL, "decided", "shards" NOT NULL, "xid" NOT NULL, "at" NOT NULL)`,
	`CREATE UNIQUE INDEX IF NOT EXISTS "cleave_internal.transaction_pkey" ON "cleave_internal.transaction" ("id")`,
	`CREATE INDEX IF NOT EXISTS "cleave_internal.transaction_xid" ON "cleave_internal.transaction" ("xid")`,
}

// complete makes what a file of an earlier version lacks. Somebody else's write is
// waited for as long as the shard's busy_timeout.
func (s *Shard) complete(db *sqlite.Conn) error {
	s.mu.Lock()
	done := s.whole
	s.mu.Unlock()
	if done {
		return nil
	}
	n, err := text1(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('cleave_prepared', 'cleave_change', 'cleave_internal.transaction', 'cleave_internal.transaction_xid')")
	if err != nil {
		return err
	}
	if n != "4" {
		if err := s.patiently(db, "BEGIN IMMEDIATE"); err != nil {
			return err
		}
		for _, sql := range internalStatements {
			if err := run(db, sql); err != nil {
				run(db, "ROLLBACK")
				return err
			}
		}
		if err := run(db, "COMMIT"); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.whole = true
	s.mu.Unlock()
	return nil
}
