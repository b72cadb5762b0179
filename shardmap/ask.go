package shardmap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/sqlstate"
)

// Members ask each other through the directory: every member reaches it, and who may write there may do everything anyway.
// A question is a record that its member takes by deleting it, so it is answered at most once. An answer is a record for
// the member that asked.
const (
	questionPrefix = "ask/question/" // + member + "/" + id
	answerPrefix   = "ask/answer/"   // + id, and its pages behind it

	askLook    = 250 * time.Millisecond // how often a member looks for questions
	answerLook = 50 * time.Millisecond  // how often who asks looks for the answer
	memberLook = time.Second            // how often who asks looks whether the member lives

	// AskMax bounds the wait for a member that lives and does not answer.
	AskMax = 15 * time.Second
	// askAge is when a record is left behind by somebody who died.
	askAge = 10 * time.Minute
	// askAtOnce bounds the questions that a member answers at a time: so many which are answered at once, and as many which wait
	// for something.
	askAtOnce = 16
	// askList is how many questions a member reads at a time.
	askList = 4 * askAtOnce

	answerPage  = MaxRecordValueBytes
	answerPages = 64
)

// The first letter of a question's id. Those that are answered at once come first where they are listed, so none is behind others that wait.
const (
	askQuick = "a"
	askWaits = "b"
)

// question is the record of one.
type question struct {
	At   time.Time       `json:"at"`
	Op   string          `json:"op"`
	Body json.RawMessage `json:"body"`
	// Left is how long the asker waits, from At on.
	Left time.Duration `json:"left"`
}

