package gateway

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// keyTextsAtOnce bounds the columns of one question: PostgreSQL takes 1,664 (MaxTupleAttributeNumber in access/htup_details.h).
const keyTextsAtOnce = 1000

// unreadKey reports whether a text has a literal for a shard key that the planner could not read.
func unreadKey(st *planner.Statement, err error) bool {
	if err == nil {
		return st.Unread
	}
	var e *sqlstate.Error
	return errors.As(err, &e) && e.Unread
}

// keyText returns a text in which the literals that [planner.Planner.KeyTexts] finds have the form that means the same everywhere. The
// default shard reads them under the session's settings.
//
// Errors: the shard's, with the literal's place.
func (b *shardConns) keyText(text string, snap *shardmap.Snapshot) (string, error) {
	words, err := b.ex.KeyTexts(b, text, b.gucs.settings, snap)
	if err != nil || len(words) == 0 {
		return text, err
	}
	values, err := b.keyValues(text, words, snap)
	if err != nil {
		return "", err
	}
	return planner.With(text, words, values), nil
}

// keyValues has the default shard compute the values of words in a text. Errors: the shard's, with the word's place.
func (b *shardConns) keyValues(text string, words []planner.PreparedWord, snap *shardmap.Snapshot) ([]string, error) {
	c, err := b.acquire(snap.State().DefaultShard, b.gucs.settings)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	values := make([]string, 0, len(words))
	for from := 0; from < len(words); from += keyTextsAtOnce {
		some := words[from:min(from+keyTextsAtOnce, len(words))]
		sql, places := question(some, plainDefault(b.ex))
		res, err := b.exec(c, sql)
		if err != nil {
			return nil, moved(b.shardSaid(c, err), func(at int) int { return placeOf(text, some, places, at) })
		}
		if len(res.Rows) != 1 || len(res.Rows[0]) != len(some) {
			return nil, sqlstate.New(sqlstate.InternalError, "the shard gave no values of literals")
		}
		for _, v := range res.Rows[0] {
			values = append(values, v.String)
		}
	}
	return values, nil
}

// keyParams is keyText for the parameters of a Bind, which readArgs has read from rest, the body after its names. It changes x.args,
// and returns the body with the values.
func (x *prepared) keyParams(st *planner.Statement, rest []byte) ([]byte, error) {
	list := st.KeyParams(&x.args)
	switch {
	case len(list) == 0 || x.tx.state != txNone && x.tx.failed:
		return rest, nil
	case x.shards.nowait:
		return nil, errWait
	}
	var words []planner.PreparedWord
	for _, p := range list {
		for _, expr := range p.Exprs {
			words = append(words, planner.PreparedWord{From: nowhere, Expr: expr})
		}
	}
	snap, _ := x.snapshot()
	values, err := x.shards.keyValues("", words, snap)
	if err != nil {
		return nil, err
	}
	read := slices.Clone(x.args.Values)
	for _, p := range list {
		read[p.Param-1] = p.With(values[:len(p.Exprs)])
		values = values[len(p.Exprs):]
	}
	rest = x.withValues(rest, read)
	x.args.Values = read
	return rest, nil
}

// question is a query for the values of words in ISO form. places are the characters, from 1, where the words begin in it.
func question(words []planner.PreparedWord, sqlite bool) (sql string, places []int) {
	before, after := "pg_catalog.to_json(", ") #>> '{}'"
	if sqlite {
		before, after = "(", ")::text"
	}
	var b strings.Builder
	b.WriteString("SELECT ")
	at := len("SELECT ") + 1
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
			at += 2
		}
		b.WriteString(before)
		places = append(places, at+len(before))
		b.WriteString(w.Expr)
		b.WriteString(after)
		at += len(before) + utf8.RuneCountInString(w.Expr) + len(after)
	}
	return b.String(), places
}

// nowhere is the place of a word that is in no text: a parameter's.
const nowhere = -1

// placeOf is the character in a text of the word that stands at character at of a question; 0 if it has none.
func placeOf(text string, words []planner.PreparedWord, places []int, at int) int {
	for i := len(words) - 1; i >= 0; i-- {
		if places[i] <= at && words[i].From != nowhere {
			return utf8.RuneCountInString(text[:words[i].From]) + 1
		}
	}
	return 0
}
