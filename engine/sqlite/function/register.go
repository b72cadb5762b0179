package function

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/value"
)

// Functions are registered with SQLite itself rather than through
// zombiezen.com/go/sqlite: in its version 1.4.2 an error that a function returns
// never reaches SQLite (Context.resultError sets code 0 after the message), so
// that the statement would go on with the message as its value. A guard's refusal
// or a division by zero must stop it. TestFunctionErrorStopsStatement holds this.

// Arg is an argument of a function, valid during the call.
type Arg struct {
	tls *libc.TLS
	ptr uintptr
}

// Type returns SQLite's storage class.
func (a Arg) Type() sqlite.ColumnType {
	return sqlite.ColumnType(lib.Xsqlite3_value_type(a.tls, a.ptr))
}

// Int64 returns an INTEGER.
func (a Arg) Int64() int64 { return lib.Xsqlite3_value_int64(a.tls, a.ptr) }

// Float returns a REAL.
func (a Arg) Float() float64 { return lib.Xsqlite3_value_double(a.tls, a.ptr) }

// Text returns a TEXT.
func (a Arg) Text() string {
	p := lib.Xsqlite3_value_text(a.tls, a.ptr)
	return copyString(p, lib.Xsqlite3_value_bytes(a.tls, a.ptr))
}

// Blob returns a BLOB, or the bytes of a TEXT.
func (a Arg) Blob() []byte {
	p := lib.Xsqlite3_value_blob(a.tls, a.ptr)
	return []byte(copyString(p, lib.Xsqlite3_value_bytes(a.tls, a.ptr)))
}

// View returns the bytes of a TEXT or BLOB where SQLite has them: valid during the call, and not to be changed.
func (a Arg) View() []byte {
	p := lib.Xsqlite3_value_blob(a.tls, a.ptr)
	n := lib.Xsqlite3_value_bytes(a.tls, a.ptr)
	if p == 0 || n <= 0 {
		return nil
	}
	return libc.GoBytes(p, int(n))
}

func copyString(p uintptr, n int32) string {
	if p == 0 || n <= 0 {
		return ""
	}
	return string(libc.GoBytes(p, int(n)))
}

// aggregator is one evaluation of an aggregate.
type aggregator interface {
	Step(a []Arg) error
	// Inverse takes back the oldest Step, for moving window frames.
	Inverse(a []Arg) error
	Value() (value.Datum, error)
}

type registered struct {
	env *Env
	fn  *Def
	agg *aggregateDef
}

// handles are what SQLite's pointers stand for.
var handles = struct {
	mu    sync.RWMutex
	next  uintptr
	funcs map[uintptr]*registered
	aggs  map[uintptr]aggregator
}{funcs: map[uintptr]*registered{}, aggs: map[uintptr]aggregator{}}

func newHandle() uintptr {
	handles.next++
	return handles.next
}

// pointerSize is the size of SQLite's pointers, which are Go's.
const pointerSize = int(unsafe.Sizeof(uintptr(0)))

func getPointer(b []byte) uintptr {
	if pointerSize == 8 {
		return uintptr(binary.NativeEndian.Uint64(b))
	}
	return uintptr(binary.NativeEndian.Uint32(b))
}

func putPointer(b []byte, v uintptr) {
	if pointerSize == 8 {
		binary.NativeEndian.PutUint64(b, uint64(v))
	} else {
		binary.NativeEndian.PutUint32(b, uint32(v))
	}
}

// Pointer is a Go function as SQLite calls it.
func Pointer[T any](f T) uintptr {
	return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f}))
}

// Handle returns the connection's handle, which the wrapper keeps to itself.
func Handle(conn *sqlite.Conn) (*libc.TLS, uintptr, error) {
	v := reflect.ValueOf(conn).Elem()
	tls, db := v.FieldByName("tls"), v.FieldByName("conn")
	if !tls.IsValid() || tls.Type() != reflect.TypeOf((*libc.TLS)(nil)) || !db.IsValid() || db.Kind() != reflect.Uintptr {
		return nil, 0, fmt.Errorf("sqlite: this version of zombiezen.com/go/sqlite is not known")
	}
	return (*libc.TLS)(tls.UnsafePointer()), uintptr(db.Uint()), nil
}

