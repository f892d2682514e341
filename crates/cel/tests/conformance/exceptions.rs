//! What of the language's conformance tests Kubernetes' environment does not have.

/// A test, or with `*` at the end several, that fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exception {
    pub(crate) file: &'static str,
    /// Section and name, divided by a slash.
    pub(crate) test: &'static str,
    pub(crate) reason: &'static str,
}

const fn missing(file: &'static str, test: &'static str, reason: &'static str) -> Exception {
    Exception { file, test, reason }
}

/// Files that are about one thing that Kubernetes does not have.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("bindings_ext", "cel.bind is not in Kubernetes' environment"),
    ("block_ext", "cel.block is not in Kubernetes' environment"),
    ("encoders_ext", "base64 is not in Kubernetes' environment"),
    ("enums", "messages of protobuf"),
    ("math_ext", "the math library is not in Kubernetes' environment"),
    ("proto2", "messages of protobuf"),
    ("proto2_ext", "messages of protobuf"),
    ("proto3", "messages of protobuf"),
    ("wrappers", "messages of protobuf"),
];

const NO_UNCHECKED: &str = "nothing is evaluated without being checked";
const NO_CONTAINER: &str = "there are neither containers nor variables with qualified names";
const NO_QUOTED: &str = "fields in backticks are not in Kubernetes' environment";
const SCIENTIFIC: &str = "Kubernetes writes an exponent as ×10³, to the width of the precision";
const DECIMAL: &str = "Kubernetes' %d takes integers only";
const DOUBLES: &str = "Kubernetes' %f and %e take doubles only";
const INFINITE: &str = "Kubernetes writes ∞";
const LITERALS: &str = "Kubernetes writes what is in lists and maps as literals";
const MAPPED: &str = "Kubernetes refuses IPv4-mapped addresses";
const OPTIONAL: &str = "Kubernetes' cel-go is older: such fields are absent";
const INDEXES: &str = "Kubernetes' strings library is older: an index out of range finds nothing";
const REVERSE: &str = "reverse() of strings is not in Kubernetes' environment";
const DEDUCED: &str = "deduced types are not part of the surface";

const MIXED: &str = "Kubernetes' environment refuses literals and operands of mixed types at load";
const BYTES_KEY: &str = "Kubernetes' environment refuses at load a key that no map can have";

