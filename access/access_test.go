package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestRFC7677 is the example of the RFC.
func TestRFC7677(t *testing.T) {
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	if err != nil {
		t.Fatal(err)
	}
	v, err := derive("pencil", salt, 4096)
	if err != nil {
		t.Fatal(err)
	}
	x, err := NewExchange(v, Plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := x.begin([]byte("n,,n=user,r=rOprNGfwEbeRWgbNEkqO"), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
	if err != nil || string(first) != "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096" {
		t.Fatal(string(first), err)
	}
	last, err := x.End([]byte("c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="))
	if err != nil || string(last) != "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" {
		t.Fatal(string(last), err)
	}
}

func TestVerifier(t *testing.T) {
	v, err := NewVerifier("pässword \u00a0x")
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseVerifier(v.Text())
	if err != nil {
		t.Fatal(err)
	}
	// SASLprep: a non-breaking space is a space.
	if !again.Matches("pässword  x") || !again.Matches("pässword \u00a0x") || again.Matches("password x") {
		t.Error("the verifier does not know its password")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if text := fmt.Sprintf(verb, User{Name: "bob", Verifier: v}); strings.Contains(text, "4096") || len(text) > 60 {
			t.Errorf("%s shows %s", verb, text)
		}
	}
	good := v.Text()
	for _, bad := range []string{"", "md5d41d8cd98f00b204e9800998ecf8427e", "hunter2", good[:len(good)-4], strings.Replace(good, "4096", "1", 1),
		strings.Replace(good, "4096", "-5", 1), strings.Replace(good, "4096", "99999999999", 1), strings.Replace(good, "$", ":", 1)} {
		_, err := ParseVerifier(bad)
		if err == nil {
			t.Errorf("%q was taken", bad)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error repeats %q", bad)
		}
	}
	for _, bad := range []string{"", "a\x00b", strings.Repeat("x", PasswordBytes+1)} {
		if _, err := NewVerifier(bad); err == nil {
			t.Errorf("a password of %d bytes was taken", len(bad))
		}
	}
}

// client is the other side of an exchange.
type client struct {
	password, mechanism, header string
	binding                     []byte
	tamper                      func(final string) string
}

func (c client) run(v Verifier, binding []byte) error {
	x, err := NewExchange(v, c.mechanism, binding)
	if err != nil {
		return err
	}
	bare := "n=,r=abcdefgh"
	first, err := x.Begin([]byte(c.header + bare))
	if err != nil {
		return err
	}
	nonce, _, _ := strings.Cut(strings.TrimPrefix(string(first), "r="), ",")
	channel := base64.StdEncoding.EncodeToString(append([]byte(c.header), c.binding...))
	without := "c=" + channel + ",r=" + nonce
	d, err := derive(c.password, v.salt, v.iterations)
	if err != nil {
		return err
	}
	// The client's key is not in the verifier: it is derived here once more.
	proof := clientProof(c.password, v, []byte(bare+","+string(first)+","+without))
	final := without + ",p=" + base64.StdEncoding.EncodeToString(proof)
	if c.tamper != nil {
		final = c.tamper(final)
	}
	last, err := x.End([]byte(final))
	if err != nil {
		return err
	}
	want := "v=" + base64.StdEncoding.EncodeToString(mac(d.serverKey, []byte(bare+","+string(first)+","+without)))
	if string(last) != want {
		return fmt.Errorf("the server's proof is %s, want %s", last, want)
	}
	return nil
}

func TestExchange(t *testing.T) {
	v, err := NewVerifier("secret")
	if err != nil {
		t.Fatal(err)
	}
	hash := []byte("the hash of a certificate")
	plus := "p=tls-server-end-point,,"
	for _, c := range []struct {
		name   string
		client client
		server []byte
		want   error
	}{
		{"plain", client{"secret", Plain, "n,,", nil, nil}, nil, nil},
		{"plain where Plus is offered", client{"secret", Plain, "n,,", nil, nil}, hash, nil},
		{"could bind, not offered", client{"secret", Plain, "y,,", nil, nil}, nil, nil},
		{"could bind, the offer was taken away", client{"secret", Plain, "y,,", nil, nil}, hash, ErrBinding},
		{"bound", client{"secret", Plus, plus, hash, nil}, hash, nil},
		{"bound to another certificate", client{"secret", Plus, plus, []byte("another"), nil}, hash, ErrBinding},
		{"bound to nothing", client{"secret", Plus, plus, nil, nil}, hash, ErrBinding},
		{"not offered", client{"secret", Plus, plus, hash, nil}, nil, ErrMessage},
		{"Plus without binding", client{"secret", Plus, "n,,", nil, nil}, hash, ErrMessage},
		{"another binding", client{"secret", Plus, "p=tls-unique,,", hash, nil}, hash, ErrMessage},
		{"plain with binding", client{"secret", Plain, plus, hash, nil}, hash, ErrMessage},
		{"md5", client{"secret", "MD5", "n,,", nil, nil}, nil, ErrMessage},
		{"wrong password", client{"Secret", Plain, "n,,", nil, nil}, nil, ErrProof},
		{"wrong password, bound", client{"Secret", Plus, plus, hash, nil}, hash, ErrProof},
		{"authorization identity", client{"secret", Plain, "n,a=root,", nil, nil}, nil, ErrMessage},
		{"header changed", client{"secret", Plain, "n,,", nil, func(f string) string { return strings.Replace(f, "c=biws", "c=eSws", 1) }}, nil, ErrBinding},
		{"nonce changed", client{"secret", Plain, "n,,", nil, func(f string) string { return strings.Replace(f, "r=abc", "r=abd", 1) }}, nil, ErrMessage},
		{"extension after the nonce", client{"secret", Plain, "n,,", nil, func(f string) string { return strings.Replace(f, ",p=", ",x=1,p=", 1) }}, nil, ErrProof},
		{"no proof", client{"secret", Plain, "n,,", nil, func(f string) string { return f[:strings.Index(f, ",p=")] }}, nil, ErrMessage},
	} {
		if err := c.client.run(v, c.server); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestUsers(t *testing.T) {
	dir := memory.New()
	defer dir.Close()
	ctx := context.Background()
	u, other := NewUsers(dir), NewUsers(dir)
	v, err := NewVerifier("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Add(ctx, User{Name: "bob", Role: Ordinary, Verifier: v}); err != nil {
		t.Fatal(err)
	}
	if err := other.Add(ctx, User{Name: "bob", Role: Admin, Verifier: v}); sqlstate.CodeOf(err) != sqlstate.DuplicateObject {
		t.Error(err)
	}
	for _, bad := range []User{{Name: "", Role: Admin}, {Name: "a\x00", Role: Admin}, {Name: strings.Repeat("x", 64), Role: Admin}, {Name: "x", Role: "god"}} {
		if err := u.Add(ctx, bad); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
			t.Errorf("%q: %v", bad.Name, err)
		}
	}
	got, known, err := other.Find(ctx, "bob")
	if err != nil || !known || got.Role != Ordinary || !got.Verifier.Matches("one") {
		t.Fatal(got.Name, got.Role, known, err)
	}
	// A user that does not exist looks the same at every router, every time, and
	// like any other.
	a, known, err := u.Find(ctx, "eve")
	b, known2, err2 := other.Find(ctx, "eve")
	c, _, err3 := u.Find(ctx, "mallory")
	if errors.Join(err, err2, err3) != nil || known || known2 {
		t.Fatal(known, known2, err, err2, err3)
	}
	if string(a.Verifier.salt) != string(b.Verifier.salt) || string(a.Verifier.salt) == string(c.Verifier.salt) || a.Verifier.iterations != v.iterations || len(a.Verifier.salt) != len(v.salt) {
		t.Error("an unknown user can be told from a known one")
	}
	if err := u.Change(ctx, "bob", func(u *User) { u.Role = Admin }); err != nil {
		t.Fatal(err)
	}
	if got, _, err := other.Find(ctx, "bob"); err != nil || got.Role != Admin || !got.Verifier.Matches("one") {
		t.Error(got.Role, err)
	}
	list, err := u.List(ctx)
	if err != nil || len(list) != 1 || list[0].Name != "bob" || list[0].Verifier.storedKey != nil {
		t.Error(len(list), err)
	}
	if err := other.Remove(ctx, "bob"); err != nil {
		t.Fatal(err)
	}
	if _, known, err := u.Find(ctx, "bob"); known || err != nil {
		t.Error("a user that was removed is still known", err)
	}
	for _, err := range []error{u.Remove(ctx, "bob"), u.Change(ctx, "bob", func(*User) {})} {
		if sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
			t.Error(err)
		}
	}
}

// FuzzExchange: whatever a client says, nothing panics and nobody gets in.
func FuzzExchange(f *testing.F) {
	v, err := NewVerifier("secret")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(Plain, "n,,n=user,r=abc", "c=biws,r=abc,p=AAAA", true)
	f.Add(Plus, "p=tls-server-end-point,,n=,r=abc", "c=,r=,p=", true)
	f.Add(Plain, "y,,n=,r=abc,m=x", ",p=", false)
	f.Fuzz(func(t *testing.T, mechanism, first, last string, bound bool) {
		var binding []byte
		if bound {
			binding = []byte("hash")
		}
		x, err := NewExchange(v, mechanism, binding)
		if err != nil {
			return
		}
		if _, err := x.Begin([]byte(first)); err != nil {
			return
		}
		for _, m := range []string{last, "c=biws,r=" + x.nonce + ",p=" + last, "c=" + last + ",r=" + x.nonce + ",p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="} {
			if _, err := x.End([]byte(m)); err == nil {
				t.Fatalf("%q got in", m)
			}
		}
	})
}