// Register makes the library's functions and collations known to a connection, and own beside them.
func Register(conn *sqlite.Conn, v *Env, own ...Def) error {
	tls, db, err := Handle(conn)
	if err != nil {
		return err
	}
	create := func(name string, args int, flags int32, r *registered) error {
		cname, err := libc.CString(name)
		if err != nil {
			return err
		}
		defer libc.Xfree(tls, cname)
		handles.mu.Lock()
		id := newHandle()
		handles.funcs[id] = r
		handles.mu.Unlock()
		var rc int32
		if r.fn != nil {
			rc = lib.Xsqlite3_create_function_v2(tls, db, cname, int32(args), flags, id, Pointer(callScalar), 0, 0, Pointer(dropHandle))
		} else {
			rc = lib.Xsqlite3_create_window_function(tls, db, cname, int32(args), flags, id,
				Pointer(callStep), Pointer(callFinal), Pointer(callValue), Pointer(callInverse), Pointer(dropHandle))
		}
		if rc != lib.SQLITE_OK {
			return fmt.Errorf("sqlite: register %s: %w", name, sqlite.ResultCode(rc).ToError())
		}
		return nil
	}
	for _, d := range slices.Concat(miscFunctions, intFunctions, floatFunctions, numericFunctions, textFunctions, timeFunctions, keyFunctions, own) {
		flags := int32(lib.SQLITE_UTF8 | lib.SQLITE_INNOCUOUS)
		if !d.volatile {
			flags |= lib.SQLITE_DETERMINISTIC
		}
		if err := create(d.name, d.args, flags, &registered{env: v, fn: &d}); err != nil {
			return err
		}
	}
	for i := range aggregateDefs {
		d := &aggregateDefs[i]
		if err := create(d.name, d.args, int32(lib.SQLITE_UTF8|lib.SQLITE_DETERMINISTIC|lib.SQLITE_INNOCUOUS), &registered{env: v, agg: d}); err != nil {
			return err
		}
	}
	return conn.SetCollation("cleave_numeric", compareNumericText)
}

func dropHandle(_ *libc.TLS, id uintptr) {
	handles.mu.Lock()
	delete(handles.funcs, id)
	handles.mu.Unlock()
}

func lookupFunc(tls *libc.TLS, ctx uintptr) *registered {
	id := lib.Xsqlite3_user_data(tls, ctx)
	handles.mu.RLock()
	r := handles.funcs[id]
	handles.mu.RUnlock()
	return r
}

func args(buf []Arg, tls *libc.TLS, n int32, values uintptr) []Arg {
	list := libc.GoBytes(values, int(n)*pointerSize)
	for i := range int(n) {
		buf = append(buf, Arg{tls, getPointer(list[i*pointerSize:])})
	}
	return buf
}

func callScalar(tls *libc.TLS, ctx uintptr, n int32, values uintptr) {
	r := lookupFunc(tls, ctx)
	var room [8]Arg
	a := args(room[:0], tls, n, values)
	if !r.fn.lax {
		for i := range a {
			if a[i].Type() == sqlite.TypeNull {
				lib.Xsqlite3_result_null(tls, ctx)
				return
			}
		}
	}
	d, err := r.fn.fn(r.env, a)
	setResult(tls, ctx, r.env, d, err)
}

