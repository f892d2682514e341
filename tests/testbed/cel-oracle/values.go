package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// write gives a value's JSON: bytes as base64, timestamps in RFC 3339, durations as 1.5s, types as {"$type"},
// optionals as {"$optional": value or "none"}, maps with keys other than strings as {"$map": [[key, value]]},
// NaN and infinities as strings, values of Kubernetes' libraries as their text, Object and JSONPatch as the
// JSON that they stand for. Doubles have a fraction or an exponent, so that they differ from integers.
func write(value ref.Val) (json.RawMessage, error) {
	switch value := value.(type) {
	case types.Null:
		return json.RawMessage("null"), nil
	case types.Double:
		return writeDouble(float64(value)), nil
	case types.String:
		return text(string(value))
	case types.Bool, types.Int, types.Uint:
		return json.Marshal(value.Value())
	case types.Bytes:
		return text(base64.StdEncoding.EncodeToString(value))
	case types.Duration:
		return text(duration(value))
	case types.Timestamp:
		return text(string(value.ConvertToType(types.StringType).(types.String)))
	case *types.Optional:
		if !value.HasValue() {
			return json.RawMessage(`{"$optional":"none"}`), nil
		}
		return tagged("$optional", value.GetValue())
	case ref.Type:
		name, err := text(value.TypeName())
		return json.RawMessage(fmt.Sprintf(`{"$type":%s}`, name)), err
	case apiservercel.Quantity:
		return text(value.Quantity.String())
	case *apiservercel.Quantity:
		return text(value.Quantity.String())
	case apiservercel.URL:
		return text(value.URL.String())
	case apiservercel.IP:
		return text(value.Addr.String())
	case apiservercel.CIDR:
		return text(value.Prefix.String())
	case apiservercel.Semver:
		return text(value.Version.String())
	case *apiservercel.Format:
		return text(value.Name)
	case *mutation.JSONPatchVal:
		return writePatch(value)
	case *dynamic.ObjectVal:
		return json.Marshal(value.Value())
	case traits.Mapper:
		return writeMap(value)
	case traits.Lister:
		return writeList(value)
	}
	return nil, &failure{"runtime", fmt.Sprintf("a value of type '%s' cannot be written", value.Type().TypeName())}
}

// text writes a string without the escapes for HTML.
func text(value string) (json.RawMessage, error) {
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimRight(written.Bytes(), "\n"), err
}

func tagged(tag string, value ref.Val) (json.RawMessage, error) {
	written, err := write(value)
	return json.RawMessage(fmt.Sprintf(`{"%s":%s}`, tag, written)), err
}

func writeDouble(value float64) json.RawMessage {
	switch {
	case math.IsNaN(value):
		return json.RawMessage(`"NaN"`)
	case math.IsInf(value, 1):
		return json.RawMessage(`"Infinity"`)
	case math.IsInf(value, -1):
		return json.RawMessage(`"-Infinity"`)
	}
	written := strconv.FormatFloat(value, 'g', -1, 64)
	if !strings.ContainsAny(written, ".e") {
		written += ".0"
	}
	return json.RawMessage(written)
}

// duration is exact, unlike CEL's own text of a duration, which goes through a double.
func duration(value types.Duration) string {
	nanoseconds := value.Nanoseconds()
	sign := ""
	magnitude := uint64(nanoseconds)
	if nanoseconds < 0 {
		sign, magnitude = "-", -magnitude
	}
	seconds, rest := magnitude/1_000_000_000, magnitude%1_000_000_000
	if rest == 0 {
		return fmt.Sprintf("%s%ds", sign, seconds)
	}
	return fmt.Sprintf("%s%d.%ss", sign, seconds, strings.TrimRight(fmt.Sprintf("%09d", rest), "0"))
}

func writePatch(patch *mutation.JSONPatchVal) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	for name, member := range map[string]string{"op": patch.Op, "from": patch.From, "path": patch.Path} {
		if member == "" && name == "from" {
			continue
		}
		written, err := text(member)
		if err != nil {
			return nil, err
		}
		members[name] = written
	}
	if patch.Val != nil {
		written, err := write(patch.Val)
		if err != nil {
			return nil, err
		}
		members["value"] = written
	}
	return json.Marshal(members)
}

func writeList(list traits.Lister) (json.RawMessage, error) {
	items := []json.RawMessage{}
	for next := list.Iterator(); next.HasNext() == types.True; {
		written, err := write(next.Next())
		if err != nil {
			return nil, err
		}
		items = append(items, written)
	}
	return json.Marshal(items)
}

// writeMap writes entries in the order of their keys.
func writeMap(entries traits.Mapper) (json.RawMessage, error) {
	type pair struct {
		key            ref.Val
		written, value json.RawMessage
	}
	var pairs []pair
	named := true
	for keys := entries.Iterator(); keys.HasNext() == types.True; {
		key := keys.Next()
		value := entries.Get(key)
		if failed, ok := value.(*types.Err); ok {
			return nil, &failure{"runtime", failed.Error()}
		}
		if _, ok := key.(types.String); !ok {
			named = false
		}
		writtenKey, err := write(key)
		if err != nil {
			return nil, err
		}
		written, err := write(value)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair{key, writtenKey, written})
	}
	sort.Slice(pairs, func(i, j int) bool { return before(pairs[i].key, pairs[j].key) })
	parts := make([]string, len(pairs))
	for index, pair := range pairs {
		if named {
			parts[index] = fmt.Sprintf("%s:%s", pair.written, pair.value)
		} else {
			parts[index] = fmt.Sprintf("[%s,%s]", pair.written, pair.value)
		}
	}
	if named {
		return json.RawMessage("{" + strings.Join(parts, ",") + "}"), nil
	}
	return json.RawMessage(`{"$map":[` + strings.Join(parts, ",") + "]}"), nil
}

// before orders keys: bools, numbers, strings.
func before(left, right ref.Val) bool {
	rank := func(key ref.Val) int {
		switch key.(type) {
		case types.Bool:
			return 0
		case types.Int, types.Uint, types.Double:
			return 1
		}
		return 2
	}
	if rank(left) != rank(right) {
		return rank(left) < rank(right)
	}
	comparer, ok := left.(traits.Comparer)
	return ok && comparer.Compare(right) == types.IntNegOne
}
