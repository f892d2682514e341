package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types/ref"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"
)

// rule allows what fits every member that it has; "*" fits anything.
type rule map[string]string

// table is an authorizer that is written down: a check passes when one of the rules fits it. The reason is that
// of every check; an error makes every check fail with it.
type table struct {
	Allow  []rule `json:"allow"`
	Reason string `json:"reason"`
	Error  string `json:"error"`
}

func (t *table) Authorize(_ context.Context, checked authorizer.Attributes) (authorizer.Decision, string, error) {
	if t.Error != "" {
		return authorizer.DecisionNoOpinion, t.Reason, errors.New(t.Error)
	}
	for _, rule := range t.Allow {
		if rule.fits(checked) {
			return authorizer.DecisionAllow, t.Reason, nil
		}
	}
	return authorizer.DecisionNoOpinion, t.Reason, nil
}

func (r rule) fits(checked authorizer.Attributes) bool {
	for member, wanted := range r {
		var found string
		switch member {
		case "user":
			found = checked.GetUser().GetName()
		case "verb":
			found = checked.GetVerb()
		case "group":
			found = checked.GetAPIGroup()
		case "resource":
			found = checked.GetResource()
		case "subresource":
			found = checked.GetSubresource()
		case "namespace":
			found = checked.GetNamespace()
		case "name":
			found = checked.GetName()
		case "path":
			found = checked.GetPath()
		default:
			return false
		}
		if wanted != "*" && wanted != found {
			return false
		}
	}
	return true
}

// resource is what a request is about.
type resource struct {
	name, namespace, subresource string
	group                        schema.GroupVersionResource
}

func (r *resource) GetName() string                          { return r.name }
func (r *resource) GetNamespace() string                     { return r.namespace }
func (r *resource) GetSubresource() string                   { return r.subresource }
func (r *resource) GetResource() schema.GroupVersionResource { return r.group }

// authorizers makes the values of `authorizer` and `authorizer.requestResource`.
func authorizers(text json.RawMessage, request map[string]any) (ref.Val, ref.Val, error) {
	checks := &table{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, checks); err != nil {
			return nil, nil, &failure{"compile", fmt.Sprintf("authorizer: %v", err)}
		}
	}
	member := func(path ...string) string {
		found, _, _ := unstructured.NestedString(request, path...)
		return found
	}
	groups, _, _ := unstructured.NestedStringSlice(request, "userInfo", "groups")
	who := &user.DefaultInfo{
		Name:   member("userInfo", "username"),
		UID:    member("userInfo", "uid"),
		Groups: groups,
	}
	about := &resource{
		name:        member("name"),
		namespace:   member("namespace"),
		subresource: member("subResource"),
		group: schema.GroupVersionResource{
			Group:    member("resource", "group"),
			Version:  member("resource", "version"),
			Resource: member("resource", "resource"),
		},
	}
	return library.NewAuthorizerVal(who, checks), library.NewResourceAuthorizerVal(who, checks, about), nil
}
