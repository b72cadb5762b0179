package gateway

import "time"

// Limits bound what sessions may hold. The zero value of a field is its default.
type Limits struct {
	// SessionsMax is the number of sessions; default 1000.
	SessionsMax int
	// StartupMax is how long a client may take to start a session; default 10 s.
	StartupMax time.Duration
	// MessageMax bounds one message of a client, bytes; default 64 MiB.
	MessageMax int
	// StatementsMax is the number of prepared statements of a session; default 4096.
	StatementsMax int
	// StatementBytes bounds the texts of a session's prepared statements; default 16 MiB.
	StatementBytes int
	// PortalsMax is the number of portals that are open in a session; default 1024.
	PortalsMax int
	// SettingsBytes bounds a session's settings; default 64 KiB.
	SettingsBytes int
	// DeferredMax is the number of statements (SAVEPOINT, SET) that a
	// transaction remembers before it touches a shard; default 1000.
	DeferredMax int
	// IdleMax ends a session that says nothing outside a transaction; default 8 h.
	IdleMax time.Duration
	// IdleInTransactionMax ends a session that says nothing inside one; default 5 min.
	IdleInTransactionMax time.Duration
	// StatementMax cancels a statement; default 1 h. A session's own
	// statement_timeout is the shard's business.
	StatementMax time.Duration
	// CancelMax is how long a shard may take to obey a cancel before its
	// connection is closed, and how long it may let
	// statement_timeout pass; default 5 s.
	CancelMax time.Duration
	// StallMax ends a session whose client does not take its answers; default 5 min.
	StallMax time.Duration
	// PinnedMax is the number of sessions that keep a connection to the default shard
	// for themselves (temporary tables, advisory locks); default 16.
	PinnedMax int
	// ChannelsMax is the number of channels that a session may listen to; default 1000.
	ChannelsMax int
	// RetriesMax is how often a statement that met a guard is run again; default 3.
	RetriesMax int
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.SessionsMax, 1000)
	dur(&l.StartupMax, 10*time.Second)
	def(&l.MessageMax, 64<<20)
	def(&l.StatementsMax, 4096)
	def(&l.StatementBytes, 16<<20)
	def(&l.PortalsMax, 1024)
	def(&l.SettingsBytes, 64<<10)
	def(&l.DeferredMax, 1000)
	def(&l.PinnedMax, 16)
	def(&l.ChannelsMax, 1000)
	dur(&l.IdleMax, 8*time.Hour)
	dur(&l.IdleInTransactionMax, 5*time.Minute)
	dur(&l.StatementMax, time.Hour)
	dur(&l.CancelMax, 5*time.Second)
	dur(&l.StallMax, 5*time.Minute)
	def(&l.RetriesMax, 3)
	return l
}
