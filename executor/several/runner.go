package several

import "github.com/cleavedb/cleave/internal/pgbackend"

// runner runs statements in a transaction: it describes them, makes their jobs, and has the statements, portals and
// cursors that they leave.
type runner struct {
	transaction

	prepared pgbackend.Statements[*prepared]
	portals  pgbackend.Portals[*portal]
	cursors  pgbackend.Portals[*cursor]
}
