//! Every function of the environment with its signatures, as Kubernetes declares them.
//!
//! The order of a function's signatures is that in which they are tried: the first that fits gives the result,
//! and `dyn` when several fit and differ.

/// Types of libraries that are no more than a name.
pub(crate) const OPAQUE: &[&str] = &["net.CIDR", "net.IP"];

/// Types of libraries that count as structs, though without a field that expressions could name.
pub(crate) const FIELDLESS: &[&str] = &[
    "kubernetes.NamedFormat",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.URL",
    "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.Decision",
    "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.ResourceCheck",
];

/// Names, separated by spaces, and their signatures, by semicolons.
#[rustfmt::skip] // a row each
pub(crate) const TABLE: &[(&str, &str)] = &[
    ("!_ @not_strictly_false", "(bool) -> bool"),
    ("-_", "(double) -> double; (int) -> int"),
    ("@in", "(A, list(A)) -> bool; (A, map(A, B)) -> bool"),
    ("@sortByAssociatedKeys",
     "list(T).(list(int)) -> list(T); list(T).(list(uint)) -> list(T); list(T).(list(double)) -> list(T); \
      list(T).(list(bool)) -> list(T); list(T).(list(duration)) -> list(T); \
      list(T).(list(timestamp)) -> list(T); list(T).(list(string)) -> list(T); \
      list(T).(list(bytes)) -> list(T)"),
    ("_!=_ _==_", "(A, A) -> bool"),
    ("_%_", "(int, int) -> int; (uint, uint) -> uint"),
    ("_&&_ _||_", "(bool, bool) -> bool"),
    ("_*_ _/_", "(double, double) -> double; (int, int) -> int; (uint, uint) -> uint"),
    ("_+_",
     "(bytes, bytes) -> bytes; (double, double) -> double; (duration, duration) -> duration; \
      (duration, timestamp) -> timestamp; (timestamp, duration) -> timestamp; (int, int) -> int; \
      (list(A), list(A)) -> list(A); (string, string) -> string; (uint, uint) -> uint"),
    ("_-_",
     "(double, double) -> double; (duration, duration) -> duration; (int, int) -> int; \
      (timestamp, duration) -> timestamp; (timestamp, timestamp) -> duration; (uint, uint) -> uint"),
    ("_<=_ _<_ _>=_ _>_",
     "(bool, bool) -> bool; (int, int) -> bool; (int, double) -> bool; (int, uint) -> bool; \
      (uint, uint) -> bool; (uint, double) -> bool; (uint, int) -> bool; (double, double) -> bool; \
      (double, int) -> bool; (double, uint) -> bool; (string, string) -> bool; (bytes, bytes) -> bool; \
      (timestamp, timestamp) -> bool; (duration, duration) -> bool"),
    ("_?_:_", "(bool, A, A) -> A"),
    ("_[?_]",
     "(list(V), int) -> optional(V); (optional(list(V)), int) -> optional(V); \
      (map(K, V), K) -> optional(V); (optional(map(K, V)), K) -> optional(V)"),
    ("_[_]",
     "(list(A), int) -> A; (map(A, B), A) -> B; (optional(list(V)), int) -> optional(V); \
      (optional(map(K, V)), K) -> optional(V)"),
    ("add sub",
     "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity; \
      kubernetes.Quantity.(int) -> kubernetes.Quantity"),
    ("allowed errored", "kubernetes.authorization.Decision.() -> bool"),
    ("asApproximateFloat", "kubernetes.Quantity.() -> double"),
    ("asInteger", "kubernetes.Quantity.() -> int"),
    ("bool", "(bool) -> bool; (string) -> bool"),
    ("bytes", "(bytes) -> bytes; (string) -> bytes"),
    ("cel.@mapInsert", "(map(K, V), K, V) -> map(K, V); (map(K, V), map(K, V)) -> map(K, V)"),
    ("charAt", "string.(int) -> string"),
    ("check",
     "kubernetes.authorization.PathCheck.(string) -> kubernetes.authorization.Decision; \
      kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.Decision"),
    ("cidr", "(string) -> net.CIDR"),
    ("compareTo",
     "kubernetes.Quantity.(kubernetes.Quantity) -> int; kubernetes.Semver.(kubernetes.Semver) -> int"),
    ("contains endsWith startsWith", "string.(string) -> bool"),
    ("containsCIDR", "net.CIDR.(string) -> bool; net.CIDR.(net.CIDR) -> bool"),
    ("containsIP", "net.CIDR.(string) -> bool; net.CIDR.(net.IP) -> bool"),
    ("distinct reverse", "list(T).() -> list(T)"),
    ("double", "(double) -> double; (int) -> double; (string) -> double; (uint) -> double"),
    ("duration", "(duration) -> duration; (int) -> duration; (string) -> duration"),
    ("dyn", "(A) -> dyn"),
    ("error reason", "kubernetes.authorization.Decision.() -> string"),
    ("family", "net.IP.() -> int"),
    ("fieldSelector labelSelector name namespace subresource",
     "kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.ResourceCheck"),
    ("find", "string.(string) -> string"),
    ("findAll split", "string.(string) -> list(string); string.(string, int) -> list(string)"),
    ("first last", "list(V).() -> optional(V)"),
    ("flatten", "list(list(T)).() -> list(T); list(dyn).(int) -> list(dyn)"),
    ("format", "string.(list(dyn)) -> string"),
    ("format.byte format.date format.datetime format.dns1035Label", "() -> kubernetes.NamedFormat"),
    ("format.dns1035LabelPrefix format.dns1123Label", "() -> kubernetes.NamedFormat"),
    ("format.dns1123LabelPrefix format.dns1123Subdomain", "() -> kubernetes.NamedFormat"),
    ("format.dns1123SubdomainPrefix format.labelValue", "() -> kubernetes.NamedFormat"),
    ("format.qualifiedName format.uri format.uuid", "() -> kubernetes.NamedFormat"),
    ("format.named", "(string) -> optional(kubernetes.NamedFormat)"),
    ("getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getMonth",
     "timestamp.() -> int; timestamp.(string) -> int"),
    ("getEscapedPath getHost getHostname getPort getScheme", "kubernetes.URL.() -> string"),
    ("getHours getMilliseconds getMinutes getSeconds",
     "timestamp.() -> int; timestamp.(string) -> int; duration.() -> int"),
    ("getQuery", "kubernetes.URL.() -> map(string, list(string))"),
    ("group", "kubernetes.authorization.Authorizer.(string) -> kubernetes.authorization.GroupCheck"),
    ("hasValue", "optional(V).() -> bool"),
    ("indexOf lastIndexOf", "list(A).(A) -> int; string.(string) -> int; string.(string, int) -> int"),
    ("int",
     "(int) -> int; (double) -> int; (duration) -> int; (string) -> int; (timestamp) -> int; (uint) -> int"),
    ("ip", "(string) -> net.IP; net.CIDR.() -> net.IP"),
    ("ip.isCanonical isCIDR isIP isQuantity isURL", "(string) -> bool"),
    ("isGlobalUnicast isLinkLocalMulticast isLinkLocalUnicast isLoopback isUnspecified", "net.IP.() -> bool"),
    ("isGreaterThan isLessThan",
     "kubernetes.Quantity.(kubernetes.Quantity) -> bool; kubernetes.Semver.(kubernetes.Semver) -> bool"),
    ("isInteger", "kubernetes.Quantity.() -> bool"),
    ("isSemver", "(string) -> bool; (string, bool) -> bool"),
    ("isSorted",
     "list(int).() -> bool; list(uint).() -> bool; list(double).() -> bool; list(bool).() -> bool; \
      list(duration).() -> bool; list(timestamp).() -> bool; list(string).() -> bool; list(bytes).() -> bool"),
    ("join", "list(string).() -> string; list(string).(string) -> string"),
    ("lists.range", "(int) -> list(int)"),
    ("lowerAscii trim upperAscii", "string.() -> string"),
    ("major minor patch", "kubernetes.Semver.() -> int"),
    ("masked", "net.CIDR.() -> net.CIDR"),
    ("matches", "(string, string) -> bool; string.(string) -> bool"),
    ("max min",
     "list(int).() -> int; list(uint).() -> uint; list(double).() -> double; list(bool).() -> bool; \
      list(duration).() -> duration; list(timestamp).() -> timestamp; list(string).() -> string; \
      list(bytes).() -> bytes"),
    ("optional.none", "() -> optional(V)"),
    ("optional.of optional.ofNonZeroValue", "(V) -> optional(V)"),
    ("optional.unwrap", "(list(optional(V))) -> list(V)"),
    ("or", "optional(V).(optional(V)) -> optional(V)"),
    ("orValue", "optional(V).(V) -> V"),
    ("path", "kubernetes.authorization.Authorizer.(string) -> kubernetes.authorization.PathCheck"),
    ("prefixLength", "net.CIDR.() -> int"),
    ("quantity", "(string) -> kubernetes.Quantity"),
    ("replace", "string.(string, string) -> string; string.(string, string, int) -> string"),
    ("resource", "kubernetes.authorization.GroupCheck.(string) -> kubernetes.authorization.ResourceCheck"),
    ("semver", "(string) -> kubernetes.Semver; (string, bool) -> kubernetes.Semver"),
    ("serviceAccount",
     "kubernetes.authorization.Authorizer.(string, string) -> kubernetes.authorization.Authorizer"),
    ("sets.contains sets.equivalent sets.intersects", "(list(T), list(T)) -> bool"),
    ("sign", "(kubernetes.Quantity) -> int"),
    ("size",
     "(bytes) -> int; bytes.() -> int; (list(A)) -> int; list(A).() -> int; (map(A, B)) -> int; \
      map(A, B).() -> int; (string) -> int; string.() -> int"),
    ("slice", "list(T).(int, int) -> list(T)"),
    ("sort",
     "list(int).() -> list(int); list(uint).() -> list(uint); list(double).() -> list(double); \
      list(bool).() -> list(bool); list(duration).() -> list(duration); \
      list(timestamp).() -> list(timestamp); list(string).() -> list(string); list(bytes).() -> list(bytes)"),
    ("string",
     "(string) -> string; (bool) -> string; (bytes) -> string; (double) -> string; (duration) -> string; \
      (int) -> string; (timestamp) -> string; (uint) -> string; (net.IP) -> string; (net.CIDR) -> string"),
    ("strings.quote jsonpatch.escapeKey", "(string) -> string"),
    ("substring", "string.(int) -> string; string.(int, int) -> string"),
    ("sum",
     "list(int).() -> int; list(uint).() -> uint; list(double).() -> double; list(duration).() -> duration"),
    ("timestamp", "(timestamp) -> timestamp; (int) -> timestamp; (string) -> timestamp"),
    ("type", "(A) -> type(A)"),
    ("uint", "(uint) -> uint; (double) -> uint; (int) -> uint; (string) -> uint"),
    ("unwrapOpt", "list(optional(V)).() -> list(V)"),
    ("url", "(string) -> kubernetes.URL"),
    ("validate", "kubernetes.NamedFormat.(string) -> optional(list(string))"),
    ("value", "optional(V).() -> V"),
];
