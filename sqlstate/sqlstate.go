package sqlstate

import (
	"errors"
	"fmt"
	"strings"
)

// Code is a five-character SQLSTATE.
type Code string

// The codes that Cleave itself returns. Codes that come from a shard are
// relayed as they are and need no entry here.
const (
	SuccessfulCompletion      Code = "00000"
	FeatureNotSupported       Code = "0A000" // cannot be answered exactly, so it is refused
	ProtocolViolation         Code = "08P01" // malformed protocol bytes
	ConnectionFailure         Code = "08006" // a shard's connection broke before anything was sent
	TransactionUnknown        Code = "08007" // a shard was lost while a write was in flight: outcome unknown
	InvalidParameterValue     Code = "22023"
	InvalidTextRepresentation Code = "22P02"
	InvalidBinary             Code = "22P03"
	BadFileFormat             Code = "22P04" // a file with data is not what it should be
	NumericOutOfRange         Code = "22003"
	NullNotAllowed            Code = "22004"
	DatetimeOverflow          Code = "22008"
	InvalidDatetimeFormat     Code = "22007"
	CharacterNotInRepertoire  Code = "22021"
	InvalidEscapeSequence     Code = "22025"
	NotNullViolation          Code = "23502"
	UniqueViolation           Code = "23505"
	CheckViolation            Code = "23514"
	ForeignKeyViolation       Code = "23503"
	ActiveTransaction         Code = "25001"
	NoActiveTransaction       Code = "25P01"
	InFailedTransaction       Code = "25P02"
	ReadOnlyTransaction       Code = "25006"
	InvalidStatementName      Code = "26000"
	InvalidAuthorization      Code = "28000"
	InvalidPassword           Code = "28P01"
	DependentObjects          Code = "2BP01"
	InvalidCatalogName        Code = "3D000" // database does not exist
	InvalidSavepoint          Code = "3B001"
	InvalidSchemaName         Code = "3F000"
	InvalidCursorName         Code = "34000" // portal does not exist
	SerializationFailure      Code = "40001" // nothing was committed: run the transaction again
	DeadlockDetected          Code = "40P01"
	SyntaxError               Code = "42601"
	UndefinedColumn           Code = "42703"
	AmbiguousColumn           Code = "42702"
	UndefinedTable            Code = "42P01"
	UndefinedFunction         Code = "42883"
	UndefinedObject           Code = "42704"
	DuplicateTable            Code = "42P07"
	GeneratedAlways           Code = "428C9"
	SequenceLimitExceeded     Code = "2200H"
	DuplicateObject           Code = "42710"
	DuplicatePrepared         Code = "42P05"
	DuplicateColumn           Code = "42701"
	DatatypeMismatch          Code = "42804"
	CannotCoerce              Code = "42846"
	IndeterminateDatatype     Code = "42P18"
	UndefinedParameter        Code = "42P02"
	InvalidTableDefinition    Code = "42P16"
	InvalidObjectDefinition   Code = "42P17"
	WrongObjectType           Code = "42809"
	InsufficientPrivilege     Code = "42501"
	InsufficientResources     Code = "53000"
	DiskFull                  Code = "53100"
	OutOfMemory               Code = "53200"
	TooManyConnections        Code = "53300"
	ConfigurationLimit        Code = "53400"
	ProgramLimitExceeded      Code = "54000"
	StatementTooComplex       Code = "54001"
	ObjectNotInState          Code = "55000"
	ObjectInUse               Code = "55006"
	LockNotAvailable          Code = "55P03"
	QueryCanceled             Code = "57014"
	AdminShutdown             Code = "57P01"
	CannotConnectNow          Code = "57P03" // a shard or the map is not available; nothing was done
	IdleSessionTimeout        Code = "57P05"
	SystemError               Code = "58000"
	IOError                   Code = "58030"
	UndefinedFile             Code = "58P01"
	ConfigFileError           Code = "F0000"
	InternalError             Code = "XX000"
	DataCorrupted             Code = "XX001"

	// NotOwner is raised by a shard's guard: the row's key range is not this
	// shard's. Classes that begin with I to Z are free for implementations
	// (ISO/IEC 9075-2, 24.1).
	NotOwner Code = "ZC001"
)

