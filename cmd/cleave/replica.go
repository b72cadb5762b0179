package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
)

func replicaCommand(a *app) *cobra.Command {
	return a.group("replica", "Add and remove replicas of a shard",
		`A PostgreSQL shard can have replicas: servers that stream from its primary. The map
lists the servers; routers ask them which one is the primary, so that writes follow a
promotion by themselves. Reads go to replicas where the session's setting
cleave.read_policy says so.`,
		`  cleave shard replica add shard-0 postgres://cleave@db2.example.org/app`,
		replicaChange(a, "add", "Add a server that streams from the shard's primary",
			`Checks that the server is a replica of the shard (system identifier, marks of the
cluster and the shard, role, version) and adds it to the map. Make it with
pg_basebackup -R first. Give - to read the URL from standard input.`,
			`  cleave shard replica add shard-0 postgres://cleave@db2.example.org/app
  cleave shard replica add shard-0 - --dry-run < url.txt`, admin.API.AddReplica),
		replicaChange(a, "remove", "Take a server out of a shard",
			`Takes a server out of the map; the server itself is left as it is. The one that is
the primary now is refused: promote another first. Give its URL as the list shows it.`,
			`  cleave shard replica remove shard-0 postgres://cleave@db1.example.org/app --why "machine is retired"`, admin.API.RemoveReplica))
}

func replicaChange(a *app, name, short, long, example string, run func(admin.API, context.Context, admin.ReplicaRequest) (*admin.Result, error)) *cobra.Command {
	var ch change
	cmd := &cobra.Command{
		Use: name + " SHARD URL", Short: short, Long: long, Example: example, Args: args(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			req := admin.ReplicaRequest{Meta: ch.meta(), Shard: given[0], URL: given[1]}
			if req.URL == "-" {
				url, err := readLine(a.stdin)
				if err != nil {
					return err
				}
				req.URL = url
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := run(c, cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		},
	}
	ch.flags(cmd)
	return cmd
}

// listLine is a line of the list of shards: a shard's, or one of its servers'.
type listLine struct {
	shard    *admin.ShardInfo
	endpoint *endpointLine
}

func listLines(shards []admin.ShardInfo) []listLine {
	var lines []listLine
	for i := range shards {
		lines = append(lines, listLine{shard: &shards[i]})
		for j := range shards[i].Endpoints {
			lines = append(lines, listLine{endpoint: (*endpointLine)(&shards[i].Endpoints[j])})
		}
	}
	return lines
}

type endpointLine admin.EndpointInfo

func (e *endpointLine) cells() []string {
	role := e.Serves
	if role == "" {
		role = "unused"
	}
	health := e.Health
	if e.Reason != "" {
		health += ": " + e.Reason
	}
	if e.LagBytes != nil {
		health += fmt.Sprintf(", %d bytes behind", *e.LagBytes)
	}
	return []string{"  " + role, "", health, "", "", "", "", e.URL}
}
