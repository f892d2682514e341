package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// namedExpression is one of a policy's variables.
type namedExpression struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

func (v *namedExpression) GetName() string          { return v.Name }
func (v *namedExpression) GetExpression() string    { return v.Expression }
func (v *namedExpression) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType, cel.DynType} }

// expression is what is asked about, with the types that it may have.
type expression struct {
	text  string
	types []*cel.Type
}

func (e *expression) GetExpression() string    { return e.text }
func (e *expression) ReturnTypes() []*cel.Type { return e.types }

var returnTypes = map[string][]*cel.Type{
	"":            {cel.AnyType},
	"any":         {cel.AnyType},
	"bool":        {cel.BoolType},
	"string":      {cel.StringType},
	"string|null": {cel.StringType, cel.NullType},
	"Object":      {cel.ObjectType("Object")},
	"JSONPatch":   {cel.ListType(cel.ObjectType("JSONPatch"))},
}

// oracle compiles and evaluates. Making a compiler takes milliseconds, so the last one is kept for the next
// question with the same variables.
type oracle struct {
	key      string
	compiler *admissioncel.CompositedCompiler
	refused  error
}

func newOracle() *oracle { return &oracle{} }

func (o *oracle) answer(asked *question) (answer, error) {
	returns, known := returnTypes[asked.Returns]
	if !known {
		return answer{}, &failure{"compile", fmt.Sprintf("no type is named %q", asked.Returns)}
	}
	options := admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}
	_, options.HasParams = asked.Vars["params"]
	if err := o.prepare(asked.Variables, options); err != nil {
		return answer{}, err
	}
	switch asked.Mode {
	case "", "validation":
	case "mutation":
		options.HasPatchTypes = true
	default:
		return answer{}, &failure{"compile", fmt.Sprintf("no mode is named %q", asked.Mode)}
	}
	compiled := o.compiler.CompileCELExpression(&expression{asked.Expr, returns}, options, environment.NewExpressions)
	if compiled.Error != nil {
		return answer{}, &failure{"compile", compiled.Error.Detail}
	}
	values, err := bind(asked.Vars)
	if err != nil {
		return answer{}, err
	}
	// What the API server's own activation does, with values as they are given.
	composition := o.compiler.CreateContext(context.Background())
	values.names[admissioncel.VariableVarName] = composition.Variables(values)
	value, details, err := compiled.Program.ContextEval(composition, values)
	if details == nil || details.ActualCost() == nil {
		return answer{}, &failure{"runtime", fmt.Sprintf("no cost was counted: %v", err)}
	}
	cost := composition.GetAndResetCost() + int64(*details.ActualCost())
	if cost > celconfig.RuntimeCELCostBudget {
		return answer{}, &failure{"budget", "validation failed due to running out of cost budget"}
	}
	if err != nil {
		kind := "runtime"
		if strings.Contains(err.Error(), "actual cost limit exceeded") {
			kind = "cost"
		}
		return answer{}, &failure{kind, err.Error()}
	}
	written, err := write(value)
	if err != nil {
		return answer{}, err
	}
	return answer{Value: written, Type: value.Type().TypeName(), Cost: &cost}, nil
}

// prepare sees to a compiler that knows these variables and no others.
func (o *oracle) prepare(variables []namedExpression, options admissioncel.OptionalVariableDeclarations) error {
	key, err := json.Marshal([]any{variables, options})
	if err != nil {
		return err
	}
	if o.key == string(key) {
		return o.refused
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	compiler, err := admissioncel.NewCompositedCompiler(base)
	if err != nil {
		return err
	}
	o.key, o.compiler, o.refused = string(key), compiler, nil
	var refusals []error
	for index := range variables {
		result := compiler.CompileAndStoreVariable(&variables[index], options, environment.NewExpressions)
		if result.Error != nil {
			refusals = append(refusals, fmt.Errorf("variable %q: %s", variables[index].Name, result.Error.Detail))
		}
	}
	if len(refusals) > 0 {
		o.refused = &failure{"compile", errors.Join(refusals...).Error()}
	}
	return o.refused
}

// bindings are the values of the variables of an expression.
type bindings struct {
	names map[string]any
}

func (b *bindings) ResolveName(name string) (any, bool) {
	value, found := b.names[name]
	return value, found
}

func (b *bindings) Parent() interpreter.Activation { return nil }

func bind(vars map[string]json.RawMessage) (*bindings, error) {
	values := &bindings{map[string]any{}}
	for _, name := range []string{
		admissioncel.ObjectVarName,
		admissioncel.OldObjectVarName,
		admissioncel.RequestVarName,
		admissioncel.NamespaceVarName,
		admissioncel.ParamsVarName,
	} {
		var value any
		if text, given := vars[name]; given {
			// Whole numbers become integers, as in Kubernetes.
			if err := utiljson.Unmarshal(text, &value); err != nil {
				return nil, &failure{"compile", fmt.Sprintf("%s: %v", name, err)}
			}
		}
		values.names[name] = value
	}
	var err error
	request, _ := values.names[admissioncel.RequestVarName].(map[string]any)
	values.names[admissioncel.AuthorizerVarName], values.names[admissioncel.RequestResourceAuthorizerVarName], err =
		authorizers(vars[admissioncel.AuthorizerVarName], request)
	return values, err
}
