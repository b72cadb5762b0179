package sqlstate

// Entry is what the catalogue of errors says of one code.
type Entry struct {
	Code Code
	// Condition is PostgreSQL's name of it (Appendix A of its manual).
	Condition string
	// Effect is what became of the statement's writes when Cleave itself returns
	// the code: what a client may do about it.
	Effect Retry
	// Meaning is when Cleave returns it, Do what helps.
	Meaning, Do string
}

// Catalogue returns an entry for every code of the registry, in order of code.
// docs/errors.md is made from it.
func Catalogue() []Entry { return append([]Entry(nil), catalogue...) }

// Text says whether a client may run it again, in words.
func (r Retry) Text() string {
	switch r {
	case RetrySafe:
		return "yes"
	case RetryTransaction:
		return "the transaction"
	case RetryUnknown:
		return "look first"
	}
	return "no"
}

var catalogue = []Entry{
	{SuccessfulCompletion, "successful_completion", RetryNever, "no error; the code of notices", ""},
	{ConnectionFailure, "connection_failure", RetrySafe, "a shard's connection broke before anything was sent", "run it again; `cleave doctor` if it goes on"},
	{TransactionUnknown, "transaction_resolution_unknown", RetryUnknown, "a shard, or the router's lease, was lost while a write or a COMMIT was in flight: it may or may not have landed", "read what the write should have changed, then decide"},
	{ProtocolViolation, "protocol_violation", RetryNever, "bytes that are no message of the protocol, or a parameter of the wrong length", "a fault of the driver, or no PostgreSQL client at all"},
	{FeatureNotSupported, "feature_not_supported", RetryNever, "the statement cannot be answered exactly, so it is refused; [refusals](refusals.md) lists the reasons", "what the hint says; `EXPLAIN (ROUTE)` shows where statements go"},
	{NumericOutOfRange, "numeric_value_out_of_range", RetryNever, "a number that its type does not have", ""},
	{NullNotAllowed, "null_value_not_allowed", RetryNever, "NULL where a function of the router takes none", ""},
	{InvalidDatetimeFormat, "invalid_datetime_format", RetryNever, "a shard key that is no date or time", ""},
	{DatetimeOverflow, "datetime_field_overflow", RetryNever, "a date or time out of its type's range", ""},
	{SequenceLimitExceeded, "sequence_generator_limit_exceeded", RetryNever, "a sequence has no more values", "ALTER SEQUENCE ... MAXVALUE, or RESTART"},
	{CharacterNotInRepertoire, "character_not_in_repertoire", RetryNever, "bytes that are not UTF-8, or a zero byte", "set client_encoding to what the client sends"},
	{InvalidParameterValue, "invalid_parameter_value", RetryNever, "an argument, option or setting that makes no sense", "what the hint says"},
	{InvalidEscapeSequence, "invalid_escape_sequence", RetryNever, "a Unicode escape in a literal that is not one", "write \\u with four hexadecimal digits, \\U with eight"},
	{InvalidTextRepresentation, "invalid_text_representation", RetryNever, "a text that is no value of its type", ""},
	{InvalidBinary, "invalid_binary_representation", RetryNever, "a binary parameter that is no value of its type", ""},
	{BadFileFormat, "bad_copy_file_format", RetryNever, "a file, or the data of a COPY, is not what it should be", ""},
	{NotNullViolation, "not_null_violation", RetryNever, "a row without a shard key", "give every shard key column a value"},
	{ForeignKeyViolation, "foreign_key_violation", RetryNever, "as in PostgreSQL", ""},
	{UniqueViolation, "unique_violation", RetryNever, "as in PostgreSQL; also a name that the cluster has already", ""},
	{CheckViolation, "check_violation", RetryNever, "as in PostgreSQL; also a shard key that a list keyspace does not have", "list the value: `cleave keyspace --help`"},
	{ActiveTransaction, "active_sql_transaction", RetryNever, "the statement cannot be in a transaction block, or one is open already", "run it on its own"},
	{ReadOnlyTransaction, "read_only_sql_transaction", RetryNever, "a write in a read-only transaction", ""},
	{NoActiveTransaction, "no_active_sql_transaction", RetryNever, "the statement needs a transaction block", "BEGIN first"},
	{InFailedTransaction, "in_failed_sql_transaction", RetryNever, "the transaction failed before", "ROLLBACK, then run the transaction again"},
	{InvalidStatementName, "invalid_sql_statement_name", RetryNever, "no prepared statement has the name", ""},
	{InvalidAuthorization, "invalid_authorization_specification", RetryNever, "the router, or a shard, does not let this user in, or not in this way", "what the hint says"},
	{InvalidPassword, "invalid_password", RetryNever, "wrong user or password", ""},
	{DependentObjects, "dependent_objects_still_exist", RetryNever, "something else needs what is to be dropped", "DROP ... CASCADE, or drop that first"},
	{InvalidCursorName, "invalid_cursor_name", RetryNever, "no portal or cursor has the name", ""},
	{InvalidSavepoint, "invalid_savepoint_specification", RetryNever, "no savepoint has the name", ""},
	{InvalidCatalogName, "invalid_catalog_name", RetryNever, "a shard's database does not exist", "check the shard's URL: `cleave shard list`"},
	{InvalidSchemaName, "invalid_schema_name", RetryNever, "the schema does not exist", ""},
	{SerializationFailure, "serialization_failure", RetryTransaction, "a shard was lost or lost the key's ownership in the middle, or a concurrent write came first", "run the transaction again"},
	{DeadlockDetected, "deadlock_detected", RetryTransaction, "transactions wait for each other, on one shard or over several", "run the transaction again; change rows in one order everywhere"},
	{InsufficientPrivilege, "insufficient_privilege", RetryNever, "the user, or anybody, must not do that", ""},
	{SyntaxError, "syntax_error", RetryNever, "as in PostgreSQL", ""},
	{DuplicateColumn, "duplicate_column", RetryNever, "a column is named twice", ""},
	{AmbiguousColumn, "ambiguous_column", RetryNever, "a column's name fits several tables", ""},
	{UndefinedColumn, "undefined_column", RetryNever, "no such column", ""},
	{UndefinedObject, "undefined_object", RetryNever, "no such shard, keyspace, setting, type, ...", "the names are in the tables of the schema cleave"},
	{DuplicateObject, "duplicate_object", RetryNever, "the name is in use", ""},
	{DatatypeMismatch, "datatype_mismatch", RetryNever, "types that do not go together", ""},
	{WrongObjectType, "wrong_object_type", RetryNever, "the object is of another sort than the statement needs", ""},
	{CannotCoerce, "cannot_coerce", RetryNever, "a value cannot become the type", ""},
	{UndefinedFunction, "undefined_function", RetryNever, "no such function, or not with these arguments", ""},
	{GeneratedAlways, "generated_always", RetryNever, "a value for an identity column GENERATED ALWAYS", "leave it out, or OVERRIDING SYSTEM VALUE"},
	{UndefinedTable, "undefined_table", RetryNever, "no such table", ""},
	{UndefinedParameter, "undefined_parameter", RetryNever, "a parameter that nobody gave", ""},
	{DuplicatePrepared, "duplicate_prepared_statement", RetryNever, "the prepared statement exists", "DEALLOCATE, or another name"},
	{DuplicateTable, "duplicate_table", RetryNever, "the table exists", ""},
	{InvalidTableDefinition, "invalid_table_definition", RetryNever, "the table cannot be sharded like that", "see docs/shard-keys.md"},
	{InvalidObjectDefinition, "invalid_object_definition", RetryNever, "a keyspace, map or object that contradicts itself", ""},
	{IndeterminateDatatype, "indeterminate_datatype", RetryNever, "a parameter's type is not known", "cast it: $1::bigint"},
	{InsufficientResources, "insufficient_resources", RetrySafe, "something is used up", ""},
	{DiskFull, "disk_full", RetryNever, "a disk is full", "make room; nothing was written"},
	{OutOfMemory, "out_of_memory", RetryNever, "memory is used up", ""},
	{TooManyConnections, "too_many_connections", RetrySafe, "the router's sessions, or a shard's pool, are all in use and stayed so for the bounded wait", "more connections (pool settings in docs/configuration.md), or shorter transactions"},
	{ConfigurationLimit, "configuration_limit_exceeded", RetryNever, "a limit that a setting gives was reached", "raise the setting that the hint names, or ask for less"},
	{ProgramLimitExceeded, "program_limit_exceeded", RetryNever, "a bound of the router: sizes and numbers that no setting changes, or a guard rail", "ask for less at once"},
	{StatementTooComplex, "statement_too_complex", RetryNever, "nested too deeply, or too long, to be read safely", "a simpler statement"},
	{ObjectNotInState, "object_not_in_prerequisite_state", RetryNever, "the cluster is not in the state that the operation needs", "what the hint says; `cleave doctor`"},
	{ObjectInUse, "object_in_use", RetryNever, "a shard, keyspace or name that is still needed", ""},
	{LockNotAvailable, "lock_not_available", RetrySafe, "a lock was not had within its bound", "run it again"},
	{QueryCanceled, "query_canceled", RetrySafe, "cancelled by the client, or by a timeout", ""},
	{AdminShutdown, "admin_shutdown", RetryTransaction, "the router is stopping", "connect again"},
	{CannotConnectNow, "cannot_connect_now", RetrySafe, "a shard, the directory, or the router's lease is not available", "run it again; `cleave doctor` says what is down"},
	{IdleSessionTimeout, "idle_session_timeout", RetryTransaction, "the session did nothing for too long", "connect again"},
	{SystemError, "system_error", RetryNever, "the operating system refused something", ""},
	{IOError, "io_error", RetryNever, "a file or the directory cannot be read or written", "`cleave doctor`"},
	{UndefinedFile, "undefined_file", RetryNever, "no such file", ""},
	{ConfigFileError, "config_file_error", RetryNever, "the configuration is wrong", "`cleave config` shows the settings in force"},
	{InternalError, "internal_error", RetryUnknown, "a fault of Cleave's", "please report it, with the log"},
	{DataCorrupted, "data_corrupted", RetryNever, "the map, or what a shard keeps for Cleave, contradicts itself", "`cleave doctor`"},
	{NotOwner, "(private)", RetryTransaction, "a shard's guard: the row's key is not this shard's. Only those who write to a shard directly see it", "write through a router"},
}
