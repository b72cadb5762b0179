package planner

// effects are what the functions and types of a statement do beyond giving a value: where it may run then.
type effects struct {
	typer   *typer
	src     *sourceText
	touched *touched
	st      *Statement
	second  *reading

	aggregates, windows int
	sequence            string // a sequence function
	temporaryCall       string // a function in pg_temp
	advisory            string // a function of advisory locks, or of notifications
	largeObject         string // a function of large objects
	lastAlone           bool   // lastval() is the only one of a SELECT without FROM
	preferDefault       bool
	mayType             bool // see ownType
	volatile            bool // it calls a volatile function
	traces              bool // it calls one that may leave something in its session
	maySet              bool // it may call set_config()
	locks, changes      bool
	pids                bool   // pg_backend_pid() is the router's in this statement
	numbers             bool   // see Statement.Numbers
	objects             bool   // it may take the OID of an object
	number              string // what it takes one as, see TakesOID
}
