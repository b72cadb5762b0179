package semantics

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// Constant is a value that a statement compares a column with, or writes into one:
// a literal or a parameter. typ is the type that it is read as.
type Constant struct {
	Type  keyspace.Type
	param int
	cast  keyspace.Type
	val   keyspace.Value
	array bool // it is one of the elements of an array parameter
	Never bool // NULL, or a number that the type does not have: equal to nothing
	// Unknown is 1 + i for the value that column i of the shard key has, whatever it
	// is: see local.
	Unknown int
	loc     int32 // byte offset + 1 of the literal, 0 if it is not a plain one
}

// constants reads those of the statement.
type constants struct {
	typer  *Typer
	src    *sourcetext.Text
	reader *Reader
	st     *plan.Statement

	// unread is the first literal that the router could not read: the reason to
	// tell if a shard key stays open.
	unread  *sqlstate.Error
	Dropped bool // a literal is equal to no key, so the proof rests on its value
}

// ConstantOf reads an expression that is to be compared with a column of type t
// (assign false) or stored in one (assign true). ok is false if it is not a
// literal or parameter whose value as t is certain. It ends the analysis with
// the type's own error if a string literal is not a value of the type.
func (con *constants) ConstantOf(n *pg.Node, t keyspace.Type, assign bool) (k Constant, ok bool) {
	k.Type = t
	switch v := n.GetNode().(type) {
	case *pg.Node_ParamRef:
		k.param = int(v.ParamRef.Number)
		return k, k.param > 0
	case *pg.Node_AConst:
		return con.literal(v.AConst, t, t, assign)
	case *pg.Node_TypeCast:
		s := con.typer.castType(v.TypeCast.TypeName)
		if s == 0 || !keytype.SameFamily(s, t) {
			return k, false
		}
		switch arg := v.TypeCast.Arg.GetNode().(type) {
		case *pg.Node_ParamRef:
			k.param, k.cast = int(arg.ParamRef.Number), s
			return k, k.param > 0
		case *pg.Node_AConst:
			return con.castLiteral(arg.AConst, t, s, assign)
		case *pg.Node_TypeCast:
			// A cast to the type that it already has.
			if con.typer.castType(arg.TypeCast.TypeName) == s {
				return con.ConstantOf(v.TypeCast.Arg, t, assign)
			}
		}
	case *pg.Node_AExpr:
		e := v.AExpr
		if e.Lexpr != nil {
			return con.computed(e, t, assign)
		}
		if e.Kind != pg.A_Expr_Kind_AEXPR_OP || e.Lexpr != nil || len(e.Name) != 1 || !keytype.IsInt(t) || e.Rexpr.GetAConst().GetSval() != nil {
			return k, false // the sign of a string makes it a double precision
		}
		k, ok = con.ConstantOf(e.Rexpr, t, assign)
		if !ok || k.param != 0 || k.Never {
			return k, false
		}
		k.loc = 0
		switch e.Name[0].GetString_().GetSval() {
		case "+":
			return k, true
		case "-":
			if n := -k.val.Int(); keytype.Fits(t, n) && (n != k.val.Int() || n == 0) {
				k.val = keyspace.Int(t, n)
				return k, true
			}
		}
	}
	return k, false
}

// castLiteral is literal of a constant that is cast to s: a number that is not whole
// is rounded by that.
func (con *constants) castLiteral(c *pg.A_Const, t, s keyspace.Type, assign bool) (Constant, bool) {
	if f := c.GetFval(); f != nil && !c.Isnull {
		if _, integral, sure := keytype.WholeNumber(f.GetFval()); !integral || !sure {
			return Constant{Type: t}, false
		}
	}
	return con.literal(c, t, s, assign)
}

// literal reads a constant as type s, then as t of the same family.
func (con *constants) literal(c *pg.A_Const, t, s keyspace.Type, assign bool) (k Constant, ok bool) {
	k.Type = t
	if c.Isnull {
		k.Never = true
		return k, true
	}
	k.loc = c.Location + 1
	switch v := c.Val.(type) {
	case *pg.A_Const_Ival:
		return con.integer(k, int64(v.Ival.GetIval()), t, s, assign)
	case *pg.A_Const_Fval:
		if !keytype.IsInt(t) {
			return k, false
		}
		n, integral, sure := keytype.WholeNumber(v.Fval.GetFval())
		if !sure {
			return k, false
		}
		if !integral {
			// int = numeric compares exactly, so no integer equals 5.5 or 1e30.
			k.Never, con.Dropped = true, true
			return k, s == t && !assign
		}
		return con.integer(k, n, t, s, assign)
	case *pg.A_Const_Sval:
		val, err := keyspace.ParseText(s, []byte(v.Sval.GetSval()))
		if err != nil {
			e := *sqlstate.As(err)
			e.Position = con.src.Position(c.Location)
			if askable(s, v.Sval.GetSval(), &e) {
				con.st.Unread = true
				if con.reader.Unread != nil {
					con.reader.Unread.Note(con.src, c, s)
					k.val, _, ok = keytype.Convert(anyTime(s), t)
					return k, ok
				}
				e.Unread = true
			}
			if e.Code == sqlstate.FeatureNotSupported && !assign {
				// A value whose meaning the router does not know, such as a
				// timestamptz without a zone: it fixes no key, but the shard that the
				// rest of the statement decides on understands it.
				if con.unread == nil {
					con.unread = &e
				}
				return k, false
			}
			fail(&e)
		}
		k.val, k.Never, ok = keytype.Convert(val, t)
		con.Dropped = con.Dropped || k.Never
		return k, ok && !(k.Never && assign)
	case *pg.A_Const_Boolval:
		if t != keyspace.Bool || s != keyspace.Bool {
			return k, false
		}
		text := "false"
		if v.Boolval.GetBoolval() {
			text = "true"
		}
		val, err := keyspace.ParseText(keyspace.Bool, []byte(text))
		k.val, k.loc = val, 0
		return k, err == nil
	}
	return k, false
}