// Retry says what a client may do with a failed statement.
type Retry uint8

const (
	// RetryNever: running it again gives the same error.
	RetryNever Retry = iota
	// RetrySafe: nothing was sent to a shard.
	RetrySafe
	// RetryTransaction: nothing was committed; run the whole transaction again.
	RetryTransaction
	// RetryUnknown: a write may or may not have landed; look before running it again.
	RetryUnknown
)

// Error is what every room returns for a failure that a person or a driver
// will see. Op, Shard, Keyspace, Range and Epoch are filled as far as known.
type Error struct {
	ID       ID // of a refusal, "" of any other error
	Code     Code
	Message  string // what happened, one line, no full stop
	Detail   string
	Hint     string // the next command to run, or what would make it work
	Position int    // 1-based character of the statement, 0 when unknown
	Where    string

	Op       string
	Shard    string
	Keyspace string
	Range    string
	Epoch    uint64

	// Schema, Table, Column, DataType, Constraint are PostgreSQL's fields of the same
	// names (protocol-error-fields), Internal is the query of a function that
	// failed, and InternalPosition the place in it.
	Schema, Table, Column, DataType, Constraint string
	Internal                                    string
	InternalPosition                            int

	// File, Line and Routine are the place in PostgreSQL's sources. Drivers read the routine
	// where a code is not enough.
	File, Line, Routine string

	// Unsure: the statement may be none that a database takes, which its shard would
	// have to say; set with 0A000 where that was not looked at.
	Unsure bool

	// Unread: a literal stands for a shard key that the planner cannot read; set with 0A000.
	Unread bool

	// Severity is ERROR when empty; FATAL ends the session.
	Severity string
	Retry    Retry
	Err      error
}

// New returns an Error with the code and a formatted message.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap is New with a cause, reachable through errors.Unwrap.
func Wrap(err error, code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// ChangedResult returns the error of a prepared statement whose columns are others now. pgjdbc and
// ActiveRecord know it by its routine, and prepare the statement anew.
func ChangedResult() *Error {
	e := New(FeatureNotSupported, "cached plan must not change result type")
	e.Routine = "RevalidateCachedQuery"
	return e
}

// WithHint sets the hint and returns e, for use at the place of creation only.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// WithDetail sets the detail and returns e, for use at the place of creation only.
func (e *Error) WithDetail(format string, args ...any) *Error {
	e.Detail = fmt.Sprintf(format, args...)
	return e
}

// OnShard sets the shard and returns e, for use at the place of creation only.
func (e *Error) OnShard(name string) *Error {
	e.Shard = name
	return e
}

// At sets the 1-based character position and returns e.
func (e *Error) At(position int) *Error {
	e.Position = position
	return e
}

// Error returns message, place, detail, hint and cause in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	sep := " ("
	place := func(name, value string) {
		if value == "" {
			return
		}
		b.WriteString(sep)
		b.WriteString(name)
		b.WriteByte(' ')
		b.WriteString(value)
		sep = ", "
	}
	place("shard", e.Shard)
	place("keyspace", e.Keyspace)
	place("range", e.Range)
	if e.Epoch != 0 {
		place("epoch", fmt.Sprint(e.Epoch))
	}
	place("SQLSTATE", string(e.Code))
	place("refusal", string(e.ID))
	if sep != " (" {
		b.WriteByte(')')
	}
	if e.Detail != "" {
		b.WriteString("; ")
		b.WriteString(e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("; hint: ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an Error with the same code and no message, so
// that errors.Is(err, &Error{Code: c}) asks for the code alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// CodeOf returns the SQLSTATE of the first Error in err's chain, "" for nil and
// InternalError when there is none.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return InternalError
}

// As returns the first Error in err's chain, or err wrapped as an InternalError.
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: InternalError, Message: err.Error(), Err: err}
}
