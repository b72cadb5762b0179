package catalog

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// Namespace is what names mean to a conversation.
type Namespace struct {
	// Catalog has the definitions that the transaction sees.
	Catalog *Catalog
	// Relations are temporary and come before all tables.
	Relations map[string]*Table
	Path      []string // search path without pg_catalog
	User      string
	Database  string
}

// Lookup finds a table, view or relation of the catalogue in a schema, nil if there is none.
func (ns *Namespace) Lookup(schema, name string) *Table {
	if d := ns.Catalog.Table(schema, name); d != nil {
		return d
	}
	if d := ns.Catalog.Views[Key(schema, name)]; d != nil {
		return d
	}
	if schema == SchemaInternal && name == RecordsTable.Name {
		return RecordsTable
	}
	if schema == SchemaPgCatalog || schema == SchemaInformation {
		if s := FindSystem(schema, name); s != nil {
			return s.Def
		}
	}
	if schema == SchemaInternal {
		if s := VirtualSystem()[name]; s != nil {
			return s.Def
		}
	}
	return nil
}

// regType is the input of regtype: names as format_type prints them, and type names, perhaps quoted and with their schema.
func (ns *Namespace) regType(text string) (int64, error) {
	base, array := strings.CutSuffix(strings.TrimSpace(text), "[]")
	found := func(ty *pgcatalog.Type) (int64, error) {
		if array {
			return int64(ty.Array), nil
		}
		return int64(ty.OID), nil
	}
	for ty := range value.Builtin.Types() {
		if ty.Name == base || value.TypeName(ty.OID) == base {
			return found(ty)
		}
	}
	switch base {
	case "int":
		return found(value.Builtin.Type(pgoid.Int4))
	case "decimal":
		return found(value.Builtin.Type(pgoid.Numeric))
	}
	parts, err := splitName(base)
	if err != nil {
		return 0, err
	}
	if len(parts) == 2 && ns.Catalog.Schemas[parts[0]] == nil {
		return 0, sqlstate.New(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", parts[0])
	}
	if ty := value.Builtin.TypeNamed(parts[len(parts)-1]); ty != nil && (len(parts) == 1 || parts[0] == SchemaPgCatalog) {
		return found(ty)
	}
	return 0, sqlstate.New(sqlstate.UndefinedObject, "type \"%s\" does not exist", strings.Join(parts, "."))
}

// RegIn is the input of regclass, regtype and their like.
func (ns *Namespace) RegIn(oid uint32, text string) (int64, error) {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return int64(n), nil
	}
	if text == "-" {
		return 0, nil
	}
	if oid == pgoid.Regtype {
		return ns.regType(text)
	}
	parts, err := splitName(text)
	if err != nil {
		return 0, err
	}
	name := parts[len(parts)-1]
	schema := ""
	if len(parts) == 2 {
		schema = parts[0]
	}
	switch oid {
	case pgoid.Regclass:
		if d := ns.Relation(schema, name); d != 0 {
			return int64(d), nil
		}
		return 0, sqlstate.New(sqlstate.UndefinedTable, "relation \"%s\" does not exist", strings.Join(parts, "."))
	case pgoid.Regnamespace:
		if s := ns.Catalog.Schemas[name]; s != nil {
			return int64(s.OID), nil
		}
		return 0, sqlstate.New(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", name)
	case pgoid.Regproc:
		list := slices.Collect(value.Builtin.Functions(name))
		if len(list) == 0 {
			return 0, sqlstate.New(sqlstate.UndefinedFunction, "function \"%s\" does not exist", name)
		}
		if len(list) > 1 {
			return 0, sqlstate.New("42725", "more than one function named \"%s\"", name)
		}
		return int64(list[0].OID), nil
	case pgoid.Regrole:
		return OwnerOID, nil
	}
	return 0, value.Unsupported("the type " + value.TypeName(oid))
}

// Relation finds the OID of a table, index or catalogue relation.
func (ns *Namespace) Relation(schema, name string) uint32 {
	schemas := append([]string{SchemaPgCatalog}, ns.Path...)
	if schema != "" {
		schemas = []string{schema}
	}
	for _, s := range schemas {
		if d := ns.Lookup(s, name); d != nil {
			return d.OID
		}
		if _, ix := ns.Catalog.FindIndex(s, name); ix != nil {
			return ix.OID
		}
	}
	return 0
}

// splitName splits a possibly quoted, possibly qualified name.
func splitName(s string) ([]string, error) {
	var out []string
	bad := sqlstate.New("42602", "invalid name syntax")
	s = strings.TrimSpace(s)
	for {
		if strings.HasPrefix(s, `"`) {
			var b strings.Builder
			i := 1
			for {
				if i >= len(s) {
					return nil, bad
				}
				if s[i] == '"' {
					if i+1 < len(s) && s[i+1] == '"' {
						i++
					} else {
						break
					}
				}
				b.WriteByte(s[i])
				i++
			}
			out, s = append(out, b.String()), s[i+1:]
		} else {
			i := strings.IndexByte(s, '.')
			if i < 0 {
				i = len(s)
			}
			if i == 0 {
				return nil, bad
			}
			out, s = append(out, strings.ToLower(s[:i])), s[i:]
		}
		if s == "" {
			return out, nil
		}
		if s[0] != '.' || len(out) == 3 {
			return nil, bad
		}
		s = s[1:]
	}
}

// RegOut is the output of regclass, regtype and their like.
func (ns *Namespace) RegOut(oid uint32, v int64) string {
	n := uint32(v)
	if n == 0 {
		return "-"
	}
	switch oid {
	case pgoid.Regclass:
		if schema, name := ns.RelationName(n); name != "" {
			return ns.VisibleName(schema, name)
		}
	case pgoid.Regtype:
		if value.Builtin.Type(n) != nil {
			return value.TypeName(n)
		}
	case pgoid.Regproc:
		if p := value.Builtin.Function(n); p != nil {
			return p.Name
		}
	case pgoid.Regprocedure:
		if p := value.Builtin.Function(n); p != nil {
			return signature(p)
		}
	case pgoid.Regnamespace:
		for _, s := range ns.Catalog.Schemas {
			if s.OID == n {
				return quote.PGIdent(s.Name)
			}
		}
	case pgoid.Regrole:
		if n == OwnerOID {
			return quote.PGIdent(ns.User)
		}
	}
	return strconv.FormatUint(uint64(n), 10)
}

// signature is a function's name with the types of its arguments.
func signature(p *pgcatalog.Function) string {
	names := make([]string, len(p.Args))
	for i, a := range p.Args {
		names[i] = value.TypeName(a)
	}
	return p.Name + "(" + strings.Join(names, ",") + ")"
}

// RelationName finds a relation's schema and name by OID.
func (ns *Namespace) RelationName(oid uint32) (schema, name string) {
	if d := ns.Catalog.ByOID[oid]; d != nil {
		return d.Schema, d.Name
	}
	for _, d := range ns.Catalog.Tables {
		if ix := d.Index(oid); ix != nil {
			return d.Schema, ix.Name
		}
	}
	for _, d := range ns.Catalog.Views {
		if d.OID == oid {
			return d.Schema, d.Name
		}
	}
	for _, s := range Systems() {
		if s.Def.OID == oid {
			return s.Def.Schema, s.Def.Name
		}
	}
	return "", ""
}

// VisibleName is a name as the search path lets it be written.
func (ns *Namespace) VisibleName(schema, name string) string {
	if ns.Visible(schema, name) {
		return quote.PGIdent(name)
	}
	return quote.PGIdent(schema) + "." + quote.PGIdent(name)
}

// Visible reports whether the search_path finds a relation without its schema.
func (ns *Namespace) Visible(schema, name string) bool {
	a, b := ns.Relation("", name), ns.Relation(schema, name)
	return a == b && a != 0
}

// Schemas is the search path's schemas that exist.
func (ns *Namespace) Schemas() []string {
	var out []string
	for _, s := range ns.Path {
		if ns.Catalog != nil && ns.Catalog.Schemas[s] != nil {
			out = append(out, s)
		}
	}
	return out
}