func (con *constants) integer(k Constant, n int64, t, s keyspace.Type, assign bool) (Constant, bool) {
	if !keytype.IsInt(t) || s != t && !keytype.Fits(s, n) {
		return k, false
	}
	if !keytype.Fits(t, n) {
		k.Never, con.Dropped = true, true
		return k, !assign
	}
	k.val = keyspace.Int(t, n)
	return k, true
}

// castType returns the key type that a type name stands for, 0 for every other
// type and for modified ones (varchar(3) cuts, timestamp(0) rounds).
func (ty *Typer) castType(n *pg.TypeName) keyspace.Type {
	if n == nil || len(n.Typmods) > 0 || len(n.ArrayBounds) > 0 || n.Setof || n.PctType {
		return 0
	}
	return ty.namedType(n)
}

func (ty *Typer) namedType(n *pg.TypeName) keyspace.Type {
	names := sqltree.Strings(n.Names)
	if len(names) == 2 && names[0] == "pg_catalog" {
		return keytype.ByName[names[1]]
	}
	if len(names) != 1 || ty.Hidden() {
		return 0
	}
	return keytype.ByName[names[0]]
}

// Hidden reports whether a schema of the search path comes before pg_catalog: a
// name without schema may then be of a type that somebody made there.
func (ns *Namespace) Hidden() bool {
	for i, s := range ns.Path {
		if s == "pg_catalog" {
			return i > 0
		}
	}
	return false
}

// arrayType returns the element type of a one-dimensional array type name.
func (ty *Typer) arrayType(n *pg.TypeName) keyspace.Type {
	if n == nil || len(n.Typmods) > 0 || len(n.ArrayBounds) != 1 || n.Setof || n.PctType {
		return 0
	}
	return ty.namedType(n)
}

// KeyExpr turns a constant into the expression of a shard key column of type t.
func (k Constant) KeyExpr(t keyspace.Type) (plan.KeyExpr, bool) {
	e := plan.KeyExpr{Type: t, Param: k.param, Cast: k.cast, Never: k.Never, Array: k.array, As: k.Type, Location: k.loc, Modifier: keyspace.NoModifier}
	if !keytype.SameFamily(k.Type, t) {
		return e, false
	}
	if k.param == 0 && !k.Never {
		var ok bool
		if e.Value, e.Never, ok = keytype.Convert(k.val, t); !ok {
			return e, false
		}
	}
	return e, true
}

// computed evaluates +, - and * of integer literals where PostgreSQL does the same
// as integer: neither an operand nor the result is beyond its range.
func (con *constants) computed(e *pg.A_Expr, t keyspace.Type, assign bool) (k Constant, ok bool) {
	if e.Kind != pg.A_Expr_Kind_AEXPR_OP || !keytype.IsInt(t) || con.typer.Hidden() {
		return k, false
	}
	n, ok := integerOf(&pg.Node{Node: &pg.Node_AExpr{AExpr: e}})
	if !ok {
		return k, false
	}
	con.Dropped = true
	return con.integer(Constant{Type: t}, n, t, t, assign)
}

func integerOf(n *pg.Node) (int64, bool) {
	switch v := n.GetNode().(type) {
	case *pg.Node_AConst:
		if i, is := v.AConst.Val.(*pg.A_Const_Ival); is {
			return int64(i.Ival.GetIval()), true
		}
	case *pg.Node_AExpr:
		if v.AExpr.Kind != pg.A_Expr_Kind_AEXPR_OP {
			return 0, false
		}
		l, lok := int64(0), true
		if v.AExpr.Lexpr != nil {
			l, lok = integerOf(v.AExpr.Lexpr)
		}
		r, rok := integerOf(v.AExpr.Rexpr)
		if !lok || !rok {
			return 0, false
		}
		switch sqltree.Operator(v.AExpr) {
		case "+":
			l += r
		case "-":
			l -= r
		case "*":
			if v.AExpr.Lexpr == nil {
				return 0, false
			}
			l *= r
		default:
			return 0, false
		}
		return l, keytype.Fits(keyspace.Int4, l)
	}
	return 0, false
}

// askable reports whether a literal that the planner cannot read as type t is one to ask PostgreSQL for: a word for the
// time is read when the statement runs, and not before.
func askable(t keyspace.Type, text string, e *sqlstate.Error) bool {
	return plan.NotRead(t, e) && !datetime.HasSpecial(text)
}

// anyTime is a value of a time type, so that the reading goes on to the other literals.
func anyTime(t keyspace.Type) keyspace.Value {
	v, _ := keyspace.ParseText(t, []byte("infinity"))
	return v
}
