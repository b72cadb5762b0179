package engine

// Relations is implemented by the Conns of engines whose conversations can hold
// temporary relations that are not made with SQL. They are found by their bare
// names before all tables, belong to no transaction, and lock nothing. The methods
// must be called between statements. After an error the Conn can only be closed.
type Relations interface {
	// MakeRelation makes an empty relation.
	MakeRelation(name string, columns []RelationColumn) error
	// FillRelation adds rows: whole DataRow frames with values in text format.
	FillRelation(name string, frames []byte) error
	// IndexRelation makes an index on columns.
	IndexRelation(name string, columns []string) error
	// DropRelations drops all of them.
	DropRelations() error
}

// RelationColumn is a column of a temporary relation.
type RelationColumn struct {
	Name     string
	OID      uint32 // of its type
	Modifier int32  // of its type, -1 for none
}
