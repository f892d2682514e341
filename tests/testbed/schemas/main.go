// Command schemas turns Kubernetes' OpenAPI document into JSON schemas for
// kubeconform: one file a kind, with everything it refers to, and strict: a
// field that Kubernetes does not know is an error.
//
//	schemas SWAGGER.JSON DIR
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const refPrefix = "#/definitions/"

// schema is a JSON schema, or a part of one.
type schema = map[string]any

// kind is one entry of x-kubernetes-group-version-kind.
type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: schemas SWAGGER.JSON DIR")
	}
	text, err := os.ReadFile(arguments[0])
	if err != nil {
		return err
	}
	var document struct {
		Definitions map[string]schema `json:"definitions"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("failed to read %s: %w", arguments[0], err)
	}
	kinds := map[string][]kind{}
	for name, definition := range document.Definitions {
		if named, ok := definition["x-kubernetes-group-version-kind"]; ok {
			text, err := json.Marshal(named)
			if err != nil {
				return err
			}
			var list []kind
			if err := json.Unmarshal(text, &list); err != nil {
				return fmt.Errorf("failed to read the kinds of %s: %w", name, err)
			}
			kinds[name] = list
		}
	}
	for _, definition := range document.Definitions {
		tighten(definition)
	}
	// Both are declared as strings, and written as numbers as well.
	document.Definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = schema{"type": []any{"string", "integer"}}
	document.Definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = schema{"type": []any{"string", "number"}}
	for name, list := range kinds {
		// Those of several groups, such as DeleteOptions, are no objects that anybody applies.
		if len(list) != 1 {
			continue
		}
		reached := map[string]schema{}
		reach(document.Definitions, name, reached)
		text, err := json.Marshal(schema{"$ref": refPrefix + name, "definitions": reached})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(arguments[1], file(list[0])), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// file is the name under which kubeconform looks for a kind: {{.ResourceKind}}{{.KindSuffix}}.json.
func file(kind kind) string {
	group, _, _ := strings.Cut(kind.Group, ".")
	parts := []string{kind.Kind, group, kind.Version}
	if group == "" {
		parts = []string{kind.Kind, kind.Version}
	}
	return strings.ToLower(strings.Join(parts, "-")) + ".json"
}

// tighten refuses unknown fields wherever the known ones are listed, and drops what only people read.
func tighten(node any) {
	switch node := node.(type) {
	case schema:
		delete(node, "description")
		if _, ok := node["properties"].(schema); ok {
			if _, ok := node["additionalProperties"]; !ok {
				node["additionalProperties"] = false
			}
		}
		for key, value := range node {
			if properties, ok := value.(schema); ok && key == "properties" {
				// Its keys are fields, one of which may be called description.
				for _, property := range properties {
					tighten(property)
				}
				continue
			}
			tighten(value)
		}
	case []any:
		for _, value := range node {
			tighten(value)
		}
	}
}

// reach collects a definition and those that it refers to.
func reach(definitions map[string]schema, name string, reached map[string]schema) {
	if _, ok := reached[name]; ok {
		return
	}
	reached[name] = definitions[name]
	follow(definitions[name], func(reference string) { reach(definitions, reference, reached) })
}

func follow(node any, visit func(string)) {
	switch node := node.(type) {
	case schema:
		for key, value := range node {
			if reference, ok := value.(string); ok && key == "$ref" {
				visit(strings.TrimPrefix(reference, refPrefix))
				continue
			}
			follow(value, visit)
		}
	case []any:
		for _, value := range node {
			follow(value, visit)
		}
	}
}
