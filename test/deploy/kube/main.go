// Command kube reads Kubernetes manifests as strictly as an API server does: each
// field has to exist in the types of the API, with the right type, once. It is a
// module of its own, so that Cleave does not depend on those types.
package main

import (
	"bytes"
	"fmt"
	"os"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the objects that the manifests may hold.
var kinds = map[string]func() any{
	"v1 ConfigMap":                       func() any { return &core.ConfigMap{} },
	"v1 Secret":                          func() any { return &core.Secret{} },
	"v1 Service":                         func() any { return &core.Service{} },
	"apps/v1 Deployment":                 func() any { return &apps.Deployment{} },
	"policy/v1 PodDisruptionBudget":      func() any { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return &networking.NetworkPolicy{} },
}

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for i, doc := range bytes.Split(text, []byte("\n---\n")) {
			var head meta.TypeMeta
			err := yaml.Unmarshal(doc, &head)
			if err == nil {
				kind := head.APIVersion + " " + head.Kind
				if make, ok := kinds[kind]; ok {
					err = yaml.UnmarshalStrict(doc, make())
				} else {
					err = fmt.Errorf("%q is none of the kinds that are known here", kind)
				}
			}
			if err != nil {
				failed = true
				fmt.Printf("%s, document %d: %v\n", path, i+1, err)
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}
