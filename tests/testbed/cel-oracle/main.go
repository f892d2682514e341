// Command cel-oracle answers what Kubernetes makes of CEL expressions: one JSON
// object a line in, one out, in the same order. The expressions are compiled
// and evaluated by the API server's own packages, in the environment that a new
// ValidatingAdmissionPolicy or MutatingAdmissionPolicy gets.
//
// In:
//
//	id         any value; repeated in the answer
//	expr       the expression
//	mode       "validation" (default) or "mutation"
//	vars       object, oldObject, request, namespaceObject, params, authorizer;
//	           what is absent is null, but params is then not declared
//	variables  [{name, expression}]: variables.NAME
//	returns    "any" (default), "bool", "string", "string|null", "Object" or
//	           "JSONPatch": the types that the expression may have
//
// Out: {"value", "type", "cost"} or {"error", "kind"}, where the kind is
// compile, runtime, cost (the limit of one expression) or budget (that of a
// policy). See values.go for the form of values.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// maxLine is the longest question, in bytes.
const maxLine = 16 << 20

type question struct {
	ID        json.RawMessage            `json:"id"`
	Expr      string                     `json:"expr"`
	Mode      string                     `json:"mode"`
	Vars      map[string]json.RawMessage `json:"vars"`
	Variables []namedExpression          `json:"variables"`
	Returns   string                     `json:"returns"`
}

type answer struct {
	ID    json.RawMessage `json:"id,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	Type  string          `json:"type,omitempty"`
	Cost  *int64          `json:"cost,omitempty"`
	Error string          `json:"error,omitempty"`
	Kind  string          `json:"kind,omitempty"`
}

// failure is an answer without a value.
type failure struct {
	kind    string
	message string
}

func (f *failure) Error() string { return f.message }

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cel-oracle:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	oracle := newOracle()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	written := bufio.NewWriterSize(out, 1<<16)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		// Written at once: whoever asks may wait for this answer.
		text, err := json.Marshal(oracle.line(lines.Bytes()))
		if err != nil {
			return err
		}
		if _, err := written.Write(append(text, '\n')); err != nil {
			return err
		}
		if err := written.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (o *oracle) line(text []byte) (reply answer) {
	var asked question
	defer func() {
		// Kubernetes' own code panics on some inputs; the next line must be answered all the same.
		if panicked := recover(); panicked != nil {
			reply = answer{Error: fmt.Sprintf("panic: %v", panicked), Kind: "runtime"}
		}
		reply.ID = asked.ID
	}()
	if err := json.Unmarshal(text, &asked); err != nil {
		return answer{Error: err.Error(), Kind: "compile"}
	}
	reply, err := o.answer(&asked)
	if failed, ok := err.(*failure); ok {
		return answer{Error: failed.message, Kind: failed.kind}
	}
	if err != nil {
		return answer{Error: err.Error(), Kind: "runtime"}
	}
	return reply
}