pub(crate) const EXCEPTIONS: &[Exception] = &[
    missing("comparisons", "eq_literal/not_eq_list_null", MIXED),
    missing("comparisons", "eq_literal/eq_list_mixed_type_numbers", MIXED),
    missing("comparisons", "eq_literal/not_eq_list_mixed_type_numbers", MIXED),
    missing("comparisons", "eq_literal/not_eq_list_length", MIXED),
    missing("comparisons", "eq_literal/not_eq_list_false_vs_types", MIXED),
    missing("comparisons", "eq_literal/not_eq_map_null", MIXED),
    missing("comparisons", "eq_literal/eq_map_mixed_type_numbers", MIXED),
    missing("comparisons", "eq_literal/not_eq_map_false_vs_types", MIXED),
    missing("comparisons", "eq_literal/eq_mixed_types", MIXED),
    missing("comparisons", "eq_literal/eq_list_elem_mixed_types", MIXED),
    missing("comparisons", "eq_literal/eq_map_value_mixed_types", MIXED),
    missing("comparisons", "eq_literal/not_eq_list_elem_null", MIXED),
    missing("comparisons", "eq_literal/not_eq_map_value_null", MIXED),
    missing("comparisons", "ne_literal/ne_mixed_types", MIXED),
    missing("comparisons", "in_list_literal/elem_in_mixed_type_list", MIXED),
    missing("comparisons", "in_list_literal/elem_in_mixed_type_list_cross_type", MIXED),
    missing("comparisons", "in_map_literal/key_in_mixed_key_type_map", MIXED),
    missing("comparisons", "in_map_literal/key_in_mixed_key_type_map_cross_type", MIXED),
    missing("conversions", "dyn/dyn_heterogeneous_list", MIXED),
    missing("fields", "map_fields/map_key_int64", MIXED),
    missing("fields", "map_fields/map_key_uint64", MIXED),
    missing("fields", "map_fields/map_key_mixed_type", MIXED),
    missing("fields", "map_fields/map_key_mixed_numbers_double_key", MIXED),
    missing("fields", "map_fields/map_key_mixed_numbers_uint_key", MIXED),
    missing("fields", "map_fields/map_key_mixed_numbers_int_key", MIXED),
    missing("fields", "map_fields/map_bad_key_type_or_true", BYTES_KEY),
    missing("fields", "map_fields/map_bad_key_type_and_false", BYTES_KEY),
    missing("fields", "map_fields/map_value_mix_type", MIXED),
    missing("fields", "in/mixed_numbers_and_keys_present", MIXED),
    missing("fields", "in/mixed_numbers_and_keys_absent", MIXED),
    missing("logic", "conditional/mixed_type", MIXED),
    missing("logic", "AND/short_circuit_type_left", MIXED),
    missing("logic", "AND/short_circuit_type_right", MIXED),
    missing("logic", "OR/short_circuit_type_left", MIXED),
    missing("logic", "OR/short_circuit_type_right", MIXED),
    missing("macros", "exists/list_elem_type_shortcircuit", MIXED),
    missing("macros", "exists/list_elem_type_exhaustive", MIXED),
    missing("macros", "exists/map_key_type_shortcircuit", MIXED),
    missing("macros", "exists/map_key_type_exhaustive", MIXED),
    missing("macros", "all/list_elem_type_shortcircuit", MIXED),
    missing("macros2", "exists/list_elem_type_shortcircuit", MIXED),
    missing("macros2", "exists/list_elem_type_exhaustive", MIXED),
    missing("macros2", "exists/map_key_type_shortcircuit", MIXED),
    missing("macros2", "exists/map_key_type_exhaustive", MIXED),
    missing("macros2", "all/list_elem_type_shortcircuit", MIXED),
    missing("macros2", "all/list_elem_type_exhaustive", MIXED),
    missing("optionals", "optionals/optional_chaining_13", MIXED),
    missing("optionals", "optionals/map_key_mixed_type_optindex_value", MIXED),
    missing("optionals", "optionals/map_key_mixed_numbers_double_key_optindex_value", MIXED),
    missing("optionals", "optionals/map_key_mixed_numbers_uint_key_optindex_value", MIXED),
    missing("optionals", "optionals/map_key_mixed_numbers_int_key_optindex_value", MIXED),
    missing("plumbing", "check_inputs/skip_check", MIXED),
    missing("basic", "variables/unbound_is_runtime_error", NO_UNCHECKED),
    missing("basic", "functions/unbound_is_runtime_error", NO_UNCHECKED),
    missing("dynamic", "value_null/literal", "messages of protobuf"),
    missing("fields", "quoted_map_fields/*", NO_QUOTED),
    missing("fields", "qualified_identifier_resolution/qualified_ident", NO_CONTAINER),
    missing("fields", "qualified_identifier_resolution/map_field_select", NO_CONTAINER),
    missing(
        "fields",
        "qualified_identifier_resolution/qualified_identifier_resolution_unchecked",
        NO_CONTAINER,
    ),
    missing("fields", "qualified_identifier_resolution/ident_with_longest_prefix_check", NO_CONTAINER),
    missing("namespace", "qualified/self_eval_qualified_lookup", NO_CONTAINER),
    missing("namespace", "namespace/self_eval_container_lookup*", NO_CONTAINER),
    missing("namespace", "namespace_shadowing/basic", NO_CONTAINER),
    missing(
        "namespace",
        "namespace_shadowing/comprehension_shadowing_namespaced_selector_disambiguation",
        NO_CONTAINER,
    ),
    missing("network_ext", "ipv4/ipv4_equals_ipv6", MAPPED),
    missing("network_ext", "ipv4/ipv4_not_equals_ipv6", MAPPED),
    missing("optionals", "optionals/map_null_entry_no_such_key", OPTIONAL),
    missing("optionals", "optionals/map_present_key_invalid_field", OPTIONAL),
    missing("parse", "receiver_function_names/*", NO_UNCHECKED),
    missing("string_ext", "format/scientific notation formatting clause", SCIENTIFIC),
    missing("string_ext", "format/default precision for scientific notation*", SCIENTIFIC),
    missing("string_ext", "format/dyntype support for scientific notation", SCIENTIFIC),
    missing("string_ext", "format/scientific notation formatting clause in a string variable", SCIENTIFIC),
    missing("string_ext", "format/NaN support for decimal", DECIMAL),
    missing("string_ext", "format/positive infinity support for decimal", DECIMAL),
    missing("string_ext", "format/negative infinity support for decimal", DECIMAL),
    missing("string_ext", "format/default precision for fixed-point clause with int", DOUBLES),
    missing("string_ext", "format/default precision for fixed-point clause with uint", DOUBLES),
    missing("string_ext", "format/NaN support for scientific notation", SCIENTIFIC),
    missing("string_ext", "format/positive infinity support for scientific notation", INFINITE),
    missing("string_ext", "format/negative infinity support for scientific notation", INFINITE),
    missing("string_ext", "format/positive infinity support for fixed-point", INFINITE),
    missing("string_ext", "format/negative infinity support for fixed-point", INFINITE),
    missing("string_ext", "format/list support for string", LITERALS),
    missing("string_ext", "format/map support*", LITERALS),
    missing("string_ext", "format/dyntype NaN/infinity support", LITERALS),
    missing("string_ext", "format/dyntype support for lists", LITERALS),
    missing("string_ext", "format/dyntype support for maps", LITERALS),
    missing("string_ext", "value_errors/indexof_out_of_range", INDEXES),
    missing("string_ext", "value_errors/lastindexof_out_of_range", INDEXES),
    missing("string_ext", "reverse/*", REVERSE),
    missing("type_deduction", "functions/function_result_type", DEDUCED),
    missing("type_deduction", "flexible_type_parameter_assignment/list_parameter*", DEDUCED),
    missing("type_deduction", "flexible_type_parameter_assignment/unconstrained_type_var_as_dyn", DEDUCED),
    missing("type_deduction", "flexible_type_parameter_assignment/optional_none*", DEDUCED),
    missing("type_deduction", "flexible_type_parameter_assignment/optional_dyn_promotion*", DEDUCED),
    missing("type_deduction", "flexible_type_parameter_assignment/optional_in_ternary", DEDUCED),
    missing("type_deduction", "type_parameters/*", DEDUCED),
    missing(
        "type_deduction",
        "legacy_nullable_types/null_assignable_to_abstract_parameter_candidate",
        DEDUCED,
    ),
];
