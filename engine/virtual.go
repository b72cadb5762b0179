package engine

// VirtualTable is a table of the schema "cleave", given as rows when it is
// read. A virtual database is a Conn that answers SELECTs over such tables.
type VirtualTable struct {
	Name    string
	OID     uint32 // what the catalogue calls it; 0: any
	Columns []VirtualColumn
	Rows    [][]Text
}

// VirtualColumn is a column of a VirtualTable.
type VirtualColumn struct {
	Name string
	OID  uint32 // 16 bool, 20 int8, 25 text, 701 float8, 1184 timestamptz
}