// answer is the record of one; its body is in Pages records behind it.
type answer struct {
	At     time.Time `json:"at"`
	Pages  int       `json:"pages"`
	Code   string    `json:"code,omitempty"`
	Failed string    `json:"failed,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Hint   string    `json:"hint,omitempty"`
}

// Answerer carries out what a member is asked. in and the result are JSON.
type Answerer func(ctx context.Context, op string, in []byte) ([]byte, error)

// Ask has the member carry out op, and fills out with its answer. wait is how long the operation may take by itself.
//
// Errors: the member's own; 57P03 if it does not answer, or is gone, and nothing was done; 08007 if nobody knows whether
// it was done.
func Ask(ctx context.Context, dir Directory, member, op string, in, out any, wait time.Duration) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("shardmap: a question has no JSON form: %w", err)
	}
	limit := AskMax + wait
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	value, err := json.Marshal(question{At: time.Now(), Op: op, Body: body, Left: limit})
	if err != nil {
		return fmt.Errorf("shardmap: a question has no JSON form: %w", err)
	}
	id := askQuick + uuid.NewString()
	if wait > 0 {
		id = askWaits + id[1:]
	}
	key := questionPrefix + member + "/" + id
	revision, err := dir.PutRecord(ctx, key, value, 0)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the router cannot be asked: the directory does not store the question")
	}
	got, err := awaitAnswer(ctx, dir, member, id)
	if err == nil {
		return got.read(out)
	}
	// Who takes the question back before the member did knows that nothing was done.
	tidy, done := context.WithTimeout(context.WithoutCancel(ctx), memberLook)
	defer done()
	if dir.DeleteRecord(tidy, key, revision) == nil {
		return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the router did not answer; nothing was done").WithHint("see whether it runs: cleave router list")
	}
	return sqlstate.Wrap(err, sqlstate.TransactionUnknown, "the router did not answer; it is not known whether it did what was asked").WithHint("look again: cleave sessions")
}

// taken is an answer with its body.
type taken struct {
	answer
	body []byte
}

// awaitAnswer waits for the answer and takes it out of the directory.
func awaitAnswer(ctx context.Context, dir Directory, member, id string) (*taken, error) {
	tick := time.NewTicker(answerLook)
	defer tick.Stop()
	looked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		switch r, err := dir.Record(ctx, answerPrefix+id); {
		case err == nil:
			return take(ctx, dir, r)
		case !errors.Is(err, ErrNotFound):
			continue // the directory is asked again until ctx ends
		}
		if time.Since(looked) < memberLook {
			continue
		}
		looked = time.Now()
		members, err := dir.Members(ctx)
		if err == nil && !slices.ContainsFunc(members, func(m MemberState) bool { return m.ID == member }) {
			return nil, errors.New("it is no member of the cluster any more")
		}
	}
}

// take reads an answer whole and deletes it.
func take(ctx context.Context, dir Records, head Record) (*taken, error) {
	t := &taken{}
	if err := json.Unmarshal(head.Value, &t.answer); err != nil {
		return nil, err
	}
	pages, err := dir.Records(ctx, head.Key+"/", "", answerPages)
	if err != nil {
		return nil, err
	}
	if len(pages) != t.Pages {
		return nil, fmt.Errorf("%d of %d pages of the answer are there", len(pages), t.Pages)
	}
	for _, p := range append(pages, head) {
		if p.Key != head.Key {
			t.body = append(t.body, p.Value...)
		}
		_ = dir.DeleteRecord(ctx, p.Key, p.Revision) // what is left is deleted later, see tidyAsks
	}
	return t, nil
}

// read is the member's error, or fills out.
func (t *taken) read(out any) error {
	if t.Code != "" {
		return &sqlstate.Error{Code: sqlstate.Code(t.Code), Message: t.Failed, Detail: t.Detail, Hint: t.Hint}
	}
	if err := json.Unmarshal(t.body, out); err != nil {
		return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "the router answered something else than asked").WithHint("is it of the same version? see cleave router list")
	}
	return nil
}

// Answer answers what the member is asked until ctx ends.
func Answer(ctx context.Context, dir Records, member string, do Answerer) {
	var at sync.WaitGroup
	defer at.Wait()
	quick, waiting := make(chan struct{}, askAtOnce), make(chan struct{}, askAtOnce)
	tick := time.NewTicker(askLook)
	defer tick.Stop()
	tidied := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(tidied) > askAge {
			tidied = time.Now()
			tidyAsks(ctx, dir)
		}
		list, err := dir.Records(ctx, questionPrefix+member+"/", "", askList)
		if err != nil {
			continue // who asks is told by the bound of its wait
		}
		for _, r := range list {
			slots := quick
			if strings.HasPrefix(r.Key[strings.LastIndexByte(r.Key, '/')+1:], askWaits) {
				slots = waiting
			}
			select {
			case slots <- struct{}{}:
			default:
				continue // it stays, and is looked at again
			}
			if dir.DeleteRecord(ctx, r.Key, r.Revision) != nil {
				<-slots
				continue // it was taken back, or may be taken back
			}
			at.Go(func() {
				defer func() { <-slots }()
				answerOne(ctx, dir, r, do)
			})
		}
	}
}

// answerOne answers a question that was taken.
func answerOne(ctx context.Context, dir Records, r Record, do Answerer) {
	var q question
	var body []byte
	err := json.Unmarshal(r.Value, &q)
	if err == nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, q.Left)
		defer stop()
		body, err = do(ctx, q.Op, q.Body)
	}
	if len(body) > answerPage*answerPages {
		err = sqlstate.New(sqlstate.ProgramLimitExceeded, "the answer takes %d bytes; %d are allowed", len(body), answerPage*answerPages)
	}
	a := answer{At: time.Now()}
	if err != nil {
		e := sqlstate.As(err)
		a.Code, a.Failed, a.Detail, a.Hint = string(e.Code), e.Message, e.Detail, e.Hint
		body = nil
	}
	key := answerPrefix + r.Key[strings.LastIndexByte(r.Key, '/')+1:]
	for page := range slices.Chunk(body, answerPage) {
		a.Pages++
		if _, err := dir.PutRecord(ctx, fmt.Sprintf("%s/%02d/%d", key, a.Pages, a.At.Unix()), page, 0); err != nil {
			return // who asks is told by the bound of its wait
		}
	}
	if head, err := json.Marshal(a); err == nil {
		_, _ = dir.PutRecord(ctx, key, head, 0) // as above
	}
}

// tidyAsks deletes what was left by members that died.
func tidyAsks(ctx context.Context, dir Records) {
	for _, prefix := range []string{questionPrefix, answerPrefix} {
		for after := ""; ; {
			page, err := dir.Records(ctx, prefix, after, 64)
			if err != nil || len(page) == 0 {
				break
			}
			for _, r := range page {
				after = r.Key
				if at, ok := askedAt(r); ok && time.Since(at) > askAge {
					_ = dir.DeleteRecord(ctx, r.Key, r.Revision) // the next one tries again
				}
			}
		}
	}
}

// askedAt is when a record of a question or answer was written.
func askedAt(r Record) (time.Time, bool) {
	if strings.HasPrefix(r.Key, answerPrefix) && strings.Contains(r.Key[len(answerPrefix):], "/") {
		n, err := strconv.ParseInt(r.Key[strings.LastIndexByte(r.Key, '/')+1:], 10, 64) // a page says it in its key
		return time.Unix(n, 0), err == nil
	}
	var of struct {
		At time.Time `json:"at"`
	}
	return of.At, json.Unmarshal(r.Value, &of) == nil
}