// setResult gives the value to SQLite. An error stops the statement; its
// SQLSTATE and fields wait in env.err, since SQLite carries only its text.
func setResult(tls *libc.TLS, ctx uintptr, v *Env, d value.Datum, err error) {
	if err != nil {
		if v.Err == nil {
			v.Err = err
		}
		setError(tls, ctx, err)
		return
	}
	switch d.Kind {
	case 'i':
		lib.Xsqlite3_result_int64(tls, ctx, d.Int)
	case 'f':
		lib.Xsqlite3_result_double(tls, ctx, d.Float)
	case 't', 'b':
		p := libc.Xmalloc(tls, libc.Tsize_t(max(len(d.Str), 1)))
		if p == 0 {
			lib.Xsqlite3_result_error_nomem(tls, ctx)
			return
		}
		copy(libc.GoBytes(p, max(len(d.Str), 1)), d.Str)
		transient := ^uintptr(0)
		if d.Kind == 't' {
			lib.Xsqlite3_result_text(tls, ctx, p, int32(len(d.Str)), transient)
		} else {
			lib.Xsqlite3_result_blob(tls, ctx, p, int32(len(d.Str)), transient)
		}
		libc.Xfree(tls, p)
	default:
		lib.Xsqlite3_result_null(tls, ctx)
	}
}

func setError(tls *libc.TLS, ctx uintptr, err error) {
	text := err.Error()
	p, e := libc.CString(text)
	if e != nil {
		lib.Xsqlite3_result_error_nomem(tls, ctx)
		return
	}
	lib.Xsqlite3_result_error(tls, ctx, p, int32(len(text)))
	libc.Xfree(tls, p)
}

// evaluation finds, or makes, the aggregate's state of one evaluation.
func evaluation(tls *libc.TLS, ctx uintptr, r *registered) (aggregator, uintptr) {
	slot := lib.Xsqlite3_aggregate_context(tls, ctx, int32(pointerSize))
	if slot == 0 {
		lib.Xsqlite3_result_error_nomem(tls, ctx)
		return nil, 0
	}
	mem := libc.GoBytes(slot, pointerSize)
	handles.mu.Lock()
	defer handles.mu.Unlock()
	id := getPointer(mem)
	if id == 0 {
		id = newHandle()
		putPointer(mem, id)
		handles.aggs[id] = r.agg.make(r.env)
	}
	return handles.aggs[id], id
}

func callStep(tls *libc.TLS, ctx uintptr, n int32, values uintptr) {
	r := lookupFunc(tls, ctx)
	if x, _ := evaluation(tls, ctx, r); x != nil {
		if err := x.Step(args(nil, tls, n, values)); err != nil {
			setResult(tls, ctx, r.env, value.Datum{}, err)
		}
	}
}

func callInverse(tls *libc.TLS, ctx uintptr, n int32, values uintptr) {
	r := lookupFunc(tls, ctx)
	if x, _ := evaluation(tls, ctx, r); x != nil {
		if err := x.Inverse(args(nil, tls, n, values)); err != nil {
			setResult(tls, ctx, r.env, value.Datum{}, err)
		}
	}
}

func callValue(tls *libc.TLS, ctx uintptr) {
	r := lookupFunc(tls, ctx)
	if x, _ := evaluation(tls, ctx, r); x != nil {
		d, err := x.Value()
		setResult(tls, ctx, r.env, d, err)
	}
}

func callFinal(tls *libc.TLS, ctx uintptr) {
	r := lookupFunc(tls, ctx)
	x, id := evaluation(tls, ctx, r)
	if x == nil {
		return
	}
	if r.env.Err == nil {
		d, err := x.Value()
		setResult(tls, ctx, r.env, d, err)
	}
	handles.mu.Lock()
	delete(handles.aggs, id)
	handles.mu.Unlock()
}

// Datum returns a copy of the argument.
func (a Arg) Datum() value.Datum {
	switch a.Type() {
	case sqlite.TypeInteger:
		return value.Int(a.Int64())
	case sqlite.TypeFloat:
		return value.Datum{Kind: 'f', Float: a.Float()}
	case sqlite.TypeText:
		return value.Text(a.Text())
	case sqlite.TypeBlob:
		return value.Blob(string(a.Blob()))
	}
	return value.Datum{}
}
