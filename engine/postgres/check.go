package postgres

import (
	"context"
	"fmt"

	"github.com/cleavedb/cleave/engine"
)

const (
	minVersion    = 140000
	testedVersion = 190000 // first one that the tests do not cover
	// minConnections is what a small router pool, the admin operations and a
	// person with psql need together.
	minConnections = 20
)

// Check reports version, privileges and settings, changing nothing. Fails only
// when the shard cannot be asked.
func (s *shard) Check(ctx context.Context) (engine.Report, error) {
	var rep engine.Report
	c, err := s.dial(ctx, plainParams)
	if err != nil {
		return rep, err
	}
	defer c.Close()
	got, err := s.ask(ctx, c)
	if err != nil {
		return rep, s.failed("check", err)
	}
	rep.Version = got["version"]
	rep.Findings = findings(got, func(r *requirement) string { return r.serve })
	if f := s.moverFinding(ctx, got, levelWarning); f != nil {
		rep.Findings = append(rep.Findings, *f)
	}
	kept, err := s.keepFinding(ctx, c, got)
	if err != nil {
		return rep, err
	}
	if kept != nil {
		rep.Findings = append(rep.Findings, *kept)
	}
	owner, err := s.ownerFinding(ctx, c)
	if err != nil {
		return rep, err
	}
	rep.Findings = append(rep.Findings, owner)
	values, err := c.exec(ctx, engine.Alike)
	if err != nil {
		return rep, s.failed("check", err)
	}
	rep.Alike, rep.Database = engine.AlikeRows(values), s.base.Database
	return rep, nil
}

// moverFinding is that the mover's role cannot log in; nil if it can, or if there is none.
func (s *shard) moverFinding(ctx context.Context, got answers, level string) *engine.Finding {
	if got["mover"] == "" {
		return nil
	}
	c, err := s.dial(ctx, map[string]string{"application_name": "cleave", paramMover: got["mover"]})
	if err == nil {
		_ = c.Close()
		return nil
	}
	return &engine.Finding{Name: "login of role " + got["mover"], Level: level, Is: err.Error(), Want: "moves log in as it",
		Fix: "let it in by pg_hba.conf, and put its password into the passfile of the shard's URL: HOST:PORT:DATABASE:" + got["mover"] + ":PASSWORD"}
}

// ownerFinding says whether the database is free, ours or another's.
func (s *shard) ownerFinding(ctx context.Context, c *conn) (engine.Finding, error) {
	f := engine.Finding{Name: "cluster", Level: levelOK}
	res, err := c.exec(ctx, "SELECT pg_catalog.to_regclass('cleave_internal.shard') IS NOT NULL")
	if err != nil {
		return f, s.failed("check", err)
	}
	if res.Rows[0][0].String != "t" {
		f.Is = "not set up yet"
		return f, nil
	}
	res, err = c.exec(ctx, identitySQL)
	if err != nil {
		return f, s.failed("check", err)
	}
	if len(res.Rows) == 1 {
		f.Is = fmt.Sprintf("shard %s of cluster %s", res.Rows[0][1].String, res.Rows[0][0].String)
	}
	if s.cfg.Cluster == "" {
		return f, nil
	}
	if err := s.identify(res); err != nil {
		f.Level = levelError
		f.Want = fmt.Sprintf("shard %s of cluster %s", s.cfg.Name, s.cfg.Cluster)
		f.Fix = "use another database, one for each shard"
	}
	return f, nil
}
